"""The tokenizers of models of many directions that were trained here.

`tasks` makes a pair from the section `languages` of a configuration; in a model folder it is `source.spm`, `target.spm`
and `languages.json`. `directed` chooses the languages, whose tags are then in every sequence. Tags are control pieces
of the SentencePiece model, so that no text can spell them.
"""

import copy
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from seq2seq.config.directions import NUM_TAGS
from seq2seq.errors import ModelError
from seq2seq.files import DamagedFile, read_object
from seq2seq.text.direction import Direction
from seq2seq.text.normalization import Span
from seq2seq.text.segmenter import Segmenter
from seq2seq.text.tokenizer import LANGUAGES_FILE, Tokenizer, TokenizerPair, bytes_with


@dataclass(frozen=True)
class Languages:
    """The languages of a model, and the place of their tags; the content of `languages.json`.

    Raises:
        ValueError: a value of another kind.
    """

    pieces: Mapping[str, str]
    """The tag of each language, by its name."""
    source: tuple[str, ...]
    """Languages to translate from."""
    target: tuple[str, ...]
    """Languages to translate into."""
    tags: Literal["source", "both", "decoder"] = "source"
    """The place of the tags, as `languages.tags` of the configuration names it."""

    def __post_init__(self):
        names = [*self.source, *self.target]
        is_known = isinstance(self.pieces, Mapping) and self.tags in NUM_TAGS and self.source and self.target
        if not is_known or not all(isinstance(self.pieces.get(name), str) for name in names):
            raise ValueError("not the languages of a model")

    def as_json(self) -> dict[str, Any]:
        """Return the content of `languages.json`."""
        return {**vars(self), "pieces": dict(self.pieces), "source": list(self.source), "target": list(self.target)}

    def without(self, removed: Collection[str]) -> "Languages":
        """Return the languages whose tags are not among these pieces."""
        pieces = {name: piece for name, piece in self.pieces.items() if piece not in removed}
        sides = {side: tuple(one for one in getattr(self, side) if one in pieces) for side in ("source", "target")}
        return replace(self, pieces=pieces, **sides)


