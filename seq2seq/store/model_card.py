"""Model cards: the README.md of a model folder, with the YAML front matter that model hubs read.

`tasks` composes one for each model that training keeps; people read it.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.config import Config, Section
from seq2seq.config_file import dump
from seq2seq.description import ModelDescription
from seq2seq.lines import shown_name


@dataclass(frozen=True)
class DataRecord:
    """One corpus of a run."""

    role: str
    """train, valid, or the name of a test set."""
    name: str
    examples: int
    fingerprint: str


@dataclass(frozen=True)
class ScoreRecord:
    """One score with the signature that says how it was computed."""

    dataset: str
    metric: str
    value: float
    signature: str = ""


def model_card(
    config: Config,
    *,
    title: str,
    command: str,
    num_parameters: int,
    step: int,
    data: Sequence[DataRecord] = (),
    scores: Sequence[ScoreRecord] = (),
    notes: Sequence[str] = (),
) -> str:
    """Markdown with front matter: languages, data, scores with signatures, and the command that made the model."""
    languages = _languages(config)
    kind = f"{' to '.join(languages)} translation" if config.task == "translation" else "text classification"
    lines = [
        *_front_matter(config, title, scores),
        f"# {title}",
        "",
        f"A Transformer for {kind} with {num_parameters:,} parameters, taken at step {step:,}.",
        "",
        *_usage(config),
        "## Made by",
        "",
        *_fenced(command),
        "with this configuration, where the files that it names lie beside it:",
        "",
        *_fenced(dump(_without_folders(config)), "yaml"),
    ]
    if data:
        lines += ["## Data", "", "| role | corpus | examples | fingerprint |", "|---|---|---:|---|"]
        lines += [f"| {_cell(d.role)} | {_cell(d.name)} | {d.examples:,} | `{d.fingerprint}` |" for d in data]
        lines += [""]
    if scores:
        lines += ["## Scores", "", "| data | metric | score | signature |", "|---|---|---:|---|"]
        lines += [f"| {_cell(s.dataset)} | {_cell(s.metric)} | {s.value:.2f} | {_code(s.signature)} |" for s in scores]
        lines += [""]
    if notes:
        lines += ["## Notes", "", *(f"- {note}" for note in notes), ""]
    return shown_name("\n".join(lines))


def short_card(description: ModelDescription, title: str, paragraphs: Sequence[str]) -> str:
    """Front matter, and in a few lines where a model comes from that no run of ours made."""
    return shown_name(
        "\n".join([*_front_matter(description, title, ()), f"# {title}", "", *_usage(description), *paragraphs, ""])
    )


def _front_matter(config: Config | ModelDescription, title: str, scores: Sequence[ScoreRecord]) -> list[str]:
    lines = ["---"]
    if languages := _languages(config):
        lines += ["language:", *(f"- {_yaml(language)}" for language in dict.fromkeys(languages))]
    task = "translation" if config.task == "translation" else "text-classification"
    lines += ["library_name: seq2seq", f"pipeline_tag: {task}"]
    if metrics := list(dict.fromkeys(score.metric for score in scores)):
        lines += ["metrics:", *(f"- {_yaml(metric)}" for metric in metrics)]
        lines += ["model-index:", f"- name: {_yaml(title)}", "  results:"]
        for dataset in dict.fromkeys(score.dataset for score in scores):
            lines += ["  - task:", f"      type: {task}", "    dataset:", f"      name: {_yaml(dataset)}"]
            lines += [f"      type: {_yaml(dataset)}", "    metrics:"]
            for score in scores:
                if score.dataset == dataset:
                    lines += [f"    - type: {_yaml(score.metric)}", f"      value: {_yaml(score.value)}"]
    return [*lines, "---", ""]


def _languages(config: Config | ModelDescription) -> list[str]:
    return [language for language in (config.source_language, config.target_language) if language]


def _usage(config: Config | ModelDescription) -> list[str]:
    verb = "translate" if config.task == "translation" else "classify"
    return ["```", f"s2s {verb} THIS_FOLDER < input.txt > output.txt", "```", ""]


def _yaml(value: str | float) -> str:
    """JSON scalars are YAML scalars, and quote what YAML would take for something else (the language `no`)."""
    return json.dumps(shown_name(value) if isinstance(value, str) else value)


def _fenced(text: str, kind: str = "") -> list[str]:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [fence + kind, text.rstrip("\n"), fence, ""]


def _code(text: str) -> str:
    """Of a table; a bar would end its cell in code as well."""
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _without_folders(value: Any) -> Any:
    """A section of the configuration without folders of this machine, of which a card says nothing."""
    match value:
        case Path():
            return Path(value.name) if value.is_absolute() else value
        case Section():
            given = value.model_fields_set
            return value.model_copy(update={name: _without_folders(getattr(value, name)) for name in given})
        case dict():
            return {key: _without_folders(item) for key, item in value.items()}
        case tuple():
            return tuple(map(_without_folders, value))
    return value
