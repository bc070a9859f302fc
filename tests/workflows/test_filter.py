"""`s2s filter`: each line is kept or counted; monotone in the threshold; the order of lines and shards does not matter.

The model reverses sentences of number words, so wrong targets are known.
"""

import json
import math
import random
import unicodedata
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.filtered import contents, make_opposite, numbers, records, spoiled_pairs, write_sides
from support.reversed_folder import folder

from seq2seq.cli import main
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError
from seq2seq.inference.scorer import Scorer
from seq2seq.workflows.filter.job import dual, opened_scorers
from seq2seq.workflows.filter.request import threshold_of

__all__ = ["folder"]  # a fixture

LINES = 60
ODD = {4: ("", "leer"), 9: ("one two", "One, two!"), 14: ("five 5", "fünf 6"), 19: ("one\ufffd", "eins")}
PAIRS, SPOILED = spoiled_pairs(LINES, 1)  # no pair is long on one side alone
PAIRS = [ODD.get(number, pair) for number, pair in enumerate(PAIRS, start=1)]
SPOILED -= set(ODD)
REASONS = {"copy": 1, "damaged": 1, "digits": 1, "empty": 1}
MODELS = ("--model", "model", "--reverse", "opposite")


@pytest.fixture(scope="module")
def place(folder, tmp_path_factory) -> Path:
    """A folder with a corpus of 60 lines, of which a fifth is spoiled, a model, and its opposite."""
    place = tmp_path_factory.mktemp("filter")
    (place / "model").symlink_to(folder / "runs" / "toy" / "best")
    make_opposite(place / "model", place / "opposite")
    write_sides(place, "corpus", PAIRS)
    return place


@pytest.fixture(autouse=True)
def _inside(place, monkeypatch):
    monkeypatch.chdir(place)


def filtered(name: str, *options: str, corpus: tuple[str, ...] = ("corpus.en", "corpus.de")) -> Path:
    assert main(["filter", *corpus, "-o", name, *options]) == 0
    return Path(name)


def description(made: Path) -> dict:
    return json.loads((made / "filter.json").read_text())


def test_each_line_is_kept_or_counted_with_its_reason(capsys):
    made = filtered("whole", *MODELS, "--keep", "0.75", "--explain", "2")
    counts = description(made)["counts"]
    assert counts["lines"] == counts["pairs"] + sum(counts["left_out"].values()) == LINES
    assert counts["pairs"] == len(records(made)) == 45
    assert {why: count for why, count in counts["left_out"].items() if why != "score"} == REASONS
    assert [(each["source"], each["target"]) for each in records(made)] == [PAIRS[n - 1] for n in numbers(made)]
    assert [each["origin"][0] for each in records(made)] == ["corpus.en"] * 45
    shown = capsys.readouterr()
    assert "copy 1: the target is the source, apart from case, punctuation and spaces\n  9: one two ||| One, two!" in (
        shown.out
    )
    assert shown.out.count("\n  ") == sum(min(count, 2) for count in counts["left_out"].values())
    assert opened_scorers.cache_info().currsize == 0


def test_a_command_that_keeps_nothing_fails_with_its_counts(capsys):
    write_sides(Path(), "equal", [("one two", "one two")] * 3)
    assert main(["filter", "equal.en", "equal.de", "-o", "none"]) == 2
    out, err = capsys.readouterr()
    assert out == "0 pairs of 3 lines in none\nleft out: copy 3\n"
    assert "none: has no pairs, so no training can read it; change the text or the options" in err


def test_the_scores_are_those_of_the_scorer():
    made = filtered("scored", *MODELS, "--max-score", "1000")
    found = [record for record in records(made / "scores") if "forward" in record]
    assert [record["line"] for record in found] == [number for number in range(1, LINES + 1) if number not in ODD]
    pairs = [PAIRS[record["line"] - 1] for record in found]
    sides = [
        [-each.log_prob / each.tokens for each in Scorer.load(model).score(given)]
        for model, given in (("model", pairs), ("opposite", [pair[::-1] for pair in pairs]))
    ]
    for side, name in zip(sides, ("forward", "reverse"), strict=True):
        assert [record[name] for record in found] == pytest.approx(side, abs=1e-4)
    assert numbers(made) == [record["line"] for record in found]
    before = contents(made / "scores")
    for weight, options in ((0.0, ()), (1.0, ("--difference", "1"))):
        filtered("scored", *MODELS, "--max-score", "1000", *options)
        expected = [weight * abs(a - b) + (a + b) / 2 for a, b in zip(*sides, strict=True)]
        assert [record["score"] for record in records(made)] == pytest.approx(expected, abs=2e-4)
    assert contents(made / "scores") == before


