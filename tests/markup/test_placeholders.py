"""Placeholders in translated documents: each piece is found again or kept; the class that a model keeps is found."""

import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.markup_answers import WORDS, Nonsense, answered, upper

from seq2seq.markup.placeholders import CLASSES, MOST, PlaceholderClass, probe, ranked
from seq2seq.markup.translation import PLACEHOLDER, Marked, translate_documents
from seq2seq.text.alignment import Term
from seq2seq.text.untranslatable import lacks_letters
from seq2seq.text.words import word_spans


def unlinked(texts):
    return [replace(one, alignment=replace(one.alignment, links=())) for one in upper(texts)]


def test_the_batch_is_one_call_and_one_for_each_class_that_was_lost():
    calls = []

    def losing(texts):
        calls.append(len(texts))
        return upper([re.sub("|".join(CLASSES[0].words), "", text) for text in texts])

    texts = ["<p>One {a}.</p><p>Two.</p>", "Three %s and four"]
    marked = translate_documents(texts, "html", losing)
    assert [one.text for one in marked] == ["<p>ONE {a}.</p><p>TWO.</p>", "THREE %s AND FOUR"]
    assert calls == [3, 2]  # two of three sentences have pieces


def test_a_model_that_loses_every_placeholder_gets_the_text_between():
    def losing(texts):
        return unlinked(
            [" ".join(word for word in text.split() if word.isalpha() and word.islower()) for text in texts]
        )

    (marked,) = translate_documents(["hello {name}, you have %d new letters"], "html", losing)
    assert marked.text.split() == ["HELLO", "{name},", "YOU", "HAVE", "%d", "NEW", "LETTERS"]
    assert marked.sentences == ((PLACEHOLDER,),)


def test_a_placeholder_that_is_translated_is_found_by_its_link():
    """The model says something else for it each time, but its attention knows."""

    def translate(texts):
        return [
            answered(
                " ".join(word if word in WORDS else "Ding" for word in text.split()),
                words := word_spans(text, ()),
                places := word_spans(" ".join(word if word in WORDS else "Ding" for word in text.split()), ()),
                [(one, other, 0.5) for one, other in zip(words, places, strict=True)],
            )
            for text in texts
        ]

    (marked,) = translate_documents(["<p>a man rides {x} through <i>the</i> town</p>"], "html", translate, CLASSES[:1])
    assert marked == Marked("<p>a man rides {x} through <i>the</i> town</p>", 1, ((PLACEHOLDER,),))


@given(
    st.integers(0, 2**32), st.lists(st.sampled_from(WORDS), min_size=2, max_size=8), st.sampled_from([".", " !", "?"])
)
def test_a_lost_placeholder_replaces_no_mark_no_term_and_no_word_of_another(seed, words, mark):
    """Whatever it is linked to; only a word whose strongest link is to the placeholder may go, and the flag says so."""
    draw = random.Random(seed)
    place, free = draw.randrange(len(words)), draw.choice([None, *words])
    glossary = draw.sample(words, draw.randrange(len(words)))

    def dropping(texts):
        answers = []
        for text in texts:
            spans = word_spans(text, ())
            lost = [span for span in spans if text[slice(*span)] in CLASSES[0].words]
            said = " ".join(text[slice(*span)].upper() for span in spans if span not in lost)
            kept, targets = [span for span in spans if span not in lost], word_spans(said, ())
            links = [
                (one, other, 0.1 if text[slice(*one)] == free else 0.6)
                for one, other in zip(kept, targets, strict=True)
            ]
            links += [(span, target, draw.choice([0.2, 0.5])) for span in lost for target in draw.choices(targets, k=2)]
            terms = [
                Term(one, other, "forced", text[slice(*one)])
                for one, other in zip(kept, targets, strict=True)
                if text[slice(*one)] in glossary
            ]
            answers.append(replace(answered(said, spans, targets, links), terms=tuple(terms)))
        return answers

    text = " ".join([*words[:place], "{x}", *words[place:]]) + mark
    (marked,) = translate_documents([text], "plain", dropping, CLASSES[:1])
    said = re.findall(r"[^\W_]+|[^\w\s]", marked.text.replace("{x}", " "))
    missing = Counter([*map(str.upper, words), mark.strip()]) - Counter(said)
    assert marked.text.count("{x}") == 1
    assert marked.sentences == ((PLACEHOLDER,),)
    assert missing.total() <= 1
    assert free is None or {*missing} <= {free.upper()}
    assert not {*missing} & {*map(str.upper, glossary)}
    assert len(marked.terms) == sum(word in glossary for word in words)


