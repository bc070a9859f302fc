"""Configuration files: read YAML 1.2 and overrides into one strict `Config`, report all problems together, and write
back.

The command line calls `load`; so does every module that reads the `config.yaml` of a run, which `dump` wrote.
"""

import contextlib
import copy
import functools
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from seq2seq.config.corpora import NAMED, ONE
from seq2seq.config.direction_problems import direction_problems
from seq2seq.config.schema import Config
from seq2seq.config.stage_problems import stage_problems
from seq2seq.config.values import unwritable
from seq2seq.config.yaml_text import YamlProblem, read_yaml
from seq2seq.errors import ConfigError, did_you_mean, shown
from seq2seq.lines import read_regular

LARGEST = 2**20  # bytes of a file
MOST_PARENTS = 20  # of a key, so that a name of many dots is not nested as deeply
MOST_DIGITS = 9  # of the number of an entry of a list


UNNAMED = "config"
"""The origin of a problem that is found when the file's name is no longer known."""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in problems of a configuration that show only next to models and corpora."""
    try:
        yield
    except ConfigError as error:
        if error.origin != UNNAMED:
            raise
        raise ConfigError(str(path), error.problems) from error


def load(path: Path, overrides: Sequence[str] = (), check_files: bool = True) -> Config:
    """Read a configuration, apply `KEY=VALUE` overrides, and check everything that can be checked without work.

    Relative data paths are looked up from the current folder, then under `$S2S_DATA` (or `data/`, where `s2s fetch`
    puts corpora), then from the config's own folder, with and without `.gz`, and are absolute in the result. Without
    `check_files`, paths are kept as written and need not exist, as in the configuration of an old run.

    Raises:
        ConfigError: there are problems; the message has one line for each.
    """
    return parse(_read_text(path), str(path), path.parent, overrides, check_files)


def parse(
    text: str, origin: str = UNNAMED, folder: Path = Path(), overrides: Sequence[str] = (), check_files: bool = True
) -> Config:
    """Read a configuration as `load` does, from text; relative paths are also looked up in `folder`."""
    values, problems = _read_values(text, origin)
    for override in overrides:
        problems += _apply_override(values, override)
    if bad := list(unwritable(values)):
        raise ConfigError(origin, [*problems, *bad])
    problems += _problems(copy.deepcopy(values))
    try:
        config = Config.model_validate(values, context=folder if check_files else None)
    except ValidationError as error:  # `_problems` has all but the missing files
        problems += [line for _, line in _described(error, values)]
    if problems:
        raise ConfigError(origin, dict.fromkeys(problems))
    return config


def settings_of(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of every setting of a configuration that is given as plain values."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping) or not value:
        yield key, value
        return
    for name, item in value.items():
        yield from settings_of(item, f"{key}.{name}" if key else str(name))


def dump(config: Config) -> str:
    """Return the whole configuration as YAML; `parse(dump(config))` equals `config`."""
    return _yaml(json.dumps(config.model_dump(mode="json")))


@functools.lru_cache(maxsize=8)  # each model that is saved has it in its card
def _yaml(values: str) -> str:
    """Return JSON as YAML."""
    stream = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = 4096
    yaml.dump(json.loads(values), stream)
    return stream.getvalue()


def _problems(values: dict[str, Any]) -> list[str]:
    """Return a line for each problem of `values`, except missing files; `values` is modified.

    pydantic does not check a section as a whole while one of its keys is wrong, so wrong keys are removed and the rest
    is validated again. A section that lost a value is not checked as a whole: the default is not what was written.
    """
    problems: list[str] = []
    changed: list[tuple[Any, ...]] = []
    while True:
        try:
            checked = Config.model_validate(values)
            has_languages = not any(str(place[0]).endswith(("language", "languages")) for place in changed)
            has_stages = not any(place[:2] in (("data", "stages"), ("data", "train")) for place in changed)
            problems += stage_problems(checked) if has_stages else []
            return problems + _cross_check(checked) + (_of_languages(checked) if has_languages else [])
        except ValidationError as error:
            found = [
                (problem, line)
                for problem, line in _described(error, values)
                if not any(place[: len(problem["loc"])] == problem["loc"] for place in changed)
            ]
        problems += [line for _, line in found]
        changed += [problem["loc"] for problem, _ in found if problem["type"] != "extra_forbidden"]
        removed = [_remove(values, problem["loc"]) for problem, _ in found]
        if not any(removed):
            return problems


def _described(error: ValidationError, values: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield pydantic's problems and a line for each, with keys as written: a single source of `data.train` has no
    index."""
    from seq2seq.config.problems import describe

    for found in error.errors():
        location = found["loc"]
        if location[:3] in (("data", "valid", ONE), ("data", "valid", NAMED)):
            location = location[:2] + location[3:]
        if location[:3] == ("data", "train", 0) and not isinstance(values["data"]["train"], (list, tuple)):
            location = location[:2] + location[3:]
        problem = {**found, "loc": location}
        yield problem, describe(problem)


