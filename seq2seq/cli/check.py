"""`s2s check`: what is odd in corpora, before anything is trained; exit code 1 where it would spoil a result."""

import contextlib
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seq2seq import ranges
from seq2seq.cli.options import EXISTING, Number
from seq2seq.errors import DataError, counted, some_of
from seq2seq.lines import open_bytes, read_lines, readable_again
from seq2seq.ranges import Range

if TYPE_CHECKING:
    from seq2seq.config import SourceConfig
    from seq2seq.inspection.check import CheckReport, Corpora
    from seq2seq.inspection.overlap import Overlap
    from seq2seq.inspection.quality import Example, Finding
    from seq2seq.inspection.report import CorpusReport

CONFIG_SUFFIXES = (".yaml", ".yml")
SPOILED = 1


@click.command(
    "check",
    short_help="Report what is odd in corpora before training.",
    epilog="Example: s2s check train.en train.de",
)
@click.argument("files", nargs=-1, required=True, type=EXISTING)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="With CONFIG: override one key (repeatable)."
)
@click.option("--source-language", help="With FILE: column of the source in a JSONL or a table with header.")
@click.option("--target-language", help="With FILE: column of the target.")
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--examples", type=Number(Range(0, 3)), default=2, show_default=True, help="Lines shown of each kind.")
@click.option("--workers", type=Number(ranges.WORKERS), default=0, help="Processes [default: one per CPU].")
@click.pass_context
def command(
    context: click.Context,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    source_language: str | None,
    target_language: str | None,
    form: str,
    examples: int,
    workers: int,
) -> None:
    """Report on corpora before anything is trained.

    \b
    s2s check CONFIG          train, valid and test of a config, and what they share
    s2s check SOURCE TARGET   two text files, line by line
    s2s check FILE            one .tsv, .csv or .jsonl of pairs, or of texts with labels

    Exit code 0 if all is well or merely odd, 1 if something would spoil a result, 2 if the check cannot be made."""
    if not _is_config(files) and overrides:
        raise click.UsageError("--set belongs to a CONFIG (a .yaml file)")
    from tqdm import tqdm

    from seq2seq.inspection.check import check_corpora

    with contextlib.ExitStack() as stack:
        read = [stack.enter_context(readable_again(path)) for path in files]
        corpora = _from_config(read[0], overrides) if _is_config(files) else _from_files(
            read, source_language, target_language
        )  # fmt: skip
        bar = tqdm(unit=" examples", unit_scale=True, disable=None, leave=False, desc="checking")
        report = check_corpora(corpora, workers, progress=stack.enter_context(bar).update)
    if form == "json":
        click.echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=1).encode("utf-8", "replace").decode())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in _as_text(report, examples, files[0] if _is_config(files) else None):
            click.echo(_wrapped(line, width))
    if not report.ok:
        context.exit(SPOILED)


def _is_config(files: Sequence[Path]) -> bool:
    return len(files) == 1 and files[0].suffix in CONFIG_SUFFIXES


def _from_config(path: Path, overrides: Sequence[str]) -> "Corpora":
    from seq2seq.config_file import load
    from seq2seq.inspection.check import Corpora

    config = load(path, overrides)
    translates = config.task == "translation"
    return Corpora(
        train=config.data.train_sources,
        held_out={
            "valid": config.data.valid,
            **{_test_name(name): source for name, source in config.data.test.items()},
        },
        languages=(config.source_language or "", config.target_language or "") if translates else None,
        filters=config.data.filters,
        tokenizer=config.tokenizer,
        preset=config.model.preset,
        training=config.training,
        seed=config.seed,
    )


def _test_name(name: str) -> str:
    return f"test {name}" if name in ("train", "valid") else name


