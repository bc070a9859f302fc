"""The request of a user for a student; `cli.distill` makes it, and `steps` fulfils it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seq2seq.executors import LOCAL
from seq2seq.workflows.parts import SHARD_LINES


@dataclass(frozen=True)
class Distillation:
    """The request of a user."""

    teachers: tuple[Path, ...]
    config: Path
    output: Path
    texts: tuple[Path, ...] = ()
    """Further text in the source language."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE for the configuration."""
    loading: Mapping[str, Any] = field(default_factory=dict)
    """Options with which the teachers translate. Languages in it are the teachers' names for those of `config`."""
    has_genuine: bool = False
    """Whether the student learns from the genuine pairs too."""
    pairs: Path | None = None
    """Pairs of another student, which the same teachers made from the same data."""
    shard_lines: int = SHARD_LINES
    workers: int = 1
    executor: str = LOCAL
    is_forced: bool = False
    """Whether texts in another language are accepted, and an int8 export that translates too differently is kept."""
    command: str = ""
    """The command line of the user, for the model card."""
