"""Building blocks of the configuration: base classes of its sections, and types of its values with their checks.

`schema` and `corpora` use these types for their keys. The checks raise ValueError; its message follows the name of
the key. Files and folders are looked up if the validation has the configuration's own folder as its context; otherwise
they are kept as written.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from seq2seq.config import ranges
from seq2seq.errors import LONGEST_VALUE, did_you_mean, shown
from seq2seq.files import LATEST, RUNS
from seq2seq.lines import UNWRITABLE

LONGEST_TEXT = 1000
# Folders that `s2s fetch` makes.
PUBLIC_CORPORA = ("multi30k", "small_enja", "wmt14-en-de", "wmt16-en-de", "opus100-en-de", "tatoeba", "sst2")

# The file that describes a folder of pairs in parts (`data.parts`).
PARTS_FILE, FILTER_FILE = "augment.json", "filter.json"  # the description of a folder of pairs in parts
PLAIN_NAME = r"\w([\w .-]{0,62}[\w.-])?"
SPECIAL_PIECES = ("<unk>", "<s>", "</s>", "<pad>")


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, types are exact, values do not change."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def without_retired(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the keys of a run or model of an earlier version without those that are retired and had no effect."""
        return given

    @model_validator(mode="before")
    @classmethod
    def _fill_empty(cls, given: Any) -> Any:
        given = {} if given is None else given  # only the section's name is written
        return cls.without_retired(given) if isinstance(given, Mapping) else given


class PresetSection(Section):
    """A section with a key `preset`, which names the values to start from; written keys win."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def preset_of(cls, given: Mapping[str, Any]) -> str | None:
        """Return the name of the preset for these written keys."""
        return given.get("preset", cls.model_fields["preset"].default)

    @model_validator(mode="wrap")
    @classmethod
    def _fill_preset(cls, given: Any, validate: Callable[[Any], "PresetSection"]) -> "PresetSection":
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            return validate(given)
        given = cls.without_retired(given)
        preset = cls.preset_of(given)
        values = cls.presets.get(preset, {}) if isinstance(preset, str) else {}
        filled = validate({**values, **given, "preset": preset})
        filled.__pydantic_fields_set__ = set(given)  # without the preset's
        return filled


def without(given: Mapping[str, Any], retired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a section without the retired ones that have these values, which had no effect."""
    return {key: value for key, value in given.items() if key not in retired or value != retired[key]}


def text_problem(text: str) -> str | None:
    """Return why a key or a value cannot be this text; None if it can."""
    if len(text) > LONGEST_TEXT:
        return f"{shown(text)} has {len(text):,} characters, the maximum is {LONGEST_TEXT:,}"
    if UNWRITABLE.search(text):
        return f"{shown(text)} holds a control character, or is not UTF-8; use names that are plain text"
    return None


