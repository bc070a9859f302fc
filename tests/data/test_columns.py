"""Columns of tables and JSON Lines: by name, number or language; quotes of spreadsheets; a header is no example."""

import csv
import gzip
import io

import pytest
from support.examples import check_one_line, write, write_jsonl

from seq2seq.config.corpora import SourceConfig
from seq2seq.data.column_kinds import kind_of_column
from seq2seq.data.examples import LabelledText, Pair
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.data.tables import header
from seq2seq.errors import DataError
from seq2seq.lines import read_lines


def test_a_missing_column_names_those_that_are_there_and_the_nearest(tmp_path):
    tsv = write(tmp_path / "x.tsv", "en\tgern", "a\tb")
    check_one_line(SourceConfig(tsv=tsv), "no column 'de'; it has 'en', 'gern'; name .* \\(target_column\\)")
    check_one_line(
        SourceConfig(tsv=tsv, source_column="en", target_column="germ"), "no column 'germ'.*did you mean 'gern'"
    )
    jsonl = write_jsonl(tmp_path / "x.jsonl", [{"translation": {"en": "a", "due": "b"}}])
    check_one_line(SourceConfig(jsonl=jsonl), r"x\.jsonl: line 1: no column 'de'.*'due'")
    check_one_line(SourceConfig(jsonl=jsonl, source_column=0, target_column=1), "column 0 is a number")
    tsv = write(tmp_path / "y.tsv", "review\tlabel", "good\t1")
    check_one_line(SourceConfig(tsv=tsv), "no column 'sentence' or 'text'; it has 'review', 'label'", labelled=True)


def test_columns_are_named_or_numbered_not_both(tmp_path):
    tsv = write(tmp_path / "x.tsv", "a\tb\tc")
    check_one_line(SourceConfig(tsv=tsv, source_column="a", target_column=1), "name both columns, or number both")
    check_one_line(SourceConfig(tsv=tsv, source_column=1), "both columns are number 1")


def test_a_line_with_another_number_of_columns_is_named(tmp_path):
    tsv = write(tmp_path / "x.tsv", "en\tde", "a\tb", "", "a\ttab\tinside")
    check_one_line(SourceConfig(tsv=tsv), r"x\.tsv: line 4 has 3 columns instead of 2")
    tsv = write(tmp_path / "y.tsv", "a\tb\tattribution", "alone")
    check_one_line(SourceConfig(tsv=tsv), r"y\.tsv: line 2 has 1 column instead of at least 2; correct the line")
    tsv = write(tmp_path / "z.tsv", "Hi, there,Hallo")
    check_one_line(SourceConfig(tsv=tsv), r"z\.tsv: line 1 has 1 column .*; a CSV needs a name that ends in \.csv")


QUOTED = [Pair('He said, "really"; yes', "Er sagte"), Pair("A, b; c\td", '"Ja"'), Pair("", "leer"), Pair("d", "e")]


@pytest.mark.parametrize("head", [None, ("en", "de"), ("German", "English"), ("DE", "en-GB")])
@pytest.mark.parametrize(("name", "dialect"), [("x.csv", ","), ("x.csv", ";"), ("x.csv.gz", ";"), ("x.tsv", "\t")])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_what_a_spreadsheet_exports_is_read_without_its_quotes(tmp_path, head, name, dialect, quoting):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=dialect, quoting=quoting)
    swaps = head is not None and head[0].lower() in ("de", "german")
    writer.writerows([head] * (head is not None))
    writer.writerows([(pair.target, pair.source) if swaps else (pair.source, pair.target) for pair in QUOTED])
    content = text.getvalue().encode("utf-8-sig")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    source = open_pairs(SourceConfig(tsv=tmp_path / name), "en", "de")
    assert list(source) == QUOTED
    assert source.size == len(QUOTED)


