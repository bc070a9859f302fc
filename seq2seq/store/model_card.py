"""Model cards: the README.md of a model folder, with the YAML front matter that model hubs read.

`tasks` writes one for each model that training keeps, `workflows` for converted models.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config
from seq2seq.config.values import Section
from seq2seq.config.yaml_text import as_yaml, read_yaml
from seq2seq.errors import some_of
from seq2seq.languages import own_code
from seq2seq.lines import shown_name

_SCORE = re.compile(
    r"\| (?P<data>(?:\\.|[^|\\])*) \| (?P<metric>[^ |]+) \| -?[\d.]+ \|"
)  # a row of the table of scores


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
    """One score, and the signature of its computation."""

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
    """Return a card in Markdown with front matter: languages, data, scores with signatures, and the command that made
    the model."""
    from seq2seq.config.file import dump

    description, languages = ModelDescription.of(config), config.languages
    kind = "text classification"
    if config.task == "translation":
        kind = f"{' to '.join(description.languages)} translation"
        if languages is not None:
            kind = f"translation from {some_of(languages.source)} into {some_of(languages.target)}"
    paragraphs = [
        f"A Transformer for {kind} with {num_parameters:,} parameters, taken at step {step:,}.",
        _usage(description, config.first_direction),
        "## Made by",
        _fenced(command),
        "with this configuration, whose data files are in the same folder:",
        _fenced(dump(_without_folders(config)), "yaml"),
    ]
    if data:
        rows = [f"| {_cell(d.role)} | {_cell(d.name)} | {d.examples:,} | `{d.fingerprint}` |" for d in data]
        paragraphs += ["## Data", _lines("| role | corpus | examples | fingerprint |", "|---|---|---:|---|", *rows)]
    if scores:
        rows = [f"| {_cell(s.dataset)} | {_cell(s.metric)} | {s.value:.2f} | {_code(s.signature)} |" for s in scores]
        paragraphs += ["## Scores", _lines("| data | metric | score | signature |", "|---|---|---:|---|", *rows)]
    if notes:
        paragraphs += ["## Notes", _lines(*(f"- {note}" for note in notes))]
    return _card(description, title, paragraphs, scores, [*languages.source, *languages.target] if languages else [])


def short_card(description: ModelDescription, title: str, paragraphs: Sequence[str], needed: Sequence[str] = ()) -> str:
    """Return the card of a model that no training run made: front matter, usage, and the origin of the model.

    The languages of a model of many are those of its trained directions that have names of two parts, such as en-de.
    `needed` are the sides whose language the model needs (`TokenizerPair.needed`).
    """
    trained = [tuple(name.split("-")) for name in description.directions if name.count("-") == 1]
    sides = next(iter(trained), None)
    if not sides and len(needed) == 2 and None in (description.source_language, description.target_language):
        sides = "SOURCE", "TARGET"
    paragraphs = [_usage(description, sides), *paragraphs]
    return _card(description, title, paragraphs, languages=list(chain.from_iterable(trained)))


def with_license(card: str, name: str | None) -> str:
    """Return a card whose front matter has the licences of the models that this one was made from."""
    if name is None:
        return card
    names = [one if _is_plain(one) else as_yaml(one) for one in name.split(", ")]
    value = f"[{', '.join(names)}]" if len(names) > 1 else names[0]
    return card.replace("---\n", f"---\nlicense: {value}\n", 1)


def with_scores(card: str, scores: Mapping[tuple[str, str], float], metrics: Collection[str]) -> str:
    """Return a card whose scores by these metrics are `scores`, by data set and metric; rows and entries of the front
    matter without one are removed. A card whose front matter cannot be read is left unchanged.
    """
    from huggingface_hub import ModelCard
    from yaml import YAMLError

    try:
        changed = ModelCard(card)
    except (YAMLError, ValueError, TypeError):  # a user may have written it
        return card
    known = {(shown_name(_cell(data)), metric): value for (data, metric), value in scores.items()}
    results = []
    for result in changed.data.eval_results or ():
        value = known.get((_cell(result.dataset_name), result.metric_type))
        if value is not None:
            result.metric_value = value
        if value is not None or result.metric_type not in metrics:
            results.append(result)
    changed.data.eval_results = results or None
    changed.data.metrics = list(dict.fromkeys(result.metric_type for result in results)) or None
    if not results:
        changed.data.model_name = None
    rows = []
    for line in changed.text.split("\n"):
        row = _SCORE.match(line)
        if row is not None and row["metric"] in metrics:
            value = known.get((row["data"], row["metric"]))
            if value is None:
                continue
            line = f"| {row['data']} | {row['metric']} | {value:.2f} |{line[row.end() :]}"
        rows.append(line)
    changed.text = "\n".join(rows)
    return str(changed)


def _is_plain(text: str) -> bool:
    """Whether text without quotes is text in YAML too, and not a number or `null`."""
    return re.fullmatch(r"[A-Za-z][\w.-]*", text) is not None and read_yaml(text)[0] == text


def front_matter(
    description: ModelDescription, title: str, scores: Sequence[ScoreRecord] = (), **other: str | list[str]
) -> str:
    """Return the YAML block at the head of a card; `other` are further keys of `huggingface_hub.ModelCardData`."""
    from huggingface_hub import EvalResult, ModelCardData

    task = "translation" if description.task == "translation" else "text-classification"
    results = [
        EvalResult(task, shown_name(score.dataset), shown_name(score.dataset), score.metric, score.value)
        for score in scores
    ]
    values: dict[str, Any] = {"library_name": "seq2seq", "pipeline_tag": task, **other}
    if licences := description.licences:
        values["license"] = licences if len(licences) > 1 else licences[0]
    if languages := list(values.get("language", description.languages)):
        values["language"] = list(dict.fromkeys(map(own_code, languages)))
    if results:
        values["metrics"] = list(dict.fromkeys(score.metric for score in scores))
        values |= {"eval_results": results, "model_name": shown_name(title)}
    return f"---\n{ModelCardData(**values).to_yaml()}\n---\n"


def _card(
    description: ModelDescription,
    title: str,
    paragraphs: Sequence[str],
    scores: Sequence[ScoreRecord] = (),
    languages: Sequence[str] = (),
) -> str:
    """Return a whole card; `languages` are those of a model of many."""
    text = "\n\n".join([f"# {title}", *paragraphs])
    named = {"language": list(languages)} if languages else {}
    return front_matter(description, title, scores, **named) + "\n" + shown_name(text) + "\n"


def _usage(description: ModelDescription, sides: Sequence[str] | None) -> str:
    """Return the command that uses the model; one of many directions needs `sides`, such as those of a trained one."""
    verb = "translate" if description.task == "translation" else "classify"
    options = " --from {} --to {}".format(*sides) if sides else ""
    return _fenced(f"s2s {verb} THIS_FOLDER{options} < input.txt > output.txt")


def _fenced(text: str, kind: str = "") -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return _lines(fence + kind, text.rstrip("\n"), fence)


def _lines(*lines: str) -> str:
    return "\n".join(lines)


def _code(text: str) -> str:
    """Return code in a table cell, where a bar would end the cell."""
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _without_folders(value: Any) -> Any:
    """Return a section of the configuration without the folders of this machine, which a card does not name."""
    match value:
        case Path():
            return Path(value.name) if value.is_absolute() else value
        case Section():
            changes = {name: _without_folders(getattr(value, name)) for name in value.model_fields_set}
            if isinstance(value, SourceConfig) and value.hub:
                changes["hub"] = value.dataset
            return value.model_copy(update=changes)
        case dict():
            return {key: _without_folders(item) for key, item in value.items()}
        case tuple():
            return tuple(map(_without_folders, value))
    return value
