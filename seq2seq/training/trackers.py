"""Trackers of a run, to which the monitor sends the records of metrics.jsonl: TensorBoard, MLflow, Weights & Biases.

Each works in a thread of its own, so that training does not wait for a network. If one fails, a warning is logged, and
it gets no more records; training and the other trackers continue. Settings lose absolute paths and credentials.
"""

import contextlib
import html
import json
import logging
import os
import queue
import re
import textwrap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from seq2seq import atomic
from seq2seq.config import file as config_file
from seq2seq.errors import MissingDependency, RunError, reason
from seq2seq.files import DamagedFile, json_text, read_object
from seq2seq.store.finding import RUN_CONFIG

TENSORBOARD, REMOTE_RUNS = "tensorboard", "trackers.json"
PROJECT = "seq2seq"  # name of the experiment or project, unless the environment names one
SECONDS_TO_FINISH = 20.0  # for what is not sent yet at the end; a second signal ends the wait
PARAMETERS_AT_ONCE, LONGEST_KEY, LONGEST_PARAMETER = 100, 250, 500  # limits of MLflow servers
_OTHER_CHARACTER = re.compile(r"[^\w.\- :]")  # in a key of MLflow; a slash would make folders
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_SQLITE, _HALF_MADE = "sqlite:///", re.compile("table .* already exists|no such (table|column)")
_REMOTE_RUNS_LOCK = threading.Lock()

Say = Callable[[str, int], None]
Outcome = Literal["finished", "stopped", "failed"]
"""How a start of a run ended; a signal stops one, and a diverged one failed."""


@dataclass(frozen=True)
class TrackedRun:
    """The facts of a run that a tracker gets at the start."""

    folder: Path
    step: int
    """The last step before the start; 0 in a new run."""
    is_new: bool = False
    """Whether no checkpoint is continued, so that nothing of an earlier start belongs to the run."""
    remote: str | None = None
    """Identifier of the remote run to continue."""

    def settings(self) -> dict[str, Any]:
        """Return the run's configuration by dotted key, as `shareable` returns its values.

        Raises:
            ConfigError: config.yaml in the folder cannot be read.
        """
        config = config_file.load(self.folder / RUN_CONFIG, check_files=False)
        return {key: shareable(value) for key, value in config_file.settings_of(config.model_dump(mode="json"))}

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name


class Remote(NamedTuple):
    """The run of a tracker, as `Tracker.start` began or continued it."""

    identifier: str = ""
    """The value of `TrackedRun.remote` when the run continues; empty if it needs none."""
    place: str = ""
    """The place where people find it, for the log."""


class Tracker(Protocol):
    """A receiver of figures; any call may raise any exception."""

    def start(self, run: TrackedRun) -> Remote:
        """Begin a remote run, or continue `run.remote`."""

    def describe(self, run: TrackedRun) -> None:
        """Send the settings; called after the identifier of the remote run was stored."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Receive the finite figures of a step."""

    def text(self, step: int, name: str, text: str) -> None:
        """Receive text of a step."""

    def finish(self, outcome: Outcome) -> None:
        """Send what is left, and end the remote run, which shows the outcome until it is continued."""


class TensorBoard:
    """Event files in the run folder; records after `run.step` are hidden when the run continues."""

    def start(self, run: TrackedRun) -> Remote:
        """Open a new event file."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependency("tensorboard", "tensorboard", "training.trackers: tensorboard") from error
        try:
            self._writer = SummaryWriter(str(run.folder / TENSORBOARD), purge_step=run.step + 1 if run.step else None)
        except UnicodeError as error:
            raise ValueError("it cannot write to a folder whose name is not UTF-8") from error
        if not isinstance(threading.excepthook, _UnlessKept):
            threading.excepthook = _UnlessKept(threading.excepthook)
        return Remote()

    def describe(self, run: TrackedRun) -> None:
        """Send nothing; the settings are in the run folder."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write one event for each figure."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def text(self, step: int, name: str, text: str) -> None:
        """Write text, which is shown unchanged."""
        self._writer.add_text(name, textwrap.indent(text, "    "), step)

    def finish(self, outcome: Outcome) -> None:
        """Write what is left; TensorBoard shows no outcome."""
        self._writer.close()


class _UnlessKept:
    """A hook that shows the errors of all threads but TensorBoard's, which keeps its error for the next call."""

    def __init__(self, shown: Callable[[Any], object]):
        self._shown = shown

    def __call__(self, failure: Any) -> None:
        if not type(failure.thread).__module__.startswith("tensorboard."):
            self._shown(failure)