def _from_files(files: Sequence[Path], source_language: str | None, target_language: str | None) -> "Corpora":
    from seq2seq.config import SourceConfig
    from seq2seq.inspection.check import Corpora

    for path in files:
        open_bytes(path).close()
    languages: tuple[str, str] | None = (source_language or "", target_language or "")
    if len(files) == 2:
        source = SourceConfig(source=files[0], target=files[1])
    elif len(files) == 1:
        kind = files[0].with_suffix("").suffix if files[0].suffix == ".gz" else files[0].suffix
        if kind not in (".tsv", ".csv", ".jsonl"):
            raise DataError(
                f"{files[0]}: one file is a config (.yaml), a .tsv, .csv or .jsonl; text needs SOURCE and TARGET"
            )
        source = SourceConfig(jsonl=files[0]) if kind == ".jsonl" else SourceConfig(tsv=files[0])
        if not (source_language and target_language):
            source, languages = _columns_of(files[0], kind)
    else:
        raise DataError(f"{len(files)} files; give a CONFIG, SOURCE and TARGET, or one .tsv, .csv or .jsonl")
    return Corpora(train=[source], held_out={}, languages=languages)


def _columns_of(path: Path, kind: str) -> "tuple[SourceConfig, tuple[str, str] | None]":
    """How one file is read whose columns were not named: labelled texts if it says so, else its first two columns."""
    from seq2seq.config import SourceConfig
    from seq2seq.data.columns import LABEL_COLUMN, LABEL_WORDS, NESTED, TEXT_COLUMNS, looks_like_header
    from seq2seq.data.tables import header

    if kind != ".jsonl":
        names = header(path)
        if LABEL_COLUMN in names and any(name in names for name in TEXT_COLUMNS):
            return SourceConfig(tsv=path), None
        if not looks_like_header(names[:2]):
            return SourceConfig(tsv=path), ("", "")
        if names[1].strip().casefold() in LABEL_WORDS - {"target"}:
            return SourceConfig(tsv=path, text_column=names[0], label_column=names[1]), None
        return SourceConfig(tsv=path, source_column=names[0], target_column=names[1]), ("", "")
    first = next(read_lines(path), "")
    try:
        record = json.loads(first)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise DataError(f"{path}: line 1 is not a JSON object; write one object per line")
    if LABEL_COLUMN in record and any(name in record for name in TEXT_COLUMNS):
        return SourceConfig(jsonl=path), None
    names = list(record.get(NESTED, record) if isinstance(record.get(NESTED, record), dict) else record)
    if len(names) < 2:
        raise DataError(f"{path}: line 1 has the columns {', '.join(names) or 'none'}; two are needed")
    return SourceConfig(jsonl=path), (names[0], names[1])


def _wrapped(line: str, width: int | None) -> str:
    """`line` broken between words where a terminal is narrower; what follows stands under its beginning."""
    if width is None or len(line) <= width or "\n" in line:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(
        line, max(width, 40), subsequent_indent=indent, break_on_hyphens=False, replace_whitespace=False,
        drop_whitespace=True, break_long_words=False,
    )  # fmt: skip


def _as_text(report: "CheckReport", examples: int, config: Path | None) -> Iterator[str]:
    held_out = set(report.overlaps.get("train", ()))
    for corpus in report.corpora:
        yield from _corpus_lines(corpus, examples)
        if corpus.name not in held_out:  # which are never filtered
            yield f"  the filters{'' if report.lengths_are_exact else ', by estimated lengths'}: {corpus.filters}"
        yield ""
    overlaps = [
        (first, second, overlap) for first, others in report.overlaps.items() for second, overlap in others.items()
    ]
    if overlaps:
        yield "overlap"
        for first, second, overlap in overlaps:
            yield f"  {second} in {first}: {overlap}"
            yield from _overlap_lines(overlap, first, second, examples)
        yield ""
    if advice := report.advice:
        settings = advice.settings.items()
        yield (
            f"for {counted(advice.examples, 'example')} with {counted(advice.source_words, 'source word')}: "
            + ", ".join(f"{key} {value:,}" if key != "model.preset" else f"{key} {value}" for key, value in settings)
        )
        yield (
            f"  {counted(advice.needed_characters, 'character')} with pieces of their own; "
            f"{counted(advice.rare_characters, 'rare one')} spelled as bytes (tokenizer.character_coverage)"
        )
        yield from (f"  {note}" for note in advice.notes)
        if config is not None and advice.notes:
            options = [f"--set {key}={value}" for key, value in settings]
            yield "  try: " + " \\\n    ".join(
                [f"s2s train {config}", *map(" ".join, zip(options[::2], options[1::2], strict=True))]
            )
        yield ""
    yield from (f"{problem.level}: {problem.corpus}: {problem.message}" for problem in report.problems)
    errors = sum(problem.level == "error" for problem in report.problems)
    warnings = len(report.problems) - errors
    yield f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"


