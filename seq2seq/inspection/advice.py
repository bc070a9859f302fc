"""What the findings of `check` mean: what would spoil a result, what is worth a look, and sizes that fit the corpus."""

import math
from dataclasses import dataclass

import numpy as np

from seq2seq.config import TokenizerConfig, TrainingConfig
from seq2seq.data.columns import label_problem
from seq2seq.errors import counted, some_of
from seq2seq.inspection.overlap import Overlap
from seq2seq.inspection.report import CorpusReport, Finding, Tally

# Running source words up to which a size fits: vocabulary, preset, epochs, tokens in a batch. A rule of thumb: the
# configs that come with the toolkit follow it, and it keeps between 10 and 100 occurrences a piece.
SIZES = (
    (150_000, 2_000, "tiny", 40, 1024),
    (1_000_000, 8_000, "small", 30, 2048),
    (5_000_000, 12_000, "small", 20, 4096),
    (50_000_000, 16_000, "base", 12, 4096),
    (500_000_000, 32_000, "base", 5, 8192),
    (math.inf, 32_000, "big", 3, 16384),
)
# Warm-up and the time between validations, as shares of all steps, and what they are rounded to.
WARMUP_SHARE, VALIDATION_SHARE = 0.05, 0.05
ROUND_STEPS = (20, 50, 100, 200, 500, 1000, 2000, 4000)
SPECIAL_PIECES = 260  # the bytes and the special ids
HEAVY_OVERLAP = 0.01
SHIFTS_SHOWN = 5


@dataclass(frozen=True)
class Problem:
    """One thing to act on: an `error` would spoil a result, a `warning` may."""

    level: str
    corpus: str
    message: str


@dataclass(frozen=True)
class Advice:
    """Sizes for a corpus."""

    examples: int
    source_words: int
    settings: dict[str, int | str]
    """Keys of a config with values that fit."""
    needed_characters: int
    """Characters that tokenizer.character_coverage gives pieces of their own; the others are spelled as bytes."""
    rare_characters: int
    notes: tuple[str, ...]


