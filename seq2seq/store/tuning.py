"""Search settings that `s2s tune` chose for a model folder, and the scores that they change.

`store.model_folder` writes and reads them in generation_config.json. Scores of translations that were measured with
other settings stand neither in the description nor in the card of a tuned model.
"""

import re
from collections.abc import Mapping
from logging import getLogger
from pathlib import Path
from typing import Any

from seq2seq.errors import typed
from seq2seq.evaluation.text import METRICS
from seq2seq.store.model_card import with_scores

logger = getLogger(__name__)

TUNED, BEFORE = "tuned", "search_before_tuning"  # keys of generation_config.json
VALIDATION = "validation"  # the name of the validation set in the scores of `TUNED`
SOURCE = "source"  # a key of `TUNED`, if another set than that of the run decided
NOTE = "Search settings chosen by `s2s tune`"


def is_tuned(generation: Mapping[str, Any]) -> bool:
    """Whether a model has other search settings than those of its training."""
    is_noted = all(isinstance(generation.get(key), Mapping) for key in (TUNED, BEFORE, "search"))
    return is_noted and generation["search"] != generation[BEFORE]


def report_loss(folder: Path, generation: Mapping[str, Any]) -> None:
    """Log that the settings of `folder` are about to be replaced, if its present ones, `generation`, are tuned."""
    if is_tuned(generation):
        logger.info(
            "%s: the search settings that s2s tune chose are gone, because the model or the configuration changed; to "
            "choose new ones after training: s2s tune %s",
            folder,
            typed(folder),
        )


def tuned_metrics(metrics: Mapping[str, Any], generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of the validation of a tuned model: scores of translations are those after tuning, or are left
    out if they are not known."""
    known = {name: value for (data, name), value in _scores(generation[TUNED]).items() if data == VALIDATION}
    kept = {name: value for name, value in metrics.items() if not _is_of_translations(name)}
    return kept | known


def tuned_settings(generation: Mapping[str, Any]) -> str:
    """Return the settings of a tuned model that are not those of its training, with both values."""
    search, before = generation["search"], generation[BEFORE]
    changed = (
        f"{key} {value} (in training {before.get(key)})" for key, value in search.items() if before.get(key) != value
    )
    return ", ".join(changed)


def tuning_note(generation: Mapping[str, Any]) -> str:
    """Return a line about the settings, for the card."""
    return f"{NOTE}: {tuned_settings(generation)}."


def tuned_card(card: str, generation: Mapping[str, Any]) -> str:
    """Return the card of a model with the scores after tuning and a note about the settings."""
    scores = _scores(generation[TUNED])
    known = {("valid" if data == VALIDATION else data, metric): value for (data, metric), value in scores.items()}
    lines = [line for line in with_scores(card, known, METRICS).split("\n") if not line.startswith(f"- {NOTE}")]
    text = "\n".join(lines).rstrip("\n") + "\n"
    if not is_tuned(generation):
        return text
    heading = "" if re.search(r"^## Notes$", text, re.MULTILINE) else "\n## Notes\n\n"
    return f"{text}{heading}- {tuning_note(generation)}\n"


def _is_of_translations(name: str) -> bool:
    return re.split(r"\.|_se$", name)[0] in METRICS


def _scores(tuned: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the scores after tuning, by data set and metric; the file may contain anything.

    Those of the validation set are left out if another set decided, and so are its means over directions, which may be
    some of them.
    """
    by_data = tuned.get("scores")
    found = {}
    for data, changes in by_data.items() if isinstance(by_data, Mapping) else ():
        for metric, change in changes.items() if isinstance(changes, Mapping) else ():
            value = change.get("after") if isinstance(change, Mapping) else None
            is_other = data == VALIDATION and (SOURCE in tuned or ("directions" in tuned and "." not in metric))
            if isinstance(value, float) and not is_other:
                found[data, metric] = value
    return found
