"""The scores of given translations: a log-probability for each pair of lines.

`s2s score` and library users load a `Scorer` from a model folder. It returns a `PairScore` for each pair, in order.

Shapes: B pairs, T target length, N tokens, V vocabulary.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, count
from typing import Self

import regex
import torch
from torch import Tensor

from seq2seq.data.collate import TranslationBatch, collate_translation
from seq2seq.data.examples import Pair
from seq2seq.inference.groups import PairPart, pair_parts, token_groups
from seq2seq.inference.one_model import OneModel
from seq2seq.inference.steps import float32_logits
from seq2seq.lines import as_one_line, checked_pairs, in_order
from seq2seq.memory import in_parts
from seq2seq.runtime import Runtime
from seq2seq.search.base import normalized_score
from seq2seq.store.direction import directed
from seq2seq.store.model_folder import LoadedModel
from seq2seq.text.direction import Direction, check_direction_given
from seq2seq.text.scripts import UNSPACED
from seq2seq.text.tokenizer import META_SYMBOL, encodable

# Logits are computed for this many tokens at a time.
TOKENS_AT_ONCE = 1024
_WORD = regex.compile(rf"{META_SYMBOL}[^\W\d_{UNSPACED}]+")


@dataclass(frozen=True)
class PairScore:
    """The score of one pair."""

    log_prob: float
    """The sum of the log-probabilities of the tokens, which is never positive."""
    score: float
    """log_prob / tokens^length_penalty, with the penalty of the model's search settings."""
    tokens: int
    """The number of target tokens, including the end if it counts; an empty target consists only of its end."""
    parts: int
    """The number of parts of the pair, more than 1 if it is too long for the model."""


