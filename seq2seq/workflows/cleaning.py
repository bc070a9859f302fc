"""The checkpoints of finished runs, which `s2s runs clean` shows and deletes; the best models stay."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2seq import atomic
from seq2seq.files import folder_size
from seq2seq.store.finding import damage
from seq2seq.tasks.run_folder import write_note
from seq2seq.workflows.runs import FINISHED, RunRecord, end_of, latest_state


@dataclass(frozen=True)
class Removal:
    """The action of `s2s runs clean` on one run."""

    run: RunRecord
    folders: tuple[Path, ...]
    """Checkpoints to delete; empty if the run is kept unchanged."""
    num_bytes: int
    reason: str
    """Why the run is kept unchanged."""


def removals(runs: Sequence[RunRecord]) -> list[Removal]:
    """Return the checkpoints of finished runs whose best model is whole; other runs need theirs to continue."""
    found = []
    for run in runs:
        folder = run.folder
        steps = sorted(path for path in folder.checkpoints.glob("step_*") if path.is_dir() and not path.is_symlink())
        reason = ""
        if run.state != FINISHED:
            reason = f"{run.state}: its checkpoints are needed to continue"
        elif not steps:
            reason = "it has no checkpoints"
        elif not folder.best.is_dir():
            reason = "it has no best model"
        elif problem := damage(folder.best, has_contents=True):
            reason = f"its best model is damaged ({problem})"
        folders = () if reason else tuple(steps)
        found.append(Removal(run, folders, sum(map(folder_size, folders)), reason))
    return found


def remove(removal: Removal) -> int:
    """Delete the checkpoints of one run, and return how many; none if the run has changed since it was read.

    The run is locked meanwhile: no process begins to train in it.

    Raises:
        UserError: a process trains in it.
        OSError: a folder cannot be deleted.
    """
    folder = removal.run.folder
    if not removal.folders:
        return 0
    with folder.locked():
        state = latest_state(folder)
        if not (finished := end_of(folder, state)) or damage(folder.best):
            return 0
        write_note(folder.cleaned, {"finished": finished, "step": state.get("step"), "seconds": state.get("seconds")})
        for path in removal.folders:
            atomic.remove_folder(path)
    return len(removal.folders)