class MLflow:
    """A run at `MLFLOW_TRACKING_URI`; settings are those of its first start, because MLflow changes no parameter."""

    def start(self, run: TrackedRun) -> Remote:
        """Begin a run in the experiment that the environment names, or continue one."""
        try:
            import mlflow
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise MissingDependency("mlflow-skinny", "mlflow", "training.trackers: mlflow") from error
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs on its own, to standard error
        place = mlflow.get_tracking_uri()
        try:
            with _alone(place):
                self._client = MlflowClient()
                if run.remote:
                    self._run = run.remote
                    self._client.update_run(self._run, status="RUNNING")
                else:
                    experiment = mlflow.set_experiment(**self._experiment())
                    self._run = self._client.create_run(experiment.experiment_id, run_name=run.name).info.run_id
        except Exception as error:
            if not place.startswith(_SQLITE) or not _HALF_MADE.search(str(error)):
                raise
            file = place.removeprefix(_SQLITE)
            raise RunError(f"{file} cannot be used, as after a kill while it was made; move it away") from error
        return Remote(self._run, f"run {self._run} at {shareable(place)}")

    def _experiment(self) -> dict[str, str]:
        if known := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return {"experiment_id": known}
        return {"experiment_name": os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)}

    def describe(self, run: TrackedRun) -> None:
        """Send the settings, unless the remote run has some."""
        from mlflow.entities import Param

        if self._client.get_run(self._run).data.params:
            return
        values = {_OTHER_CHARACTER.sub(_code, key)[:LONGEST_KEY]: value for key, value in run.settings().items()}
        parameters = [Param(key, str(value)[:LONGEST_PARAMETER]) for key, value in values.items()]
        for first in range(0, len(parameters), PARAMETERS_AT_ONCE):
            self._client.log_batch(self._run, params=parameters[first : first + PARAMETERS_AT_ONCE])

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Send the figures together; `chrf++` becomes `chrfpp`, because MLflow allows no plus sign."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name.replace("+", "p"), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def text(self, step: int, name: str, text: str) -> None:
        """Send a text file as an artifact."""
        self._client.log_text(self._run, text, f"{name}/step-{step:08d}.txt")

    def finish(self, outcome: Outcome) -> None:
        """End the run; it can be continued."""
        status = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}[outcome]
        self._client.set_terminated(self._run, status)


class WandB:
    """A run of Weights & Biases; its files are in `wandb/` of the run folder, or in `WANDB_DIR`.

    Console output, command line, code, git state and packages are not sent. Figures have the axis `step`, because the
    steps of W&B can only rise, and a run that continues repeats some.
    """

    def start(self, run: TrackedRun) -> Remote:
        """Begin a run in the project that the environment names, or continue one; never ask for a key."""
        try:
            import wandb
        except ImportError as error:
            raise MissingDependency("wandb", "wandb", "training.trackers: wandb") from error
        wandb.setup(wandb.Settings(silent=True))  # a silent one asks nothing
        private = dict(console="off", disable_git=True, save_code=False, disable_job_creation=True)
        hidden = dict(x_disable_meta=True, x_save_requirements=False, x_disable_machine_info=True)
        seconds = 0.75 * SECONDS_TO_FINISH
        limits = dict(init_timeout=seconds, finish_timeout=seconds, finish_timeout_raises=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            id=run.remote or os.urandom(8).hex(),
            resume="allow",
            dir=os.environ.get("WANDB_DIR", str(run.folder)),
            settings=wandb.Settings(silent=True, **private, **hidden, **limits),
        )
        self._run.define_metric("*", step_metric="step")
        folder = Path(self._run.dir).parent
        return Remote(self._run.id, self._run.url or f"offline; wandb sync {folder} sends it")

    def describe(self, run: TrackedRun) -> None:
        """Send the settings, also those that changed."""
        self._run.config.update(run.settings(), allow_val_change=True)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Send the figures together."""
        self._run.log({"step": step, **values})

    def text(self, step: int, name: str, text: str) -> None:
        """Send text, which is shown unchanged."""
        import wandb

        self._run.log({"step": step, name: wandb.Html(f"<pre>{html.escape(text)}</pre>", inject=False)})

    def finish(self, outcome: Outcome) -> None:
        """Send what is left; the run can be continued. W&B calls a run finished if its exit code is 0, else failed."""
        self._run.finish(exit_code={"finished": 0, "stopped": 255, "failed": 1}[outcome])  # it has 255 for Ctrl-C


TRACKERS: dict[str, Callable[[], Tracker]] = {TENSORBOARD: TensorBoard, "mlflow": MLflow, "wandb": WandB}


class Trackers:
    """The trackers of one run, each in its thread; no call waits for them but `close`, which waits a limited time."""

    def __init__(self, names: Sequence[str], run: TrackedRun, say: Say):
        """Start trackers.

        Args:
            names: keys of `TRACKERS`.
            run: the run; `trackers.json` in its folder has the `remote` of each. If it is new, this file and the event
                files of a start that ended before its first checkpoint are deleted.
            say: logs a line with a level; called from the threads.
        """
        if run.is_new:
            for path in (run.folder / REMOTE_RUNS, *(run.folder / TENSORBOARD).glob("events.out.tfevents.*")):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    problem = f"{path}: cannot be deleted ({error.strerror})"
                    say(f"{problem}; trackers may show an earlier start", logging.WARNING)
        self._channels = [_Channel(name, run, say) for name in dict.fromkeys(names)]

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Send figures of a step."""
        for channel in self._channels:
            channel.send("scalars", step, values)

    def text(self, step: int, name: str, text: str) -> None:
        """Send text of a step."""
        for channel in self._channels:
            channel.send("text", step, name, text)

    def close(self, outcome: Outcome) -> None:
        """End the runs; a tracker that is not ready in `SECONDS_TO_FINISH` is left alone, with a warning."""
        for channel in self._channels:
            channel.end(outcome)
        deadline = time.monotonic() + SECONDS_TO_FINISH
        for channel in self._channels:
            channel.wait(deadline)


