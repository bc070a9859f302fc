"""`s2s translate`: a translation for each line, as text, n-best lists or JSON lines."""

import json
import logging
import math
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from seq2seq import ranges
from seq2seq.cli import marked, options
from seq2seq.cli.commands import Command
from seq2seq.errors import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tqdm import tqdm

    from seq2seq.inference.aligner import Aligner
    from seq2seq.inference.translator import Translation, Translator

    Answer = tuple[Translation, dict[str, Any]]

logger = logging.getLogger("seq2seq.cli")


@click.command(cls=Command, reads_input=True, epilog="Example: s2s translate runs/demo < input.txt > output.txt")
@click.argument("models", nargs=-1, type=options.ANY_PATH, metavar="[MODEL]...")
@click.option("-i", "--input", "input_path", type=options.FILE, help="Text to translate [default: standard input].")
@click.option(
    "-o", "--output", "output_path", type=options.FILE, help="Where translations go [default: standard output]."
)
@click.option(
    "--prefix-file",
    type=options.FILE,
    help="Text that each translation must begin with: one line for each line of the input.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    help="text: one translation per line, or with --n-best 'index ||| translation ||| score', which is log-probability "
    "/ length^a; jsonl: one object per line.",
)
@click.option(
    "--details",
    metavar="KINDS",
    help="With --format jsonl: any of alignment,words,confidence, as 'details' with spans in code points (see README).",
)
@click.option(
    "--glossary",
    type=options.FILE,
    help="Glossary: one source, tab, target per line (s2s glossary check --help). If a translation lacks a term, it is "
    "decoded again with the term forced.",
)
@click.option(
    "--input-format",
    "kind",
    type=click.Choice(["text", "plain", "html", "xml", "markdown"]),
    default="text",
    help="text: each line is translated alone. plain: the same, and variables, addresses and code stay unchanged. "
    "Others: the whole input is one document, because a sentence may continue on the next line. Tags stay with their "
    "words; variables, addresses and code stay unchanged.",
)
@click.option(
    "--force", is_flag=True, help="Translate subtitles, tables, JSON or markup line by line, as if it were plain text."
)
@click.option("--each-line", is_flag=True, help="With --input-format html, xml or markdown: each line is a document.")
@options.search_options
@click.option(
    "--max-length-ratio", type=options.Number(ranges.MAX_LENGTH_RATIO), help="Target pieces per source piece, at most."
)
@click.option("--n-best", type=options.Number(ranges.N_BEST), help="Number of translations for each line.")
@click.option("--sample", is_flag=True, default=None, help="Draw translations at random instead of searching.")
@click.option(
    "--temperature", type=options.Number(ranges.TEMPERATURE), help="With --sample: below 1 favours likely pieces."
)
@click.option(
    "--top-k", type=options.Number(ranges.TOP_K), help="With --sample: draw from the K likeliest pieces; 0 is all."
)
@click.option(
    "--top-p",
    type=options.Number(ranges.TOP_P),
    help="With --sample: draw from the likeliest pieces that add up to this probability.",
)
@click.option("--seed", type=options.Number(ranges.SEED), help="With --sample in PyTorch: seed of the draws.")
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

    MODEL is a model folder or a run folder [default: the newest translation run]; several with one vocabulary are an
    ensemble.
    """
    given = {key: value for key, value in loading.items() if value is not None}
    if not loading["sample"]:
        options.only_for("random draws; add --sample", "temperature", "top_k", "top_p", "seed")
    else:
        options.only_for("a search; leave out --sample", "beam_size")
    kinds = _kinds(details, form, models)
    if glossary is not None:
        _check_glossary(models, prefix_file, loading)
    options.check_output(output_path)
    if input_path is not None:
        options.name_unread_input("-i names a file", input_path)
    if kind != "text":
        options.only_for("plain text; leave out --input-format", "force")
        marked.check(models, prefix_file, form, details, loading)
        marked.translate(
            models[0] if models else options.chosen_model(None, "translation"),
            input_path,
            output_path,
            kind,
            each_line,
            glossary,
            given,
        )
        return
    if each_line:
        raise click.UsageError("--each-line needs --input-format html, xml or markdown; lines of text are its default")
    from seq2seq.cli.input_forms import refuse_structured, watched
    from seq2seq.inference.degeneration import LOST, SPLIT, SYMPTOMS, summary
    from seq2seq.inference.streaming import count_ahead, open_input, read_idle_batches
    from seq2seq.inference.translator import Translator
    from seq2seq.lines import check_counts, read_lines
    from seq2seq.text.untranslatable import VERBATIM

    source = open_input(input_path)
    name = input_path or "standard input"
    if not force:
        refuse_structured(source, name)
    total = count_ahead(source) if prefix_file is not None or _is_terminal(sys.stderr) else None
    prefixes = None
    if prefix_file is not None:
        if total is not None and prefix_file.is_file():
            num_prefixes = sum(1 for _ in read_lines(prefix_file))
            check_counts(name, total, prefix_file, num_prefixes)
        prefixes = read_lines(prefix_file, options.warn_invalid(prefix_file))
    chosen = models or (options.chosen_model(None, "translation"),)
    aligner = None
    if kinds or glossary is not None:
        from seq2seq.inference.aligner import load_both

        translator, aligner = load_both(chosen[0], **given)
    else:
        translator = Translator.load(*chosen, **given)
    statuses: Counter[str] = Counter()
    answer = _answerer(translator, aligner, kinds, glossary, statuses)
    n_best = translator.config.n_best
    batches = read_idle_batches(source, on_invalid=options.warn_invalid(input_path))
    if not force:
        batches = watched(batches, name, source.isatty())
    flags: Counter[tuple[str, ...]] = Counter()
    with options.open_output(output_path) as sink, _progress_bar(source, total, output_path) as bar:
        for answers in answer(batches, prefixes):
            count = flags.total()
            if not count:
                logger.info("engine: %s", translator.engine_note)
            for index, (translation, more) in enumerate(answers, start=count):
                text = _as_json(translation, more) if form == "jsonl" else _as_text(index, translation, n_best)
                sink.write(text.encode("utf-8", errors="replace") + b"\n")
            sink.flush()
            flags.update(translation.flags for translation, _ in answers)
            bar.update(len(answers))
    marked.tell_terms(statuses)
    for flag, what in (
        (SPLIT, "translated in parts"),
        (VERBATIM, "copied, completely or in part, because the text cannot be translated"),
        (LOST, "translated without some words or signs, because the model does not know them"),
    ):
        if count := sum(count for names, count in flags.items() if flag in names):
            logger.info("%s %s", "1 line was" if count == 1 else f"{count:,} lines were", what)
    if any(SYMPTOMS.intersection(names) for names in flags):
        hint = "" if form == "jsonl" else "; --format jsonl shows which"
        logger.warning("%s%s", summary(flags), hint)


def _as_text(index: int, translation: "Translation", n_best: int) -> str:
    if n_best == 1:
        return translation.text
    best = [translation, *translation.alternatives]
    return "\n".join(f"{index} ||| {one.text} ||| {one.normalized_score:.4f}" for one in best)


def _kinds(details: str | None, form: str, models: tuple[Path, ...]) -> list[str]:
    """What --details asks for."""
    if details is None:
        return []
    from seq2seq.inference.details import KINDS

    kinds = [kind.strip() for kind in details.split(",")]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise click.UsageError(
            f"--details: {shown(unknown[0])} is none of {', '.join(KINDS)}{did_you_mean(unknown[0], KINDS)}"
        )
    if form != "jsonl":
        raise click.UsageError("--details needs --format jsonl; text has no place for them")
    if len(models) > 1:
        raise click.UsageError("--details needs one MODEL, whose attention is read; an ensemble has several")
    return kinds


def _check_glossary(models: tuple[Path, ...], prefix_file: Path | None, loading: dict[str, Any]) -> None:
    if len(models) > 1:
        raise click.UsageError("--glossary needs one MODEL, whose attention is read; an ensemble has several")
    if prefix_file is not None:
        raise click.UsageError("--glossary puts terms in by prefixes of its own; leave out --prefix-file")
    if loading["sample"] or (loading["n_best"] or 1) > 1:
        raise click.UsageError("--glossary is for the best translation; leave out --sample and --n-best")


def _answerer(
    translator: "Translator",
    aligner: "Aligner | None",
    kinds: list[str],
    glossary: Path | None,
    statuses: Counter[str],
) -> "Callable[[Iterable[list[str]], Iterator[str] | None], Iterator[list[Answer]]]":
    """What turns batches of lines into translations, each with what JSON shows beside its own fields.

    How many terms of the glossary have which status is counted in `statuses`.
    """
    if aligner is None:
        return lambda batches, prefixes: (
            [(translation, {}) for translation in batch] for batch in translator.translate_stream(batches, prefixes)
        )
    if "confidence" in kinds and aligner.calibration.confidence is None:
        why = aligner.calibration.no_confidence or "the model is not calibrated; run s2s align --calibrate"
        logger.warning("confidence is null: %s", why)

    def with_terms(batches: "Iterable[list[str]]", prefixes: "Iterator[str] | None") -> "Iterator[list[Answer]]":
        if glossary is None:
            for batch in translator.translate_stream(batches, prefixes):
                yield [(translation, {}) for translation in batch]
            return
        from seq2seq.inference.terms import TermTranslator, read_glossary

        entries = read_glossary(glossary, translator)
        for batch in TermTranslator(translator, aligner, entries).translate_stream(batches):
            statuses.update(term.status for one in batch for term in one.terms)
            yield [(one.translation, {"terms": [term.as_json() for term in one.terms]}) for one in batch]

    def explained(batches: "Iterable[list[str]]", prefixes: "Iterator[str] | None") -> "Iterator[list[Answer]]":
        for answers in with_terms(batches, prefixes):
            found = [translation for translation, _ in answers] if kinds else []
            details = aligner.explain(found, probabilities=kinds != ["alignment"])
            for (_, more), parts in zip(answers, details, strict=bool(kinds)):
                more["details"] = [part.as_json(kinds) for part in parts]
            yield answers

    return explained


def _as_json(translation: "Translation", more: dict[str, Any]) -> str:
    fields = {
        "source": translation.source,
        "translation": translation.text,
        **_scores(translation),
        "flags": translation.flags,
        "alternatives": [{"translation": one.text, **_scores(one)} for one in translation.alternatives],
        **more,
    }
    return json.dumps(fields, ensure_ascii=False)


def _scores(translation: Any) -> dict[str, Any]:
    numbers = {"score": translation.score, "normalized_score": translation.normalized_score}
    # JSON has no infinity
    rounded = {key: round(value, 6) if math.isfinite(value) else None for key, value in numbers.items()}
    return {**rounded, "tokens": translation.tokens}


def _progress_bar(source: BinaryIO, total: int | None, output_path: Path | None) -> "tqdm":
    """A bar of translated lines on a terminal, unless lines are typed or printed there."""
    from tqdm import tqdm

    typed, shown = source.isatty(), _is_terminal(sys.stderr)
    if typed and shown:
        logger.info("type text; each line is translated when you press Enter; Ctrl-D ends")
    shown = shown and not typed and not (output_path is None and _is_terminal(sys.stdout))
    return tqdm(total=total, unit=" lines", dynamic_ncols=True, disable=not shown)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()
