"""The language of a text among given ones, by script and py3langid: no false alarm, and what is never judged."""

import gzip
import itertools
import subprocess
import sys

import pytest

from seq2seq.interop.m2m_settings import TOKENIZERS
from seq2seq.languages import MEMBERS, is_same_language, own_code
from seq2seq.text.identification import LEAST_LETTERS, Identifier, _code, _weights
from seq2seq.text.writing import bcp47_tag, script_of, scripts_of_language

TEXTS = {
    "en": "Two dogs are playing with a ball in the snow.",
    "de": "Zwei Hunde spielen im Schnee mit einem Ball.",
    "fr": "Deux chiens jouent avec une balle dans la neige.",
    "ru": "Две собаки играют с мячом в снегу.",
    "ja": "二匹の犬が雪の中でボールで遊んでいる。",
    "el": "Δύο σκυλιά παίζουν με μια μπάλα στο χιόνι.",
}
CORPORA = {
    "en": ("multi30k/val.en", "tatoeba/valid.en", "small_enja/dev.en"), "de": ("multi30k/val.de", "tatoeba/valid.de"),
    "fr": ("multi30k/val.fr",), "ja": ("small_enja/dev.ja",),
}  # fmt: skip
MANY = "ar bg ca cs da el es et fi gl he hi hr hu id is it ko lt lv mk ms nb nl nn pl pt ro ru sk sl sr sv tr uk zh"


MODELS = {name: kind.codes.split() for name, kind in TOKENIZERS.items()}
# Texts in languages of which models have several names, some of them in another form or another language.
ALIKE = {
    "zho_Hans": "我住在北京，每天坐地铁上班。", "zho_Hant": "我住在北京，每天坐地鐵上班。",
    "arb_Arab": "يعيش الرجل في المدينة ويعمل في المستشفى كل يوم", "pes_Arab": "این مرد هر روز در بیمارستان کار می‌کند",
}  # fmt: skip
CANTONESE = "我哋喺香港住，佢今日唔使返工，嗰個嘢好靚。"


def num_letters(text: str) -> int:
    return sum(_weights(text).values())


@pytest.mark.parametrize("names", [["en", "de", "fr", "ru", "ja", "el"], ["eng_Latn", "deu_Latn", "fra_Latn"]])
def test_a_sentence_is_in_its_language_and_in_no_other(names):
    among = Identifier(names)
    texts = dict(zip(names, TEXTS.values(), strict=False))
    for name, text in texts.items():
        found = among.judged(text)
        assert found is not None
        assert found[0] == name
        assert found == among.ranked(text)[0] or found[1] == 1.0
        assert [other for other in names if among.is_other(text, other)] == [other for other in names if other != name]


def test_short_texts_and_other_languages_are_not_judged():
    among = Identifier(["en", "de"])
    for text in ("", "123 + 45 = 168", "Nein, danke.", TEXTS["fr"]):
        assert among.judged(text) is None
        assert not among.is_other(text, "en")
    assert num_letters(TEXTS["de"][:23]) < LEAST_LETTERS <= num_letters("二匹の犬が雪")
    assert among.ranked(TEXTS["fr"]) == []


def test_the_share_of_each_language_is_a_probability():
    for names in (["en", "de"], ["en", "de", *MANY.split()], ["ja", "zh", "ko"]):
        for text in TEXTS.values():
            shares = [share for _, share in Identifier(names).ranked(text)]
            assert shares == sorted(shares, reverse=True)
            assert sum(shares) <= 1 + 1e-6


def test_languages_that_the_library_does_not_know_are_judged_by_script_alone():
    among = Identifier(["ast", "es", "de", "ceb"])  # Asturian and Cebuano
    assert not among.is_other(TEXTS["de"], "ceb")
    assert among.is_other(TEXTS["de"], "es")
    asturian = Identifier(["ast_Latn", "spa_Latn"])
    assert asturian.is_other(TEXTS["ru"], "ast_Latn")
    assert not asturian.is_other("Dos perros juegan con una pelota en la nieve.", "ast_Latn")


@pytest.mark.parametrize("names", [*MODELS.values(), list(itertools.chain(*MODELS.values()))], ids=[*MODELS, "all"])
def test_a_language_comes_before_those_that_cannot_be_told_from_it(names):
    """The order of the names does not matter: no member is found, and the letters are those of the text."""
    groups: dict[tuple, set[str]] = {}
    for name in names:
        groups.setdefault((_code(name), scripts_of_language(name)), set()).add(own_code(name))
    alike = {code for (code, _), members in groups.items() if len(members) > 1}
    assert alike <= {*map(_code, ALIKE), "no"}  # `no` and `nb` are one language to the library
    known = {_code(name) for name in names}
    for (name, text), sign in itertools.product(ALIKE.items(), (1, -1)):
        if _code(name) in known:
            found = Identifier(names[::sign]).ranked(text)[0][0]
            assert _code(found) == _code(name)
            assert own_code(found) not in MEMBERS
            assert is_same_language(found, name) or not any(is_same_language(one, name) for one in names)
    if "yue_Hant" in names:
        assert Identifier(names).judged(CANTONESE)[0] == "yue_Hant"


