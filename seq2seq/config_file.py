"""Configuration files: YAML 1.2 with overrides in, one strict `Config` or every problem at once out, and back.

`load` is called by the command line and by `tasks`; `dump` writes a run's resolved `config.yaml`, and `changes` tells a
run that goes on what is no longer as it was.
"""

import copy
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from seq2seq.config import Config, DataConfig, PresetSection, Section, SourceConfig
from seq2seq.errors import ConfigError, did_you_mean
from seq2seq.hub import is_hub_name

# What may change between two starts of a run: it decides how long and how closely it is watched, not what it computes.
CHANGEABLE = (
    "data.test", "data.num_workers", "data.cache_dir", "data.label_names", "search", "evaluation",
    "training.max_steps", "training.max_epochs", "training.max_minutes", "training.patience",
    "training.validate_every", "training.checkpoint_every", "training.keep_last", "training.keep_best",
    "training.log_every", "training.num_samples", "training.max_bad_steps", "training.max_rollbacks",
    "training.average", "training.average_count", "training.device", "training.threads", "training.shard",
)  # fmt: skip

# Folders that `s2s fetch` makes.
PUBLIC_CORPORA = ("multi30k", "wmt14-en-de", "wmt16-en-de", "opus100-en-de", "tatoeba", "sst2")


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration, apply `KEY=VALUE` overrides, and check everything that can be checked without work.

    Relative data paths are looked up from the current folder, then under `$S2S_DATA` (or `data/`, where `s2s fetch`
    puts corpora), then from the config's own folder, with and without `.gz`, and are absolute in the result.

    Raises:
        ConfigError: with one line for each problem found.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text; save it as UTF-8"
        raise ConfigError(str(path), [f"cannot be read ({reason})"]) from error
    return parse(text, origin=str(path), folder=path.parent, overrides=overrides)


def parse(text: str, origin: str = "config", folder: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """`load` for text at hand; `folder` is the config's own folder for relative paths."""
    values, problems = _read_yaml(text, origin)
    for override in overrides:
        problems += _apply_override(values, override)
    problems += _problems(copy.deepcopy(values))
    resolved, path_problems = _resolve_paths(values, folder)
    problems += path_problems
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
            found = [problem for problem in error.errors() if _place(problem) not in told]
        problems += [_describe(problem) for problem in found if not _is_meant_otherwise(problem)]
        told |= {_place(problem) for problem in found}
        taken_out = [_take_out(values, _place(problem)) for problem in found]
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
    try:
        values, problems = _read_yaml(path.read_text(encoding="utf-8-sig"), str(path))
        config = Config.model_validate(values)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text; save it as UTF-8"
        raise ConfigError(str(path), [f"cannot be read ({reason})"]) from error
    except ValidationError as error:
        found = [problem for problem in error.errors() if not _is_meant_otherwise(problem)]
        raise ConfigError(str(path), [_describe(problem) for problem in found]) from error
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


def may_change(key: str) -> bool:
    """Whether a run that has checkpoints goes on when this key has another value."""
    return any(key == allowed or key.startswith(allowed + ".") for allowed in CHANGEABLE)


def shipped_folder() -> Path:
    """The folder that holds the shipped `data/` and `configs/`: inside an installed package, or the checkout."""
    installed = Path(__file__).parent / "shipped"
    return installed if installed.is_dir() else Path(__file__).parent.parent


def _read_yaml(text: str, origin: str) -> tuple[dict[str, Any], list[str]]:
    try:
        root = _yaml_loader().compose(io.StringIO(text))
        values = _yaml_loader().load(text) if root is not None else {}
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(origin, [f"{line}not valid YAML ({error.problem})"]) from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(origin, [f"not valid YAML ({' '.join(str(error).split())})"]) from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError(origin, ["not a mapping of keys to values; begin with 'data:'"])
    return values, list(_duplicate_keys(root))


def _yaml_loader() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # `_duplicate_keys` collects all of them, where the loader stops at the first
    return yaml


def _duplicate_keys(node: Node | None, path: str = "") -> Iterator[str]:
    if isinstance(node, MappingNode):
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in first_lines:
                yield f"{path}{key}: given twice, on lines {first_lines[key]} and {line}; keep one"
            first_lines.setdefault(key, line)
            yield from _duplicate_keys(value_node, f"{path}{key}.")
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, f"{path}{index}.")


