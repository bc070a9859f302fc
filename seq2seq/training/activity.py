"""The current work of a trainer, apart from the state of its run, which checkpoints contain.

`Trainer` makes the `Activity` of a run and sets its phase; `StepLog` sets its loss. The progress display of `Monitor`
and the answers to signals read it.
"""

import math
from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """The kind of work that a trainer does; the values are shown next to the progress bar."""

    PREPARING = "preparing"
    STEP = "step"
    VALIDATING = "validating"
    SAVING = "saving"


@dataclass
class Activity:
    """The phase that a trainer is in, and the loss of the latest step that was read, in nats per target."""

    phase: Phase = Phase.PREPARING
    loss: float = math.nan
