"""The lines of one side of a block, with what several checks look at: code points, words and hashes."""

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np

_WORD = re.compile(r"[^\W_]+")


class TextBlock:
    """Some thousands of lines, none of which holds a line feed."""

    def __init__(self, lines: Sequence[str]):
        self.lines = lines
        self.codes = np.frombuffer(("\n".join(lines) + "\n").encode("utf-32-le", "surrogatepass"), dtype="<u4")
        """The code points of all lines; each line ends with a line feed."""
        ends = np.flatnonzero(self.codes == ord("\n"))
        self.starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        """Where each line begins in `codes`."""
        self.lengths = ends - self.starts
        """Code points of each line."""

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def words(self) -> tuple[list[str], np.ndarray]:
        """The runs of letters and digits of all lines, and the line of each."""
        words = list(map(_WORD.findall, self.lines))
        return list(chain.from_iterable(words)), np.repeat(np.arange(len(words)), list(map(len, words)))


def line_hashes(lines: Sequence[str]) -> np.ndarray:
    """64 bits of each line, (N,) uint64."""
    digests = (hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest() for line in lines)
    return np.frombuffer(b"".join(digests), np.uint64)
