"""Meaning of tags of HTML and XML for translation: block and inline elements, formatting, and attributes with text.

`html` and `xml` make `Lexeme`s; `build` gives them to a `Builder`, which makes segments of them.
"""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

from seq2seq.markup.attributes import ATTRIBUTE, UNKNOWN_LANGUAGES, LanguagePair, attributes, is_protected, unescape
from seq2seq.markup.document import Escape, Template
from seq2seq.markup.items import SPACE, Item, text_item
from seq2seq.markup.segments import Builder
from seq2seq.text.untranslatable import lacks_letters

# Elements that are not in BLOCKS are inline, as browsers treat unknown ones.


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


BLOCKS = _names(
    "address article aside base blockquote body button caption center col colgroup datalist dd details dialog dir div "
    "dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend "
    "li link main menu meta nav noscript ol optgroup option p param search section select source summary table tbody "
    "td template tfoot th thead title tr track ul "
    "para simpara listitem item note entry row sect1 sect2 sect3 trans-unit"
)
# Inline elements without identity; they may be repeated if a translation separates the words in them.
FORMATTING = _names(
    "b i u s em strong span small big sub sup font mark ins del strike cite q dfn bdi bdo abbr acronym "
    "bold italic emph emphasis hi"
)
# Elements that may be a part of a word.
IN_WORDS = _names("sup sub superscript subscript ruby rb rt rp")
SUPERSCRIPTS = _names("sup superscript")
LONGEST_MARK = 20  # in tags and texts: the most of a superscript that is copied
# Empty elements of XML that may be within a word: codes of XLIFF, and optional line breaks.
WITHIN_WORDS = _names("wbr x g bx ex ph it bpt ept sc ec")
# Elements of XML within a sentence whose text is not a part of it.
NOTES = _names("footnote indexterm fn text:note")
COPIED_BLOCKS = _names("pre textarea xmp listing plaintext programlisting screen")
COPIED_POINTS = _names("script style svg iframe object video audio canvas map applet noembed noframes")
COPIED_WORDS = _names("code kbd samp tt var math")
# Names among these with the same meaning in most kinds of XML.
COPIED_IN_XML = _names("code kbd samp tt pre programlisting screen script style math svg")
# Elements of HTML whose end tag may be omitted, and the tags that end them then.
_TABLE_PARTS = _names("tr thead tbody tfoot")
ENDED_BY = {
    "p": _names(
        "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure footer "
        "form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext pre search section table td "
        "th tr ul xmp"
    ),
    "li": _names("li"),
    **dict.fromkeys(("dt", "dd"), _names("dt dd")),
    **dict.fromkeys(("td", "th"), _TABLE_PARTS | {"td", "th"}),
    **dict.fromkeys(_TABLE_PARTS - {"tr"}, _TABLE_PARTS - {"tr"}),
    "tr": _TABLE_PARTS,
    "option": _names("option optgroup hr"),
    "optgroup": _names("optgroup hr"),
}
LISTS = _names("ul ol menu dir dl table select datalist")  # within them, such tags end elements of their own
EMPTY = _names("area base br col embed hr img input link meta param source track wbr")
# The last is white space that is content, in XML.
SEPARATING = frozenset({"br", "img", "input", "embed", "hr", " "})
TEXT_ATTRIBUTES = frozenset({"title", "alt", "placeholder", "aria-label", "aria-description"})
DESCRIPTIONS = frozenset({"description", "og:title", "og:description", "twitter:title", "twitter:description"})
LABELLED = frozenset({"optgroup", "option", "track"})
BUTTONS = frozenset({"submit", "button", "reset"})

ENTITY = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)")
LINE_END = r"(?:&#(?:0*1[03]|x0*[aAdD]);)+"  # character references, which are content where line ends are not
LINE_ENDS = re.compile(rf"({LINE_END}|\r\n?|\n)")
_NOT_BARE = re.compile("[\t\n\f\r =`]")
_VALUE_AT_END = re.compile(r"=\s*+[^\s\"'=<>`][^\s\"'>]*+>$")


