"""The judgement of the findings of `check`: errors, warnings, and sizes that fit the corpus.

`check` calls `judge` and `advise`; `layout` prints their results.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq.config.presets import PRESETS
from seq2seq.config.schema import ModelConfig, TokenizerConfig, TrainingConfig
from seq2seq.data.columns import label_problem
from seq2seq.errors import counted, shown, some_of
from seq2seq.inspection.examiner import CorpusTally
from seq2seq.inspection.oddities import ODDITIES, Oddity
from seq2seq.inspection.overlap import Overlap
from seq2seq.inspection.report import CorpusReport, Finding
from seq2seq.languages import language_name

# The largest number of running source words for each size: vocabulary, preset, epochs, tokens in a batch. This is a
# rule of thumb, which the configs of the toolkit follow, and which gives between 10 and 100 occurrences per piece.
SIZES = (
    (150_000, 2_000, "tiny", 40, 1024),
    (1_000_000, 8_000, "small", 30, 2048),
    (5_000_000, 12_000, "small", 20, 4096),
    (50_000_000, 16_000, "base", 12, 4096),
    (500_000_000, 32_000, "base", 5, 8192),
    (math.inf, 32_000, "big", 3, 16384),
)
# Warm-up and the interval of validations as shares of all steps, and the numbers that they are rounded to.
WARMUP_SHARE, VALIDATION_SHARE = 0.05, 0.05
ROUND_STEPS = (20, 50, 100, 200, 500, 1000, 2000, 4000)
SPECIAL_PIECES = 260  # bytes and special ids
HEAVY_OVERLAP = 0.01
# The share of lines whose sides do not belong together above which this is an error.
UNRELATED_FAILS = 0.1
# The shares of characters without occurrence in training above which there is a warning, or an error.
UNSEEN_WARNS, UNSEEN_FAILS = 0.005, 0.05

Found = Iterator[tuple[str, str]]
"""Yields levels and messages."""


@dataclass(frozen=True)
class Problem:
    """A problem of a corpus: an `error` would spoil a result, a `warning` may."""

    level: str
    corpus: str
    message: str


@dataclass(frozen=True)
class Advice:
    """The recommended sizes for a corpus."""

    examples: int
    source_words: int
    settings: dict[str, int | str]
    """Keys of a config with recommended values."""
    needed_characters: int
    """The number of characters that get separate pieces by tokenizer.character_coverage."""
    rare_characters: int
    """The number of the other characters, which are spelled as bytes."""
    notes: tuple[str, ...]
    overrides: dict[str, Any]
    """The options `--set` of the advised command, by key; they also remove written keys that take precedence."""


def advise(
    train: CorpusTally,
    tokenizer: TokenizerConfig,
    model: ModelConfig,
    training: TrainingConfig | None,
    has_new_tokenizer: bool = True,
) -> Advice:
    """Return sizes of vocabulary, model and training for the training corpora, with notes on settings that differ.

    Args:
        train: the sums of all training corpora.
        tokenizer: the settings of the tokenizer.
        model: the written settings of the model.
        training: the settings of training, if there are any.
        has_new_tokenizer: whether a tokenizer is trained; else no vocabulary size is recommended.
    """
    counts = sum((side.kept_characters for side in train.sides), Counter())
    covered, needed = 0, 0
    for _, count in counts.most_common():
        if covered >= tokenizer.character_coverage * counts.total():
            break
        covered, needed = covered + count, needed + 1
    # In text without spaces between words, each 8 characters count as a word.
    running = max(train.source_words, train.source_characters // 8)
    _, vocab_size, chosen, epochs, batch_tokens = next(size for size in SIZES if running <= size[0])
    least = math.ceil((2 * needed + SPECIAL_PIECES) / 1000) * 1000
    vocab_size = max(vocab_size, least) if needed > vocab_size / 2 else vocab_size
    steps = epochs * train.target_pieces / batch_tokens
    settings: dict[str, int | str] = {
        "tokenizer.vocab_size": vocab_size,
        "model.preset": chosen,
        "training.max_epochs": epochs,
        "training.batch_tokens": batch_tokens,
        "training.warmup_steps": _round(WARMUP_SHARE * steps),
        "training.validate_every": _round(VALIDATION_SHARE * steps),
    }
    if not has_new_tokenizer:
        del settings["tokenizer.vocab_size"]
    sections = {"tokenizer": tokenizer, "training": training}
    given = {key: getattr(sections.get(key.split(".")[0]), key.split(".")[1], None) for key in settings}
    notes = [
        f"{key} is {value:,}; about {settings[key]:,} would fit"
        for key, value in given.items()
        if value is not None and not settings[key] / 4 < value < 4 * settings[key]
    ]
    order, preset = ("tiny", "small", "base", "big"), model.preset
    if preset in order and abs(order.index(preset) - order.index(chosen)) > 1:
        notes.append(f"model.preset is {preset}; {chosen} would fit")
    overrides = _overrides(settings, model, training)
    return Advice(
        train.filters.kept, train.source_words, settings, needed, len(counts) - needed, tuple(notes), overrides
    )


def _overrides(settings: dict[str, int | str], model: ModelConfig, training: TrainingConfig | None) -> dict[str, Any]:
    """Return what changes a config to these settings; sizes and limits that would take precedence are taken back."""
    sizes = set(PRESETS["base"])
    overrides: dict[str, Any] = dict(settings)
    if model.model_fields_set & sizes:
        others = model.model_dump(mode="json", include=model.model_fields_set - sizes - {"preset"})
        del overrides["model.preset"]
        overrides["model"] = {"preset": settings["model.preset"], **others}
    limits = {"max_steps", "max_minutes"} & (training.model_fields_set if training else set())
    return overrides | {f"training.{name}": None for name in sorted(limits) if getattr(training, name) is not None}


def _round(steps: float) -> int:
    return min(ROUND_STEPS, key=lambda round_steps: abs(math.log(max(steps, 1) / round_steps)))


def judge(
    train: Sequence[CorpusReport], held_out: Sequence[CorpusReport], overlaps: dict[str, dict[str, Overlap]]
) -> list[Problem]:
    """Return the problems of each corpus, of the held-out sets compared with training, and of overlap."""
    problems = [
        (report.name, problem)
        for report in [*train, *held_out]
        for judged in (_judge_lines(report), _judge_findings(report), _judge_labels(report))
        for problem in judged
    ]
    problems += [(report.name, problem) for report in train for problem in _judge_filters(report)]
    if train:
        problems += [
            (report.name, problem) for report in [*train[1:], *held_out] for problem in _compare(train, report)
        ]
    problems += [
        (other, problem)
        for name, others in overlaps.items()
        for other, overlap in others.items()
        for problem in _judge_overlap(name, overlap)
    ]
    return [Problem(level, name, message) for name, (level, message) in problems]


def _judge_lines(report: CorpusReport) -> Found:
    """Yield problems of reading, and of lines that do not translate each other."""
    if report.failure:
        yield "error", f"{report.failure}; then check again"
        return
    if not report.examples:
        yield "error", "no examples"
    lines, shifts, unrelated = report.lines, report.agreement.shifts or [], report.agreement.unrelated or []
    if len(lines) == 2 and lines[0] != lines[1]:
        where = "line i of one must translate line i of the other"
        if shifts:
            where = f"the sides drift apart at about line {shifts[0].first:,}, by {shifts[0].offset:+d}"
        elif unrelated:
            where = f"from about line {unrelated[0].first:,} on the sides do not belong together"
        elif report.agreement.shifts is not None:
            where = "the sides agree up to where the shorter one ends"
        yield "error", f"{report.files[0]} has {counted(lines[0], 'line')} and {report.files[1]} {lines[1]:,}; {where}"
        return
    for shift in shifts:
        yield (
            "error",
            f"lines {shift.first:,}-{shift.last:,} are not translations of each other: shifted by {shift.offset:+d}, "
            f"target line {shift.first + shift.offset:,} fits source line {shift.first:,}",
        )
    yield from _judge_unrelated(report)


def _judge_unrelated(report: CorpusReport) -> Found:
    """Yield problems of lines whose sides do not belong together, and of sides in an unexpected language."""
    unrelated = report.agreement.unrelated or []
    total = sum(run.last - run.first + 1 for run in unrelated)
    if unrelated:
        level = "error" if total > UNRELATED_FAILS * report.examples else "warning"
        where = some_of([f"{run.first:,}-{run.last:,}" for run in unrelated])
        yield (
            level,
            (
                f"lines {where}: the sides do not belong together; was one side shuffled, sorted or cut? "
                "Line i of the target must translate line i of the source"
            ),
        )
    for side, language, share in report.agreement.unexpected_languages:
        name = ("source", "target")[side]
        yield "error", f"{name}: {share:.0%} of the lines with a clear language are {language_name(language)}"
    first, *others = report.agreement.languages or [None]
    if first is not None and others == [first]:
        yield "warning", f"both sides are in {language_name(first)}"


def _judge_findings(report: CorpusReport) -> Found:
    """Yield problems of the oddities of each side and of pairs."""
    for name, side in report.sides.items():
        for kind, finding in side.findings.items():
            yield from _judge_finding(ODDITIES[kind], finding, report.examples, f"{name}: ", "line")
        if (share := side.unseen_character_share) > UNSEEN_WARNS:
            level = "error" if share > UNSEEN_FAILS else "warning"
            yield level, f"{name}: {share:.1%} of its characters never occur in training; is it the same language?"
    for kind, finding in report.findings.items():
        noun, of = "pair", report.examples
        if kind in report.agreement.language_findings:
            noun, of = "sampled pair", report.agreement.num_identified
        yield from _judge_finding(ODDITIES[kind], finding, of, "", noun)
    if "header" in report.findings:
        yield "warning", "line 1 looks like a header; remove it from both files"


def _judge_finding(oddity: Oddity, finding: Finding, examples: int, where: str, noun: str) -> Found:
    if finding.count > oddity.warn * examples:
        level = "error" if finding.count > oddity.fail * examples else "warning"
        first = f" (first: line {finding.examples[0][0]:,})" if finding.examples else ""
        of = f"{finding.count:,} of {counted(examples, noun)}"
        yield level, f"{where}{of} {_are(finding.count)} {oddity.advice}{first}"


def _judge_filters(report: CorpusReport) -> Found:
    dropped = report.filters.total - report.filters.kept
    if dropped > 0.3 * max(report.filters.total, 1):
        message = f"the filters drop {dropped:,} of {report.filters.total:,} ({report.filters.rules})"
        if report.filters.kept:
            yield "warning", message
        elif "duplicate" in report.filters.dropped:  # of equal examples the first is kept
            yield "warning", f"{message}; sources before it in data.train have the same examples"
        else:
            yield "error", message


def _compare(train: Sequence[CorpusReport], report: CorpusReport) -> Found:
    """Yield differences from the training corpora: the scripts of the sides, and the labels."""
    for name in train[0].sides.keys() & report.sides.keys():
        expected, script = train[0].sides[name].script, report.sides[name].script
        if expected != script and "none" not in (expected, script):
            yield "error", f"{name} is in {script} and that of {train[0].name} in {expected}; are the sides swapped?"
    if unknown := sorted(set(report.labels).difference(*(other.labels for other in train))):
        never = f"{len(unknown):,} labels never occur" if len(unknown) > 1 else "a label never occurs"
        yield "error", f"{never} in training: {some_of(unknown)}"


def _judge_overlap(name: str, overlap: Overlap) -> Found:
    """Yield problems of the overlap of corpus `name` with a held-out set, whose scores it spoils."""
    size, shared = counted(overlap.size, "example"), overlap.pairs
    if shared:
        level = "error" if shared > HEAVY_OVERLAP * overlap.size and name.startswith("train") else "warning"
        remedy = f"remove {'it' if shared == 1 else 'them'} there"
        yield level, f"{shared:,} of its {size} {_are(shared)} also in {name}; {remedy}"
        return
    few = 0.05 * overlap.size
    if (near := overlap.pair_near) > few:
        yield "warning", f"{near:,} of its {size} {_are(near)} also in {name}, with small changes"
    for side, other, count in (
        ("source", "target", overlap.source_exact + overlap.source_normalised),
        ("target", "source", overlap.target_exact + overlap.target_normalised),
    ):
        if count > few:
            yield "warning", f"the {side} of {count:,} of its {size} is also in {name}, with another {other}"


def _judge_labels(report: CorpusReport) -> Found:
    if not report.labels:
        return
    total, most = sum(report.labels.values()), max(report.labels, key=lambda label: report.labels[label])
    if problem := label_problem(len(report.labels), total):
        yield "error", problem
        return
    if len(report.labels) == 1:
        yield "error", f"every text has the label {shown(most)}"
    elif report.labels[most] > 0.9 * total:
        yield "warning", f"{report.labels[most] / total:.0%} of the texts have the label {shown(most)}"
    if report.contradictions.count:
        yield "warning", f"{report.contradictions.count:,} of the texts have several labels"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