SPELLINGS = {
    "a trailing blank": lambda text: f"{text} ",
    "leading blanks": lambda text: f"\u2003 {text}",
    "no-break spaces": lambda text: text.replace(" ", "\xa0"),
    "soft hyphens": lambda text: f"{text[:2]}\xad{text[2:]}",
    "decomposed letters": lambda text: unicodedata.normalize("NFD", text),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_text_has_the_score_of_its_normal_form_and_is_written_as_it_is(spelling):
    spelled = [tuple(map(SPELLINGS[spelling], pair)) for pair in PAIRS]
    write_sides(Path(), spelling, spelled)
    plain = filtered("plain", *MODELS, "--max-score", "1000")
    made = filtered(f"with {spelling}", *MODELS, "--max-score", "1000", corpus=(f"{spelling}.en", f"{spelling}.de"))
    scorer = Scorer.load("model")
    for name in ("forward", "reverse"):
        expected, scores = (
            {each["line"]: each[name] for each in records(folder / "scores") if name in each}
            for folder in (plain, made)
        )
        assert len(scores) > LINES / 2  # a rule may leave out a pair for its spelling
        assert scores == pytest.approx({line: expected[line] for line in scores}, abs=2e-4)
        if name == "forward":  # the score of `s2s score`
            again = zip(scores, scorer.score([spelled[line - 1] for line in scores]), strict=True)
            assert scores == pytest.approx({line: -one.log_prob / one.tokens for line, one in again}, abs=1e-4)
    assert [(each["source"], each["target"]) for each in records(made)] == [spelled[n - 1] for n in numbers(made)]


def test_one_model_finds_the_targets_of_other_lines(capsys):
    keep = (LINES - len(SPOILED) - len(ODD)) / LINES
    made = filtered("found", "--model", "model", "--keep", str(keep))
    assert "no --reverse: the score is the cross-entropy of one direction" in capsys.readouterr().err
    assert set(numbers(made)) == set(range(1, LINES + 1)) - SPOILED - set(ODD)


def test_a_higher_threshold_keeps_more_and_the_scores_are_used_again(capsys):
    kept = []
    for share in ("0.2", "0.5", "0.8", "1"):
        made = filtered("grown", *MODELS, "--keep", share)
        before = contents(made / "scores")
        kept.append(set(numbers(made)))
        assert len(kept[-1]) == min(math.floor(float(share) * LINES), LINES - len(ODD))
        assert contents(made) == contents(filtered(f"alone {share}", *MODELS, "--keep", share))
    assert all(fewer < more for fewer, more in pairwise(kept))
    assert contents(made / "scores") == before
    scores = {record["origin"][1]: record["score"] for record in records(made)}  # of all that the rules keep
    for most in sorted(scores.values())[::20]:
        made = filtered("grown", *MODELS, "--max-score", str(most))
        assert set(numbers(made)) == {line for line, score in scores.items() if score <= most}


@pytest.mark.parametrize("options", [(), (*MODELS, "--keep", "0.7")], ids=["rules", "models"])
def test_lines_in_another_order_and_shards_of_another_size_give_the_same_answer(options):
    one = filtered(f"straight {len(options)}", *options)
    order = random.Random(2).sample(range(LINES), LINES)
    write_sides(Path(), "shuffled", [PAIRS[number] for number in order])
    other = filtered(f"shuffled {len(options)}", *options, corpus=("shuffled.en", "shuffled.de"))
    assert {order[number - 1] + 1 for number in numbers(other)} == set(numbers(one))
    many = filtered(f"many {len(options)}", *options, "--shard-lines", "7")
    assert len(list(many.glob("part-*.gz"))) == 9
    keys = ("source", "target", "origin")
    assert [[each[key] for key in keys] for each in records(many)] == [[each[key] for key in keys] for each in
                                                                       records(one)]  # fmt: skip


def test_missing_and_damaged_parts_are_made_again():
    made = filtered("mended", *MODELS, "--keep", "0.7", "--shard-lines", "7")
    before = contents(made)
    (made / "part-00003.jsonl.gz").unlink()
    (made / "scores" / "part-00001.jsonl.gz").write_bytes(b"damaged")
    (made / "scores" / "part-00002.jsonl.gz").unlink()
    filtered("mended", *MODELS, "--keep", "0.7", "--shard-lines", "7")
    assert contents(made) == before


def zipped() -> tuple[str, ...]:
    with zipfile.ZipFile("opus.zip", "w") as archive:
        archive.writestr("README", "Read me.\n")
        for side in ("de", "en"):
            archive.write(f"corpus.{side}", f"c.de-en.{side}")
    return ("opus.zip",)


def as_json(*keys: str) -> tuple[str, ...]:
    lines = [json.dumps(dict(zip(keys, pair, strict=True))) for pair in PAIRS]
    Path(f"{keys[0]}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return (f"{keys[0]}.jsonl",)


def table() -> tuple[str, ...]:
    Path("table.tsv").write_text("de\tid\ten\n" + "".join(f"{target}\tx\t{source}\n" for source, target in PAIRS))
    return ("table.tsv",)


def memory() -> tuple[str, ...]:
    units = [
        f'<tu><tuv xml:lang="de"><seg>{target}</seg></tuv><tuv xml:lang="en"><seg>{source}</seg></tuv></tu>'
        for source, target in PAIRS
    ]
    other = '<tu><tuv xml:lang="fr"><seg>Oui.</seg></tuv></tu>'
    Path("memory.tmx").write_text(f'<tmx version="1.4"><header/><body>{"".join(units)}{other}</body></tmx>')
    return ("memory.tmx",)


FORMATS = {
    "zip": (zipped, {}),
    "languages": (lambda: as_json("en", "de"), {}),
    "sides": (lambda: as_json("source", "target"), {}),
    "table": (table, {"no pair": 1}),
    "memory": (memory, {"no pair": 1}),
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_pairs(form):
    write, more = FORMATS[form]
    made = filtered(f"as {form}", "--from", "en", "--to", "de", corpus=write())
    counts = description(made)["counts"]
    assert counts["left_out"] == REASONS | more
    assert [(each["source"], each["target"]) for each in records(made)] == [
        pair for number, pair in enumerate(PAIRS, start=1) if number not in ODD
    ]


def test_the_folder_is_read_as_training_data_and_filtered_again():
    made = filtered("kept", *MODELS, "--keep", "0.7", "--shard-lines", "20")
    pairs = list(open_pairs(SourceConfig(jsonl=made), "en", "de"))
    assert [pair.texts for pair in pairs] == [PAIRS[number - 1] for number in numbers(made)]
    with pytest.raises(DataError, match="its pairs are en-de, but the config translates de-en"):
        open_pairs(SourceConfig(jsonl=made), "de", "en")
    again = filtered("again", corpus=("kept",))
    assert description(again)["counts"]["pairs"] == len(pairs)
    assert description(again)["languages"] == description(made)["languages"] == {"source": "en", "target": "de"}
    unfinished = description(made)
    del unfinished["counts"]
    (made / "filter.json").write_text(json.dumps(unfinished))
    with pytest.raises(DataError, match="not finished; run the same s2s filter command again"):
        open_pairs(SourceConfig(jsonl=made), "en", "de")


def test_a_folder_of_another_direction_is_refused_with_the_remedy(capsys):
    filtered("directed", "--from", "en", "--to", "de")
    for options, remedy in [(("--from", "de", "--to", "en"), "leave out --from and --to"),
                            (("--model", "opposite", "--keep", "1"), "name models of its direction")]:  # fmt: skip
        assert main(["filter", "directed", "-o", "refused", *options]) == 2
        assert f"directed: its pairs are en-de, not de-en; {remedy}" in capsys.readouterr().err


@given(st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0])), st.integers(0, 12))
def test_a_threshold_keeps_at_most_so_many_and_no_higher_one_does(scores, most):
    values = np.array(scores)
    threshold = threshold_of(values, most)
    assert (values <= threshold).sum() <= most or not scores
    above = values[values > threshold]
    assert not len(above) or (values <= above.min()).sum() > most


@given(st.floats(0, 50), st.floats(0, 50), st.floats(0, 5))
def test_dual_cross_entropy_is_least_where_both_agree(forward, reverse, difference):
    assert dual(forward, reverse, difference) == dual(reverse, forward, difference) >= (forward + reverse) / 2
    assert dual(forward, forward, difference) == forward
