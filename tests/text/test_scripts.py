"""Rules of scripts and languages: words, sentences and letter case over more than thirty of them."""

import unicodedata
from itertools import pairwise

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from seq2seq.evaluation.text import default_tokenizer, tokenizer_hint
from seq2seq.languages import language_code
from seq2seq.text.scripts import (
    SCRIPTS_WITHOUT_SPACES,
    UNSPACED,
    ends_in_word,
    folded,
    has_unspaced,
    is_small,
    lower,
    may_lack_spaces,
    title,
    upper,
)
from seq2seq.text.splitting import split_sentences, split_text
from seq2seq.text.words import word_spans

# Language: sentences, of which the first is also given as words; "|" separates both.
TEXTS = {
    "en": ("I don't know. | Is it Dr. Smith's T-shirt? | Yes!", "I|don't|know|."),
    "de": ("„Ja.“ | Am 3. Mai kam z. B. Frau Groß. | »Gut.« | Ende.", "„|Ja|.|“"),
    "fr": ("« Ça va ? » dit-il. | Oui.", "«|Ça|va|?|»|dit-il|."),
    "es": ("¿Qué hora es? | Son las tres.", "¿|Qué|hora|es|?"),
    "ca": ("La pel·lícula és nova. | Sí.", "La|pel·lícula|és|nova|."),
    "tr": ("İstanbul'da ışık var mı? | Evet.", "İstanbul'da|ışık|var|mı|?"),
    "el": ("Πού είναι; | Εδώ.", "Πού|είναι|;"),
    "ru": ("Где вокзал? | Там.", "Где|вокзал|?"),
    "ka": ("სად არის სადგური? | აქ.", "სად|არის|სადგური|?"),
    "hy": ("Ինչպե՞ս եք։ | Լավ։", "Ինչպե՞ս|եք|։"),
    "he": ("צה\"ל בא. | מה?", "צה\"ל|בא|."),
    "yi": ("װוּ איז דאָס? | דאָ.", "װוּ|איז|דאָס|?"),
    "ar": ("أين القِطَّةُ؟ | هنا.", "أين|القِطَّةُ|؟"),
    "fa": ("می‌روم خانه. | کجا؟", "می‌روم|خانه|."),
    "ur": ("یہ کتا ہے۔ | وہ دوڑتا ہے۔", "یہ|کتا|ہے|۔"),
    "hi": ("यह हिन्दी है। | डॉ. राम आए।", "यह|हिन्दी|है|।"),
    "mr": ("मी मराठी बोलतो. | हो.", "मी|मराठी|बोलतो|."),
    "ne": ("यो कुकुर हो। | ठीक छ।", "यो|कुकुर|हो|।"),
    "bn": ("এটা বাংলা। | কেন?", "এটা|বাংলা|।"),
    "pa": ("ਇਹ ਪੰਜਾਬੀ ਹੈ। | ਹਾਂ।", "ਇਹ|ਪੰਜਾਬੀ|ਹੈ|।"),
    "gu": ("આ ગુજરાતી છે. | હા.", "આ|ગુજરાતી|છે|."),
    "or": ("ଏହା ଓଡ଼ିଆ। | ହଁ।", "ଏହା|ଓଡ଼ିଆ|।"),
    "ta": ("இது தமிழ். | ஆம்.", "இது|தமிழ்|."),
    "te": ("ఇది తెలుగు. | అవును.", "ఇది|తెలుగు|."),
    "kn": ("ಇದು ಕನ್ನಡ. | ಹೌದು.", "ಇದು|ಕನ್ನಡ|."),
    "ml": ("അവന്‍ മലയാളം. | അതെ.", "അവന്‍|മലയാളം|."),
    "si": ("මෙය ශ්‍රී ලංකාව. | ඔව්.", "මෙය|ශ්‍රී|ලංකාව|."),
    "am": ("ይህ ውሻ ነው። | የት፧ | እዚህ።", "ይህ|ውሻ|ነው|።"),
    "th": ("สุนัขวิ่ง ผู้ชายนั่ง", "สุนัขวิ่ง|ผู้ชายนั่ง"),
    "lo": ("ໝາແລ່ນ ຄົນນັ່ງ", "ໝາແລ່ນ|ຄົນນັ່ງ"),
    "km": ("ឆ្កែរត់។ | មនុស្សអង្គុយ។", "ឆ្កែរត់|។"),
    "my": ("ဒါ၊ ခွေးပါ။ | ဟုတ်တယ်။", "ဒါ|၊|ခွေးပါ|။"),
    "bo": ("བཀྲ་ཤིས་བདེ་ལེགས། ། | ཨ་ནི།", "བཀྲ་ཤིས་བདེ་ལེགས|།|།"),
    "zh": ("他说：“好。” | 这是一只狗。| 是吗？", "他说|：|“|好|。|”"),
    "ja": ("「何？」と言った。 | 犬です！", "「|何|？|」|と言った|。"),
    "ko": ("이것은 개입니다. | 네.", "이것은|개입니다|."),
    "mn": ("ᠡᠨᠡ ᠨᠣᠬᠠᠢ᠃ | ᠲᠡᠢᠮᠦ᠃", "ᠡᠨᠡ|ᠨᠣᠬᠠᠢ|᠃"),
    "vi": ("Tôi là người Việt. | Vâng.", "Tôi|là|người|Việt|."),
    "emoji": ("Ja 👨‍👩‍👧 ❤️ 🇩🇪! | Gut.", "Ja|👨‍👩‍👧|❤️|🇩🇪|!"),
}  # fmt: skip
WITHOUT_SPACES = {"th", "lo", "km", "my", "bo", "zh", "ja"}
LETTERS = st.sampled_from(sorted({char for text, _ in TEXTS.values() for char in text} | {*"aé\u0301\u200b\r\n\t0."}))
MARK = regex.compile(r"\p{M}|\u200d")
ANY_TEXT = st.lists(LETTERS | st.sampled_from([". ", "。", "। ", "? »", " "]), max_size=60).map("".join)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("language", TEXTS)
def test_sentences_end_and_words_are_whole_in_every_script(language, form):
    sentences, words = (unicodedata.normalize(form, text) for text in TEXTS[language])
    parts = [part.strip() for part in sentences.split("|")]
    text = "".join(part + " " * (before == " ") for part, before in zip(parts, (*_ends(sentences), ""), strict=True))
    assert [part.strip() for part in split_sentences(text)] == parts
    assert [parts[0][begin:end] for begin, end in word_spans(parts[0], ())] == words.split("|")
    assert may_lack_spaces(text) == (language in WITHOUT_SPACES | {"ko"})
    assert has_unspaced(text) == (language in WITHOUT_SPACES)


