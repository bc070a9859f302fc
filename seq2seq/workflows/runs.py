"""The runs of a folder side by side: their records, the differences of two, and the files that may be deleted.

A `RunRecord` is made here from the files of a run folder; `s2s runs` shows them and `workflows.compare` takes settings
and learning curves from them. Nothing here imports torch, and a damaged file loses only its own facts.
"""

import contextlib
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seq2seq import atomic
from seq2seq.config import file as config_file
from seq2seq.config.yaml_text import YamlProblem, read_yaml
from seq2seq.errors import DataError, ModelError, counted
from seq2seq.files import LARGEST_STATE, DamagedFile, folder_size, read_object
from seq2seq.lines import read_records, read_regular
from seq2seq.store.finding import CONFIG, GENERATION, LATEST, damage, run_of_model
from seq2seq.store.tuning import is_tuned, tuned_metrics, tuned_settings
from seq2seq.tasks.run_folder import RunFolder, read_note
from seq2seq.tasks.scored import scored_tests

MOST_LEVELS = 4  # of folders that are searched for runs; those of a sweep are one level lower
LARGEST_CONFIG = 2**20
RUNNING, FINISHED, STOPPED, DIVERGED = "running", "finished", "stopped", "diverged"
# Figures of a validation that are shown, in this order.
VALIDATION = ("valid_loss", "bleu", "chrf", "chrf++", "ter", "accuracy", "f1")
LOWER_IS_BETTER = {"valid_loss", "ter"}
# Settings that depend on the machine and do not change results.
OF_THE_MACHINE = ("data.cache_dir", "training.device", "training.threads", "data.num_workers")

SOURCES = "data.train."
NOT_RECORDED = object()
OPTIONAL_DATA = (SOURCES, "data.stages.", "data.valid.", "data.test.")


@dataclass(frozen=True)
class RunRecord:
    """The record of one run folder."""

    name: str
    folder: RunFolder
    state: str
    """`running`, `finished`, `stopped` or `diverged`."""
    note: str = ""
    """The time left, why the run ended, and what could not be read."""
    step: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings by dotted key; empty if the configuration cannot be read."""
    validation: Mapping[str, float] = field(default_factory=dict)
    """Figures of the best model."""
    tests: Mapping[str, float] = field(default_factory=dict)
    """Test scores by `test set metric`."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Conditions of the test scores: fingerprints by `test set content`, signatures by `test set metric signature`."""
    hours: float = 0.0
    machine: str = ""
    num_bytes: int = 0
    broken_lines: int = 0
    """Number of lines of metrics.jsonl that are not records."""

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """Fingerprints of data and tokenizers."""
        return read_note(self.folder.identity)

    @property
    def figures(self) -> dict[str, float]:
        """Validation and test scores by column."""
        return {**self.validation, **self.tests}

    def as_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "name": self.name, "path": str(self.folder.path), "state": self.state, "note": self.note,
            "step": self.step, "settings": dict(self.settings), "validation": dict(self.validation),
            "tests": dict(self.tests), "conditions": dict(self.conditions), "hours": round(self.hours, 4),
            "machine": self.machine, "bytes": self.num_bytes, "broken_lines": self.broken_lines,
        }  # fmt: skip


