"""Conversion of text to piece ids and back: one SentencePiece model, or a pair of them for the two sides.

`tasks` trains a tokenizer on the training text; the data path, the translator and the classifier encode with it, and it
is stored in the model folder. Special ids are read from the model; no other code assumes their values.
"""

import functools
import hashlib
import math
import random
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import sentencepiece

from seq2seq.errors import ModelError
from seq2seq.lines import as_one_line, read_regular
from seq2seq.text.direction import Direction
from seq2seq.text.normalization import ReadingTokenizer, Span
from seq2seq.text.splitting import language_tag

if TYPE_CHECKING:
    from seq2seq.config.schema import TokenizerConfig

SOURCE_FILE, TARGET_FILE = "source.spm", "target.spm"
# Of tokenizers whose pieces are numbered by a table, and of multilingual ones.
VOCABULARY_FILE, TARGET_VOCABULARY_FILE, LANGUAGES_FILE = "vocab.json", "target_vocab.json", "languages.json"
META_SYMBOL = "\u2581"  # SentencePiece's symbol for a space; the character itself is spelled as bytes
SURROGATES = re.compile("[\ud800-\udfff]")
LARGEST_FILE = 2**28  # bytes of a .spm file: some hundred times a vocabulary of 32,000


class Tokenizer(ReadingTokenizer):
    """One SentencePiece model and its special ids.

    With byte fallback and identity normalization `decode(encode(text)) == text` for any text without line feeds and
    carriage returns; lone surrogates, which are no characters, become U+FFFD.
    """

    def __init__(self, model_bytes: bytes):
        self.processor = sentencepiece.SentencePieceProcessor()
        self.processor.load_from_serialized_proto(model_bytes)
        self.model_bytes = model_bytes
        self.vocab_size: int = self.processor.vocab_size()
        self.unk_id: int = self.processor.unk_id()
        self.bos_id: int = self.processor.bos_id()
        self.start_id = self.bos_id
        """First input of a decoder."""
        self.eos_id: int = self.processor.eos_id()
        self.pad_id: int = self.processor.pad_id()
        self.silent_ids = {self.bos_id, self.eos_id, self.pad_id}
        """Ids that are no text."""
        self._scores: list[float] = self.processor.get_score(list(range(self.vocab_size)))
        self._splits: dict[int, list[tuple[int, int]]] = {}
        try:  # SentencePiece does not name a model's kind; only unigram models list their best segmentations
            self.lists_segmentations = self.processor.nbest_encode_as_ids("a", 2) is not None
        except RuntimeError:
            self.lists_segmentations = False
        self._has_bytes = self.processor.is_byte(self.processor.piece_to_id("<0x00>"))

    def __reduce__(self):
        return Tokenizer, (self.model_bytes,)

    @property
    def fingerprint(self) -> str:
        """Changes when the ids of a text do."""
        return hashlib.sha256(self.model_bytes).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without special ids."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, as `encode` does, in one call, on `threads` threads."""
        ids = self.processor.encode([encodable(text) for text in texts], num_threads=threads)
        if self._has_bytes:
            for row, text in enumerate(texts):
                if META_SYMBOL in text:
                    ids[row], _ = Tokenizer.spans(self, text)  # without tags of languages
        return ids

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of `text`, and the span of each in code points. If a character is spelled as bytes, the last
        byte has its span, and the others have width 0."""
        if META_SYMBOL not in text or not self._has_bytes:
            found = self.processor.encode(encodable(text), return_type="offset_mapping")
            return found["ids"], found["offsets"]
        stand_in = self._stand_in(text)
        found = self.processor.encode(encodable(text.replace(META_SYMBOL, stand_in)), return_type="offset_mapping")
        rows = list(zip(found["ids"], found["offsets"], strict=True))
        ids, spans = zip(*self._with_meta_symbol(rows, stand_in), strict=True)
        return list(ids), list(spans)

    def typed_tag(self, text: str) -> str:
        """See `ReadingTokenizer.typed_tag`: any text in the form of a tag, because training text may have had tags that
        are spelled as text."""
        return language_tag(text)

    def rule(self, character: str) -> str:
        """See `ReadingTokenizer.rule`."""
        return self.processor.normalize(encodable(character)).removeprefix(META_SYMBOL)

    def sample(self, text: str, draw: random.Random, nbest: int, alpha: float) -> list[int]:
        """Return a random segmentation of `text`, determined by `draw` alone.

        Unigram models draw from the `nbest` best segmentations with weights exp(alpha * log-probability) (Kudo 2018).
        BPE models have no probabilities: each merge of the best segmentation is undone with probability `alpha`, from
        the last merge to the first, which resembles BPE dropout (Provilkov et al. 2020).
        """
        if META_SYMBOL in text:
            return self.encode(text)
        if not self.lists_segmentations:
            return list(self._undo_merges(self.encode(text), draw, min(alpha, 1.0)))
        found = self.segmentations(text, nbest)
        if len(found) < 2:
            return found[0][0] if found else []
        scores = [alpha * score for _, score in found]
        best = max(scores)
        return draw.choices([ids for ids, _ in found], weights=[math.exp(score - best) for score in scores])[0]

    def segmentations(self, text: str, count: int) -> list[tuple[list[int], float]]:
        """Return the `count` best segmentations of `text` with their log-probabilities, the best first, if the model
        `lists_segmentations`; they are fewer if there are not as many."""
        if META_SYMBOL in text:
            return [(self.encode(text), 0.0)]
        found = self.processor.nbest_encode_as_ids(encodable(text), count)
        if self._whole_ids and found:
            whole = self._whole(found[0])
            found = [ids for ids in found if self._whole(ids) == whole]
        return [(ids, sum(self._scores[piece] for piece in ids)) for ids in found]

    def _whole(self, ids: Iterable[int]) -> list[int]:
        return [piece for piece in ids if piece in self._whole_ids]

    @functools.cached_property
    def _whole_ids(self) -> frozenset[int]:
        """The ids of `tokenizer.extra_pieces`, which are kept whole wherever they occur."""
        from seq2seq.text.trained_with import trained_with

        return frozenset(map(self.processor.piece_to_id, trained_with(self.model_bytes).get("extra_pieces", ())))

    def decode(self, ids: Iterable[int]) -> str:
        """Return one line of text for any ids; start, end and padding are skipped, and broken bytes become U+FFFD."""
        known = [int(i) for i in ids if 0 <= i < self.vocab_size and i not in self.silent_ids]
        return as_one_line(self.processor.decode(known))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id, for display."""
        return [self.processor.id_to_piece(int(i)) for i in ids]

    def text_pieces(self) -> Iterator[str]:
        """Yield the pieces that are text, as `ReadingTokenizer.text_pieces` defines them."""
        processor, ids = self.processor, list(range(self.vocab_size))
        kinds = (processor.is_control, processor.is_unknown, processor.is_byte)
        for piece, *others in zip(processor.id_to_piece(ids), *(is_other(ids) for is_other in kinds), strict=True):
            if not any(others):
                yield piece

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of each piece."""
        return {piece: id_ for id_, piece in enumerate(self.pieces(range(self.vocab_size)))}

    def without(self, removed: Collection[str]) -> "Tokenizer":
        """Return the tokenizer without these pieces; the ids of the others keep their order."""
        return Tokenizer(bytes_without(self, removed))

    def split_all(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the pieces of each text, without normalisation; a run of unknown characters is one piece."""
        return self.processor.encode([encodable(text) for text in texts], out_type=str)

    def with_pieces(self, scores: Mapping[str, float], others: Iterable[str] = ()) -> "Tokenizer":
        """Return the tokenizer with more pieces, which get the last ids; `others` are ignored."""
        return Tokenizer(bytes_with(self, scores))

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Load a tokenizer from a .spm file.

        Raises:
            ModelError: the file is missing or not a SentencePiece model.
        """
        try:
            return cls(read_regular(path, LARGEST_FILE))
        except OSError as error:
            problem = f"cannot be read ({error.strerror}); copy the model folder again"
            raise ModelError(f"{path}: {problem}") from error
        except (RuntimeError, ValueError, TypeError) as error:
            remedy = "name another file, or copy the model folder again"
            raise ModelError(f"{path}: not a SentencePiece model; {remedy}") from error

    def save(self, path: Path) -> None:
        """Write the .spm file."""
        path.write_bytes(self.model_bytes)

    @classmethod
    def train(cls, texts: Iterable[str], config: "TokenizerConfig", seed: int, tags: Sequence[str] = ()) -> "Tokenizer":
        """Train on the normalised `texts`, or on `config.sample_lines` of them, drawn evenly by `seed`.

        `tags` become pieces that no text can spell.

        The same texts, config and seed give the same bytes. If the corpus is too small for the vocabulary, the
        vocabulary is reduced, with a warning.

        Raises:
            DataError: there is no text.
            ConfigError: the vocabulary is too small for the characters alone.
        """
        from seq2seq.text.tokenizer_training import train_model

        return cls(train_model(map(encodable, texts), config, seed, tags))

    def _stand_in(self, text: str) -> str:
        """Return a character that is encoded in the place of U+2581: one that is spelled as bytes, and not in the
        text."""
        return next(
            character
            for character in map(chr, range(0x10FFFF, 0xFFFFF, -1))
            if character not in text and self.processor.piece_to_id(character) == self.unk_id
        )

    def _with_meta_symbol(self, rows: Sequence[tuple[int, Span]], stand_in: str) -> Iterator[tuple[int, Span]]:
        """Yield ids and their spans, with the three bytes of U+2581 in place of the four of a stand-in."""
        old, new = (
            [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in character.encode("utf-8")]
            for character in (stand_in, META_SYMBOL)
        )
        position = 0
        while position < len(rows):
            end = position + len(old)
            if [id_ for id_, _ in rows[position:end]] == old:
                yield from zip(new, (span for _, span in rows[end - len(new) : end]), strict=True)
                position = end
            else:
                yield rows[position]
                position += 1

    def _undo_merges(self, ids: Iterable[int], draw: random.Random, probability: float) -> Iterator[int]:
        for piece in ids:
            splits = self._splits_of(piece)
            if splits and draw.random() < probability:
                yield from self._undo_merges(draw.choice(splits), draw, probability)
            else:
                yield piece

    def _splits_of(self, piece: int) -> list[tuple[int, int]]:
        """Return the pairs of pieces that `piece` may have been merged from."""
        if piece not in self._splits:
            text, find = self.processor.id_to_piece(piece), self.processor.piece_to_id
            is_whole = piece in self._whole_ids or piece == self.unk_id
            merged = not (is_whole or self.processor.is_control(piece) or self.processor.is_byte(piece))
            halves = [(find(text[:cut]), find(text[cut:])) for cut in range(1, len(text))] if merged else []
            self._splits[piece] = [pair for pair in halves if self.unk_id not in pair]
        return self._splits[piece]


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of the two sides, which are the same object if the vocabulary is shared.

    Raises:
        ModelError: one has no piece for the start, the end, padding, or unknown characters.
    """

    source: Tokenizer
    target: Tokenizer

    def __post_init__(self):
        for name, side in ((SOURCE_FILE, self.source), (TARGET_FILE, self.target)):
            if min(side.start_id, side.eos_id, side.pad_id, side.unk_id) < 0:
                raise ModelError(f"{name}: a piece is missing: <s>, </s>, <pad> or <unk>")

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source.model_bytes == self.target.model_bytes

    @property
    def fingerprint(self) -> str:
        """Fingerprint that changes when either tokenizer changes."""
        return f"{self.source.fingerprint}-{self.target.fingerprint}"

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        """The languages that `directed` knows, by side (`source`, `target`)."""
        return {}

    @property
    def needed(self) -> tuple[str, ...]:
        """The sides whose language `directed` needs."""
        return ()

    @property
    def num_tags(self) -> tuple[int, int]:
        """The numbers of tags of a source and of a translation that `tags_of` adds to their ids."""
        return 0, 0

    def tags_of(self, direction: Direction) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids of the tags of a direction: before a source, and after the start of a decoder."""
        directed = self.directed(direction)
        return directed.source.tag_ids, directed.target.start_ids[1:]

    @property
    def needs_direction(self) -> bool:
        """Whether a translation needs `directed` before: every sequence has a tag."""
        return bool(self.needed)

    def directed(self, direction: Direction) -> "TokenizerPair":
        """Return the tokenizers for one direction; its names are those of `tags`.

        A source then begins or ends with the tag of a language, or the decoder reads it first. Without tags these
        tokenizers have one direction, and are returned.
        """
        return self

    @property
    def tags_come_first(self) -> bool:
        """Whether `tags_of` has all tags: sources begin with them, and the decoder reads them after its start."""
        return True

    @property
    def starts_with_tag(self) -> bool:
        """Whether the decoder reads the tag of a language in place of a start, so that its first input varies."""
        return False

    @property
    def undirected(self) -> "TokenizerPair":
        """The tokenizers for all directions, as a model folder holds them."""
        return self

    @property
    def never_generated(self) -> tuple[int, ...]:
        """Target ids that no translation contains: padding, and the start unless it is also the end."""
        return tuple({self.target.pad_id, self.target.start_id} - {self.target.eos_id})

    def without(self, source: Collection[str], target: Collection[str]) -> "TokenizerPair":
        """Return the tokenizers without these pieces of each side; the ids of the others keep their order."""
        reading = self.source.without(source)
        is_one = self.source is self.target
        return replace(self, source=reading, target=reading if is_one else self.target.without(target))

    def with_pieces(self, source: Mapping[str, float], target: Mapping[str, float]) -> "TokenizerPair":
        """Return the tokenizers with more pieces of each side, by their scores; a shared vocabulary has those of both.

        The new pieces get the last ids.
        """
        if self.source is self.target:
            both = self.source.with_pieces({**target, **source})
            return replace(self, source=both, target=both)
        both_sides = [*source, *target] if self.shared else []
        reading, writing = self.source.with_pieces(source, both_sides), self.target.with_pieces(target, both_sides)
        return replace(self, source=reading, target=writing)

    def save(self, folder: Path) -> None:
        """Write `source.spm` and `target.spm`."""
        self.source.save(folder / SOURCE_FILE)
        self.target.save(folder / TARGET_FILE)

    def save_languages(self, folder: Path) -> None:
        """Write `languages.json`, if sequences have tags of languages."""


def bytes_without(tokenizer: ReadingTokenizer, removed: Collection[str]) -> bytes:
    """Return the .spm file of a tokenizer without these pieces."""
    from seq2seq.text.segmenter import Segmenter  # for other vocabularies only

    return Segmenter(tokenizer.model_bytes).without(removed)


def bytes_with(tokenizer: ReadingTokenizer, scores: Mapping[str, float]) -> bytes:
    """Return the .spm file of a tokenizer with more pieces, by their scores."""
    from seq2seq.text.segmenter import Segmenter

    return Segmenter(tokenizer.model_bytes).with_pieces(scores)


def encodable(text: str) -> str:
    """Return `text` with U+FFFD in place of lone surrogates, which are not characters."""
    return text if text.isascii() else SURROGATES.sub("\ufffd", text)