def unwritable(value: Any, path: str = "config") -> Iterator[str]:
    """Yield a line for each key or value whose text cannot be written to a file or a terminal."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from unwritable(key, path)
            name = str(key)[:LONGEST_VALUE] if text_problem(str(key)) is None else "?"
            yield from unwritable(item, name if path == "config" else f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from unwritable(item, f"{path}.{index}")
    elif isinstance(value, str) and (problem := text_problem(value)):
        yield f"{path}: {problem}"


def _look_up(name: Path, kind: Literal["file", "folder"] | None, info: ValidationInfo) -> Path:
    """Return the absolute path of a file or folder that exists; without a `kind`, the path with `~` expanded."""
    if info.context is None:
        return name
    try:
        path = name.expanduser()
        if kind is not None:
            path = _find(path, kind, info.context)
    except OSError as error:
        raise ValueError(f"{shown(str(name))} cannot be read ({error.strerror})") from error
    except RuntimeError as error:
        raise ValueError(f"{shown(str(name))}: there is no such user; write the folder's whole name") from error
    if problem := text_problem(str(path)):
        raise ValueError(problem)
    return path


def _find(path: Path, kind: str, own_folder: Path) -> Path:
    folders = _search_folders(own_folder)
    names = _names_of_file(path) if kind == "file" else [path]
    candidates = [(folder / name).resolve() for folder in folders for name in names]
    for candidate in candidates:
        if candidate.is_dir() if kind == "folder" else candidate.is_file():
            if kind == "file" and not candidate.stat().st_size:
                raise ValueError(f"{candidate} has no lines")
            return candidate
    if kind == "folder":
        from seq2seq.hub import is_hub_name

        if is_hub_name(path):
            return path
    if any(candidate.is_fifo() for candidate in candidates):
        raise ValueError(f"{path} is a pipe, which can be read only once; write what it gives to a file first")
    if other := next((candidate for candidate in candidates if candidate.exists()), None):
        is_other = "a folder" if other.is_dir() else "a file" if kind == "folder" else "a device"
        raise ValueError(f"{path} is {is_other}; name a {kind}")
    parents = list(dict.fromkeys(candidate.parent for candidate in candidates))
    entries = [entry for parent in parents if parent.is_dir() for entry in parent.iterdir()]
    if not entries and len(path.parts) > 1 and path.parts[0] in PUBLIC_CORPORA:
        hint = f"; get it with s2s fetch {path.parts[0]}"
    else:
        hint = did_you_mean(path.name, [entry.name for entry in entries if entry.is_dir() == (kind == "folder")])
    raise ValueError(f"{kind} {path} not found (looked in {', '.join(map(str, parents))}){hint}")


def _names_of_file(path: Path) -> list[Path]:
    """Return a name, and that of the file with or without gzip."""
    return [path, path.with_suffix("") if path.suffix == ".gz" else Path(f"{path}.gz")]


def check_one_folder(source: str | Path, target: str | Path, own_folder: Path | None) -> None:
    """Refuse relative names of one folder that are found below two of the folders where names are looked up, because
    the lines of these files are not pairs.

    Raises:
        ValueError: they are; the message has both folders.
    """
    paths = [Path(source), Path(target)]
    is_relative = not paths[0].is_absolute() and not str(paths[0]).startswith("~")
    if own_folder is None or not is_relative or paths[0].parent != paths[1].parent:
        return
    folders = _search_folders(own_folder)
    found = [
        next((folder for folder in folders if any((folder / name).is_file() for name in _names_of_file(path))), None)
        for path in paths
    ]
    if found[0] != found[1]:
        places = f"source {source} is found in {found[0]}, and target {target} in {found[1]}"
        raise ValueError(f"{places}; put both into one folder, or write their full paths")


def _search_folders(own_folder: Path) -> list[Path]:
    """Return the folders in which a relative name of the configuration is looked up."""
    return [Path.cwd(), Path(os.environ.get("S2S_DATA") or "data").expanduser(), own_folder]


def _look_up_parts(name: Path, info: ValidationInfo) -> Path:
    """Return the absolute path of a file, or of a folder of pairs in parts."""
    if info.context is None:
        return name
    for folder in _search_folders(info.context):
        with contextlib.suppress(OSError, RuntimeError):  # reported for the file
            found = folder / name.expanduser()
            if any((found / file).is_file() for file in (PARTS_FILE, FILTER_FILE)):
                return found.resolve()
    return _look_up(name, "file", info)


def _look_up_model(name: Path, info: ValidationInfo) -> Path:
    """Return the absolute path of a model or run folder, or a name on the hub.

    Raises:
        ValueError: it is not found, or is the link to the newest run, which names the new run as soon as that starts.
    """
    found = _look_up(name, "folder", info)
    links = [Path(*name.parts[: index + 1]) for index, part in enumerate(name.parts) if part == LATEST]
    is_newest = any(link.is_symlink() and link.parent.resolve() == RUNS.resolve() for link in links)
    if is_newest and info.context is not None:
        written = os.path.relpath(found)
        raise ValueError(f"{name} is the link to the newest run, which the new run will be; write {written}")
    return found


def _look_up_dataset(name: str, info: ValidationInfo) -> str:
    return str(_look_up(Path(name), "folder", info)) if name.startswith((".", "/", "~")) else name


def _as_path(value: Any) -> Any:
    if isinstance(value, Path) or (isinstance(value, str) and value):
        return value
    raise ValueError(f"must be the name of a file or folder, not {shown(value)}")


def _as_column(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else ranges.PIECES.check(value)


def _as_test_set_name(name: str) -> str:
    if name in ("train", "valid"):
        raise ValueError(f"a test set cannot be named {name}, which is another part of the data; rename it")
    if not re.fullmatch(PLAIN_NAME, name):
        raise ValueError("the name of a test set is up to 64 letters, digits, spaces, '_', '-' and '.'; rename it")
    return name


def _as_source_name(name: str) -> str:
    if not re.fullmatch(PLAIN_NAME, name):
        raise ValueError("the name of a source is up to 64 letters, digits, spaces, '_', '-' and '.'; rename it")
    return name


def as_piece(text: str) -> str:
    """Return `text` unchanged if it can be a piece of a tokenizer.

    Raises:
        ValueError: it is empty, a special piece, or holds a space or a control character.
    """
    if not text or text != "".join(text.split()) or UNWRITABLE.search(text) or text in SPECIAL_PIECES:
        raise ValueError(f"{shown(text)} cannot be a piece; give one word such as <back>, but no special piece")
    return text


def as_label(name: str) -> str:
    """Return `name` unchanged if it is a valid label.

    Raises:
        ValueError: it is blank, or holds a tab, a line end or another control character.
    """
    if not name.strip() or UNWRITABLE.search(name):
        raise ValueError(f"{shown(name)} is blank or holds a control character, so it cannot be a label; rename it")
    return name


def check_size(model: Any) -> None:
    """Raise an error for a model that no memory can hold, before any is allocated; `model` is a ModelConfig.

    Raises:
        ValueError: its table of positions or its matrices are too large.
    """
    if model.max_length * max(model.d_model, model.head_width) > ranges.MOST_POSITION_NUMBERS:
        raise ValueError(f"max_length {model.max_length:,} makes too large a table of positions; lower it")
    layers = model.num_encoder_layers + model.num_decoder_layers
    count = layers * model.d_model * (8 * model.num_heads * model.head_width + 3 * model.d_ff)
    if count > ranges.MOST_PARAMETERS:
        raise ValueError(f"up to {count:,} parameters, the maximum is {ranges.MOST_PARAMETERS:,}; lower the sizes")


def displayed_labels(labels: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the name that output uses for each label: from `names` (`data.label_names`), or the label itself.

    Raises:
        ValueError: two labels have the same name.
    """
    called: dict[str, str] = {}
    for label in labels:
        name = names.get(label, label)
        if name in called:
            raise ValueError(f"{shown(called[name])} and {shown(label)} are both called {shown(name)}; rename one")
        called[name] = label
    return tuple(called)


