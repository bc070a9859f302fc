"""The added tokens of a folder of transformers, beside the pieces of its segmenter: tags of languages and others."""

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from seq2seq.errors import shown, some_of
from seq2seq.files import DamagedFile, read_object
from seq2seq.text.tokenizer import LARGEST_FILE

FAST_TOKENIZER, ADDED_TOKENS = "tokenizer.json", "added_tokens.json"


def added_tokens(folder: Path, named: Mapping[str, Any], is_fast: bool) -> dict[str, int]:
    """Return the ids of the added tokens of a folder, special ones among them.

    Args:
        folder: the folder.
        named: the content of its tokenizer_config.json. Its `added_tokens_decoder` counts before tokenizer.json and
            added_tokens.json, which count together, as in transformers.
        is_fast: whether transformers reads the tokenizer from tokenizer.json, which then counts alone.

    Raises:
        DamagedFile: a file cannot be read.
    """
    decoder = named.get("added_tokens_decoder")
    if is_fast and (folder / FAST_TOKENIZER).exists():
        return _of_fast(folder)
    if isinstance(decoder, dict):
        entries = [(entry, id_) for id_, entry in decoder.items() if isinstance(entry, dict) and id_.isdecimal()]
        return _ids((entry.get("content"), int(id_)) for entry, id_ in entries)
    found = _of_fast(folder) if (folder / FAST_TOKENIZER).exists() else {}
    if (folder / ADDED_TOKENS).exists():
        found |= _ids(read_object(folder / ADDED_TOKENS, LARGEST_FILE).items())
    return found


def unread(added: Mapping[str, int], read: Container[str], possible: str) -> list[str]:
    """Return a problem that names the added tokens that are not `read`; none if all are.

    Even a token that is a piece of the vocabulary counts, because transformers looks for it before it segments a text.

    Args:
        added: the result of `added_tokens`.
        read: tags of languages and special pieces.
        possible: the kind of token that may be added, for the message.
    """
    others = [shown(token) for token in sorted(added) if token not in read]
    return [f"added tokens: {some_of(others)} (possible: {possible})"] if others else []


def misplaced(added: Mapping[str, int], vocabulary: Mapping[str, int], num_rows: int) -> list[str]:
    """Return a problem for each added token whose id is that of another piece, or has no row in the weights."""
    pieces = {id_: piece for piece, id_ in vocabulary.items()}
    return [
        f"added token {shown(token)}: its id {id_} is not free"
        for token, id_ in added.items()
        if vocabulary.get(token, id_) != id_ or pieces.get(id_, token) != token or not 0 <= id_ < num_rows
    ]


def _of_fast(folder: Path) -> dict[str, int]:
    listed = read_object(folder / FAST_TOKENIZER, LARGEST_FILE).get("added_tokens") or []
    if not isinstance(listed, list):
        raise DamagedFile(f"{FAST_TOKENIZER}: added_tokens is not a list")
    return _ids((entry.get("content"), entry.get("id")) for entry in listed if isinstance(entry, dict))


def _ids(listed: Iterable[tuple[Any, Any]]) -> dict[str, int]:
    return {content: id_ for content, id_ in listed if isinstance(content, str) and type(id_) is int}