def find_runs(folder: Path) -> list[RunRecord]:
    """Return the runs in a folder by name, or the folder itself if it is a run.

    Raises:
        ModelError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        problem = "a file" if folder.exists() else "no such folder"
        raise ModelError(f"{folder}: {problem}; name a run folder, or the folder that your runs are in")
    # a link to a run that is found without it does not count
    paths = sorted(_run_folders(folder, MOST_LEVELS), key=lambda path: path.resolve() != _unlinked(path, folder))
    found = sorted({path.resolve(): path for path in reversed(paths)}.values(), key=lambda path: path.parts)
    if not found:
        raise ModelError(f"{folder}: no run is in it; name the folder that your runs are in, or start one: s2s train")
    names = [str(path.relative_to(folder)) if path != folder else path.resolve().name for path in found]
    return _with_sources_alike([read_run(path, name) for path, name in zip(found, names, strict=True)])


def read_run(path: Path, name: str | None = None) -> RunRecord:
    """Read one run; unreadable parts are omitted and named in the note."""
    folder = RunFolder(path)
    settings, problems = _settings_of(folder)
    records, broken = [], []
    if folder.metrics.exists():
        try:
            records, broken = read_records(folder.metrics)
        except DataError as error:
            problems.append(str(error).removeprefix(f"{path}/"))
    if broken:
        problems.append(f"{counted(len(broken), 'broken line')} in {folder.metrics.name}")
    newest = latest_state(folder)
    state, why = _state_of(folder, settings, records, newest)
    made = read_note(folder.made_with).get("machine")
    made = made if isinstance(made, Mapping) else {}
    saved = [newest, read_note(folder.cleaned)]  # the checkpoint of a stop may be newer than the log
    scores = _scores_of(folder)
    return RunRecord(
        name=name or path.resolve().name,
        folder=folder,
        state=state,
        note="; ".join([*[why] * bool(why), *problems, *_problems_of(folder, state)]),
        step=max(record["step"] for record in ({"step": 0}, *records, *saved) if isinstance(record.get("step"), int)),
        settings=settings,
        validation=_validation_of(folder),
        tests={column: score["value"] for column, score in scores.items()},
        conditions=_conditions_of(folder, scores),
        hours=max(_last(records, "seconds"), _last(saved, "seconds")) / 3600,
        machine=" ".join(str(made[key]) for key in ("host", "device") if key in made),
        num_bytes=folder_size(path),
        broken_lines=len(broken),
    )


def run_of(path: Path) -> RunRecord | None:
    """Return the run that a RUN names, or whose best model a MODEL is; None for other folders."""
    found = path if _is_run(path) else run_of_model(path)
    return read_run(found) if found is not None and _is_run(found) else None


def varying(runs: Sequence[RunRecord]) -> list[str]:
    """Return the settings in which runs differ.

    A key that an earlier version lacked is not a difference, but a source, stage or set of data that a run lacks is.
    """
    values: dict[str, list[Any]] = {}
    for run in runs:
        for key, value in run.settings.items():
            values.setdefault(key, []).append(value)
    with_data = sum(any(key.startswith(SOURCES) for key in run.settings) for run in runs)
    return [
        key
        for key, found in values.items()
        if key not in OF_THE_MACHINE
        and (any(value != found[0] for value in found) or (key.startswith(OPTIONAL_DATA) and len(found) < with_data))
    ]


def _with_sources_alike(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs with the keys of a single source numbered, as in `data.train.0.source`, if one has several."""
    if not any(key.startswith(f"{SOURCES}0.") for run in runs for key in run.settings):
        return list(runs)
    return [replace(run, settings={_numbered(key): value for key, value in run.settings.items()}) for run in runs]


def _numbered(key: str) -> str:
    rest = key.removeprefix(SOURCES)
    return key if rest == key or rest.partition(".")[0].isdigit() else f"{SOURCES}0.{rest}"


# -- what a run is -----------------------------------------------------------------------------------------------------


def _is_run(path: Path) -> bool:
    """Whether a run began in a folder; folders named `best` and `checkpoints` in it may be copied models or runs."""
    folder = RunFolder(path)
    return folder.is_run or folder.metrics.is_file() or any(folder.checkpoints.glob("step_*/state.json"))


def _run_folders(folder: Path, levels: int) -> Iterator[Path]:
    """Yield the folder if it is a run, else the runs in it, down to a number of levels."""
    if _is_run(folder):
        yield folder
        return
    if not levels:
        return
    with contextlib.suppress(OSError):
        for entry in sorted(folder.iterdir()):
            is_latest = entry.name == LATEST and entry.is_symlink()
            if entry.is_dir() and not entry.name.startswith(".") and not is_latest:
                yield from _run_folders(entry, levels - 1)


