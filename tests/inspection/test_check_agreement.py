"""`s2s check` knows when the two sides of a corpus do not belong together, and raises no false alarm."""

import functools
import random
from pathlib import Path

import pytest

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.inspection.check import CheckReport, Corpora, check_corpora
from seq2seq.lines import read_lines

PHRASEBOOK = Path(__file__).parents[2] / "data" / "phrasebook"
REAL = [
    ("multi30k/train", "en", "de"), ("multi30k/train", "en", "fr"), ("multi30k/train", "fr", "de"),
    ("multi30k/val", "en", "de"), ("tatoeba/train", "en", "de"), ("tatoeba/valid", "en", "de"),
    ("small_enja/train", "en", "ja"),
]  # fmt: skip
# Agreement does not depend on the tokenizer; training one of this kind takes a twelfth of the time.
TOKENIZER = TokenizerConfig(kind="bpe", vocab_size=500)
Lines = list[str]


def shuffled(lines: Lines) -> Lines:
    return random.Random(1).sample(lines, len(lines))


def half(lines: Lines) -> int:
    return len(lines) // 2


SPOILED = {
    "shuffled": lambda source, target: (source, shuffled(target)),
    "sorted": lambda source, target: (source, sorted(target)),
    "sorted by length": lambda source, target: (source, sorted(target, key=len)),
    "reversed": lambda source, target: (source, target[::-1]),
    "moved far": lambda source, target: (source, target[200:] + target[:200]),
    "second half shuffled": lambda s, t: (s, t[: half(t)] + shuffled(t[half(t) :])),
    "first half shuffled": lambda s, t: (shuffled(s[: half(t)]) + s[half(t) :], t),
}
MIXED = {"5 % swapped": 20, "half swapped": 2, "all but one in 20 swapped": -20}


def swapped(source: Lines, target: Lines, every: int) -> tuple[Lines, Lines]:
    chosen = [(index % abs(every) == 0) == (every > 0) for index in range(len(source))]
    pairs = [(t, s) if one else (s, t) for one, s, t in zip(chosen, source, target, strict=True)]
    return [s for s, _ in pairs], [t for _, t in pairs]


@pytest.fixture
def check(tmp_path):
    def run(source: Lines, target: Lines, languages=("", "")) -> CheckReport:
        for name, lines in (("source", source), ("target", target)):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        config = SourceConfig(source=tmp_path / "source", target=tmp_path / "target")
        return check_corpora(Corpora([config], {}, languages, tokenizer=TOKENIZER), 1)

    return run


def problems(report: CheckReport) -> list[str]:
    return [problem.message for problem in report.problems]


def phrasebook(count: int = 1600) -> tuple[Lines, Lines]:
    source, target = (list(read_lines(PHRASEBOOK / f"train.{side}"))[:count] for side in ("en", "de"))
    return source, target


@functools.cache
def column(path: Path) -> Lines:
    return list(read_lines(path))


def excerpts(folder: Path, count: int) -> dict[str, tuple[Lines, Lines, tuple[str, str]]]:
    found = {}
    for name, *sides in REAL:
        columns = [column(folder / f"{name}.{side}.gz") for side in sides]
        first = random.Random(count).randrange(max(len(columns[0]) - count, 0) + 1)
        found[f"{name} {'-'.join(sides)}"] = (*(column[first : first + count] for column in columns), tuple(sides))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILED)
def test_sides_that_were_moved_against_each_other_are_a_problem(check, spoil):
    report = check(*SPOILED[spoil](*phrasebook()), ("en", "de"))
    assert any("do not belong together" in message for message in problems(report)), problems(report)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "spoil"), [*((500, spoil) for spoil in SPOILED), (2000, "second half shuffled")])
def test_that_holds_for_real_corpora(real_data, check, spoil, count):
    every_other = list(excerpts(real_data, count).items())[list(SPOILED).index(spoil) % 2 :: 2]
    for name, (source, target, _) in every_other:
        report = check(*SPOILED[spoil](source, target))
        assert any("each other" in one or "belong together" in one for one in problems(report)), (
            name,
            problems(report),
        )


def test_the_lines_that_were_shuffled_are_named(check):
    source, target = phrasebook()
    report = check(source, target[:800] + shuffled(target[800:]))
    (run,) = report.corpora[0].agreement.unrelated
    assert abs(run.first - 801) <= 200
    assert run.last == 1600


def test_a_shift_does_not_hide_the_shuffled_lines_around_it(check):
    source, target = phrasebook()
    spoilt = target[:800] + shuffled(target[800:])
    spoilt[1000:1060] = target[1001:1061]
    agreement = check(source, spoilt).corpora[0].agreement
    assert agreement.shifts
    assert agreement.unrelated


@pytest.mark.slow
def test_a_run_that_is_shifted_as_a_whole_is_no_second_alarm(check):
    source, target = phrasebook()
    agreement = check(source, [*target[:800], *target[801:], target[800]]).corpora[0].agreement
    assert agreement.shifts
    assert not agreement.unrelated


