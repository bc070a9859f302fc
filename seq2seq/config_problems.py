"""What is wrong with the values of a configuration, in words.

pydantic finds it; `config_file` prints a line for each problem through here, and `model_folder` for those of a model's
own files.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from seq2seq.config import Config, DataConfig, Section, SourceConfig
from seq2seq.errors import did_you_mean, shown
from seq2seq.lines import UNWRITABLE

LONGEST_KEY, LONGEST_TEXT = 120, 1000
# What a value must be, by pydantic's name for its being something else.
KINDS = {
    "string_type": "text", "bool_type": "true or false", "tuple_type": "a list, such as [a, b]",
    "dict_type": "keys with values, such as {key: value}", "model_type": "keys with values, such as {key: value}",
}  # fmt: skip


def describe(problem: Mapping[str, Any]) -> str:
    """One line for one pydantic problem: the path of the key, what is wrong, and what would be right."""
    location = tuple(part for part in place(problem) if part != "[key]")
    key = ".".join(part if isinstance(part, str) else shown(part) for part in location) or "config"
    value = problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            return f"{_cut(key)}: unknown key{_meant(str(location[-1]), location[:-1])}"
        case "missing" if isinstance(location[-1], int):
            return f"{_cut(key.rpartition('.')[0])}: has too few values"
        case "missing" if key == "data.valid":
            return f"{key}: missing; take lines out of train (head -n 500 FILE for it, tail -n +501 FILE for train)"
        case "missing":
            return f"{_cut(key)}: missing; this key has no default"
        case "literal_error":
            expected = problem["ctx"]["expected"].replace(" or ", ", ").replace("'", "")
            hint = did_you_mean(str(value)[:LONGEST_KEY], expected.split(", "))
            return f"{_cut(key)}: {shown(value)} is not one of {expected}{hint}"
        case "value_error":
            return f"{_cut(key.removesuffix('.[key]'))}: {problem['ctx']['error']}"
        case "model_type" if problem["ctx"]["class_name"] == SourceConfig.__name__:
            unspaced = "; a space after the colon is missing" if _lacks_space(value, SourceConfig.model_fields) else ""
            a_list = ", or a list" * (key == "data.train")
            return f"{_cut(key)}: must be a source, such as {{tsv: FILE}}{a_list}, not {shown(value)}{unspaced}"
        case "too_short":
            return f"{_cut(key)}: is empty; name at least one"
        case "too_long":
            return f"{_cut(key)}: has too many values"
        case kind if kind == "invalid_key" or location != place(problem):
            section = ".".join(map(str, location[:-1])) or "config"
            return f"{_cut(section)}: the key {shown(value)} must be text; put it in quotes"
        case "string_type" if isinstance(value, int | float):
            return f"{_cut(key)}: must be text, not {shown(value)}; put it in quotes"
        case kind:
            return f"{_cut(key)}: must be {KINDS.get(kind, 'of another kind')}, not {shown(value)}"


def unwritable(value: Any, path: str = "") -> Iterator[str]:
    """A line for each text, key or value, that no file and no terminal can hold."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from unwritable(key, path)
            yield from unwritable(item, f"{path}.{_cut(str(key))}" if path else _cut(str(key)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from unwritable(item, f"{path}.{index}")
    elif isinstance(value, str):
        place = path if path.isprintable() and path else "config"
        if len(value) > LONGEST_TEXT:
            yield f"{place}: {shown(value)} has {len(value):,} characters, of which {LONGEST_TEXT:,} are possible"
        elif UNWRITABLE.search(value):
            yield f"{place}: {shown(value)} holds a control character, or is not UTF-8; use names that are plain text"


def _cut(key: str) -> str:
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}..."


def _meant(name: str, section: Sequence[Any]) -> str:
    """What a key that does not exist may have been meant to be, for the end of a line."""
    here = _fields_at(section)
    if _lacks_space(name, here):
        return "; a space after the colon is missing"
    elsewhere = [f"'{path}'" for path in _all_keys(Config) if path.rpartition(".")[2] == name]
    return f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else did_you_mean(name, here)


def _lacks_space(text: Any, keys: Collection[str]) -> bool:
    key, colon, _ = str(text).partition(":")
    return bool(colon) and key in keys


def _all_keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _all_keys(field.annotation, f"{prefix}{name}.")


def is_meant_otherwise(problem: Mapping[str, Any]) -> bool:
    """Whether a line about the problem would stand beside one that says what is really wrong."""
    # in a place for one source or a list of them: that a list is no source, that a source is no list, and that a list
    # without its wrong entries is too short needs no line of its own beside the problem of the source or the entries
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


def place(problem: Mapping[str, Any]) -> tuple[Any, ...]:
    """The path of the key that a problem is about."""
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
