"""Language identification of a text, by its script and by py3langid (140 languages, no network).

`Identifier` judges among given languages: those of a model, for the flag `language` of translations, and those of a
server, for texts whose language the client does not name. `inspection` identifies the lines of corpora. Short texts,
names and numbers get no answer rather than a guess.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import cache

from seq2seq.languages import MEMBERS, language_code, own_code
from seq2seq.text.writing import (
    UNSPACED_SCRIPTS,
    has_traditional_letters,
    is_in_traditional_letters,
    scripts_of_language,
    scripts_of_letters,
)

# Minimum probability of an answer. With it, none of 60,000 lines of English, German, French and Japanese is assigned
# another language, neither among all languages nor among 2, 4 or 100 of them. Among all, two thirds of short sentences
# and 90 % of captions are assigned their own; among 2 of them, 99 %.
LEAST_PROBABILITY = 0.9
# Minimum number of letters of a text that is judged. A letter of a script without spaces counts as four.
LEAST_LETTERS, WEIGHT_UNSPACED = 20, 4
# The largest share of letters in the scripts of a language, for a text in another language.
MOST_OWN_LETTERS = 0.2
# The probability from which a text is in a language that is not among the given ones.
FOREIGN = 0.5
_NO_LANGUAGE = "zxx"
# The name of the library for a language where it is not the code of `languages`.
_LABELS = {"nb": "no"}


class Identifier:
    """The judge of texts among some languages.

    Languages that py3langid does not know are judged by their script alone. The library is loaded when it first has to
    decide between two languages, which takes 0.5 s and 80 MB.

    Args:
        languages: names of languages, under any name that `languages` knows, with a script or without.
    """

    def __init__(self, languages: Iterable[str]):
        self._names: dict[str, dict[str, list[str]]] = {}  # by script and code
        for name in languages:
            for script in scripts_of_language(name):
                self._names.setdefault(script, {}).setdefault(_code(name), []).append(name)

    def ranked(self, text: str) -> list[tuple[str, float]]:
        """Return the languages that a text may be in, each with its probability among them, the likeliest first.

        It is empty for texts without letters, and for those in another language. Of several names with one code, those
        that `_of_text` chooses share its probability.
        """
        names = self._written_as(scripts_of_letters(text))
        found = []
        for code, share in _ranked(text, names):
            alike = _of_text(text, names[code])
            found += [(name, share / len(alike)) for name in alike]
        return sorted(found, key=lambda pair: -pair[1])

    def judged(self, text: str) -> tuple[str, float] | None:
        """Return the language of a text and its probability; None if the text is too short or its language unclear.

        If one language alone has the script of the text, the library is not needed.
        """
        weights = _weights(text)
        if (found := self._judged(text, weights)) is None:
            return None
        code, share = found
        alike = _of_text(text, self._written_as(weights)[code])
        return (alike[0], share) if len(alike) == 1 else None

    def _judged(self, text: str, weights: dict[str, int]) -> tuple[str, float] | None:
        """Return the code of the language of a text and its probability; None as for `judged`."""
        codes = list(self._written_as(weights)) if sum(weights.values()) >= LEAST_LETTERS else []
        found = [(code, 1.0) for code in codes] if len(codes) < 2 else _ranked(text, codes)
        return found[0] if found and found[0][1] >= LEAST_PROBABILITY else None

    def is_other(self, text: str, language: str) -> bool:
        """Whether a text is clearly in another language or script than this language, which is one of the given.

        Languages whose script is not known, and pairs of languages of which py3langid does not know one, are not told
        apart.
        """
        own = scripts_of_language(language)
        weights = _weights(text) if own else {}
        if sum(weights.values()) < LEAST_LETTERS:
            return False
        if sum(weights.get(script, 0) for script in own) < MOST_OWN_LETTERS * sum(weights.values()):
            return True
        found = self._judged(text, weights)
        return found is not None and found[0] != _code(language) and is_identifiable(_code(language))

    def _written_as(self, letters: dict[str, int]) -> dict[str, list[str]]:
        """Return the names of the languages in the script of most letters, which comes first, by code."""
        return self._names.get(next(iter(letters), ""), {})


def _ranked(text: str, codes: Collection[str]) -> list[tuple[str, float]]:
    """Return each of these codes that a text may have with its probability, the likeliest first."""
    if not any(map(is_identifiable, codes)):
        return [(code, 1.0 / len(codes)) for code in codes]
    found = _probabilities(text)
    most = max(found, key=lambda code: found[code])
    known = {code: probability for code, probability in found.items() if code in codes}
    total = sum(known.values()) + found.get(_NO_LANGUAGE, 0.0)
    if not total or (most not in codes and found[most] >= FOREIGN):
        return []
    return sorted(((code, probability / total) for code, probability in known.items()), key=lambda pair: -pair[1])


def _of_text(text: str, names: Sequence[str]) -> Sequence[str]:
    """Return which of several names with one code a text may have: one, or some members of a macrolanguage.

    A member comes first if the library knows it and the text is clearly in it, as Cantonese often is. Else the language
    itself comes before its members. The letters of Chinese decide between Simplified and Traditional.
    """
    if len(names) < 2:
        return names
    members = [name for name in names if own_code(name) in MEMBERS]
    member = _clear_member(text, _code(names[0])) if members else None
    clear = [name for name in members if own_code(name) == member]
    found = clear or [name for name in names if name not in members] or members
    if _code(names[0]) == "zh":
        is_traditional = has_traditional_letters(text)
        found = [name for name in found if is_in_traditional_letters(name) is is_traditional] or found
    if clear or found[0] not in members:
        return found[:1]
    return list({own_code(name): name for name in found}.values())


def _clear_member(text: str, code: str) -> str | None:
    """Return the member of a macrolanguage that a text is in; None if it is not clear or the library knows none."""
    found = {label: probability for label, probability in _library().rank(text) if _code(label) == code}
    most = max(found, key=lambda label: found[label], default="")
    return most if most in MEMBERS and found[most] >= LEAST_PROBABILITY * sum(found.values()) else None


def identified(text: str) -> str | None:
    """Return the language of `text`, out of all languages, as an ISO 639 code; None where it is not clear."""
    label, probability = _library().classify(text)
    return _code(label) if probability >= LEAST_PROBABILITY else None


def is_identifiable(code: str) -> bool:
    """Whether py3langid knows the language with this code."""
    return code in map(_code, _library().labels)


def _weights(text: str) -> dict[str, int]:
    """Return the number of letters by script; one of a script without spaces counts as `WEIGHT_UNSPACED`."""
    counts = scripts_of_letters(text)
    return {script: count * (WEIGHT_UNSPACED if script in UNSPACED_SCRIPTS else 1) for script, count in counts.items()}


def _code(language: str) -> str:
    code = language_code(language)
    return _LABELS.get(code, code)


def _probabilities(text: str) -> dict[str, float]:
    """Return the probability of each language, by the codes of `languages`."""
    found: dict[str, float] = {}
    for label, probability in _library().rank(text):
        code = _code(label)
        found[code] = found.get(code, 0.0) + probability
    return found


@cache
def _library():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
