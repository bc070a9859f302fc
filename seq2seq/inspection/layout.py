"""The text of the report of `s2s check`, which the command prints."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from seq2seq.config.yaml_text import as_yaml
from seq2seq.errors import counted, some_of, typed
from seq2seq.inspection.advice import Advice
from seq2seq.inspection.blocks import Finding
from seq2seq.inspection.check import CheckReport
from seq2seq.inspection.oddities import ODDITIES
from seq2seq.inspection.overlap import Overlap
from seq2seq.inspection.report import CorpusReport, SideReport


def as_text(report: CheckReport, examples: int, config: Path | None, overrides: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of the report.

    Args:
        report: report of `check_corpora`.
        examples: number of lines shown of each kind.
        config: path of the checked config, for a command that trains with the recommended sizes.
        overrides: options `--set` of the check, which that command repeats.
    """
    for corpus in report.corpora:
        yield from _corpus_lines(corpus, examples)
        if corpus.name not in report.overlaps.get("train", ()):  # held-out sets are not filtered
            yield f"  the filters{'' if report.lengths_are_exact else ', by estimated lengths'}: {corpus.filters}"
        yield ""
    if report.overlaps:
        yield "overlap"
        for first, others in report.overlaps.items():
            for second, overlap in others.items():
                counts = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in overlap.counts().items()]
                yield f"  {second} in {first}: {', '.join(counts) or 'none'} of {overlap.size:,}"
                yield from _overlap_lines(overlap, second, examples)
        yield ""
    if report.advice:
        yield from _advice_lines(report.advice, config, overrides)
        yield ""
    yield from (f"{problem.level}: {problem.corpus}: {problem.message}" for problem in report.problems)
    errors = sum(problem.level == "error" for problem in report.problems)
    yield f"{counted(errors, 'error')}, {counted(len(report.problems) - errors, 'warning')}"


def wrapped(line: str, width: int | None) -> str:
    """Return `line`, broken between words at the width of a terminal; its further lines are indented."""
    if width is None or len(line) <= width or "\n" in line:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(
        line, max(width, 40), subsequent_indent=indent, break_on_hyphens=False, replace_whitespace=False,
        drop_whitespace=True, break_long_words=False,
    )  # fmt: skip


def _corpus_lines(corpus: CorpusReport, examples: int) -> Iterator[str]:
    yield f"{corpus.name}: {counted(corpus.examples, 'example')} ({', '.join(corpus.files)})"
    for name, side in corpus.sides.items():
        yield (
            f"  {name}: {side.words:,} words, {side.characters:,} characters ({side.distinct_characters:,} distinct, "
            f"mostly {side.script}), about {side.mean_pieces} pieces per line, longest line {side.longest:,} characters"
            f"{_unseen(side)}"
        )
        yield from _finding_lines(side.findings, examples)
    if corpus.findings:
        yield "  pairs:" if len(corpus.sides) == 2 else "  examples:"
        yield from _finding_lines(corpus.findings, examples)
    if corpus.contradictions.count:
        what, others = ("text", "labels") if corpus.labels else ("source", "targets")
        yield f"  {counted(corpus.contradictions.count, what)} with several {others}"
        yield from _example_lines(corpus.contradictions.examples[:examples])
    yield from (f"  not judged: {what}" for what in corpus.agreement.not_judged)
    if corpus.shift_context:
        yield "  where the sides drift apart:"
        yield from _example_lines(corpus.shift_context)
    if corpus.labels:
        most = sorted(corpus.labels, key=lambda label: -corpus.labels[label])
        labels = some_of([f"{some_of([label])} {corpus.labels[label]:,}" for label in most])
        yield f"  {counted(len(most), 'label')}: {labels}"


def _unseen(side: SideReport) -> str:
    if not side.unseen_characters and not side.unseen_word_share:
        return ""
    characters = " ".join(map(_visible, side.unseen_characters))
    number = counted(len(side.unseen_characters), "character")
    words = f"; not in training: {side.unseen_word_share:.1%} of the words"
    return words + (f", and {number} ({characters})" if characters else "")


def _finding_lines(findings: dict[str, Finding], examples: int) -> Iterator[str]:
    for kind, finding in findings.items():
        yield f"    {kind} {finding.count:,}: {ODDITIES[kind].meaning}"
        yield from _example_lines(finding.examples[:examples])


def _example_lines(examples: Sequence[tuple[int, tuple[str, ...]]]) -> Iterator[str]:
    for number, texts in examples:
        yield f"      {number:,}: {joined(texts)}"


def _overlap_lines(overlap: Overlap, second: str, examples: int) -> Iterator[str]:
    for kind in overlap.counts():
        for match in [match for match in overlap.examples if match.kind == kind][:examples]:
            yield f"    {kind.replace('_', ' ')} ({match.similarity:.2f})"
            yield f"      {second} {match.held_out_number:,}: {joined(match.held_out)}"
            yield f"      {match.train_corpus} {match.train_number:,}: {joined(match.train)}"


def _advice_lines(advice: Advice, config: Path | None, overrides: Sequence[str]) -> Iterator[str]:
    settings = [f"{key} {value if isinstance(value, str) else f'{value:,}'}" for key, value in advice.settings.items()]
    size = f"{counted(advice.examples, 'example')} with {counted(advice.source_words, 'source word')}"
    yield f"for {size}: {', '.join(settings)}"
    yield (
        f"  {counted(advice.needed_characters, 'character')} with separate pieces; "
        f"{counted(advice.rare_characters, 'rare one')} spelled as bytes (tokenizer.character_coverage)"
    )
    yield from (f"  {note}" for note in advice.notes)
    if config is not None and advice.notes:
        values = [(key, value if isinstance(value, str) else as_yaml(value)) for key, value in advice.overrides.items()]
        kept = [one for one in overrides if not any(f"{one.split('=')[0]}.".startswith(f"{key}.") for key, _ in values)]
        options = [f"--set {typed(one)}" for one in [*kept, *(f"{key}={value}" for key, value in values)]]
        pairs = map(" ".join, (options[start : start + 2] for start in range(0, len(options), 2)))
        yield "  try: " + " \\\n    ".join([f"s2s train {typed(config)}", *pairs])


def joined(texts: Sequence[str]) -> str:
    """Return the texts in one line, with invisible and control characters as escape sequences."""
    return " ||| ".join(map(_visible, texts))


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