def closes_itself(tag: str) -> bool:
    """Whether a raw tag of HTML ends in `/>`; the slash at the end of a value without quotes belongs to the value."""
    return tag.endswith("/>") and not _VALUE_AT_END.search(tag)


@dataclass(frozen=True)
class Lexeme:
    """A tag, a stretch of text, or other markup, as in the source."""

    kind: Literal["text", "open", "close", "empty", "other", "literal"]
    """literal: text without escapes, as in a CDATA section."""
    raw: str
    name: str = ""
    """Name of a tag, in lower case in HTML; of a literal, `xml.KEEPS_LINES` or empty."""


def escape_text(text: str) -> str:
    """Escape text between tags."""
    return html.escape(text, quote=False)


def escape_attribute(text: str) -> str:
    """Escape the value of an attribute in quotes of either kind."""
    return html.escape(text)


def escape_bare(text: str) -> str:
    """Escape the value of an attribute without quotes."""
    return _NOT_BARE.sub(lambda match: f"&#{ord(match.group())};", escape_attribute(text))


def build(
    builder: Builder, lexemes: Sequence[Lexeme], is_html: bool, languages: LanguagePair = UNKNOWN_LANGUAGES
) -> None:
    """Give lexemes to a builder; in HTML, attributes that contain text become segments. Elements in another language
    than the source are copied, and tags with the source language get the target language."""
    _Reader(builder, lexemes, is_html, languages).read()


class Elements:
    """The elements of lexemes, and where they end."""

    def __init__(self, lexemes: Sequence[Lexeme], is_html: bool):
        self._lexemes, self._is_html = lexemes, is_html
        self.ends = ends(lexemes)
        self.begins = {end: begin for begin, end in self.ends.items()}

    def after(self, index: int) -> int:
        """Return the index after the element that begins at an index.

        In HTML, end tags may be omitted: such an element ends where the next one of its kind begins, or where the
        element around it ends.
        """
        lexeme, end = self._lexemes[index], self.ends.get(index)
        enders = ENDED_BY.get(lexeme.name, frozenset()) if self._is_html else frozenset()
        if end is not None and not enders:
            return end + 1
        if end is None and lexeme.name not in BLOCKS | COPIED_BLOCKS:
            enders = BLOCKS
        lists = 0  # open lists and tables within the element
        for place in range(index + 1, len(self._lexemes)):
            name, kind = self._lexemes[place].name, self._lexemes[place].kind
            begin = self.begins.get(place, place)
            if place == end:
                return place + 1
            if begin < index or (lists == 0 and kind in ("open", "empty") and name in enders):
                return place
            lists += name in LISTS and (place in self.ends) - (index < begin < place)
        return len(self._lexemes)


