"""What looks the same is read the same, and spans are those of the text as it was given."""

import sys
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.foreign_models import write_tokenizers

from seq2seq.config.schema import TokenizerConfig
from seq2seq.text.normalization import Normalizer, mapped, normalized
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.untranslatable import Untranslatable
from seq2seq.text.words import word_spans

TEXTS = [
    "Der Müller läuft, und die Bäckerin sieht zu.",
    'It\'s a re-built café - "old" files.',
    "हिन्दी की किताब",
    "각하",
]
ODD = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(
            "e\u0301\u0308\u0323\xa0\u200b\xad\ufeff\u200d\u200cﬁ！“”–…Ａｶﾞ\ufe0f\u1100\u1161\u11a8ſẛ ＇½①々"
        ),
    ),
    max_size=30,
)
# Each makes another spelling of a text, which looks like it.
VARIANTS = {
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "no-break space": lambda text: text.replace(" ", "\xa0"),
    "narrow no-break space": lambda text: text.replace(" ", "\u202f"),
    "thin space": lambda text: text.replace(" ", "\u2009"),
    "ideographic space": lambda text: text.replace(" ", "\u3000"),
    "zero-width space": lambda text: text.replace(" ", " \u200b"),
    "soft hyphen": lambda text: text[:2] + "\xad" + text[2:],
    "direction": lambda text: f"\u202a\u200e{text}\u202c\u200f",
    "isolates": lambda text: f"\u2068{text}\u2069",
    "byte order mark": lambda text: text.replace(" ", "\ufeff ") + "\ufeff",
    "word joiner": lambda text: text.replace(",", "\u2060,"),
    "control": lambda text: text.replace(" ", " \x00\x07"),
    "full width": lambda text: text.translate({ord(c): chr(ord(c) + 0xFEE0) for c in "!,.-AIDa"}),
    "ligature": lambda text: text.replace("fi", "ﬁ"),
    "curly quotes": lambda text: text.replace("'", "’").replace('"', "”"),
    "dashes": lambda text: text.replace("-", "\u2010"),
    "white space at the ends": lambda text: f"\t {text}\xa0 ",
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 10, TokenizerConfig(vocab_size=330), seed=1)


@pytest.fixture(scope="module")
def marian(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("marian")
    write_tokenizers(folder)
    return load_tokenizers(folder).source


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_looks_the_same_is_read_the_same(tokenizer, marian, variant):
    for one, texts in ((tokenizer, TEXTS), (marian, ["where is the station?", "it rains, and it rains!"])):
        for text in texts:
            other = VARIANTS[variant](text)
            assert one.read(other) == one.read(text), (text, other)
            ids, read, spans = one.read_spans(other)
            assert ids == one.read(text)
            assert all(0 <= begin <= end <= len(read.text) for begin, end in spans)


def test_what_differs_is_kept_apart(tokenizer):
    """The joiners of Indic scripts and emoji stay, and so does what the vocabulary has."""
    for one, other in (("क्‍ष", "क्ष"), ("می‌خواهم", "میخواهم"), ("a  b", "a b")):
        assert tokenizer.normalizer(one) != tokenizer.normalizer(other)
    quoting = Tokenizer.train(["“It’s” – ﬁne … ！ '\"-.fi!"] * 9, TokenizerConfig(vocab_size=290), seed=1)
    for text in ("“It’s”", "– ﬁne", "…", "！"):
        assert quoting.normalizer(text) == text


def test_digits_of_all_scripts_are_read_as_those_of_ascii_that_the_vocabulary_has(tokenizer):
    digits = [char for char in map(chr, range(sys.maxunicode + 1)) if char.isdecimal()]
    assert len(digits) > 600
    for form in (tokenizer.normalizer, Normalizer("abc")):
        assert [form(f"a {digit} b") for digit in digits] == [f"a {unicodedata.decimal(digit)} b" for digit in digits]
    assert Normalizer("٣0123")("٣٤२²") == "٣42²"


def test_a_letter_that_the_tokenizer_makes_small_is_known():
    settings = TokenizerConfig(vocab_size=330, normalization="nmt_nfkc_cf")
    tokenizer = Tokenizer.train([text.lower() for text in TEXTS] * 10, settings, seed=1)
    copies = Untranslatable(tokenizer)
    for text in ("WHERE IS THE DOG?", "I", "A dog", "ＤＯＧ"):
        assert not copies(text)
        assert copies.stretches(text) == [(text, False)]
    assert copies("你好")


def test_the_vocabulary_decides():
    plain = Normalizer("abcefghinostx'\"-.,!()12 ")
    assert plain("“ﬁnes” ’n – … ！（ｘ）") == '"fines" \'n - ... !(x)'
    assert Normalizer("e\u0301")("é") == "e\u0301"
    assert Normalizer("é")("e\u0301") == "é"
    assert Normalizer("abc")("Привет 你好 😀") == "Привет 你好 😀"


@settings(max_examples=300, deadline=None)
@given(text=ODD)
def test_normalising_twice_changes_nothing_and_spans_are_in_order(tokenizer, text):
    for form in (normalized, tokenizer.normalizer, Normalizer("abcfis'\"-.!")):
        found = mapped(text, form)
        assert found.text == form(text) == form(found.text)
        assert len(found.spans) == len(found.text)
        assert all(0 <= begin < end <= len(text) for begin, end in found.spans)
        assert found.spans == sorted(found.spans)
        assert [end for _, end in found.spans] == sorted(end for _, end in found.spans)
        # What a span holds is what its characters were made of.
        for begin, end in dict.fromkeys(found.spans):
            own = "".join(char for char, span in zip(found.text, found.spans, strict=True) if span == (begin, end))
            assert own in (form(text[begin:end]), form(text))


@given(text=st.text(st.characters(max_codepoint=126, min_codepoint=32)))
def test_plain_text_is_itself(tokenizer, text):
    assert normalized(text) is text
    assert tokenizer.normalizer(text) == text


def test_words_are_those_of_the_text_as_given():
    text = "Do\xadnau\xa0fließt \u200bschnel\u0301l"
    read = mapped(text)
    words = [text[slice(*read.original(word))] for word in word_spans(read.text, ())]
    assert words == ["Do\xadnau", "fließt", "schnel\u0301l"]


def test_training_text_is_normalised():
    forms = [TEXTS, [unicodedata.normalize("NFD", text).replace(" ", "\xa0") for text in TEXTS]]
    plain, odd = (Tokenizer.train(texts * 10, TokenizerConfig(vocab_size=320), seed=1) for texts in forms)
    assert plain.model_bytes == odd.model_bytes


@pytest.mark.parametrize("unit", ["e\u0301", "\u0301", "\u1100", "ﬁ\u200b", "\u1100\u1161", "a\u200b\u0301"])
def test_long_texts_take_linear_time(tokenizer, unit):
    def seconds(count: int) -> float:
        begun = time.process_time()
        mapped("a" + unit * count, tokenizer.normalizer)
        return time.process_time() - begun

    assert seconds(16_000) < 4 * 8 * max(seconds(2_000), 0.005)
