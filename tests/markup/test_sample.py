"""The sample of a document is the beginning of its text, whatever comes before that, and costs little. About 15 s."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.costs import MOST_TIMES, families, growth, seconds
from support.documents import LEADS, document

from seq2seq.errors import DataError
from seq2seq.markup.document import OBJECT
from seq2seq.markup.sample import sample
from seq2seq.markup.translation import FORMATS

FAMILIES = dict(families())
WORDS = ["Bahnhof", "駅", "дом", "x", "ein Haus am Rande der Stadt"]


def whole(form: str, text: str) -> str:
    return " ".join(segment.text for segment in FORMATS[form](text).segments).replace(OBJECT, " ")


@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize(("form", "lead"), [(form, lead) for form, leads in LEADS.items() for lead in leads])
def test_what_is_copied_is_not_in_the_sample(form, lead, size):
    """Law: with any amount of it before the text, the sample is that of the text alone."""
    paragraphs = [f"Der Bahnhof {number} liegt am Rande der Stadt." for number in range(40)]
    for length in (10, 1_000):
        found = sample(document(form, lead, size, paragraphs), form, length)
        assert found == " ".join(paragraphs)[:length]


@given(st.sampled_from(sorted(FORMATS)), st.data(), st.integers(1, 200))
@settings(deadline=None, max_examples=80)
def test_a_sample_is_the_beginning_of_the_text(form, data, length):
    """However the document is made; whoever reads it as a whole finds the same."""
    lead = data.draw(st.sampled_from(sorted(LEADS[form])))
    paragraphs = data.draw(st.lists(st.lists(st.sampled_from(WORDS), min_size=1).map(" ".join), max_size=30))
    text = document(form, lead, data.draw(st.integers(0, 30)), paragraphs)
    assert sample(text, form, length) == whole(form, text)[:length]


@given(st.sampled_from(sorted(FORMATS)), st.sampled_from(sorted(FAMILIES)), st.integers(1, 40), st.integers(1, 20))
@settings(deadline=None, max_examples=100)
def test_what_is_a_document_has_a_sample(form, name, count, length):
    text = f"<r>{FAMILIES[name](count)}</r>"
    try:
        FORMATS[form](text)
    except DataError:
        return
    assert len(sample(text, form, length)) <= length


@pytest.mark.parametrize("text", ["<r>a", "<r>a</s>", "<>", "<?xml version='1.0'?>", "<tmx>a</tmx>", "<r>" + "a" * 99])
def test_a_document_that_is_not_of_its_format_is_refused_as_by_its_parser(text):
    with pytest.raises(DataError) as own:
        FORMATS["xml"](text)
    with pytest.raises(DataError) as other:
        sample(text, "xml", 1)
    assert str(own.value) == str(other.value)


@pytest.mark.parametrize("form", FORMATS)
def test_a_long_document_is_not_parsed_for_its_sample(form):
    """The text of a long document is judged in a part of the time in which it is parsed."""
    text = document(form, "nothing", 0, [f"Der <b>Bahnhof</b> {number} am Rande." for number in range(1_000)])
    assert seconds(lambda: sample(text, form, 1_000)) < seconds(lambda: FORMATS[form](text), 1) / 3


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_every_family_is_judged_in_time_in_proportion(form):
    slow = {}
    for name, family in FAMILIES.items():
        found = growth(lambda text: sample_or_none(form, f"<r>{text}</r>"), family, 60)
        if found > MOST_TIMES:
            slow[name] = round(found)
    assert slow == {}


def sample_or_none(form: str, text: str) -> str | None:
    try:
        return sample(text, form, 20)
    except DataError:
        return None