class _Reader:
    """Reader of lexemes, which gives their items to a builder."""

    def __init__(
        self, builder: Builder, lexemes: Sequence[Lexeme], is_html: bool, languages: LanguagePair, is_note: bool = False
    ):
        self._builder, self._lexemes, self._is_html = builder, lexemes, is_html
        self._languages, self._is_note = languages, is_note
        self._elements = Elements(lexemes, is_html)

    def read(self) -> None:
        index = 0
        while index < len(self._lexemes):
            index = self._read(index)

    def _read(self, index: int) -> int:
        """Read a lexeme, or an element that is copied; return the index after it."""
        lexeme, builder = self._lexemes[index], self._builder
        if lexeme.kind == "text":
            builder.add(text_item(lexeme.raw, ENTITY, unescape))
        elif lexeme.kind in ("other", "literal"):
            builder.add(Item("piece" if lexeme.kind == "literal" else "point", (lexeme.raw,), name="code"))
        elif lexeme.kind == "close" and lexeme.name != "p" and index not in self._elements.begins:
            builder.add(
                Item("close", (lexeme.raw,), name=lexeme.name)
            )  # browsers ignore it, except </p>, which is an empty paragraph
        elif lexeme.kind == "close":
            self._put_tag(lexeme, (lexeme.raw,))
        elif how := copied(lexeme, self._is_html, self._languages):
            after = self._elements.after(index)
            raw = "".join(lexeme.raw for lexeme in self._lexemes[index:after])
            if how == "block":
                builder.cut((raw,))
            else:
                builder.add(Item("piece" if how == "word" else "point", (raw,), name="code", divides=how == "point"))
            return after
        elif (end := self._mark_end(index)) is not None:
            raw_tags = map(self._raw, self._lexemes[index : end + 1])
            builder.add(Item("point", tuple(chain.from_iterable(raw_tags)), name=lexeme.name, clings=True))
            return end + 1
        elif (end := self._note_end(index)) is not None:
            inner = self._lexemes[index + 1 : end]
            note = Builder(builder.escape)
            text = builder.part(note, lambda own: _Reader(own, inner, False, self._languages, is_note=True).read())
            raw_note = (*self._raw(lexeme), *text, self._lexemes[end].raw)
            builder.add(Item("point", raw_note, name=lexeme.name, clings=True))
            return end + 1
        elif lexeme.name == "br" and self._ends_line(index):
            builder.cut(self._raw(lexeme))
        else:
            self._put_tag(lexeme, self._raw(lexeme))
        return index + 1

    def _raw(self, lexeme: Lexeme) -> Template:
        """Return a lexeme as a template; in a tag of HTML, the texts of attributes are segments."""
        is_translated = self._is_html and lexeme.kind in ("open", "empty") and not _is_kept(lexeme, self._languages)
        changed = replace(lexeme, raw=relabelled(lexeme, self._languages))
        return self._with_texts(changed) if is_translated else (changed.raw,)

    def _mark_end(self, index: int) -> int | None:
        """Return the end tag of a superscript that is copied; None for other lexemes.

        Those are marks of notes and exponents: they have no letters, and are not the numerator of a fraction.
        """
        end = self._elements.ends.get(index)
        if end is None or self._lexemes[index].name.lower() not in SUPERSCRIPTS or end - index > LONGEST_MARK:
            return None
        text = "".join(unescape(one.raw) for one in self._lexemes[index:end] if one.kind in ("text", "literal"))
        following = self._lexemes[end + 1].raw if end + 1 < len(self._lexemes) else ""
        is_mark = text.strip() and lacks_letters(text) and not following.startswith(("/", "\u2044", "&frasl;"))
        return end if is_mark else None

    def _note_end(self, index: int) -> int | None:
        """Return the end tag of a note, whose text is translated apart; None for other lexemes. Notes in notes are
        text."""
        is_note = not self._is_html and not self._is_note and self._lexemes[index].name in NOTES
        return self._elements.ends.get(index) if is_note else None

    def _put_tag(self, lexeme: Lexeme, raw: Template) -> None:
        """Give a tag to the builder: a block ends the segment, an inline element is part of it."""
        name = lexeme.name.lower()
        if name in BLOCKS:
            self._builder.cut(raw)
            return
        is_boundary = divides(lexeme, self._is_html)
        if lexeme.kind == "empty":
            self._builder.add(Item("point", raw, name=name, separates=name in SEPARATING, divides=is_boundary))
            return
        kind: Literal["open", "close"] = "open" if lexeme.kind == "open" else "close"
        repeats, joins = may_repeat(lexeme), _joins(name)
        self._builder.add(Item(kind, raw, name=lexeme.name, repeats=repeats, divides=is_boundary, joins=joins))

    def _ends_line(self, index: int) -> bool:
        """Whether a line break also ends a sentence: the text after it does not begin in lower case."""
        for lexeme in islice(self._lexemes, index + 1, None):
            if lexeme.kind == "text":
                text = unescape(lexeme.raw).lstrip(SPACE)
                if text:
                    return not text[0].islower()
            elif lexeme.name.lower() == "br" or lexeme.name.lower() in BLOCKS:
                return True
        return True

    def _with_texts(self, lexeme: Lexeme) -> Template:
        """Return a tag whose attributes with text are segments."""
        names = set(TEXT_ATTRIBUTES)
        if lexeme.name in LABELLED:
            names.add("label")
        if lexeme.name in ("meta", "input"):
            values = attributes(lexeme.raw)
            if {values.get("name", "").lower(), values.get("property", "").lower()} & DESCRIPTIONS:
                names.add("content")
            if lexeme.name == "input" and values.get("type", "").lower() in BUTTONS:
                names.add("value")
        parts: list[Template] = []
        position = 0
        for match in ATTRIBUTE.finditer(lexeme.raw):
            group = next((group for group in (2, 3, 4) if match[group]), None)
            if match[1].lower() in names and group is not None:
                begin, end = match.span(group)
                parts += [
                    (lexeme.raw[position:begin],),
                    *self._lines(lexeme.raw[begin:end], escape_bare if group == 4 else escape_attribute),
                ]
                position = end
        return (*chain.from_iterable(parts), lexeme.raw[position:])

    def _lines(self, value: str, escape: Escape) -> Iterator[Template]:
        """Yield the raw value of an attribute; each line is a segment, because browsers show its line ends."""
        for number, part in enumerate(LINE_ENDS.split(value)):
            is_text = number % 2 == 0
            yield self._builder.within(text_item(part, ENTITY, unescape), escape) if is_text else (part,)


