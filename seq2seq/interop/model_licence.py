"""The licence that a folder of transformers names: in the front matter of its model card, or in config.json."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2seq.config.description import joined_licences
from seq2seq.config.yaml_text import YamlProblem, read_yaml
from seq2seq.lines import UNWRITABLE

CARD = "README.md"
# The key with its value: the rest of the line, and the next lines that are empty or begin with white space, `]`, `#` or
# `-`. Only they are parsed, so that an error in the rest of a card does not hide the licence.
_KEY = re.compile(r"""^(["']?)license\1:(.*(?:\n(?:[ \t\]#-].*|[ \t]*))*)""", re.MULTILINE)
_FRONT = re.compile(r"---[ \t]*(\n.*?)(?:\n---|\Z)", re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_MOST_CHARACTERS = 1 << 16  # of a card
_LONGEST_NAME = 100


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
    return (_joined(_value(found)) if found else None) or _joined(given.get("license"))


def _value(found: re.Match[str]) -> Any:
    """Return the value of the key; where it is not YAML, the rest of its line without comment, quotes and brackets."""
    try:
        value, _ = read_yaml(found[0])
    except YamlProblem:
        return _COMMENT.sub("", found[2].partition("\n")[0]).strip(" \t'\"[]")
    return value.get("license") if isinstance(value, dict) else None


def _joined(value: Any) -> str | None:
    """Return the names of a licence or a list of licences; None if there are none."""
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    names = [
        " ".join(UNWRITABLE.sub(" ", name).split())[:_LONGEST_NAME].rstrip()
        for text in texts
        for name in text.split(",")
    ]
    return joined_licences(*names)
