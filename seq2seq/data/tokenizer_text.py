"""Training texts of tokenizers: examples that the length filters will probably keep.

`tasks` trains the tokenizers of a run on them. A small first tokenizer excludes examples that are far too long, or far
longer than their other side: one line of junk would add thousands of pieces that training never sees.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from statistics import median

from seq2seq.config.corpora import FilterConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.examples import Example, Examples
from seq2seq.data.filters import RATIO_FROM, FilterCounts, PairFilter
from seq2seq.errors import DataError, UserError, quiet, some_of
from seq2seq.text.tokenizer import Tokenizer

# The small tokenizer sees the first examples of each source, up to SHORT times the median length.
EXAMPLES, VOCABULARY, SHORT = 20_000, 8000, 4
# Factor by which its lengths may exceed those of the tokenizer to be trained.
MARGIN = 1.5


class TokenizerText:
    """The text of each side of the kept examples, readable any number of times.

    Args:
        sources: the corpora.
        filters: the length filters.
        settings: of the tokenizer.
        seed: of the tokenizer.
        repeats: how often each text of a source occurs, such as 2.5; once by default.
    """

    def __init__(
        self,
        sources: Sequence[Examples],
        filters: FilterConfig,
        settings: TokenizerConfig,
        seed: int,
        repeats: Sequence[float] | None = None,
    ):
        self._repeats = repeats or [1.0] * len(sources)
        self._sources, self._filters, self._settings, self._seed = sources, filters, settings, seed
        self._rules = PairFilter.of(filters, sources)

    def side(self, index: int) -> Iterator[str]:
        """Yield the texts of one side, in order.

        Raises:
            DataError: the filters keep no example.
        """
        counts = FilterCounts()
        for source, times in zip(self._sources, self._repeats, strict=True):
            due = 0.0
            for example in source:
                if rule := self._rules.rejects_text(example) or self._misfit(example):
                    counts.drop(rule)
                    continue
                counts.kept += 1
                due += times
                yield from repeat(example.texts[index], int(due))
                due -= int(due)
        if not counts.kept:
            names = some_of([source.name for source in self._sources])
            problem = f"{counts}; nothing is left to train a tokenizer on: loosen data.filters"
            raise DataError(f"{names}: {problem if counts.total else 'no examples to train a tokenizer on'}")

    def _misfit(self, example: Example) -> str | None:
        """Return the length filter that will very likely drop an example; only examples with many characters
        are encoded."""
        if self._rule([len(text) for text in example.texts]) is None or not self._small:
            return None
        sides = zip(self._small, example.texts, strict=True)
        return self._rule([len(small.encode(text)) for small, text in sides], MARGIN)

    def _rule(self, lengths: Sequence[int], margin: float = 1.0) -> str | None:
        shorter, longer = min(lengths), max(lengths) / margin
        if longer > self._filters.max_length:
            return "length"
        return "ratio" if longer > max(RATIO_FROM, self._filters.max_ratio * shorter) else None

    @cached_property
    def _small(self) -> list[Tokenizer]:
        """The small tokenizer of each side; empty if the short examples do not suffice to train it."""
        first = chain.from_iterable(islice(source, EXAMPLES) for source in self._sources)
        texts = [example.texts for example in first if self._rules.rejects_text(example) is None]
        if not texts:
            return []
        longest = [max(map(len, sides)) for sides in texts]
        most = max(self._filters.max_length, SHORT * median(longest))
        sides = list(zip(*(sides for sides, length in zip(texts, longest, strict=True) if length <= most), strict=True))
        size = min(self._settings.vocab_size, VOCABULARY)
        config = self._settings.model_copy(update={"vocab_size": size})
        try:
            with quiet("seq2seq"):
                if self._settings.shared and sides:
                    return [Tokenizer.train(chain(*sides), config, self._seed)] * len(sides)
                return [Tokenizer.train(side, config, self._seed) for side in sides]
        except UserError:
            return []
