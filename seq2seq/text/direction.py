"""The direction of a translation: the languages that a user names, as a multilingual model knows them.

A `Direction` is given once, where a translator, a scorer or a training is set up; `TokenizerPair.directed` then puts
the tags of its languages into the sequences.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seq2seq.arguments import checked_name
from seq2seq.errors import UserError, did_you_mean, some_of
from seq2seq.languages import language_code, language_name, languages_named

# Languages that a message lists.
MOST_LISTED = 250
# Norwegian and its written forms, by code, with the languages that may stand for each.
_NORWEGIAN = {"no": ("nb", "nn"), "nb": ("no",), "nn": ("no",)}


@dataclass(frozen=True)
class Direction:
    """The languages of a translation, under any name that `languages` knows; None where the user names none."""

    source: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that are not names.

        Raises:
            UserError: a language is not text.
        """
        for side, language in vars(self).items():
            checked_name(language, f"{side} language")


UNNAMED = Direction()


def check_direction_given(direction: object) -> None:
    """Refuse what is not a direction.

    Raises:
        UserError: it is something else, such as a pair of texts.
    """
    if not isinstance(direction, Direction):
        raise UserError("directed takes a direction, such as Direction('en', 'de')")


def nearest_language(name: str, known: Sequence[str]) -> str:
    """Return the hint of `did_you_mean` for a language that is not known."""
    return did_you_mean(name[:50].lower(), [*known, *(language_name(one).lower() for one in known)])


def languages_meant(name: str, known: Iterable[str]) -> list[str]:
    """Return the names under which a model knows the language that a user names; several if it is not clear.

    They are those of `languages_named`. If there are none, a written form of Norwegian is also meant by Norwegian, and
    Norwegian by its written forms.
    """
    names, related = list(known), _NORWEGIAN.get(language_code(name), ())
    return languages_named(name, names) or [one for one in names if language_code(one) in related]


def find_language(name: str, known: Iterable[str], option: str) -> str:
    """Return the name under which a model knows a language.

    Args:
        name: as in `languages_named`.
        known: the names of the model.
        option: what the name was given for, for the message.

    Raises:
        UserError: the model does not have the language, or several languages of it have this name.
    """
    names = list(known)
    same = languages_meant(name, names)
    if len(same) == 1:
        return same[0]
    if same:
        raise UserError(f"{option} {name}: the model has several such languages: {', '.join(same)}; name one of them")
    close, listed = nearest_language(name, names), some_of(names, MOST_LISTED)
    raise UserError(f"{option} {name}: not a language of the model{close}; it has {listed}")