def _ends(text: str) -> list[str]:
    """The character before each separator."""
    return [part[-1] for part in text.split("|")[:-1]]


@given(ANY_TEXT)
@example("“\u102b")  # a vowel sign that is not part of a grapheme cluster
def test_sentences_joined_are_the_text_and_words_cover_it(text):
    assert "".join(split_sentences(text)) == text
    spans = word_spans(text, ())
    assert "".join(text[begin:end] for begin, end in spans) == "".join(text.split())
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    words = [text[begin:end] for begin, end in spans]
    assert not [
        (word, text)
        for word, (begin, _) in zip(words, spans, strict=True)
        if begin and MARK.match(word) and not text[begin - 1].isspace()
    ]


@given(ANY_TEXT, st.integers(1, 20))
def test_long_texts_are_cut_between_characters(text, longest):
    parts = split_text(text, lambda part: len(part) <= longest)
    assert "".join(parts) == text
    if longest >= 16:
        assert not [part for part, after in pairwise(parts) if not part[-1].isspace() and MARK.match(after)]


@pytest.mark.parametrize("name", SCRIPTS_WITHOUT_SPACES)
def test_the_table_has_the_letters_of_each_script(name):
    letters = regex.compile(rf"(?V1)[\p{{Script={name}}}&&[\p{{L}}\p{{M}}\p{{Nd}}]]")
    ranges = regex.compile(f"[{UNSPACED}]")
    missing = [chr(code) for code in range(0x40000) if letters.match(chr(code)) and not ranges.match(chr(code))]
    assert not [char for char in missing if unicodedata.category(char) != "Cn"]


