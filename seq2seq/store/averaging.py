"""The mean of the weights of several models of one shape, written as a new model folder.

`s2s average` uses it; members are model folders, run folders, or checkpoints of a run. A weighted mean of a model and
its fine-tuned version is WiSE-FT (Wortsman et al. 2022).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from torch import Tensor

from seq2seq.config.description import FREE_MODEL_KEYS, ModelDescription, joined_licences
from seq2seq.errors import ModelError, UserError, counted, shown
from seq2seq.languages import check_direction
from seq2seq.store.checkpoint import MANIFEST, load_checkpoint
from seq2seq.store.finding import check_new, name_in_run
from seq2seq.store.model_card import short_card
from seq2seq.store.model_folder import load_model, save_model
from seq2seq.tensors import average, mismatch
from seq2seq.text.tokenizer import TokenizerPair


@dataclass(frozen=True)
class _Member:
    path: Path
    description: ModelDescription
    tokenizers: TokenizerPair
    state: dict[str, Tensor]

    @property
    def languages(self) -> tuple[str | None, str | None]:
        return self.description.source_language, self.description.target_language

    @classmethod
    def load(cls, path: Path) -> "_Member":
        """Load a model folder, a run folder or a checkpoint; a checkpoint has the description of its run's best model,
        and the moving average as weights if it contains one."""
        if (path / MANIFEST).is_file():
            tensors, loaded = load_checkpoint(path).tensors, load_model(path.resolve().parent.parent)
            state = {**tensors["model"], **tensors.get("ema", {})}
        else:
            loaded = load_model(path)
            state = loaded.weights
        return cls(path, loaded.description, loaded.tokenizers, state)


def average_models(paths: Sequence[Path], output: Path, weights: Sequence[float] | None = None) -> Path:
    """Write the mean of the weights of `paths` to the model folder `output`, and return its path.

    If a checkpoint contains a moving average, which its run validates and saves, that is the member. Settings that are
    not weights (dropout, search) are those of the first member. Licences and directions are those of all.

    Args:
        paths: the members.
        output: a new or empty folder.
        weights: one per member, not negative; only their ratio matters. By default all are equal.

    Raises:
        UserError: the number of weights is not that of the members, or a weight is not possible.
        ModelError, CheckpointError: a member is missing or damaged, or differs from the first in shape, vocabulary,
            direction or labels; or `output` exists and is not an empty folder.
    """
    weights = _checked([1.0] * len(paths) if weights is None else weights, len(paths))
    check_new(output)
    first, *others = members = [_Member.load(path) for path in paths]
    for other in others:
        check_direction(other.path, other.languages, first.path, first.languages, "average models of one direction")
        if problem := _difference(first, other):
            raise ModelError(f"{other.path}: {problem}")
    shares = (weight / sum(weights) for weight in weights)
    made_of = [f"- {share:.4g} of `{name_in_run(path)}`" for share, path in zip(shares, paths, strict=True)]
    licences = joined_licences(*(member.description.license for member in members))
    used = [member for member, weight in zip(members, weights, strict=True) if weight]
    directions = tuple(dict.fromkeys(chain.from_iterable(member.description.directions for member in used)))
    description = first.description.model_copy(update={"metrics": {}, "license": licences, "directions": directions})
    paragraphs = ["The mean of the weights of several models:", "\n".join(made_of)]
    card = short_card(description, output.name, paragraphs, first.tokenizers.needed)
    mean = average([member.state for member in members], weights)
    return save_model(output, mean, description, first.tokenizers, card)


def _checked(weights: Sequence[float], count: int) -> Sequence[float]:
    if len(weights) != count:
        given, models = counted(len(weights), "weight"), counted(count, "model")
        raise UserError(f"--weights: {given} for {models}; give one per model, in order")
    shown = ",".join(f"{weight:g}" for weight in weights)
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not sum(weights):
        raise UserError(f"weights {shown}: give numbers that are not negative, at least one of them above 0")
    if not math.isfinite(sum(weights)):
        raise UserError(f"weights {shown}: too large to add up; give them in proportion, such as 1,1")
    return [weight / max(weights) for weight in weights]


def _difference(first: _Member, other: _Member) -> str | None:
    """Return why the mean of two models would be meaningless, or None."""
    expected, found = first.description, other.description
    if found.task != expected.task:
        return f"a {found.task} model, and {first.path} is one of {expected.task}"
    if other.tokenizers.fingerprint != first.tokenizers.fingerprint:
        return f"another vocabulary than {first.path}; average models that share one"
    if found.labels != expected.labels:
        return f"other labels than {first.path}; average models that share them"
    if found.classifier.pooling != expected.classifier.pooling:
        pooling = f"classifier.pooling is {found.classifier.pooling}, not {expected.classifier.pooling}"
        return f"another model than {first.path}: {pooling}"
    if problem := mismatch(first.state, other.state):
        return f"another shape than {first.path}: {problem}"
    values = dict(found.model)
    for key, value in expected.model:
        if key not in FREE_MODEL_KEYS and values[key] != value:
            return f"another model than {first.path}: {key} is {shown(values[key])}, not {shown(value)}"
    return None