def _apply_override(values: dict[str, Any], override: str) -> list[str]:
    key, separator, text = override.partition("=")
    if not separator or not key:
        return [f"--set {override}: write KEY=VALUE, such as training.max_steps=100"]
    try:
        value = _yaml_loader().load(text) if text else None
    except YAMLError:
        value = text
    section = values
    *parents, last = key.strip().split(".")
    for name in parents:
        inner = section.get(name)
        if not isinstance(inner, dict):
            inner = section[name] = {}
        section = inner
    section[last] = value
    return []


def _describe(problem: Mapping[str, Any]) -> str:
    """One line for one pydantic problem: the path of the key, what is wrong, and what would be right."""
    location = _place(problem)
    key = ".".join(str(part) for part in location) or "config"
    value = problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            return f"{key}: unknown key{did_you_mean(str(location[-1]), _fields_at(location[:-1]))}"
        case "missing" if key == "data.valid":
            return f"{key}: missing; take lines out of train (head -n 500 FILE for it, tail -n +501 FILE for train)"
        case "missing":
            return f"{key}: missing; this key has no default"
        case "literal_error":
            expected = problem["ctx"]["expected"].replace(" or ", ", ").replace("'", "")
            return f"{key}: {value!r} is not one of {expected}{did_you_mean(str(value), expected.split(', '))}"
        case "value_error":
            return f"{key}: {problem['ctx']['error']}"
        case "model_type" if problem["ctx"]["class_name"] == SourceConfig.__name__:
            return f"{key}: {value!r} should be a source, such as {{tsv: FILE}}{', or a list' * (key == 'data.train')}"
        case "too_short":
            return f"{key}: is empty; name at least one"
        case "model_type" | "dict_type":
            return f"{key}: {value!r} should be keys with values, such as {{key: value}}"
        case _:
            message = problem["msg"].removeprefix("Input ").removeprefix("should be ").removeprefix("a valid ")
            return f"{key}: {value!r} should be {message}" if not isinstance(value, dict) else f"{key}: {message}"


def _is_meant_otherwise(problem: Mapping[str, Any]) -> bool:
    # in a place for one source or a list of them: that a list is no source, that a source is no list, and that a list
    # without its wrong entries is too short is not worth a line beside what is told of the source or the entries
    if not any(map(_is_union_branch, problem["loc"][-1:])):
        return False
    match problem["type"]:
        case "tuple_type":
            return True
        case "model_type":
            return isinstance(problem["input"], list)
        case "too_short":
            return bool(problem["input"])
    return False


def _place(problem: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(part for part in problem["loc"] if not _is_union_branch(part))


def _is_union_branch(part: Any) -> bool:
    # pydantic puts the name of the branch it tried into the path of a key: not a key of the file
    return isinstance(part, str) and (
        part == "SourceConfig" or part.startswith(("tuple[", "function-", "lax-or-strict"))
    )


def _fields_at(location: Sequence[Any]) -> list[str]:
    fields: Any = Config
    for part in location:
        if isinstance(part, int):
            continue
        if fields is DataConfig and part in ("train", "valid", "test"):
            return list(SourceConfig.model_fields)
        fields = fields.model_fields[part].annotation if part in fields.model_fields else SourceConfig
        if not (isinstance(fields, type) and issubclass(fields, Section)):
            return []
    return list(fields.model_fields)


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
    if training.average != "none" and training.average_count > max(training.keep_last, training.keep_best):
        kept = "keep_last" if training.average == "last" else "keep_best"
        problems.append(
            f"training.average_count: {training.average_count} checkpoints are not kept; raise training.{kept}"
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
    path = Path(name).expanduser()
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
    fetched = (
        f"; get it with s2s fetch {path.parts[0]}" if path.parts[0] in PUBLIC_CORPORA and len(path.parts) > 1 else ""
    )
    parents = [Path(parent) for parent in looked if Path(parent).is_dir()]
    beside = [entry.name for parent in parents for entry in parent.iterdir() if entry.is_dir() == (kind == "folder")]
    return candidates[
        0
    ], f"{kind} {name} not found (looked in {', '.join(looked)}){fetched or did_you_mean(path.name, beside)}"


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
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _unique(items: Any) -> list[Any]:
    return list(dict.fromkeys(items))
