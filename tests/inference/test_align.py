"""Alignments, probabilities and confidence: whatever is beside a pair, and as good as the figures say."""

import json
import math
import random
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from support.foreign_models import make_marian
from support.nasty_lines import NASTY
from support.number_words import sentences
from support.our_models import make_ours
from support.reversed_folder import folder  # noqa: F401
from support.toy_reversal import reversed_pairs

from seq2seq import runtime
from seq2seq.cli import main
from seq2seq.errors import ModelError
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.confidence import BINS, confidence, fit, unfit
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.translator import Translator
from seq2seq.store.calibration import FILE, Calibration, read_calibration, summary, write_calibration
from seq2seq.store.model_folder import load_model
from seq2seq.text.alignment import pharaoh
from seq2seq.text.normalization import normalized
from seq2seq.text.tokenizer import META_SYMBOL
from seq2seq.text.words import owners, spaced_words, word_spans

TEXTS = [
    *(line.decode(errors="replace") for line in NASTY),
    "A man's T-shirt, (red).",
    "日本語のテキスト です。",
    "ภาษาไทย ok",
    "x" * 50,
    "don't stop 3.5 %",
]


@pytest.fixture(scope="module")
def aligner(folder) -> Aligner:  # noqa: F811
    return Aligner.load(folder / "runs" / "toy", device="cpu", threads=1)


@pytest.fixture(scope="module")
def random_model(tmp_path_factory) -> Path:
    make_ours(tmp_path_factory.mktemp("random") / "model", ending=1.0)
    return tmp_path_factory.getbasetemp() / "random0" / "model"


@pytest.mark.parametrize("text", TEXTS)
def test_words_are_the_text_without_its_white_space(text):
    for words in (word_spans(text, ()), spaced_words(text)):
        assert "".join(text[begin:end] for begin, end in words) == "".join(text.split())
        assert all(one[1] <= other[0] for one, other in pairwise(words))
        assert all(begin < end for begin, end in words)


def test_marks_are_words_and_scripts_without_spaces_are_cut_where_pieces_are():
    text = "Peter's T-shirt (rot)!"
    assert [text[b:e] for b, e in word_spans(text, ())] == ["Peter's", "T-shirt", "(", "rot", ")", "!"]
    text = "犬が 走る。"
    assert [text[b:e] for b, e in word_spans(text, [(0, 1), (1, 2), (2, 5), (5, 6)])] == ["犬", "が", "走る", "。"]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_belong_to_the_word_that_holds_most_of_them(seed):
    draw = random.Random(seed)
    text = "".join(draw.choice("ab  ,.日") for _ in range(30))
    cuts = sorted({0, 30, *(draw.randrange(31) for _ in range(12))})
    pieces = list(pairwise(cuts))
    words = word_spans(text, pieces)
    for piece, owner in zip(pieces, owners(pieces, words), strict=True):
        shared = [max(0, min(piece[1], end) - max(piece[0], begin)) for begin, end in words]
        assert (owner == -1 and not any(shared)) or shared[owner] == max(shared) > 0


def test_a_model_that_reverses_is_aligned_in_reverse(folder, aligner):  # noqa: F811
    pairs = reversed_pairs(100, 9)
    hits = total = 0
    for (source, target), details in zip(pairs, aligner.align(pairs), strict=True):
        words = word_spans(source, ())
        best = {}
        for link in details.links:
            best[link.target] = max(best.get(link.target, (0.0, None)), (link.weight, link.source))
        for index, span in enumerate(reversed(word_spans(target, ()))):
            hits += best[span][1] == words[index]
            total += 1
    found = read_calibration(folder / "runs" / "toy" / "best")
    assert found.distance == 0.0
    assert hits / total > 0.9
    assert found.accuracy > 0.9
    assert found.accuracy == pytest.approx(hits / total, abs=0.15)
    card = (folder / "runs" / "toy" / "best" / "README.md").read_text(encoding="utf-8")
    assert f"{100 * found.accuracy:.1f} % are correct" in card
    assert "held-out" in card  # the test set is still there


