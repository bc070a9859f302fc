"""Recorded search: launches of a step and of the encoder are recorded once for each shape of a batch, and replayed.

The loop only replays, and reads every few steps which sentences are over. `TorchEngine` has one `RecordedSearch` where
steps are recorded; the searches that it cannot do, and all searches after a recording that failed, are those of
`search`, which also are the reference.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial

import torch

from seq2seq.config.schema import SearchConfig
from seq2seq.memory import is_out_of_memory, release
from seq2seq.recording import WARM_UPS, Recorder, Recording, differs, reason_of
from seq2seq.search.base import Hypothesis, Sentence, StepModel, length_limits
from seq2seq.search.loop import LateCopy
from seq2seq.search.search import search
from seq2seq.search.static import Shape, StaticBeams, StaticModel

logger = logging.getLogger(__name__)

# Shapes are multiples of these numbers.
SOURCE_WIDTH, TARGET_WIDTH = 16, 32
# Steps of a shape before it is recorded, so that rare shapes are not; and shapes that are kept.
ORDINARY_STEPS, MOST_SHAPES = 8, 16
# Searches of a shape before its encoder is recorded.
ORDINARY_ENCODINGS = 1
# Steps between two looks at which sentences are over.
LOOK_EVERY = 2
# Sentences that are over leave a batch of more sentences than this when they are half of it.
SMALLEST_LEFT = 16


def num_sentences_for(count: int) -> int:
    """Return the smallest number of a table, powers of two and 1.5 times them, that is at least `count`."""
    power = 1 << max(count - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


def obstacle(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> str:
    """Return why a search is not recorded, or ""."""
    obstacles = {
        "sampling": config.sample,
        "search.no_repeat_ngram": config.no_repeat_ngram > 0,
        "an ensemble": not hasattr(model, "static_step"),
        "prefixes": any(sentence.prefix or sentence.opening for sentence in sentences),
        "forbidden words": any(sentence.forbidden for sentence in sentences),
        "several first ids": any(len(sentence.start) > 1 for sentence in sentences),
    }
    return next((name for name, is_there in obstacles.items() if is_there), "")


class RecordedSearch:
    """Greedy and beam search with recorded steps, called like `search`.

    The first replay of each recording is compared with an ordinary step. If they differ, or recording fails, this and
    all further searches are ordinary, and a line of the log gives the reason. If memory is too small, the tensors of
    other shapes are released, and the search is tried once more. A search that cannot be recorded
    (`obstacle`) is ordinary; with `search.record: true`, the log names each obstacle once.
    """

    def __init__(self, recorder: Recorder):
        self._recorder: Recorder | None = recorder
        self._known: dict[Shape, _Steps] = {}  # the latest last
        self._latest: Shape | None = None  # the shape of the latest search
        self._named: set[str] = set()
        self._lock = threading.Lock()  # one search at a time uses the tensors

    @torch.inference_mode()
    def __call__(self, model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, as `search` does."""
        if not sentences or self._recorder is None:
            return search(model, sentences, config)
        if reason := obstacle(model, sentences, config):
            if reason not in self._named:
                self._named.add(reason)
                if config.record is True:
                    logger.info("searches with %s are not recorded", reason)
            return search(model, sentences, config)
        with self._lock:
            for is_last in (False, True):
                try:
                    return self._search(model, sentences, config)
                except (RuntimeError, MemoryError) as error:
                    problem, is_full = reason_of(error), is_out_of_memory(error)
                if is_last or not is_full or not self._known.keys() - {self._latest}:
                    break
                self._known.clear()  # the tensors of other shapes may take the room
                release()
            self._recorder = None
            self._known.clear()
            release()
        logger.warning("steps of searches are not recorded any more, ordinary ones continue: %s", problem)
        return search(model, sentences, config)

    def _search(
        self, model: StaticModel, sentences: Sequence[Sentence], config: SearchConfig
    ) -> list[list[Hypothesis]]:
        limits, results = length_limits(sentences, config, model.max_length), [[] for _ in sentences]
        steps = self._steps(model, _shape(model, sentences, config, max(limits)))
        steps.begin(self._recorder, model, sentences, limits, config)
        present = list(range(len(sentences)))  # sentences of the first rows
        looks: deque[LateCopy] = deque()

        def collect(rows: Sequence[int]) -> None:
            for row, hypotheses in zip(rows, steps.beams.results(rows, config), strict=True):
                results[present[row]] = hypotheses

        for position in range(max(limits)):
            if steps.is_due and 0 < position < max(limits) - WARM_UPS:
                steps.record(self._recorder, model, [sentences[index] for index in present], position)
            else:
                steps.advance()
            if position % LOOK_EVERY:
                continue
            looks.append(LateCopy(steps.beams.is_over.clone()))
            num_live = len(present) if len(looks) < 2 else int((~looks.popleft().read()).sum())
            if not num_live:
                break
            if len(present) > SMALLEST_LEFT and num_live <= len(present) // 2:
                is_over = steps.beams.is_over.tolist()
                collect([row for row in range(len(present)) if is_over[row]])
                live = [row for row in range(len(present)) if not is_over[row]]
                if not live:
                    return results
                before, present = steps.beams, [present[row] for row in live]
                steps = self._steps(model, before.shape._replace(num_sentences=num_sentences_for(len(live))))
                steps.beams.take(before, live)
                looks.clear()
        collect(range(len(present)))
        return results

    def _steps(self, model: StaticModel, shape: Shape) -> "_Steps":
        """Return the steps of a shape, and forget the shapes that were not used for the longest time."""
        self._latest = shape
        known = self._known.pop(shape, None) or _Steps(model, shape)
        self._known[shape] = known
        for old in list(self._known)[:-MOST_SHAPES]:
            del self._known[old]
        return known


