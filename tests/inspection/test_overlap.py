"""Exact, normalised and near duplicates between training and held-out sets are found, and nothing else."""

import hashlib
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import write_parts

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.examples import LabelledText, Pair
from seq2seq.data.sources import open_pairs
from seq2seq.inspection.near_duplicates import NEAR_SIMILARITY, NearDuplicates
from seq2seq.inspection.overlap import HeldOut, Matches, find_overlap, folded, normalise, overlap_warning
from seq2seq.lines import read_lines
from seq2seq.runtime import Runtime
from seq2seq.tasks.directions import unknown_share
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.task import overlap_notes, prepare_tokenizers

WORDS = [f"{first}{second}{third}" for first in "bdfgkl" for second in ("a", "ei", "o", "u") for third in "mnrst"]


def sentence(draw: random.Random, num_words: int = 9) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(num_words))


def pairs(count: int, seed: int) -> list[Pair]:
    draw = random.Random(seed)
    return [Pair(sentence(draw), sentence(draw)) for _ in range(count)]


def find_all(train, held_out):
    """Near-duplicates too, as `s2s check` finds them."""
    train, sets, matches = list(train), HeldOut(held_out), Matches()
    near_duplicates = NearDuplicates(sets, train)
    for number, example in enumerate(train, start=1):
        texts = example.texts
        for finder in (sets, near_duplicates):
            matches.add(finder.matches(number, texts, tuple(map(normalise, texts))))
    return matches.overlaps(sets)


def test_unrelated_corpora_share_nothing():
    found = find_all(pairs(500, 1), {"valid": pairs(100, 2), "test": pairs(50, 3)})
    assert {name: overlap.size for name, overlap in found.items()} == {"valid": 100, "test": 50}
    assert not any(overlap.counts() for overlap in found.values())
    assert overlap_warning(found) is None


def test_each_kind_is_found_where_it_was_planted():
    train, held_out = pairs(500, 1), pairs(60, 2)
    train[70] = held_out[5]
    train[300] = Pair(held_out[6].source.upper() + " !", "« " + held_out[6].target.replace(" ", "  ") + " »")
    changed = held_out[7].source.split()
    changed[4] = "zzz"
    train[301] = Pair(" ".join(changed), held_out[7].target)
    train[302] = Pair(held_out[8].source, train[302].target)
    train[303] = Pair(train[303].source, held_out[9].target.title())
    found = find_all(train, {"other": pairs(10, 3), "valid": held_out})
    assert not found["other"].counts()
    assert found["valid"].counts() == {
        "pair_exact": 1, "pair_normalised": 1, "pair_near": 1, "source_exact": 2, "source_normalised": 1,
        "target_exact": 2, "target_normalised": 2,
    }  # fmt: skip
    examples = {(e.kind, e.held_out_number, e.train_number) for e in found["valid"].examples}
    assert {
        ("pair_exact", 6, 71),
        ("pair_normalised", 7, 301),
        ("pair_near", 8, 302),
        ("source_exact", 9, 303),
    } <= examples
    for example in found["valid"].examples:
        assert example.train == (train[example.train_number - 1].source, train[example.train_number - 1].target)
        assert example.held_out[0] == held_out[example.held_out_number - 1].source
    assert "2 of 60 examples of valid" in overlap_warning(found)
    assert "\n" not in overlap_warning(found)
    exact = find_overlap(iter(train), {"valid": iter(held_out)})["valid"]
    assert exact.counts() == {kind: count for kind, count in found["valid"].counts().items() if kind != "pair_near"}


def test_labels_do_not_matter_in_classification():
    train = [LabelledText(pair.source, "0") for pair in pairs(200, 1)]
    held_out = [LabelledText(pair.source, "0") for pair in pairs(20, 2)]
    train[150] = LabelledText(held_out[3].text, "1")
    (found,) = find_overlap(iter(train), {"valid": iter(held_out)}).values()
    assert found.counts() == {"pair_exact": 1}


