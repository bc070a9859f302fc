"""Word alignments of given translations, with the log-probability of each target word.

One teacher-forced pass over the texts gives both, for translations by any engine. Alignments are read from the
decoder's attention over the source (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine
Translation"), with the heads that `calibrating` selected.

Shapes: B pairs, C channels, K heads of all layers (first unchanged, then shifted by one step), T target length, S
source length, J target words, I source words.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seq2seq.data.collate import TranslationBatch, collate_translation
from seq2seq.errors import ModelError
from seq2seq.inference.confidence import confidence
from seq2seq.inference.groups import PairPart, pair_parts, token_groups
from seq2seq.inference.one_model import computing
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.translation import PartSpans, Translation
from seq2seq.inference.translator import Translator
from seq2seq.lines import as_one_line, checked_pairs
from seq2seq.memory import in_parts
from seq2seq.model.attention import CrossAttention, capture_attention
from seq2seq.runtime import Runtime, multiplies_bfloat16
from seq2seq.store.calibration import FILE, Calibration, read_calibration
from seq2seq.store.finding import find_model
from seq2seq.store.model_folder import LoadedModel
from seq2seq.store.opened import in_one_state
from seq2seq.text.alignment import Alignment, Link, Word, copied, moved
from seq2seq.text.normalization import normalized as normal_form
from seq2seq.text.tokenizer import encodable
from seq2seq.text.words import Span, owners, spaced_words, without_overlaps, word_spans

# Least weight of a further link, to a source word that is not the first choice of any target word.
LEAST_WEIGHT = 0.15
# Some source words, such as the final full stop, get much attention from all target words. So a weight is divided by
# this power of the mean weight of its source word. Two models of Multi30k, accuracy on anchors (%) and alignment error
# rate against eflomal:
# 0.5: 93.4 and 93.2, 0.30 and 0.35; 0.75: 94.0 and 92.8, 0.24 and 0.31; 1: 91.7 and 91.0, 0.23 and 0.29.
SINK_POWER = 0.75


class _Side:
    """One text of a pair, as pieces and as words of the original text.

    No piece of a language tag belongs to a word. If words are split at white space, a typed tag is a word without
    pieces; otherwise it is not a word.

    Args:
        text: the original text.
        tag: ids of the tag, which are the same in all parts of the text.
        ids: ids of the text.
        spans: span of each of them in the original text.
        words: words of the original text; None splits it at white space.
        end_of_tag: where a typed tag ends in the original text.
    """

    def __init__(
        self,
        text: str,
        tag: Sequence[int],
        ids: Sequence[int],
        spans: Sequence[Span],
        words: Iterable[Span] | None,
        end_of_tag: int = 0,
    ):
        self.text, self.tag, self.ids = text, tag, ids
        every = spaced_words(text) if words is None else without_overlaps(words)
        in_tag = sum(end <= end_of_tag for _, end in every)
        self._first = in_tag if words is None else 0
        self.words = every if words is None else every[in_tag:]
        # The word of each piece; -1 for white space, and for a tag that is spelled in pieces of text.
        self.owner = np.array(
            [
                -1 if begin < end_of_tag >= end or owner < 0 else owner + self._first
                for (begin, end), owner in zip(spans, owners(spans, every[in_tag:]), strict=True)
            ],
            dtype=np.int64,
        )
        known = np.array([*np.where(self.owner < 0, len(self.words), self.owner), len(self.words)])
        self._following = np.minimum.accumulate(known[::-1])[::-1]  # the first word at or after each piece

    def __len__(self) -> int:
        return len(self.tag) + len(self.ids)

    def is_spelled_like(self, other: "_Side") -> bool:
        """Whether both have the same text and words in normal form."""
        if normal_form(self.text).strip() != normal_form(other.text).strip():
            return False
        words, others = ([normal_form(side.text[slice(*word)]) for word in side.words] for side in (self, other))
        return words == others

    def share(self, pieces: range) -> tuple[int, np.ndarray]:
        """Return the first word of consecutive pieces, and a matrix (words, pieces) of which piece is in which word.

        Rows of the matrix begin with the first word. Words without pieces belong to the part before them, so that each
        word is in a part.
        """
        owner = self.owner[pieces.start : pieces.stop]
        first = self._first if pieces.start == 0 else int(self._following[pieces.start])
        last = max(int(owner.max(initial=first - 1)) + 1, int(self._following[pieces.stop]))
        return first, (owner == np.arange(first, last)[:, None]).astype(np.float32)

    def means(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of each word over the values of its pieces."""
        owned = self.owner >= 0
        counts = np.bincount(self.owner[owned], minlength=len(self.words))
        return np.bincount(self.owner[owned], values[owned], len(self.words)) / np.maximum(counts, 1)


