"""The command `s2s translate`: a translation for each line, as text, n-best lists or JSON Lines, or of a document.

`inference.pipeline` translates; this module checks the options, reads, prints, and reports flags.
"""

import json
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.cli.outputs import check_output, open_output
from seq2seq.config import ranges
from seq2seq.errors import DataError, did_you_mean, reason, shown
from seq2seq.lines import DAMAGE, UnequalPrefixes, text_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tqdm import tqdm

    from seq2seq.inference.pipeline import Pipeline
    from seq2seq.inference.translation import Translation

logger = logging.getLogger("seq2seq.cli")

# The descriptions of flags in the log, for lines or for the sentences of documents.
FLAGS = {
    "split": "translated in parts",
    "placeholder": "split at variables or addresses, or lost words to them, because the model dropped placeholders",
    "markup": "written without emphasis, or left unchanged, because Markdown would have read them differently",
    "verbatim": "copied, in full or in part, because the text is not language",
    "lost": "translated without some words or characters, which the model does not know",
    "pivot": "translated through the language of --pivot",
    "language": "translated into another language than the target",
    "unchanged": "left unchanged, because their translation was empty",
}


@click.command(cls=Command, reads_input=True, epilog="Example: s2s translate runs/demo < input.txt > output.txt")
@click.argument("models", nargs=-1, type=options.ANY_PATH, metavar="[MODEL]...")
@options.input_option("Text to translate [default: standard input].")
@click.option(
    "-o", "--output", "output_path", type=options.FILE, help="File to write translations to [default: standard output]."
)
@click.option(
    "--prefix-file",
    type=options.FILE,
    help="File with the required beginning of each translation, one line for each line of the input.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    help="text: one translation per line, or with --n-best 'index ||| translation ||| score' (score: log-probability / "
    "length^a). jsonl: one object per line.",
)
@click.option(
    "--details",
    metavar="KINDS",
    help="With --format jsonl: further fields, separated by commas: alignment, words, confidence (see "
    "seq2seq/inference/README.md). Spans are in code points.",
)
@click.option(
    "--glossary",
    type=options.FILE,
    help="Glossary, with source, tab, target on each line (s2s glossary check --help). If a translation lacks a term, "
    "it is decoded again with the term forced.",
)
@click.option(
    "--input-format",
    "kind",
    type=click.Choice(["text", "plain", "html", "xml", "markdown"]),
    default="text",
    help="text: each line is translated independently. plain: the same, but variables, addresses and code are kept "
    "unchanged. Others: the whole input is one document, whose sentences may continue on the next line; tags are kept "
    "with their words, and variables, addresses and code are kept unchanged.",
)
@click.option(
    "--force", is_flag=True, help="Translate subtitles, tables, JSON or markup line by line, as if it were plain text."
)
@click.option(
    "--each-line", is_flag=True, help="With --input-format html, xml or markdown: treat each line as a document."
)
@options.direction_options
@options.pivot_option("for directions that it was not trained for")
@options.search_options
@click.option(
    "--max-length-ratio",
    type=options.Number(ranges.MAX_LENGTH_RATIO),
    help="Maximum number of target pieces per source piece [default: that of the model].",
)
@click.option(
    "--n-best",
    type=options.Number(ranges.N_BEST),
    help="Number of translations for each line [default: that of the model, usually 1].",
)
@options.sampling_options
@options.engine_options
@options.computing_options
def command(
    models: tuple[Path, ...],
    input_path: Path | None,
    output_path: Path | None,
    prefix_file: Path | None,
    form: str,
    details: str | None,
    glossary: Path | None,
    kind: str,
    force: bool,
    each_line: bool,
    **loading: Any,
) -> None:
    """Translate each line of the input: N lines in, N lines out, in order. A blank line gives an empty line.
    Lines that are not language, such as URLs or numbers, are copied unchanged.

    MODEL is a model folder or a run folder [default: the newest translation run]. Several MODELs with the same
    vocabulary form an ensemble.
    """
    given = {key: value for key, value in loading.items() if value is not None}
    kinds = _kinds(details)
    _check_usage(models, kind, loading)
    check_output(output_path)
    if input_path is not None:
        options.name_unread_input("-i names a file", input_path)
    source = _Input(input_path, kind, each_line, force)
    prefixes = _prefixes(prefix_file, source)
    pipeline = _pipeline(models, glossary, kinds, kind, given)
    fields = [*kinds, *["terms"] * (glossary is not None)]
    n_best = pipeline.translator.config.n_best if kind == "text" else 1
    tally = _Tally(form, kind)
    with open_output(output_path) as sink, source.progress_bar(output_path) as bar:
        for translations in _translations(pipeline, source, prefixes, kinds):
            if not tally.count:
                logger.info("engine: %s", pipeline.translator.engine_note)
            for index, answer in enumerate(translations, start=tally.count):
                line = _as_json(answer, fields) if form == "jsonl" else _as_text(answer, index, n_best)
                sink.write(line.encode("utf-8", errors="replace") + source.end)
            sink.flush()
            tally.add(translations)
            bar.update(len(translations))
    tally.tell(pipeline.statuses)


def _check_usage(models: tuple[Path, ...], kind: str, loading: dict[str, Any]) -> None:
    """Refuse options that exclude each other."""
    given = click.get_current_context().params
    if loading["sample"]:
        options.only_for("a search; leave out --sample", "beam_size")
    else:
        options.only_for("random draws; add --sample", "temperature", "top_k", "top_p", "seed")
    if given["details"] is not None and kind == "text" and given["form"] != "jsonl":
        raise click.UsageError("--details needs --format jsonl; text has no place for them")
    needs = ("details", given["details"] is not None), ("glossary", given["glossary"]), ("input-format", kind != "text")
    for name in (name for name, is_given in needs if is_given and len(models) > 1):
        raise click.UsageError(f"--{name} needs the attention of one MODEL; an ensemble has several")
    has_several = loading["sample"] or (loading["n_best"] or 1) > 1
    needs_one = ("details", given["details"] is not None), *needs[1:]
    for name in (name for name, is_given in needs_one if is_given and given["pivot"] is not None):
        raise click.UsageError(f"--{name} needs the attention of one pass; leave out --pivot")
    if given["glossary"] is not None and given["prefix_file"] is not None:
        raise click.UsageError("--glossary forces terms by prefixes; leave out --prefix-file")
    if given["glossary"] is not None and has_several:
        raise click.UsageError("--glossary is for the best translation; leave out --sample and --n-best")
    if kind == "text":
        if given["each_line"]:
            raise click.UsageError(
                "--each-line needs --input-format html, xml or markdown; lines of text are its default"
            )
        return
    options.only_for("plain text; leave out --input-format", "force")
    if given["prefix_file"] is not None or has_several:
        raise click.UsageError("--input-format: leave out --prefix-file, --sample and --n-best, which are for lines")
    if given["form"] != "text" or given["details"] is not None:
        raise click.UsageError("--input-format: leave out --format and --details; the output is a document again")


def _kinds(details: str | None) -> list[str]:
    """Return the kinds that --details requests."""
    from seq2seq.text.alignment import KINDS

    kinds = [kind.strip() for kind in details.split(",")] if details is not None else []
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise click.UsageError(
            f"--details: {shown(unknown[0])} is not one of {', '.join(KINDS)}{did_you_mean(unknown[0], KINDS)}"
        )
    return kinds


class _Input:
    """The lines or documents to translate; input of another form is refused."""

    def __init__(self, path: Path | None, kind: str, each_line: bool, force: bool):
        from seq2seq.cli.input_forms import refuse_structured, watched
        from seq2seq.cli.streaming import count_ahead, open_input, read_idle_batches

        self.name, self.kind = path or "standard input", kind
        is_document = kind != "text" and not each_line
        self._source = open_input(path, keeps_bom=is_document)
        self.end = b"" if is_document else b"\n"
        self.total: int | None = None
        """The number of lines; None if it is unknown."""
        if kind == "text" and not force:
            refuse_structured(self._source, self.name)
        if is_document:
            self.batches: Iterable[list[str]] = [[_document(self._source, self.name)]]
            return
        is_counted = _is_terminal(sys.stderr) or click.get_current_context().params["prefix_file"] is not None
        self.total = count_ahead(self._source) if is_counted else None
        self.batches = read_idle_batches(self._source, on_invalid=options.warn_invalid(path))
        if kind == "text" and not force:
            self.batches = watched(self.batches, self.name, self._source.isatty())

    def progress_bar(self, output_path: Path | None) -> "tqdm":
        """Return a progress bar of translated lines on a terminal, unless lines are typed or printed there."""
        from tqdm import tqdm

        typed, shown = self._source.isatty(), _is_terminal(sys.stderr)
        if typed and shown and self.kind == "text":
            logger.info("type text; each line is translated when you press Enter; end with Ctrl-D")
        shown = shown and not typed and not (output_path is None and _is_terminal(sys.stdout))
        return tqdm(total=self.total, unit=" lines", dynamic_ncols=True, disable=not shown or self.kind != "text")


def _prefixes(path: Path | None, lines: _Input) -> "Iterator[str] | None":
    """Return the lines of --prefix-file; None without it.

    Raises:
        DataError: its number of lines is not that of the input, if both are known.
    """
    from seq2seq.lines import check_counts, read_lines

    if path is None:
        return None
    if lines.total is not None and path.is_file():
        remedy = "give one prefix for each line, empty for none"
        check_counts(lines.name, lines.total, path, sum(1 for _ in read_lines(path)), remedy)
    return read_lines(path, options.warn_invalid(path))


def _pipeline(
    models: tuple[Path, ...], glossary: Path | None, kinds: list[str], kind: str, given: dict[str, Any]
) -> "Pipeline":
    from seq2seq.inference.pipeline import Pipeline

    chosen = models or (options.chosen_model(None, "translation"),)
    pipeline = Pipeline.load(*chosen, glossary=glossary, with_aligner=bool(kinds) or kind != "text", **given)
    if "confidence" in kinds and pipeline.aligner is not None and pipeline.aligner.calibration.confidence is None:
        why = pipeline.aligner.calibration.no_confidence or "the model is not calibrated; run s2s align --calibrate"
        logger.warning("confidence is null: %s", why)
    return pipeline


def _translations(
    pipeline: "Pipeline", lines: _Input, prefixes: "Iterator[str] | None", kinds: list[str]
) -> "Iterator[list[Translation]]":
    if lines.kind == "text":
        try:
            yield from pipeline.translate_stream(lines.batches, prefixes, kinds)
        except UnequalPrefixes as error:
            path = click.get_current_context().params["prefix_file"]
            raise DataError(f"{path}: {error}") from error
        return
    from seq2seq.markup.translation import BadDocument

    done = 0
    for batch in lines.batches:
        try:
            documents = pipeline.translate(batch, form=lines.kind)
        except BadDocument as error:
            where = f"line {done + error.index + 1:,}: " if lines.end else ""
            raise DataError(f"{lines.name}: {where}{error}") from error
        yield documents
        done += len(batch)


def _document(source: BinaryIO, name: object) -> str:
    try:
        return text_bytes(source, str(name), keeps_bom=True).read().decode("utf-8")
    except DAMAGE as error:
        raise DataError(f"{name}: cannot be read ({reason(error)})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not UTF-8 (byte {error.start:,}); convert it to UTF-8") from error


def _as_json(translation: "Translation", kinds: list[str]) -> str:
    return json.dumps({"source": translation.source, **translation.as_json(kinds)}, ensure_ascii=False)


def _as_text(translation: "Translation", index: int, n_best: int) -> str:
    if n_best == 1:
        return translation.text
    best = [translation, *translation.alternatives]
    return "\n".join(f"{index} ||| {each.text} ||| {each.score:.4f}" for each in best)


class _Tally:
    """The counts of flags of lines, or of the sentences of documents, which the log reports at the end."""

    def __init__(self, form: str, kind: str):
        self._flags: Counter[tuple[str, ...]] = Counter()
        self._form, self._is_text = form, kind == "text"
        self.count = 0

    def add(self, translations: "Sequence[Translation]") -> None:
        """Count translations."""
        self.count += len(translations)
        for translation in translations:
            self._flags.update([translation.flags] if self._is_text else translation.sentences)

    def tell(self, statuses: Counter[str]) -> None:
        """Log the number of lines or sentences by flag, and the number of terms by status."""
        from seq2seq.inference.degeneration import SYMPTOMS, summary

        if statuses:
            logger.info("terms: %s", ", ".join(f"{count:,} {status}" for status, count in sorted(statuses.items())))
        unit = "line" if self._is_text else "sentence"
        for flag, what in FLAGS.items():
            if count := sum(count for names, count in self._flags.items() if flag in names):
                logger.info("%s %s", f"1 {unit} was" if count == 1 else f"{count:,} {unit}s were", what)
        if any(SYMPTOMS.intersection(names) for names in self._flags):
            hint = "; --format jsonl shows which" if self._is_text and self._form != "jsonl" else ""
            logger.warning("%s%s", summary(self._flags, unit), hint)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()