def test_nothing_but_punctuation_is_nothing_shared():
    train = [Pair("...", "!"), Pair("", ""), Pair("?", "ja")]
    assert not find_all(train, {"valid": [Pair("!!", "."), Pair("", ""), Pair("...", "?")]})["valid"].counts()


@pytest.mark.parametrize("train", [[], [Pair("a b", "c d")]])
@pytest.mark.parametrize("held_out", [{}, {"valid": []}, {"valid": [], "test": [Pair("e f", "g h")]}])
def test_empty_sets_are_fine(train, held_out):
    found = find_all(train, held_out)
    assert list(found) == list(held_out)
    assert not any(overlap.counts() for overlap in found.values())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n")), max_size=8), st.integers(0, 10**6))
def test_any_text_finds_itself(texts, seed):
    held_out = [Pair(text, text[::-1]) for text in texts]
    train = pairs(100, seed)
    train[50:50] = held_out
    found = find_all(train, {"valid": held_out})["valid"]
    with_words = sum(normalise(pair.source) != "" for pair in held_out)
    assert found.pair_exact == found.source_exact == with_words
    assert found.pair_normalised == found.pair_near == 0


@pytest.mark.parametrize("case", [str.upper, str.lower, str.swapcase])
def test_case_matters_in_no_alphabet(case):
    """Among others "Straße" is "STRASSE", and a sigma is one at the end of a word too; a dotless i is a letter."""
    cased = {one for one in map(chr, range(sys.maxunicode + 1)) if case(one) != one} - {"ı"}
    assert len(cased) > 1000
    for character in cased:
        assert folded(normalise(case(character))) == folded(normalise(character)), hex(ord(character))


@pytest.mark.parametrize("text", ["Die Straße ist naß.", "Ο δρόμος είναι μακρύς.", "Ǆ ŉ ﬁne"])
def test_held_out_lines_are_found_in_any_case(text):
    found = find_all([Pair(text.upper(), text.lower())], {"valid": [Pair(text, text)]})["valid"]
    assert (found.source_normalised, found.target_normalised, found.pair_normalised) == (1, 1, 1)


def test_near_duplicates_are_those_that_comparing_every_pair_finds():
    draw = random.Random(5)
    held_out, train = pairs(40, 1), pairs(40, 2)
    for pair in held_out:  # changed by more and more words
        for number_changed in range(6):
            sides = [side.split() for side in (pair.source, pair.target)]
            for words in sides:
                for place in draw.sample(range(len(words)), number_changed):
                    words[place] = draw.choice(WORDS)
            train.append(Pair(*map(" ".join, sides)))
    found = find_all(train, {"valid": held_out})["valid"]

    def ngrams(pair: Pair) -> set:
        sides = [side.replace(" ", "") for side in (pair.source, pair.target)]
        return {(side, text[i : i + 4]) for side, text in enumerate(sides) for i in range(len(text) - 3)}

    sets = [ngrams(pair) for pair in train]
    best = [
        max(len(ngrams(p) & other) / len(ngrams(p) | other) for other in sets if other != ngrams(p)) for p in held_out
    ]
    assert found.pair_exact == len(held_out)  # unchanged ones are among them
    without_copies = find_all(
        [pair for pair in train if pair not in held_out], {"valid": held_out}
    )["valid"]  # fmt: skip
    expected = sum(similarity >= NEAR_SIMILARITY for similarity in best)
    assert 0 < expected <= 40
    assert without_copies.pair_near == expected


# -- tags of synthetic sources -----------------------------------------------------------------------------------------

TAGGED = """
source_language: de
target_language: en
data:
  train: {jsonl: marked, noise: NOISE}
  valid: {source: valid.source, target: valid.target}
  filters: {max_length: 40}
tokenizer: {vocab_size: 300, extra_pieces: [<back>]}
"""


