"""The conditions under which figures of runs can be compared: data sets, tokenizers and signatures.

`s2s runs` warns of columns that cannot be compared, and `workflows.compare.curves` leaves such figures out. A condition
that a run did not record is not a difference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.tasks.run_folder import TOKENIZER
from seq2seq.workflows.runs import RunRecord

# The settings that decide how BLEU counts words. The first is missing in runs of another version.
BLEU_SETTINGS = ("evaluation.tokenize", "target_language", "languages.target")


def scored_differently(runs: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Return the columns of scores that cannot be compared, by the condition in which runs differ."""
    found: dict[str, list[str]] = {}
    for column in dict.fromkeys(column for run in runs for column in run.validation):
        if kind := validated_differently([run for run in runs if column in run.validation], column):
            found.setdefault(kind, []).append(column)
    for column in dict.fromkeys(column for run in runs for column in run.tests):
        own = [run.conditions for run in runs if column in run.tests]
        dataset = column.rpartition(" ")[0]
        names = dict.fromkeys([dataset, dataset.partition(" (")[0]])  # of many directions, `news (en-de)`
        conditions = {"test sets": [f"{name} content" for name in names], "signatures": [f"{column} signature"]}
        for kind, keys in conditions.items():
            if any(len({each[key] for each in own if key in each}) > 1 for key in keys):
                found.setdefault(kind, []).append(column)
    return found


def validated_differently(runs: Sequence[RunRecord], figure: str) -> str:
    """Return the condition in which runs differ, so that a figure of their validations cannot be compared; empty if
    they do not differ."""
    if len(_validation_sets(runs)) > 1:
        return "validation sets"
    if figure == "valid_loss" and len({str(value) for run in runs if (value := run.identity.get(TOKENIZER))}) > 1:
        return "tokenizers"
    return "tokenizers of BLEU" if figure == "bleu" and len(_tokenizers_of_bleu(runs)) > 1 else ""


def _validation_sets(runs: Sequence[RunRecord]) -> set[str]:
    """Return the fingerprints of the validation sets that runs recorded, as one text for each run."""
    found = (sorted(item for item in run.identity.items() if item[0].startswith("data.valid")) for run in runs)
    return {str(items) for items in found if items}


def _tokenizers_of_bleu(runs: Sequence[RunRecord]) -> set[str]:
    """Return what decides about the tokenizers of BLEU: equal settings, or else the tokenizers that they mean."""
    recorded = [run.settings for run in runs if BLEU_SETTINGS[0] in run.settings]
    different = {str([settings.get(key) for key in BLEU_SETTINGS]): settings for settings in recorded}
    return {_tokenizer_of_bleu(settings) for settings in different.values()} if len(different) > 1 else set(different)


def _tokenizer_of_bleu(settings: Mapping[str, Any]) -> str:
    """Return the tokenizer of BLEU that settings mean, or those of several target languages."""
    from seq2seq.evaluation.text import tokenizer_of_language

    tokenize, language, languages = map(settings.get, BLEU_SETTINGS)
    targets = languages if isinstance(languages, list) else [language]
    return " ".join(sorted({str(tokenize or tokenizer_of_language(target and str(target))) for target in targets}))
