"""Rules of scripts and languages: spaces between words, words, letter case, sentence ends.

`words`, `splitting`, `glossary`, `untranslatable`, `markup`, `evaluation`, `inspection` and `data.noise` use them; no
other module has its own ranges of letters.
"""

import re
import unicodedata
from collections.abc import Callable

import regex

from seq2seq.languages import language_code

# Scripts that put no spaces between words, as ranges of a character class. Tibetan marks syllables, not words.
SCRIPTS_WITHOUT_SPACES = {
    "Thai": "\u0e01-\u0e3a\u0e40-\u0e5b",
    "Lao": "\u0e81-\u0edf",
    "Tibetan": "\u0f00-\u0fda",
    "Myanmar": "\u1000-\u109f\ua9e0-\ua9fe\uaa60-\uaa7f\U000116d0-\U000116e3",
    "Khmer": "\u1780-\u17f9\u19e0-\u19ff",
    "Tai_Le": "\u1950-\u1974",
    "New_Tai_Lue": "\u1980-\u19df",
    "Tai_Tham": "\u1a20-\u1aad",
    "Tai_Viet": "\uaa80-\uaadf",
    "Balinese": "\u1b00-\u1b7f",
    "Javanese": "\ua980-\ua9df",
    "Hiragana": "\u3031-\u3035\u3041-\u309f\U0001b001-\U0001b11f\U0001b123-\U0001b152",
    "Katakana": "\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b000\U0001b120-\U0001b168",
    "Bopomofo": "\u3105-\u312f\u31a0-\u31bf",
    "Han": "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3038-\u303c\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufad9"
    "\U00016fe2-\U00016ff6\U00020000-\U0003ffff",
    "Yi": "\ua000-\ua4c6",
}
UNSPACED = "".join(SCRIPTS_WITHOUT_SPACES.values())
# Punctuation of these scripts, wide forms, and Hangul, whose spaces are often omitted.
_WIDE = "\u1100-\u11ff\u3000-\u303f\u30fb\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uff00-\uffef"
_UNSPACED = re.compile(f"[{UNSPACED}]")
_RUN_ON = f"{UNSPACED}\u3000-\u303f\u30fb\uff00-\uffef"  # with punctuation
_RUNS_ON = re.compile(f"[{_RUN_ON}]")
_BEFORE_A_SPACE = regex.compile(rf"[^\s\p{{Ps}}\p{{Pi}}{_RUN_ON}]\Z")
_AFTER_A_SPACE = regex.compile(rf"[[\w\p{{Ps}}\p{{Pi}}\"'¿¡\ufffc]--[{_RUN_ON}]]", regex.V1)
_UNSPACED_OR_WIDE = re.compile(f"[{UNSPACED}{_WIDE}]")


def has_unspaced(text: str) -> bool:
    """Whether a text has a character of a script that is written without spaces."""
    return _UNSPACED.search(text) is not None


def runs_on(character: str) -> bool:
    """Whether a sentence may begin directly after or before this character: one of a script that is written without
    spaces, or of its punctuation."""
    return _RUNS_ON.fullmatch(character) is not None


def is_spaced(before: str, after: str) -> bool:
    """Whether a language with spaces writes one between these texts."""
    return _BEFORE_A_SPACE.search(before) is not None and _AFTER_A_SPACE.match(after) is not None


def count_wide(text: str) -> int:
    """Return the number of characters of scripts that need fewer of them than others, or that may lack spaces."""
    return 0 if text.isascii() else len(_UNSPACED_OR_WIDE.findall(text))


def may_lack_spaces(text: str) -> bool:
    """Whether at least half of a text is in scripts whose sentences may be one long run without white space."""
    return 2 * count_wide(text) >= len(text) > 0