def may_repeat(lexeme: Lexeme) -> bool:
    """Whether the pair that a tag begins may be written more than once: formatting without an identifier."""
    return lexeme.name.lower() in FORMATTING and attributes(lexeme.raw).keys().isdisjoint(("id", "xml:id"))


def divides(lexeme: Lexeme, is_html: bool) -> bool:
    """Whether an element without content divides the words that it touches: not codes of XLIFF, and in HTML only with
    attributes, such as an icon."""
    name, found = lexeme.name.lower(), attributes(lexeme.raw)
    return name not in WITHIN_WORDS | IN_WORDS and found.get("break") != "no" and not (is_html and not found)


def _joins(name: str) -> Literal["", "words", "letters"]:
    """Return what an inline element joins to an element that it touches (`Item.joins`)."""
    if name in IN_WORDS:
        return "letters"
    return "" if name in FORMATTING and name != "span" else "words"


def ends(lexemes: Sequence[Lexeme]) -> dict[int, int]:
    """Return the index of the end tag of each element that has one; elements of other names do not matter."""
    opened: dict[str, list[int]] = {}
    found = {}
    for index, lexeme in enumerate(lexemes):
        if lexeme.kind == "open":
            opened.setdefault(lexeme.name, []).append(index)
        elif lexeme.kind == "close" and opened.get(lexeme.name):
            found[opened[lexeme.name].pop()] = index
    return found


def root_of(lexemes: Sequence[Lexeme]) -> int:
    """Return the index of the first element; -1 if there is none."""
    return next((index for index, lexeme in enumerate(lexemes) if lexeme.kind == "open"), -1)


def copied(lexeme: Lexeme, is_html: bool, languages: LanguagePair) -> Literal["block", "point", "word", ""]:
    """Return the role of an element that is not translated; empty for elements that are translated.

    An element in another language than the source is not translated. The language of a whole page does not count,
    because it is often wrong.
    """
    if lexeme.kind != "open":
        return ""
    name = lexeme.name.lower()
    if is_html or name in COPIED_IN_XML:
        if name in COPIED_BLOCKS:
            return "block"
        if name in COPIED_POINTS:
            return "point"
        if name in COPIED_WORDS:
            return "word"
    if not _is_kept(lexeme, languages):
        return ""
    return "block" if name in BLOCKS else "word"


def relabelled(lexeme: Lexeme, languages: LanguagePair) -> str:
    """Return a raw lexeme; a tag of a translated element with the source language gets the target language."""
    is_tag = lexeme.kind in ("open", "empty")
    return languages.relabelled(lexeme.raw) if is_tag and not _is_kept(lexeme, languages) else lexeme.raw


def _is_kept(lexeme: Lexeme, languages: LanguagePair) -> bool:
    """Whether the attributes of a tag exclude its texts from translation."""
    is_page = lexeme.name.lower() in ("html", "body")
    return is_protected(lexeme.raw) or (not is_page and languages.is_other(lexeme.raw))
