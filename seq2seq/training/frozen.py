"""Weights that training does not change (`training.freeze`): they have no gradient and no state of the optimiser.

`tasks.task` freezes them before the optimiser is made, which takes the others.
"""

import re
from collections.abc import Sequence

from torch import nn

from seq2seq.errors import ConfigError, did_you_mean, shown, some_of


def freeze(module: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze the weights that `patterns` name; a tied weight is frozen under any of its names.

    Args:
        module: the model.
        patterns: names of weights or of modules that contain them; `*` matches any text.

    Raises:
        ConfigError: a pattern names no weight, or no weight is left to train; one line for each problem.
    """
    named = dict(module.named_parameters(remove_duplicate=False))
    problems = []
    for pattern in patterns:
        matched = re.compile(".*".join(map(re.escape, pattern.split("*"))) + r"(?:\..*)?")
        found = [weight for name, weight in named.items() if matched.fullmatch(name)]
        if not found:
            problems.append(f"training.freeze: no weight is called {shown(pattern)}{_hint(pattern, named)}")
        for weight in found:
            weight.requires_grad_(False)
    if not problems and not any(weight.requires_grad for weight in named.values()):
        problems.append("training.freeze: no weight is left to train; name fewer")
    if problems:
        raise ConfigError("config", problems)


def num_frozen(module: nn.Module) -> int:
    """Return the number of parameters that are frozen."""
    return sum(weight.numel() for weight in module.parameters() if not weight.requires_grad)


def _hint(pattern: str, names: Sequence[str]) -> str:
    """Return the nearest names of weights and modules, or the names of the largest modules."""
    parts = [name.split(".") for name in names]
    prefixes = dict.fromkeys(".".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1))
    return did_you_mean(pattern, prefixes) or f"; there are {some_of([name for name in prefixes if '.' not in name])}"
