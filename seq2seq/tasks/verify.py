"""Whether a run of this configuration, stopped and resumed, ends in the same bits as one that was not.

`cli.train` calls `verify_resume`. Two short runs are made in a temporary folder, by `tasks.run` as always; the run of
the user is neither read nor written.
"""

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from seq2seq.config import Config, SourceConfig
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import RunError, UserError
from seq2seq.tasks import run
from seq2seq.tasks.run_folder import RunFolder, open_folder
from seq2seq.tensors import read_tensors

STEPS, CHECKPOINT_EVERY, STOPPED_AT = 8, 3, 5
VALID_EXAMPLES = 16
MOST_SHOWN = 5
# What clocks measure, and lengths of files that hold it: not the same in any two runs.
TIMED = frozenset({"seconds", "validation_seconds", "tokens_per_second", "files"})


def verify_resume(config: Config, path: Path) -> str:
    """Train a few steps without a break and again with one; what is equal, in a line.

    Args:
        config: of the run; its limits, intervals and validation set are replaced by small ones.
        path: the run folder, whose cache of corpora is used; nothing in it is touched.

    Raises:
        RunError: the two runs differ; a line for each of the first differences.
        UserError: something is wrong with the configuration or the data.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--verify-resume runs in one process; start it without torchrun")
    with tempfile.TemporaryDirectory(prefix="s2s-verify-") as name, _quiet():
        short = _shortened(config, RunFolder(path).cache(config), Path(name))
        whole, resumed = (RunFolder(Path(name) / kind / path.resolve().name) for kind in ("whole", "resumed"))
        _train(short, whole)
        open_folder(resumed, short, overwrite=False, now={})
        shutil.copytree(whole.tokenizer, resumed.tokenizer)  # training it again would only take time
        with contextlib.suppress(_Stopped):
            _train(short, resumed, stopped=True)
        _train(short, resumed)
        problems = differences(whole.path, resumed.path)
    if problems:
        raise RunError("\n".join(_told(problems, config)))
    average = " moving average," if config.training.ema else ""
    return (
        f"a run stopped at step {STOPPED_AT} and resumed from step {CHECKPOINT_EVERY} equals one of {STEPS} steps "
        f"without a break, bit by bit: weights, optimizer,{average} random numbers, metrics and best model"
    )


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


class _Stopped(BaseException):
    """Ends a run as a kill does: nothing is saved, nothing told."""


def _train(config: Config, folder: RunFolder, stopped: bool = False) -> None:
    def stop() -> None:
        raise _Stopped

    result = run.train(config, folder.path, "s2s train", on_validation=stop if stopped else lambda: None)
    if result.status == "stopped":  # by a signal
        raise KeyboardInterrupt


def _shortened(config: Config, cache: Path, folder: Path) -> Config:
    """The same training for a few steps, judged on the first examples of the validation set."""
    training = config.training.model_copy(
        update={
            "max_steps": STEPS, "max_epochs": None, "max_minutes": None, "log_every": 1,
            "checkpoint_every": CHECKPOINT_EVERY, "validate_every": STOPPED_AT,
        }
    )  # fmt: skip
    data = config.data.model_copy(
        update={"valid": _first_examples(config, folder / "valid.jsonl"), "test": {}, "cache_dir": cache.resolve()}
    )
    return config.model_copy(update={"training": training, "data": data})


def _first_examples(config: Config, path: Path) -> SourceConfig:
    if config.task == "translation":
        names = ("source", "target")
        examples = open_pairs(config.data.valid, config.source_language or "", config.target_language or "")
        columns = {"source_column": "source", "target_column": "target"}
    else:
        names = ("text", "label")
        examples = open_labelled(config.data.valid)
        columns = {"text_column": "text", "label_column": "label"}
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for _, example in zip(range(VALID_EXAMPLES), examples, strict=False):
            file.write(json.dumps({name: getattr(example, name) for name in names}) + "\n")
    return SourceConfig(jsonl=path, **columns)


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


def _told(problems: list[str], config: Config) -> Iterator[str]:
    yield f"a run stopped at step {STOPPED_AT} and resumed is not the uninterrupted one: {len(problems)} differences"
    yield from problems[:MOST_SHOWN]
    if config.training.device != "cpu" and torch.cuda.is_available():
        yield "equal bits are promised on a CPU; see whether it holds there with --set training.device=cpu"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The two runs have nothing to tell; what they warn of is the real run's to say, once."""
    log = logging.getLogger("seq2seq")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
