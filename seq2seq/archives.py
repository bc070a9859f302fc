"""Members of zip archives as files, whose path is that of the archive with the name of the member: `opus.zip/opus.en`.

`lines` and `data.file_facts` open every file with `open_raw`, so that text in an archive is read like any other.
"""

import contextlib
import io
import os
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from zipfile import BadZipFile, ZipExtFile, ZipFile

from seq2seq.errors import DataError, reason, some_of

ZIP = b"PK\x03\x04"


def open_raw(path: Path) -> BinaryIO:
    """Open a file, or a member of a zip archive, for reading bytes.

    Raises:
        DataError: it is missing, a folder, or not readable.
    """
    try:
        if (archive := file_of(path)) != path and is_archive(archive):
            return _open_member(archive, path.relative_to(archive).as_posix())
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def file_of(path: Path) -> Path:
    """Return the file in which a path ends: the archive of a member of a zip archive, else the path."""
    return path if path.exists() else next(filter(Path.is_file, path.parents), path)


def is_archive(path: Path) -> bool:
    """Whether a path is a zip archive that can be read."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with open(path, "rb") as stream:
                return stream.read(len(ZIP)) == ZIP
    return False


def members(archive: Path) -> list[str]:
    """Return the names of the files in a zip archive.

    Raises:
        DataError: it cannot be read.
    """
    with _opened(archive) as opened:
        return [member.filename for member in opened.infolist() if not member.is_dir()]


def _opened(archive: Path) -> ZipFile:
    try:
        return ZipFile(archive)
    except (OSError, BadZipFile) as error:
        raise DataError(f"{archive}: a zip archive that cannot be read ({reason(error)}); fetch it again") from error


def _open_member(archive: Path, name: str) -> BinaryIO:
    with _opened(archive) as opened:
        try:
            named = {PurePosixPath(each).as_posix(): each for each in opened.namelist()}  # `./b.en` is `b.en`
            return io.BufferedReader(_Member(opened.open(named[name])))  # the archive stays open for its members
        except KeyError as error:
            raise DataError(f"{archive}: has no {name}; it has {some_of(list(named))}") from error
        except (RuntimeError, BadZipFile) as error:  # a password, an unusual compression
            raise DataError(f"{archive}: {name} cannot be read ({reason(error)}); extract it") from error


class _Member(io.RawIOBase):
    """A member of an archive; damage is an `OSError`, as in other files."""

    def __init__(self, member: ZipExtFile):
        self._member = member

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._member.seek(offset, whence)

    def tell(self) -> int:
        return self._member.tell()

    def readinto(self, buffer) -> int:
        try:
            content = self._member.read(len(buffer))
        except BadZipFile as error:
            raise OSError(str(error)) from error
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._member.close()
        super().close()
