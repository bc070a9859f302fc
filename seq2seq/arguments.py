"""Values that programs give to functions of the library, which no option of a command has checked."""

from collections.abc import Iterable, Sequence
from typing import Any

from seq2seq.errors import UserError, did_you_mean, shown


def plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, and other values unchanged."""
    is_number = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_number else value


def checked_names(given: str | Iterable[str], known: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the names that a function was given for its argument `what`; one name need not be in a list.

    Raises:
        UserError: a name is not one of the `known` ones.
    """
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for name in names:
        if name not in known:
            close = did_you_mean(str(name), known)
            raise UserError(f"{what} {shown(name)}: not one of {', '.join(known)}{close}")
    return names


def checked_count(given: Any, what: str) -> int | None:
    """Return a number that a function was given for its argument `what`, or None, its default.

    Raises:
        UserError: it is not a whole number of at least 1.
    """
    value = plain(given)
    if value is not None and (type(value) is not int or value < 1):
        raise UserError(f"{what} {shown(value)}: must be a number of at least 1")
    return value


def checked_computing(device: Any, precision: Any, threads: Any) -> tuple[str | None, str | None, int | None]:
    """Return the names of a device and of a precision, and a number of threads, which a function was given.

    Raises:
        UserError: one of them is a value of another kind.
    """
    return checked_name(device, "device"), checked_name(precision, "precision"), checked_count(threads, "threads")


def checked_choice(given: Any, what: str) -> bool:
    """Return True or False, which a function was given for its argument `what`.

    Raises:
        UserError: it is another value, such as the text "no", which Python would count as true.
    """
    value = plain(given)
    if not isinstance(value, bool):
        raise UserError(f"{what} {shown(value)}: must be true or false")
    return value


def checked_name(given: Any, what: str) -> str | None:
    """Return a name that a function was given for its argument `what`, such as that of a device, or None.

    A device or a type of torch is named as in an option: `torch.float32` is float32.

    Raises:
        UserError: it is a value of another kind.
    """
    value = str(given).removeprefix("torch.") if type(given).__module__ == "torch" else given
    if not isinstance(value, str | None):
        raise UserError(f"{what} {shown(plain(value))}: must be text")
    return value