def test_the_letters_of_a_text_decide_between_forms_of_chinese():
    forms = {"zho_Hans": "zh-CN", "zho_Hant": "zh_TW"}
    for names in itertools.permutations(["zh", *forms.values(), "yue", "en"], 4):
        for name, own in forms.items():
            found = Identifier(names).judged(ALIKE[name])[0]
            assert found == own if own in names else found not in ("yue", "en")


def test_members_without_their_macrolanguage_share_its_probability():
    """None of them is more than a guess, unless there is only one, or the letters or the library tell it."""
    among = Identifier(["arz", "acm_Arab", "en"])
    assert among.ranked(ALIKE["arb_Arab"]) == [("arz", pytest.approx(0.5)), ("acm_Arab", pytest.approx(0.5))]
    assert among.judged(ALIKE["arb_Arab"]) is None
    assert among.is_other(ALIKE["arb_Arab"], "en")
    assert not among.is_other(ALIKE["arb_Arab"], "arz")
    assert Identifier(["arz", "arz_Arab", "en"]).judged(ALIKE["arb_Arab"])[1] > 0.9
    assert Identifier(["wuu_Hans", "yue_Hant"]).judged(ALIKE["zho_Hans"])[0] == "wuu_Hans"
    assert Identifier(["nan_Hant", "yue_Hant"]).judged(CANTONESE)[0] == "yue_Hant"


def test_a_name_in_another_script_is_no_other_language():
    assert not Identifier(["ja"]).is_other("Microsoft Windows XPを使う", "ja")
    assert Identifier(["ja"]).is_other("I use Microsoft Windows XP.", "ja")


@pytest.mark.parametrize(
    ("name", "scripts"),
    [
        ("German", {"Latin"}), ("zho_Hant", {"Han or kana"}), ("sr", {"Latin", "Cyrillic"}), ("srp_Cyrl", {"Cyrillic"}),
        ("ace_Arab", {"Arabic"}), ("de_DE", {"Latin"}), ("xyz", set()), ("dv", {"other"}),
    ],
)  # fmt: skip
def test_the_scripts_of_a_language(name, scripts):
    assert scripts_of_language(name) == scripts


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("German", "de"), ("deu_Latn", "de"), ("de_DE", "de-DE"), ("pt_BR", "pt-BR"), ("es_419", "es-419"),
        ("zho_Hant", "zh-Hant"), ("cmn_Hans", "zh-Hans"), ("srp_Cyrl", "sr-Cyrl"), ("zh-Hant-TW", "zh-Hant-TW"),
        ("ast_Latn", "ast-Latn"), ("kab", "kab"), ("yue", "yue"), ("de_news", "de"), ("日本語", "ja"),
        ("Klingonisch", ""), ("xx", ""), ("?", ""), ("", ""), (None, ""),
    ],
)  # fmt: skip
def test_the_tag_of_a_language_in_a_page(name, tag):
    assert bcp47_tag(name) == tag


def test_the_script_of_most_letters():
    scripts = {"en": "Latin", "de": "Latin", "fr": "Latin", "ru": "Cyrillic", "ja": "Han or kana", "el": "Greek"}
    assert {name: script_of(text) for name, text in TEXTS.items()} == scripts
    assert script_of("12 %") is None


def test_one_language_and_other_scripts_need_no_library():
    code = (
        "import sys; from seq2seq.text.identification import Identifier\n"
        f"texts = {list(TEXTS.values())!r}\n"
        "for names in (['de'], ['en', 'ru', 'ja']):\n"
        "    assert any(Identifier(names).is_other(text, names[0]) for text in texts)\n"
        "assert 'py3langid' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("names", [["en", "de"], ["en", "de", "fr", "ja"], ["en", "de", "fr", "ja", *MANY.split()]])
def test_no_line_of_a_real_corpus_is_in_another_language(names, real_data):
    among = Identifier(names)
    for language in set(names) & CORPORA.keys():
        files = [gzip.open(real_data / f"{name}.gz", "rt", encoding="utf-8") for name in CORPORA[language]]
        lines = [line.strip() for file in files for line in file]
        assert [line for line in lines if among.is_other(line, language)] == []
        other = "en" if language == "de" else "de"
        long = [line for line in lines if num_letters(line) >= LEAST_LETTERS]
        assert sum(among.is_other(line, other) for line in long) >= 0.93 * len(long)
