"""Placeholders in translated documents: each piece is found again or kept; the class that a model keeps is found."""

import re
from dataclasses import replace

from support.markup_answers import WORDS, Nonsense, answered, upper

from seq2seq.markup.placeholders import CLASSES, MOST, PlaceholderClass, probe, ranked
from seq2seq.markup.translation import PLACEHOLDER, Marked, translate_documents
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
    assert marked == Marked("<p>a man rides {x} through <i>the</i> town</p>", 1, ((),))


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