def test_probabilities_are_those_of_the_scorer(random_model):
    pairs = [(one, other) for one in TEXTS[::3] for other in TEXTS[::4]]
    loaded, here = load_model(random_model), runtime.start("cpu", "float32", 1)
    scores = Scorer(loaded, here).score(pairs)
    aligner = Aligner(loaded, here)
    fitting = [(score, pair) for score, pair in zip(scores, pairs, strict=True) if aligner.fits(pair)]
    assert len(fitting) > len(pairs) / 2
    matrices = aligner.word_matrices([pair for _, pair in fitting])
    for (score, _), (_, target, _, log_probs) in zip(fitting, matrices, strict=True):
        assert score.tokens == len(target.ids) + 1 or META_SYMBOL in target.text
        if META_SYMBOL not in target.text:
            assert score.log_prob <= log_probs.sum() + 1e-3  # without the end of the sentence
    ended = Scorer(loaded, here).score([(source, "") for source, _ in pairs])
    assert any(one.log_prob != other.log_prob for one, other in zip(scores, ended, strict=True))


def test_details_do_not_depend_on_the_batch_and_fit_their_texts(random_model):
    pairs = [(one, other) for one in TEXTS[::2] for other in TEXTS[::5]]
    loaded, here = load_model(random_model), runtime.start("cpu", "float32", 1)
    aligner = Aligner(loaded, here)
    together = aligner.align(pairs)
    for (source, target), details in zip(pairs, together, strict=True):
        (alone,) = aligner.align([(source, target)])
        assert [word.span for word in alone.words] == [word.span for word in details.words]
        for one, other in zip(alone.words, details.words, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        words = (normalized(target[slice(*word.span)]) for word in details.words)
        assert "".join(words) == "".join(normalized(target).split())
        assert all(math.isfinite(word.log_prob) and word.log_prob <= 1e-6 for word in details.words)
        if details.source_words:
            assert {link.target for link in details.links} == ({word.span for word in details.words})
        for link in details.links:
            assert link.source in details.source_words
            assert 0 <= link.weight <= 1


def test_equal_texts_are_aligned_word_by_word(aligner):
    text = "one, two (three)"
    (details,) = aligner.align([(text, text)])
    assert [(link.source, link.target) for link in details.links] == [(span, span) for span in word_spans(text, ())]


def test_links_alone_are_the_same_links(aligner):
    pairs = reversed_pairs(30, 8)
    for whole, links in zip(aligner.align(pairs), aligner.align(pairs, probabilities=False), strict=True):
        assert whole.links == links.links
        assert links.confidence is None
        assert all(math.isnan(word.log_prob) for word in links.words)


def test_products_in_bfloat16_change_few_links(folder):  # noqa: F811
    """On a CPU that has them they are the default; on another one it computes them slowly."""
    exact, fast = (Aligner.load(folder / "runs/toy", device="cpu", precision="float32", threads=1) for _ in range(2))
    fast._has_fast_products = True
    pairs = reversed_pairs(60, 9)
    links = [
        [{(one.source, one.target) for one in details.links} for details in one.align(pairs)] for one in (exact, fast)
    ]
    same = sum(len(one & other) for one, other in zip(*links, strict=True))
    assert same / sum(len(one | other) for one, other in zip(*links, strict=True)) > 0.97


def test_a_long_line_is_explained_part_by_part(folder, aligner):  # noqa: F811
    line = " " + "".join(" ".join(row) + ". " for row in sentences(30, 4))
    (translation,) = Translator.load(folder / "runs" / "toy", threads=1).translate([line])
    parts = aligner.explain([translation])[0].details
    assert len(parts) > 1
    previous = 0
    for details, spans in zip(parts, translation.parts, strict=True):
        assert (details.source, details.target) == spans[:2]
        assert details.source[0] >= previous
        previous = details.source[1]
        inside = [*details.source_words, *(link.source for link in details.links)]
        assert all(details.source[0] <= begin < end <= details.source[1] for begin, end in inside)
        assert all(details.target[0] <= b < e <= details.target[1] for b, e in (word.span for word in details.words))
    covered = "".join(line[slice(*details.source)] for details in parts)
    assert "".join(covered.split()) == "".join(line.split())
    joined = "".join(translation.text[slice(*details.target)] for details in parts)
    assert "".join(joined.split()) == "".join(translation.text.split())


def test_confidence_is_a_probability_that_held_out_sentences_bear_out():
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(2000, 4))
    truth = 1 / (1 + np.exp(-(2 * rows[:, 0] - rows[:, 2] + 0.5)))
    found = fit(rows, draw.random(2000) < truth)
    assert len(found.table) == BINS
    for one in found.table:
        assert one.predicted == pytest.approx(one.observed, abs=0.1)
    predicted = [one.predicted for one in found.table]
    assert predicted == sorted(predicted)
    assert fit(rows[:50], truth[:50] > 0.5) is None
    assert fit(rows, np.ones(2000, bool)) is None
    assert 0 <= confidence(fit(rows, rows[:, 0] > 0), (), (), 3) <= 1  # separable
    assert confidence(found, (), (), 0) is confidence(None, (), (), 3) is None


