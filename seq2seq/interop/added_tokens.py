"""The added tokens of a folder of transformers, beside the pieces of its segmenter: tags of languages and others."""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from seq2seq.errors import shown, some_of
from seq2seq.files import DamagedFile, read_object
from seq2seq.text.tokenizer import LARGEST_FILE

FAST_TOKENIZER, ADDED_TOKENS = "tokenizer.json", "added_tokens.json"


def added_tokens(folder: Path, named: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of the added tokens of a folder, special ones among them.

    Args:
        folder: the folder. The first of tokenizer.json, the `added_tokens_decoder` of tokenizer_config.json, and
            added_tokens.json counts, as in transformers.
        named: the content of its tokenizer_config.json.

    Raises:
        DamagedFile: a file cannot be read.
    """
    listed: Any = []
    if (folder / FAST_TOKENIZER).exists():
        listed = read_object(folder / FAST_TOKENIZER, LARGEST_FILE).get("added_tokens") or []
    elif isinstance(decoder := named.get("added_tokens_decoder"), dict):
        listed = [
            {**entry, "id": int(id_)} for id_, entry in decoder.items() if isinstance(entry, dict) and id_.isdecimal()
        ]
    elif (folder / ADDED_TOKENS).exists():
        old = read_object(folder / ADDED_TOKENS, LARGEST_FILE)
        listed = [{"content": content, "id": id_} for content, id_ in old.items()]
    if not isinstance(listed, list):
        raise DamagedFile(f"{FAST_TOKENIZER}: added_tokens is not a list")
    entries = [entry for entry in listed if isinstance(entry, dict)]
    return {
        entry["content"]: entry["id"]
        for entry in entries
        if isinstance(entry.get("content"), str) and type(entry.get("id")) is int
    }


def unread(added: Mapping[str, int], vocabulary: Container[str], possible: str) -> list[str]:
    """Return a problem that names the added tokens that are not in the vocabulary that was read; none if all are.

    A tokenizer without them would spell their texts in another way than transformers.

    Args:
        added: the result of `added_tokens`.
        vocabulary: the pieces that were read.
        possible: what added tokens may be, for the message.
    """
    others = [shown(token) for token in added if token not in vocabulary]
    return [f"added tokens: {some_of(others)} (possible: {possible})"] if others else []
