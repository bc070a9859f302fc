"""The `StepModel` of a Transformer, or of an ensemble of several, which a search steps through.

`Translator.load` and validation make them, and `TorchEngine` gives them to `search`.

Shapes: B sentences, S source length, R rows, D d_model, V vocabulary.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq.data.collate import padded
from seq2seq.errors import ModelError
from seq2seq.model.decoding import Cache, DecoderCache, cross_projections, decode_step
from seq2seq.model.static_cache import StaticCache
from seq2seq.model.transformer import Transformer
from seq2seq.runtime import on_cpu
from seq2seq.search.base import StepModel
from seq2seq.search.rules import on_device
from seq2seq.text.tokenizer import TokenizerPair

# Sentences that a CPU encodes at a time: more are slower, because of padding and the size of caches.
ENCODED_TOGETHER = 64


class TransformerSteps:
    """A Transformer in evaluation mode, on the device and in the number format of its weights."""

    def __init__(self, model: Transformer, tokenizers: TokenizerPair, device: torch.device):
        self.device = device
        self.vocab_size = tokenizers.target.vocab_size
        self.start_id, self.eos_id = tokenizers.target.start_id, tokenizers.target.eos_id
        self.suppressed = tokenizers.never_generated
        self.max_length, self.precision = model.config.max_length, model.output.weight.dtype
        self._model = model
        self._source_pad_id, self._source_end = tokenizers.source.pad_id, tokenizers.source.end_ids
        self.source_specials = len(self._source_end)

    def directed(self, tokenizers: TokenizerPair) -> "TransformerSteps":
        """Return the same model for another direction: sources may end with another tag."""
        return TransformerSteps(self._model, tokenizers, self.device)

    @torch.inference_mode()
    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> DecoderCache:
        """Encode the sources, which have no special ids, and return a cache over them."""
        return DecoderCache(self._model, *self._encode(source_ids), beam_size, max_length)

    def static_cache(self, num_sentences: int, num_rows: int, source_length: int, max_length: int) -> StaticCache:
        """Return a cache of this shape (see `StaticModel.static_cache`)."""
        return StaticCache(self._model, num_sentences, num_rows, source_length, max_length)

    @torch.inference_mode()
    def load(self, source_ids: Sequence[Sequence[int]], state: StaticCache) -> None:
        """Encode the sources, and begin with them in a static cache."""
        memory, mask = self._encode(source_ids)
        state.load(cross_projections(self._model, memory), mask)

    def read(self, source_ids: Sequence[Sequence[int]], state: StaticCache) -> None:
        """Copy the sources into a static cache, for `encode_static`."""
        arrays = padded(source_ids, self._source_pad_id, after=self._source_end)
        for array, tensor in zip(arrays, (state.source, state.mask), strict=True):
            whole = np.zeros(tensor.shape, array.dtype)
            whole[: len(array), : array.shape[1]] = array
            tensor.copy_(on_device(whole, tensor.dtype, self.device))

    @torch.inference_mode()
    def encode_static(self, state: StaticCache) -> tuple[Tensor, ...]:
        """Encode the sources of a static cache, and begin with them in it; reads nothing from the device."""
        state.begin(state.mask)
        width = state.mask.shape[1]
        memory = self._model.encoder(state.source, state.bias[..., :width])
        state.cross[..., :width, :].copy_(cross_projections(self._model, memory))
        return ()

    def _encode(self, source_ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return memory (B, S, D) and mask (B, S); a CPU encodes a few sentences at a time, with only the padding that
        these need."""
        arrays = padded(source_ids, self._source_pad_id, after=self._source_end)
        source, mask = (torch.from_numpy(array).to(self.device) for array in arrays)  # (B, S) each
        lengths = [len(ids) + self.source_specials for ids in source_ids]
        count = ENCODED_TOGETHER if on_cpu(source) else len(source)
        widths = [max(lengths[start : start + count]) for start in range(0, len(lengths), count)]
        parts = zip(source.split(count), mask.split(count), widths, strict=True)
        encoded = [self._model.encode(ids[:, :width], real[:, :width]) for ids, real, width in parts]
        memory = torch.cat([functional.pad(part, (0, 0, 0, source.size(1) - part.size(1))) for part in encoded])
        return memory, mask

    @torch.inference_mode()
    def step(self, token_ids: Tensor, state: DecoderCache) -> Tensor:
        """Return log-probabilities (R, V) in float32 of the tokens after `token_ids` (R,).

        The rows of a sentence all begin with the start id, so the first step computes only one of them.
        """
        if state.length or state.beam_size == 1:
            return self.static_step(token_ids, state)
        log_probs = self.static_step(token_ids[:: state.beam_size], state)  # (B, V)
        state.spread()
        return log_probs.repeat_interleave(state.beam_size, dim=0)

    @torch.inference_mode()
    def static_step(self, token_ids: Tensor, state: Cache) -> Tensor:
        """Return log-probabilities (R, V) in float32 of the tokens after `token_ids` (R,), computed for each row."""
        return float32_logits(self._model, decode_step(self._model, token_ids, state)).log_softmax(-1)

    def reorder(self, state: DecoderCache, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Reorder the rows of the cache (see `StepModel.reorder`)."""
        state.reorder(rows, sentences)


def float32_logits(model: Transformer, hidden: Tensor) -> Tensor:
    """Return logits (N, V) in float32 of hidden states (N, D).

    The products of 16-bit weights are sums in float32, which a GPU can return. If they were rounded to 16 bits first,
    logits near 16 would be multiples of 0.06 or 0.12, and many of them equal.
    """
    if on_cpu(hidden) or hidden.dtype == torch.float32:
        return model.project(hidden).float()
    logits = torch.mm(hidden, model.output.weight.t(), out_dtype=torch.float32)  # only on CUDA
    return logits if model.output.bias is None else logits + model.output.bias


class EnsembleSteps:
    """An ensemble of models with one vocabulary, whose probabilities are averaged.

    Raises:
        ModelError: the sizes or special ids of the vocabularies differ.
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

    def directed(self, tokenizers: TokenizerPair) -> "EnsembleSteps":
        """Return the same models for another direction."""
        return EnsembleSteps([member.directed(tokenizers) for member in self.members])

    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> list:
        """Return the states of all members."""
        return [member.start(source_ids, beam_size, max_length) for member in self.members]

    @torch.inference_mode()
    def step(self, token_ids: Tensor, state: list) -> Tensor:
        """Return log(mean of the members' probabilities), (R, V)."""
        logs = [member.step(token_ids, member_state) for member, member_state in zip(self.members, state, strict=True)]
        return torch.stack(logs).logsumexp(0) - math.log(len(logs))

    def reorder(self, state: list, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Reorder the rows of every member's state (see `StepModel.reorder`)."""
        for member, member_state in zip(self.members, state, strict=True):
            member.reorder(member_state, rows, sentences)