def _shape(model: StaticModel, sentences: Sequence[Sentence], config: SearchConfig, limit: int) -> Shape:
    source = max(len(sentence.source_ids) for sentence in sentences) + model.source_specials
    widths = -(-source // SOURCE_WIDTH) * SOURCE_WIDTH, -(-limit // TARGET_WIDTH) * TARGET_WIDTH
    return Shape(num_sentences_for(len(sentences)), config.beam_size, *widths, config.renormalize, model.eos_id)


class _Steps:
    """The tensors of a shape, and the recordings of its encoder and its step as soon as there are some."""

    def __init__(self, model: StaticModel, shape: Shape):
        self.beams = StaticBeams(model, shape)
        self._encoding: Recording | None = None
        self._recording: Recording | None = None
        self._num_ordinary, self._num_encoded = 0, 0

    def begin(
        self,
        recorder: Recorder,
        model: StaticModel,
        sentences: Sequence[Sentence],
        limits: Sequence[int],
        config: SearchConfig,
    ) -> None:
        """Begin a search for sentences with these length limits.

        Raises:
            RuntimeError: as `record` does.
        """
        self.beams.load(model, sentences, limits, config)
        sources, cache = [sentence.source_ids for sentence in sentences], self.beams.cache
        if self._encoding is not None:
            model.read(sources, cache)
            self._encoding.replay()
            return
        model.load(sources, cache)
        if self._num_encoded >= ORDINARY_ENCODINGS:
            ordinary, bias = cache.cross.clone(), cache.bias.clone()  # (L, 2, B, H, S, K), (B, 1, 1, S)
            model.read(sources, cache)
            encoding = recorder.record(partial(model.encode_static, cache))
            for tensor in (cache.cross, cache.bias):  # so that a replay that does nothing is noticed
                tensor.zero_()
            encoding.replay()
            real, width = cache.mask[:, None, :, None], cache.mask.shape[1]  # (B, 1, S, 1)
            found, expected = (each[..., :width, :].where(real, 0.0) for each in (cache.cross, ordinary))
            if not torch.equal(cache.bias, bias) or differs(found, expected, model.precision):
                raise RuntimeError("keys and values of a recorded encoder differ from those of an ordinary one")
            self._encoding = encoding
        self._num_encoded += 1

    @property
    def is_due(self) -> bool:
        """Whether the next step should be recorded."""
        return self._recording is None and self._num_ordinary >= ORDINARY_STEPS

    def advance(self) -> None:
        """Do the next step."""
        if self._recording is not None:
            self._recording.replay()
        else:
            self.beams.step()
            self._num_ordinary += 1

    def record(self, recorder: Recorder, model: StaticModel, sentences: Sequence[Sentence], position: int) -> None:
        """Record the step at a position, do it, and compare it with an ordinary one.

        Raises:
            RuntimeError: its log-probabilities differ, or it cannot be recorded.
        """
        before = [tensor.clone() for tensor in self.beams.changing]
        recording = recorder.record(self.beams.step)
        for tensor, value in zip(self.beams.changing, before, strict=True):
            tensor.copy_(value)
        read = self.beams.inputs(position)[: len(sentences)]  # (B', N, t)
        recording.replay()
        state = model.start([sentence.source_ids for sentence in sentences], read.shape[1], position + 1)
        for ids in torch.from_numpy(read).to(model.device).flatten(0, 1).unbind(1):
            log_probs = model.step(ids, state)  # (B' * N, V)
        if differs(recording.outputs[0][: len(log_probs)], log_probs, model.precision):
            raise RuntimeError("log-probabilities of a recorded step differ from those of an ordinary step")
        recording.outputs = ()  # their memory may serve other recordings
        self._recording = recording
