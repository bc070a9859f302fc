"""Blocks of lines that are shifted, and sides that are swapped, are found by their words; sound corpora pass."""

import functools
import random
import tracemalloc

import numpy as np
import pytest

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.inspection.check import Corpora, check_corpora
from seq2seq.inspection.line_shapes import find_shift_by_shapes
from seq2seq.inspection.swapped_sides import sides_are_swapped
from seq2seq.inspection.word_pairs import TABLE_SIZE, Shift, WordPairs, find_shifts
from seq2seq.lines import read_lines

REAL = {
    "multi30k": ("multi30k/train.en", "multi30k/train.de"), "captions": ("multi30k/train.fr", "multi30k/train.de"),
    "tatoeba": ("tatoeba/train.en", "tatoeba/train.de"), "enja": ("small_enja/train.en", "small_enja/train.ja"),
    "multi30k valid": ("multi30k/val.en", "multi30k/val.de"), "tatoeba valid": ("tatoeba/valid.en", "tatoeba/valid.de"),
    "enja valid": ("small_enja/dev.en", "small_enja/dev.ja"),
}  # fmt: skip


@functools.cache
def column(path) -> list[str]:
    return list(read_lines(path))


def real(folder, name, unspaced=False) -> tuple[list[str], list[str]]:
    source, target = (column(folder / f"{path}.gz") for path in REAL[name])
    return source, [line.replace(" ", "") for line in target] if unspaced else target


def shifted(lines, first, size, offset):
    """`lines` of which `size` from place `first` on are moved down by `offset`, round and round."""
    block = lines[first : first + size]
    return [*lines[:first], *block[-offset:], *block[:-offset], *lines[first + size :]]


def find(pairs, source, target):
    if pairs is None:
        return []
    parts = [slice(at, at + 8192) for at in range(0, len(source), 8192)]
    misfits = np.concatenate([pairs.misfits(source[part], target[part], True) for part in parts])
    numbers = np.arange(1, len(source) + 1)
    return find_shifts(pairs, misfits, numbers, lambda some: {n: (source[n - 1], target[n - 1]) for n in some})


def learn(source, target):
    return WordPairs.learn(source[:32768], target[:32768])


LARGE = ("multi30k", "captions", "tatoeba", "enja")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in REAL])
def test_no_block_of_a_sound_corpus_is_called_shifted(real_data, name):
    source, target = real(real_data, name)
    assert find(learn(source, target), source, target) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes", "missed"),
    [("multi30k", (20, 40, 200), 0), ("enja", (20, 40, 200), 0), ("tatoeba valid", (40, 200), 1)],
)
@pytest.mark.parametrize("offset", [1, *(pytest.param(some, marks=pytest.mark.slow) for some in (-1, 2))])
def test_planted_shifts_are_found_with_their_lines(real_data, name, sizes, missed, offset):
    source, target = (side[:6000] for side in real(real_data, name, unspaced=name == "enja"))
    draw, not_found = random.Random(offset), 0
    for size in sizes * (2 if missed else 1):
        first = draw.randrange(len(source) - size)
        moved = shifted(target, first, size, offset)
        shifts = find(learn(source, moved), source, moved)
        near = [shift for shift in shifts if abs(shift.first - first - 1) <= 5 and abs(shift.last - first - size) <= 5]
        assert len(shifts) == len(near)
        not_found += [shift.offset for shift in near] != [offset]
    assert not_found <= missed


@pytest.mark.parametrize("name", ["multi30k", "captions", "tatoeba"])
@pytest.mark.parametrize("size", [250, *(pytest.param(some, marks=pytest.mark.slow) for some in (600, 1500))])
def test_a_lost_line_of_few_is_found_by_the_shapes_of_lines(real_data, name, size):
    source, target = real(real_data, name)
    draw, missed = random.Random(size), 0
    for _ in range(10):
        first, lost = draw.randrange(len(source) - size - 1), size // 2
        whole = slice(first, first + size)
        assert find_shift_by_shapes(source[whole], target[whole], 0) == []
        without = [*target[first : first + lost], *target[first + lost + 1 : first + size + 1]]
        shifts = find_shift_by_shapes(source[whole], without, 0)
        missed += not any(abs(shift.first - lost) <= 15 and shift.offset == -1 for shift in shifts)
    assert missed <= 1


def test_too_little_text_says_nothing():
    assert find_shift_by_shapes(["one"], ["eins"], 0) == find_shift_by_shapes(["a"] * 3, ["b"] * 3, 5) == []
    lines = [f"word{i} word{i + 1}" for i in range(150)]
    assert WordPairs.learn(lines, lines) is None
    draw = random.Random(1)
    noise = [[f"w{draw.randrange(50)} w{draw.randrange(50)}" for _ in range(1000)] for _ in range(2)]
    assert WordPairs.learn(*noise) is None
    assert WordPairs.learn(["", *[""] * 300], ["", *[""] * 300]) is None


def phrases(count, seed=1):
    draw = random.Random(seed)
    rows = [[draw.randrange(60) for _ in range(draw.randint(4, 9))] for _ in range(count)]
    return [" ".join(f"en{i}" for i in row) for row in rows], [" ".join(f"de{i}" for i in row[::-1]) for row in rows]


def test_trying_many_offsets_takes_the_memory_of_a_few():
    tracemalloc.start()
    assert WordPairs.learn(phrases(400)[0], phrases(400, 2)[1]) is None
    assert tracemalloc.get_traced_memory()[1] < 10 * 8 * (TABLE_SIZE + 1) ** 2
    tracemalloc.stop()


def test_check_names_the_lines_of_a_shifted_block(tmp_path):
    source, target = phrases(6000)
    target = shifted(target, 3000, 40, 1)
    for path, lines in (("a.en", source), ("a.de", target)):
        (tmp_path / path).write_text("".join(f"{line}\n" for line in lines))
    config = SourceConfig(source=tmp_path / "a.en", target=tmp_path / "a.de")
    report = check_corpora(Corpora([config], {}, ("en", "de"), tokenizer=TokenizerConfig(vocab_size=400)), 1)
    (shift,) = report.corpora[0].agreement.shifts
    assert abs(shift.first - 3001) <= 3
    assert abs(shift.last - 3040) <= 3
    assert shift == Shift(shift.first, shift.last, 1)
    (problem,) = [problem for problem in report.problems if problem.level == "error"]
    assert problem.message.startswith(f"lines {shift.first:,}-{shift.last:,} are not translations of each other")


@pytest.mark.slow
def test_swapped_sides_are_seen_and_sound_ones_are_not(real_data):
    for name, other in (("multi30k", "multi30k valid"), ("tatoeba", "tatoeba valid"), ("enja", "enja valid"),
                        ("multi30k", "tatoeba valid"), ("tatoeba", "multi30k valid")):  # fmt: skip
        train, valid = ([side[:2000] for side in real(real_data, each)] for each in (name, other))
        for size in (1, 10, 2000):
            assert not sides_are_swapped(train, [side[:size] for side in valid])
        assert sides_are_swapped(train, valid[::-1])
    english = real(real_data, "multi30k")[0]
    assert not sides_are_swapped((english[:1000], english[1000:2000]), (english[2000:2500], english[2500:3000]))
