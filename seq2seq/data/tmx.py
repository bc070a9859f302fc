"""Translation memories (TMX 1.1 to 1.4b) as a source of pairs, read as a stream; `sources` opens a `TmxFile`.

Each translation unit that has both languages is a pair; its other languages are ignored. Formatting codes inside a
segment (`bpt`, `ept`, `ph`, `it`, `ut`) are removed; the text of `hi` is kept. Declarations of entities are refused.
"""

import re
from collections.abc import Iterator
from html.entities import html5
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from seq2seq.data.columns import both_sides, heads_of
from seq2seq.data.examples import Chunk, Example, Pair, Position, Source
from seq2seq.data.file_facts import check_unchanged, combined_fingerprint, file_facts
from seq2seq.errors import DataError, shown, some_of
from seq2seq.languages import is_same_language, known_language, plain_name
from seq2seq.lines import DAMAGE, damaged, open_bytes

CHUNK_UNITS = 2000
BLOCK = 1 << 18
# Maximum bytes of one tag or comment, and characters of one segment; more is an error.
LONGEST_TOKEN, LONGEST_SEGMENT = 1 << 24, 1 << 20
MOST_SEGMENTS = 1000  # in one unit
CODES = {"bpt", "ept", "ph", "it", "ut"}
# Encoding declarations that do not apply, because the file is read as UTF-8.
_UTF16 = re.compile(rb"""\A\s*<\?xml[^>]*encoding\s*=\s*["'](?:utf-?16|ucs-?2)""", re.IGNORECASE)
_BREAK = re.compile(r"[^\S\xa0]*[\r\n]\s*")

Unit = list[tuple[str, str]]
"""The language and the text of each segment."""


