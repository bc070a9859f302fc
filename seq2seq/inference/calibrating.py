"""The calibration of a model: the attention heads that align words, and a map from probabilities to confidence.

The end of a training run calls `calibrate`, and `s2s align --calibrate` calls `calibrate_folder`. They need no gold
alignments, but anchors: words with a certain partner. Both occur once in their sentences, and are equal (numbers,
names) or always occur together.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq.evaluation.text import sentence_chrf
from seq2seq.inference.aligner import Aligner, distributions, normalized
from seq2seq.inference.confidence import GOOD, features, fit, unfit
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.translator import Translator
from seq2seq.markup.placeholders import ranked
from seq2seq.runtime import Runtime, start
from seq2seq.store.calibration import LONGEST_WORD, Calibration, StandInClass
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.text.direction import Direction
from seq2seq.text.scripts import is_word
from seq2seq.text.words import Span, word_spans

MOST_PAIRS = 1000
TRANSLATED = 500  # sentences for the calibration of confidence
LEAST_ANCHORS = 50
MOST_CLASSES = 3  # classes of placeholders that are kept
# Two words are partners if they occur together in at least this many pairs, with at least this Dice coefficient.
LEAST_TOGETHER, LEAST_DICE = 4, 0.7
SHORTEST_COPY = 4  # letters; shorter equal words, such as "in" or "die", may be chance
EM_STEPS = 50
LEAST_HEAD = 0.01  # heads with a smaller weight are left out
DISTANCES = (0.0, 1.0, 2.0, 4.0)

# The attention of each head between the words of a pair, (K, J, I), and the anchors: source and target word by index.
_Anchored = tuple[np.ndarray, list[tuple[int, int]]]


class _EachHead(Aligner):
    @cached_property
    def channels(self) -> Tensor:
        """The channels of the separate heads, (K, K)."""
        return torch.eye(len(self.heads))


def calibrate(
    loaded: LoadedModel,
    runtime: Runtime,
    pairs: Sequence[tuple[str, str]],
    translate: Callable[[Sequence[str]], Sequence[str]],
) -> Calibration:
    """Return the calibration of a model. Placeholders are tried if there are enough anchors.

    Args:
        loaded: translation model.
        runtime: device and precision.
        pairs: sentences and their human translations; the first `MOST_PAIRS` are used, without those that are too long
            for the model.
        translate: function that returns the model's translations.
    """
    heads = _EachHead(loaded, runtime, calibration=Calibration())
    pairs = [pair for pair in pairs[:MOST_PAIRS] if heads.fits(pair)]
    calibration = _best_heads(heads, pairs)
    if not pairs:
        return calibration
    answered = list(zip(pairs, translate([source for source, _ in pairs[:TRANSLATED]]), strict=False))
    aligner = Aligner(loaded, runtime, calibration=calibration)
    details = aligner.align([(source, translation) for (source, _), translation in answered])
    rows = np.array([features(each.words, each.links, len(each.source_words)) for each in details])
    is_good = np.array([sentence_chrf(translation, target) >= GOOD for (_, target), translation in answered])
    classes = _stand_ins(pairs, translate) if calibration.accuracy is not None else ()
    measured = {"confidence": fit(rows, is_good), "no_confidence": unfit(is_good), "stand_ins": tuple(classes)}
    return calibration.model_copy(update=measured)


def calibrate_folder(
    folder: Path,
    pairs: Sequence[tuple[str, str]],
    source_language: str | None = None,
    target_language: str | None = None,
    **computing: Any,
) -> Calibration:
    """Return the calibration of a model in one direction, from its translations of the sources.

    `computing` are options of `runtime.start`; the other arguments are those of `calibrate` and `Translator.load`.

    Raises:
        ModelError: the model is damaged or a classifier.
        UserError: a language, device or precision is not possible.
    """
    here, loaded = start(**computing), load_model(folder).directed(Direction(source_language, target_language))
    Scorer(loaded, here)  # refuses a classifier
    languages = {"source_language": source_language, "target_language": target_language}
    translator = Translator.load(folder, **computing, **languages)
    return calibrate(loaded, here, pairs, lambda texts: [each.text for each in translator.translate(texts)])


def _stand_ins(
    pairs: Sequence[tuple[str, str]], translate: Callable[[Sequence[str]], Sequence[str]]
) -> Iterator[StandInClass]:
    for result in ranked(translate, [source for source, _ in pairs], _known_words(pairs))[:MOST_CLASSES]:
        if result.kept:
            words, answers = zip(*result.placeholders.pairs, strict=True)
            yield StandInClass(name=result.placeholders.name, words=words, answers=answers, kept=round(result.share, 4))


def _best_heads(aligner: Aligner, pairs: Sequence[tuple[str, str]]) -> Calibration:
    """Return the mixture of heads with the highest likelihood of the anchors, by expectation maximisation.

    The accuracy is cross-validated: the mixture for each half of the sentences is fitted to the other half.
    """
    anchored = [
        (matrix, list(_positions(source.words, target.words, anchors)))
        for (source, target, matrix, _), anchors in zip(aligner.word_matrices(pairs), _anchors(pairs), strict=True)
    ]
    anchored = [pair for pair in anchored if pair[1]]
    count = sum(len(anchors) for _, anchors in anchored)
    if count < LEAST_ANCHORS or len(anchored) < 2:
        return Calibration(anchors=count)
    halves = anchored[::2], anchored[1::2]
    hits = sum(_hits(other, *_fitted(half)) for half, other in (halves, halves[::-1]))
    weights, distance = _fitted(anchored)
    heads = {
        name: round(float(weight), 4)
        for name, weight in zip(aligner.heads, weights, strict=True)
        if weight >= LEAST_HEAD
    }
    return Calibration(heads=heads, distance=distance, accuracy=round(hits / count, 4), anchors=count)


def _fitted(anchored: Sequence[_Anchored]) -> tuple[np.ndarray, float]:
    """Return the weights (K,) of the heads with the highest likelihood of the anchors, and then the best distance."""
    weights = _mixture(_likelihoods(anchored))

    def likelihood(distance: float) -> float:
        rows = (_rows(pair, weights, distance) for pair in anchored)
        return sum(float(np.log([row[source] for row, source in of_pair]).sum()) for of_pair in rows)

    return weights, max(DISTANCES, key=likelihood)


def _hits(anchored: Sequence[_Anchored], weights: np.ndarray, distance: float) -> int:
    return sum(int(row.argmax()) == source for pair in anchored for row, source in _rows(pair, weights, distance))


def _rows(pair: _Anchored, weights: np.ndarray, distance: float) -> list[tuple[np.ndarray, int]]:
    """Return for each anchor the distribution (I,) of its target word, and the index of its source word."""
    matrix, anchors = pair
    best = distributions(np.tensordot(weights, matrix, 1), distance) if anchors else ()
    return [(best[target], source) for source, target in anchors]


def _likelihoods(anchored: Sequence[_Anchored]) -> np.ndarray:
    """Return the probability of each anchor by each head, (N, K)."""
    rows = [normalized(matrix[:, target])[:, source] for matrix, anchors in anchored for source, target in anchors]
    return np.stack(rows)


def _mixture(likelihoods: np.ndarray) -> np.ndarray:
    """Return the weights (K,) of a mixture of distributions, from the likelihoods (N, K) of N events."""
    weights = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(EM_STEPS):
        shares = likelihoods * weights
        weights = (shares / shares.sum(1, keepdims=True)).mean(0)
    return weights


def _anchors(pairs: Sequence[tuple[str, str]]) -> Iterator[list[tuple[Span, Span]]]:
    """Yield for each pair the words of both sides that are certain partners."""
    sides = [[_single_words(text) for text in pair] for pair in pairs]
    partners = _partners(sides)
    for source, target in sides:
        yield [
            (source[word], target[other])
            for word in source
            for other in target
            if (word == other and (len(word) >= SHORTEST_COPY or word.isdecimal())) or (word, other) in partners
        ]


def _partners(sides: Sequence[Sequence[dict[str, Span]]]) -> dict[tuple[str, str], int]:
    """Return pairs of words that nearly always occur together, with the number of pairs in which they do."""
    counts: tuple[Counter, Counter] = Counter(), Counter()
    together: Counter[tuple[str, str]] = Counter()
    for source, target in sides:
        counts[0].update(source.keys())
        counts[1].update(target.keys())
        together.update((word, other) for word in source for other in target)
    dice = {
        (word, other): 2 * count / (counts[0][word] + counts[1][other])
        for (word, other), count in together.items()
        if count >= LEAST_TOGETHER
    }
    best: tuple[Counter, Counter] = Counter(), Counter()
    for pair, value in dice.items():
        for side, word in zip(best, pair, strict=True):
            side[word] = max(side[word], value)
    mutual = [
        (word, other)
        for (word, other), value in dice.items()
        if value >= LEAST_DICE and value == best[0][word] == best[1][other]
    ]
    rivals = [Counter(words) for words in zip(*mutual, strict=True)]  # words of fixed phrases have several partners
    return {
        pair: together[pair] for pair in mutual if all(side[word] == 1 for side, word in zip(rivals, pair, strict=True))
    }


def _known_words(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return words of letters with their partners in the most frequent spelling, the most frequent first."""
    partners = _partners([[_single_words(text) for text in pair] for pair in pairs])
    spellings: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for pair in pairs:
        for side, text in zip(spellings, pair, strict=True):
            side.update(text[begin:end] for begin, end in word_spans(text, ()))
    written: list[dict[str, str]] = [{}, {}]
    for side, spelling_of in zip(spellings, written, strict=True):
        for word, _ in side.most_common():
            spelling_of.setdefault(word.casefold(), word)
    frequent = sorted(partners, key=lambda pair: (-partners[pair], pair))
    return [
        (written[0][word], written[1][other])
        for word, other in frequent
        if is_word(word)
        and is_word(other)
        and word != other
        and SHORTEST_COPY <= min(len(word), len(other)) <= max(len(word), len(other)) <= LONGEST_WORD
    ]


def _single_words(text: str) -> dict[str, Span]:
    """Return the words that occur once in a text, in folded case, with their spans."""
    spans = [span for span in word_spans(text, ()) if text[span[0]].isalnum()]
    words = [text[begin:end].casefold() for begin, end in spans]
    counts = Counter(words)
    return {word: span for word, span in zip(words, spans, strict=True) if counts[word] == 1}


def _positions(
    source: Sequence[Span], target: Sequence[Span], anchors: Sequence[tuple[Span, Span]]
) -> Iterator[tuple[int, int]]:
    """Yield the indices of anchors among the words of both sides."""
    for span, other in anchors:
        if span in source and other in target:
            yield source.index(span), target.index(other)
