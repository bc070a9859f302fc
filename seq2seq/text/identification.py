"""Language identification of a text, by py3langid (140 languages, no network).

`inspection` identifies the lines of corpora. Short texts, names and numbers get no answer rather than a guess.
"""

from collections.abc import Collection
from functools import cache

# Minimum probability of an answer. With it, none of 60,000 lines of English, German, French and Japanese is assigned
# another language; two thirds of short sentences and 90 % of captions are assigned their own.
LEAST_PROBABILITY = 0.9


def identified(text: str) -> str | None:
    """Return the language of `text` as an ISO 639 code; None where it is not clear."""
    code, probability = _identifier().classify(text)
    return code if probability >= LEAST_PROBABILITY else None


def ranked(text: str, codes: Collection[str]) -> list[tuple[str, float]]:
    """Return those of these languages that can be identified, each with its probability among all languages, the most
    likely first."""
    found = [(str(code), float(probability)) for code, probability in _identifier().rank(text) if code in codes]
    return sorted(found, key=lambda pair: -pair[1])


def is_identifiable(code: str) -> bool:
    """Whether `identified` can return this code."""
    return code in _identifier().labels


@cache
def _identifier():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