class TmxFile(Source):
    """Pairs of a TMX file, plain or gzip, in the order of its units.

    Languages match by any of their names and codes (`de`, `DE-AT`, `ger`); equal spelling is preferred. Without names,
    the source language is that of the header, else that of the first segment, and the target language is the first
    other one. With one name, the other side has the only other language of the first unit that has the named one.

    Raises:
        DataError: the file is not TMX, is damaged, or has no unit with both languages.
    """

    invalid = ([],)
    size = None

    def __init__(self, path: Path, languages: tuple[str, str], weight: float, cache: Path | None):
        self.name, self.weight, self._path = str(path), weight, path
        self._facts = file_facts(path, cache)
        self._languages = languages if all(languages) else self._first_two(languages)
        seen: set[str] = set()
        for unit in self._units():
            if self._pair(unit):
                break
            seen.update(language for language, _ in unit)
        else:
            wanted, found = " and ".join(self._languages), some_of(sorted(seen - {""})) or "none"
            raise DataError(f"{path}: no translation unit has {wanted}; its languages are {found}")
        self.fingerprint = combined_fingerprint("tmx", self._facts.sha256, self._languages)

    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Read some units at a time; a position is their number."""
        number = start or 0
        units = islice(self._units(), number, None)
        while rows := [self._pair(unit) for unit in islice(units, CHUNK_UNITS)]:
            first, number = number + 1, number + len(rows)
            yield Chunk(rows, first, _examples, number)
        check_unchanged(self._path, self._facts)

    def _first_two(self, given: tuple[str, str]) -> tuple[str, str]:
        """Return the languages of the first unit that has several.

        If `given` has a language, it is the first unit that also has this language.

        Raises:
            DataError: there is no such unit, or its other language is not known.
        """
        reader, known = _Reader(self._path), "".join(given)
        for unit in reader.units():
            names = list(dict.fromkeys(language for language, _ in unit))
            if len(names) < 2 or (known and not any(_same(name, known) for name in names)):
                continue
            if not known:
                first = next((name for name in names if _same(name, reader.source_language)), names[0])
                return first, next(name for name in names if name != first)
            if (found := both_sides(given, names)) is None:
                problem = f"a translation unit has {some_of(names)}"
                raise DataError(f"{self._path}: {problem}; name the languages of source and target")
            return found
        wanted, remedy = "two languages", "give another file"
        if known:
            wanted, remedy = f"{shown(known)} and another language", "name languages that the file has"
        raise DataError(f"{self._path}: no translation unit has {wanted}; {remedy}")

    def _units(self) -> Iterator[Unit]:
        return _Reader(self._path).units()

    def _pair(self, unit: Unit) -> tuple[str, str] | None:
        texts: list[str] = []
        for wanted in self._languages:
            found = heads_of(wanted, [language for language, _ in unit])
            if not found or (_same(*self._languages) and plain_name(found[0]) != plain_name(wanted)):
                return None
            texts.append(next(text for language, text in unit if language == found[0]))
        return texts[0], texts[1]


def _examples(rows: list[tuple[str, str] | None], first: int) -> list[Example | None]:
    return [row and Pair(*row) for row in rows]


def _same(name: str, other: str) -> bool:
    return name.casefold() == other.casefold() or (known_language(name) is not None and is_same_language(name, other))


class _Reader:
    """One pass over a file; only a block and its units are in memory."""

    def __init__(self, path: Path):
        self._path, self.source_language = path, ""
        self._units: list[Unit] = []
        self._unit: Unit = []
        self._language = ""
        self._text: list[str] | None = None  # of the segment that is open
        self._length = self._codes = 0  # characters of it, and open formatting codes
        self._has_root = False

    def units(self) -> Iterator[Unit]:
        number = 0
        try:
            with open_bytes(self._path) as stream:
                for _ in self._parsed(stream):
                    number += len(self._units)
                    yield from self._units
                    self._units.clear()
        except DAMAGE as error:
            raise damaged(self._path, number, error) from error
        except (LookupError, ValueError) as error:
            raise self._error("its encoding cannot be read; convert it to UTF-8 (iconv -t UTF-8)") from error
        except expat.ExpatError as error:
            raise self._error(f"line {error.lineno:,}: {expat.ErrorString(error.code)}; export it again") from error

    def _parsed(self, stream: BinaryIO) -> Iterator[None]:
        """Feed the file to the parser, in growing blocks while a token is incomplete, so that the time is linear."""
        block = stream.read(BLOCK)
        parser = expat.ParserCreate("utf-8" if _UTF16.match(block) else None)
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler, parser.EntityDeclHandler = self._characters, self._refuse_entity
        parser.SkippedEntityHandler = self._entity
        size, place = BLOCK, 0
        while block:
            parser.Parse(block, False)
            yield
            size = BLOCK if parser.CurrentByteIndex > place else 2 * size
            place = parser.CurrentByteIndex
            if size > LONGEST_TOKEN:
                raise self._error(f"line {parser.CurrentLineNumber:,}: a tag or comment that does not end")
            block = stream.read(size)
        parser.Parse(b"", True)
        yield

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2].lower()
        if not self._has_root and name != "tmx":
            raise self._error(f"XML, but its first element is <{name[:40]}> instead of <tmx>")
        self._has_root = True
        if self._text is not None:
            self._codes += name in CODES
            if name == "ph":
                self._characters("\0")
            return
        match name:
            case "header":
                self.source_language = attributes.get("srclang", "")
            case "tu":
                self._unit = []
            case "tuv":
                self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            case "seg":
                self._text, self._length, self._codes = [], 0, 0

    def _end(self, name: str) -> None:
        name = name.rpartition(":")[2].lower()
        if name == "seg" and self._text is not None:
            text = re.sub(r"(?<=\w)\0+(?=\w)", " ", "".join(self._text)).replace("\0", "")
            if len(self._unit) == MOST_SEGMENTS:
                raise self._error(f"a translation unit with more than {MOST_SEGMENTS:,} segments; export it again")
            self._unit.append((self._language, _BREAK.sub(" ", text).strip()))
            self._text = None
        elif self._text is not None:
            self._codes -= name in CODES
        elif name == "tu":
            self._units.append(self._unit)

    def _characters(self, text: str) -> None:
        if self._text is None or (self._codes and text != "\0"):
            return
        self._length += len(text)
        if self._length > LONGEST_SEGMENT:
            raise self._error(f"a segment with more than {LONGEST_SEGMENT:,} characters; export it again")
        self._text.append(text)

    def _entity(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            if f"{name};" not in html5:
                raise self._error(f"the entity &{name[:40]}; is not defined; write the character itself")
            self._characters(html5[f"{name};"])

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise self._error(f"declares the entity {name[:40]}, which is not read; write the text itself")

    def _error(self, problem: str) -> DataError:
        return DataError(f"{self._path}: {problem}")
