"""Checks of `s2s augment` before its work: what the models, the text or the search settings do not allow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import Any

from seq2seq.errors import DataError, UserError, typed
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inspection.line_languages import other_language
from seq2seq.inspection.overlap import normalise
from seq2seq.interop.ctranslate2 import is_ctranslate2
from seq2seq.languages import language_name
from seq2seq.lines import check_readable_again, read_lines
from seq2seq.text.forms import HTML, XML, form_of_file
from seq2seq.workflows.augment.job import Recipe
from seq2seq.workflows.augment.shards import Shard
from seq2seq.workflows.parts import SHARD_LINES

_AS_LINES = "write its sentences into a file of its own, one line each"


def check_pipeline(pipeline: Pipeline, recipe: Recipe, model: str) -> None:
    """Refuse a recipe that the model cannot follow.

    Raises:
        UserError: the recipe needs a confidence, and the model is not calibrated.
    """
    if recipe.min_confidence is not None:
        assert pipeline.aligner is not None
        calibration = pipeline.aligner.calibration
        if calibration.confidence is None:
            why = calibration.no_confidence or "it is not calibrated"
            remedy = (
                f"calibrate it with s2s align {typed(model)} SOURCE TARGET --calibrate, or leave out --min-confidence"
            )
            raise UserError(f"{model}: has no confidence ({why}); {remedy}")


def check_language(
    shards: Sequence[Shard],
    language: str | None,
    reader: str = "the model",
    remedy: str = "give another text or model, or --force",
) -> None:
    """Refuse a text whose lines are in another language than the model's source, judged by a sample.

    Args:
        shards: shards of one or several texts; the beginning of each text is read, whatever the size of its shards.
        language: the source language of the model.
        reader: the model, as the message names it.
        remedy: what the user should do, the end of the message.

    Raises:
        DataError: at least two fifths of the lines with a clear language are in one other language, and hardly any in
            this one.
    """
    for text, lines in _lines_of_texts(shards):
        if found := other_language(list(islice(read_lines(text), min(lines, SHARD_LINES))), language):
            raise DataError(
                f"{text}: {100 * found[1]:.0f} % of the sampled lines with a clear language are "
                f"{language_name(found[0])}, but {reader} translates from {language_name(language or '')}; {remedy}"
            )


def check_lines(texts: Iterable[Path]) -> None:
    """Refuse files that do not have one sentence per line, judged by their beginnings.

    Raises:
        DataError: a file cannot be read, or has another form; the message names it, with the remedy.
    """
    for text in texts:
        check_readable_again(text)
        if form := form_of_file(text):
            way = _AS_LINES if form in (HTML, XML) else form.way
            raise DataError(f"{text}: this looks like {form.name}; {way}, or give --force")


def held_out_lines(texts: Iterable[str]) -> frozenset[str]:
    """Return the normalised lines of held-out sets."""
    return frozenset(filter(None, map(normalise, texts)))


def check_references(texts: Sequence[tuple[Path, int]], references: Sequence[tuple[Path, int]]) -> None:
    """Refuse references that are not parallel to the texts; each file is given with the number of all its lines.

    Raises:
        DataError: the numbers of files or of their lines differ.
    """
    for (text, lines), (reference, others) in zip_longest(texts, references, fillvalue=(None, 0)):
        if not (text and reference):
            known, missing = ("--text", "--reference") if text else ("--reference", "--text")
            problem = f"no {missing} belongs to this {known}"
            raise DataError(f"{text or reference}: {problem}; give one --reference for each --text")
        if lines != others:
            raise DataError(
                f"--text {text} has {lines:,} lines, but --reference {reference} has {others:,}; line i of the "
                "reference must translate line i of its text"
            )


def _lines_of_texts(shards: Sequence[Shard]) -> Iterator[tuple[Path, int]]:
    """Yield each text of some shards, in order, and the number of its lines."""
    for text, group in groupby(shards, key=lambda shard: shard.text):
        yield text, sum(shard.count for shard in group)


def check_search(recipe: Recipe, search: Mapping[str, Any], engine: str, exports: Sequence[Path] = ()) -> None:
    """Refuse search settings that cannot serve the recipe; `exports` are the models that are CTranslate2 folders.

    Raises:
        UserError: the message names the options.
    """
    if recipe.keep == "best" and search.get("n_best", 1) > 1:
        raise UserError("--n-best needs --keep chrf or mbr, which choose among the translations")
    if recipe.keep != "best" and search.get("n_best", 1) < 2:
        raise UserError(f"--keep {recipe.keep} chooses among several translations; give --n-best 2 or more")
    if recipe.keep != "best" and recipe.min_confidence is not None:
        raise UserError("--min-confidence judges the best translation; leave it out, or --keep")
    if search.get("sample") and engine == "ctranslate2":
        raise UserError("--sample: CTranslate2 cannot repeat its draws; leave out --engine ctranslate2")
    if search.get("sample") and exports:
        raise UserError(f"--sample: CTranslate2 cannot repeat its draws; {_source_of(exports[0])}")


def check_stored_search(model: Path, is_sampling: bool, engine: str) -> None:
    """Refuse a model whose own search draws samples in CTranslate2.

    Raises:
        UserError: the message names the remedy.
    """
    is_exported = is_ctranslate2(model)
    if is_sampling and (is_exported or engine == "ctranslate2"):
        remedy = _source_of(model) if is_exported else "leave out --engine ctranslate2"
        raise UserError(f"{model}: its search has sample: true, and CTranslate2 cannot repeat its draws; {remedy}")


def _source_of(export: Path) -> str:
    return f"{export} is a CTranslate2 folder, so name the model that it was converted from"