@pytest.mark.parametrize("count", [50, *(pytest.param(some, marks=pytest.mark.slow) for some in (500, 2500))])
def test_sound_corpora_raise_no_alarm(real_data, check, count):
    for name, (source, target, languages) in excerpts(real_data, count).items():
        report = check(source, target, languages)
        assert report.corpora[0].agreement.unrelated in ([], None), name
        for word in ("together", "swapped", "language", "each other"):
            assert not any(word in message for message in problems(report)), (name, problems(report))
        by_length = sorted(zip(source, target, strict=True), key=lambda pair: len(pair[0]))
        assert not any("together" in one for one in problems(check(*map(list, zip(*by_length, strict=True))))), name


@pytest.mark.parametrize("mix", MIXED)
def test_swapped_pairs_are_a_problem(check, mix):
    for languages in (("en", "de"), ("", "")):
        found = problems(check(*swapped(*phrasebook(), MIXED[mix]), languages))
        wanted = "clear language" if MIXED[mix] < 0 and languages[0] else "are swapped"
        assert any(wanted in message for message in found), found
        assert not any("both sides" in message for message in found) or MIXED[mix] < 0, found


@pytest.mark.parametrize("every", [1, pytest.param(2, marks=pytest.mark.slow), 20])
def test_lines_in_another_language_are_a_problem(check, every):
    source, target = phrasebook()
    mixed = [s if index % every == 0 else t for index, (s, t) in enumerate(zip(source, target, strict=True))]
    for languages in (("en", "de"), ("", "")):
        report = check(source, mixed, languages)
        found = [one for one in problems(report) if "language" in one or "both sides are in" in one]
        assert found, problems(report)


@pytest.mark.slow
def test_a_third_language_in_a_side_is_a_problem(real_data, check):
    columns = {side: list(read_lines(real_data / f"multi30k/train.{side}.gz"))[:2000] for side in ("en", "de", "fr")}
    for every in (2, 20):
        mixed = [columns["fr" if index % every == 0 else "de"][index] for index in range(2000)]
        assert any("in another language" in one for one in problems(check(columns["en"], mixed, ("en", "de"))))


def test_sides_in_other_languages_than_named_are_an_error(check):
    source, target = phrasebook(400)
    report = check(target, source, ("en", "de"))
    assert [problem.level for problem in report.problems if "clear language" in problem.message] == ["error", "error"]
    assert not any("clear language" in one for one in problems(check(source, target, ("eng", "ger"))))
    assert not any("clear language" in one for one in problems(check(source, target, ("tlh", "x-own"))))


def test_what_cannot_be_judged_is_said(check):
    few = check(["a b", "c"], ["d", "e f"]).corpora[0].agreement
    assert [text.partition(":")[0] for text in few.not_judged] == [
        "whether line i of the target translates line i of the source",
        "the language of the source",
        "the language of the target",
    ]
    assert check(*phrasebook()).corpora[0].agreement.not_judged == []
    equal = [f"{index:03}" for index in range(300)]  # lines of one length, without words in common
    (first, *_) = check(equal, equal[::-1]).corpora[0].agreement.not_judged
    assert first.endswith("their lengths and words give too little evidence")


def test_lines_that_the_filters_drop_count_for_no_advice(check):
    source, target = phrasebook(400)
    plain = check(source, target).advice
    draw = random.Random(2)
    junk = "".join(chr(draw.randrange(0x4E00, 0x5600)) for _ in range(30_000))
    spoilt = check([*source[:50], junk, *source[50:]], [*target[:50], junk, *target[50:]]).advice
    assert (plain.needed_characters, plain.settings) == (spoilt.needed_characters, spoilt.settings)
    assert plain.examples == spoilt.examples


@pytest.mark.parametrize(
    ("kind", "side", "line"),
    [
        ("html_tag", 0, 'See <a href="x">this</a>.'),
        ("html_tag", 1, "Ein<br/>Haus."),
        ("segmented", 0, "The ho@@ use."),
        ("segmented", 1, "\u2581Das \u2581Haus"),
        ("segmented", 0, "The ho ￭use ￭."),
        ("segmented", 1, "Das Hau ##s"),
        ("escaped", 0, "It &apos;s a house ."),
        ("escaped", 1, "Ein &quot; Haus &quot; ist da ."),
        ("escaped", 1, "Ein Haus @-@ Boot"),
        ("tokenised", 0, "That is n't it , he said ."),
        ("case_copy", None, "BIG Hat. / big hat."),
    ],
)
def test_traces_of_other_formats_are_named(check, kind, side, line):
    source, target = phrasebook(120)
    plain = check(source, target).corpora[0]
    texts = line.split(" / ") * 2 if side is None else [line, line + " x"]
    source[60], target[60] = texts[0], texts[1] if side is None else target[60]
    if side == 1:
        source[60], target[60] = "A house.", line
    found = check(source, target).corpora[0]
    names = ("source", "target")
    before, after = (c.findings if side is None else c.sides[names[side]].findings for c in (plain, found))
    assert kind not in before
    assert [number for number, _ in after[kind].examples] == [61]
