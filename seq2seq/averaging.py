"""The mean of the weights of several models of one shape, as a model folder of its own.

`s2s average` asks for it; members are model folders, run folders, or checkpoints of a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2seq.checkpoint import MANIFEST, LoadedModel, average, load_checkpoint, load_model, save_model
from seq2seq.errors import ModelError
from seq2seq.model_folder import config_of
from seq2seq.tensors import distinct, mismatch


@dataclass(frozen=True)
class _Member:
    """One set of weights, and the model folder that says what they are."""

    path: Path
    described: LoadedModel
    state: dict[str, Tensor]


def average_models(paths: Sequence[Path], output: Path) -> Path:
    """Write the mean of the weights of `paths` to the model folder `output`, and return it.

    A checkpoint gives its moving average where it has one, which is what its run validates and keeps.

    Raises:
        ModelError, CheckpointError: a member is missing or damaged, or differs from the first in shape, vocabulary or
            labels; or `output` exists and is no model folder.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ModelError(f"{output}: exists already; name a new folder with -o")
    members = [_open(path) for path in paths]
    first = members[0]
    for other in members[1:]:
        _check_alike(first, other)
    described = first.described
    return save_model(
        output,
        model_state=average([member.state for member in members]),
        config=config_of(described),
        tokenizers=described.tokenizers,
        labels=described.labels,
        card="\n".join(["# Averaged weights", "", "The mean of:", "", *(f"- `{path}`" for path in paths), ""]),
    )


def _open(path: Path) -> _Member:
    if not (path / MANIFEST).is_file():
        described = load_model(path)
        return _Member(path, described, distinct(described.model.state_dict(keep_vars=True)))
    tensors = load_checkpoint(path).tensors
    run = path.resolve().parent.parent
    return _Member(path, load_model(run), {**tensors["model"], **tensors.get("ema", {})})


def _check_alike(first: _Member, other: _Member) -> None:
    pair, mine = other.described, first.described
    if pair.task != mine.task:
        raise ModelError(f"{other.path}: a {pair.task} model, and {first.path} is one of {mine.task}")
    if pair.tokenizers.fingerprint != mine.tokenizers.fingerprint:
        raise ModelError(f"{other.path}: another vocabulary than {first.path}; average models that share one")
    if pair.labels != mine.labels:
        raise ModelError(f"{other.path}: other labels than {first.path}; average models that share them")
    shapes = {name: tuple(tensor.shape) for name, tensor in other.state.items()}
    if problem := mismatch(first.state, shapes):
        raise ModelError(f"{other.path}: another shape than {first.path}: {problem}")
    if pair.info["model"] != mine.info["model"]:
        theirs, ours = pair.info["model"], mine.info["model"]
        key = next(key for key in {**ours, **theirs} if theirs.get(key) != ours.get(key))
        raise ModelError(
            f"{other.path}: another model than {first.path}: {key} is {theirs.get(key)}, not {ours.get(key)}"
        )
