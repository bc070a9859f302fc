"""The tokenizers of models that translate between many languages: M2M-100, NLLB-200 and mBART.

`interop.m2m` makes a pair of them from a foreign folder; in a model folder of ours they are `source.spm`, `target.spm`,
`vocab.json` and `languages.json`. `directed` chooses the languages, whose tags are then in every sequence.
"""

import copy
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from seq2seq.errors import ModelError
from seq2seq.files import DamagedFile, read_object
from seq2seq.text.direction import Direction
from seq2seq.text.marian_tokenizer import MarianTokenizer, MarianTokenizerPair
from seq2seq.text.tokenizer import LANGUAGES_FILE, SOURCE_FILE, TARGET_FILE, bytes_without

BOS = "<s>"


@dataclass(frozen=True)
class Tagging:
    """The tags of a multilingual model, and where they are in its sequences; the content of `languages.json`.

    Raises:
        ValueError: a value of another kind.
    """

    pieces: Mapping[str, str]
    """The piece of each language, by the name of the language."""
    source: Literal["first", "last"] = "first"
    """Whether a source begins with its tag, or has it after its end."""
    target: Literal["second", "first"] = "second"
    """Whether the decoder reads the tag after its start, or in place of that."""
    silent: tuple[str, ...] = ()
    """Other pieces that are no text."""

    def __post_init__(self):
        texts = isinstance(self.pieces, Mapping) and [*self.pieces, *self.pieces.values(), *self.silent]
        is_known = self.source in ("first", "last") and self.target in ("second", "first")
        if not texts or not is_known or not all(isinstance(text, str) and text for text in texts):
            raise ValueError("not the tags of a multilingual model")

    def as_json(self) -> dict[str, Any]:
        """Return the content of `languages.json`."""
        return {**vars(self), "pieces": dict(self.pieces), "silent": list(self.silent)}


class MultilingualTokenizer(MarianTokenizer):
    """One SentencePiece model over a vocabulary with tags of languages, which no text can spell.

    `tagged` gives the tokenizer of sources in a language, and `started` that of translations into a language.

    Args:
        model_bytes: of the .spm file.
        vocabulary: id of each piece; every id from 0 on has one.
        tagging: the tags.
        tag: the piece of the language of sources.
        start: the piece of the language of translations.

    Raises:
        ModelError: the ids are not 0, 1, 2, ..., or a special piece or a tag is missing.
    """

    def __init__(
        self,
        model_bytes: bytes,
        vocabulary: Mapping[str, int],
        tagging: Tagging,
        tag: str | None = None,
        start: str | None = None,
    ):
        super().__init__(model_bytes, vocabulary, tag)
        named = [BOS, *tagging.pieces.values()]
        if missing := [piece for piece in named if piece not in self.vocabulary]:
            raise ModelError(f"the vocabulary has no piece {missing[0]}, which a multilingual model needs")
        self.tagging, self.start = tagging, start
        self.bos_id = self.vocabulary[BOS]
        self.start_id = self.eos_id
        others = [self.vocabulary[piece] for piece in (*named, *tagging.silent) if piece in self.vocabulary]
        self.silent_ids = {*self.silent_ids, *others}
        self._languages = set(tagging.pieces.values())

    def __reduce__(self):
        return MultilingualTokenizer, (self.model_bytes, self.vocabulary, self.tagging, self.tag, self.start)

    @property
    def fingerprint(self) -> str:
        """See `MarianTokenizer.fingerprint`."""
        known = json.dumps([super().fingerprint, self.tagging.as_json(), self.start], sort_keys=True)
        return hashlib.sha256(known.encode()).hexdigest()[:16]

    @property
    def tags(self) -> Mapping[str, str]:
        """See `ReadingTokenizer.tags`."""
        return self.tagging.pieces

    @property
    def tag_ids(self) -> tuple[int, ...]:
        """See `ReadingTokenizer.tag_ids`."""
        return super().tag_ids if self.tagging.source == "first" else ()

    @property
    def end_ids(self) -> tuple[int, ...]:
        """See `ReadingTokenizer.end_ids`."""
        is_last = self.tagging.source == "last" and self.tag is not None
        return (self.eos_id, *super().tag_ids) if is_last else (self.eos_id,)

    @property
    def start_ids(self) -> tuple[int, ...]:
        """See `ReadingTokenizer.start_ids`."""
        if self.start is None:
            return (self.start_id,)
        tag = self.vocabulary[self.start]
        return (tag,) if self.tagging.target == "first" else (self.start_id, tag)

    def started(self, start: str | None) -> "MultilingualTokenizer":
        """Return the same tokenizer, whose decoder reads another tag."""
        other = copy.copy(self)
        other.start = start
        return other

    def without(self, removed: Collection[str]) -> "MultilingualTokenizer":
        """Return the tokenizer without these pieces; a language whose tag is removed is unknown to it."""
        pieces = {name: piece for name, piece in self.tagging.pieces.items() if piece not in removed}
        silent = tuple(piece for piece in self.tagging.silent if piece not in removed)
        tagging = replace(self.tagging, pieces=pieces, silent=silent)
        numbered = self._numbered_without(removed)
        return MultilingualTokenizer(bytes_without(self, removed), numbered, tagging, self.tag, self.start)

    def with_pieces(self, scores: Mapping[str, float], others: Iterable[str] = ()) -> "MultilingualTokenizer":
        """See `MarianTokenizer.with_pieces`."""
        return MultilingualTokenizer(*self._with_pieces(scores, others), self.tagging, self.tag, self.start)

    def with_tag(self, name: str, like: str) -> "MultilingualTokenizer":
        """See `MarianTokenizer.with_tag`."""
        piece = self.tags[like].replace(like, name)
        tagging = replace(self.tagging, pieces={**self.tagging.pieces, name: piece})
        return MultilingualTokenizer(self.model_bytes, self._numbered_with([piece]), tagging, self.tag, self.start)

    def text_pieces(self) -> list[str]:
        """See `ReadingTokenizer.text_pieces`."""
        silent = {*self.pieces(self.silent_ids)}
        return [piece for piece in super().text_pieces() if piece not in silent]

    def generated_pieces(self) -> list[str]:
        """Return the pieces that translations consist of, those for bytes included, in the order of their ids."""
        return [piece for id_, piece in enumerate(self._pieces) if id_ not in self.silent_ids]

    def _split_language(self, text: str) -> tuple[str | None, str]:
        return self.tag if self.tagging.source == "first" else None, text

    def _to_ids(self, language: str | None, pieces: Iterable[str]) -> list[int]:
        # SentencePiece gives a run of unknown characters as one piece, which may be spelled like a tag
        ids = [self.unk_id if id_ in self.silent_ids else id_ for id_ in super()._to_ids(None, pieces)]
        return ids if language is None else [self.vocabulary[language], *ids]