class TaggedTokenizer(Tokenizer):
    """One SentencePiece model with tags of languages.

    Args:
        model_bytes: of the .spm file.
        languages: the tags.
        before: the tags that sources begin with.
        start: the tag that the decoder reads after its start.

    Raises:
        ModelError: the SentencePiece model lacks a tag.
    """

    def __init__(
        self, model_bytes: bytes, languages: Languages, before: tuple[str, ...] = (), start: str | None = None
    ):
        super().__init__(model_bytes)
        self.languages, self.before, self.start = languages, before, start
        self._ids = {piece: self.processor.piece_to_id(piece) for piece in languages.pieces.values()}
        if missing := [piece for piece, id_ in self._ids.items() if id_ == self.unk_id]:
            raise ModelError(f"the tokenizer has no piece {missing[0]}, a language of the model")
        self.silent_ids = {*self.silent_ids, *self._ids.values()}

    def __reduce__(self):
        return TaggedTokenizer, (self.model_bytes, self.languages, self.before, self.start)

    @property
    def fingerprint(self) -> str:
        """See `Tokenizer.fingerprint`; without tags in its sequences, it is that of earlier versions."""
        known: list[Any] = [super().fingerprint, self.languages.as_json()]
        if self.before or self.start:
            known += [self.before, self.start]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def tags(self) -> Mapping[str, str]:
        """See `ReadingTokenizer.tags`."""
        return self.languages.pieces

    def typed_tag(self, text: str) -> str:
        """See `ReadingTokenizer.typed_tag`: no text can spell a tag."""
        return ""

    @property
    def tag_ids(self) -> tuple[int, ...]:
        """See `ReadingTokenizer.tag_ids`."""
        return self.ids_of(self.before)

    @property
    def start_ids(self) -> tuple[int, ...]:
        """See `ReadingTokenizer.start_ids`."""
        return (self.start_id, *self.ids_of([] if self.start is None else [self.start]))

    def ids_of(self, tags: Iterable[str]) -> tuple[int, ...]:
        """Return the ids of tags."""
        return tuple(self._ids[tag] for tag in tags)

    def tagged(self, before: tuple[str, ...]) -> Self:
        """Return the same tokenizer, whose texts begin with other tags."""
        other = copy.copy(self)
        other.before = before
        return other

    def started(self, start: str | None) -> Self:
        """Return the same tokenizer, whose decoder reads another tag."""
        other = copy.copy(self)
        other.start = start
        return other

    def encode_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, as `Tokenizer.encode_all` does, after the tags."""
        rows = super().encode_all(texts, threads)
        return [[*self.tag_ids, *ids] for ids in rows] if self.before else rows

    def spans(self, text: str) -> tuple[list[int], list[Span]]:
        """Return ids, beginning with the tags, and the span of each id that is text (see `ReadingTokenizer.spans`)."""
        ids, spans = super().spans(text)
        return [*self.tag_ids, *ids], spans

    def segmentations(self, text: str, count: int) -> list[tuple[list[int], float]]:
        """Return the best segmentations, as `Tokenizer.segmentations` does, after the tags."""
        plain = self.tagged(()) if self.before else self
        found = super(TaggedTokenizer, plain).segmentations(text, count)
        return [([*self.tag_ids, *ids], score) for ids, score in found]

    def with_pieces(self, scores: Mapping[str, float], others: Iterable[str] = ()) -> "TaggedTokenizer":
        """Return the tokenizer with more pieces, which get the last ids; `others` are ignored."""
        return TaggedTokenizer(bytes_with(self, scores), self.languages, self.before, self.start)

    def without(self, removed: Collection[str]) -> "TaggedTokenizer":
        """Return the tokenizer without these pieces; a language whose tag is removed is unknown to it."""
        model_bytes = Segmenter(self.model_bytes).without(removed, self.languages.pieces.values())
        return TaggedTokenizer(model_bytes, self.languages.without(removed), self.before, self.start)


@dataclass(frozen=True)
class TaggedTokenizerPair(TokenizerPair):
    """The tokenizers of both sides of a model of many directions."""

    source: TaggedTokenizer
    target: TaggedTokenizer

    @property
    def languages(self) -> Languages:
        """The languages of the model."""
        return self.source.languages

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        """See `TokenizerPair.choices`."""
        return {"source": list(self.languages.source), "target": list(self.languages.target)}

    @property
    def needed(self) -> tuple[str, ...]:
        """See `TokenizerPair.needed`."""
        return ("target",) if self.languages.tags == "source" else ("source", "target")

    @property
    def num_tags(self) -> tuple[int, int]:
        """See `TokenizerPair.num_tags`."""
        return NUM_TAGS[self.languages.tags]

    @property
    def never_generated(self) -> tuple[int, ...]:
        """See `TokenizerPair.never_generated`; no translation contains a tag."""
        return (*super().never_generated, *sorted(self.target.ids_of(self.languages.pieces.values())))

    def directed(self, direction: Direction) -> "TaggedTokenizerPair":
        """See `TokenizerPair.directed`."""
        pieces = self.languages.pieces
        source, target = (() if name is None else (pieces[name],) for name in (direction.source, direction.target))
        match self.languages.tags:
            case "source":
                before, start = target, ()
            case "both":
                before, start = (*source, *target), ()
            case "decoder":
                before, start = source, target
        return replace(self, source=self.source.tagged(before), target=self.target.started(*start or [None]))

    @property
    def undirected(self) -> "TaggedTokenizerPair":
        """See `TokenizerPair.undirected`."""
        return self.directed(Direction())

    def save(self, folder: Path) -> None:
        """Write `source.spm`, `target.spm` and `languages.json`."""
        super().save(folder)
        self.save_languages(folder)

    def save_languages(self, folder: Path) -> None:
        """See `TokenizerPair.save_languages`."""
        text = json.dumps(self.languages.as_json(), ensure_ascii=False, indent=1)
        (folder / LANGUAGES_FILE).write_text(text, encoding="utf-8")


def tagged_pair(source: bytes, target: bytes, languages: Languages) -> TaggedTokenizerPair:
    """Return the pair of two SentencePiece models, which may be the same.

    Raises:
        ModelError: of `TaggedTokenizer`.
    """
    reading = TaggedTokenizer(source, languages)
    return TaggedTokenizerPair(reading, reading if source == target else TaggedTokenizer(target, languages))


def read_languages(path: Path) -> Languages:
    """Read `languages.json`.

    Raises:
        ModelError: it is missing or damaged.
    """
    try:
        values = read_object(path)
        sides = {side: tuple(map(str, values[side])) for side in ("source", "target")}
        return Languages(**{**values, **sides})
    except (DamagedFile, KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{path}: damaged ({error}); copy the model folder again") from error
