"""A Transformer, or several, as the `StepModel` that search steps through.

`Translator.load` and validation make them, `TorchEngine` hands them to `search`. Shapes: B sentences, S source length,
R rows, D d_model, V vocabulary.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from seq2seq.data.collate import padded
from seq2seq.errors import ModelError
from seq2seq.model.decoding import DecoderCache, decode_step
from seq2seq.model.transformer import Transformer
from seq2seq.runtime import on_cpu
from seq2seq.search.base import StepModel
from seq2seq.text.tokenizer import TokenizerPair

# Sentences that a CPU encodes at a time: more are slower, by their padding and by what a cache holds.
ENCODED_TOGETHER = 64


class TransformerSteps:
    """One Transformer, in evaluation mode, where and in the number format that its weights are."""

    def __init__(self, model: Transformer, tokenizers: TokenizerPair, device: torch.device):
        self.device = device
        self.vocab_size = tokenizers.target.vocab_size
        self.start_id, self.eos_id = tokenizers.target.start_id, tokenizers.target.eos_id
        self.suppressed = tokenizers.never_generated
        self.max_length = model.config.max_length
        self._model = model
        self._source_pad_id, self._source_end = tokenizers.source.pad_id, tokenizers.source.end_ids

    @torch.inference_mode()
    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> DecoderCache:
        """Encode the sources, without special ids as they come, and open a cache over them."""
        arrays = padded(source_ids, self._source_pad_id, after=self._source_end)
        source, mask = (torch.from_numpy(array).to(self.device) for array in arrays)  # (B, S) each
        lengths = [len(ids) + len(self._source_end) for ids in source_ids]
        return DecoderCache(self._model, self._encode(source, mask, lengths), mask, beam_size, max_length)

    def _encode(self, source: Tensor, mask: Tensor, lengths: Sequence[int]) -> Tensor:
        """Memory (B, S, D); a CPU takes a few sentences at a time, with no more padding than these need."""
        count = ENCODED_TOGETHER if on_cpu(source) else len(source)
        widths = [max(lengths[start : start + count]) for start in range(0, len(lengths), count)]
        parts = zip(source.split(count), mask.split(count), widths, strict=True)
        encoded = [self._model.encode(ids[:, :width], real[:, :width]) for ids, real, width in parts]
        return torch.cat([functional.pad(memory, (0, 0, 0, source.size(1) - memory.size(1))) for memory in encoded])

    @torch.inference_mode()
    def step(self, token_ids: Tensor, state: DecoderCache) -> Tensor:
        """Log-probabilities (R, V) in float32 of what follows `token_ids` (R,).

        The rows of a sentence begin alike, with the start id: the first step computes one of them.
        """
        if state.length or state.beam_size == 1:
            return self._log_probs(token_ids, state)
        log_probs = self._log_probs(token_ids[:: state.beam_size], state)  # (B, V)
        state.spread()
        return log_probs.repeat_interleave(state.beam_size, dim=0)

    def _log_probs(self, token_ids: Tensor, state: DecoderCache) -> Tensor:
        return float32_logits(self._model, decode_step(self._model, token_ids, state)).log_softmax(-1)

    def reorder(self, state: DecoderCache, rows: Tensor, sentences: Tensor | None = None) -> None:
        """As `StepModel.reorder`."""
        state.reorder(rows, sentences)


def float32_logits(model: Transformer, hidden: Tensor) -> Tensor:
    """Logits (N, V) in float32 of hidden states (N, D).

    The products of 16-bit weights are sums in float32. A GPU can hand these out; where they are rounded to 16 bits
    first, logits near 16 are multiples of 0.06 or 0.12, and many of them equal.
    """
    if on_cpu(hidden) or hidden.dtype == torch.float32:
        return model.project(hidden).float()
    logits = torch.mm(hidden, model.output.weight.t(), out_dtype=torch.float32)  # of CUDA alone
    return logits if model.output.bias is None else logits + model.output.bias


class EnsembleSteps:
    """Several models of one vocabulary as one: the mean of their probabilities.

    Raises:
        ModelError: their vocabularies cannot be the same.
    """

    def __init__(self, members: Sequence[StepModel]):
        first = members[0]
        for number, member in enumerate(members[1:], start=2):
            if (member.vocab_size, member.start_id, member.eos_id) != (first.vocab_size, first.start_id, first.eos_id):
                raise ModelError(f"model {number} of the ensemble has another vocabulary than the first; leave it out")
        self.members = tuple(members)
        self.device = first.device
        self.vocab_size, self.start_id, self.eos_id = first.vocab_size, first.start_id, first.eos_id
        self.suppressed = first.suppressed
        self.max_length = min(member.max_length for member in members)

    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> list:
        """The states of all members."""
        return [member.start(source_ids, beam_size, max_length) for member in self.members]

    @torch.inference_mode()
    def step(self, token_ids: Tensor, state: list) -> Tensor:
        """log(mean of the members' probabilities), (R, V)."""
        logs = [member.step(token_ids, member_state) for member, member_state in zip(self.members, state, strict=True)]
        return torch.stack(logs).logsumexp(0) - math.log(len(logs))

    def reorder(self, state: list, rows: Tensor, sentences: Tensor | None = None) -> None:
        """`reorder` in every member."""
        for member, member_state in zip(self.members, state, strict=True):
            member.reorder(member_state, rows, sentences)