def _unlinked(path: Path, folder: Path) -> Path:
    """Return where a path in a folder is if no part of it after the folder is a link."""
    return folder.resolve() / path.relative_to(folder)


def _settings_of(folder: RunFolder) -> tuple[dict[str, Any], list[str]]:
    """Return the settings as written, possibly by another version, and the problem of the file, if any."""
    try:
        values, _ = read_yaml(read_regular(folder.config, LARGEST_CONFIG).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, YamlProblem):
        return {}, [f"{folder.config.name} cannot be read"]
    if not isinstance(values, Mapping):
        return {}, [f"{folder.config.name} cannot be read"]
    return dict(config_file.settings_of(values)), []


def _state_of(
    folder: RunFolder, settings: Mapping[str, Any], records: Sequence[Mapping[str, Any]], newest: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the state of a run whose newest checkpoint has the state `newest`, and the time left or why it ended."""
    if folder.is_training():
        return RUNNING, ", ".join(filter(None, [_stage_of(settings, records), _time_left(settings, records)]))
    if (cleaned := read_note(folder.cleaned)) and not any(folder.checkpoints.glob("step_*")):  # else it went on
        return FINISHED, str(cleaned.get("finished", ""))
    if records and "diverged" in records[-1]:
        return DIVERGED, str(records[-1]["diverged"])
    finished = end_of(folder, newest)
    return (FINISHED, finished) if finished else (STOPPED, "")


def end_of(folder: RunFolder, state: Mapping[str, Any]) -> str:
    """Return why a run ended; empty if it did not end, or has not ended with limits that changed since.

    `state` is that of its newest checkpoint.
    """
    return "" if folder.new_limits.exists() else str(state.get("finished") or "")


def latest_state(folder: RunFolder) -> Mapping[str, Any]:
    """Return the state in the newest readable checkpoint of a run."""
    for path in sorted(folder.checkpoints.glob("step_*"), key=lambda path: (len(path.name), path.name), reverse=True):
        with contextlib.suppress(DamagedFile):
            state = read_object(path / "state.json", LARGEST_STATE).get("run")
            if isinstance(state, Mapping):
                return state
    return {}


def _problems_of(folder: RunFolder, state: str) -> list[str]:
    """Return which files of a run are damaged, or missing although it has finished."""
    notes = (folder.identity, folder.made_with, folder.test_scores, folder.cleaned)
    found = [f"{path.name} cannot be read" for path in notes if path.exists() and not read_note(path)]
    found += [f"{folder.metrics.name} is missing"] * (state == FINISHED and not folder.metrics.exists())
    if not (best := atomic.standing(folder.best)).is_dir():
        return [*found, *["no best model"] * (state == FINISHED)]
    if problem := damage(best):
        return [*found, f"best: {problem}"]
    if is_tuned(generation := _generation_of(folder)):
        found.append(f"tuned: {tuned_settings(generation)}")
    if _was_scored_otherwise(folder):
        found.append("tuned since its test scores")
    return found


def _was_scored_otherwise(folder: RunFolder) -> bool:
    """Whether the best model has other search settings than those of the test scores."""
    search = _search_of(folder)
    try:
        settings = json.loads(read_note(folder.test_scores)["scored"]["measure"])["search"]
        return any(search.get(key, value) != value for key, value in settings.items())
    except (TypeError, ValueError, KeyError, AttributeError):  # of an earlier version
        return False


def _search_of(folder: RunFolder) -> dict[str, Any]:
    """Return the search settings of the best model; empty if they are not known."""
    search = _generation_of(folder).get("search")
    return dict(search) if isinstance(search, Mapping) else {}


def _generation_of(folder: RunFolder) -> dict[str, Any]:
    """Return the search settings of the best model, with those before tuning and the scores after it."""
    return read_note(atomic.standing(folder.best) / GENERATION)


def _stage_of(settings: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> str:
    """Return the stage that a run is in; empty if there is one."""
    count = len({key.split(".")[2] for key in settings if key.startswith("data.stages.")})
    return f"stage {_last(records, 'stage') or 1:.0f} of {count}" if count > 1 else ""


def _time_left(settings: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> str:
    """Return the time left in words; empty before the first log line, or if the limits are not known.

    The epochs of stages have different lengths, which only training knows, so their number does not give the time left.
    """
    from seq2seq.config.schema import TrainingConfig
    from seq2seq.training.progress import duration
    from seq2seq.training.state import RunState, progress

    seconds, epoch, step = (_last(records, key) for key in ("seconds", "epoch", "step"))
    limits = {key: settings.get(f"training.{key}") for key in ("max_steps", "max_epochs", "max_minutes")}
    if limits["max_epochs"] is not None and _stage_of(settings, records):
        return ""
    try:
        config = TrainingConfig(**{key: value for key, value in limits.items() if value is not None})
    except ValueError:
        return ""
    share = progress(RunState(step=int(step), seconds=seconds), epoch, config)
    return f"{duration(seconds * (1 - share) / share)} left" if seconds and share else ""


def _validation_of(folder: RunFolder) -> dict[str, float]:
    metrics = read_note(atomic.standing(folder.best) / CONFIG).get("metrics")
    metrics = metrics if isinstance(metrics, Mapping) else {}
    if is_tuned(generation := _generation_of(folder)):
        metrics = tuned_metrics(metrics, generation)
    return {name: metrics[name] for name in VALIDATION if is_number(metrics.get(name))}


def _scores_of(folder: RunFolder) -> dict[str, Mapping[str, Any]]:
    """Return the records of test scores by column."""
    scores = read_note(folder.test_scores).get("scores")
    return {
        f"{score.get('dataset')} {score.get('metric')}": score
        for score in (scores if isinstance(scores, list) else ())
        if isinstance(score, Mapping) and is_number(score.get("value"))
    }


def _conditions_of(folder: RunFolder, scores: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the fingerprints of the test sets and the signatures of the scores that the run recorded."""
    found: dict[str, Any] = {f"{name} content": value for name, value in scored_tests(folder).items()}
    found |= {f"{column} signature": score.get("signature") for column, score in scores.items()}
    return {key: value for key, value in found.items() if isinstance(value, str) and value}


def _last(records: Sequence[Mapping[str, Any]], key: str) -> float:
    return next((record[key] for record in reversed(records) if is_number(record.get(key))), 0.0)


def is_number(value: Any) -> bool:
    """Whether a value of a JSON file is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# -- how two runs differ -----------------------------------------------------------------------------------------------


def differences(first: RunRecord, second: RunRecord) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return the values of both runs where they differ, by subject.

    The subjects are `config`, `search` (settings of the best model that are not those of the configuration, because it
    was tuned), `data`, `tests`, `code`, `packages` and `machine`. A value that one did not record is `NOT_RECORDED`.
    """
    sides = [
        {
            **read_note(run.folder.made_with), "config": run.settings, "search": _search_of(run.folder),
            "data": run.identity, "tests": run.conditions,
        }
        for run in _with_sources_alike((first, second))
    ]  # fmt: skip
    found = {}
    for subject in ("config", "search", "data", "tests", "code", "packages", "machine"):
        one, other = (dict(side[subject]) if isinstance(side.get(subject), Mapping) else {} for side in sides)
        changed = {
            key: (one.get(key, NOT_RECORDED), other.get(key, NOT_RECORDED))
            for key in {**one, **other}
            if one.get(key) != other.get(key)
        }
        if subject == "search":
            settings = found.get("config", {})
            changed = {key: sides for key, sides in changed.items() if settings.get(f"search.{key}") != sides}
        if changed:
            found[subject] = changed
    return found
