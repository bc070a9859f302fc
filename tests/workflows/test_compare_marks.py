"""The page of `s2s compare`: what it marks, what it says in red, and the flags of lines, whatever the texts hold."""

import json
import random
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.compared import REFERENCE, spoiled
from support.many_directions import CONFIG as MANY
from support.many_directions import write_corpora
from support.number_words import sentences
from support.our_models import make_many
from support.run_folders import make_run

from seq2seq.cli import main
from seq2seq.cli.compare import _training_counts
from seq2seq.cli.test_sets import TestSet as Given
from seq2seq.cli.test_sets import TranslatingModels
from seq2seq.config import file as config_file
from seq2seq.lines import read_lines
from seq2seq.text.words import character_spans, word_spans
from seq2seq.workflows.compare import views
from seq2seq.workflows.compare.comparison import TestLines as Lines
from seq2seq.workflows.compare.comparison import compare
from seq2seq.workflows.compare.page import page
from seq2seq.workflows.compare.systems import System
from seq2seq.workflows.compare.views import count_words, num_words
from seq2seq.workflows.runs import run_of

HOSTILE = ["<b>bold</b>", "&lt;mark&gt;", "</mark>", "<mark>", '"x"', "<!--", "</dd></dl>"]


class Shown(HTMLParser):
    """A parsed page: the translations in parts, each marked or not, red lines, and the rows of tables."""

    def __init__(self, text: str):
        super().__init__()
        self.sentences: list[dict[str, list[tuple[str, bool]]]] = []
        self.red: list[str] = []
        self.rows: dict[str, list[str]] = {}
        self._open: list[tuple[str, str | None]] = []
        self._cells: list[str] = []
        self._term = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag == "meta":
            return
        self._open.append((tag, dict(attrs).get("class")))
        if tag == "dl":
            self.sentences.append({})
        elif tag == "dt":
            self._term = ""
        elif tag == "dd":
            self.sentences[-1][self._term] = []
        elif tag == "tr":
            self._cells = []
        elif tag in ("td", "th"):
            self._cells.append("")
        elif (tag, self._open[-1][1]) == ("p", "bad"):
            self.red.append("")

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag
        if tag == "tr" and self._cells:
            self.rows[self._cells[0]] = self._cells[1:]

    def handle_data(self, data):
        tags = [tag for tag, _ in self._open]
        if "dt" in tags:
            self._term += data
        elif "dd" in tags:
            self.sentences[-1][self._term].append((data, "mark" in tags))
        elif {"td", "th"} & {*tags}:
            self._cells[-1] += data
        elif ("p", "bad") in self._open:
            self.red[-1] += data


def words(text: str) -> list[str]:
    return [text[begin:end] for begin, end in word_spans(text, character_spans(text))]


def plain(parts, is_marked: bool) -> str:
    return "".join(text for text, own in parts if own == is_marked)


def check_marks(found, systems, references) -> int:
    """How many words are marked, in sentences of which each word that the other side lacks is."""
    texts = [{*system.translations} for system in systems]
    count = 0
    for reference, *sides in (sentence.values() for sentence in Shown(page(found)).sentences):
        assert "".join(text for text, _ in reference) in references
        assert not plain(reference, True)
        assert plain(sides[0], False) == plain(sides[1], False)  # what is not marked is in both, in the same order
        said = [words("".join(text for text, _ in side)) for side in sides]
        for side, own, theirs, known in zip(sides, said, said[::-1], texts, strict=True):
            assert "".join(text for text, _ in side) in known
            marked = [word for text, is_own in side if is_own for word in words(text)]
            assert {*own} - {*theirs} <= {*marked}
            count += len(marked)
    return count


def test_words_that_the_other_translation_lacks_are_marked():
    systems = [System(name, spoiled(REFERENCE, 0.2, seed)) for seed, name in enumerate("ab")]
    found = compare(systems, Lines("set", [REFERENCE]), ["chrf"])
    assert check_marks(found, systems, REFERENCE) > 10


def test_marks_are_right_and_escaped_whatever_the_words_are():
    draw, known = random.Random(1), [*HOSTILE, *"abc", "cat", "猫が", "é"]
    sides = [[" ".join(draw.choices(known, k=draw.randint(0, 6))) for _ in range(80)] for _ in range(3)]
    systems = [System(name, side) for name, side in zip(("one", "two"), sides, strict=False)]
    found = compare(systems, Lines("set", [sides[2]]), ["chrf"], most_sentences=80)
    assert sum(len(pair.won) + len(pair.lost) for pair in found.sentences) > 60
    assert check_marks(found, systems, sides[2]) > 100


@pytest.mark.parametrize("word", HOSTILE)
def test_a_word_of_markup_is_marked_as_text(word):
    systems = [System("a", REFERENCE), System("b", [f"{REFERENCE[0]} {word}", *REFERENCE[1:]])]
    (sentence,) = Shown(page(compare(systems, Lines("set", [REFERENCE]), ["chrf"]))).sentences
    sides = list(sentence.values())[1:]
    assert [plain(side, True).strip() for side in sides] == ["", word]