def test_a_calibration_is_kept_and_one_that_does_not_fit_is_refused(folder, tmp_path):  # noqa: F811
    make_ours(tmp_path / "model")
    assert read_calibration(tmp_path / "model") == Calibration()
    kept = read_calibration(folder / "runs" / "toy" / "best")
    write_calibration(tmp_path / "model", kept)
    assert read_calibration(tmp_path / "model") == kept
    write_calibration(tmp_path / "model", Calibration(heads={"9.1": 1.0}))
    with pytest.raises(ModelError, match=r"no attention head 9\.1"):
        Aligner.load(tmp_path / "model", device="cpu").align([("a", "b")])
    for damage in ("", "[]", '{"heads": {"1.1": 2}}', '{"heads": {"1.1": "x"}}', '{"other": 1}'):
        (tmp_path / "model" / FILE).write_text(damage)
        with pytest.raises(ModelError, match="s2s align --calibrate"):
            Aligner.load(tmp_path / "model", device="cpu")


def test_the_command_answers_each_pair(folder, capsys, tmp_path):  # noqa: F811
    pairs = [*reversed_pairs(5, 3), ("one two", ""), ("", "eins")]
    for side, name in enumerate(("source", "target")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    files = [str(folder / "runs/toy"), str(tmp_path / "source"), str(tmp_path / "target")]
    capsys.readouterr()
    assert main(["align", *files]) == 0
    lines = capsys.readouterr().out.split("\n")[:-1]
    assert len(lines) == len(pairs)
    for (source, target), line in zip(pairs, lines, strict=True):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert all(one < len(source.split()) and other < len(target.split()) for one, other in links)
        assert {other for _, other in links} == set(range(len(target.split()) if source else 0))
    assert main(["align", *files, "--format", "jsonl"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(one) for one in shown] == [{"source", "target", "confidence", "alignment", "words"}] * len(pairs)


def test_details_stand_beside_the_same_translation(folder, capsys, tmp_path):  # noqa: F811
    (tmp_path / "in").write_text("one two three\n\n" + "four five. " * 40 + "\n")
    typed = ["translate", str(folder / "runs/toy"), "-i", str(tmp_path / "in"), "--format", "jsonl"]
    capsys.readouterr()
    assert main(typed) == 0
    plain = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main([*typed, "--details", "alignment,confidence"]) == 0
    explained = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    details = [one.pop("details") for one in explained]
    assert explained == plain
    assert [len(one) for one in details[:2]] == [1, 0]
    assert len(details[2]) > 1
    assert set(details[0][0]) == {"source", "target", "alignment", "confidence"}
    for wrong, words in (("alignments", "did you mean 'alignment'"), ("", "not one of")):
        assert main([*typed, "--details", wrong]) == 2
        assert words in capsys.readouterr().err
    assert main([*typed[:4], "--details", "words"]) == 2
    assert "--format jsonl" in capsys.readouterr().err
    assert main([*typed[:2], *typed[1:], "--details", "words"]) == 2
    assert "one MODEL" in capsys.readouterr().err


@pytest.mark.slow
def test_a_marian_folder_is_calibrated(tmp_path, capsys):
    make_marian(tmp_path / "marian")
    torch.manual_seed(0)
    text = "".join(f"the house number {number}\n" for number in range(1000, 1200))
    (tmp_path / "text").write_text(text)
    typed = ["align", str(tmp_path / "marian"), str(tmp_path / "text"), str(tmp_path / "text")]
    assert main(typed) == 0
    assert "is not calibrated" in capsys.readouterr().err
    assert main([*typed, "--calibrate"]) == 0
    assert "of 600 words" in capsys.readouterr().err  # each line has three that stand once on both sides
    assert read_calibration(tmp_path / "marian").heads
    assert main(typed) == 0
    assert "is not calibrated" not in capsys.readouterr().err
    (tmp_path / "few").write_text("a house\n")
    assert main(["align", str(tmp_path / "marian"), *[str(tmp_path / "few")] * 2, "--calibrate"]) == 2
    assert "give more pairs" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["hello there\n", ""])
def test_anchors_may_all_be_in_every_second_line(tmp_path, capsys, other):
    """The halves of the cross-validation are of lines that have anchors."""
    make_marian(tmp_path / "marian")
    numbers = [" ".join(str(1000 + 20 * line + place) for place in range(12)) for line in range(12 if other else 1)]
    (tmp_path / "text").write_text("".join(f"{line}\n{other}" for line in numbers))
    typed = ["align", str(tmp_path / "marian"), *[str(tmp_path / "text")] * 2, "--calibrate"]
    assert main(typed) == (0 if other else 2)
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        (3, 0, "3 sentences were translated, at least 100 are needed"),
        (300, 0, "there are 300 and 0"),
        (9, 291, "there are 9 and 291"),
        (150, 150, ""),
    ],
)
def test_where_there_is_no_confidence_the_reason_is_told(good, bad, reason):
    is_good = np.array([True] * good + [False] * bad)
    found = fit(np.random.default_rng(0).normal(size=(good + bad, 4)), is_good)
    assert (found is None) == bool(reason)
    assert unfit(is_good).endswith(reason)
    told = " ".join(summary(Calibration(no_confidence=unfit(is_good))))
    assert ("no confidence (null)" in told) == bool(reason)