def _corpus_lines(corpus: "CorpusReport", examples: int) -> Iterator[str]:
    yield f"{corpus.name}: {counted(corpus.examples, 'example')} ({', '.join(corpus.files)})"
    for name, side in corpus.sides.items():
        unseen = ""
        if side.unseen_characters or side.unseen_word_share:
            shown = " ".join(map(_visible, side.unseen_characters))
            unseen = f"; not in training: {side.unseen_word_share:.1%} of the words"
            unseen += f", and {counted(len(side.unseen_characters), 'character')} ({shown})" if shown else ""
        yield (
            f"  {name}: {side.words:,} words, {side.characters:,} characters ({side.distinct_characters:,} distinct, "
            f"mostly {side.script}), about {side.mean_pieces} pieces per line, longest line {side.longest:,} characters"
            f"{unseen}"
        )
        for kind, finding in side.findings.items():
            yield from _finding_lines(kind, finding, examples)
    if corpus.findings:
        yield "  pairs:" if len(corpus.sides) == 2 else "  examples:"
        for kind, finding in corpus.findings.items():
            yield from _finding_lines(kind, finding, examples)
    if corpus.contradictions.count:
        what, others = ("text", "labels") if corpus.labels else ("source", "targets")
        yield f"  {counted(corpus.contradictions.count, what)} with several {others}"
        yield from _example_lines(corpus.contradictions.examples[:examples])
    if corpus.drift_context:
        yield "  where the sides drift apart:"
        yield from _example_lines(corpus.drift_context)
    if corpus.labels:
        most = sorted(corpus.labels, key=lambda label: -corpus.labels[label])
        shown = some_of([f"{some_of([label])} {corpus.labels[label]:,}" for label in most])
        yield f"  {counted(len(most), 'label')}: {shown}"


def _finding_lines(kind: str, finding: "Finding", examples: int) -> Iterator[str]:
    from seq2seq.inspection.quality import KINDS

    yield f"    {kind} {finding.count:,}: {KINDS[kind]}"
    yield from _example_lines(finding.examples[:examples])


def _example_lines(examples: Sequence["Example"]) -> Iterator[str]:
    for number, texts in examples:
        yield f"      {number:,}: {' ||| '.join(map(_visible, texts))}"


def _overlap_lines(overlap: "Overlap", first: str, second: str, examples: int) -> Iterator[str]:
    shown: dict[str, int] = {}
    for example in overlap.examples:
        shown[example.kind] = shown.get(example.kind, 0) + 1
        if shown[example.kind] <= examples:
            yield f"    {example.kind.replace('_', ' ')} ({example.similarity:.2f})"
            yield f"      {second} {example.held_out_number:,}: {' ||| '.join(map(_visible, example.held_out))}"
            yield f"      {first} {example.train_number:,}: {' ||| '.join(map(_visible, example.train))}"


def _visible(text: str) -> str:
    """One line that a terminal shows as it is: what is invisible or a control character is spelled out."""
    return "".join(
        character if character.isprintable() and not "\ud800" <= character <= "\udfff" else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
