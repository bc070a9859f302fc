"""Text that is not language comes back as it is, with a flag, at every door; text with a word is translated."""

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.foreign_models import SOURCE
from support.our_models import our_tokenizers
from support.serving import quick_model, serving

from seq2seq.config.schema import SearchConfig, TokenizerConfig
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.degeneration import LOST, SPLIT, repeats
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translator import Translator
from seq2seq.search.base import Hypothesis
from seq2seq.text.glossary import Glossary
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.text.untranslatable import VERBATIM, Untranslatable

NO_LANGUAGE = [
    "1", "2024", "12:30", "3.14", "-5 %", "1,234.56", "12.5 | 3,4 | 7", "01/02/2024", "2024-05-01", "10.30-11.45",
    "2024-05-01T12:30:00Z", "+49 (0)30 1234567", "€ 5.00", "192.168.0.1", "v1.2.3-rc1", "AB-1200", "1920x1080", "٣٤٥",
    "---", "...", "***", "—", "?!", "( )", "•", "→", "5 + 7 = 12", "[1]", "\u200b", "´",
    "😀", "👍🏽 👩‍👩‍👧 🇩🇪", "❤️", ":-)", "😀😀😀 !!!",
    "https://example.org/a", "http://a.b/?x=1&y=the", "www.example.org", "example.org/the/park", "(https://example.org)",
    "john@example.org", "<john.the@example.org>", "mailto:a@b.c", "@the_park", "/usr/local/the/", "C:\\the\\park",
    "the_park", "park.txt", "the_park.txt", "#the", "0x1F", "12°C – 15°C", "(#42)",
    "d41d8cd98f00b204e9800998ecf8427e", "550e8400-e29b-41d4-a716-446655440000", "2001:db8::1",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "Привет", "Привет, как дела?", "你好", "日本語の文章です。", "हिन्दी",
    "שלום", "안녕하세요", "ราม", "Ωμέγα 5", "Привет: https://example.org 12:30",
]  # fmt: skip
LANGUAGE = ["the", "a", "home", "two men.", "5 dogs", "a 3 dog", "the park: 12:30", "no one 2024", "where?"]
SIGNS = "€₹£¢≥×±¬∑→½²①〇ↂ𝋠°©№☃😀§‰†"
FORMS = ("html", "xml", "markdown", "plain")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return quick_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def translators(folder):
    return {engine: Translator.load(folder, engine=engine, threads=1) for engine in ("torch", "ctranslate2")}


@pytest.fixture(scope="module")
def aligner(folder):
    return Aligner.load(folder, device="cpu", threads=1)


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder) as served:
        yield served


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_lines_are_copied(translators, engine):
    for line, one in zip(NO_LANGUAGE, translators[engine].translate(NO_LANGUAGE), strict=True):
        assert (one.text, one.flags, one.score, one.alternatives) == (line, (VERBATIM,), 0.0, ())
    for line, one in zip(LANGUAGE, translators[engine].translate(LANGUAGE), strict=True):
        assert VERBATIM not in one.flags, line
        assert one.tokens > 0


def test_details_of_copies_are_links_to_themselves(translators, aligner, monkeypatch):
    translations = translators["torch"].translate(NO_LANGUAGE)
    monkeypatch.setattr(Aligner, "_forced", None)  # the model is not asked
    for line, explained in zip(NO_LANGUAGE, aligner.explain(translations), strict=True):
        (details,) = explained.details
        assert details.source == details.target == (0, len(line))
        assert [link.source for link in details.links] == list(details.source_words)
        assert all(link.source == link.target and link.weight == 1.0 for link in details.links)
        assert [word.span for word in details.words] == list(details.source_words)
        assert details.confidence is None


