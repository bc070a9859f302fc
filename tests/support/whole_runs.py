"""A run that has everything on, and what differs between two run folders."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from support.number_words import WORDS, sentences

from seq2seq.tensors import read_tensors

# What clocks measure, and lengths of files that hold it: not the same in any two runs.
TIMED = frozenset({"seconds", "validation_seconds", "schedule_seconds", "tokens_per_second", "files"})
# Everything that a run has to remember at once.
CONFIG = """
source_language: en
target_language: de
data:
  train:
    - {source: train.en, target: train.de, weight: 2.5}
    - {source: more.en, target: more.de}
  valid: {source: valid.en, target: valid.de}
  num_workers: 1
tokenizer: {vocab_size: 300, sampling: 0.5}
model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1, max_length: 64, dropout: 0.2,
  attention_dropout: 0.1, word_dropout: 0.1}
training: {max_steps: 120, batch_tokens: 96, accumulate: 2, warmup_steps: 20, learning_rate: 3.0e-3, ema: 0.95,
  patience: 12, validate_every: 20, checkpoint_every: 7, log_every: 3, keep_best: 2, threads: 1, device: cpu,
  r_drop: 1.0, dropout_epochs: 4}
search: {beam_size: 2}
"""


def corpus(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, count, seed in (("train", 300, 1), ("more", 200, 2), ("valid", 20, 3)):
        rows = sentences(count, seed)
        (folder / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
        translated = [" ".join(WORDS[word] for word in reversed(row)) for row in rows]
        (folder / f"{name}.de").write_text("".join(f"{row}\n" for row in translated), encoding="utf-8")
    (folder / "toy.yaml").write_text(CONFIG, encoding="utf-8")
    return folder


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two run folders beyond what clocks measured: checkpoints, `best/`, metrics and samples."""
    names = sorted({_name(path, folder) for folder in (one, other) for path in _compared(folder)})
    problems = []
    for name in names:
        first, second = one / name, other / name
        if not (first.exists() and second.exists()):
            problems.append(f"{name}: is in one of the two runs only")
        elif first.suffix == ".safetensors":
            problems += _tensor_differences(name, first, second)
        elif first.suffix in (".json", ".jsonl"):
            problems += _record_differences(name, first, second)
        elif first.read_bytes() != second.read_bytes():
            problems.append(f"{name}: differs")
    return problems


def _compared(folder: Path) -> Iterator[Path]:
    for part in ("checkpoints", "best"):
        # the manifest repeats what the files are, times included
        yield from (path for path in (folder / part).rglob("*") if path.is_file() and path.name != "manifest.json")
    yield from (folder / name for name in ("metrics.jsonl", "samples.txt") if (folder / name).exists())


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _tensor_differences(name: str, first: Path, second: Path) -> Iterator[str]:
    one, other = read_tensors(first), read_tensors(second)
    different = [key for key in sorted(one.keys() | other.keys()) if not _equal(one.get(key), other.get(key))]
    if different:
        yield f"{name}: {len(different)} of {len(one)} tensors differ, the first is {different[0]}"


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


def _record_differences(name: str, first: Path, second: Path) -> Iterator[str]:
    """Differences between JSON files, or between JSON Lines files line by line."""
    one, other = (_records(path) for path in (first, second))
    for number, (left, right) in enumerate(zip_longest(one, other, fillvalue={}), start=1):
        line = f"line {number}, " if first.suffix == ".jsonl" else ""
        for key in sorted(left.keys() | right.keys()):
            if left.get(key) != right.get(key):
                yield f"{name}: {line}{key}: {_shown(left.get(key))} without a break, {_shown(right.get(key))} with one"


def _records(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    values = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
    return [_untimed(value) for value in values]


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(item) for key, item in value.items() if key not in TIMED}
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def newest(folder: Path) -> str:
    return max((path.name for path in folder.glob("runs/toy/checkpoints/step_*")), default="")