def test_flags_are_counted_on_the_page(tmp_path, monkeypatch, capsys):
    """The flags of JSON Lines may be any text; the page says nothing of a system whose flags are not known."""
    monkeypatch.chdir(tmp_path)
    Path("r").write_text("\n".join(REFERENCE) + "\n")
    Path("plain").write_text("\n".join(spoiled(REFERENCE, 0.2, 1)) + "\n")
    for name, flags in (("few.jsonl", ["loop"]), ("many.jsonl", ["loop", "<i>long</i>"])):
        records = [
            {"source": line, "text": text, "flags": flags if number < len(name) else []}
            for number, (line, text) in enumerate(zip(REFERENCE, spoiled(REFERENCE, 0.1, len(name)), strict=True))
        ]
        Path(name).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    typed = ["compare", "few.jsonl", "many.jsonl", "plain", "--reference", "r", "-m", "chrf", "--html", "page.html"]
    assert main(typed) == 0
    rows = Shown(Path("page.html").read_text()).rows
    assert rows["flag loop"] == [str(len(REFERENCE)), str(len("few.jsonl")), str(len("many.jsonl")), ""]
    assert rows["flag <i>long</i>"] == [str(len(REFERENCE)), "0", str(len("many.jsonl")), ""]
    assert not [name for name in rows if name.startswith("flag ") and name not in ("flag loop", "flag <i>long</i>")]


def test_worthless_figures_are_said_in_red():
    source = [line[::-1] for line in REFERENCE]
    systems = [System("<b>right</b>", REFERENCE), System("copied", source), System("again", source)]
    other = System("other", spoiled(REFERENCE, 0.2, 1))
    found = compare([*systems, other], Lines("set", [REFERENCE], source), ["chrf"])
    assert Shown(page(found)).red == [
        "<b>right</b>: this file is the reference", "copied: this file is the source", "again: this file is the source",
        "copied and again have the same translations",
    ]  # fmt: skip
    assert Shown(page(compare([other, System("more", spoiled(REFERENCE, 0.3, 2))], Lines("s", [REFERENCE])))).red == []


@pytest.mark.parametrize(
    ("direction", "named", "read"),
    [
        (("en", "fr"), None, ["train.en", "small.en"]),
        (("de", "en"), None, ["train.de"]),
        (("de", "fr"), None, ["train.de"]),
        (None, "German", ["train.de"]),
        (None, None, ["train.en", "train.de", "small.en"]),
    ],
)
def test_rare_words_are_those_of_the_training_sources_in_the_language_of_the_test_set(
    direction, named, read, tmp_path, monkeypatch
):
    """The reverse half of `both_ways` counts too, and sources in other languages do not."""
    monkeypatch.chdir(tmp_path)
    write_corpora(tmp_path)
    (tmp_path / "many.yaml").write_text(MANY.replace("TAGS", "source"), encoding="utf-8")
    models = TranslatingModels({}, config_file.load(tmp_path / "many.yaml"), tmp_path)
    lines = {name: list(read_lines(tmp_path / name)) for name in ("train.en", "train.de", "small.en")}
    sources = lines["train.en"] + lines["train.de"]
    test_set = Given("zero", [sources], sources, direction=direction)
    expected = count_words([line for name in read for line in lines[name]], sources)
    assert _training_counts(models, None, test_set, named) == (expected, "")
    for most in (60, 3 * len(lines["train.en"])):  # of each corpus equally, so that none is passed over
        monkeypatch.setattr(views, "MOST_TRAINING_LINES", most)
        found, note = _training_counts(models, None, test_set, named)
        share = most // len(read)
        assert found == count_words([line for name in read for line in lines[name][:share]], sources)
        longest = max(len(lines[name]) for name in read)
        assert note == (f"Counted in the first {share} lines of each training corpus." if share < longest else "")


def test_what_a_resume_trains_again_counts_once(tmp_path):
    """On the axes of hours and of tokens, too."""
    systems = []
    for name, steps in (("whole", [10, 20, 30, 40]), ("resumed", [10, 20, 30, 20, 30, 40])):
        path = make_run(tmp_path / name)
        speed = {"tokens_per_second": 1e6, "loss": 2.0}
        records = [{"step": step, "seconds": 1.0 * step, **speed} for step in steps]
        records += [{"step": 40, "bleu": 30.0, "seconds": 40.0}]
        (path / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
        systems.append(System(name, REFERENCE, None, run_of(path)))
    found = compare(systems, Lines("set", [REFERENCE]), ["chrf"], apart=True).curves.points["bleu"]
    assert found["whole"] == found["resumed"] == [(40, 40 / 3600, 40.0, 30.0)]


@pytest.mark.parametrize("mark", [".", ",", " -", " ...", "!?", " «", "、"])
def test_punctuation_is_no_word(mark):
    for row in sentences(20, 3):
        marked = " ".join(f"{word}{mark}" for word in row)
        assert num_words(" ".join(row)) == num_words(marked) == len(row)


def test_a_set_with_the_name_of_a_direction_of_another_is_measured_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpora(tmp_path)
    rows = [
        {"source": "two", "target": other, "from": "en", "to": to} for other, to in (("zwei", "de"), ("deux", "fr"))
    ]
    Path("mixed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    before, _, rest = MANY.replace("TAGS", "source").partition("  test: {")
    named = "'mixed en-de': {source: valid.en, target: valid.de, from: en, to: de}"
    mixed = "mixed: {jsonl: mixed.jsonl, from_column: from, to_column: to}"
    model = make_many(tmp_path / "model", ["en", "de"], ["de", "en", "fr"], "source")
    for sets in (f"{mixed}, {named}", f"{named}, {mixed}"):
        Path("many.yaml").write_text(f"{before}  test: {{{sets}, {rest}", encoding="utf-8")
        found = TranslatingModels({}, config_file.load(tmp_path / "many.yaml"), model)
        lengths = [len(test_set.sources) for test_set in found.test_sets(None, (), ())]
        assert sorted(lengths) == [1, 1, 12, 12, 12]