@pytest.mark.parametrize("form", FORMS)
def test_documents_are_copied(translators, aligner, form):
    texts = [text for text in NO_LANGUAGE if not set(text) & set("<>&*[]\\_`-\u200b")]
    start, end = {"markdown": ("", "\n\n"), "plain": ("", "\n")}.get(form, ("<p>", "</p>\n"))
    body = "".join(f"{start}{text}{end}" for text in texts)
    document = f"<r>{body}</r>" if form == "xml" else body
    marker = Pipeline(translators["torch"], aligner)
    assert marker.translate([document], form=form)[0].text == document
    for text in ("Привет", "12:30", "AB-1200", "john@example.org 5"):
        (one,) = marker.translate([f"{start}{text}{end}"], form=form)
        assert (one.text, one.flags) == (f"{start}{text}{end}", (VERBATIM,))
    (one,) = marker.translate([f"{start}the park, Привет{end}"], form=form)
    assert {VERBATIM} & set(one.flags)
    assert "Привет" in one.text


def test_http_copies(server):
    answer = server.ask("/v1/translate", {"text": NO_LANGUAGE, "details": ["alignment", "words", "confidence"]})
    for line, one in zip(NO_LANGUAGE, answer.json["translations"], strict=True):
        assert (one["text"], one["flags"]) == (line, [VERBATIM])
    spaced = "  12:30. Привет \n\t 5 "
    for split in ("lines", "sentences"):
        answer = server.ask("/v1/translate", {"text": spaced, "split": split})
        assert answer.json["translations"][0]["text"] == spaced
    for split in ("sentences", "none"):
        answer = server.ask("/v1/translate", {"text": NO_LANGUAGE, "split": split})
        assert [one["text"].strip() for one in answer.json["translations"]] == [line.strip() for line in NO_LANGUAGE]
    body = {"q": NO_LANGUAGE, "source": "en", "target": "de"}
    assert server.ask("/translate", body).json["translatedText"] == NO_LANGUAGE
    html = {**body, "q": "<p>Привет 😀</p>", "format": "html"}
    assert server.ask("/translate", html).json["translatedText"] == html["q"]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("the dog runs. 你好", ["你好"]),
        ("Привет! the dog runs.", ["Привет!"]),
        ("the dog runs 😀", ["😀"]),
        ("the dog runs (你好).", ["(你好)."]),
        ("the dog runs. Как дела? the cat sat.", ["Как дела?"]),
        ("你好, two men; 再见 👍", ["你好,", "再见 👍"]),
    ],
)
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_foreign_words_at_the_ends_of_sentences_are_copied(translators, aligner, line, kept, engine):
    (one,) = translators[engine].translate([f"  {line}\t"])
    assert {VERBATIM, SPLIT} <= set(one.flags)
    assert LOST not in one.flags
    copies = [part for part in one.parts if part.is_copied]
    assert [one.source[slice(*part.source)] for part in copies] == kept
    assert [one.text[slice(*part.target)] for part in copies] == kept
    assert one.text.startswith("  ")
    assert one.text.endswith("\t")
    details = aligner.explain([one])[0].details
    assert [part.source for part in details] == [part.source for part in one.parts]


@pytest.mark.parametrize("sign", ["你好", *SIGNS])
def test_foreign_words_and_signs_are_kept_or_flagged(translators, sign):
    """Signs of any kind that have a meaning alone are copied at the ends of a sentence."""
    lines = [f"the dog {sign} runs in the park", f"{sign} the dog runs", f"the dog runs {sign}", f"the dog 5{sign}."]
    within, *ends = translators["torch"].translate(lines)
    assert (sign in within.text) != (LOST in within.flags)
    assert VERBATIM not in within.flags
    for line, one in zip(lines[1:], ends, strict=True):
        assert (sign in one.text, VERBATIM in one.flags, LOST in one.flags) == (True, True, False), line


@pytest.mark.parametrize("mark", [*"“”‘’«»„‚…–—−¿¡·•、。", "٣", "१२", "５", "\u00ad", "\u200b", "\xa0"])
def test_marks_are_not_flagged_and_digits_are_read(translators, mark):
    """Languages write other marks, and the digits of all scripts are read as those of ASCII."""
    lines = [f"{before}the dog{mark} runs{after}" for before, after in (("", ""), (mark, ""), ("", mark))]
    for one in translators["torch"].translate(lines):
        assert not {LOST, VERBATIM, SPLIT} & set(one.flags)


