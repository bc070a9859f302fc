"""A Transformer, or several, as the `StepModel` that search steps through.

`Translator.load` and validation make them, `TorchEngine` hands them to `search`. Shapes: B sentences, S source length,
R rows, D d_model, V vocabulary.
"""

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.errors import ModelError
from seq2seq.model.int8 import Int8Linear
from seq2seq.model.transformer import DecoderCache, Transformer
from seq2seq.search.base import StepModel
from seq2seq.text.tokenizer import TokenizerPair

# Sentences that a CPU encodes at a time: enough for its products to be fast.
ENCODED_TOGETHER = 64
# Ids that stand for those that are left out, about.
STAND_INS = 256


class TransformerSteps:
    """One Transformer, in evaluation mode, where and in the number format that its weights are.

    It may hold copies of the output layer (`packed`), so one is made for weights that stay.
    """

    def __init__(self, model: Transformer, tokenizers: TokenizerPair, device: torch.device):
        self.device = device
        self.vocab_size = tokenizers.target.vocab_size
        self.start_id, self.eos_id = tokenizers.target.start_id, tokenizers.target.eos_id
        self.suppressed, self.stand_ins = never_generated(tokenizers), ()
        self.max_length = model.config.max_length
        self._model = model
        self._output = packed(model.output)
        self._ids: Tensor | None = None  # (V,), where it is narrowed
        self._source_pad_id, self._source_eos_id = tokenizers.source.pad_id, tokenizers.source.eos_id

    @torch.inference_mode()
    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> DecoderCache:
        """Encode the sources, without special ids as they come, and open a cache over them."""
        width = max(len(ids) for ids in source_ids) + 1
        padded = [[*ids, self._source_eos_id, *[self._source_pad_id] * (width - 1 - len(ids))] for ids in source_ids]
        lengths = torch.tensor([len(ids) + 1 for ids in source_ids], device=self.device)
        source = torch.tensor(padded, device=self.device)  # (B, S)
        mask = torch.arange(width, device=self.device) < lengths[:, None]  # (B, S)
        return self._model.new_cache(self._encode(source, mask), mask, beam_size, max_length)

    def _encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """Memory (B, S, D); a CPU encodes some sentences at a time, those of about one length where they come
        ordered, with no more padding than these need."""
        if self.device.type != "cpu" or len(source) <= ENCODED_TOGETHER:
            return self._model.encode(source, mask)
        encoded = []
        for some, real in zip(source.split(ENCODED_TOGETHER), mask.split(ENCODED_TOGETHER), strict=True):
            width = int(real.sum(1).max())
            memory = self._model.encode(some[:, :width], real[:, :width])
            encoded.append(functional.pad(memory, (0, 0, 0, source.size(1) - width)))
        return torch.cat(encoded)

    @torch.inference_mode()
    def step(self, token_ids: Tensor, state: DecoderCache) -> Tensor:
        """Logits (R, V) in float32 of what follows `token_ids` (R,).

        The rows of a sentence begin alike, with the start id: the first step computes one of them.
        """
        if self._ids is not None:
            token_ids = self._ids[token_ids]
        if state.length or state.beam_size == 1:
            return self._output(self._model.decode_step(token_ids, state)).float()
        logits = self._output(self._model.decode_step(token_ids[:: state.beam_size], state)).float()  # (B, V)
        state.spread()
        return logits.repeat_interleave(state.beam_size, dim=0)

    def narrowed(self, ids: Tensor) -> "TransformerSteps":
        """The same model, which gives no other target ids than these (V',), start and end among them.

        Its own ids are places in `ids`. Behind them come a few of the other ids, evenly some of all, which never come
        out: they stand for all others in the sum that probabilities are divided by, so that these stay about the same.
        """
        places = {id_: place for place, id_ in enumerate(ids.tolist())}
        for id_ in self.suppressed:  # they count or not, as the rules say
            places.setdefault(id_, len(places))
        kept = torch.tensor(list(places))
        is_other = torch.ones(self.vocab_size, dtype=torch.bool)
        is_other[kept] = False
        others = is_other.nonzero().squeeze(1)
        stand_ins = others[:: max(len(others) // STAND_INS, 1)]
        shift = torch.zeros(len(kept) + len(stand_ins))
        if len(stand_ins):
            shift[len(kept) :] = math.log(len(others) / len(stand_ins))
        narrow = copy.copy(self)
        narrow._ids = torch.cat([kept, stand_ins]).to(self.device)
        narrow._output = packed(_rows_of(self._model.output, narrow._ids, shift.to(self.device)))
        narrow.vocab_size = len(narrow._ids)
        narrow.start_id, narrow.eos_id = places[self.start_id], places[self.eos_id]
        narrow.suppressed = tuple(places[id_] for id_ in self.suppressed)
        narrow.stand_ins = tuple(range(len(kept), narrow.vocab_size))
        return narrow

    def reorder(self, state: DecoderCache, rows: Tensor) -> None:
        """Row i goes on from what row `rows[i]` (R,) was."""
        state.reorder(rows)

    def select(self, state: DecoderCache, sentences: Tensor) -> None:
        """Keep these sentences (B',) with all their rows."""
        state.select(sentences)


def _rows_of(layer: nn.Module, ids: Tensor, shift: Tensor) -> nn.Module:
    """The layer with these outputs (V',) alone, `shift` (V',) added to them."""
    if isinstance(layer, Int8Linear):
        return layer.rows(ids, shift)
    narrow = nn.Linear(layer.in_features, len(ids), device="meta")
    bias = shift if layer.bias is None else layer.bias.detach()[ids] + shift
    narrow.weight = nn.Parameter(layer.weight.detach()[ids], requires_grad=False)
    narrow.bias = nn.Parameter(bias.to(layer.weight.dtype), requires_grad=False)
    return narrow


def packed(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """What computes a linear layer from a copy of its weights in the order that oneDNN multiplies them in.

    Between 2 and 64 rows that takes half to two thirds of the time, and a row's result is the same to the bit whatever
    rows are beside it. For a single row another copy is faster still; each is made when it is first needed. Where there
    is no oneDNN, or it is not its float32 product, the layer itself.
    """
    kernels = torch.ops.mkldnn
    fits = isinstance(layer, nn.Linear) and layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32
    if not fits or not torch.backends.mkldnn.is_available() or not hasattr(kernels, "_linear_pointwise"):
        return layer
    bias = layer.bias
    ordered = functools.cache(lambda: kernels._reorder_linear_weight(layer.weight.detach()))
    turned = functools.cache(lambda: inputs_first(layer.weight.detach()))

    def multiply(inputs: Tensor) -> Tensor:
        if inputs.size(0) == 1:
            return functional.linear(inputs, turned(), bias)
        try:
            return kernels._linear_pointwise(inputs, ordered(), bias, "none", [], "")
        except RuntimeError:  # no room for the code that it makes for each number of rows; the layer needs none
            return layer(inputs)

    return multiply


def inputs_first(weight: Tensor) -> Tensor:
    """The same weights (N, K) with all outputs of an input side by side in memory, as few rows are multiplied fastest:
    one row streams through them in order, adding up."""
    return weight.t().contiguous().t()


def lay_long_rows(model: Transformer) -> Transformer:
    """Turn round, `inputs_first`, the weights of all linear layers with at least as many outputs as inputs, so that
    what few rows are multiplied with is read in long runs; `model` is changed and returned.

    Not the output layer, which may be the embedding.
    """
    for stack in (model.encoder.layers, model.decoder.layers):
        for layer in stack.modules():
            if isinstance(layer, nn.Linear) and layer.out_features >= layer.in_features:
                layer.weight.data = inputs_first(layer.weight.data)
    return model


def never_generated(tokenizers: TokenizerPair) -> tuple[int, ...]:
    """Ids of the target that are no part of any translation."""
    target = tokenizers.target
    return tuple({target.pad_id, target.start_id} - {target.eos_id})


class Steps(StepModel, Protocol):
    """A `StepModel` that can do with a part of its target vocabulary."""

    def narrowed(self, ids: Tensor) -> "Steps":
        """As in `TransformerSteps`."""


class EnsembleSteps:
    """Several models of one vocabulary as one: the mean of their probabilities.

    Raises:
        ModelError: their vocabularies cannot be the same.
    """

    def __init__(self, members: Sequence[Steps]):
        first = members[0]
        for number, member in enumerate(members[1:], start=2):
            if (member.vocab_size, member.start_id, member.eos_id) != (first.vocab_size, first.start_id, first.eos_id):
                raise ModelError(f"model {number} of the ensemble has another vocabulary than the first; leave it out")
        self.members = tuple(members)
        self.device = first.device
        self.vocab_size, self.start_id, self.eos_id = first.vocab_size, first.start_id, first.eos_id
        self.suppressed, self.stand_ins = first.suppressed, first.stand_ins
        self.max_length = min(member.max_length for member in members)

    def narrowed(self, ids: Tensor) -> "EnsembleSteps":
        """As in `TransformerSteps`, of every member."""
        return EnsembleSteps([member.narrowed(ids) for member in self.members])

    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> list:
        """The states of all members."""
        return [member.start(source_ids, beam_size, max_length) for member in self.members]

    @torch.inference_mode()
    def step(self, token_ids: Tensor, state: list) -> Tensor:
        """log(mean of the members' probabilities), (R, V)."""
        logs = [
            member.step(token_ids, member_state).log_softmax(-1)
            for member, member_state in zip(self.members, state, strict=True)
        ]
        return torch.stack(logs).logsumexp(0) - math.log(len(logs))

    def reorder(self, state: list, rows: Tensor) -> None:
        """`reorder` in every member."""
        for member, member_state in zip(self.members, state, strict=True):
            member.reorder(member_state, rows)

    def select(self, state: list, sentences: Tensor) -> None:
        """`select` in every member."""
        for member, member_state in zip(self.members, state, strict=True):
            member.select(member_state, sentences)