@pytest.mark.parametrize("head", [None, ("en", "de"), ("German", "English")])
@pytest.mark.parametrize("line", ["sep={}", '"sep={}"', "SEP={}"])
@pytest.mark.parametrize("dialect", [",", ";", "\t", "|"])
def test_the_line_in_which_excel_names_the_delimiter_is_no_record(tmp_path, head, line, dialect):
    """It decides the delimiter, also against what the other lines suggest, and the header is in the next line."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=dialect)
    swaps = head is not None and head[0] == "German"
    writer.writerows([head] * (head is not None))
    writer.writerows([(pair.target, pair.source) if swaps else (pair.source, pair.target) for pair in QUOTED])
    path = tmp_path / "x.csv"
    path.write_bytes(f"{line.format(dialect)}\r\n{text.getvalue()}".encode("utf-8-sig"))
    source = open_pairs(SourceConfig(tsv=path), "en", "de")
    assert list(source) == QUOTED
    assert source.size == len(QUOTED)
    assert header(path) == list(head or (QUOTED[0].source, QUOTED[0].target))


@pytest.mark.parametrize("before", ["\n", "\r\n", "\n\n\n"])
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("x.tsv", ["de\ten", "Hallo\tHello", "Tag\tDay"]),
        ("x.csv", ["German,English", "Hallo,Hello", "Tag,Day"]),
        ("y.csv", ["de;en", "a,b;c,d", "Tag;Day"]),
        ("y.tsv", ["Hello\tHallo", "Day\tTag"]),
    ],
)
def test_empty_lines_before_a_header_or_a_pair_change_nothing(tmp_path, before, name, lines):
    plain, spaced = tmp_path / name, tmp_path / f"spaced-{name}"
    plain.write_text("\n".join(lines) + "\n")
    spaced.write_bytes((before + "\n".join(lines) + "\n").encode())
    pairs = [list(open_pairs(SourceConfig(tsv=path), "en", "de")) for path in (plain, spaced)]
    assert pairs[0] == pairs[1]
    assert len(pairs[0]) == 2
    assert header(spaced) == header(plain)


def test_empty_lines_before_labels_change_nothing_either(tmp_path):
    lines = ["label\tsentence", "pos\tgood film", "neg\tbad film"]
    for before in ([], [""], ["", ""]):
        found = list(open_labelled(SourceConfig(tsv=write(tmp_path / "x.tsv", *before, *lines))))
        assert found == [LabelledText("good film", "pos"), LabelledText("bad film", "neg")]
    unknown = write(tmp_path / "y.tsv", "", "review\tsentiment", *REVIEWS)
    check_one_line(SourceConfig(tsv=unknown), "line 2 looks like a header", labelled=True)


def test_messages_about_a_file_that_names_its_delimiter_have_the_numbers_of_its_lines(tmp_path):
    check_one_line(
        SourceConfig(tsv=write(tmp_path / "x.csv", "sep=;", "en;de", "a;b", "c")), r"x\.csv: line 4 has 1 col"
    )
    check_one_line(SourceConfig(tsv=write(tmp_path / "y.csv", "sep=;", "source;target")), "line 2 looks like a header")


@pytest.mark.parametrize(("name", "delimiter"), [("x.tsv", "\t"), ("x.csv", ",")])
def test_a_field_may_be_as_long_as_any_line(tmp_path, name, delimiter):
    """With quotes around it too, where the reader of tables has a limit of its own."""
    long = "a" * 140_000
    rows = [('"en"', '"de"'), ('"aaa"', '"bbb"'), (f'"{long}"', '"b"')]
    path = write(tmp_path / name, *(delimiter.join(row) for row in rows))
    assert Pair(long, "b") in list(open_pairs(SourceConfig(tsv=path), "en", "de"))


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "x.tsv", "en\tde\ten", "a\tb\tc")
    with pytest.raises(DataError, match="two columns are named 'en'; give one another name"):
        open_pairs(SourceConfig(tsv=path), "en", "de")


def test_a_csv_record_is_one_line(tmp_path):
    path = write(tmp_path / "x.csv", "en,de", 'a,"b', 'c"')
    check_one_line(SourceConfig(tsv=path), r"x\.csv: line 2: not one record .*write each record in one line")
    path = write(tmp_path / "y.csv", "en,de", '"a" b,c')
    check_one_line(SourceConfig(tsv=path), r"y\.csv: line 2: not one record")


@pytest.mark.parametrize(
    "lines",
    [
        ['"Ja," sagte er.\tx', '"a ""b"""\ty'],  # not every quote is a spreadsheet's
        ['"Hi!"\t"Hallo!"', "Yes.\tJa."],  # a text in quotes
        ['"\tx', 'y\t"'], ['a "b" c\td'],
    ],
)  # fmt: skip
def test_quotes_in_other_tsv_are_text(tmp_path, lines):
    source = open_pairs(SourceConfig(tsv=write(tmp_path / "x.tsv", *lines)), "en", "de")
    assert list(source) == [Pair(*line.split("\t")) for line in lines]


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@pytest.mark.parametrize(
    "head", [("English", "Deutsch"), ("german", "ENGLISH"), ("eng", "deu"), ("en_US", "de-DE"), ("Englisch", "Deutsch")]
)
def test_languages_by_any_of_their_names_head_the_columns(tmp_path, suffix, head):
    path = write(tmp_path / f"x{suffix}", *(("," if suffix == ".csv" else "\t").join(r) for r in (head, ("a", "b"))))
    swaps = head[0] == "german"
    assert list(open_pairs(SourceConfig(tsv=path), "en", "de")) == [Pair("b", "a") if swaps else Pair("a", "b")]
    record = [dict(zip(head, ("a", "b"), strict=True))]
    jsonl = SourceConfig(jsonl=write_jsonl(tmp_path / "x.jsonl", record))
    assert list(open_pairs(jsonl, "eng", "de_DE")) == [Pair("b", "a") if swaps else Pair("a", "b")]


