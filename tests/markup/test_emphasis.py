"""Emphasis of Markdown in translations: its signs depend on what is next to them, and must never become text."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.markup_answers import answered

from seq2seq.markup.translation import translate_documents
from seq2seq.text.words import word_spans

PUNCTUATED = ("word", "名", "他们", " ", " ", "“", "„", ": ", "：", "（", "）", ".", "。", "-", "'")


def seen(text: str) -> str:
    """Return what a reader of Markdown sees, without white space."""
    shown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    return "".join(html.unescape(re.sub("<[^>]*>", "", shown)).split())


@settings(deadline=None, max_examples=300)
@given(
    text=st.sampled_from(["one **two** three\n", "*“one”* two\n", "a ~~b: **c**~~ d\n", "__a [b](/u)__ *c* _d_\n"]),
    said=st.lists(st.sampled_from(PUNCTUATED), min_size=1, max_size=8).map("".join),
    draw=st.randoms(use_true_random=False),
)
def test_signs_of_emphasis_never_become_text(text, said, draw):
    def answer(texts):
        (one,) = texts
        source, target = word_spans(one, ()), word_spans(said, ())
        places = [(word, draw.choice(target), 0.9) for word in source if target]
        return [answered(said, source, target, places)]

    said = said.strip() or "word"  # as a `Translator` answers
    (marked,) = translate_documents([text], "markdown", answer)
    assert not set("*~_") & set(seen(marked.text))


ZH = [(0, 2, 0, 4), (2, 3, 4, 5), (3, 5, 6, 9), (5, 6, 10, 12)]


@pytest.mark.parametrize(
    ("text", "said", "links", "expected"),
    [
        ("**Note:** Tom is.\n", "注意：汤姆在", ZH, "**注意**：汤姆在\n"),
        ("he *says* yes\n", "er: „ja“", [(0, 2, 0, 2), (4, 5, 3, 7), (5, 7, 3, 7), (7, 8, 3, 7)], "er: „*ja*“\n"),
    ],
)
def test_emphasis_leaves_out_punctuation_that_would_break_it(text, said, links, expected):
    def answer(texts):
        words = [[*{link[:2] for link in links}], [*{link[2:] for link in links}]]
        source, target = sorted(words[1]), sorted(words[0])
        return [answered(said, source, target, [(link[2:], link[:2], 0.9) for link in links])]

    (marked,) = translate_documents([text], "markdown", answer)
    assert (marked.text, marked.sentences) == (expected, ((),))
