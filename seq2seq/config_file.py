"""Configuration files: YAML 1.2 with overrides in, one strict `Config` or every problem at once out, and back.

`load` is called by the command line and by `tasks`; `dump` writes a run's resolved `config.yaml`, and `changes` tells a
run that goes on what is no longer as it was.
"""

import copy
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from seq2seq.config import Config, PresetSection, Section
from seq2seq.config_problems import describe, is_meant_otherwise, place, unwritable
from seq2seq.errors import ConfigError, did_you_mean, shown
from seq2seq.hub import is_hub_name
from seq2seq.lines import read_regular
from seq2seq.yaml_text import YamlProblem, read_yaml

LARGEST = 2**20  # bytes of a file
MOST_PARENTS = 20  # of a key, so that a name of many dots is not nested as deeply

# Folders that `s2s fetch` makes.
PUBLIC_CORPORA = ("multi30k", "wmt14-en-de", "wmt16-en-de", "opus100-en-de", "tatoeba", "sst2")


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration, apply `KEY=VALUE` overrides, and check everything that can be checked without work.

    Relative data paths are looked up from the current folder, then under `$S2S_DATA` (or `data/`, where `s2s fetch`
    puts corpora), then from the config's own folder, with and without `.gz`, and are absolute in the result.

    Raises:
        ConfigError: with one line for each problem found.
    """
    return parse(_read_text(path), origin=str(path), folder=path.parent, overrides=overrides)


def parse(text: str, origin: str = "config", folder: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """`load` for text at hand; `folder` is the config's own folder for relative paths."""
    values, problems = _read_values(text, origin)
    for override in overrides:
        problems += _apply_override(values, override)
    if bad := list(unwritable(values)):
        raise ConfigError(origin, _unique(problems + bad))
    problems += _problems(copy.deepcopy(values))
    resolved, path_problems = _resolve_paths(values, folder)
    problems += path_problems or unwritable(resolved)
    if problems:
        raise ConfigError(origin, _unique(problems))
    return Config.model_validate(resolved)


def _problems(values: dict[str, Any]) -> list[str]:
    """A line for everything that is wrong with `values`, which are spoilt.

    What is wrong with one key hides what is wrong with its section, so that key is taken out and the rest looked at.
    """
    problems: list[str] = []
    told: set[tuple[Any, ...]] = set()
    while True:
        try:
            return problems + _cross_check(Config.model_validate(values))
        except ValidationError as error:
            found = [problem for problem in error.errors() if place(problem) not in told]
        problems += [describe(problem) for problem in found if not is_meant_otherwise(problem)]
        told |= {place(problem) for problem in found}
        taken_out = [_take_out(values, place(problem)) for problem in found]
        if not any(taken_out):
            return problems


def _take_out(values: Any, location: Sequence[Any]) -> bool:
    """Remove the key at `location`, so that its default is taken; whether there was one."""
    *parents, last = location or [None]
    for part in parents:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return False
    if isinstance(values, dict) and last in values:
        del values[last]
        return True
    return False


def reread(path: Path) -> Config:
    """The resolved `config.yaml` of a run, as `dump` wrote it; whether its data are still there is not asked.

    Raises:
        ConfigError: with one line for each problem found.
    """
    values, problems = _read_values(_read_text(path), str(path))
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        found = [problem for problem in error.errors() if not is_meant_otherwise(problem)]
        raise ConfigError(str(path), [describe(problem) for problem in found]) from error
    if problems:
        raise ConfigError(str(path), problems)
    return config


def dump(config: Config) -> str:
    """The whole configuration as YAML; `parse(dump(config))` is `config`."""
    stream = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.dump(_without_unset(config), stream)
    return stream.getvalue()


def changes(old: Config, new: Config) -> list[tuple[str, Any, Any]]:
    """(key, old value, new value) of every setting that differs."""
    before, after = _flatten(old.model_dump(mode="json")), _flatten(new.model_dump(mode="json"))
    keys = [*before, *(key for key in after if key not in before)]
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