class Scorer(OneModel):
    """A translation model that scores given translations.

    No pair is skipped and nothing is cut off. An empty side consists only of its end. If a side of a pair is longer
    than the model's positions, both sides are cut into the same, smallest possible number of equal parts. Each part of
    the target is scored with the corresponding part of the source, and the log-probabilities are added.
    """

    task = "translation"
    other_command = "s2s classify --gold scores those"

    def __init__(self, loaded: LoadedModel, runtime: Runtime, batch_tokens: int | None = None):
        super().__init__(loaded, runtime, batch_tokens)
        self._model.to(runtime.precision)
        self._tokenizers = loaded.tokenizers
        self._left_out = list(loaded.tokenizers.never_generated) if loaded.description.search.renormalize else []
        # the end of the source, the start of the target
        self._num_tags = len(self._tokenizers.target.start_ids) - 1
        self._part_length = self._model.config.max_length - max(
            self._num_tags + 1, len(self._tokenizers.source.end_ids)
        )

    def directed(self, direction: Direction) -> Self:
        """Return the same weights for another direction of a multilingual model; errors as in `store.direction`."""
        check_direction_given(direction)
        described, known = directed("the model", self.description, self._tokenizers.undirected, direction)
        other = copy.copy(self)
        other.description, other._tokenizers = described, known
        return other

    def score(self, pairs: Sequence[Pair | tuple[str, str]], ended: bool = True) -> list[PairScore]:
        """Return the score of each pair, independently of the others.

        Both sides are read as in training: normalised, and without white space at their ends. Unless `ended`, targets
        are beginnings of translations, and their ends do not count.

        Raises:
            TypeError: `pairs` is not a list of pairs of texts.
            RuntimeError: the memory is too small even for one pair.
        """
        found = in_order(pairs, "score", "pair")
        sides = checked_pairs([pair.texts if isinstance(pair, Pair) else pair for pair in found], "score")
        texts = [encodable(as_one_line(source)).strip() for source, _ in sides]
        sources = self._tokenizers.source.read_all(texts)
        targets = self._tokenizers.target.encode_targets([target for _, target in sides])
        parts = list(chain.from_iterable(map(self._parts, count(), texts, sources, targets)))
        log_probs = torch.zeros(len(sides), dtype=torch.float64)
        parts = parts if ended else [part._replace(is_last=False) for part in parts]
        lengths = [max(len(part.source), len(part.target)) + 1 for part in parts]
        for indices in token_groups(lengths, self.batch_tokens):
            group = [parts[index] for index in indices]
            log_probs.index_add_(0, torch.tensor([part.pair for part in group]), self._score_parts(group))
        num_parts = Counter(part.pair for part in parts)
        penalty = self.description.search.length_penalty
        scored = zip(log_probs.tolist(), (len(target) + ended for target in targets), strict=True)
        return [
            PairScore(log_prob, normalized_score(log_prob, tokens, penalty), tokens, num_parts[pair])
            for pair, (log_prob, tokens) in enumerate(scored)
        ]

    def _parts(self, pair: int, text: str, source: list[int], target: list[int]) -> list[PairPart]:
        """Return the pair, or equal parts of both sides that fit; each source begins with the tag of `text`."""
        if max(len(source), len(target)) <= self._part_length:
            return [PairPart(pair, source, target, is_last=True)]
        tag, rest = self._tag_apart(text)
        ids = self._tokenizers.source.read(rest)[len(self._tokenizers.source.tag_ids) :]
        parts = pair_parts(pair, ids, target, self._most(tag))
        return [part._replace(source=[*tag, *part.source]) for part in parts]

    def _tag_apart(self, text: str) -> tuple[Sequence[int], str]:
        """Return the ids of the language tag that each part of a source needs, and the text after a typed tag.

        `text` has no white space at its beginning.
        """
        tokenizer = self._tokenizers.source
        typed = tokenizer.typed_tag(text)
        ids = tokenizer.read(typed) if typed else ()
        fits = 0 < len(ids) <= self._part_length // 2
        return (ids, text[len(typed) :]) if fits else (tokenizer.tag_ids, text)

    def _most(self, tag: Sequence[int]) -> tuple[int, int]:
        """Return the most ids of a source after its tag, and of a target."""
        return self._part_length - len(tag), self._part_length

    @torch.inference_mode()
    def _score_parts(self, parts: Sequence[PairPart]) -> Tensor:
        """Return the log-probability of each part, (B,) float64."""
        _, sources, targets, _ = zip(*parts, strict=True)
        batch = collate_translation(sources, targets, self._tokenizers, range(len(parts)))
        for row, part in enumerate(parts):
            if not part.is_last:
                batch.target_mask[row, self._num_tags + len(part.target)] = False
        return torch.cat([scores.sum(1) for scores in in_parts(self.token_scores, batch)])

    @torch.inference_mode()
    def next_words(self, pairs: Sequence[tuple[str, str]], most: int) -> list[list[str]]:
        """Return the `most` likeliest words after each (source, beginning of its translation), the best first.

        Words consist of one piece of letters, in scripts with spaces. A pair that is too long for the model has none.
        """
        target = self._tokenizers.target
        sources = self._tokenizers.source.read_all([encodable(as_one_line(source)) for source, _ in pairs])
        begun = target.encode_targets([begin for _, begin in pairs])
        lengths = [max(map(len, sides)) for sides in zip(sources, begun, strict=True)]
        fitting = [index for index, length in enumerate(lengths) if length <= self._part_length]
        words: list[list[str]] = [[] for _ in pairs]
        for group in token_groups([lengths[index] + 1 for index in fitting], self.batch_tokens):
            rows = [fitting[number] for number in group]
            batch = collate_translation(
                [sources[row] for row in rows], [begun[row] for row in rows], self._tokenizers, range(len(rows))
            )
            for row, ids in zip(rows, chain.from_iterable(in_parts(partial(self._next_ids, most), batch)), strict=True):
                words[row] = [piece.removeprefix(META_SYMBOL) for piece in target.pieces(ids)]
        return words

    def _next_ids(self, most: int, batch: TranslationBatch) -> list[list[int]]:
        batch = batch.to(self._runtime.device)
        hidden = self._model(batch.source_ids, batch.source_mask, batch.target_input)  # (B, T, D)
        last = self._num_tags + batch.target_mask.sum(1) - 1
        logits = float32_logits(self._model, hidden[torch.arange(len(hidden), device=hidden.device), last])  # (B, V)
        best = logits[:, self._word_ids].topk(min(most, len(self._word_ids))).indices.cpu()
        return self._word_ids[best].tolist()

    @cached_property
    def _word_ids(self) -> Tensor:
        """The ids of the target pieces that are whole words."""
        vocabulary = self._tokenizers.target.vocabulary
        return torch.tensor([id_ for piece, id_ in vocabulary.items() if _WORD.fullmatch(piece)], dtype=torch.long)

    def token_scores(self, batch: TranslationBatch) -> Tensor:
        """Return the log-probabilities of target tokens, (B, T) float64 on the CPU, 0 where `target_mask` is False."""
        batch = batch.to(self._runtime.device)
        hidden = self._model(batch.source_ids, batch.source_mask, batch.target_input)  # (B, T, D)
        hidden, targets = hidden[batch.target_mask], batch.target_output[batch.target_mask]  # (N, D), (N,)
        token_scores = []
        for rows, ids in zip(hidden.split(TOKENS_AT_ONCE), targets.split(TOKENS_AT_ONCE), strict=True):
            logits = float32_logits(self._model, rows)  # (<= TOKENS_AT_ONCE, V)
            logits[:, self._left_out] = -torch.inf
            token_scores.append(logits.log_softmax(-1).gather(1, ids[:, None]).squeeze(1))
        scores = torch.zeros(batch.target_mask.shape, dtype=torch.float64)  # (B, T)
        scores[batch.target_mask.cpu()] = torch.cat(token_scores).double().cpu()
        return scores
