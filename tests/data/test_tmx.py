"""Translation memories: the pairs of the two languages and nothing else, in linear time; hostile files are one line."""

import gzip
import time
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2seq.config.corpora import SourceConfig
from seq2seq.data import tmx
from seq2seq.data.examples import Pair
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError

HEAD = '<?xml version="1.0" encoding="{encoding}"?>\n<tmx version="1.4"><header srclang="en-US"/><body>\n'
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
UNITS = st.lists(
    st.dictionaries(st.sampled_from(["en-US", "DE", "fr", "pt-BR", "x-own"]), TEXTS, max_size=4), max_size=9
)


def unit(segments) -> str:
    return (
        "<tu>" + "".join(f"<tuv xml:lang={quoteattr(k)}><seg>{v}</seg></tuv>" for k, v in segments.items()) + "</tu>\n"
    )


def write(path, *units, encoding="utf-8", head=HEAD):
    text = head.format(encoding=encoding) + "".join(map(unit, units)) + "</body></tmx>\n"
    raw = text.encode(encoding)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def pairs(path, source="en", target="de", key="tmx"):
    return list(open_pairs(SourceConfig(**{key: path}), source, target))


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(units=UNITS)
def test_the_pairs_of_both_languages_in_order(units, tmp_path):
    path = write(tmp_path / "x.tmx", *({k: escape(v) for k, v in one.items()} for one in units))
    expected = [Pair(one["en-US"].strip(), one["DE"].strip()) for one in units if {"en-US", "DE"} <= one.keys()]
    expected = [Pair(" ".join(p.source.split("\n")), " ".join(p.target.split("\n"))) for p in expected]
    if not expected:
        with pytest.raises(DataError, match="no translation unit has en and de; its languages are"):
            pairs(path)
        return
    assert pairs(path) == expected
    config = SourceConfig(tmx=path)
    source = open_pairs(config, "en", "de")
    chunks = list(source.chunks())
    for index, chunk in enumerate(chunks):  # a reading goes on where another ended
        later = [example for each in source.chunks(chunk.end) for example in each.examples()]
        assert later == [example for each in chunks[index + 1 :] for example in each.examples()]
    assert source.fingerprint == open_pairs(config, "en", "de").fingerprint
    assert {chunk.first for chunk in chunks} == {1}


def test_a_reading_goes_on_at_every_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(tmx, "CHUNK_UNITS", 3)
    path = write(tmp_path / "x.tmx", *({"en": f"a {i}", "de": f"b {i}"} if i % 4 else {"fr": "c"} for i in range(20)))
    source = open_pairs(SourceConfig(tmx=path), "en", "de")
    whole, chunks = list(source), list(source.chunks())
    assert len(whole) == 15
    done = 0
    for chunk in chunks:
        done += len(chunk.examples())
        assert [example for each in source.chunks(chunk.end) for example in each.examples()] == whole[done:]