class _Channel:
    """The thread of one tracker, and the calls that it has to make."""

    def __init__(self, name: str, run: TrackedRun, say: Say):
        self._name, self._run, self._say = name, run, say
        self._calls: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._is_left_out = False
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"s2s-{name}")
        self._thread.start()

    def send(self, *call: Any) -> None:
        if not self._is_left_out:
            self._calls.put(call)

    def end(self, outcome: Outcome) -> None:
        self._calls.put(("finish", outcome))

    def wait(self, deadline: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive() and not self._is_left_out:
            self._leave_out(f"it did not receive all within {SECONDS_TO_FINISH:g} s")

    def _work(self) -> None:
        remote = _remote_runs(self._run.folder).get(self._name)
        try:
            tracker = TRACKERS[self._name]()
            began = tracker.start(replace(self._run, remote=remote))
            if began.identifier and began.identifier != remote:
                with _REMOTE_RUNS_LOCK:
                    known = {**_remote_runs(self._run.folder), self._name: began.identifier}
                    atomic.write_file(self._run.folder / REMOTE_RUNS, json_text(known).encode())
            if began.place:
                self._say(f"{self._name}: {began.place}", logging.INFO)
            tracker.describe(self._run)
            method = ""
            while method != "finish":
                method, *arguments = self._calls.get()
                getattr(tracker, method)(*arguments)
        except (Exception, SystemExit) as error:  # whatever a library raises, training continues
            is_told = isinstance(error, MissingDependency | RunError)
            why = str(error) if is_told else f"{type(error).__name__}: {reason(error)}"
            remedy = f"; delete {self._run.folder / REMOTE_RUNS} to begin a new remote run" if remote else ""
            self._leave_out(_CREDENTIALS.sub("", why) + remedy)

    def _leave_out(self, why: str) -> None:
        if not self._is_left_out:
            self._is_left_out = True
            self._say(f"{self._name} is left out ({why}); metrics.jsonl is complete", logging.WARNING)


def _code(character: re.Match[str]) -> str:
    return f"_{ord(character[0]):x}_"


def shareable(value: Any) -> Any:
    """Return a setting as it may leave the machine: a number or text, without absolute paths and credentials.

    An absolute path becomes relative to the current folder. Outside of this folder, or if it is the root, only the name
    of the file remains. An address loses user, password and query.
    """
    if isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        made = {key: shareable(item) for key, item in items}
        return json.dumps(made if isinstance(value, dict) else list(made.values()), ensure_ascii=False)
    if not isinstance(value, str):
        return value
    scheme, has_scheme, rest = value.partition("://")
    if has_scheme and scheme not in ("file", "sqlite"):
        return _CREDENTIALS.sub("", value).partition("?")[0]
    path = Path(rest if has_scheme else value)
    if not path.is_absolute() and not value.startswith("~"):
        return value
    here = Path.cwd()
    is_within = path.is_relative_to(here) and here != Path(here.anchor)
    return str(path.relative_to(here)) if is_within else path.name


def _alone(place: str) -> contextlib.AbstractContextManager[object]:
    """Return a lock for a local database of MLflow: the first client makes its tables, which others must not do too."""
    file = Path(place.removeprefix(_SQLITE))
    is_local = place.startswith(_SQLITE) and file.name and file.parent.is_dir()
    return atomic.locked(file.with_name(f".{file.name}.lock")) if is_local else contextlib.nullcontext()


def _remote_runs(folder: Path) -> dict[str, str]:
    """Return the identifiers of remote runs by tracker; empty if the file is missing or damaged."""
    with contextlib.suppress(DamagedFile):
        return {name: value for name, value in read_object(folder / REMOTE_RUNS).items() if isinstance(value, str)}
    return {}
