"""The loop that all searches share: score, apply the rules, choose, store the results of finished sentences, reorder.

The chosen ids stay on the device, where the next step needs them; the data for the results are read once per step.
Shapes as in `base`; T is the longest length limit, t ids so far.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from seq2seq.config.schema import SearchConfig
from seq2seq.runtime import on_cpu
from seq2seq.search.base import Hypothesis, Sentence, StepModel, length_limits, normalized_score
from seq2seq.search.rules import Rules, on_device

# Finished sentences leave the batch when they are this share of it, because each time the rest is copied.
LEAVING_SHARE = 0.1


class LateCopy:
    """A copy of a tensor on the host, which is read later, so that the copy itself waits for nothing."""

    def __init__(self, values: Tensor):
        self._copied: torch.cuda.Event | None = None
        if values.is_cuda:
            values, self._copied = values.to("cpu", non_blocking=True), torch.cuda.Event()
            self._copied.record()
        self._values = values.cpu()

    def read(self) -> np.ndarray:
        """Wait until the values have arrived, and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._values.numpy()


class SearchLoop(ABC):
    """N rows of each sentence, extended until every sentence is over. A search implements `advance` and `read`."""

    def __init__(self, model: StepModel, sentences: Sequence[Sentence], config: SearchConfig, num_rows: int):
        self.config, self.eos_id, self.vocab_size = config, model.eos_id, model.vocab_size
        self.limits = length_limits(sentences, config, model.max_length)
        self.results: list[list[Hypothesis]] = [[] for _ in sentences]
        """Hypotheses of each sentence; empty until it is over."""
        self.sentences = list(range(len(sentences)))
        """Indices of the B sentences that are still in the batch."""
        self.ids = np.empty((len(sentences), num_rows, 0), np.int32)
        """(B, N, t), the ids that have been read from the device."""
        self.history = torch.full((len(sentences), num_rows, 1 + max(self.limits)), model.start_id, device=model.device)
        """(B, N, 1 + T) on the device: the last id of the start, and the chosen ids up to `_position`."""
        self._position = 0
        self._unread: deque[tuple[list[int], LateCopy]] = deque()
        self._model, self._rules = model, Rules(model, sentences, config, num_rows)
        most = max(self.limits) + max(len(sentences[0].start) - 1, 0)
        self._state = model.start([sentence.source_ids for sentence in sentences], num_rows, most)
        if any(sentence.start for sentence in sentences):
            self._read_starts(sentences)

    def run(self) -> list[list[Hypothesis]]:
        """Run the search and return the hypotheses of each sentence."""
        while self.sentences:
            log_probs = self._model.step(self.history[:, :, self._position].flatten(), self._state)  # (R, V)
            log_probs = self._rules.apply(log_probs, self.history[:, :, 1 : self._position + 1].flatten(0, 1))
            ids, parents = self.advance(log_probs)
            self._position += 1
            if parents is not None:
                self.history = self.history.gather(1, parents[:, :, None].expand_as(self.history))
            self.history[:, :, self._position] = ids
            self._read()
            staying = self._leave()
            if parents is not None or staying is not None:
                rows = torch.arange(len(log_probs), device=ids.device).view_as(ids)  # (B, N)
                rows = rows if parents is None else rows.gather(1, parents)
                rows = rows if staying is None else rows[staying]
                self._model.reorder(self._state, rows.flatten(), staying)
        return self.results

    def _read_starts(self, sentences: Sequence[Sentence]) -> None:
        """Have the model read the starts, which have one length, up to the last id."""
        starts = on_device([sentence.start for sentence in sentences], torch.long, self.history.device)  # (B, K)
        for ids in starts[:, :-1].unbind(1):
            self._model.step(ids.repeat_interleave(self.history.shape[1]), self._state)
        self.history[:, :, 0] = starts[:, -1:]

    @abstractmethod
    def advance(self, log_probs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Choose the next id of each row from the log-probabilities (R, V), and `report` what `read` needs.

        Returns:
            The ids, (B, N), and the row of its sentence that each of them continues, (B, N); None if each row continues
            itself.
        """

    @abstractmethod
    def read(self, choices: np.ndarray, log_probs: np.ndarray) -> None:
        """Append to `ids` what `advance` reported of the next step, and store the results of sentences that are over.

        It may be called one step late, so reports of a sentence after its end must be ignored.
        """

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences (B',) of the tensors on the device."""
        self.history = self.history[sentences]
        self._rules.select(sentences)

    def report(self, choices: Tensor, log_probs: Tensor) -> None:
        """Copy integers and float32 numbers of one shape, (B, C), from the device, for `read`."""
        both = torch.stack([choices.int(), log_probs.view(torch.int32)])  # (2, B, C)
        self._unread.append((self.sentences, LateCopy(both)))

    def hypothesis(self, ids: np.ndarray, log_prob: float, finished: bool) -> Hypothesis:
        """Return the hypothesis of these ids, without start and end."""
        score = normalized_score(log_prob, len(ids) + finished, self.config.length_penalty)
        return Hypothesis(tuple(ids.tolist()), log_prob, score, finished)

    def _read(self) -> None:
        """Call `read` for the reports; on a GPU, the report of a step is read after the next step was started."""
        is_last = self._position + 1 == self.history.shape[2]
        num_late = 0 if is_last or on_cpu(self.history) else 1
        while len(self._unread) > num_late:
            sentences, both = self._unread.popleft()
            values = both.read()
            if len(sentences) > len(self.sentences):
                values = values[:, np.isin(sentences, self.sentences)]
            self.read(values[0], values[1].view(np.float32))

    def _leave(self) -> Tensor | None:
        """Drop the sentences that are over, if they are enough, and return the indices of the others, (B',); None if
        none is dropped."""
        staying = [index for index, sentence in enumerate(self.sentences) if not self.results[sentence]]
        num_over = len(self.sentences) - len(staying)
        if not num_over or num_over < len(self.sentences) * LEAVING_SHARE:
            return None
        self.sentences, self.ids = [self.sentences[index] for index in staying], self.ids[staying]
        kept = on_device(staying, torch.long, self.history.device)
        self.select(kept)
        return kept