def shipped_folder() -> Path:
    """The folder that holds the shipped `data/` and `configs/`: inside an installed package, or the checkout."""
    installed = Path(__file__).parent / "shipped"
    return installed if installed.is_dir() else Path(__file__).parent.parent


def _read_text(path: Path) -> str:
    try:
        return read_regular(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), ["cannot be read (it is not UTF-8 text; save it as UTF-8)"]) from error
    except OSError as error:
        beside = path.parent.iterdir() if isinstance(error, FileNotFoundError) and path.parent.is_dir() else ()
        names = [entry.name for entry in beside if entry.suffix in (".yaml", ".yml")]
        raise ConfigError(str(path), [f"cannot be read ({error.strerror}){did_you_mean(path.name, names)}"]) from error


def _read_values(text: str, origin: str) -> tuple[dict[str, Any], list[str]]:
    try:
        values, problems = read_yaml(text)
    except YamlProblem as error:
        raise ConfigError(origin, [str(error)]) from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError(origin, ["not a mapping of keys to values; begin with 'data:'"])
    return values, problems


def _apply_override(values: dict[str, Any], override: str) -> list[str]:
    key, separator, text = override.partition("=")
    *parents, last = key.strip().split(".")
    if not separator or not key or len(parents) > MOST_PARENTS:
        return [f"--set {shown(override)}: write KEY=VALUE, such as training.max_steps=100"]
    try:
        value, _ = read_yaml(text) if text else (None, [])
    except YamlProblem:
        value = text
    section = values
    for name in parents:
        inner = section.get(name)
        if not isinstance(inner, dict):
            inner = section[name] = {}
        section = inner
    section[last] = value
    return []


def _cross_check(config: Config) -> list[str]:
    problems = []
    training = config.training
    if config.task == "translation":
        for key in ("source_language", "target_language"):
            if getattr(config, key) is None:
                problems.append(f"{key}: missing; name the language, such as en")
        if config.model.tied_embeddings == "all" and not config.tokenizer.shared:
            problems.append(
                "model.tied_embeddings: all needs tokenizer.shared: true; use decoder, or share the vocabulary"
            )
        allowed = ("auto", "loss", "bleu", "chrf")
        metric = training.best_metric
        if metric in ("bleu", "chrf") and metric not in config.evaluation.metrics:
            problems.append(f"training.best_metric: {metric} is not in evaluation.metrics; add it there")
    else:
        allowed = ("auto", "loss", "accuracy", "f1")
    if training.best_metric not in allowed:
        problems.append(
            f"training.best_metric: {training.best_metric!r} is not a metric of {config.task}; "
            f"use one of {', '.join(allowed)}"
        )
    if training.average != "none":
        key = f"keep_{training.average}"
        kept = getattr(training, key)
        if training.average_count > kept:
            problems.append(
                f"training.average_count: {training.average_count}, but training.{key} keeps {kept}; raise it to "
                f"{training.average_count}"
            )
    return problems