def _all_different(names: dict[str, str]) -> dict[str, str]:
    displayed_labels(names, names)
    return names


def _with_text_keys(value: Any) -> Any:
    """Return a mapping whose keys may be written as numbers, such as the label 0; a missing value is an empty
    mapping."""
    if not isinstance(value, Mapping):
        return {} if value is None else value
    if odd := [key for key in value if not isinstance(key, str | int)]:
        raise ValueError(f"the key {shown(odd[0])} must be text; put it in quotes")
    return {str(key) if type(key) is int else key: item for key, item in value.items()}


def _one_or_more(value: Any) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not values:
        raise ValueError("is empty; name at least one")
    return values


one_or_more = BeforeValidator(_one_or_more)
with_text_keys = BeforeValidator(_with_text_keys)
Probability = Annotated[float, ranges.PROBABILITY]
Positive = Annotated[int, ranges.COUNT]
NonNegative = Annotated[int, ranges.COUNT_OR_NONE]
FilePath = Annotated[Path, Field(strict=False), BeforeValidator(_as_path)]
ExistingFile = Annotated[FilePath, AfterValidator(lambda path, info: _look_up(path, "file", info))]
FileOrParts = Annotated[FilePath, AfterValidator(_look_up_parts)]
ModelPath = Annotated[FilePath, AfterValidator(_look_up_model)]
NewFolder = Annotated[FilePath, AfterValidator(lambda path, info: _look_up(path, None, info))]
Dataset = Annotated[str, AfterValidator(_look_up_dataset)]
TestSetName = Annotated[str, AfterValidator(_as_test_set_name)]
SourceName = Annotated[str, AfterValidator(_as_source_name)]
Label = Annotated[str, AfterValidator(as_label)]
LabelNames = Annotated[dict[str, Label], with_text_keys, AfterValidator(_all_different)]
Piece = Annotated[str, AfterValidator(as_piece)]
Column = Annotated[str | int | None, BeforeValidator(_as_column)]
