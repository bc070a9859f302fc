"""The one reader of text: a byte order mark is no part of it, and what is no UTF-8 text is refused in one line."""

import contextlib
import gzip
import io
import pickle
import sqlite3
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.cli import main
from seq2seq.cli.streaming import open_input, read_idle_batches
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.sources import open_pairs
from seq2seq.data.text_files import TextFiles
from seq2seq.errors import DataError
from seq2seq.lines import BOM, open_bytes, read_lines

TEXT = "Ein Café am Morgen.\nZwei Züge\n\nこれはペンです。\n"
LINES = TEXT.split("\n")[:-1]


@pytest.fixture(params=["plain", "gzip"])
def write(request, tmp_path):
    """Writes bytes as they are, or packed."""

    def write(content: bytes, name: str = "text"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if request.param == "gzip" else content)
        return path

    return write


def streamed(stream) -> list[str]:
    return [line for batch in read_idle_batches(stream, 3) for line in batch]


def test_a_byte_order_mark_is_no_part_of_the_text(write):
    path = write(BOM + TEXT.encode())
    assert list(read_lines(path)) == LINES
    assert streamed(open_input(path)) == LINES
    assert streamed(io.BytesIO(path.read_bytes())) == LINES  # as standard input brings it
    assert list(read_lines(path, keeps_bom=True)) == ["\ufeff" + LINES[0], *LINES[1:]]


def test_reading_goes_on_where_it_was_behind_a_byte_order_mark(write, monkeypatch):
    monkeypatch.setattr("seq2seq.data.text_files.CHUNK_BYTES", 1)
    path = write(BOM + TEXT.encode())
    source = TextFiles(SourceConfig(source=path, target=path), None)
    chunks = list(source.chunks())
    assert len(chunks) > 2
    for chunk in chunks:
        assert [text.split("\n") for text in chunk.raw] == 2 * [LINES[chunk.first - 1 : chunk.end[0]]]
    for index in range(len(chunks) - 1):
        assert next(source.chunks(chunks[index].end)) == chunks[index + 1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "a\tb\n" * 5000,
        "これはペンです。\n" * 9,
        "да\nнет\nможет быть\n",
        "ไทย\nภาษาไทย\n",
        "English\tDeutsch\r\none\teins\r\n",
    ],
)
def test_utf16_and_utf32_are_refused_with_the_remedy(write, encoding, text):
    path = write(text.encode(encoding))
    named = "UTF-16" if "16" in encoding else "UTF-32"
    with pytest.raises(DataError, match=rf"^{path}: {named}(LE|BE)? text; .*iconv -f {named}\w* -t UTF-8\)$"):
        next(read_lines(path))
    with pytest.raises(DataError, match=rf"^input: {named}.*iconv"):
        streamed(io.BytesIO(path.read_bytes()))


def office_document() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
    return file.getvalue()


def test_text_with_the_mark_of_a_tar_is_text(write):
    content = b"x" * 255 + b" gustar y ajustar\n"
    assert content[257:262] == b"ustar"
    with open_bytes(write(content)) as stream:
        assert stream.read() == content


def tar_archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("train.en")
        member.size = 7
        archive.addfile(member, io.BytesIO(b"a line\n"))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (office_document(), "an Excel file"), (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "an Excel file"),
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF"), (b"PAR1\x15\x04", "a Parquet file"), (b"\xfd7zXZ\0\0", "compressed with xz"),
        (gzip.compress(gzip.compress(b"a", mtime=0), mtime=0), "compressed twice"), (tar_archive(), "a tar archive"),
        (b"BZh91AY&SY\x00\x11", "compressed with bzip2"), (b"\x28\xb5\x2f\xfd\x04", "compressed with zstd"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_named(write, content, what):
    with pytest.raises(DataError, match=rf": {what}.*; .*$"):
        open_bytes(write(content))


def tables_of_programs() -> dict[str, bytes]:
    """One table as files of other programs, by what they are called."""
    pyarrow, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {"en": ["A dog."] * 20, "de": ["Ein Hund."] * 20}
    table, files = pyarrow.table(rows), [io.BytesIO() for _ in range(4)]
    parquet.write_table(table, files[0])
    feather.write_feather(table, files[1])
    with pyarrow.ipc.new_stream(files[2], table.schema) as writer:
        writer.write_table(table)
    np.save(files[3], np.array(rows["en"]))
    names = ("a Parquet file", "an Arrow or Feather file", "an Arrow stream", "a NumPy array")
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table pairs (en, de)")
        found = {"an SQLite database": database.serialize()}
    found |= {name: file.getvalue() for name, file in zip(names, files, strict=True)}
    return found | {"a Feather file": b"FEA1\0\0\0\0\0\0\0\0", "an HDF5 file": b"\x89HDF\r\n\x1a\n\0\0\0"}


def test_tables_of_other_programs_are_named(write, capfd):
    for name, content in tables_of_programs().items():
        path = write(content)
        assert main(["check", str(path), str(path), "--workers", "1"]) == 2
        assert f"{path}: {name}" in capfd.readouterr().err
        with pytest.raises(DataError, match=rf": {name}[^;]*; .*(?:UTF-8 text|TSV)"):
            open_bytes(path)
        with pytest.raises(DataError, match=f": {name}"):
            open_pairs(SourceConfig(tsv=path), "en", "de")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [["A dog.", "A cat."], {"en": "A dog."}, [("A dog.", "Ein Hund.")] * 20])
def test_pickles_are_named(write, protocol, value):
    with pytest.raises(DataError, match=": a Python pickle; "):
        open_bytes(write(pickle.dumps(value, protocol)))


@given(
    st.lists(
        st.sampled_from(["a house", "\0", "", "x\0y", "déjà", "\udcff", "日本", "\ufeff", "BZh", "PK"]), unique=True
    )
)
@settings(max_examples=200, deadline=None)
def test_zeros_and_broken_bytes_in_utf8_text_are_read(lines):
    content = "".join(line + "\n" for line in ["One line of text.", *lines]).encode("utf-8", "surrogateescape")
    assert len(streamed(io.BytesIO(content))) == len(lines) + 1


def test_damage_inside_a_packed_file_is_one_line(tmp_path):
    packed = bytearray(gzip.compress("".join(f"line {i * i}\n" for i in range(20_000)).encode()))
    for place in range(len(packed) // 2, len(packed) // 2 + 40):
        packed[place] ^= 0x55
    path = tmp_path / "text.gz"
    path.write_bytes(packed)
    with pytest.raises(DataError, match=rf"^{path}: damaged after line [\d,]+ \(.*\); fetch or compress it again$"):
        list(read_lines(path))
