"""Find out which attention heads of a model align words, and what its probabilities say about its translations.

The end of a training run and `s2s align --calibrate` ask for it. No gold alignments are needed: anchors are words whose
partner is certain, because both stand once in their sentences and are equal (numbers, names) or always occur together.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seq2seq.evaluation.text import sentence_chrf
from seq2seq.inference.aligner import Aligner, distributions, normalized
from seq2seq.inference.confidence import GOOD, features, fit, unfit
from seq2seq.markup.placeholders import ranked
from seq2seq.runtime import Runtime
from seq2seq.store.calibration import LONGEST_WORD, Calibration, StandInClass
from seq2seq.store.model_folder import LoadedModel
from seq2seq.text.scripts import is_word
from seq2seq.text.words import Span, word_spans

MOST_PAIRS = 1000
TRANSLATED = 500  # sentences that the confidence is measured on
LEAST_ANCHORS = 50
MOST_CLASSES = 3  # of placeholders that are kept
# Two words are partners where they occur together in so many pairs, and in so large a share of the pairs with either.
LEAST_TOGETHER, LEAST_DICE = 4, 0.7
SHORTEST_COPY = 4  # letters; shorter equal words, such as "in" or "die", may be chance
EM_STEPS = 50
LEAST_HEAD = 0.01  # a head of less weight is left out
DISTANCES = (0.0, 1.0, 2.0, 4.0)

# What each head gives to the words of a pair, (K, J, I), and its anchors: source and target word by index.
_Anchored = tuple[np.ndarray, list[tuple[int, int]]]


class _EachHead(Aligner):
    @cached_property
    def channels(self) -> Tensor:
        """Each head by itself, (K, K)."""
        return torch.eye(len(self.heads))


def calibrate(
    loaded: LoadedModel,
    runtime: Runtime,
    pairs: Sequence[tuple[str, str]],
    translate: Callable[[Sequence[str]], Sequence[str]],
) -> Calibration:
    """Measure a model. Stand-ins are tried where there are enough anchors.

    Args:
        loaded: the model.
        runtime: where it computes.
        pairs: sentences and their translations by people; the first `MOST_PAIRS` are read, without those that are too
            long for the model.
        translate: the model's own translations.
    """
    heads = _EachHead(loaded, runtime, calibration=Calibration())
    pairs = [pair for pair in pairs[:MOST_PAIRS] if heads.fits(pair)]
    found = _best_heads(heads, pairs)
    if not pairs:
        return found
    answered = list(zip(pairs, translate([source for source, _ in pairs[:TRANSLATED]]), strict=False))
    aligner = Aligner(loaded, runtime, calibration=found)
    details = aligner.align([(source, translation) for (source, _), translation in answered])
    rows = np.array([features(one.words, one.links, len(one.source_words)) for one in details])
    is_good = np.array([sentence_chrf(translation, target) >= GOOD for (_, target), translation in answered])
    classes = _stand_ins(pairs, translate) if found.accuracy is not None else ()
    measured = {"confidence": fit(rows, is_good), "no_confidence": unfit(is_good), "stand_ins": tuple(classes)}
    return found.model_copy(update=measured)


def _stand_ins(
    pairs: Sequence[tuple[str, str]], translate: Callable[[Sequence[str]], Sequence[str]]
) -> Iterator[StandInClass]:
    for one in ranked(translate, [source for source, _ in pairs], _known_words(pairs))[:MOST_CLASSES]:
        if one.kept:
            words, answers = zip(*one.placeholders.pairs, strict=True)
            yield StandInClass(name=one.placeholders.name, words=words, answers=answers, kept=round(one.share, 4))


def _best_heads(aligner: Aligner, pairs: Sequence[tuple[str, str]]) -> Calibration:
    """The mixture of heads that makes the anchors likeliest, by expectation maximisation.

    The accuracy is that of mixtures which were fitted to the other half of the sentences.
    """
    found = [
        (matrix, list(_positions(source.words, target.words, anchors)))
        for (source, target, matrix, _), anchors in zip(aligner.word_matrices(pairs), _anchors(pairs), strict=True)
    ]
    count = sum(len(anchors) for _, anchors in found)
    if count < LEAST_ANCHORS:
        return Calibration(anchors=count)
    halves = found[::2], found[1::2]
    hits = sum(_hits(other, *_fitted(half)) for half, other in (halves, halves[::-1]))
    weights, distance = _fitted(found)
    heads = {
        name: round(float(weight), 4)
        for name, weight in zip(aligner.heads, weights, strict=True)
        if weight >= LEAST_HEAD
    }
    return Calibration(heads=heads, distance=distance, accuracy=round(hits / count, 4), anchors=count)


def _fitted(found: Sequence[_Anchored]) -> tuple[np.ndarray, float]:
    """The weights of the heads, and then the distance, that make the anchors likeliest."""
    weights = _mixture(_likelihoods(found))

    def likelihood(distance: float) -> float:
        return sum(float(np.log([row[source] for row, source in _rows(one, weights, distance)]).sum()) for one in found)

    return weights, max(DISTANCES, key=likelihood)


def _hits(found: Sequence[_Anchored], weights: np.ndarray, distance: float) -> int:
    return sum(int(row.argmax()) == source for one in found for row, source in _rows(one, weights, distance))


def _rows(one: _Anchored, weights: np.ndarray, distance: float) -> list[tuple[np.ndarray, int]]:
    """For each anchor, the distribution of its target word and its source word."""
    matrix, anchors = one
    best = distributions(np.tensordot(weights, matrix, 1), distance) if anchors else ()
    return [(best[target], source) for source, target in anchors]


def _likelihoods(found: Sequence[_Anchored]) -> np.ndarray:
    """What each head gives to each anchor, (N, K)."""
    rows = [normalized(matrix[:, target])[:, source] for matrix, anchors in found for source, target in anchors]
    return np.stack(rows)


def _mixture(likelihoods: np.ndarray) -> np.ndarray:
    """Weights (K,) of the distributions that gave N events these likelihoods (N, K)."""
    weights = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(EM_STEPS):
        shares = likelihoods * weights
        weights = (shares / shares.sum(1, keepdims=True)).mean(0)
    return weights


def _anchors(pairs: Sequence[tuple[str, str]]) -> Iterator[list[tuple[Span, Span]]]:
    """For each pair, the words of both sides whose partners are certain."""
    sides = [[_single_words(text) for text in pair] for pair in pairs]
    partners = _partners(sides)
    for source, target in sides:
        yield [
            (source[one], target[other])
            for one in source
            for other in target
            if (one == other and (len(one) >= SHORTEST_COPY or one.isdecimal())) or (one, other) in partners
        ]


def _partners(sides: Sequence[Sequence[dict[str, Span]]]) -> dict[tuple[str, str], int]:
    """Words that occur together nearly always, and in how many pairs they do."""
    counts: tuple[Counter, Counter] = Counter(), Counter()
    together: Counter[tuple[str, str]] = Counter()
    for source, target in sides:
        counts[0].update(source.keys())
        counts[1].update(target.keys())
        together.update((one, other) for one in source for other in target)
    dice = {
        (one, other): 2 * count / (counts[0][one] + counts[1][other])
        for (one, other), count in together.items()
        if count >= LEAST_TOGETHER
    }
    best: tuple[Counter, Counter] = Counter(), Counter()
    for pair, value in dice.items():
        for side, word in zip(best, pair, strict=True):
            side[word] = max(side[word], value)
    mutual = [
        (one, other)
        for (one, other), value in dice.items()
        if value >= LEAST_DICE and value == best[0][one] == best[1][other]
    ]
    rivals = [Counter(words) for words in zip(*mutual, strict=True)]  # words that always come together have several
    return {
        pair: together[pair] for pair in mutual if all(side[word] == 1 for side, word in zip(rivals, pair, strict=True))
    }


def _known_words(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Words of letters with their partners, as they are written most often, the most frequent first."""
    partners = _partners([[_single_words(text) for text in pair] for pair in pairs])
    spellings: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for pair in pairs:
        for side, text in zip(spellings, pair, strict=True):
            side.update(text[begin:end] for begin, end in word_spans(text, ()))
    written: list[dict[str, str]] = [{}, {}]
    for side, found in zip(spellings, written, strict=True):
        for word, _ in side.most_common():
            found.setdefault(word.casefold(), word)
    frequent = sorted(partners, key=lambda pair: (-partners[pair], pair))
    return [
        (written[0][one], written[1][other])
        for one, other in frequent
        if is_word(one)
        and is_word(other)
        and one != other
        and SHORTEST_COPY <= min(len(one), len(other)) <= max(len(one), len(other)) <= LONGEST_WORD
    ]


def _single_words(text: str) -> dict[str, Span]:
    """The words that stand once in a text, without case, and where."""
    spans = [span for span in word_spans(text, ()) if text[span[0]].isalnum()]
    words = [text[begin:end].casefold() for begin, end in spans]
    counts = Counter(words)
    return {word: span for word, span in zip(words, spans, strict=True) if counts[word] == 1}


def _positions(
    source: Sequence[Span], target: Sequence[Span], anchors: Sequence[tuple[Span, Span]]
) -> Iterator[tuple[int, int]]:
    """The indices of anchors among the words of both sides."""
    for one, other in anchors:
        if one in source and other in target:
            yield source.index(one), target.index(other)