@pytest.mark.slow
def test_a_long_line_takes_memory_in_proportion_and_keeps_its_words(random_model):
    loaded, here = load_model(random_model), runtime.start("cpu", "float32", 1)
    aligner = Aligner(loaded, here)
    peaks = []
    for count in (300, 2400):
        line = " ".join(["one", "two,", "three"] * (count // 3))
        tracemalloc.start()
        (details,) = aligner.align([(line, line.upper())], spaced=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(details.source_words) == len(details.words) == count
        assert {link.target for link in details.links} == {word.span for word in details.words}
        pairs = [tuple(map(int, pair.split("-"))) for pair in pharaoh(details).split()]
        assert max(abs(one - other) for one, other in pairs) < count / 2  # a part is aligned with its own part
    assert peaks[1] < 16 * peaks[0]


def test_a_long_line_leaves_the_others_as_they_are(random_model):
    loaded, here = load_model(random_model), runtime.start("cpu", "float32", 1)
    aligner, long = Aligner(loaded, here), "one two " * 2000
    (alone,) = aligner.align([("one two", "two three")])
    _, together = aligner.align([(long, long), ("one two", "two three")])
    assert [link[:2] for link in alone.links] == [link[:2] for link in together.links]


def test_a_precision_holds_however_it_is_given(folder):  # noqa: F811
    run = folder / "runs/toy"
    by_place, by_name = Aligner.load(run, "cpu", "float32"), Aligner.load(run, device="cpu", precision="float32")
    assert not by_place._has_fast_products
    assert not by_name._has_fast_products