def _resolve_paths(values: Mapping[str, Any], folder: Path | None) -> tuple[dict[str, Any], list[str]]:
    """A copy of the raw values with absolute paths, and a line for each file that is missing or empty."""
    problems: list[str] = []

    def resolve(source: Any, key: str) -> Any:
        if not isinstance(source, Mapping):
            return source
        resolved = dict(source)
        for name in ("source", "target", "tsv", "jsonl"):
            if isinstance(source.get(name), str):
                found, problem = _find(source[name], folder)
                resolved[name] = str(found)
                problems.extend([f"{key}.{name}: {problem}"] if problem else [])
        if isinstance(source.get("hub"), str) and source["hub"].startswith((".", "/", "~")):
            found, problem = _find(source["hub"], folder, kind="folder")
            resolved["hub"] = str(found)
            problems.extend([f"{key}.hub: {problem}"] if problem else [])
        return resolved

    copied = dict(values)
    data = copied.get("data")
    if isinstance(data, Mapping):
        data = copied["data"] = dict(data)
        if isinstance(data.get("cache_dir"), str):
            cache, problem = _expanded(data["cache_dir"])
            data["cache_dir"] = str(cache)
            problems.extend([f"data.cache_dir: {problem}"] if problem else [])
        train = data.get("train")
        if isinstance(train, (list, tuple)):
            data["train"] = [resolve(source, f"data.train.{index}") for index, source in enumerate(train)]
        elif train is not None:
            data["train"] = resolve(train, "data.train")
        if "valid" in data:
            data["valid"] = resolve(data["valid"], "data.valid")
        if isinstance(data.get("test"), Mapping):
            data["test"] = {name: resolve(source, f"data.test.{name}") for name, source in data["test"].items()}
    training = copied.get("training")
    if isinstance(training, Mapping) and isinstance(training.get("init_from"), str):
        found, problem = _find(training["init_from"], folder, kind="folder")
        copied["training"] = {**training, "init_from": str(found)}
        problems.extend([f"training.init_from: {problem}"] if problem else [])
    return copied, problems


def _find(name: str, folder: Path | None, kind: str = "file") -> tuple[Path, str | None]:
    path, problem = _expanded(name)
    if problem:
        return path, problem
    try:
        return _find_in_places(name, path, folder, kind)
    except OSError as error:
        return path, f"{shown(name)} cannot be read ({error.strerror})"


def _expanded(name: str) -> tuple[Path, str | None]:
    try:
        return Path(name).expanduser(), None
    except RuntimeError:
        return Path(name), f"{shown(name)}: there is no such user; write the folder's whole name"


def _find_in_places(name: str, path: Path, folder: Path | None, kind: str) -> tuple[Path, str | None]:
    places = [Path.cwd(), Path(os.environ.get("S2S_DATA") or "data").expanduser()]
    if folder is not None:
        places.append(folder)
    names = [path] if kind == "folder" else [path, path.with_suffix("") if path.suffix == ".gz" else Path(f"{path}.gz")]
    candidates = [(place / name).resolve() for place in places for name in names]
    for candidate in candidates:
        if kind == "folder" and candidate.is_dir():
            return candidate, None
        if kind == "file" and candidate.is_file():
            empty = candidate.stat().st_size == 0
            return candidate, f"{candidate} has no lines" if empty else None
    if kind == "folder" and is_hub_name(name):
        return path, None
    looked = _unique(str(candidate.parent) for candidate in candidates)
    if any(candidate.is_fifo() for candidate in candidates):
        return candidates[0], f"{name} is a pipe, which can be read only once; write what it gives to a file first"
    hint = ""
    if len(path.parts) > 1 and path.parts[0] in PUBLIC_CORPORA:
        hint = f"; get it with s2s fetch {path.parts[0]}"
    parents = [Path(parent) for parent in looked if Path(parent).is_dir()]
    beside = [entry.name for parent in parents for entry in parent.iterdir() if entry.is_dir() == (kind == "folder")]
    hint = hint or did_you_mean(path.name, beside)
    return candidates[0], f"{kind} {name} not found (looked in {', '.join(looked)}){hint}"


def _without_unset(value: Any) -> Any:
    """Plain values for YAML, without the keys that are null here and are so too where they are left out."""
    if isinstance(value, Section):
        fields = type(value).model_fields
        filled = value.presets.get(value.preset or "", {}) if isinstance(value, PresetSection) else {}
        return {
            name: _without_unset(item)
            for name, item in value
            if item is not None or fields[name].get_default() is not None or name in filled
        }
    if isinstance(value, Mapping):
        return {name: _without_unset(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_without_unset(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _unique(items: Any) -> list[Any]:
    return list(dict.fromkeys(items))