def _remove(values: Any, location: Sequence[Any]) -> bool:
    """Remove the key at `location`, or the whole list if it is an entry of a list, so that its default applies; return
    whether it existed."""
    *parents, last = location
    place = values
    try:
        for part in parents:
            place = place[part]
    except (KeyError, IndexError, TypeError):
        return False
    if isinstance(place, list):
        return _remove(values, parents)
    return isinstance(place, dict) and place.pop(last, place) is not place


def _read_text(path: Path) -> str:
    try:
        return read_regular(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), ["cannot be read (it is not UTF-8 text; save it as UTF-8)"]) from error
    except OSError as error:
        siblings = path.parent.iterdir() if isinstance(error, FileNotFoundError) and path.parent.is_dir() else ()
        names = [entry.name for entry in siblings if entry.suffix in (".yaml", ".yml")]
        raise ConfigError(str(path), [f"cannot be read ({error.strerror}){did_you_mean(path.name, names)}"]) from error


def _read_values(text: str, origin: str) -> tuple[dict[str, Any], list[str]]:
    try:
        values, problems = read_yaml(text)
    except YamlProblem as error:
        raise ConfigError(origin, [str(error)]) from error
    if not isinstance(values, dict | None):
        raise ConfigError(origin, ["not a mapping of keys to values; begin with 'data:'"])
    return values or {}, problems


def _apply_override(values: dict[str, Any], override: str) -> list[str]:
    key, separator, text = override.partition("=")
    *parents, last = key.strip().split(".")
    if not separator or not all([*parents, last]) or len(parents) > MOST_PARENTS:
        return [f"--set {shown(override)}: write KEY=VALUE, such as training.max_steps=100"]
    try:
        value, problems = read_yaml(text) if text else (None, [])
    except YamlProblem:
        value, problems = text, []
    if problems:
        return [f"--set {shown(key.strip())}: {problem}" for problem in problems]
    place: Any = values
    for depth, name in enumerate([*parents, last]):
        within = ".".join(parents[:depth])
        if within == "data.train" and name.isdecimal() and isinstance(place, dict):
            values["data"]["train"] = place = [place]  # a single source, written without brackets
        # YAML may have read the name of an existing key as a number
        index: Any = next((key for key in place if str(key) == name), name) if isinstance(place, dict) else name
        if isinstance(place, list):
            if not name.isdecimal() or len(name) > MOST_DIGITS or int(name) >= len(place):
                there = f"0 to {len(place) - 1}" if place else "no entries"
                return [f"--set {shown(override)}: {within} is a list; name one of its entries ({there})"]
            index = int(name)
        if depth == len(parents):
            place[index] = value
            break
        following = place[index] if isinstance(place, list) else place.get(index)
        # a copy, because an alias may be the same object in another place
        place[index] = place = copy.copy(following) if isinstance(following, dict | list) else {}
    return []


def _of_languages(config: Config) -> list[str]:
    if config.task != "translation":
        return ["languages: only for task: translation; leave it out"] if config.languages is not None else []
    missing = [
        f"{key}: missing; name the language, such as en"
        for key in ("source_language", "target_language")
        if getattr(config, key) is None and config.languages is None
    ]
    return missing or direction_problems(config)


def _cross_check(config: Config) -> list[str]:
    problems, training = [], config.training
    metrics = {"translation": ("bleu", "chrf", "chrf++"), "classification": ("accuracy", "f1")}[config.task]
    if config.task == "translation":
        if config.model.tied_embeddings == "all" and not config.tokenizer.shared:
            problems.append(
                "model.tied_embeddings: all needs tokenizer.shared: true; use decoder, or share the vocabulary"
            )
        if training.best_metric in {"bleu", "chrf", "chrf++"} - set(config.evaluation.metrics):
            problems.append(f"training.best_metric: {training.best_metric} is not in evaluation.metrics; add it there")
    elif training.best_of != "mean":
        problems.append(f"training.best_of: {training.best_of} needs languages; leave it out")
    if training.best_metric not in ("auto", "loss", *metrics):
        allowed = f"use one of auto, loss, {', '.join(metrics)}"
        problems.append(f"training.best_metric: {training.best_metric!r} is not a metric of {config.task}; {allowed}")
    sections = [config.model] + [config.classifier] * (config.task == "classification")
    rates = [rate for section in sections for key, rate in section if key.endswith("dropout")]
    if training.r_drop and training.init_from is None and not any(rates):
        problems.append("training.r_drop: compares two draws of dropout, which is off; set model.dropout: 0.1")
    return problems
