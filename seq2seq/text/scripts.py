"""Rules of scripts and languages: which scripts are written without spaces, what a word is, letter case, sentence ends.

`words`, `splitting`, `glossary`, `untranslatable`, `markup`, `evaluation`, `inspection` and `data.noise` ask here; no
other module has ranges of letters of its own.
"""

import re

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
    "\U00020000-\U0003ffff",
    "Yi": "\ua000-\ua4c6",
}
UNSPACED = "".join(SCRIPTS_WITHOUT_SPACES.values())
# Their punctuation, wide forms, and Hangul, whose spaces are often left out.
_WIDE = "\u1100-\u11ff\u3000-\u303f\u30fb\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uff00-\uffef"
_UNSPACED = re.compile(f"[{UNSPACED}]")
_UNSPACED_OR_WIDE = re.compile(f"[{UNSPACED}{_WIDE}]")


def has_unspaced(text: str) -> bool:
    """Whether a text has a character of a script that is written without spaces."""
    return _UNSPACED.search(text) is not None


def may_lack_spaces(text: str) -> bool:
    """Whether at least half of a text is in scripts whose sentences may be one long run without white space."""
    return 2 * len(_UNSPACED_OR_WIDE.findall(text)) >= len(text) > 0
