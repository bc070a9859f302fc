"""Many lines at once as arrays of code points: kinds of characters, and hashes of lines, words and n-grams.

`overlap` and `check` look at corpora through a `TextBlock`, because a loop over the characters of a million sentences
takes minutes where these arrays take seconds.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

# Flags of a character; a character may have several.
LETTER, DIGIT, SPACE, ODD_SPACE, CONTROL, UPPER, IDEOGRAPH = (1 << bit for bit in range(7))

SCRIPTS = (
    "none", "Latin", "Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Indic", "Thai", "Georgian", "Ethiopic",
    "Hangul", "Han or kana",
)  # fmt: skip
_SCRIPT_RANGES = (
    (0x41, 0x24F, 1), (0x1E00, 0x1EFF, 1), (0x2C60, 0x2C7F, 1), (0xA720, 0xA7FF, 1), (0xFF21, 0xFF5A, 1),
    (0x370, 0x3FF, 2), (0x1F00, 0x1FFF, 2), (0x400, 0x52F, 3), (0x1C80, 0x1C8F, 3), (0x531, 0x58F, 4),
    (0x590, 0x5FF, 5), (0xFB1D, 0xFB4F, 5), (0x600, 0x6FF, 6), (0x750, 0x77F, 6), (0xFB50, 0xFDFF, 6),
    (0xFE70, 0xFEFC, 6), (0x900, 0xDFF, 7), (0xE00, 0xEFF, 8), (0x10A0, 0x10FF, 9), (0x1200, 0x139F, 10),
    (0x1100, 0x11FF, 11), (0x3130, 0x318F, 11), (0xAC00, 0xD7AF, 11), (0x2E80, 0x2FDF, 12), (0x3005, 0x3007, 12),
    (0x3040, 0x30FF, 12), (0x3400, 0x4DBF, 12), (0x4E00, 0x9FFF, 12), (0xF900, 0xFAFF, 12), (0xFF66, 0xFF9F, 12),
    (0x20000, 0x3FFFF, 12),
)  # fmt: skip
CJK = 12
# Spaces that look like the ordinary one and are not. The wide space of Chinese and Japanese is no oddity there.
_ODD_SPACES = (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F)
# Line separators, marks of byte order and direction, and what takes no room; joiners are needed by some scripts.
_INVISIBLE = (0xAD, 0x85, 0x200B, 0x2028, 0x2029, 0x2060, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LAST_NAMED = 0x20000  # above it there are ideographs, and hardly anything else that corpora hold
_NUM_CODES = 0x110000
_NEWLINE = 10

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, hence invertible modulo 2^64
_BASE_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 2**64))


@dataclass(frozen=True)
class CharacterTables:
    """For every code point: its flags, its script, and what it becomes without case, width, punctuation and space."""

    flags: np.ndarray
    """uint8."""
    scripts: np.ndarray
    """uint8, index into SCRIPTS."""
    folded: np.ndarray
    """uint32: lower case, ordinary width; 0 where the character is left out."""


@cache
def tables() -> CharacterTables:
    """The tables, made once a process (0.2 s)."""
    flags, scripts = np.zeros(_NUM_CODES, np.uint8), np.zeros(_NUM_CODES, np.uint8)
    folded = np.zeros(_NUM_CODES, np.uint32)
    for code in range(_LAST_NAMED):
        flags[code], folded[code] = _look_up(chr(code))
    ideographs = np.arange(_LAST_NAMED, 0x40000, dtype=np.uint32)
    flags[ideographs], folded[ideographs] = LETTER, ideographs
    for first, last, script in _SCRIPT_RANGES:
        scripts[first : last + 1] = script
    scripts[(flags & LETTER) == 0] = 0
    flags[scripts == CJK] |= IDEOGRAPH
    flags[list(_ODD_SPACES)] |= ODD_SPACE
    flags[list(_INVISIBLE)] |= CONTROL
    return CharacterTables(flags, scripts, folded)


def _look_up(character: str) -> tuple[int, int]:
    category = unicodedata.category(character)
    if category[0] in "LM":
        upper = UPPER if category == "Lu" else 0
        return (LETTER if category[0] == "L" else 0) | upper, _fold(character)
    if category[0] == "N":
        return DIGIT, _fold(character)
    if category == "Zs" or character == "\t":
        return SPACE, 0
    return (CONTROL if category == "Cc" and character != "\n" else 0), 0


def _fold(character: str) -> int:
    wide = unicodedata.normalize("NFKC", character)
    lower = (wide if len(wide) == 1 else character).lower()
    return ord(lower[0]) if len(lower) == 1 else ord(character)


@dataclass(frozen=True)
class Segments:
    """Runs of code points: segment i is `codes[bounds[i] : bounds[i + 1]]`."""

    codes: np.ndarray
    """uint32."""
    bounds: np.ndarray
    """int64, one more than there are segments."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Code points of each segment."""
        return np.diff(self.bounds)

    @cached_property
    def _sums(self) -> np.ndarray:
        # Sums of code * BASE^position: a difference of two, divided by a power of BASE, depends on the text alone.
        values = mix(self.codes.astype(np.uint64) + np.uint64(1))
        values *= _powers(len(values))[0]
        return np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])

    def hashes(self, starts: np.ndarray | None = None, ends: np.ndarray | None = None) -> np.ndarray:
        """64 bits of each segment, or of each range of positions."""
        starts = self.bounds[:-1] if starts is None else starts
        ends = self.bounds[1:] if ends is None else ends
        return mix((self._sums[ends] - self._sums[starts]) * _powers(len(self.codes) + 1)[1][starts])

    def ngrams(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Hashes of all runs of `size` code points inside a segment, repeated ones too, and their segments."""
        if len(self.codes) < size:
            return np.zeros(0, np.uint64), np.zeros(0, np.int32)
        owners = np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)
        inside = owners[: len(owners) - size + 1] == owners[size - 1 :]
        hashes = self._sums[size:] - self._sums[:-size]
        hashes *= _powers(len(self.codes) + 1)[1][: len(hashes)]
        return mix(hashes[inside]), owners[: len(hashes)][inside]


class TextBlock:
    """Some thousands of lines, none of which holds a line feed."""

    def __init__(self, lines: Sequence[str]):
        self.lines = lines
        text = "\n".join(lines) + "\n"
        self.codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        ends = np.flatnonzero(self.codes == _NEWLINE)
        self.starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        self.ends = ends

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def lengths(self) -> np.ndarray:
        """Code points of each line."""
        return self.ends - self.starts

    @cached_property
    def flags(self) -> np.ndarray:
        """Flags of each code point; line ends have none."""
        return tables().flags[self.codes]

    @cached_property
    def scripts(self) -> np.ndarray:
        """Script of each code point, an index into SCRIPTS."""
        return tables().scripts[self.codes]

    def count(self, mask: np.ndarray) -> np.ndarray:
        """How many code points of each line the mask marks."""
        return np.add.reduceat(mask, self.starts, dtype=np.int32)

    def any(self, mask: np.ndarray) -> np.ndarray:
        """Lines with a code point that the mask marks."""
        return np.logical_or.reduceat(mask, self.starts)

    def has(self, flag: int) -> np.ndarray:
        """Lines with a character of this kind."""
        return self.any((self.flags & flag) != 0)

    @cached_property
    def whole(self) -> Segments:
        """The lines as they are, each with its line end."""
        return Segments(self.codes, np.append(self.starts, len(self.codes)))

    @cached_property
    def normalised(self) -> Segments:
        """The lines without case, width, punctuation and space."""
        folded = tables().folded[self.codes]
        kept = folded != 0
        return Segments(folded[kept], np.concatenate([[0], np.cumsum(self.count(kept), dtype=np.int64)]))

    @cached_property
    def words(self) -> tuple[np.ndarray, np.ndarray]:
        """First position and end of each run without spaces."""
        inside = (self.flags & SPACE == 0) & (self.codes != _NEWLINE)
        edges = np.diff(np.concatenate([[0], inside.view(np.int8), [0]]))
        return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)

    def lines_of(self, positions: np.ndarray) -> np.ndarray:
        """The line that each position stands in."""
        return np.searchsorted(self.ends, positions)


def mix(values: np.ndarray) -> np.ndarray:
    """Spread the information of 64-bit values over all their bits (the finaliser of splitmix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


_POWERS: list[np.ndarray] = [np.ones(1, np.uint64), np.ones(1, np.uint64)]


def _powers(count: int) -> list[np.ndarray]:
    """BASE^0, BASE^1, ... and their inverses, `count` of each, kept for the next call."""
    if len(_POWERS[0]) < count:
        for place, base in enumerate((_BASE, _BASE_INVERSE)):
            factors = np.full(1 << (count - 1).bit_length(), base)
            factors[0] = 1
            _POWERS[place] = np.cumprod(factors, dtype=np.uint64)
    return [powers[:count] for powers in _POWERS]