# `regex` counts marks and joiners as letters (\w), `re` does not. These occur inside words: apostrophes, hyphens, the
# middle dot of Catalan, marks of Armenian and Hebrew, and invisible characters.
_INSIDE = r"['’\-‐‑·՚-՜՞־׳״\u00ad\u180e\u2060\ufeff\u061c\u200e\u200f]"
LETTERS = rf"[^\W{UNSPACED}]++(?:\p{{M}}++[^\W{UNSPACED}]*+)*+"
# The first alternative serves only speed. Any other mark is a word, with all its modifiers, such as those of emoji
# and vowel signs that \X leaves out.
WORD = regex.compile(
    r"[A-Za-z]++(?![\w'’\-‐‑·])"
    rf"|{LETTERS}(?:(?:{_INSIDE}|(?<=\p{{Hebrew}})\"(?=\p{{Hebrew}})){LETTERS})*+"
    rf"|(?:(?=[\w་༌])[{UNSPACED}][\p{{M}}\u200c\u200d]*+)++"
    r"|(?![\s\x1c-\x1f])\X\p{M}*+(?<!\s)|[^\s\x1c-\x1f]"
)
ASCII_WORD = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")

# Marks that end a sentence only before white space, and marks that end it anywhere (not Burmese and Javanese commas).
_BEFORE_SPACE = r"[.!?…‥․‼⁇⁈⁉‽⸮]|(?<=\p{Greek})[;;]|(?<=\p{Armenian}):|(?<=[\p{Devanagari}\p{Bengali}])\|"
_ALONE = r"[[\p{Sentence_Terminal}׃]--[.!?…‥․‼⁇⁈⁉‽⸮．၊꧈]]|．(?!\d)|(?<=\p{Ethiopic})::"
_MARK = rf"(?:{_ALONE}|{_BEFORE_SPACE})"
# Matches only at the start of a run of marks, so that a long run without a space after it is read once. In French a
# space comes before the closing quotation mark. In Japanese a quotation that is followed by "to" continues.
SENTENCE_END = regex.compile(
    rf"(?<!{_MARK}){_MARK}++[\p{{Pe}}\p{{Pf}}\p{{Quotation_Mark}}]*+(?:[\u00a0\u202f ][»›](?=\s))?\s++"
    rf"|[།-༒༔]++(?:\s*+[།-༒༔]++)*+\s*+"
    rf"|(?:{_ALONE})++(?![\p{{Pe}}\p{{Pf}}]++[とっ])[\p{{Pe}}\p{{Pf}}]*+\s*+",
    regex.VERSION1,
)
# Any mark that ends sentences.
SENTENCE_MARK = rf"(?:{_ALONE}|[.!?…‥․‼⁇⁈⁉‽⸮])"

DOTTED_I = frozenset({"tr", "az", "crh", "gag", "tt"})
# Languages whose case rules differ from Unicode's default.
OWN_CASE = DOTTED_I | {"el", "lt", "nl", "hy"}
# Japanese writes them together, and SentencePiece takes them as one script.
_HAN_AND_KANA = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
_DIPHTHONG = regex.compile(r"([αεοηωυΑΕΟΗΩΥ])[\u0300\u0301\u0342]([ιυΙΥ])(?![\u0300\u0301\u0308\u0342])")
_GREEK_ACCENTS = regex.compile(r"(?<=\p{Greek}\p{M}*)[\u0300\u0301\u0313\u0314\u0342]")
_GREEK_WORD = regex.compile(r"[\p{Greek}\p{M}]+")
_GREEK_OR = "η\u0301"  # the word for "or" keeps its accent in capitals
_DOT_OF_I = regex.compile(r"([ijIJ]\u0328?)\u0307")
_ACCENTED_I = regex.compile(r"([IJ]\u0328?)(?=[\u0300\u0301\u0303])")
_LETTERS_ALONE = regex.compile(r"(?:\p{L}[\p{M}\u200c\u200d]*+)++")
_FIRST_LETTER = regex.compile(r"\W*+(\p{L}\p{M}*+)")


