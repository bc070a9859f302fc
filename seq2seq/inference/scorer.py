"""How likely a model finds given translations: a log-probability for each pair of lines.

`Scorer` is loaded from a model folder by `s2s score` and by library users; what it answers with is a `PairScore`, one
for each pair, in the order of the pairs. Shapes: B pairs, T target length, N tokens, V vocabulary.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seq2seq.data.collate import TranslationBatch, collate_translation
from seq2seq.data.examples import Pair
from seq2seq.inference.batching import token_groups
from seq2seq.inference.one_model import BATCH_TOKENS, OneModel
from seq2seq.lines import as_one_line
from seq2seq.memory import in_parts
from seq2seq.runtime import Runtime
from seq2seq.store.model_folder import LoadedModel
from seq2seq.text.splitting import language_tag
from seq2seq.text.tokenizer import SURROGATES

# Logits are computed for so many tokens at a time.
TOKENS_AT_ONCE = 1024


@dataclass(frozen=True)
class PairScore:
    """The answer for one pair."""

    log_prob: float
    """Sum of the log-probabilities of all target tokens, the end included: never positive."""
    tokens: int
    """Target tokens, the end included; 1 for an empty target, which is its end alone."""
    parts: int
    """1, or in how many parts a pair was scored that is too long for the model."""


@dataclass(frozen=True)
class _Part:
    """A pair, or a part of one that is too long."""

    pair: int
    source: list[int]
    target: list[int]
    is_last: bool
    """Whether the end of the target belongs to this part."""


class Scorer(OneModel):
    """A translation model, ready to judge translations.

    No pair is skipped and nothing is cut off. An empty side is scored as what it is, the end alone. A pair with a side
    longer than the model's positions is cut into the fewest parts that fit, both sides into as many of equal length:
    each part of the target is scored with the corresponding part of the source, and the log-probabilities are added.
    """

    task = "translation"
    other_command = "s2s classify --gold scores those"

    def __init__(self, loaded: LoadedModel, runtime: Runtime, batch_tokens: int = BATCH_TOKENS):
        super().__init__(loaded, runtime, batch_tokens)
        self._model.to(runtime.precision)
        self._tokenizers = loaded.tokenizers
        self._left_out = list(loaded.tokenizers.never_generated) if loaded.description.search.renormalize else []
        self._part_length = self._model.config.max_length - 1  # the end of the source, the start of the target

    def score(self, pairs: Sequence[Pair | tuple[str, str]]) -> list[PairScore]:
        """Score each pair, whatever the others are.

        White space around a source is left out, as translation does; a target is scored as it stands.

        Raises:
            RuntimeError: there is no memory even for one pair.
        """
        sides = [(pair.source, pair.target) if isinstance(pair, Pair) else pair for pair in pairs]
        sources = self._tokenizers.source.encode_all([_clean(source).strip() for source, _ in sides])
        targets = self._tokenizers.target.encode_all([_clean(target) for _, target in sides])
        parts = [
            part
            for number, (source, target) in enumerate(zip(sources, targets, strict=True))
            for part in self._parts(number, source, target, _clean(sides[number][0]).strip())
        ]
        log_probs = torch.zeros(len(sides), dtype=torch.float64)
        counts, num_parts = [1] * len(sides), [0] * len(sides)
        lengths = [max(len(part.source), len(part.target)) + 1 for part in parts]
        for indices in token_groups(lengths, self.batch_tokens):
            scores = self._score_parts([parts[index] for index in indices])
            log_probs.index_add_(0, torch.tensor([parts[index].pair for index in indices]), scores)
        for part in parts:
            counts[part.pair] += len(part.target)
            num_parts[part.pair] += 1
        return [PairScore(*row) for row in zip(log_probs.tolist(), counts, num_parts, strict=True)]

    def _parts(self, number: int, source: list[int], target: list[int], text: str) -> Iterator[_Part]:
        """The pair itself, or equal shares of both sides that fit, each source behind the language tag of `text`."""
        tag: list[int] = []
        if max(len(source), len(target)) > self._part_length:
            begun, rest = language_tag(text)
            tag = self._tokenizers.source.encode(begun)
            if tag and len(tag) <= self._part_length // 2:
                source = self._tokenizers.source.encode(rest)
            else:
                tag = []
        count = max(1, -(-len(source) // (self._part_length - len(tag))), -(-len(target) // self._part_length))
        for part in range(count):
            shares = [
                side[len(side) * part // count : len(side) * (part + 1) // count] for side in (source, target)
            ]  # never longer than ceil(len / count), which fits
            yield _Part(number, tag + shares[0], shares[1], is_last=part == count - 1)

    @torch.inference_mode()
    def _score_parts(self, parts: Sequence[_Part]) -> Tensor:
        """(B,) in float64."""
        batch = collate_translation(
            [part.source for part in parts], [part.target for part in parts], self._tokenizers, range(len(parts))
        )
        ends = torch.tensor([len(part.target) for part in parts])
        not_ended = torch.tensor([not part.is_last for part in parts])
        mask = batch.target_mask.clone()
        mask[not_ended, ends[not_ended]] = False
        return torch.cat(in_parts(self._score_batch, dataclasses.replace(batch, target_mask=mask)))

    def _score_batch(self, batch: TranslationBatch) -> Tensor:
        batch = batch.to(self._runtime.device)
        hidden = self._model(batch.source_ids, batch.source_mask, batch.target_input)  # (B, T, D)
        hidden, targets = hidden[batch.target_mask], batch.target_output[batch.target_mask]  # (N, D), (N,)
        token_scores = [
            self._log_probs(rows).gather(1, ids[:, None]).squeeze(1)
            for rows, ids in zip(hidden.split(TOKENS_AT_ONCE), targets.split(TOKENS_AT_ONCE), strict=True)
        ]
        scores = torch.zeros(batch.target_mask.shape, dtype=torch.float64)  # (B, T)
        scores[batch.target_mask.cpu()] = torch.cat(token_scores).double().cpu()
        return scores.sum(1)

    def _log_probs(self, hidden: Tensor) -> Tensor:
        """hidden (N, D) -> (N, V)"""
        logits = self._model.project(hidden).float()
        logits[:, self._left_out] = -torch.inf
        return logits.log_softmax(-1)


def _clean(text: str) -> str:
    return SURROGATES.sub("\ufffd", as_one_line(text))
