"""What the findings of `check` mean: what would spoil a result, what is worth a look, and sizes that fit the corpus."""

import math
from dataclasses import dataclass

import numpy as np

from seq2seq.config import TokenizerConfig
from seq2seq.data.corpus_report import CorpusReport, Finding, Tally
from seq2seq.data.overlap import Overlap

# Running source words up to which a size fits: vocabulary, preset, epochs. A rule of thumb: the configs that come with
# the toolkit follow it, and it keeps between 10 and 100 occurrences a piece.
SIZES = (
    (150_000, 2_000, "tiny", 40),
    (1_000_000, 8_000, "small", 30),
    (5_000_000, 12_000, "small", 20),
    (50_000_000, 16_000, "base", 12),
    (500_000_000, 32_000, "base", 5),
    (math.inf, 32_000, "big", 3),
)
SPECIAL_PIECES = 260  # the bytes and the special ids
HEAVY_OVERLAP = 0.01


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
    vocab_size: int
    preset: str
    epochs: int
    needed_characters: int
    """Characters that tokenizer.character_coverage gives pieces of their own; the others are spelled as bytes."""
    rare_characters: int
    notes: tuple[str, ...]


def advise(train: Tally, tokenizer: TokenizerConfig, preset: str | None) -> Advice:
    """Vocabulary, model and epochs for the training corpora."""
    words = train.sides[0].num_words if train.sides else 0
    counts = sum(side.character_counts for side in train.sides) if train.sides else np.zeros(1, np.int64)
    counts = np.sort(counts[counts > 0])[::-1]
    covered = int(np.searchsorted(np.cumsum(counts), tokenizer.character_coverage * counts.sum())) + 1
    needed = min(covered, len(counts))
    # Text without spaces between words counts by characters: about two make what a word is elsewhere.
    characters = int(train.sides[0].character_counts.sum()) if train.sides else 0
    running = max(words, characters // 8)
    _, vocab_size, chosen, epochs = next(size for size in SIZES if running <= size[0])
    least = math.ceil((2 * needed + SPECIAL_PIECES) / 1000) * 1000
    vocab_size = max(vocab_size, least) if needed > vocab_size / 2 else vocab_size
    notes = []
    if not vocab_size / 4 <= tokenizer.vocab_size <= 4 * vocab_size:
        notes.append(f"tokenizer.vocab_size is {tokenizer.vocab_size:,}; about {vocab_size:,} would fit")
    order = ("tiny", "small", "base", "big")
    if preset in order and abs(order.index(preset) - order.index(chosen)) > 1:
        notes.append(f"model.preset is {preset}; {chosen} would fit")
    return Advice(train.examples, words, vocab_size, chosen, epochs, needed, len(counts) - needed, tuple(notes))


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
            found += _judge(side.findings.get(kind), report.examples, warn, fail, f"{name}: {{}} {_SAYS[kind]}")
        found += _judge_unseen(name, side.unseen_character_share)
    for kind, warn, fail in _PAIR_LIMITS:
        found += _judge(report.findings.get(kind), report.examples, warn, fail, f"{{}} {_SAYS[kind]}")
    dropped = report.filters.total - report.filters.kept
    if is_train and dropped > 0.3 * max(report.filters.total, 1):
        level = "warning" if report.filters.kept else "error"
        found.append((level, f"the filters drop {dropped:,} of {report.filters.total:,} ({report.filters})"))
    found += _judge_labels(report)
    return [Problem(level, report.name, message) for level, message in found]


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
    shared = overlap.pair_exact + overlap.pair_normalised
    where = f"{overlap.size:,} examples stand in {name}"
    if shared:
        level = "error" if overlap.share > HEAVY_OVERLAP and name.startswith("train") else "warning"
        return [Problem(level, other, f"{shared:,} of its {where} too; take them out of {name}")]
    problems = []
    if overlap.pair_near > 0.05 * overlap.size:
        problems.append(Problem("warning", other, f"{overlap.pair_near:,} of its {where} with small changes"))
    for side in ("source", "target"):
        count = getattr(overlap, f"{side}_exact") + getattr(overlap, f"{side}_normalised")
        if count > 0.05 * overlap.size:
            problems.append(Problem("warning", other, f"{count:,} {side}s of its {where} with another {_OTHER[side]}"))
    return problems


_OTHER = {"source": "target", "target": "source"}
_SAYS = {
    "invalid_utf8": "lines are not UTF-8; convert the file (iconv -f latin1 -t utf-8)",
    "empty": "lines are empty",
    "mojibake": "lines are UTF-8 read as another encoding; convert them back",
    "replacement": "lines hold U+FFFD: text was lost in an earlier conversion",
    "mixed_script": "lines mix two scripts in one word",
    "foreign_script": "lines are in another script than the rest",
    "control": "lines hold control or invisible characters",
    "copy": "targets are copies of their source",
    "duplicate": "pairs were there before",
}
# Shares of the lines from which a kind is a warning, and an error; None is never.
_SIDE_LIMITS = (
    ("invalid_utf8", 0.0, 0.0), ("empty", 0.0, 0.1), ("mojibake", 0.0, 0.01), ("replacement", 0.0, 0.01),
    ("mixed_script", 0.001, None), ("foreign_script", 0.02, 0.3), ("control", 0.001, None),
)  # fmt: skip
_PAIR_LIMITS = (("copy", 0.05, 0.5), ("duplicate", 0.1, None))


def _judge(
    finding: Finding | None, examples: int, warn: float, fail: float | None, message: str
) -> list[tuple[str, str]]:
    if finding is None or not finding.count or finding.count <= warn * examples:
        return []
    level = "error" if fail is not None and finding.count > fail * examples else "warning"
    first = f" (first: line {finding.examples[0][0]:,})" if finding.examples else ""
    return [(level, message.format(f"{finding.count:,} of {examples:,}") + first)]


def _judge_alignment(report: CorpusReport) -> list[tuple[str, str]]:
    drift = report.drift
    if len(report.lines) == 2 and report.lines[0] != report.lines[1]:
        counts = f"{report.files[0]} has {report.lines[0]:,} lines and {report.files[1]} {report.lines[1]:,}"
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
    if len(report.labels) == 1:
        found.append(("error", f"every text has the label {most!r}"))
    elif report.labels[most] > 0.9 * total:
        found.append(("warning", f"{report.labels[most] / total:.0%} of the texts have the label {most!r}"))
    if report.contradictions.count:
        found.append(("warning", f"{report.contradictions.count:,} texts stand there with different labels"))
    return found