def upper(text: str, language: str | None) -> str:
    """Return text in capitals, by the rules of its language: Turkish İ, Greek without accents, Armenian ԵՎ."""
    match language_code(language):
        case code if code in DOTTED_I:
            text = text.replace("i", "İ")
        case "el":
            text = _GREEK_WORD.sub(_upper_greek, text)
        case "lt":
            text = _in_parts(text, lambda parts: _DOT_OF_I.sub(r"\1", parts))
        case "hy":
            text = text.replace("և", "եվ")
    return text.upper()


def lower(text: str, language: str | None) -> str:
    """Return text in lower case, by the rules of its language: Turkish ı, Lithuanian i with a dot below its accent."""
    match language_code(language):
        case code if code in DOTTED_I:
            text = text.replace("I\u0307", "i").replace("İ", "i").replace("I", "ı")
        case "lt":
            text = _in_parts(text, lambda parts: _ACCENTED_I.sub("\\1\u0307", parts))
    return text.lower()


def title(text: str, language: str | None) -> str:
    """Return text with a capital first letter, unless a digit precedes it: Dutch IJ, Turkish İ, ǅ."""
    found = _FIRST_LETTER.match(text)
    if found is None:
        return text
    begin, end = found.span(1)
    code = language_code(language)
    if code == "nl" and text[begin : begin + 2] in ("ij", "íj"):
        return text[:begin] + text[begin : begin + 2].upper() + text[begin + 2 :]
    first, marks = text[begin], text[begin + 1 : end]
    if code in DOTTED_I:
        first = first.replace("i", "İ")
    elif code == "lt":
        marks = marks.replace("\u0307", "")
    elif code == "hy":
        first = first.replace("և", "եվ")
    return text[:begin] + first[:1].title() + first[1:] + marks + text[end:]


def folded(text: str, language: str | None) -> str:
    """Return text for case-insensitive comparison; it is equal for letters that the language considers equal."""
    code = language_code(language)
    if code in DOTTED_I:
        text = lower(text, language)
    elif code == "lt":
        text = _in_parts(text, lambda parts: _DOT_OF_I.sub(r"\1", parts))
    elif code == "hy":
        text = text.replace("և", "եվ")
    text = text.casefold()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def is_small(character: str) -> bool:
    """Whether a character is a small letter of a script in which sentences begin with a capital."""
    return character.islower() and character.title() != character


def is_word(text: str) -> bool:
    """Whether a text is letters with their marks alone."""
    return text.isalpha() or _LETTERS_ALONE.fullmatch(text) is not None


def ends_in_word(text: str) -> bool:
    """Whether the last character of a text is a letter, a mark or joiner of one, or a digit."""
    return text[-1:].isalnum() or regex.match(r"[\p{M}\u200c\u200d]", text[-1:]) is not None


def script_of(character: str) -> str | None:
    """Return a name of the script of a letter, as Unicode names its letters; Han and kana are one; None for others."""
    if unicodedata.category(character)[0] != "L":
        return None
    name = unicodedata.name(character, "").split(" ")[0]
    return "HAN" if name in _HAN_AND_KANA else name or None


def graphemes(text: str) -> list[str]:
    """Return the user-perceived characters: letters with their marks, emoji with their modifiers."""
    return list(text) if text.isascii() else regex.findall(r"\X", text)


def _upper_greek(word: regex.Match[str]) -> str:
    parts = unicodedata.normalize("NFD", word[0])
    if parts.lower() != _GREEK_OR:
        parts = _GREEK_ACCENTS.sub("", _DIPHTHONG.sub("\\1\\2\u0308", parts))
    return unicodedata.normalize("NFC", parts.upper())


def _in_parts(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the text with letters and marks decomposed (NFD), and compose the result (NFC)."""
    return unicodedata.normalize("NFC", change(unicodedata.normalize("NFD", text)))
