"""The detection of lines whose sides do not belong together, by their lengths: translations of long lines are long.

`report` tests every corpus, and `tasks` the first lines of the training corpora. The test needs neither words nor
languages, so it also detects sides that were shuffled, sorted or reversed, from which `word_pairs` learns nothing. A
run of lines is `Unrelated` only if the learned words, if there are any, do not contradict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

# Lines that are judged together: at most WINDOW, and a fifth of a small corpus. Fewer than FEWEST_LINES are too few.
WINDOW, PARTS, FEWEST_LINES = 400, 5, 100
# Correlation of lengths below which lines do not belong together. Translations between English, German, French and
# Japanese have 0.47 to 0.94 in each window of 400 lines, and 0.28 to 0.98 in each of 100. Lines that were shuffled,
# sorted or reversed have at most 0.19 and, 99 of 100 times, at most 0.29.
LEAST_CORRELATION = 0.25
# The same if the words of the corpus match only by chance: captions have similar lengths every five lines.
DENIED_CORRELATION = 0.5
# Standard deviation of the changes of the log length from line to line below which lengths are no evidence, as in
# sorted corpora.
LEAST_SPREAD = 0.15


@dataclass(frozen=True)
class Unrelated:
    """A run of lines, `first` to `last` (from 1), whose two sides do not belong together."""

    first: int
    last: int


def log_lengths(lines: Sequence[str]) -> np.ndarray:
    """Return the logarithm of the number of characters of each line, (N,) float32."""
    return np.log(np.fromiter(map(len, lines), np.float32, len(lines)) + 2)


def find_unrelated(
    lengths: np.ndarray, misfits: np.ndarray | None, numbers: np.ndarray, words_deny: bool = False
) -> list[Unrelated] | None:
    """Return the runs of lines whose sides do not belong together; None if the lengths give too little evidence.

    Args:
        lengths: (2, N) float32, `log_lengths` of both sides.
        misfits: (N,) float32, log-odds against each pair by its words (`word_pairs`), if they were learned.
        numbers: (N,) line numbers in the file.
        words_deny: whether the words of the corpus match only by chance.
    """
    size, least = lengths.shape[1], DENIED_CORRELATION if words_deny else LEAST_CORRELATION
    count = max(1, size // min(max(size // PARTS, FEWEST_LINES), WINDOW))
    windows = pairwise(size * index // count for index in range(count + 1))
    judged = [(first, end, _correlation(np.diff(lengths[:, first:end]))) for first, end in windows]
    runs: list[tuple[int, int]] = []
    is_judged = False
    for is_odd, group in groupby(judged, key=lambda window: window[2] is None or window[2] < least):
        (first, _, correlation), *_ = run = list(group)
        end = run[-1][1]
        if all(window[2] is None for window in run):  # a side is sorted by length: compare its trend
            correlation = _correlation(lengths[:, first:end])
        is_judged |= correlation is not None
        words_agree = misfits is not None and misfits[first:end].mean() < 0
        if is_odd and correlation is not None and correlation < least and not words_agree:
            runs.append((first, end))
    return [Unrelated(int(numbers[first]), int(numbers[end - 1])) for first, end in runs] if is_judged else None


def _correlation(values: np.ndarray) -> float | None:
    """Return the correlation of two rows of values, such as the changes of lengths, which are free of trends.

    None if there are too few values or they hardly vary.
    """
    if values.shape[1] < FEWEST_LINES - 1 or values.std(axis=1).min() < LEAST_SPREAD:
        return None
    return float(np.corrcoef(values)[0, 1])
