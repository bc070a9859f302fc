"""Figures of a model of many directions: one for each direction, their mean, and the worst.

`tasks.translation` makes them at each validation, and of test sets. `bleu.en-de` is the name of the BLEU of a
direction, `bleu` that of the mean, and `bleu.worst` that of the worst direction.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

import numpy as np

from seq2seq.config.directions import LanguagesConfig, Sides
from seq2seq.data.examples import Pair, Source
from seq2seq.evaluation.uncertainty import Measured
from seq2seq.languages import direction_name
from seq2seq.text.tokenizer import TokenizerPair
from seq2seq.training.state import is_standard_error

WORST = "worst"
# More often than this in an epoch, a pair is learned by heart.
MOST_TIMES = 30
COUNTED_PAIRS = 2000
LOWER_IS_BETTER = ("valid_loss", "ter")


def rows_of_directions(examples: Sequence[Pair]) -> dict[Sides | None, list[int]]:
    """Return the indices of the examples of each direction, in the order of the directions' first examples."""
    rows: dict[Sides | None, list[int]] = {}
    for row, pair in enumerate(examples):
        rows.setdefault(pair.direction, []).append(row)
    return rows


def by_direction(
    found: Mapping[Sides | None, Mapping[str, Measured]], rows: Mapping[Sides | None, Sequence[int]]
) -> dict[str, Measured]:
    """Return the figures of all directions by name, with their mean and the worst of them.

    The contributions to a mean are such that their standard error is that of the mean of independent sets. The mean
    and the worst have a contribution of every row. So two validations can be compared row by row, even if another
    direction has become the worst.
    """
    if None in found:
        return dict(found[None])
    named: dict[str, Measured] = {}
    total = sum(map(len, rows.values()))
    for metric in next(iter(found.values())):
        each = {direction_name(sides): values[metric] for sides, values in found.items() if sides is not None}
        placed = [(values[metric], rows[sides]) for sides, values in found.items()]
        worst = (max if metric in LOWER_IS_BETTER else min)(placed, key=lambda one: one[0].value)
        named[metric], named[f"{metric}.{WORST}"] = _mean(placed, total), _mean([worst], total)
        named |= {f"{metric}.{name}": measured for name, measured in each.items()}
    return named


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each direction of two validations, with its metrics and their changes."""
    named: dict[str, list[str]] = {}
    for key, value in after.items():
        metric, _, name = key.partition(".")
        if name not in ("", WORST) and key in before and not is_standard_error(key, after):
            change = f"(initial model {before[key]:.4g}, {value - before[key]:+.3g})"
            named.setdefault(name, []).append(f"{metric} {value:.4g} {change}")
    yield from (f"{name}: {', '.join(figures)}" for name, figures in named.items())


def unknown_share(sources: Sequence[Source], tokenizers: TokenizerPair) -> float:
    """Return the share of characters that the vocabulary lacks, in the first pairs of sources."""
    unknown = total = 0
    for pair in islice(chain.from_iterable(source.untagged() for source in sources), COUNTED_PAIRS):
        for text, tokenizer in zip(pair.texts, (tokenizers.source, tokenizers.target), strict=True):
            known = tokenizer.normalizer
            characters = known(text)
            total += len(characters)
            unknown += sum(not known.knows(character) for character in characters)
    return unknown / max(total, 1)


def target_of(direction: str, languages: LanguagesConfig) -> str | None:
    """Return the target language of a direction's name."""
    return next((target for target in languages.target if direction.endswith(f"-{target}")), None)


def _mean(each: Sequence[tuple[Measured, Sequence[int]]], total: int) -> Measured:
    """Return the mean of the figures of some rows out of `total`; the other rows contribute nothing to its error."""
    value = float(np.mean([measured.value for measured, _ in each]))
    contributions = np.full(total, value)
    for measured, rows in each:
        share = total / (len(each) * len(rows))
        contributions[list(rows)] = value + share * (measured.contributions - measured.value)
    return Measured(value, contributions)
