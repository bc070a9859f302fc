"""The order of training: which examples make a batch, and which batch comes when, for every rank and epoch.

`tasks` makes a sampler from the lengths of a corpus, `BatchStream` reads its plans. A plan is a pure function of
(seed, epoch) and the number of ranks, so that a run goes on from a position without replaying anything.
"""

import logging
from collections.abc import Sequence

import numpy as np

from seq2seq.errors import DataError

logger = logging.getLogger(__name__)

# Sources may be longer than targets: a batch holds at most this many times its target budget in source tokens.
SOURCE_SLACK = 1.5
# Width, in tokens, of the noise on what is sorted: neighbours change between epochs, at the price of a little padding.
DIFFERENCE_NOISE = 1.5

INDEX_BITS, LENGTH_BITS = 32, 16
LARGEST = 2**LENGTH_BITS - 1


class TokenBudgetSampler:
    """Batches of similar lengths under a budget of padded tokens.

    A batch has at most `batch_tokens` target tokens and `SOURCE_SLACK` times as many source tokens, padding and special
    ids counted, and at most `batch_sentences` rows; only an example that is over the budget by itself is a batch of
    its own. Without target lengths (classification) the budget is one of source tokens.

    `parts` are (start, stop, weight) ranges of the corpus: an example is seen floor(weight) times an epoch, and once
    more in turns that make up the rest over the epochs.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray | None,
        batch_tokens: int,
        *,
        batch_sentences: int | None = None,
        seed: int = 0,
        parts: Sequence[tuple[int, int, float]] | None = None,
        rank: int = 0,
        world_size: int = 1,
    ):
        if len(source_lengths) == 0:
            raise DataError("the corpus has no examples; check its files and data.filters")
        if len(source_lengths) >= 2**INDEX_BITS:
            raise DataError(f"the corpus has {len(source_lengths)} examples; the most is {2**INDEX_BITS - 1}")
        specials = 2 if target_lengths is None else 1  # bos and eos around a text to classify, else eos
        self._source = np.asarray(source_lengths, dtype=np.int32) + specials
        self._target = self._source if target_lengths is None else np.asarray(target_lengths, dtype=np.int32) + 1
        self._source_budget = batch_tokens if target_lengths is None else int(SOURCE_SLACK * batch_tokens)
        self._target_budget = batch_tokens
        self._most_rows = batch_sentences or len(source_lengths)
        self._parts = list(parts or [(0, len(source_lengths), 1.0)])
        self.seed, self.rank, self.world_size = seed, rank, world_size

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The batches of this rank in their order, as arrays of corpus indices; every rank has equally many."""
        return self._all_batches(epoch)[self.rank :: self.world_size]

    def padding(self, epoch: int) -> float:
        """The share of padding among the slots of an epoch's batches, both sides together."""
        return self._padding_share(self._all_batches(epoch))

    def sorted_batches(self) -> list[np.ndarray]:
        """Every example once, by length, without chance: for validation."""
        return self._fill(self._sort(np.arange(len(self._source), dtype=np.uint32), noise=None))

    def largest_batches(self) -> list[np.ndarray]:
        """The batches that need the most memory: most slots, and most attention weights (rows times length squared)."""
        batches = self.sorted_batches()
        widths = np.array([(len(batch), self._source[batch].max(), self._target[batch].max()) for batch in batches])
        rows, source, target = widths.astype(np.int64).T
        places = [int(size.argmax()) for size in (rows * (source + target), rows * np.maximum(source, target) ** 2)]
        return [batches[place] for place in dict.fromkeys(places)]

    def _all_batches(self, epoch: int) -> list[np.ndarray]:
        draw = np.random.default_rng([self.seed, epoch])
        batches = self._fill(self._sort(self._examples(epoch, draw), noise=draw))
        batches = [batches[i] for i in draw.permutation(len(batches))]
        return _even_out(batches, self.world_size)

    def _examples(self, epoch: int, draw: np.random.Generator) -> np.ndarray:
        """The indices of an epoch in random order, each as often as its weight says."""
        chosen = []
        for number, (start, stop, weight) in enumerate(self._parts):
            whole, size = int(weight), stop - start
            chosen += [np.arange(start, stop, dtype=np.uint32)] * whole
            if weight > whole and size:
                turns = np.random.default_rng([self.seed, number, 1]).permutation(size)
                first, last = (int((weight - whole) * size * turn) for turn in (epoch, epoch + 1))
                chosen.append((start + turns[np.arange(first, last) % size]).astype(np.uint32))
        examples = np.concatenate(chosen)
        draw.shuffle(examples)
        return examples

    def _sort(self, examples: np.ndarray, noise: np.random.Generator | None) -> np.ndarray:
        """`examples` by the longer of the two lengths and, where it is equal, by the difference, up and down by turns.

        Sorting by one side leaves the other ragged; so neighbours are close on both. One 64-bit key holds both numbers
        and the place in `examples`: keys are distinct, so the order is the same on every machine, and numbers sort
        several times faster than indices.
        """
        source, target = self._source[examples], self._target[examples]
        major = np.minimum(np.maximum(source, target), LARGEST).astype(np.uint64)
        minor = 8 * (target - source) + LARGEST // 2  # eighths, so that the noise counts
        if noise is not None:
            minor += noise.integers(0, int(8 * DIFFERENCE_NOISE), len(examples), dtype=np.int32)
        minor = np.clip(minor, 0, LARGEST)
        minor = np.where(major % 2 == 0, minor, LARGEST - minor).astype(np.uint64)
        keys = (major << np.uint64(LENGTH_BITS + INDEX_BITS)) | (minor << np.uint64(INDEX_BITS))
        keys |= np.arange(len(examples), dtype=np.uint64)
        keys.sort()
        return examples[(keys & np.uint64(2**INDEX_BITS - 1)).astype(np.int64)].astype(np.int64)

    def _fill(self, examples: np.ndarray) -> list[np.ndarray]:
        """Cut sorted examples into batches, each as large as the budgets allow."""
        source, target = self._source[examples], self._target[examples]
        # no batch that begins here can have more rows: one of its sides is at least this long
        most_rows = np.clip(self._source_budget // np.maximum(source, target), 1, self._most_rows)
        batches, start = [], 0
        while start < len(examples):
            window = slice(start, start + int(most_rows[start]))
            rows = np.arange(1, len(source[window]) + 1)
            over = np.maximum.accumulate(target[window]) * rows > self._target_budget
            over |= np.maximum.accumulate(source[window]) * rows > self._source_budget
            size = max(1, int(over.argmax())) if over.any() else len(rows)
            batches.append(examples[start : start + size])
            start += size
        return batches

    def _padding_share(self, batches: Sequence[np.ndarray]) -> float:
        sides = (self._source,) if self._target is self._source else (self._source, self._target)
        slots = sum(len(batch) * int(side[batch].max()) for batch in batches for side in sides)
        tokens = sum(int(side[batch].sum()) for batch in batches for side in sides)
        return 1.0 - tokens / slots


def moved_position(batch: int, old_world_size: int, new_world_size: int) -> int:
    """Where an epoch goes on when the number of ranks changed: batches are dealt out in turns, whatever their number.

    Where the numbers do not divide, the last few batches are seen again rather than left out.
    """
    new_batch, repeated = divmod(batch * old_world_size, new_world_size)
    logger.warning(
        "the run goes on with %d ranks instead of %d%s",
        new_world_size,
        old_world_size,
        f"; {repeated} batches of this epoch are seen again" if repeated else "",
    )
    return new_batch


def _even_out(batches: list[np.ndarray], world_size: int) -> list[np.ndarray]:
    """Split batches until their number is a multiple of the ranks'.

    The last ones of the epoch are split, so that all others keep their place whatever the number of ranks. Where every
    batch is a single example, the first ones come again instead.
    """
    missing = -len(batches) % world_size
    place = len(batches)
    while missing and any(len(batch) > 1 for batch in batches):
        place = (place or len(batches)) - 1
        if len(batches[place]) > 1:
            middle = len(batches[place]) // 2
            batches[place : place + 1] = [batches[place][:middle], batches[place][middle:]]
            missing -= 1
    return batches + [batches[i % len(batches)] for i in range(missing)]
