"""Laws of the corpora in data/: aligned, clean, without overlap, and exactly what their generator writes."""

import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from seq2seq.data.examples import LabelledText, Pair
from seq2seq.inspection.near_duplicates import NearDuplicates
from seq2seq.inspection.overlap import HeldOut, Matches, normalise

DATA = Path(__file__).resolve().parents[2] / "data"
SPLITS = ("train", "valid", "test")
LANGUAGES = ("en", "de")
CORPUS_FILES = [f"phrasebook/{split}.{language}" for split in SPLITS for language in LANGUAGES] + [
    f"reviews/{split}.tsv" for split in SPLITS
]
MAX_BYTES = 3_000_000


def lines_of(name: str) -> list[str]:
    text = (DATA / name).read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def reviews_of(split: str) -> list[list[str]]:
    header, *rows = lines_of(f"reviews/{split}.tsv")
    assert header == "sentence\tlabel"
    return [row.split("\t") for row in rows]


def sentences_of(name: str) -> list[str]:
    if name.endswith(".tsv"):
        return [line.split("\t")[0] for line in lines_of(name)[1:]]
    return lines_of(name)


def test_both_sides_have_as_many_lines_as_promised():
    sizes = {split: {len(lines_of(f"phrasebook/{split}.{language}")) for language in LANGUAGES} for split in SPLITS}
    assert sizes == {"train": {16000}, "valid": {500}, "test": {500}}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_comes_twice_in_any_split(language):
    everything = [line for split in SPLITS for line in lines_of(f"phrasebook/{split}.{language}")]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize("corpus", ["phrasebook", "reviews"])
def test_no_split_overlaps_with_another(corpus):
    """No pair, no side and no near-duplicate is shared, so that training on them starts without a warning."""
    if corpus == "phrasebook":
        examples = {
            split: [
                Pair(*pair)
                for pair in zip(*(lines_of(f"phrasebook/{split}.{language}") for language in LANGUAGES), strict=True)
            ]
            for split in SPLITS
        }
    else:
        examples = {split: [LabelledText(*row) for row in reviews_of(split)] for split in SPLITS}
    for split, held_out in (("train", ("valid", "test")), ("valid", ("test",))):
        sets = HeldOut({name: examples[name] for name in held_out})
        near_duplicates = NearDuplicates(sets, examples["train"][:8192])
        matches = Matches()
        for number, example in enumerate(examples[split], start=1):
            texts = example.texts
            for finder in (sets, near_duplicates):
                matches.add(finder.matches(number, texts, tuple(map(normalise, texts))))
        assert not list(matches)


@pytest.mark.parametrize("name", CORPUS_FILES)
def test_every_sentence_is_clean(name):
    for sentence in sentences_of(name):
        assert sentence == unicodedata.normalize("NFC", sentence).strip() != ""
        assert re.fullmatch(r"\S+( \S+)*", sentence), f"stray white space in {sentence!r}"
        assert sentence[-1] in ".!?"
        assert not re.search(r"[{}~|]", sentence), f"a slot was left open in {sentence!r}"


@pytest.mark.parametrize("split", SPLITS)
def test_reviews_parse_and_are_balanced(split):
    rows = reviews_of(split)
    assert all(len(row) == 2 for row in rows)
    labels = [label for _, label in rows]
    assert set(labels) == {"0", "1"}
    assert labels.count("0") == labels.count("1") == {"train": 1500, "valid": 150, "test": 150}[split]


def test_no_review_comes_twice_in_any_split():
    everything = [sentence for split in SPLITS for sentence in sentences_of(f"reviews/{split}.tsv")]
    assert len(set(everything)) == len(everything)


def test_all_handwritten_rows_are_in_the_corpus():
    pairs = {
        pair
        for split in SPLITS
        for pair in zip(*(lines_of(f"phrasebook/{split}.{language}") for language in LANGUAGES), strict=True)
    }
    reviews = {tuple(row) for split in SPLITS for row in reviews_of(split)}
    assert {tuple(line.split("\t")) for line in lines_of("phrasebook/handwritten.tsv")[1:]} <= pairs
    assert {tuple(line.split("\t")) for line in lines_of("reviews/handwritten.tsv")[1:]} <= reviews


def test_the_words_of_a_review_do_not_give_away_its_label():
    """Kind and unkind words come with both labels: "not slow at all" is praise."""
    labels_of: dict[str, set[str]] = {}
    for sentence, label in reviews_of("train"):
        for word in re.findall(r"\w+", sentence.lower()):
            labels_of.setdefault(word, set()).add(label)
    assert all(labels_of[word] == {"0", "1"} for word in ("not", "wonderful", "terrible", "slow", "friendly"))


def test_held_out_words_are_known_from_train():
    """A held-out sentence is a new combination of known words; handwritten ones may bring a few of their own."""
    for language in LANGUAGES:
        known = {word for line in lines_of(f"phrasebook/train.{language}") for word in line.split()}
        words = [word for line in lines_of(f"phrasebook/test.{language}") for word in line.split()]
        assert sum(word in known for word in words) / len(words) > 0.98


@pytest.mark.slow
def test_regeneration_is_the_identity(tmp_path):
    """Whatever the hash seed, the generator writes the committed bytes."""
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONUTF8": "0"}
    command = [sys.executable, "-B", str(DATA / "make" / "generate.py"), str(tmp_path)]
    subprocess.run(command, check=True, env=environment, timeout=120)
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(CORPUS_FILES)
    for name in CORPUS_FILES:
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes(), f"{name}: run python data/make/generate.py"


def test_the_corpus_stays_small():
    """The folder travels in every wheel."""
    names = [*CORPUS_FILES, "phrasebook/handwritten.tsv", "reviews/handwritten.tsv"]
    assert sum((DATA / name).stat().st_size for name in names) < MAX_BYTES