@pytest.mark.parametrize(
    ("language", "small", "capitals", "begun"),
    [
        ("en", "city's île", "CITY'S ÎLE", "City's île"),
        ("tr", "şehir ışık", "ŞEHİR IŞIK", "Şehir ışık"),
        ("tur_Latn", "istanbul", "İSTANBUL", "İstanbul"),
        ("az", "işıq", "İŞIQ", "İşıq"),
        ("de", "straße", "STRASSE", "Straße"),
        ("el", "αθήνα", "ΑΘΗΝΑ", "Αθήνα"),
        ("el", "μάιος", "ΜΑΪΟΣ", "Μάιος"),
        ("ell", "άσπρο ή μαύρο", "ΑΣΠΡΟ Ή ΜΑΥΡΟ", "Άσπρο ή μαύρο"),
        ("el", "ΐσως", "ΪΣΩΣ", "Ϊ́σως"),
        ("lt", "i\u0307\u0300", "\u00cc", "\u00cc"),
        ("nl", "ijs", "IJS", "IJs"),
        ("hy", "և", "ԵՎ", "Եվ"),
        ("hr", "ǆep", "ǄEP", "ǅep"),
        ("ka", "სადგური", "ᲡᲐᲓᲒᲣᲠᲘ", "სადგური"),
        ("hi", "हिन्दी", "हिन्दी", "हिन्दी"),
        ("es", "¿qué?", "¿QUÉ?", "¿Qué?"),
        ("en", "3rd", "3RD", "3rd"),
        (None, "ijs i", "IJS I", "Ijs i"),
    ],
)
def test_case_is_that_of_the_language(language, small, capitals, begun):
    assert upper(small, language) == capitals
    assert unicodedata.normalize("NFC", title(small, language)) == unicodedata.normalize("NFC", begun)
    assert folded(begun, language) == folded(small, language)


@pytest.mark.parametrize("language", TEXTS)
def test_words_end_in_words_and_sentences_do_not(language):
    first, *_, last = TEXTS[language][1].split("|")
    assert ends_in_word(unicodedata.normalize("NFD", first)) == (first[0].isalnum())
    assert ends_in_word(last) == (language in {"th", "lo"})


def test_small_letters_are_those_of_the_language():
    assert lower("IĞDIR İSTANBUL", "tr") == "ığdır istanbul"
    assert lower("ΟΔΟΣ", "el") == "οδος"
    assert lower("\u00cc", "lt") == "i\u0307\u0300"
    assert folded("ΟΔΟΣ", "el") == folded("οδος", "el")
    assert [is_small(char) for char in "aAაßक犬"] == [True, False, False, True, False, False]


TOKENIZERS = {
    "th": "char", "tha_Thai": "char", "lo": "char", "lao_Laoo": "char", "km": "char", "khm": "char", "my": "char",
    "mya_Mymr": "char", "bur": "char", "bo": "char", "tib": "char", "dz": "char", "dzo_Tibt": "char", "shn": "char",
    "jav_Java": "char", "jav_Latn": "13a", "pli_Thai": "char", "zh": "zh", "cmn_Hans": "zh", "zht": "zh", "lzh": "zh",
    "yue_Hant": "zh", "zho_Latn": "13a", "jpn_Latn": "13a", "hi": "13a", "ar": "13a", "am": "13a", "vi": "13a",
    "mn_Mong": "13a", "ka": "13a", "hy": "13a", None: "13a",
}  # fmt: skip


@pytest.mark.parametrize("language", TOKENIZERS)
def test_bleu_counts_characters_where_a_language_has_no_spaces(language):
    assert default_tokenizer(language) == TOKENIZERS[language]


def test_jap_is_japanese_and_scored_like_it():
    assert default_tokenizer("jap") == default_tokenizer("jpn") == default_tokenizer("ja") != "13a"


@pytest.mark.parametrize("language", TEXTS)
def test_a_text_without_spaces_is_hinted_at(language):
    lines = [TEXTS[language][0].replace("|", "")] * 3
    hint = tokenizer_hint(lines)
    assert (hint is not None) == (language in WITHOUT_SPACES | {"ko"})
    if hint is not None:
        wanted = {"zh": "zh", "ja": default_tokenizer("ja"), "ko": default_tokenizer("ko")}.get(language, "char")
        assert hint.endswith(f"--tokenize {wanted}")
        assert tokenizer_hint(lines, wanted) is None
        assert tokenizer_hint(lines, None, language) is None


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("ja", "jap jpn jp ja_JP"), ("zh", "zhs zht chs cht cmn_Hans cn"), ("he", "iw heb"), ("id", "in ind"),
        ("yi", "ji ydd"), ("nb", "nob nb_NO"), ("no", "nor"), ("sh", "hbs"), ("sr", "scc srp"), ("hr", "scr hrv"),
        ("ro", "mo mol rum"), ("jv", "jw jaw"), ("cs", "cz cze"), ("el", "gr gre"), ("uk", "ua ukr"), ("da", "dk"),
        ("vi", "vn"),
    ],
)  # fmt: skip
def test_withdrawn_and_wrong_codes_are_known(code, names):
    assert {language_code(name) for name in names.split()} == {code}
