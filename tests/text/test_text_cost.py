"""The cost of what is done with every text grows in proportion to its length. About 4 s; all inputs are slow."""

import pytest
from support.costs import MOST_TIMES, bounded, families, growth

from seq2seq.markup.protected import find
from seq2seq.text.normalization import mapped
from seq2seq.text.splitting import split_sentences, split_text
from seq2seq.text.untranslatable import lacks_letters
from seq2seq.text.words import owners, word_spans

FAMILIES = dict(families())


def as_words(text: str) -> None:
    pieces = [(place, place + 1) for place in range(len(text))]
    owners(pieces, word_spans(text, pieces))


CALLS = {
    "pieces": find,
    "sentences": split_sentences,
    "parts": lambda text: split_text(text, lambda part: len(part) < 50),
    "words": as_words,
    "normalized": mapped,
    "letters": lacks_letters,
}
# Those that were slow once, and runs of what the functions look for.
QUICK = ["'a.'", "'1'", "'漢 '", "'.'", "'Word. '", "'\u0301'", "'{a,plural,'", "'http://)'"]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("call", CALLS)
def test_texts_take_time_in_proportion(call, name):
    assert growth(CALLS[call], FAMILIES[name], 600) <= MOST_TIMES


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_every_family_of_texts_takes_time_in_proportion(call):
    slow = {name: growth(CALLS[call], family, bounded(600, family)) for name, family in FAMILIES.items()}
    assert {name: found for name, found in slow.items() if found > MOST_TIMES} == {}
