"""Documents and their sentences: spaces where only the target language has them, and the document that is wrong."""

import sys

import pytest
from support.markup_answers import answered, upper

from seq2seq.markup.translation import BadDocument, translate_documents
from seq2seq.text.parts import bounded_sentences, join, stripped

SPACED = [
    ("犬が走る。猫がいる。", ["A dog runs.", "A cat is here."], "A dog runs. A cat is here."),
    ("犬が走る。『猫』！いる。", ["A dog runs.", "“Cat”!", "It is."], "A dog runs. “Cat”! It is."),
    ("犬が走る。 猫がいる。", ["A dog runs.", "A cat."], "A dog runs. A cat."),
    ("犬が走る。猫がいる。", ["狗跑。", "猫在。"], "狗跑。猫在。"),
    ("犬が走る。猫がいる。", ["개가 달린다.", "고양이."], "개가 달린다. 고양이."),
    ("犬が走る。猫がいる。", ["A dog runs.", ""], "A dog runs."),
    ("犬が走る。猫がいる。", ["", "A cat."], "A cat."),
    ("A dog runs.\nA cat.", ["Ein Hund.", "Eine Katze."], "Ein Hund. Eine Katze."),
]


@pytest.mark.parametrize("form", ["html", "plain"])
@pytest.mark.parametrize(("text", "said", "expected"), SPACED[:-1])
def test_sentences_without_spaces_between_them_get_one_in_a_language_with_spaces(form, text, said, expected):
    answers = iter(said)
    (marked,) = translate_documents([text], form, lambda lines: [answered(next(answers)) for _ in lines])
    assert marked.text == expected


@pytest.mark.parametrize(("text", "said"), [(text, said) for text, said, _ in SPACED])
def test_the_places_of_joined_answers_are_where_they_stand(text, said):
    parts, _ = stripped(bounded_sentences(text, sys.maxsize))
    joined, places = join(parts, said)
    assert [joined[place : place + len(one)] for place, one in zip(places, said, strict=True)] == said


def test_the_document_that_is_wrong_is_known():
    with pytest.raises(BadDocument) as error:
        translate_documents(["<a/>", "<b/>", "<c>"], "xml", upper)
    assert error.value.index == 2
