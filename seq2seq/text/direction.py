"""The direction of a translation: the languages that a user names, as a multilingual model knows them.

A `Direction` is given once, where a translator, a scorer or a training is set up; `TokenizerPair.directed` then puts
the tags of its languages into the sequences.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from seq2seq.errors import UserError, did_you_mean, some_of
from seq2seq.languages import language_code, language_name

# Languages that a message lists.
MOST_LISTED = 250


@dataclass(frozen=True)
class Direction:
    """The languages of a translation, under any name that `languages` knows; None where the user names none."""

    source: str | None = None
    target: str | None = None


UNNAMED = Direction()


def find_language(name: str, known: Iterable[str], option: str) -> str:
    """Return the name under which a model knows a language.

    Args:
        name: as a user writes it: `de`, `deu`, `deu_Latn` and `German` are the same.
        known: the names of the model.
        option: what the name was given for, for the message.

    Raises:
        UserError: the model does not have the language, or several languages of it have this name.
    """
    names = list(known)
    by_case = {one.casefold().replace("-", "_"): one for one in names}
    if exact := by_case.get(name.casefold().replace("-", "_")):
        return exact
    same = [one for one in names if language_code(one) == language_code(name)]
    if len(same) == 1:
        return same[0]
    if same:
        raise UserError(f"{option} {name}: the model has several such languages: {', '.join(same)}; name one of them")
    close = did_you_mean(name.lower(), [*names, *(language_name(one).lower() for one in names)])
    raise UserError(f"{option} {name}: not a language of the model{close}; it has {some_of(names, MOST_LISTED)}")
