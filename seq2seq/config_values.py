"""What one value of the configuration may be, beyond its bounds: types of numbers, paths and names.

`config` gives its keys these types. The checks raise ValueError with words that follow the name of the key.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from seq2seq import ranges
from seq2seq.errors import shown
from seq2seq.lines import UNWRITABLE
from seq2seq.ranges import Range


def within(bounds: Range) -> BeforeValidator:
    """What makes a key take these numbers alone."""
    return BeforeValidator(bounds.check)


def _as_path(value: Any) -> Any:
    if isinstance(value, Path) or (isinstance(value, str) and value):
        return value
    raise ValueError(f"must be the name of a file or folder, not {shown(value)}")


def _as_column(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else ranges.PIECES.check(value)


def _as_test_set_name(name: str) -> str:
    """A name that can be part of a file's, and that is no other set's."""
    if name in ("train", "valid"):
        raise ValueError(f"a test set cannot be named {name}, which is another part of the data; rename it")
    if not re.fullmatch(r"\w([\w .-]{0,62}[\w.-])?", name):
        raise ValueError("the name of a test set is up to 64 letters, digits, spaces, '_', '-' and '.'; rename it")
    return name


def as_label(name: str) -> str:
    """`name`, which answers can hold.

    Raises:
        ValueError: it is blank, or holds a tab, a line end or what else no line of text can hold.
    """
    if not name.strip() or UNWRITABLE.search(name):
        raise ValueError(f"{shown(name)} is blank or holds a control character, so it cannot be a label; rename it")
    return name


def check_size(model: Any) -> None:
    """Refuse a model so large that no memory would do, before any is asked for; `model` is a ModelConfig.

    Raises:
        ValueError: its table of positions or its matrices are.
    """
    if model.max_length * max(model.d_model, model.head_width) > ranges.MOST_POSITION_NUMBERS:
        raise ValueError(
            f"max_length {model.max_length:,} makes a far larger table of positions than possible; lower it"
        )
    layers = model.num_encoder_layers + model.num_decoder_layers
    count = layers * model.d_model * (8 * model.num_heads * model.head_width + 3 * model.d_ff)
    if count > ranges.MOST_PARAMETERS:
        raise ValueError(
            f"up to {count:,} parameters, of which {ranges.MOST_PARAMETERS:,} are possible; lower the sizes"
        )


def displayed_labels(labels: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """What each label is called in answers: by `data.label_names`, or as in the data.

    Raises:
        ValueError: two labels are called the same.
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
    # `0: negative` is what people write for the label 0; nothing behind the colon is nothing
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return value
    return {str(key) if type(key) is int else key: item for key, item in value.items()}


with_text_keys = BeforeValidator(_with_text_keys)
Probability = Annotated[float, within(ranges.PROBABILITY)]
Positive = Annotated[int, within(ranges.COUNT)]
NonNegative = Annotated[int, within(ranges.COUNT_OR_NONE)]
FilePath = Annotated[Path, Field(strict=False), BeforeValidator(_as_path)]
TestSetName = Annotated[str, AfterValidator(_as_test_set_name)]
Label = Annotated[str, AfterValidator(as_label)]
LabelNames = Annotated[dict[str, Label], with_text_keys, AfterValidator(_all_different)]
Column = Annotated[str | int | None, BeforeValidator(_as_column)]