def advise(train: Tally, tokenizer: TokenizerConfig, preset: str | None, training: TrainingConfig | None) -> Advice:
    """Vocabulary, model and length of training for the training corpora; with notes on what is set otherwise."""
    words = train.sides[0].num_words if train.sides else 0
    counts = sum(side.character_counts for side in train.sides) if train.sides else np.zeros(1, np.int64)
    counts = np.sort(counts[counts > 0])[::-1]
    covered = int(np.searchsorted(np.cumsum(counts), tokenizer.character_coverage * counts.sum())) + 1
    needed = min(covered, len(counts))
    # Text without spaces between words counts by characters: about two make what a word is elsewhere.
    characters = int(train.sides[0].character_counts.sum()) if train.sides else 0
    running = max(words, characters // 8)
    _, vocab_size, chosen, epochs, batch_tokens = next(size for size in SIZES if running <= size[0])
    least = math.ceil((2 * needed + SPECIAL_PIECES) / 1000) * 1000
    vocab_size = max(vocab_size, least) if needed > vocab_size / 2 else vocab_size
    steps = epochs * (train.sides[-1].num_pieces if train.sides else 0) / batch_tokens
    settings: dict[str, int | str] = {
        "tokenizer.vocab_size": vocab_size,
        "model.preset": chosen,
        "training.max_epochs": epochs,
        "training.batch_tokens": batch_tokens,
        "training.warmup_steps": _round(WARMUP_SHARE * steps),
        "training.validate_every": _round(VALIDATION_SHARE * steps),
    }
    notes = []
    given = {"tokenizer.vocab_size": tokenizer.vocab_size}
    if training is not None:
        given |= {key: getattr(training, key.split(".")[1]) for key in settings if key.startswith("training.")}
    for key, value in given.items():
        if value is not None and not settings[key] / 4 < value < 4 * settings[key]:
            notes.append(f"{key} is {value:,}; about {settings[key]:,} would fit")
    order = ("tiny", "small", "base", "big")
    if preset in order and abs(order.index(preset) - order.index(chosen)) > 1:
        notes.append(f"model.preset is {preset}; {chosen} would fit")
    return Advice(train.examples, words, settings, needed, len(counts) - needed, tuple(notes))


def _round(steps: float) -> int:
    return min(ROUND_STEPS, key=lambda round_steps: abs(math.log(max(steps, 1) / round_steps)))


def judge_corpus(report: CorpusReport, is_train: bool) -> list[Problem]:
    """What is wrong with one corpus; only training corpora are filtered."""
    found: list[tuple[str, str]] = []
    if report.failure:
        found.append(("error", f"{report.failure}; nothing after it was checked"))
    elif not report.examples:
        found.append(("error", "no examples"))
    found += _judge_alignment(report) if not report.failure else []
    for name, side in report.sides.items():
        for kind, warn, fail in _SIDE_LIMITS:
            found += _judge(side.findings.get(kind), report.examples, warn, fail, f"{name}: ", "line", _SAYS[kind])
        found += _judge_unseen(name, side.unseen_character_share)
    for kind, warn, fail in _PAIR_LIMITS:
        found += _judge(report.findings.get(kind), report.examples, warn, fail, "", "pair", _SAYS[kind])
    if "header" in report.findings:
        found.append(("warning", "line 1 looks like a header; remove it from both files"))
    dropped = report.filters.total - report.filters.kept
    if is_train and dropped > 0.3 * max(report.filters.total, 1):
        level = "warning" if report.filters.kept else "error"
        found.append((level, f"the filters drop {dropped:,} of {report.filters.total:,} ({report.filters})"))
    found += _judge_labels(report)
    return [Problem(level, report.name, message) for level, message in found] + judge_shifts(report)


def judge_sides(train: CorpusReport, held_out: CorpusReport) -> list[Problem]:
    """Whether the sides are in the same scripts as in training."""
    problems = []
    for name in train.sides.keys() & held_out.sides.keys():
        expected, script = train.sides[name].script, held_out.sides[name].script
        if expected != script and "none" not in (expected, script):
            message = f"{name} is in {script} and that of {train.name} in {expected}; are the sides swapped?"
            problems.append(Problem("error", held_out.name, message))
    return problems


def judge_overlap(name: str, other: str, overlap: Overlap) -> list[Problem]:
    """Whether what two corpora share spoils a score."""
    shared = overlap.pairs
    size = counted(overlap.size, "example")
    if shared:
        level = "error" if shared > HEAVY_OVERLAP * overlap.size and name.startswith("train") else "warning"
        message = (
            f"{shared:,} of its {size} {_are(shared)} also in {name}; remove {'it' if shared == 1 else 'them'} there"
        )
        return [Problem(level, other, message)]
    problems = []
    if overlap.pair_near > 0.05 * overlap.size:
        message = f"{overlap.pair_near:,} of its {size} {_are(overlap.pair_near)} also in {name}, with small changes"
        problems.append(Problem("warning", other, message))
    for side in ("source", "target"):
        count = getattr(overlap, f"{side}_exact") + getattr(overlap, f"{side}_normalised")
        if count > 0.05 * overlap.size:
            message = f"the {side} of {count:,} of its {size} is also in {name}, with another {_OTHER[side]}"
            problems.append(Problem("warning", other, message))
    return problems


def judge_shifts(report: CorpusReport) -> list[Problem]:
    """Blocks of lines that translate others."""
    shifts = [
        f"lines {shift.first:,}-{shift.last:,} are not translations of each other: shifted by {shift.offset:+d}, "
        f"target line {shift.first + shift.offset:,} fits source line {shift.first:,}"
        for shift in report.shifts
    ]
    more = f"{len(shifts) - SHIFTS_SHOWN:,} more blocks of lines are shifted" if len(shifts) > SHIFTS_SHOWN else None
    return [Problem("error", report.name, message) for message in [*shifts[:SHIFTS_SHOWN], more] if message]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


_OTHER = {"source": "target", "target": "source"}
_SAYS = {
    "invalid_utf8": "not UTF-8; convert the file (iconv -f latin1 -t utf-8)",
    "empty": "empty",
    "mojibake": "UTF-8 read as another encoding; convert back",
    "replacement": "damaged: U+FFFD shows where an earlier conversion lost text",
    "mixed_script": "written in two scripts within one word",
    "foreign_script": "in another script than the rest",
    "control": "spoilt by control or invisible characters",
    "copy": "copied: the target is the source",
    "duplicate": "repeated",
}
# Shares of the lines from which a kind is a warning, and an error; None is never.
_SIDE_LIMITS = (
    ("invalid_utf8", 0.0, 0.0), ("empty", 0.0, 0.1), ("mojibake", 0.0, 0.01), ("replacement", 0.0, 0.01),
    ("mixed_script", 0.001, None), ("foreign_script", 0.02, 0.3), ("control", 0.001, None),
)  # fmt: skip
_PAIR_LIMITS = (("copy", 0.05, 0.5), ("duplicate", 0.1, None))


def _judge(
    finding: Finding | None, examples: int, warn: float, fail: float | None, where: str, noun: str, what: str
) -> list[tuple[str, str]]:
    if finding is None or not finding.count or finding.count <= warn * examples:
        return []
    level = "error" if fail is not None and finding.count > fail * examples else "warning"
    first = f" (first: line {finding.examples[0][0]:,})" if finding.examples else ""
    nouns = noun if examples == 1 else f"{noun}s"
    return [(level, f"{where}{finding.count:,} of {examples:,} {nouns} {_are(finding.count)} {what}{first}")]


def _judge_alignment(report: CorpusReport) -> list[tuple[str, str]]:
    drift = report.drift
    if len(report.lines) == 2 and report.lines[0] != report.lines[1]:
        counts = f"{report.files[0]} has {counted(report.lines[0], 'line')} and {report.files[1]} {report.lines[1]:,}"
        if drift is None:
            return [("error", f"{counts}; line i of one must translate line i of the other")]
        if drift.line > min(report.lines):
            return [("error", f"{counts}; the sides agree up to where the shorter one ends")]
        return [("error", f"{counts}; the sides drift apart at about line {drift.line:,}, by {drift.offset:+d}")]
    if drift is not None:
        fits = f"target line {drift.line + drift.offset:,} fits source line {drift.line:,}"
        return [("error", f"the sides drift apart at about line {drift.line:,}: there {fits}")]
    return []


def _judge_unseen(name: str, share: float) -> list[tuple[str, str]]:
    if share <= 0.005:
        return []
    level = "error" if share > 0.05 else "warning"
    return [(level, f"{name}: {share:.1%} of its characters never occur in training; is it the same language?")]


def _judge_labels(report: CorpusReport) -> list[tuple[str, str]]:
    if not report.labels:
        return []
    total, most = sum(report.labels.values()), max(report.labels, key=lambda label: report.labels[label])
    found = []
    if problem := label_problem(len(report.labels), total):
        return [("error", problem)]
    if len(report.labels) == 1:
        found.append(("error", f"every text has the label {some_of([most])!r}"))
    elif report.labels[most] > 0.9 * total:
        found.append(("warning", f"{report.labels[most] / total:.0%} of the texts have the label {some_of([most])!r}"))
    if report.contradictions.count:
        found.append(("warning", f"{report.contradictions.count:,} of the texts have several labels"))
    return found
