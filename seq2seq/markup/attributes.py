"""Attributes of tags, among them those that exclude an element from translation and those that name its language.

`tags` and `xml` read tags with this module; all formats but `plain` pass `LanguagePair` on to `tags`.
"""

import html
import re
from typing import NamedTuple

from seq2seq.languages import known_language, language_code
from seq2seq.text.writing import bcp47_tag

# Languages whose texts are also marked as each other.
ALIKE = tuple(map(frozenset, (("no", "nb", "nn"), ("sh", "sr", "hr", "bs"), ("id", "ms"))))
MOST_DIGITS = 8  # of a numeric entity; code points have at most 7
_DECIMAL = re.compile(r"&#([0-9]+)")
ATTRIBUTE = re.compile(r"""(?<![^\s/>="'])([^\s/>="']++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']++))""")


def unescape(text: str) -> str:
    """Return text with its entities as plain text; a number that is not a character becomes U+FFFD, as in browsers."""
    return html.unescape(_DECIMAL.sub(lambda match: f"&#{match[1].lstrip('0')[:MOST_DIGITS] or 0}", text))


def attributes(tag: str) -> dict[str, str]:
    """Return the attributes of a raw tag by their names in lower case, unescaped; the first of equal names counts."""
    found: dict[str, str] = {}
    for match in ATTRIBUTE.finditer(tag):
        found.setdefault(match[1].lower(), unescape(_value(match)))
    return found


def is_protected(tag: str) -> bool:
    """Whether the attributes of a tag exclude its content from translation."""
    if "translat" not in tag.lower():
        return False
    values = attributes(tag)
    is_kept = "no" in (values.get("translate", "").lower(), values.get("its:translate", "").lower())
    return is_kept or values.get("translatable") == "false" or "notranslate" in values.get("class", "").split()


class LanguagePair(NamedTuple):
    """The languages of a translation, with which attributes `lang` are compared.

    One rule decides what is translated and what gets another tag: an element in the source language, or in one that is
    marked as it (ALIKE).
    """

    source: str = ""
    """Any name of the source language; if it is empty, all is translated, and attributes stay."""
    target: str | None = None

    def is_other(self, tag: str) -> bool:
        """Whether a tag says that its content is in a known language other than the source."""
        if not self.source or "lang" not in tag.lower():
            return False
        values = attributes(tag)
        said = values.get("xml:lang") or values.get("lang", "")
        return all(map(known_language, (said, self.source))) and not self._is_source(said)

    def relabelled(self, tag: str) -> str:
        """Return a tag whose language attributes with the source language have that of the target; they are empty if
        the target is not known."""
        return ATTRIBUTE.sub(self._with_target, tag) if self.source and "lang" in tag.lower() else tag

    def _with_target(self, attribute: re.Match[str]) -> str:
        value, target = _value(attribute), bcp47_tag(self.target)
        if attribute[1].lower() not in ("lang", "xml:lang") or not value or not self._is_source(value):
            return attribute.group()
        if not target:
            return f'{attribute[1]}=""'
        begin = attribute.end(1) - attribute.start()
        return attribute.group()[:begin] + attribute.group()[begin:].replace(value, target)

    def _is_source(self, said: str) -> bool:
        both = {language_code(said), language_code(self.source)}
        return len(both) == 1 or any(both <= alike for alike in ALIKE)


UNKNOWN_LANGUAGES = LanguagePair()


def _value(attribute: re.Match[str]) -> str:
    return next((value for value in attribute.groups()[1:] if value is not None), "")
