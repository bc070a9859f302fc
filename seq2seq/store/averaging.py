"""The mean of the weights of several models of one shape, as a model folder of its own.

`s2s average` asks for it; members are model folders, run folders, or checkpoints of a run. Between a model and what it
was fine-tuned to, a mean with weights is a choice of how much is kept (WiSE-FT, Wortsman et al. 2022).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2seq.config import FREE_MODEL_KEYS
from seq2seq.errors import ModelError, UserError
from seq2seq.store.checkpoint import MANIFEST, load_checkpoint
from seq2seq.store.model_card import short_card
from seq2seq.store.model_folder import LoadedModel, load_model, save_model
from seq2seq.tensors import average, distinct, mismatch


@dataclass(frozen=True)
class _Member:
    """One set of weights, and the model folder that says what they are."""

    path: Path
    loaded: LoadedModel
    state: dict[str, Tensor]


def average_models(paths: Sequence[Path], output: Path, weights: Sequence[float] | None = None) -> Path:
    """Write the mean of the weights of `paths` to the model folder `output`, and return it.

    A checkpoint gives its moving average where it has one, which is what its run validates and keeps. What is no weight
    (dropout, how the model searches) is the first member's.

    Args:
        paths: the members.
        output: a new or empty folder.
        weights: one per member, not negative and in proportion: 0.3 and 0.7, or 3 and 7; without them all are equal.

    Raises:
        UserError: the weights are not one per member, or not possible.
        ModelError, CheckpointError: a member is missing or damaged, or differs from the first in shape, vocabulary or
            labels; or `output` exists and is no model folder.
    """
    shares = _shares(weights, len(paths))
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ModelError(f"{output}: exists already; name a new folder with -o")
    members = [_open(path) for path in paths]
    first = members[0]
    for other in members[1:]:
        _check_alike(first, other)
    made_of = [f"- {share:.4g} of `{path.name}`" for share, path in zip(shares, paths, strict=True)]
    description = first.loaded.description.model_copy(update={"metrics": {}})
    card = short_card(description, output.name, ["The mean of the weights of several models:", "", *made_of])
    mean = average([member.state for member in members], shares if weights else None)
    return save_model(output, mean, description, first.loaded.tokenizers, card)


def _shares(weights: Sequence[float] | None, count: int) -> list[float]:
    """What each member contributes; the sum is 1."""
    weights = [1.0] * count if weights is None else weights
    if len(weights) != count:
        raise UserError(f"--weights has {len(weights)}, and there are {count} models; give one per model, in order")
    shown = ",".join(f"{weight:g}" for weight in weights)
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not sum(weights):
        raise UserError(f"weights {shown}: give numbers that are not negative, at least one of them above 0")
    if not math.isfinite(sum(weights)):
        raise UserError(f"weights {shown}: too large to add up; give them in proportion, such as 1,1")
    return [weight / sum(weights) for weight in weights]


def _open(path: Path) -> _Member:
    if not (path / MANIFEST).is_file():
        loaded = load_model(path)
        return _Member(path, loaded, distinct(loaded.model.state_dict(keep_vars=True)))
    tensors = load_checkpoint(path).tensors
    run = path.resolve().parent.parent
    return _Member(path, load_model(run), {**tensors["model"], **tensors.get("ema", {})})


def _check_alike(first: _Member, other: _Member) -> None:
    description, expected = other.loaded.description, first.loaded.description
    if description.task != expected.task:
        raise ModelError(f"{other.path}: a {description.task} model, and {first.path} is one of {expected.task}")
    if other.loaded.tokenizers.fingerprint != first.loaded.tokenizers.fingerprint:
        raise ModelError(f"{other.path}: another vocabulary than {first.path}; average models that share one")
    if description.labels != expected.labels:
        raise ModelError(f"{other.path}: other labels than {first.path}; average models that share them")
    shapes = {name: tuple(tensor.shape) for name, tensor in other.state.items()}
    if problem := mismatch(first.state, shapes):
        raise ModelError(f"{other.path}: another shape than {first.path}: {problem}")
    values = dict(description.model)
    for key, value in expected.model:
        if key not in FREE_MODEL_KEYS and values[key] != value:
            raise ModelError(f"{other.path}: another model than {first.path}: {key} is {values[key]}, not {value}")