@pytest.mark.parametrize(
    "head",
    ["English\tFrench", "source\ttarget", "Text\tTranslation", "id\tsentence\tlang", "sentence_en\tsentence_de",
     "text_en\ttext_de", "SRC_SEG\tTRG_SEG", "Quelle\tZiel", "en text\tde text", "source.en\ttarget.de"],
)  # fmt: skip
def test_a_header_that_nobody_knows_is_no_pair(tmp_path, head):
    path = write(tmp_path / "x.tsv", head, "a\tb\tc")
    first, second, *_ = head.split("\t")
    named = f"source_column: {first}, target_column: {second}"
    check_one_line(SourceConfig(tsv=path), rf"line 1 looks like a header .*\({named}\), or remove it$")
    check_one_line(SourceConfig(tsv=path, source_column=0, target_column=1), "line 1 looks like a header")


@pytest.mark.parametrize(
    "line",
    ["It\tEs", "No.\tNein.", "Text\ttext", "German\tDeutsch", "Hello\tHallo", "the source\tdie Quelle", "\t",
     "is it\tes ist", "to be\tes ist", "no text\tkein Text"],
)  # fmt: skip
def test_short_first_pairs_are_no_header(tmp_path, line):
    path = write(tmp_path / "x.tsv", line, "a\tb")
    assert len(list(open_pairs(SourceConfig(tsv=path), "en", "de"))) == 2


REVIEWS = [f"a review of number {i}\t{label}" for i, label in enumerate(["good", "bad", "3"] * 30)]


@pytest.mark.parametrize("head", ["review\tsentiment", "Kommentar\tStimmung", "Text der Kritik\tUrteil", "Text\tclass"])
def test_a_header_never_becomes_a_class(tmp_path, head):
    path = write(tmp_path / "x.tsv", head, *REVIEWS)
    named = r"\(text_column: {}, label_column: {}\)".format(*head.split("\t"))
    check_one_line(SourceConfig(tsv=path), rf"line 1 looks like a header .*{named}, or remove it$", labelled=True)
    assert len(list(open_labelled(SourceConfig(tsv=write(tmp_path / "y.tsv", *REVIEWS))))) == 90


