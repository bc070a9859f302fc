"""Tokenizers of Marian models: SentencePiece splits the text, and a separate vocabulary numbers the pieces.

`interop.marian` makes a pair of them from a foreign folder; in a model folder of ours they are `source.spm`,
`target.spm` and `vocab.json` (with `target_vocab.json` where the sides differ).
"""

import copy
import hashlib
import json
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from seq2seq.errors import ModelError
from seq2seq.files import DamagedFile, read_object
from seq2seq.lines import as_one_line
from seq2seq.text.direction import Direction
from seq2seq.text.normalization import ReadingTokenizer
from seq2seq.text.tokenizer import (
    LARGEST_FILE,
    META_SYMBOL,
    SOURCE_FILE,
    SURROGATES,
    TARGET_FILE,
    TARGET_VOCABULARY_FILE,
    VOCABULARY_FILE,
    Tokenizer,
    TokenizerPair,
    bytes_with,
    bytes_without,
    encodable,
)

EOS, UNK, PAD = "</s>", "<unk>", "<pad>"
TAG = re.compile(">>.*<<")
UNUSED = "<unused_{}>"  # the name of a row of the weights that has no piece
_UNUSED = re.compile(UNUSED.format(r"\d+"))


class MarianTokenizer(ReadingTokenizer):
    """One SentencePiece model over a vocabulary of its own; the interface is that of `Tokenizer`.

    The decoder starts from padding. A text may begin with a target language such as `>>deu<<`; if the vocabulary
    has that piece, it precedes the pieces of the rest. Unlike with `Tokenizer`, decoding does not restore the text
    exactly: unknown characters, and white space at the ends, are lost.

    Args:
        model_bytes: content of the .spm file.
        vocabulary: id of each piece; ids are consecutive from 0.
        tag: the piece that texts begin with if they name no target language.

    Raises:
        ModelError: the ids are not 0, 1, 2, ..., or `</s>`, `<unk>` or `<pad>` is missing.
    """

    def __init__(self, model_bytes: bytes, vocabulary: Mapping[str, int], tag: str | None = None):
        self._segmenter = Tokenizer(model_bytes)
        self._processor = self._segmenter.processor
        self.model_bytes = model_bytes
        self.vocabulary = dict(vocabulary)
        self._pieces = _in_order(vocabulary)
        self._languages = set(filter(TAG.fullmatch, self._pieces))
        self.tag = tag
        self.vocab_size = len(self._pieces)
        self.eos_id, self.unk_id, self.pad_id = (self.vocabulary[piece] for piece in (EOS, UNK, PAD))
        self.bos_id = self.start_id = self.pad_id
        unused = (self.vocabulary[piece] for piece in filter(_UNUSED.fullmatch, self._pieces))
        self.silent_ids = {self.eos_id, self.unk_id, self.pad_id, *unused}

    def __reduce__(self):
        return MarianTokenizer, (self.model_bytes, self.vocabulary, self.tag)

    @cached_property
    def vocabulary_bytes(self) -> bytes:
        """The content of the vocabulary file; it takes 0.3 s for 128,000 pieces, and translation does not need it."""
        numbered = {piece: id_ for id_, piece in enumerate(self._pieces)}
        return json.dumps(numbered, ensure_ascii=False, indent=0).encode("utf-8")

    @property
    def fingerprint(self) -> str:
        """Changes when the ids of a text do."""
        known = self.model_bytes + b"\n" + self.vocabulary_bytes + (self.tag or "").encode()
        return hashlib.sha256(known).hexdigest()[:16]

    @property
    def tags(self) -> Mapping[str, str]:
        """See `ReadingTokenizer.tags`; `deu` is the name of `>>deu<<`."""
        return {piece[2:-2]: piece for piece in self._pieces if piece in self._languages}

    def language_named(self, text: str) -> str | None:
        """See `ReadingTokenizer.language_named`: `deu` for a text that begins with `>>deu<<`."""
        return self.typed_tag(text).rstrip()[2:-2] or None

    def typed_tag(self, text: str) -> str:
        """See `ReadingTokenizer.typed_tag`."""
        _, rest = self._split_language(text)
        return text[: len(text) - len(rest)]

    @property
    def tag_ids(self) -> tuple[int, ...]:
        """See `ReadingTokenizer.tag_ids`; a text may begin with another tag."""
        return () if self.tag is None else (self.vocabulary[self.tag],)

    def tagged(self, tag: str | None) -> Self:
        """Return the same tokenizer with another tag."""
        other = copy.copy(self)
        other.tag = tag
        return other

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without special ids."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, as `encode` does, in one call, on `threads` threads."""
        split = [self._split_language(text) for text in texts]
        rows = self._processor.encode([encodable(text) for _, text in split], out_type=str, num_threads=threads)
        return [self._to_ids(language, pieces) for (language, _), pieces in zip(split, rows, strict=True)]

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids, and the spans of those that are text; see `ReadingTokenizer.spans`."""
        language, rest = self._split_language(text)
        found = self._processor.encode(encodable(rest), return_type="offset_mapping")
        before = len(text) - len(rest)
        spans = [(begin + before, end + before) for begin, end in found["offsets"]]
        return self._to_ids(language, found["pieces"]), spans

    def rule(self, character: str) -> str:
        """See `ReadingTokenizer.rule`."""
        return self._segmenter.rule(character)

    def sample(self, text: str, draw: random.Random, nbest: int, alpha: float) -> list[int]:
        """Return a random segmentation of `text`, determined by `draw` alone; see `Tokenizer.sample`."""
        language, text = self._split_language(text)
        ids = self._segmenter.sample(text, draw, nbest, alpha)
        return self._to_ids(language, self._segmenter.pieces(ids))

    @property
    def lists_segmentations(self) -> bool:
        """Whether the model lists its best segmentations, as unigram models do."""
        return self._segmenter.lists_segmentations

    def segmentations(self, text: str, count: int) -> list[tuple[list[int], float]]:
        """Return the best segmentations of `text`; see `Tokenizer.segmentations`."""
        language, text = self._split_language(text)
        found = self._segmenter.segmentations(text, count)
        return [(self._to_ids(language, self._segmenter.pieces(ids)), score) for ids, score in found]

    def decode(self, ids: Iterable[int]) -> str:
        """Return one line of text for any ids; special ids are skipped."""
        known = [self._pieces[i] for i in map(int, ids) if 0 <= i < self.vocab_size and i not in self.silent_ids]
        return as_one_line(self._processor.decode_pieces(known)).replace(META_SYMBOL, " ").strip()

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id, for display."""
        return [self._pieces[int(i)] for i in ids]

    def text_pieces(self) -> list[str]:
        """See `ReadingTokenizer.text_pieces`."""
        own = {*self._segmenter.text_pieces()} - {EOS, UNK, PAD, *self._languages}
        return [piece for piece in self._pieces if piece in own]

    def without(self, removed: Collection[str]) -> "MarianTokenizer":
        """Return the tokenizer without these pieces; pieces of the .spm file that have no id stay."""
        return MarianTokenizer(bytes_without(self, removed), self._numbered_without(removed), self.tag)

    def split_all(self, texts: Sequence[str]) -> list[list[str]]:
        """See `Tokenizer.split_all`."""
        return self._segmenter.split_all(texts)

    def with_pieces(self, scores: Mapping[str, float], others: Iterable[str] = ()) -> "MarianTokenizer":
        """Return the tokenizer with more pieces, which get the last ids; `others` are numbered before them, and no text
        is spelled with them."""
        return MarianTokenizer(*self._with_pieces(scores, others), self.tag)

    def with_tag(self, name: str, like: str) -> "MarianTokenizer":
        """Return the tokenizer with the tag of one more language, which resembles that of `like`."""
        numbered = self._numbered_with([self.tags[like].replace(like, name)])
        return MarianTokenizer(self.model_bytes, numbered, self.tag)

    def save(self, path: Path, vocabulary_file: str = VOCABULARY_FILE) -> None:
        """Write the .spm file, and the vocabulary next to it."""
        path.write_bytes(self.model_bytes)
        (path.parent / vocabulary_file).write_bytes(self.vocabulary_bytes)

    def _numbered_without(self, removed: Collection[str]) -> dict[str, int]:
        return {piece: id_ for id_, piece in enumerate(piece for piece in self._pieces if piece not in removed)}

    def _with_pieces(self, scores: Mapping[str, float], others: Iterable[str]) -> tuple[bytes, dict[str, int]]:
        return bytes_with(self, scores), self._numbered_with([*others, *scores])

    def _numbered_with(self, added: Iterable[str]) -> dict[str, int]:
        return {piece: id_ for id_, piece in enumerate(dict.fromkeys([*self._pieces, *added]))}

    def _split_language(self, text: str) -> tuple[str | None, str]:
        if self._languages and text.startswith(">>"):
            code, mark, rest = text.partition("<<")
            if code + mark in self._languages:
                return code + mark, rest.lstrip()  # as if the tag were not typed; some models keep white space
        return self.tag, text

    def _to_ids(self, language: str | None, pieces: Iterable[str]) -> list[int]:
        ids = [self.vocabulary.get(piece, self.unk_id) for piece in pieces]
        return ids if language is None else [self.vocabulary[language], *ids]


