"""pydantic's errors as lines for the user.

Imported where a validation has failed: of a configuration, of the settings of a model folder, of search settings.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from seq2seq.config import Config
from seq2seq.config_data import SourceConfig
from seq2seq.config_values import Section
from seq2seq.errors import did_you_mean, shown

LONGEST_KEY = 120
# What a value must be, by the type of pydantic's error.
KINDS = {
    "string_type": "text", "bool_type": "true or false", "tuple_type": "a list, such as [a, b]",
    "dict_type": "keys with values, such as {key: value}", "model_type": "keys with values, such as {key: value}",
}  # fmt: skip


def describe(problem: Mapping[str, Any]) -> str:
    """One line for one pydantic problem: the path of the key, what is wrong, and what would be right."""
    location = tuple(part for part in problem["loc"] if part != "[key]")
    key = _cut(".".join(part if isinstance(part, str) else shown(part) for part in location)) or "config"
    value = problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            return f"{key}: unknown key{_meant(str(location[-1]), location[:-1])}"
        case "missing" if isinstance(location[-1], int):
            return f"{key.rpartition('.')[0]}: has too few values"
        case "missing" if key == "data.valid":
            return f"{key}: missing; take lines out of train (head -n 500 FILE for it, tail -n +501 FILE for train)"
        case "missing":
            return f"{key}: missing; this key has no default"
        case "literal_error":
            expected = problem["ctx"]["expected"].replace(" or ", ", ").replace("'", "").lower()
            hint = did_you_mean(str(value)[:LONGEST_KEY], expected.split(", "))
            return f"{key}: {shown(value)} is not one of {expected}{hint}"
        case "value_error":
            return f"{key}: {problem['ctx']['error']}"
        case "model_type" if problem["ctx"]["class_name"] == SourceConfig.__name__:
            a_list = ", or a list" * (key == "data.train")
            return f"{key}: must be a source, such as {{tsv: FILE}}{a_list}, not {shown(value)}"
        case "too_long":
            return f"{key}: has too many values"
        case kind if kind == "invalid_key" or location != problem["loc"]:
            section = _cut(".".join(map(str, location[:-1]))) or "config"
            return f"{section}: the key {shown(value)} must be text; put it in quotes"
        case "string_type" if isinstance(value, int | float):
            return f"{key}: must be text, not {shown(value)}; put it in quotes"
        case kind:
            return f"{key}: must be {KINDS.get(kind, 'of another kind')}, not {shown(value)}"


def _cut(key: str) -> str:
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}..."


def _meant(name: str, location: Sequence[Any]) -> str:
    """A suggestion for the unknown key `name` of the section at `location`, for the end of a line."""
    here: type[Section] = Config
    for part in location:
        if field := here.model_fields.get(part):
            here = next(filter(_is_section, [field.annotation, *get_args(field.annotation)]), here)
    if ":" in name and name.partition(":")[0] in here.model_fields:
        return "; a space after the colon is missing"
    elsewhere = [f"'{path}'" for path in _all_keys(Config) if path.rpartition(".")[2] == name]
    return f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else did_you_mean(name, here.model_fields)


def _all_keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        if _is_section(field.annotation):
            yield from _all_keys(field.annotation, f"{prefix}{name}.")


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)
