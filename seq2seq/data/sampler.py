"""The order of training: the composition of batches, and their order, for every rank and epoch.

`tasks` makes a sampler from the lengths of a corpus; `BatchStream` reads its plans. A plan is a pure function of
(seed, epoch, section), the stages and the number of ranks, so a run resumes at a position without replaying anything.
The epoch of a large corpus is planned in sections, random subsets of it, so that time and memory of a plan are bounded.
"""

import copy
import logging
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from seq2seq.data.shapes import ShapeTable
from seq2seq.data.stages import Stages
from seq2seq.errors import DataError

logger = logging.getLogger(__name__)

# Sources may be longer than targets: the budget of source tokens is this many times that of target tokens.
SOURCE_SLACK = 1.5
# Width, in tokens, of the noise on sort keys: neighbours change between epochs, at the cost of a little padding.
DIFFERENCE_NOISE = 1.5
# Width of the noise on the length of texts to classify. Texts of equal length are often of one kind (phrases,
# sentences), and batches of one kind reduce accuracy: on SST-2, one seed, 80.4 % without
# noise and 81.2 % with it (14 % padding).
TEXT_NOISE = 4
# Enough for batches with little padding, and few enough to be planned in half a second.
SECTION_EXAMPLES = 2**20

INDEX_BITS, LENGTH_BITS = 32, 16
LARGEST = 2**LENGTH_BITS - 1