@dataclass(frozen=True)
class MarianTokenizerPair(TokenizerPair):
    """The tokenizers of both sides: two SentencePiece models, usually over one vocabulary."""

    source: MarianTokenizer
    target: MarianTokenizer

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source.vocabulary == self.target.vocabulary

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        """See `TokenizerPair.choices`."""
        return {"target": list(self.source.tags)} if self.source.tags else {}

    def directed(self, direction: Direction) -> "MarianTokenizerPair":
        """See `TokenizerPair.directed`: sources begin with the tag of the target language."""
        if direction.target is None:
            return self
        return replace(self, source=self.source.tagged(self.source.tags[direction.target]))

    def with_tag(self, name: str, like: str) -> "MarianTokenizerPair":
        """Return the tokenizers with the tag of one more language; `like` is the name of one that they have."""
        source = self.source.with_tag(name, like)
        is_one, has_both = self.source is self.target, self.shared
        target = source if is_one else self.target.with_tag(name, like) if has_both else self.target
        return replace(self, source=source, target=target)

    @property
    def undirected(self) -> "MarianTokenizerPair":
        """See `TokenizerPair.undirected`."""
        return replace(self, source=self.source.tagged(None))

    def save(self, folder: Path) -> None:
        """Write `source.spm`, `target.spm`, `vocab.json`, and where the target has its own, `target_vocab.json`."""
        self.source.save(folder / SOURCE_FILE)
        self.target.save(folder / TARGET_FILE, VOCABULARY_FILE if self.shared else TARGET_VOCABULARY_FILE)


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read the ids of a vocabulary file, by piece.

    Raises:
        ModelError: it is missing, or not a JSON object of integers.
    """
    try:
        vocabulary = read_object(path, LARGEST_FILE)
    except DamagedFile as error:
        remedy = "copy the folder again (the model numbers its pieces there)"
        raise ModelError(f"{path.parent}: {error}; {remedy}") from error
    if any(type(id_) is not int for id_ in vocabulary.values()) or any(map(SURROGATES.search, vocabulary)):
        raise ModelError(f"{path}: not a JSON object of pieces and their ids; copy the folder again")
    return vocabulary


def _in_order(vocabulary: Mapping[str, int]) -> list[str]:
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise ModelError(f"{VOCABULARY_FILE}: the ids are not 0 to {len(pieces) - 1}, each once")
    if missing := [piece for piece in (EOS, UNK, PAD) if piece not in vocabulary]:
        raise ModelError(f"{VOCABULARY_FILE}: {', '.join(missing)} is missing; a Marian vocabulary has it")
    return pieces