@pytest.mark.parametrize("name", ["x.tmx", "x.tmx.gz", "x.tsv"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1", "windows-1252"])
def test_every_spelling_of_a_file(name, encoding, tmp_path):
    path = write(tmp_path / name, {"EN-us": "Größe", "ger": "Grösse"}, encoding=encoding.removesuffix("-sig"))
    if encoding == "utf-8-sig" and not name.endswith(".gz"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    key = "tsv" if name.endswith("tsv") else "tmx"  # recognised under another key
    for source, target in (("en", "de"), ("English", "deu"), ("en_GB", "de-AT"), ("", "")):
        assert pairs(path, source, target, key) == [Pair("Größe", "Grösse")]


def test_utf16_is_named_and_what_iconv_makes_of_it_is_read(tmp_path):
    path = write(tmp_path / "x.tmx", {"en": "a", "de": "ä"}, encoding="utf-16")
    with pytest.raises(DataError, match=r"UTF-16.*iconv"):
        pairs(path)
    path.write_bytes(path.read_bytes().decode("utf-16").encode())
    assert pairs(path) == [Pair("a", "ä")]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ('a <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> word', "a bold word"),
        ('<hi type="x">all</hi> of it', "all of it"),
        ("one<ph>&lt;br/&gt;</ph>two", "one two"),
        ('one <ph x="1"/>two.', "one two."),
        ('see <ph>&lt;img alt="<sub>a picture</sub>"&gt;</ph> here', "see  here"),
        ("<it pos='begin'>&lt;i&gt;</it>open", "open"),
        ("<ut>{\\b</ut>old", "old"),
        ("two\n     lines", "two lines"),
        ("&amp;lt; &#228; <![CDATA[<b>]]>", "&lt; ä <b>"),
        ("a&nbsp;b", "a\xa0b"),
        ("<bpt><hi>code</hi></bpt>text", "text"),
        ("", ""),
    ],
)
def test_inline_tags_become_text(segment, text, tmp_path):
    # with a DOCTYPE, an entity may be declared elsewhere
    head = HEAD.replace("<tmx", '<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx')
    path = write(tmp_path / "x.tmx", {"en": "x", "de": "y"}, {"en": segment, "de": "y"}, head=head)
    assert pairs(path)[1].source == text


def test_spelling_decides_between_two_of_one_language(tmp_path):
    path = write(tmp_path / "x.tmx", {"pt-PT": "a", "pt-BR": "b", "en": "c"}, {"pt-PT": "d", "en": "e"})
    assert pairs(path, "pt-BR", "en") == [Pair("b", "c"), Pair("d", "e")]
    assert pairs(path, "pt-PT", "pt-BR") == [Pair("a", "b")]
    assert pairs(path, "pt_BR", "en") == [Pair("b", "c"), Pair("d", "e")]
    assert pairs(path, "pt_PT", "pt_BR") == [Pair("a", "b")]
    path = write(tmp_path / "y.tmx", {"zh-Hans": "a", "zh-Hant": "b", "en": "c"}, {"zh-Hans": "d", "en": "e"})
    assert pairs(path, "zho_Hant", "en") == [Pair("b", "c")], "another script is another language"


LOL = '<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(c + 1)} "{f"&{chr(c)};" * 10}">' for c in range(97, 110)
)
WRONG = {
    "entities": (HEAD.replace("<tmx", LOL + "]><tmx") + unit({"en": "&n;", "de": "b"}) + "</body></tmx>", "declares"),
    "file": (HEAD.replace("<tmx", '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx'), "declares"),
    "cut": (HEAD + unit({"en": "a", "de": "b"}), "line 4"),
    "mismatched": (HEAD + "<tu></tuv></body></tmx>", "mismatched tag"),
    "other XML": ("<?xml version='1.0'?><html><p/></html>", "instead of <tmx>"),
    "no XML": ("Hello there.\nHow are you?\n", "line 1"),
    "nothing": ("\n", "line"),
    "unknown entity": (HEAD.replace("<tmx", '<!DOCTYPE tmx SYSTEM "x"><tmx') + unit({"en": "&nosuch;"}), "&nosuch;"),
    "unknown encoding": (HEAD.replace("{encoding}", "klingon"), "encoding"),
    "one language": (HEAD + unit({"en": "a"}) + "</body></tmx>", "its languages are en"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_one_line(kind, tmp_path):
    path = tmp_path / "x.tmx"
    path.write_text(WRONG[kind][0].replace("{encoding}", "utf-8"), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        pairs(path)
    assert "\n" not in str(caught.value)
    assert WRONG[kind][1] in str(caught.value)


def test_a_memory_has_no_labels(tmp_path):
    with pytest.raises(DataError, match="labelled texts come from tsv, jsonl or hub"):
        open_labelled(SourceConfig(tmx=write(tmp_path / "x.tmx", {"en": "a", "de": "b"})))


def body(kind: str, size: int) -> str:
    first, last = unit({"en": "a", "de": "b"}), unit({"en": "c", "de": "d"})
    match kind:
        case "units":
            middle = unit({"en": "a", "de": "b", "fr": "c"}) * (size // 110)
        case "comment":
            middle = f"<!--{'x' * size}-->"
        case "attribute":
            middle = f'<note x="{"y" * size}"/>'
        case "depth":
            middle = "<note>" * (size // 13) + "</note>" * (size // 13)
        case "languages":
            middle = "<tu>" + "<tuv xml:lang='fr'/>" * (size // 21) + "</tu>"
    return HEAD.format(encoding="utf-8") + first + middle + last + "</body></tmx>"


@pytest.mark.parametrize("kind", ["units", "comment", "attribute", "depth", "languages"])
def test_time_is_linear(kind, tmp_path):
    seconds = []
    for size in (500_000, 4_000_000):
        path = tmp_path / f"{size}.tmx"
        path.write_text(body(kind, size))
        start = time.process_time()
        assert pairs(path)[-1] == Pair("c", "d")
        seconds.append(time.process_time() - start)
    assert seconds[1] < 20 * max(seconds[0], 0.05)


@pytest.mark.parametrize("kind", ["comment", "segment", "segments"])
def test_what_is_too_large_is_refused(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(tmx, "LONGEST_TOKEN", 1 << 20)
    path = tmp_path / "x.tmx"
    if kind == "comment":
        path.write_text(body("comment", 4_000_000))
    elif kind == "segment":
        write(path, {"en": "a" * 1_100_000, "de": "b"})
    else:
        path.write_text(HEAD.format(encoding="utf-8") + "<tu>" + "<tuv xml:lang='en'><seg>a</seg></tuv>" * 1001)
    with pytest.raises(DataError, match=r"does not end|characters|segments"):
        pairs(path)
