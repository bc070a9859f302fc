"""Perturbed copies of examples, made as they are read: properties of user input that corpora of edited text lack.

`sources` wraps a source whose configuration has noise. The draws for a line depend only on (seed, number of the line),
so the same configuration always gives the same text. The kinds are those of OpusTrainer's modifiers, and a few more
(Bogoychev et al. 2023, "OpusCleaner and OpusTrainer").
"""

import functools
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import regex

from seq2seq.config.corpora import NoiseConfig
from seq2seq.data.examples import Chunk, Example, Pair, Position, Source
from seq2seq.languages import language_code
from seq2seq.text.scripts import OWN_CASE, SENTENCE_MARK, graphemes, is_word, title, upper

TYPO_SHARE = 0.1  # share of the words of a text with typos; at least one word
LAST_MARK = regex.compile(rf"(?<!{SENTENCE_MARK}){SENTENCE_MARK}++\s*$", regex.VERSION1)
EMOJI = "😀😂😉😍😎😢😡👍👎🙏🎉🔥❤⭐✅🚀🌍🐱🐶☕"
SYLLABLES = ("ba", "dor", "el", "fin", "gu", "har", "ik", "jo", "kal", "lum", "mi", "nov", "or", "pe", "quen", "rys")


class NoisySource(Source):
    """The examples of a source with noise. Changes of case follow the rules of the languages of the sides.

    Args:
        source: examples, which may have a direction of their own.
        noise: the kinds of noise.
        languages: the languages of the sides, or all possible ones if each example has its own.
    """

    def __init__(self, source: Source, noise: NoiseConfig, languages: Sequence[str | None] = ()):
        self._source, self._noise, self._languages = source, noise, languages
        self.name, self.weight, self.size, self.tag = source.name, source.weight, source.size, source.tag
        self.direction = source.direction
        own = [code if (code := language_code(language)) in OWN_CASE else "" for language in languages]
        self._settings = f" {noise.model_dump_json()}" + (f" {own}" if any(own) else "")
        self.fingerprint = self._known_as(source.fingerprint)

    @property
    def former(self) -> str:
        """The fingerprint in earlier versions, made from that of the source."""
        return self._known_as(self._source.former)

    def _known_as(self, fingerprint: str) -> str:
        return hashlib.sha256((fingerprint + self._settings).encode()).hexdigest()

    @property
    def invalid(self):
        """Lines that were not UTF-8, as in `Source`."""
        return self._source.invalid

    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Yield the perturbed examples, as `Source.chunks` does."""
        for chunk in self._source.chunks(start):
            yield replace(chunk, parse=functools.partial(_parsed, chunk.parse, self._noise, self._languages, self.tag))


def _parsed(
    parse: Callable[[object, int], list[Example | None]],
    noise: NoiseConfig,
    languages: Sequence[str | None],
    tag: str | None,
    raw: object,
    first: int,
) -> list[Example | None]:
    lines = enumerate(parse(raw, first), start=first)
    return [example and perturbed_line(example, line, noise, languages, tag) for line, example in lines]


def perturbed_line(
    example: Example, line: int, noise: NoiseConfig, languages: Sequence[str | None] = (), tag: str | None = None
) -> Example:
    """Return the example in a line of a source as training reads it; see `perturbed`."""
    return perturbed(example, noise, random.Random(f"{noise.seed} {line}"), languages, tag)


def perturbed(
    example: Example,
    noise: NoiseConfig,
    draw: random.Random,
    languages: Sequence[str | None] = (),
    tag: str | None = None,
) -> Example:
    """Return an example with the kinds of noise that `draw` selects independently.

    A `tag` at the start of the source is not changed.

    Case, lost punctuation and copies change both sides of a pair; typos and repeated punctuation only its source.
    Changes of case follow the rules of the direction of the example, if it has one, else of `languages`.
    """
    if isinstance(example, Pair) and example.direction is not None:
        languages = example.direction
    languages = (*languages, None, None)
    chosen = {kind for kind in NoiseConfig.kinds if draw.random() < getattr(noise, kind)}
    sides = list(example.texts)
    kept = f"{tag} " if tag and sides[0].startswith(f"{tag} ") else ""
    sides[0] = sides[0].removeprefix(kept)
    if not all(map(str.strip, sides)):
        return example  # a filter drops it as empty
    if "lost_punctuation" in chosen and all(map(LAST_MARK.search, sides)):
        sides = [LAST_MARK.sub("", side) for side in sides]
    if "repeated_punctuation" in chosen:
        sides[0] = LAST_MARK.sub(lambda mark: mark[0].rstrip() * draw.randint(2, 4), sides[0])
    if "typos" in chosen:
        sides[0] = with_typos(sides[0], draw)
    if "upper" in chosen:
        sides = [upper(side, language) for side, language in zip(sides, languages, strict=False)]
    elif "title" in chosen:
        sides = [
            " ".join(title(word, language) for word in side.split(" "))
            for side, language in zip(sides, languages, strict=False)
        ]
    if "copies" in chosen:
        more = _invented(draw)
        sides = [f"{side} {more}" for side in sides]
    sides[0] = kept + sides[0]
    if isinstance(example, Pair):
        return Pair(*sides, example.direction)
    return replace(example, text=sides[0])


def with_typos(text: str, draw: random.Random) -> str:
    """Return text with a typo in about every tenth word, and in at least one: two letters exchanged, or a letter lost,
    doubled or replaced by another letter of the text. The first letter of a word, and words of up to three letters, are
    not changed."""
    words = text.split(" ")
    long = {place: letters for place, word in enumerate(words) if is_word(word) and len(letters := graphemes(word)) > 3}
    every = [letter.lower() for letter in chain.from_iterable(long.values())]
    for place in draw.sample(list(long), min(len(long), max(1, round(TYPO_SHARE * len(words))))):
        word = long[place]
        at = draw.randrange(1, len(word) - 1)
        words[place] = "".join(draw.choice([
            [*word[:at], word[at + 1], word[at], *word[at + 2 :]],
            [*word[:at], *word[at + 1 :]],
            [*word[:at], word[at], *word[at:]],
            [*word[:at], draw.choice(every), *word[at + 1 :]],
        ]))  # fmt: skip
    return " ".join(words)


def _invented(draw: random.Random) -> str:
    """Return text that translations copy: an emoji, an invented name, or a number."""
    match draw.randrange(3):
        case 0:
            return draw.choice(EMOJI)
        case 1:
            return f"({''.join(draw.choices(SYLLABLES, k=draw.randint(2, 3))).title()})"
        case _:
            return f"({draw.randrange(10 ** draw.randint(2, 6))})"