class Lengths(Protocol):
    """The lengths of examples: an array, or an object that is indexed like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: np.ndarray, /) -> Any: ...


class TokenBudgetSampler:
    """Batches of similar lengths under a budget of padded tokens.

    A batch has at most `batch_tokens` target tokens and `SOURCE_SLACK` times as many source tokens, padding and special
    ids counted, and at most `batch_sentences` rows; an example that exceeds a budget alone is a batch of its own.
    Without target lengths (classification) `batch_tokens` counts source tokens.

    In a stage, an example of a part is seen floor(weight) times an epoch, and once more in a share of the epochs that
    equals the fraction of the weight. Without `stages`, each example is seen once.
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths | None,
        batch_tokens: int,
        *,
        batch_sentences: int | None = None,
        seed: int = 0,
        stages: Stages | None = None,
        rank: int = 0,
        world_size: int = 1,
    ):
        if len(source_lengths) == 0:
            raise DataError("the corpus has no examples; check its files and data.filters")
        if len(source_lengths) >= 2**INDEX_BITS:
            raise DataError(f"the corpus has {len(source_lengths)} examples; the most is {2**INDEX_BITS - 1}")
        self._source_lengths, self._target_lengths = source_lengths, target_lengths
        self._source_budget = batch_tokens if target_lengths is None else int(SOURCE_SLACK * batch_tokens)
        self._target_budget = batch_tokens
        self._most_rows = batch_sentences or len(source_lengths)
        self._stages = stages or Stages.of([(0, len(source_lengths), 1.0)])
        for index, stage in enumerate(self._stages.each):
            if max((stop - start) * weight for start, stop, weight in stage.parts) < 1:
                key = f"data.stages.{index}.weights" if self._stages.last else "data.train.weight"
                raise DataError(f"no example is seen in an epoch; raise {key}")
        self._num_sections = [max(1, math.ceil(stage.examples / SECTION_EXAMPLES)) for stage in self._stages.each]
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.table: ShapeTable | None = None
        self._latest: tuple[tuple[int, int], list[np.ndarray]] | None = None

    def shape_table(self) -> ShapeTable:
        """Return the shapes for this corpus and these budgets."""
        source, target = self._lengths(np.arange(len(self._source_lengths)))
        return ShapeTable.of(source, target, (self._source_budget, self._target_budget), self._most_rows)

    def with_table(self, table: ShapeTable) -> "TokenBudgetSampler":
        """Return the sampler whose batches have the shapes of `table`; every batch has examples of one shape."""
        other = copy.copy(self)
        other.table, other._latest = table, None
        return other

    def num_sections(self, epoch: int) -> int:
        """Return the number of sections of an epoch."""
        return self._num_sections[self._stages.at(epoch)]

    def plan(self, epoch: int, section: int = 0) -> list[np.ndarray]:
        """Return the batches of this rank in order, as arrays of corpus indices; every rank has the same number of
        batches."""
        return self._all_batches(epoch, section)[self.rank :: self.world_size]

    def moved_position(self, epoch: int, section: int, batch: int, world_size: int) -> int:
        """Return the position in `plan` that corresponds to the position `batch` of each of `world_size` other ranks.

        No example is skipped: if no step begins at the first example that no rank has seen, the one before it is taken.
        """
        other = copy.copy(self)
        other.world_size, other._latest = world_size, None
        # both are the same examples in the same order; only the borders of the last batches differ
        of_other, own = (
            np.cumsum([len(rows) for rows in sampler._all_batches(epoch, section)]) for sampler in (other, self)
        )
        seen = int(of_other[batch * world_size - 1]) if batch else 0
        steps = own[self.world_size - 1 :: self.world_size]
        moved = min(int(np.searchsorted(steps, seen, side="right")), len(steps) - 1)
        repeated = seen - (int(steps[moved - 1]) if moved else 0)
        logger.warning(
            "the run continues with %d ranks instead of %d%s",
            self.world_size,
            world_size,
            f"; {repeated:,} examples of this epoch are seen again" if repeated else "",
        )
        return moved

    def padding(self, epoch: int) -> float:
        """Return the share of padding in the batches of an epoch's first section, both sides together."""
        rows, source, target, tokens = self._sizes(self._all_batches(epoch, 0))
        slots = rows * source if self._target_lengths is None else rows * (source + target)
        return float(1.0 - tokens.sum() / slots.sum())

    def sorted_batches(self) -> list[np.ndarray]:
        """Return every example once, sorted by length, without randomness, for validation."""
        return self._fill(self._sort(np.arange(len(self._source_lengths), dtype=np.uint32), noise=None))

    def largest_batches(self) -> list[np.ndarray]:
        """Return the batches of the first section of each stage that need the most memory: by tokens with padding, and
        by attention weights (rows times length squared)."""
        starts = [int(self._stages.start(index)) for index in range(len(self._stages.each))]
        batches = [batch for epoch in reversed(starts) for batch in self._all_batches(epoch, 0)]
        rows, source, target, _ = self._sizes(batches)
        largest = [int(size.argmax()) for size in (rows * (source + target), rows * np.maximum(source, target) ** 2)]
        return [batches[index] for index in dict.fromkeys(largest)]

    def _all_batches(self, epoch: int, section: int) -> list[np.ndarray]:
        latest = self._latest  # the figures shown before training and training itself share the first plan
        if latest is None or latest[0] != (epoch, section):
            draw = np.random.default_rng([self.seed, epoch, 0, section])
            batches = self._fill(self._sort(self._examples(epoch, section, draw), noise=draw))
            batches = _even_out([batches[i] for i in draw.permutation(len(batches))], self.world_size)
            self._latest = latest = (epoch, section), batches
        return latest[1]

    def _examples(self, epoch: int, section: int, draw: np.random.Generator) -> np.ndarray:
        """Return the indices of a section in random order; over all sections, each index occurs as often as its weight
        requires."""
        passes: list[tuple[int, int, range | None]] = []  # over a part: start, size, and the range of a partial pass
        for start, stop, weight in self._stages.each[self._stages.at(epoch)].parts:
            whole, size = int(weight), stop - start
            first, last = (int((weight - whole) * size * turn) for turn in (epoch, epoch + 1))
            passes += [(start, size, None)] * whole + [(start, size, range(first, last))]
        sizes = [size if partial is None else len(partial) for _, size, partial in passes]
        ends = np.cumsum(sizes)
        slots = self._slots(int(ends[-1]), epoch, section)
        chosen = []
        of_passes = np.split(slots, np.searchsorted(slots, ends[:-1]))
        for (start, size, partial), begin, own in zip(passes, ends - sizes, of_passes, strict=True):
            if partial is None:
                chosen.append(own - begin + start)
            elif len(own):
                chosen.append(_spread(own - begin + partial.start, size) + start)
        examples = np.concatenate(chosen).astype(np.uint32)
        draw.shuffle(examples)
        return examples

    def _slots(self, total: int, epoch: int, section: int) -> np.ndarray:
        """Return the slots of a section among the `total` slots of an epoch, ascending: one drawn at random from each
        run of `num_sections` neighbours."""
        sections = self.num_sections(epoch)
        turn = np.random.default_rng([self.seed, epoch, 1]).integers(sections, size=-(-total // sections))
        slots = np.arange(len(turn)) * sections + (turn + section) % sections
        return slots[slots < total]

    def _sort(self, examples: np.ndarray, noise: np.random.Generator | None) -> np.ndarray:
        """Return `examples` sorted by the longer of the two lengths, and within it by the difference, in alternating
        order.

        Neighbours are thus similar on both sides. One 64-bit key contains both numbers and the index into `examples`.
        Keys are distinct, so the order is the same on every machine. Sorting them is several times faster than argsort.
        """
        source, target = self._lengths(examples)
        if self.table is not None:
            return examples[np.argsort(self.table.cells(source, target), kind="stable")].astype(np.int64)
        if noise is not None and self._target_lengths is None:
            source = source + noise.integers(0, TEXT_NOISE, len(examples), dtype=np.int32, endpoint=True)
            target = source
        major = np.minimum(np.maximum(source, target), LARGEST).astype(np.uint64)
        minor = 8 * (target - source) + LARGEST // 2  # in eighths, for the noise
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
        source, target, cells = self._widths(examples)
        # an upper bound for a batch that begins here: one of its sides is at least this long
        most_rows = np.clip(self._source_budget // np.maximum(source, target), 1, self._most_rows)
        batches, start = [], 0
        while start < len(examples):
            window = slice(start, start + int(most_rows[start]))
            rows = np.arange(1, len(source[window]) + 1)
            over = np.maximum.accumulate(target[window]) * rows > self._target_budget
            over |= np.maximum.accumulate(source[window]) * rows > self._source_budget
            over |= cells[window] != cells[start]
            size = max(1, int(over.argmax())) if over.any() else len(rows)
            batches.append(examples[start : start + size])
            start += size
        return batches

    def _widths(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the widths of both sides to which a batch pads each example alone, and the number of its shape."""
        source, target = self._lengths(examples)
        if self.table is None:
            return source, target, np.zeros(len(examples), np.int64)
        cells = self.table.cells(source, target)
        return *self.table.shapes(cells)[1:], cells

    def _lengths(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the lengths of both sides, (examples,) int32 each, with special ids: eos, or bos and eos for texts to
        classify."""
        specials = 2 if self._target_lengths is None else 1
        source = np.asarray(self._source_lengths[examples], dtype=np.int32) + specials
        if self._target_lengths is None:
            return source, source
        return source, np.asarray(self._target_lengths[examples], dtype=np.int32) + specials

    def _sizes(self, batches: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return, for each batch, rows, source width, target width, and tokens without padding."""
        rows = np.array([len(batch) for batch in batches])
        source, target = self._lengths(np.concatenate(batches))
        starts = np.cumsum(rows) - rows
        tokens = source if self._target_lengths is None else source + target
        source, target, _ = self._widths(np.concatenate(batches))
        widths = (np.maximum.reduceat(side, starts).astype(np.int64) for side in (source, target))
        return rows, *widths, np.add.reduceat(tokens, starts, dtype=np.int64)


def _even_out(batches: list[np.ndarray], world_size: int) -> list[np.ndarray]:
    """Split batches until their number is a multiple of the number of ranks.

    The last batches of the epoch are split, so that all others keep their index for any number of ranks. If every batch
    is a single example, the first batches are repeated instead.
    """
    missing = -len(batches) % world_size
    index = len(batches)
    while missing and any(len(batch) > 1 for batch in batches):
        index = (index or len(batches)) - 1
        if len(batches[index]) > 1:
            middle = len(batches[index]) // 2
            batches[index : index + 1] = [batches[index][:middle], batches[index][middle:]]
            missing -= 1
    return batches + [batches[i % len(batches)] for i in range(missing)]


def _spread(turns: np.ndarray, size: int) -> np.ndarray:
    """Return the entries at `turns` of an endlessly repeated permutation of `size` examples, whose stretches are spread
    evenly over the examples.

    Multiples of the golden ratio are the most even such order (Kronecker's sequence), and need no state.
    """
    step = int((math.sqrt(5) - 1) / 2 * size)
    while math.gcd(step, size) > 1:
        step += 1
    return (turns % size * step % size).astype(np.int64)
