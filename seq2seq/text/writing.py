"""Scripts of letters, and the scripts in which languages are written.

`identification` tells languages apart by them, and `inspection` finds lines in another script.
"""

import functools
import re
import unicodedata

from seq2seq.languages import known_language, own_code
from seq2seq.text.scripts import SCRIPTS_WITHOUT_SPACES

# The ISO 15924 codes of the scripts that are told apart. Chinese and Japanese share one, because most letters of both
# are Han.
_TAGS = {
    "Latin": "latn", "Greek": "grek", "Cyrillic": "cyrl", "Armenian": "armn", "Hebrew": "hebr", "Arabic": "arab aran",
    "Devanagari": "deva", "Bengali": "beng", "Gurmukhi": "guru", "Gujarati": "gujr", "Oriya": "orya", "Tamil": "taml",
    "Telugu": "telu", "Kannada": "knda", "Malayalam": "mlym", "Sinhala": "sinh", "Thai": "thai", "Lao": "laoo",
    "Tibetan": "tibt", "Myanmar": "mymr", "Georgian": "geor", "Ethiopic": "ethi", "Khmer": "khmr", "Mongolian": "mong",
    "Hangul": "hang kore", "Han or kana": "hani hans hant jpan hira kana",
}  # fmt: skip
# The languages of each script by their ISO 639-1 codes. Other languages with such a code are written in Latin script.
_LANGUAGES = {
    "Latin": "az bs kk ku ms sh sr tk tt uz", "Greek": "el", "Armenian": "hy", "Hebrew": "he yi",
    "Cyrillic": "ab av az ba be bg bs ce cu cv kk kv ky mk mn os ru sh sr tg tk tt uk uz",
    "Arabic": "ar az fa kk ks ku ms pa ps sd tg ug ur uz", "Devanagari": "hi ks mr ne pi sa sd", "Bengali": "as bn",
    "Gurmukhi": "pa", "Gujarati": "gu", "Oriya": "or", "Tamil": "ta", "Telugu": "te", "Kannada": "kn",
    "Malayalam": "ml", "Sinhala": "si", "Thai": "th", "Lao": "lo", "Tibetan": "bo dz", "Myanmar": "my",
    "Georgian": "ka", "Ethiopic": "am ti", "Khmer": "km", "Mongolian": "mn", "Hangul": "ko", "Han or kana": "ja zh",
    "other": "cr dv ii iu oj",
}  # fmt: skip
_BY_TAG = {tag: script for script, tags in _TAGS.items() for tag in tags.split()}
_BY_LANGUAGE = {
    code: frozenset(script for script, languages in _LANGUAGES.items() if code in languages.split())
    for languages in _LANGUAGES.values()
    for code in languages.split()
}
# Scripts by the first word of the Unicode names of their letters.
_BY_NAME = dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA"), "Han or kana") | {
    script.upper(): script for script in _TAGS if script != "Han or kana"
}
# The parts of names of Chinese that mean Simplified or Traditional letters.
_SIMPLIFIED, _TRADITIONAL = (
    frozenset({"hans", "cn", "sg", "zhs", "chs"}),
    frozenset({"hant", "tw", "hk", "mo", "zht", "cht"}),
)
_NO_HAN = re.compile("[^\u4e00-\u9fff]+")
UNSPACED_SCRIPTS = frozenset({"Han or kana", *SCRIPTS_WITHOUT_SPACES} & {*_TAGS})
_NAMES = {chr(ord("A") + index): name for index, name in enumerate(sorted(_TAGS))}
SCRIPT_CHARACTERS = {name: character for character, name in _NAMES.items()}
"""The character of each script in the result of `script_characters`."""


class _ScriptCodes(dict):
    """A table for `str.translate` that maps letters to a character for their script, and all else to space.

    It is filled when characters occur.
    """

    def __missing__(self, code: int) -> str:
        words = unicodedata.name(chr(code), "?").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ").split(" ")
        is_letter = unicodedata.category(chr(code))[0] == "L"
        self[code] = SCRIPT_CHARACTERS[_BY_NAME[words[0]]] if is_letter and words[0] in _BY_NAME else " "
        return self[code]


_CODES = _ScriptCodes()


def script_characters(text: str) -> str:
    """Return the text with one of `SCRIPT_CHARACTERS` in place of each letter, and a space for all else."""
    return text.translate(_CODES)


def scripts_of_letters(text: str) -> dict[str, int]:
    """Return the number of letters of each script, the most frequent first."""
    if text.isascii():
        count = sum(map(str.isalpha, text))
        return {"Latin": count} if count else {}
    codes = script_characters(text).replace(" ", "")
    counts = {_NAMES[code]: codes.count(code) for code in sorted(set(codes))}
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


def script_of(text: str) -> str | None:
    """Return the script of most letters; None without letters of a known script."""
    return next(iter(scripts_of_letters(text)), None)


@functools.lru_cache(maxsize=1024)
def scripts_of_language(name: str) -> frozenset[str]:
    """Return the scripts in which a language is usually written; empty if they are not known.

    Args:
        name: name or code of the language, with a script or without: `sr`, `srp_Cyrl`, `zh-Hant`.
    """
    for part in name.lower().replace("-", "_").split("_")[1:]:
        if part in _BY_TAG:
            return frozenset({_BY_TAG[part]})
    code = known_language(name)
    return _BY_LANGUAGE.get(code, frozenset({"Latin"})) if code else frozenset()


def is_in_traditional_letters(name: str) -> bool | None:
    """Whether a name of Chinese is that of Chinese in Traditional letters; None if it does not say in which letters."""
    parts = frozenset(name.lower().replace("-", "_").split("_"))
    return bool(parts & _TRADITIONAL) if parts & (_SIMPLIFIED | _TRADITIONAL) else None


def has_traditional_letters(text: str) -> bool:
    """Whether a Chinese text has more letters that are Traditional alone than letters that are Simplified alone.

    The charset Big5 has the Traditional letters, and GB 2312 the Simplified ones, each in two bytes.
    """
    letters = _NO_HAN.sub("", text)
    traditional, simplified = (len(letters.encode(charset, "ignore")) for charset in ("big5", "gb2312"))
    return traditional > simplified


def bcp47_tag(name: str | None) -> str:
    """Return the BCP 47 tag of a language, as attributes such as `lang` have it; empty if the language is not known.

    Args:
        name: name or code of the language: `German` and `deu_Latn` are `de`, `zho_Hant` is `zh-Hant`, `pt_BR` is
            `pt-BR`. A script is left out if the language has no other.
    """
    first, *parts = re.split("[-_]", (name or "").strip())
    code = known_language(name) or (first.lower() if re.fullmatch("[A-Za-z]{3}", first) else "")
    only = scripts_of_language(code) - {"Han or kana"}  # Hans and Hant are one script there
    scripts = [part.title() for part in parts if part.lower() in _BY_TAG and {_BY_TAG[part.lower()]} != only]
    regions = [part.upper() for part in parts if re.fullmatch("[A-Za-z]{2}|[0-9]{3}", part)]
    return "-".join([own_code(name), *scripts[:1], *regions[:1]]) if code else ""
