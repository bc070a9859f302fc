"""Answers of models to texts of documents: every word in capitals, or nonsense."""

import random
from itertools import starmap

from seq2seq.markup.render import Answer
from seq2seq.text.alignment import Alignment, Link, Word
from seq2seq.text.words import word_spans

WORDS = ["a", "man", "rides", "his", "red", "bicycle", "through", "the", "old", "town", "and", "she", "waves", "Peter"]


def answered(text, source_words=(), words=(), links=()):
    alignment = Alignment(
        (0, 0), (0, len(text)), tuple(source_words), tuple(map(Word, words)), tuple(starmap(Link, links))
    )
    return Answer(text, alignment)


def upper(texts):
    """Every word in capitals, one by one: an identity that is seen."""
    answers = []
    for text in texts:
        words = word_spans(text, ())
        answers.append(answered(text.upper().replace("ß", "ß"), words, words, [(word, word, 0.9) for word in words]))
    return answers


class Nonsense:
    """Answers that have nothing to do with the text, with some of its words, and any links."""

    def __init__(self, seed: int, keeps: float):
        self._draw, self._keeps = random.Random(seed), keeps

    def __call__(self, texts):
        return [self._answer(text) for text in texts]

    def _answer(self, text: str) -> Answer:
        draw = self._draw
        own = [word for word in text.split() if draw.random() < self._keeps]
        words = [*own, *draw.choices([*WORDS, "<b>", "&amp;", "\ufffc", "*", "]]>", "{"], k=draw.randrange(8))]
        draw.shuffle(words)
        answer = " ".join(words)
        source, target = word_spans(text, ()), word_spans(answer, ())
        links = [
            (draw.choice(source), draw.choice(target), draw.random())
            for _ in range(draw.randrange(12))
            if source and target
        ]
        return answered(answer, source, target, links)