@pytest.fixture(params=["null", "{copies: 1e-9}"], ids=["clean", "noisy"])
def tagged(request, tmp_path, monkeypatch) -> Inputs:
    """Inputs of a training on sources with a tag, whose validation set has the same pairs without it."""
    monkeypatch.chdir(tmp_path)
    texts = [pair.texts for pair in pairs(200, 1)]
    write_parts(Path("marked"), texts, "<back>")
    for side, lines in zip(("source", "target"), zip(*texts[:20], strict=True), strict=True):
        Path(f"valid.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    Path("tagged.yaml").write_text(TAGGED.replace("NOISE", request.param), encoding="utf-8")
    Path("cache").mkdir()
    return Inputs.open(config_file.load(Path("tagged.yaml")), Path("cache"))


def name_of_earlier_note(inputs: Inputs) -> str:
    held_out = {name: source.fingerprint for name, source in inputs.valid.items()}
    known = json.dumps([[source.fingerprint for source in inputs.train], held_out])
    return f"overlap-{hashlib.sha256(known.encode()).hexdigest()[:32]}.json"


def test_equal_pairs_are_found_in_spite_of_a_tag(tagged):
    """Earlier versions searched for sources with their tags, and stored that there are none."""
    (tagged.cache / name_of_earlier_note(tagged)).write_text('{"warning": null}')
    (note,) = overlap_notes(tagged)
    assert note.startswith("training contains 20 of 20 examples of valid ")
    assert overlap_notes(replace(tagged, valid={"valid": tagged.train[0]})) == [note.replace("20", "200")]
    untagged = replace(tagged, train=list(tagged.valid.values()))
    assert overlap_notes(untagged) == [note]
    assert (tagged.cache / name_of_earlier_note(untagged)).exists(), "a note about corpora without tags stays"


def test_a_check_reads_no_tag_as_text(tagged, capsys):
    """Equal pairs are found, and `<back>` is not an HTML tag; lengths are those of training."""
    assert main(["check", "tagged.yaml", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["overlaps"]["train"]["valid"]["pair_exact"] == 20
    assert "back" not in json.dumps([found["corpora"], found["problems"]])
    tokenizers = prepare_tokenizers(tagged, None, Runtime(torch.device("cpu"), torch.float32))
    lengths = [len(tokenizers.source.read(pair.source)) for pair in tagged.train[0]]
    assert found["corpora"][0]["sides"]["source"]["mean_pieces"] == pytest.approx(sum(lengths) / len(lengths), abs=0.05)


def test_a_tag_does_not_count_as_characters(tagged):
    tokenizers = prepare_tokenizers(tagged, None, Runtime(torch.device("cpu"), torch.float32))
    odd = SourceConfig(jsonl=write_parts(Path("odd").resolve(), [("ξξ", "ξξ")], "<back>"))
    assert unknown_share([open_pairs(odd, "de", "en")], tokenizers) == 1.0


def test_memory_does_not_grow_with_the_training_corpus():
    code = """
import random
from seq2seq.inspection.overlap import find_overlap
from seq2seq.data.examples import Pair
from seq2seq.processes import resident_bytes
words = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
def pairs(count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        yield Pair(" ".join(draw.choices(words, k=8)), " ".join(draw.choices(words, k=8)))
find_overlap(pairs(17_000, 1), {"valid": pairs(100, 2)})
before = resident_bytes(peak=True)  # ru_maxrss would include the process that started this one
find_overlap(pairs(80_000, 1), {"valid": pairs(100, 2)})
print(resident_bytes(peak=True) - before)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    grown = int(done.stdout)  # bytes; as text alone the other 63,000 pairs are more than 4 MiB, as objects 14 MiB
    assert grown < 4000 * 1024


def test_the_oddities_of_real_corpora_are_found(real_data):
    folder = real_data / "small_enja"
    if not folder.exists():
        pytest.skip("needs small_enja under $S2S_DATA/small_enja")

    def read(name: str) -> list[Pair]:
        sides = (read_lines(folder / f"{name}.{language}.gz") for language in ("en", "ja"))
        return [Pair(*pair) for pair in zip(*sides, strict=True)]

    found = find_overlap(read("train"), {"dev": read("dev"), "test": read("test")})
    assert (found["dev"].source_exact, found["test"].source_exact) == (77, 60)
    for overlap in found.values():
        assert overlap.pair_exact == overlap.target_exact == 0
