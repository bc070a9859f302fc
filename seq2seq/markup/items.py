"""Items of a text with markup, which the parsers `tags`, `markdown` and `plain` give to the builder of `segments`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from re import Pattern
from typing import Literal

from seq2seq.markup.document import OBJECT, Template

# White space that formats fold; no-break spaces are kept.
SPACE = " \t\n\r\f"


@dataclass(frozen=True)
class Item:
    """A stretch of a text with markup: text, a tag, a protected piece, or other markup."""

    kind: Literal["text", "piece", "open", "close", "point", "stray", "deep"]
    """text, a protected piece, a tag that begins or ends a pair, or a standalone tag. Parsers do not know the last two,
    which the builder sets: a tag without a partner, and one of a pair that is nested deeper than MOST_LEVELS."""
    raw: Template
    text: str = ""
    """Content of a text, without escapes; empty for other kinds."""
    offsets: Sequence[int] | None = None
    """Place of each code point of `text`, and of its end, in `raw`; None if the two are equal."""
    name: str = ""
    """Name of a tag, or kind of a piece."""
    repeats: bool = False
    """Whether the pair may be written more than once (`Node.repeats`)."""
    separates: bool = False
    """Whether it is a word boundary without white space, such as <br>."""
    divides: bool = False
    """Whether it is a word boundary without white space where the script has spaces between words, such as an icon; of
    a pair, if it has no content."""
    joins: Literal["", "words", "letters"] = ""
    """The parts that meet at this tag if it touches another element: `words`, as at a link, or `letters` of one word,
    as at a superscript; empty for emphasis, which may be either."""
    clings: bool = False
    """Whether it stays with the word before it if it touches that (`Node.clings`)."""
    vanishes: bool = False
    """Whether the pair is omitted if it has no words (`Node.vanishes`)."""

    def part(self, begin: int, end: int) -> "Item":
        """Return a part of a text, by code points."""
        offsets = self.offsets or range(len(self.text) + 1)
        raw = "".join(map(str, self.raw))[offsets[begin] : offsets[end]]
        shifted = self.offsets and [offset - offsets[begin] for offset in offsets[begin : end + 1]]
        return replace(self, raw=(raw,), text=self.text[begin:end], offsets=shifted)

    @property
    def content(self) -> str:
        """Text that it contributes to its segment."""
        return OBJECT if self.kind == "piece" else self.text if self.kind == "text" else ""


def text_item(raw: str, escapes: Pattern[str] | None = None, unescape: Callable[[str], str] = str) -> Item:
    """Make an item of a text whose escapes, such as entities, match a pattern."""
    if escapes is None or not escapes.search(raw):
        return Item("text", (raw,), raw)
    text, offsets, position = [], [], 0
    for match in escapes.finditer(raw):
        text.append(raw[position : match.start()])
        offsets += range(position, match.start())
        said = unescape(match.group())
        text.append(said)
        same = _equal_end(match.group(), said)
        offsets += [match.start()] * (len(said) - same)
        offsets += range(match.end() - same, match.end())
        position = match.end()
    text.append(raw[position:])
    return Item("text", (raw,), "".join(text), [*offsets, *range(position, len(raw) + 1)])


def _equal_end(escape: str, said: str) -> int:
    """Return the number of characters at the end of a match that mean themselves: HTML reads `&nbspx` as a no-break
    space and `x`, and `&page=1` as it is."""
    if escape == said:
        return len(said)
    same = sum(takewhile(bool, map(str.__eq__, reversed(escape), reversed(said))))
    return same if same < len(said) else 0  # `&#59;` is one semicolon, not the one at its end