def test_a_sign_that_the_vocabulary_has_is_no_word():
    """A foreign word next to it is still at the end of its sentence."""
    tokenizer = Tokenizer.train(["the dog costs € 5 ☃ no"] * 20, TokenizerConfig(vocab_size=280), seed=1)
    copies = Untranslatable(tokenizer)
    for sign in "€☃":
        assert not copies.foreign_words(f"the dog {sign} no")
        assert copies.stretches(f"the dog 你好 {sign}") == [("the dog ", False), (f"你好 {sign}", True)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([*NO_LANGUAGE, *LANGUAGE, *SOURCE]), min_size=1, max_size=5), st.sampled_from(" \t\xa0")
)
def test_stretches_are_the_text_and_foreign_words_are_nowhere_lost(text, space):
    line = space.join(text)
    judge = Untranslatable(our_tokenizers(shared=True).source)
    parts = judge.stretches(line)
    assert "".join(part for part, _ in parts) == line
    assert judge(line) == (parts == [(line, True)])
    assert all(one[1] != other[1] for one, other in pairwise(parts))
    if any(word in text for word in (*LANGUAGE, *SOURCE)):
        assert not judge(line)


class Echo:
    """An engine that answers with the source."""

    max_length = 64

    def translate(self, sentences, config):
        return [[Hypothesis(sentence.source_ids, -1.0, -0.1, True)] for sentence in sentences]


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["3 1 4 1 5", "9 2 6 5 3 5", "8 9 7 9", "0"], "3 1 4"),
        (["a b c d", "d c b a"], "c a"),
        (["A1 B2", "C3 A2"], "A1"),
    ],
)
def test_a_model_of_other_tokens_than_words_reads_them(texts, line):
    tokenizer = Tokenizer.train(texts * 20, TokenizerConfig(vocab_size=290), seed=1)
    translator = Translator(Echo(), TokenizerPair(tokenizer, tokenizer), SearchConfig())
    read, other = translator.translate([line, "你好"])
    assert (read.text, VERBATIM in read.flags) == (line, False)
    assert (other.text, other.flags) == ("你好", (VERBATIM,))


def test_a_term_in_a_copied_text_is_put_in(translators, aligner):
    glossary = Glossary.of(enumerate([["2024", "zwanzig"], ["Привет", "hallo"], ["дом", "haus"]]), "de", "terms")
    lines = ["2024", "Привет!", "2023", "Вот Привет. Дом, дом"]
    found = Pipeline(translators["torch"], aligner, glossary).translate(lines)
    assert [one.text for one in found] == ["zwanzig", "Hallo!", "2023", "Вот hallo. Haus, haus"]
    assert [[term.status for term in one.terms] for one in found] == [["forced"] * count for count in (1, 1, 0, 3)]


@pytest.mark.parametrize("place", ["{}", "the dog {} runs"])
@pytest.mark.parametrize("form", FORMS)
def test_a_term_that_is_an_address_or_a_code_is_put_in_documents_as_in_lines(translators, aligner, server, form, place):
    """Longer addresses and codes that contain it are copied."""
    codes = "example.org", "john@example.org", "@the_park", "#the", "park.txt", "AB-1200", "--colour", "/usr/local/the"
    rows = [[code, f"Wort{number}"] for number, code in enumerate(codes)]
    pipeline = Pipeline(translators["torch"], aligner, Glossary.of(enumerate(rows), "de", "terms"))
    start, end = ("", "\n") if form in ("plain", "markdown") else ("<p>", "</p>")
    lines = [place.format(code, code) for code in codes]
    documents = [f"{start}{line}{end}" for line in lines]

    def written(texts):
        unwritten = re.compile("[\x00-\x1f]" if form == "xml" else "(?!)")  # characters that XML does not have
        return [f"{start}{unwritten.sub(chr(0xFFFD), text)}{end}" for text in texts]

    in_lines, found = pipeline.translate(lines), pipeline.translate(documents, form=form)
    assert [one.text for one in found] == written(one.text for one in in_lines)
    assert not any(code in one.text for one, code in zip(in_lines, codes, strict=True))
    assert pipeline.statuses.total() == 2 * sum(len(one.terms) for one in in_lines) == 2 * len(codes) * place.count("{")
    asked = ({"text": texts, "glossary": {"entries": rows}, "format": kind}
             for texts, kind in ((lines, "text"), (documents, form)))  # fmt: skip
    texts, answers = ([one["text"] for one in server.ask("/v1/translate", each).json["translations"]] for each in asked)
    assert answers == written(texts)
    longer = [
        f"{start}{code}{end}" for code in ("https://example.org/a", "the.john@example.org", "/usr/local/the/home")
    ]
    assert [one.text for one in pipeline.translate(longer, form=form)] == longer