def test_a_term_is_no_placeholder_even_if_it_is_spelled_like_one():
    """A glossary may have the words of placeholders, as sources or as translations."""
    known = PlaceholderClass("known words", ("guitar",), ("GITARRE",))

    def translate(texts):
        answers = []
        for text in texts:
            said = text.upper().replace("PIANO", "GITARRE").replace("GUITAR", "DING")
            terms = [("piano", "GITARRE"), ("guitar", "DING")]
            found = [(text.find(one), said.find(other), one, other) for one, other in terms if one in text]
            places = [
                Term((one, one + len(source)), (other, other + len(target)), "forced", source)
                for one, other, source, target in found
            ]
            answers.append(replace(answered(said, word_spans(text, ()), word_spans(said, ())), terms=tuple(places)))
        return answers

    (marked,) = translate_documents(["the piano and {x}"], "plain", translate, [known])
    assert marked == Marked("THE GITARRE AND {x}", 1, ((PLACEHOLDER,),), ("forced",))


@pytest.mark.parametrize("form", ["html", "xml", "markdown", "plain"])
@pytest.mark.parametrize("text", ["24/7", "a 24/7 b {x}", "{x}: 24/7!", "24/7 {x} 30", "30 {x} 24/7"])
def test_text_without_letters_is_translated_if_it_has_a_term(form, text):
    """Also between the pieces of a sentence whose placeholders were lost."""

    def translate(texts):
        losing = (re.sub("|".join(CLASSES[0].words), "", text) for text in texts)
        return [answered(text.replace("24/7", "ALWAYS")) for text in losing]

    source = f"<p>{text}</p>" if form in ("html", "xml") else text
    marked = translate_documents(
        [source], form, translate, CLASSES[:1], lambda text: lacks_letters(text) and "24/7" not in text
    )
    assert "ALWAYS" in marked[0].text
    assert "24/7" not in marked[0].text
    assert text.count("30") == marked[0].text.count("30")


def test_more_pieces_than_placeholders_are_kept():
    text = " and ".join(f"{{p{number}}}" for number in range(3 * MOST))
    (marked,) = translate_documents([text], "html", Nonsense(1, 0.9))
    assert all(marked.text.count(f"{{p{number}}}") == 1 for number in range(3 * MOST))


def test_the_class_that_a_model_keeps_is_found():
    kept = PlaceholderClass("kept", tuple(f"Q{number}" for number in range(MOST + 4)))
    lost = PlaceholderClass("lost", tuple(f"[{number}]" for number in range(MOST + 4)))

    def translate(texts):
        return [re.sub(r"[\[\]]", "", text) for text in texts]

    ranking = probe(translate, ["A man sees {}.", "the old town is near the river"], [lost, kept])
    assert [one.placeholders.name for one in ranking] == ["kept", "lost"]
    assert [one.share for one in ranking] == [1.0, 0.0]


def test_a_model_that_copies_nothing_has_words_that_it_knows():
    """It says "etwas" for what it never saw."""
    dictionary = {"guitar": "Gitarre", "piano": "Klavier", "a": "ein", "man": "Mann", "sees": "sieht", "the": "das"}

    def answer(text):
        return " ".join(dictionary.get(word.strip(".,").casefold(), "etwas") for word in text.split())

    sentences = ["the man sees the piano", "a man sees the long guitar"] * 3
    ranking = ranked(
        lambda texts: [*map(answer, texts)], sentences, [("guitar", "Gitarre"), ("big", "groß"), ("piano", "Klavier")]
    )
    best = ranking[0].placeholders
    assert set(best.pairs) == {("guitar", "Gitarre"), ("piano", "Klavier")}

    def translate(texts):
        return [answered(answer(text), word_spans(text, ()), word_spans(answer(text), ()), ()) for text in texts]

    (marked,) = translate_documents(["<p>the man sees {name}</p>"], "html", translate, [best])
    assert marked.text == "<p>das Mann sieht {name}</p>"
    assert marked.sentences == ((),)
