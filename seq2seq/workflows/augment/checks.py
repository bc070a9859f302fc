"""Checks of `s2s augment` before its work: what the models, the text or the search settings do not allow."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seq2seq.errors import DataError, UserError
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inspection.line_languages import other_language
from seq2seq.inspection.overlap import normalise
from seq2seq.languages import language_name
from seq2seq.workflows.augment.job import Kind, Recipe
from seq2seq.workflows.augment.shards import Shard

CHOICES = {"beam_size", "length_penalty", "n_best", "sample"}  # options that choose between beam search and samples
MANY_LINES, SAMPLED_FROM = 100_000, 10  # lines from which back-translation samples, and its top_k


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
            remedy = f"calibrate it with s2s align {model} SOURCE TARGET --calibrate, or leave out --min-confidence"
            raise UserError(f"{model}: has no confidence ({why}); {remedy}")


def check_language(
    shards: Sequence[Shard],
    language: str | None,
    reader: str = "the model",
    remedy: str = "give another text or model, or --force",
) -> None:
    """Refuse a text whose lines are in another language than the model's source, judged by a sample.

    Args:
        shards: of one or several texts; the first shard of each text is read.
        language: the source language of the model.
        reader: the model, as the message names it.
        remedy: what the user should do, the end of the message.

    Raises:
        DataError: at least two fifths of the lines with a clear language are in one other language, and hardly any in
            this one.
    """
    for shard in {shard.text: shard for shard in reversed(shards)}.values():  # the first shard of each text
        if found := other_language([line for line in shard.lines() if line is not None], language):
            raise DataError(
                f"{shard.text}: {100 * found[1]:.0f} % of the sampled lines with a clear language are "
                f"{language_name(found[0])}, but {reader} translates from {language_name(language or '')}; {remedy}"
            )


def held_out_lines(texts: Iterable[str]) -> frozenset[str]:
    """Return the normalised lines of held-out sets."""
    return frozenset(filter(None, map(normalise, texts)))


def check_references(shards: Sequence[Shard], references: Sequence[Shard]) -> None:
    """Refuse references that are not parallel to the texts.

    Raises:
        DataError: the numbers of lines differ.
    """
    if [shard.count for shard in shards] != [shard.count for shard in references]:
        counts = [sum(shard.count for shard in each) for each in (shards, references)]
        raise DataError(
            f"--text has {counts[0]:,} lines and --reference {counts[1]:,}; line i of one must translate line i of the "
            "other, file by file"
        )


def default_search(kind: Kind, num_lines: int, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return search settings, and the reason for them, where the user chose none (Edunov et al. 2018).

    Samples give better back-translations of much text; with little text, and so with poor models, beam search does.
    """
    if kind == "back" and num_lines > MANY_LINES and not given.keys() & CHOICES:
        why = f"sampling from the {SAMPLED_FROM} likeliest pieces, because there are more than {MANY_LINES:,} lines"
        return {"sample": True, "top_k": SAMPLED_FROM}, why
    return {}, ""


def check_search(recipe: Recipe, search: Mapping[str, Any], engine: str) -> None:
    """Refuse search settings that cannot serve the recipe.

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
