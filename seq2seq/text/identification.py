"""Language identification of a text, by its script and by py3langid (140 languages, no network).

`Identifier` judges among given languages: those of a model, for the flag `language` of translations, and those of a
server, for texts whose language the client does not name. `inspection` identifies the lines of corpora. Short texts,
names and numbers get no answer rather than a guess.
"""

from collections.abc import Iterable
from functools import cache

from seq2seq.languages import language_code
from seq2seq.text.writing import UNSPACED_SCRIPTS, scripts_of_language, scripts_of_letters

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
        self._names: dict[tuple[str, str], str] = {}  # by code and script
        for name in languages:
            for script in scripts_of_language(name):
                self._names.setdefault((_code(name), script), name)

    def ranked(self, text: str) -> list[tuple[str, float]]:
        """Return the languages that a text may be in, each with its probability among them, the likeliest first.

        It is empty for texts without letters, and for those in another language.
        """
        return self._ranked(text, self._written_as(scripts_of_letters(text)))

    def _ranked(self, text: str, names: dict[str, str]) -> list[tuple[str, float]]:
        if not any(map(is_identifiable, names)):
            return [(name, 1.0 / len(names)) for name in names.values()]
        found = _probabilities(text)
        most = max(found, key=lambda code: found[code])
        known = {code: probability for code, probability in found.items() if code in names}
        total = sum(known.values()) + found.get(_NO_LANGUAGE, 0.0)
        if not total or (most not in names and found[most] >= FOREIGN):
            return []
        shares = [(names[code], probability / total) for code, probability in known.items()]
        return sorted(shares, key=lambda pair: -pair[1])

    def judged(self, text: str) -> tuple[str, float] | None:
        """Return the language of a text and its probability; None if the text is too short or its language unclear.

        If one language alone has the script of the text, the library is not needed.
        """
        return self._judged(text, _weights(text))

    def _judged(self, text: str, weights: dict[str, int]) -> tuple[str, float] | None:
        names = self._written_as(weights) if sum(weights.values()) >= LEAST_LETTERS else {}
        found = [(name, 1.0) for name in names.values()] if len(names) < 2 else self._ranked(text, names)
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
        return found is not None and _code(found[0]) != _code(language) and is_identifiable(_code(language))

    def _written_as(self, letters: dict[str, int]) -> dict[str, str]:
        """Return the names of the languages in the script of most letters, which comes first, by code."""
        script = next(iter(letters), None)
        return {code: name for (code, own), name in self._names.items() if own == script}


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