def test_a_header_of_swapped_columns_names_them_rightly(tmp_path):
    path = write(tmp_path / "x.tsv", "sentiment\treview", *("\t".join(line.split("\t")[::-1]) for line in REVIEWS))
    named = r"\(text_column: review, label_column: sentiment\)"
    check_one_line(SourceConfig(tsv=path), rf"line 1 looks like a header .*{named}, or remove it$", labelled=True)


@pytest.mark.parametrize(
    "lines",
    [
        ["fine\tgood", *REVIEWS],
        ["fine\t7", *REVIEWS],  # a number is no name of a column
        ["a long review, and not the name of a column\trare", *REVIEWS],
        ["fine\trare", *REVIEWS, "another\tas rare"],
        ["fine\tgood", "foul\tbad", "ill\tbad"],  # too few to say
    ],
)
def test_rare_labels_are_no_header(tmp_path, lines):
    assert len(list(open_labelled(SourceConfig(tsv=write(tmp_path / "x.tsv", *lines))))) == len(lines)


def test_no_first_line_of_the_real_corpora_is_taken_for_a_header(real_data, tmp_path):
    for folder, names in (
        ("multi30k", ("train.en", "train.de")), ("multi30k", ("val.fr", "val.de")),
        ("tatoeba", ("train.en", "train.de")), ("small_enja", ("train.en", "train.ja")),
    ):  # fmt: skip
        sides = [[line.replace("\t", " ") for line in read_lines(real_data / folder / f"{n}.gz")][:500] for n in names]
        pairs = list(map(Pair, *sides))
        for first in range(0, 500, 5):  # any line may be the first
            lines = [f"{pair.source}\t{pair.target}" for pair in pairs[first : first + 3]]
            assert (
                list(open_pairs(SourceConfig(tsv=write(tmp_path / "x.tsv", *lines)), "en", "de"))
                == pairs[first : first + 3]
            )
    for name, size in (("train", 67_349), ("dev", 872)):
        path = real_data / "sst2" / f"{name}.tsv.gz"
        assert open_labelled(SourceConfig(tsv=path)).size == size
        bare = list(read_lines(path))[1:3001]
        for first in range(0, 500, 10):
            open_labelled(SourceConfig(tsv=write(tmp_path / "x.tsv", *bare[first:])))


def test_the_kind_of_a_column_of_long_numbers_is_found_in_linear_time():
    fields = ["1" * 100_000 + end for end in ("a", "", ".5", "e")]
    assert kind_of_column(fields) == "identifiers"
    assert kind_of_column(["1", "-2.5", "3e-4", "+1", "12:30", "50 %", "1,000", "inf"]) == "numbers"
    assert kind_of_column(["-", "e5", "--", "."]) != "numbers"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Hallo, du;Hello you", "Gut, ja;Good yes"], [("Hallo, du", "Hello you"), ("Gut, ja", "Good yes")]),
        (["Hallo, du;Hello, you", "Gut, ja;Good, yes"], [("Hallo, du", "Hello, you"), ("Gut, ja", "Good, yes")]),
        (["Ja; gut,Yes; good", "Nein; du,No; you"], [("Ja; gut", "Yes; good"), ("Nein; du", "No; you")]),
        (['"a, b";c', '"d, e";f'], [("a, b", "c"), ("d, e", "f")]),
        (["1,5;2,5", "3,5;4,5"], "can be split by ',' and by ';'; write a first line such as sep=;"),
        (["sep=;", "1,5;2,5", "3,5;4,5"], [("1,5", "2,5"), ("3,5", "4,5")]),
    ],
)
def test_a_comma_before_a_space_is_no_delimiter_where_another_fits(lines, expected, tmp_path):
    path = write(tmp_path / "x.csv", *lines)
    if isinstance(expected, str):
        check_one_line(SourceConfig(tsv=path), rf"x\.csv: its lines {expected}")
        return
    assert [pair.texts for pair in open_pairs(SourceConfig(tsv=path), "en", "de")] == expected