class Aligner(Scorer):
    """A translation model that aligns given translations.

    A pair that is longer than the model's positions is cut into equal parts on both sides, as in `Scorer`. `channels`
    (C, K) are mixtures of heads, by default the single mixture of the model's calibration.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        runtime: Runtime,
        batch_tokens: int | None = None,
        calibration: Calibration | None = None,
    ):
        super().__init__(loaded, runtime, batch_tokens)
        self.calibration = read_calibration(loaded.folder) if calibration is None else calibration
        self._has_fast_products = False
        config = loaded.model.config
        self.heads = [
            f"{layer}.{head}{shift}"
            for shift in ("", "+")
            for layer in range(1, config.num_decoder_layers + 1)
            for head in range(1, config.num_heads + 1)
        ]

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        device: str = "auto",
        precision: str | None = None,
        *arguments: Any,
        **computing: Any,
    ) -> Self:
        """Load a model, with the arguments and errors of `OneModel.load`.

        Without `precision`, `align` multiplies in bfloat16 if the CPU supports it natively: 998 of 1,000 links stay the
        same, in three fifths of the time. Probabilities then depend a little on the other pairs of a call: those of
        words by up to 0.02, confidence by up to 0.004.

        Raises:
            ModelError: also if the calibration belongs to another model.
        """
        aligner = super().load(path, device, precision, *arguments, **computing)
        _ = aligner.channels  # raises for the calibration of another model now, and not at the first text
        here = aligner._runtime.device
        is_open = precision is None and here.type == "cpu"
        aligner._has_fast_products = is_open and multiplies_bfloat16(here)
        return aligner

    @cached_property
    def channels(self) -> Tensor:
        """The mixture of heads, (1, K)."""
        heads = self.calibration.heads
        if unknown := [name for name in heads if name not in self.heads]:
            raise ModelError(f"{FILE}: no attention head {unknown[0]}; write the file again with s2s align --calibrate")
        weights = [heads.get(name, 0.0) if heads else float(not name.endswith("+")) for name in self.heads]
        return torch.tensor([weights]) / max(sum(weights), 1e-9)

    def align(
        self, pairs: Sequence[tuple[str, str]], spaced: bool = False, probabilities: bool = True
    ) -> list[Alignment]:
        """Return the alignment of each (source, target), in float32 independently of the others.

        Args:
            pairs: texts of one line each.
            spaced: split words only at white space; otherwise punctuation marks are separate words, and text in scripts
                without spaces is split at the boundaries of its pieces.
            probabilities: compute log-probabilities and confidence. Without them, log-probabilities are NaN and the
                confidence is None, in two thirds of the time.

        Raises:
            TypeError: `pairs` is not a list of pairs of texts.
            RuntimeError: the memory is too small even for one pair.
        """
        pairs = checked_pairs(pairs, "align")
        sides = self._sides(pairs, spaced)
        links: list[dict[tuple[int, int], float]] = [{} for _ in sides]
        log_probs = [np.zeros(len(target.ids)) for _, target in sides]
        for part, scores, (row, column), matrix in self._matched(sides, probabilities):
            log_probs[part.pair][part.target.start : part.target.stop] = scores
            known = links[part.pair]
            for target_word, source_word, weight in _links(distributions(matrix[0], self.calibration.distance)):
                place = target_word + row, source_word + column  # a word may be cut, and be in two parts
                known[place] = max(weight, known.get(place, 0.0))
        return [self._alignment(*both, *results) for both, *results in zip(sides, links, log_probs, strict=True)]

    def explain(self, translations: Sequence[Translation], probabilities: bool = True) -> list[Translation]:
        """Return the translations with `details`, the alignments of their parts.

        Spans refer to the whole text. A part is aligned with the language tag that it was translated with. A copied
        part is linked to itself, without the model.
        """
        pairs = [
            (answer.tag_of_parts + answer.source[slice(*part.source)], answer.text[slice(*part.target)])
            for answer in translations
            for part in answer.parts
            if not part.is_copied
        ]
        aligned = iter(self.align(pairs, probabilities=probabilities))

        def detail(answer: Translation, part: PartSpans) -> Alignment:
            source = answer.source[slice(*part.source)]
            found = copied(source) if part.is_copied else next(aligned).without_begin(len(answer.tag_of_parts))
            return found.shifted(part.source[0], part.target[0])

        return [
            replace(answer, details=tuple(detail(answer, part) for part in answer.parts)) for answer in translations
        ]

    def fits(self, pair: tuple[str, str]) -> bool:
        """Whether a pair fits the model's positions in one part."""
        return self._fit(*self._sides([pair], False)[0])

    def word_matrices(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[_Side, _Side, np.ndarray, np.ndarray]]:
        """Return both sides, the attention between words (C, J, I) and the target log-probabilities (T,) of each pair.

        The pairs must fit the model (`fits`). The attention of a target word is its distribution over source words.
        """
        sides = self._sides(pairs, False)
        matrices = [
            np.zeros((len(self.channels), len(target.words), len(source.words)), np.float32) for source, target in sides
        ]
        log_probs = [np.zeros(len(target.ids)) for _, target in sides]
        for part, scores, _, matrix in self._matched(sides, True):
            matrices[part.pair], log_probs[part.pair] = matrix, scores
        return [(*both, matrix, scores) for both, matrix, scores in zip(sides, matrices, log_probs, strict=True)]

    def _sides(self, pairs: Sequence[tuple[str, str]], spaced: bool) -> list[tuple[_Side, _Side]]:
        return [self._both(source, self._target(target, spaced), spaced) for source, target in pairs]

    def _both(self, source: str, target: _Side, spaced: bool) -> tuple[_Side, _Side]:
        side = self._source(source, spaced, is_cut=False)
        if not self._fit(side, target):
            side = self._source(source, spaced, is_cut=True)
        return side, target

    def _fit(self, source: _Side, target: _Side) -> bool:
        return max(len(source), len(target)) <= self._part_length

    def _source(self, text: str, spaced: bool, is_cut: bool) -> _Side:
        """Return a source, read as for translation; if it `is_cut`, a typed tag is read apart, as in `Scorer`."""
        line = encodable(as_one_line(text))
        tag, rest = self._tag_apart(line.lstrip())
        end_of_tag = len(line) - len(rest)
        begin = end_of_tag if is_cut else 0
        ids, mapped, spans = self._tokenizers.source.read_spans(line[begin:])
        num_tags = len(ids) - len(spans)

        def original(span: Span) -> Span:
            return moved(mapped.original(span), begin)

        words = None if spaced else map(original, word_spans(mapped.text, spans))
        tag = tag if is_cut else ids[:num_tags]
        return _Side(text, tag, ids[num_tags:], list(map(original, spans)), words, end_of_tag)

    def _target(self, text: str, spaced: bool) -> _Side:
        """Return a target, read as in training. A tag that it begins with is one of its ids, but in no word."""
        ids, mapped, spans = self._tokenizers.target.target_spans(text)
        before = [(-1, 0)] * (len(ids) - len(spans))
        words = None if spaced else map(mapped.original, word_spans(mapped.text, spans))
        return _Side(text, (), ids, [*before, *map(mapped.original, spans)], words)

    def _matched(
        self, sides: Sequence[tuple[_Side, _Side]], probabilities: bool
    ) -> Iterator[tuple[PairPart, np.ndarray, tuple[int, int], np.ndarray]]:
        """Yield each part with its target log-probabilities, its first (target, source) word, and its matrix (C, J, I).

        The matrix is the attention between words. As parts are yielded one by one, memory never contains the matrix of
        a whole pair, which grows with the square of its length.
        """
        cut = chain.from_iterable(
            pair_parts(index, range(len(source.ids)), range(len(target.ids)), self._most(source.tag))
            for index, (source, target) in enumerate(sides)
        )
        parts = [part for part in cut if part.target]
        lengths = [max(len(sides[part.pair][0].tag) + len(part.source), len(part.target)) + 1 for part in parts]
        for indices in token_groups(lengths, self.batch_tokens):
            group = [parts[index] for index in indices]
            for part, scores, attention in zip(group, *self._forced(group, sides, probabilities), strict=True):
                column, source = sides[part.pair][0].share(part.source)
                row, target = sides[part.pair][1].share(part.target)
                first = len(sides[part.pair][0].tag)
                targets = slice(self._num_tags, self._num_tags + len(part.target))
                weights = attention[:, targets, first : first + len(part.source)]
                yield part, scores[targets], (row, column), target @ weights @ source.T

    @torch.inference_mode()
    def _forced(
        self, parts: Sequence[PairPart], sides: Sequence[tuple[_Side, _Side]], probabilities: bool
    ) -> tuple[Iterator, Iterator]:
        """Return iterators over the log-probabilities (T,) and the attention (C, T, S) of each part."""
        both = [sides[part.pair] for part in parts]
        ids = [[*one.tag, *map(one.ids.__getitem__, part.source)] for (one, _), part in zip(both, parts, strict=True)]
        targets = [list(map(other.ids.__getitem__, part.target)) for (_, other), part in zip(both, parts, strict=True)]
        batch = collate_translation(ids, targets, self._tokenizers, range(len(parts)))
        scores, attention = zip(*in_parts(partial(self._forced_batch, probabilities), batch), strict=True)
        return chain.from_iterable(scores), chain.from_iterable(attention)

    def _forced_batch(self, probabilities: bool, batch: TranslationBatch) -> tuple[np.ndarray, np.ndarray]:
        fast = torch.autocast(self._runtime.device.type, torch.bfloat16, enabled=self._has_fast_products)
        with fast, capture_attention(self._model, CrossAttention) as captured:
            if probabilities:
                scores = self.token_scores(batch)  # (B, T)
            else:
                here = batch.to(self._runtime.device)
                self._model(here.source_ids, here.source_mask, here.target_input)
                scores = torch.full(batch.target_mask.shape, torch.nan)
        count = len(self._model.decoder.layers)
        heads = torch.cat([captured[f"decoder.layers.{layer}.cross_attention"] for layer in range(count)], 1).float()
        channels = self.channels.to(heads.device)
        now, later = channels.chunk(2, dim=1)  # (C, K / 2)
        attention = torch.einsum("ck,bkts->bcts", now, heads)
        attention[:, :, :-1] += torch.einsum("ck,bkts->bcts", later, heads[:, :, 1:])
        return scores.numpy(), attention.cpu().numpy()

    def _alignment(
        self, source: _Side, target: _Side, known: dict[tuple[int, int], float], log_probs: np.ndarray
    ) -> Alignment:
        words = tuple(map(Word, target.words, target.means(log_probs).tolist()))
        if source.is_spelled_like(target):
            links = tuple(Link(*spans, 1.0) for spans in zip(source.words, target.words, strict=True))
        else:
            links = tuple(
                Link(source.words[column], target.words[row], weight) for (row, column), weight in sorted(known.items())
            )
        return Alignment(
            source=(0, len(source.text)),
            target=(0, len(target.text)),
            source_words=tuple(source.words),
            words=words,
            links=links,
            confidence=None
            if np.isnan(log_probs).any()
            else confidence(self.calibration.confidence, words, links, len(source.words)),
        )


