"""The tokenizers of Marian models: SentencePiece cuts the text, and a separate vocabulary numbers the pieces.

`interop.marian` makes a pair of them from a foreign folder; in a model folder of ours they are `source.spm`,
`target.spm` and `vocab.json` (with `target_vocab.json` where the sides differ). `load_tokenizers` reads the tokenizers
of a folder, whichever kind they are.
"""

import hashlib
import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from seq2seq.errors import ModelError
from seq2seq.lines import as_one_line, read_regular
from seq2seq.text.tokenizer import (
    LARGEST_FILE,
    META_SYMBOL,
    SOURCE_FILE,
    SURROGATES,
    TARGET_FILE,
    Tokenizer,
    TokenizerPair,
)

VOCABULARY_FILE, TARGET_VOCABULARY_FILE = "vocab.json", "target_vocab.json"
EOS, UNK, PAD = "</s>", "<unk>", "<pad>"


class MarianTokenizer:
    """One SentencePiece model over a vocabulary of its own; the interface is that of `Tokenizer`.

    The decoder starts from padding. A text may begin with a target language such as `>>deu<<`; where the vocabulary
    has that piece, it stands before the pieces of the rest. Unlike `Tokenizer`, decoding does not bring back the text
    character for character: unknown characters are lost, and white space at the ends too.

    Args:
        model_bytes: of the .spm file.
        vocabulary: id of each piece; every id from 0 on has one.

    Raises:
        ModelError: the ids are not 0, 1, 2, ..., or `</s>`, `<unk>` or `<pad>` is missing.
    """

    def __init__(self, model_bytes: bytes, vocabulary: Mapping[str, int]):
        self._segmenter = Tokenizer(model_bytes)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
        self.model_bytes = model_bytes
        self._pieces = _in_order(vocabulary)
        self._ids = dict(vocabulary)
        self._languages = {piece for piece in self._pieces if piece.startswith(">>") and piece.endswith("<<")}
        self.vocabulary_bytes = json.dumps(
            {piece: id_ for id_, piece in enumerate(self._pieces)}, ensure_ascii=False, indent=0
        ).encode("utf-8")
        self.fingerprint = hashlib.sha256(model_bytes + b"\n" + self.vocabulary_bytes).hexdigest()[:16]
        self.vocab_size = len(self._pieces)
        self.eos_id, self.unk_id, self.pad_id = (self._ids[piece] for piece in (EOS, UNK, PAD))
        self.bos_id = self.pad_id
        self._silent_ids = {self.eos_id, self.unk_id, self.pad_id}

    def __reduce__(self):
        return MarianTokenizer, (self.model_bytes, self._ids)

    @property
    def start_id(self) -> int:
        """What a decoder starts from."""
        return self.pad_id

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of each piece."""
        return dict(self._ids)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without special ids."""
        language, text = self._split_language(text)
        return self._to_ids(language, self._processor.encode(_encodable(text), out_type=str))

    def encode_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """`encode` for many texts in one call, on `threads` threads."""
        split = [self._split_language(text) for text in texts]
        rows = self._processor.encode([_encodable(text) for _, text in split], out_type=str, num_threads=threads)
        return [self._to_ids(language, pieces) for (language, _), pieces in zip(split, rows, strict=True)]

    def sample(self, text: str, draw: random.Random, nbest: int, alpha: float) -> list[int]:
        """A random segmentation of `text`, decided by `draw` alone; see `Tokenizer.sample`."""
        language, text = self._split_language(text)
        ids = self._segmenter.sample(text, draw, nbest, alpha)
        return self._to_ids(language, self._segmenter.pieces(ids))

    def decode(self, ids: Iterable[int]) -> str:
        """One line of text for any ids: special ids say nothing."""
        known = [self._pieces[i] for i in map(int, ids) if 0 <= i < self.vocab_size and i not in self._silent_ids]
        return as_one_line(self._processor.decode_pieces(known)).replace(META_SYMBOL, " ").strip()

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece behind each id, for people."""
        return [self._pieces[int(i)] for i in ids]

    def save(self, path: Path, vocabulary_file: str = VOCABULARY_FILE) -> None:
        """Write the .spm file, and the vocabulary beside it."""
        Path(path).write_bytes(self.model_bytes)
        (Path(path).parent / vocabulary_file).write_bytes(self.vocabulary_bytes)

    @classmethod
    def load(cls, path: Path, vocabulary_file: str = VOCABULARY_FILE) -> "MarianTokenizer":
        """A tokenizer from a .spm file and the vocabulary beside it.

        Raises:
            ModelError: one of them is missing or not what it should be.
        """
        model_bytes = Tokenizer.load(path).model_bytes
        return cls(model_bytes, read_vocabulary(Path(path).parent / vocabulary_file))

    def _split_language(self, text: str) -> tuple[str | None, str]:
        if self._languages and text.startswith(">>"):
            code, mark, rest = text.partition("<<")
            if code + mark in self._languages:
                return code + mark, rest
        return None, text

    def _to_ids(self, language: str | None, pieces: Iterable[str]) -> list[int]:
        find, unknown = self._ids.get, self.unk_id
        ids = [find(piece, unknown) for piece in pieces]
        return ids if language is None else [self._ids[language], *ids]


@dataclass(frozen=True)
class MarianTokenizerPair(TokenizerPair):
    """The tokenizers of both sides: two SentencePiece models, usually over one vocabulary."""

    source: MarianTokenizer
    target: MarianTokenizer

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source.vocabulary_bytes == self.target.vocabulary_bytes

    def save(self, folder: Path) -> None:
        """Write `source.spm`, `target.spm`, `vocab.json`, and where the target has its own, `target_vocab.json`."""
        self.source.save(Path(folder) / SOURCE_FILE)
        self.target.save(Path(folder) / TARGET_FILE, VOCABULARY_FILE if self.shared else TARGET_VOCABULARY_FILE)


def load_tokenizers(folder: Path, files: Collection[str]) -> TokenizerPair:
    """The tokenizers of a model folder that holds `files`: they say the kind, and whether there is one or two.

    Raises:
        ModelError: a file is missing or damaged.
    """
    folder = Path(folder)
    if VOCABULARY_FILE not in files:
        source = Tokenizer.load(folder / SOURCE_FILE)
        return TokenizerPair.load(folder) if TARGET_FILE in files else TokenizerPair(source, source)
    marian_source = MarianTokenizer.load(folder / SOURCE_FILE)
    if TARGET_FILE not in files:
        return MarianTokenizerPair(marian_source, marian_source)
    own = TARGET_VOCABULARY_FILE if TARGET_VOCABULARY_FILE in files else VOCABULARY_FILE
    return MarianTokenizerPair(marian_source, MarianTokenizer.load(folder / TARGET_FILE, own))


def read_vocabulary(path: Path) -> dict[str, int]:
    """The ids of a vocabulary file by piece.

    Raises:
        ModelError: it is missing, or not a JSON object of whole numbers.
    """
    try:
        vocabulary = json.loads(read_regular(path, LARGEST_FILE).decode("utf-8"))
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({error.strerror}); a Marian model numbers its pieces there"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON ({error}); copy the folder again") from error
    is_whole = isinstance(vocabulary, dict) and all(type(id_) is int for id_ in vocabulary.values())
    if not is_whole or any(map(SURROGATES.search, vocabulary)):
        raise ModelError(f"{path}: not a JSON object of pieces and their ids; copy the folder again")
    return vocabulary


def _in_order(vocabulary: Mapping[str, int]) -> list[str]:
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    for expected, piece in enumerate(pieces):
        if vocabulary[piece] != expected:
            raise ModelError(f"{VOCABULARY_FILE}: the ids are not 0 to {len(pieces) - 1}, each once")
    if missing := [piece for piece in (EOS, UNK, PAD) if piece not in vocabulary]:
        raise ModelError(f"{VOCABULARY_FILE}: {', '.join(missing)} is missing; a Marian vocabulary has it")
    return pieces


def _encodable(text: str) -> str:
    return text if text.isascii() else SURROGATES.sub("\ufffd", text)