@pytest.mark.parametrize("form", FORMS)
def test_a_term_that_copies_an_address_is_a_piece_of_a_document(translators, aligner, form):
    pipeline = Pipeline(translators["torch"], aligner, Glossary.of([(1, ["example.org", "="])], "de", "terms"))
    text = "the dog example.org runs"
    (one,) = pipeline.translate([f"<p>{text}</p>" if form in ("html", "xml") else text], form=form)
    assert "example.org" in one.text
    assert not pipeline.statuses


@pytest.mark.parametrize("unit", ["x=1&", "12.5 | 3,4 | ", ".", "😀", "Привет ", "a.b@c.", "1.1", "ab:"])
def test_copies_with_details_take_linear_time_and_memory(translators, aligner, unit):
    def cost(count: int) -> float:
        begun = time.process_time()
        line = ("http://a.b/?" if unit == "x=1&" else "") + unit * count
        (one,) = translators["torch"].translate([line])
        assert one.flags == (VERBATIM,)
        details = aligner.explain([one])[0].details
        assert len(details[0].links) <= len(line)
        return time.process_time() - begun

    assert cost(8_000) < 4 * 8 * max(cost(1_000), 0.05)


def test_loops_are_found_in_any_script():
    looping = ["der der der der", "5 5 5 5", "Schräntttttt", "gerade, gerade, gerade, gerade,", "na na. " * 4,
               "哈哈哈哈",
               "ที่ที่ที่ที่", "a b c a b c a b c a b c", "bababababa", "Der der DER der Mann", "नहीं नहीं नहीं नहीं"]  # fmt: skip
    for text in looping:
        assert repeats(text), text
    for text in [
        "der der der",
        "10000",
        "Schifffahrt",
        "....",
        "-----",
        "1,000,000,000",
        "die, die die",
        "www.a.de",
        "",
    ]:
        assert not repeats(text), text


def test_a_second_search_repairs_a_loop_only_where_the_text_has_none_left():
    tokenizers = our_tokenizers(shared=True)
    ids = {text: tuple(tokenizers.target.encode(text)) for text in ("no no no no no", "no no no no", "no cat")}

    class Engine(Echo):
        second = "no cat"

        def translate(self, sentences, config):
            said = ids[self.second if config.no_repeat_ngram else "no no no no no"]
            return [[Hypothesis(said, -1.0, -0.1, True)] for _ in sentences]

    engine = Engine()
    translator = Translator(engine, tokenizers, SearchConfig())
    assert translator.translate(["the dog runs"])[0].flags == ("loop", "repaired")
    engine.second = "no no no no"
    assert translator.translate(["the dog runs"])[0].flags == ("loop",)
    assert translator.translate(["no no no no home"])[0].flags == ()


@pytest.mark.parametrize("ends", [("  ", "  "), ("\t", ""), ("", "\xa0"), ("\u3000", " \t")])
def test_white_space_at_the_ends_stays(translators, ends):
    for line in ("the cat sat on the mat", "12:30", "the dog. 你好"):
        plain, spaced = translators["torch"].translate([line, line.join(ends)])
        assert spaced.text == plain.text.join(ends)
        assert (spaced.flags, spaced.score) == (plain.flags, plain.score)
        begun = len(ends[0])
        assert [part.target[0] for part in spaced.parts] == [part.target[0] + begun for part in plain.parts]
    assert [one.text for one in translators["torch"].translate([" ", "\t\n", "12\r\n", "\x0c12\u2028"])] == [
        "",
        "",
        "12",
        "12",
    ]