def load_both(path: str | Path | None, **options: Any) -> tuple[Translator, Aligner]:
    """Return a translator and the aligner of one model, from one state of its folder.

    The options are those of `Translator.load`.

    Raises:
        ModelError, UserError: as in `Translator.load`.
    """
    folder = find_model(path, "translation")
    aligning = computing(options)
    return in_one_state(folder, lambda: (Translator.load(folder, **options), Aligner.load(folder, **aligning)))


def distributions(matrix: np.ndarray, distance: float) -> np.ndarray:
    """Return attention between words, (J, I), as a distribution over source words for each target word.

    `distance` is the log ratio by which a partner at the other end of the sentence is less likely (the diagonal prior
    of Dyer et al. 2013, "A Simple, Fast, and Effective Reparameterization of IBM Model 2").
    """
    places = [(np.arange(count) + 0.5) / max(count, 1) for count in matrix.shape]
    rows = normalized(matrix * np.exp(-distance * np.abs(places[0][:, None] - places[1])))
    return normalized(rows / rows.mean(-2, keepdims=True) ** SINK_POWER) if rows.size else rows


def normalized(matrix: np.ndarray) -> np.ndarray:
    """Return the matrix with rows that add up to 1, and no element 0."""
    matrix = matrix + 1e-6
    return matrix / matrix.sum(-1, keepdims=True)


def _links(weights: np.ndarray) -> Iterator[tuple[int, int, float]]:
    """Yield target word, source word and weight of each link of distributions (J, I)."""
    if not weights.size:
        return
    chosen = np.zeros(weights.shape, bool)
    chosen[np.arange(len(weights)), weights.argmax(1)] = True
    free = np.flatnonzero(~chosen.any(0))
    best = weights[:, free].argmax(0)
    chosen[best, free] = weights[best, free] >= LEAST_WEIGHT
    for row, column in np.argwhere(chosen).tolist():
        yield row, column, float(weights[row, column])
