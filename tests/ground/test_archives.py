"""Members of zip archives are read like files: lines, positions, facts; damage is one message."""

import zipfile
from itertools import islice
from pathlib import Path

import pytest

from seq2seq.archives import is_archive, members
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.file_facts import file_facts
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError
from seq2seq.lines import open_bytes, read_lines

LINES = [f"A line with the number {number}.\n" for number in range(20_000)]


@pytest.fixture
def archive(tmp_path) -> Path:
    with zipfile.ZipFile(tmp_path / "opus.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("docs/README", "Read me.\n")
        made.writestr("text/c.de-en.en", "".join(LINES))
        made.writestr("text/c.de-en.de", "".join(LINES).replace("A line", "Eine Zeile"))
    return tmp_path / "opus.zip"


def test_a_member_has_the_lines_positions_and_facts_of_a_file(archive, tmp_path):
    assert is_archive(archive)
    assert members(archive) == ["docs/README", "text/c.de-en.en", "text/c.de-en.de"]
    extracted, member = tmp_path / "c.en", archive / "text" / "c.de-en.en"
    extracted.write_text("".join(LINES))
    assert not is_archive(extracted)
    assert list(read_lines(member)) == list(read_lines(extracted))
    for offset in (0, 7, 300_000):
        with open_bytes(member, offset) as one, open_bytes(extracted, offset) as other:
            assert one.readlines(1 << 17) == other.readlines(1 << 17)
            assert next(one) == next(other)
    facts = [file_facts(path) for path in (member, extracted)]
    assert [(each.sha256, each.lines) for each in facts] == [(facts[1].sha256, len(LINES))] * 2


def test_a_member_of_the_current_folder_has_the_name_without_it(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("./b.en", "A line.\n")
    assert list(read_lines(tmp_path / "a.zip" / "b.en")) == ["A line."]
    with pytest.raises(DataError, match=r"has no c\.en; it has b\.en"):
        list(read_lines(tmp_path / "a.zip" / "c.en"))


def test_pairs_of_an_archive_continue_at_any_position(archive):
    source = open_pairs(
        SourceConfig(source=archive / "text/c.de-en.en", target=archive / "text/c.de-en.de"), "en", "de"
    )
    chunks = list(source.chunks())
    assert len(chunks) > 1
    whole = [pair for chunk in chunks for pair in chunk.examples()]
    assert len(whole) == len(LINES)
    assert whole[19_999].target == "Eine Zeile with the number 19999."
    rest = [pair for chunk in source.chunks(chunks[0].end) for pair in chunk.examples()]
    assert rest == whole[len(chunks[0].examples()) :]


def test_what_cannot_be_read_is_one_message(archive, tmp_path):
    with pytest.raises(DataError, match=r"opus.zip: has no c.fr; it has docs/README, text/c.de-en.en"):
        list(read_lines(archive / "c.fr"))
    with pytest.raises(DataError, match=r"opus.zip: an Excel file, another office document or a zip archive"):
        list(read_lines(archive))
    (tmp_path / "plain").write_text("A line.\n")
    with pytest.raises(DataError, match=r"plain/c.en: cannot be read \(Not a directory\)"):
        list(read_lines(tmp_path / "plain" / "c.en"))
    content = bytearray(archive.read_bytes())
    place = content.index(b"text/c.de-en.en") + 2000
    content[place : place + 40] = bytes(40)
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"c.de-en.en: (damaged after line|cannot be read)"):
        list(read_lines(archive / "text/c.de-en.en"))
    archive.write_bytes(bytes(content[:5000]))
    with pytest.raises(DataError, match=r"opus.zip: a zip archive that cannot be read"):
        list(islice(read_lines(archive / "text/c.de-en.en"), 1))
