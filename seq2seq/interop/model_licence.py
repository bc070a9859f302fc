"""The licence that a folder of transformers names: in the front matter of its model card, or in config.json."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2seq.config.description import joined_licences

CARD = "README.md"
# The value of the key, on its line or as a block in the next, or the lines of its list.
_KEY = re.compile(r"""^(["']?)license\1:[ \t]*(?:[>|][-+]?[ \t]*\n[ \t]+)?(.*(?:\n[ \t]*-[ \t].*)*)""", re.MULTILINE)
_FRONT = re.compile(r"---[ \t]*(\n.*?)(?:\n---|\Z)", re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_NAME = re.compile(r"[\s'\"\[-]*([\w.-]{1,60})")
_MOST_CHARACTERS = 1 << 16  # of a card


def read_licence(folder: Path, given: Mapping[str, Any]) -> str | None:
    """Return the licence of a model, as `ModelDescription` has it; None if the folder names none.

    Args:
        folder: the folder.
        given: the content of its config.json, whose licence counts if the card names none.
    """
    card = folder / CARD
    text = card.read_text(encoding="utf-8-sig", errors="replace")[:_MOST_CHARACTERS] if card.is_file() else ""
    front = _FRONT.match(text)
    found = _KEY.search(front[1]) if front else None
    value = _COMMENT.sub("", found[2]) if found else ""
    of_card = value.split("," if value.startswith("[") else "\n")
    of_config = given.get("license")
    return _joined(of_card) or _joined(of_config if isinstance(of_config, list) else [of_config])


def _joined(items: Sequence[Any]) -> str | None:
    names = [_NAME.match(item) for item in items if isinstance(item, str)]
    return joined_licences(*(name and name[1] for name in names))