@dataclass(frozen=True)
class MultilingualTokenizerPair(MarianTokenizerPair):
    """The tokenizers of both sides of a multilingual model, over one vocabulary."""

    source: MultilingualTokenizer
    target: MultilingualTokenizer

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        """See `TokenizerPair.choices`."""
        return {side: list(self.source.tags) for side in self.needed}

    @property
    def needed(self) -> tuple[str, ...]:
        """See `TokenizerPair.needed`."""
        return "source", "target"

    @property
    def tags_come_first(self) -> bool:
        """See `TokenizerPair.tags_come_first`."""
        return (self.source.tagging.source, self.target.tagging.target) == ("first", "second")

    @property
    def starts_with_tag(self) -> bool:
        """See `TokenizerPair.starts_with_tag`."""
        return self.target.tagging.target == "first"

    def directed(self, direction: Direction) -> "MultilingualTokenizerPair":
        """See `TokenizerPair.directed`."""
        tags = self.source.tags
        source, target = (None if name is None else tags[name] for name in (direction.source, direction.target))
        return replace(self, source=self.source.tagged(source), target=self.target.started(target))

    @property
    def undirected(self) -> "MultilingualTokenizerPair":
        """See `TokenizerPair.undirected`."""
        return replace(self, source=self.source.tagged(None), target=self.target.started(None))

    def save(self, folder: Path) -> None:
        """Write `source.spm`, `target.spm`, `vocab.json` and `languages.json`."""
        self.source.save(folder / SOURCE_FILE)
        self.target.save(folder / TARGET_FILE)
        self.save_languages(folder)

    def save_languages(self, folder: Path) -> None:
        """See `TokenizerPair.save_languages`."""
        text = json.dumps(self.source.tagging.as_json(), ensure_ascii=False, indent=1)
        (folder / LANGUAGES_FILE).write_text(text, encoding="utf-8")


def pair_of(model_bytes: bytes, vocabulary: Mapping[str, int], tagging: Tagging) -> MultilingualTokenizerPair:
    """Return the pair whose sides have one SentencePiece model.

    Raises:
        ModelError: of `MultilingualTokenizer`.
    """
    both = MultilingualTokenizer(model_bytes, vocabulary, tagging)
    return MultilingualTokenizerPair(both, both)


def read_tagging(path: Path) -> Tagging:
    """Read `languages.json`.

    Raises:
        ModelError: it is missing or damaged.
    """
    try:
        values = read_object(path)
        return Tagging(**{**values, "silent": tuple(_texts(values.get("silent", ())))})
    except (DamagedFile, ValueError, TypeError) as error:
        raise ModelError(f"{path}: damaged ({error}); copy the model folder again") from error


def _texts(value: Any) -> Iterable[str]:
    if not isinstance(value, list | tuple):
        raise ValueError("silent is not a list")
    return value
