"""Trackers get what metrics.jsonl has, and no more; whatever fails in them, training ends in the same bits."""

import contextlib
import json
import logging
import math
import sqlite3
import sys
import threading
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from support import toy_run
from support.toy_run import Killed, killed_at, outcome, records, train
from support.wandb_files import wandb_records

from seq2seq.config.schema import TrainingConfig
from seq2seq.training import trackers
from seq2seq.training.activity import Activity
from seq2seq.training.monitor import Monitor
from seq2seq.training.state import Sample
from seq2seq.training.trackers import Remote, shareable

_one_thread = pytest.fixture(toy_run.one_thread, autouse=True)
SETTINGS = {
    "data.train.tsv": "/home/someone/secret-place/train.tsv", "training.learning_rate": 0.001, "seed": 1,
    "data.valid.hub": "https://someone:pa55word@hub.example/name?key=hidden", "training.freeze": ["encoder.*"],
}  # fmt: skip


def figures(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) by name: the finite figures of the records of training and validation."""
    found = defaultdict(list)
    for record in records(folder):
        for name, value in record.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                found[name].append((record["step"], value))
    assert {"loss", "valid_loss", "accuracy"} <= found.keys()
    return dict(found)


class Noted:
    """A tracker that notes its calls, and fails in one of them."""

    def __init__(self, fails: str = "", error: type[BaseException] = OSError):
        self.calls, self.fails, self.error = [], fails, error

    def _note(self, method: str, *given) -> None:
        self.calls.append((method, *given))
        if method == self.fails:
            raise self.error("https://someone:pa55word@tracker.example: quota exceeded\nand more")

    def start(self, run):
        self._note("start", run)
        return Remote("an-id", "somewhere")

    def describe(self, run):
        if self.fails == "describe":
            self._note("describe", run)

    def scalars(self, step, values):
        self._note("scalars", step, values)

    def text(self, step, name, text):
        self._note("text", step, name, text)

    def finish(self, outcome):
        self._note("finish", outcome)


@pytest.fixture
def noted(monkeypatch):
    """Put a `Noted` in the place of a tracker."""

    def put(name: str, *given) -> Noted:
        tracker = Noted(*given)
        monkeypatch.setitem(trackers.TRACKERS, name, lambda: tracker)
        return tracker

    return put


def told(caplog, level=logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


@pytest.mark.parametrize(
    ("fails", "error"), [("start", OSError), ("scalars", SystemExit), ("text", TimeoutError), ("finish", RuntimeError)]
)
def test_a_tracker_that_fails_is_left_out_with_one_warning_and_changes_nothing(fails, error, noted, tmp_path, caplog):
    broken, sound = noted("wandb", fails, error), noted("mlflow")
    train(tmp_path / "run", max_steps=12, trackers=["wandb", "mlflow"], track_samples=True)
    train(tmp_path / "plain", max_steps=12, trackers=[])
    assert outcome(tmp_path / "run") == outcome(tmp_path / "plain")
    (warning,) = told(caplog)
    assert warning == (
        f"wandb is left out ({error.__name__}: https://tracker.example: quota exceeded); metrics.jsonl is complete"
    )
    assert broken.calls[-1][0] == fails
    assert sound.calls[-1] == ("finish", "finished")


def test_files_of_an_earlier_start_that_cannot_be_deleted_are_told_and_training_goes_on(noted, tmp_path, caplog):
    sound = noted("mlflow")
    (tmp_path / "run" / "trackers.json").mkdir(parents=True)
    (earlier := tmp_path / "run" / "tensorboard" / "events.out.tfevents.1").parent.mkdir()
    earlier.touch()
    train(tmp_path / "run", max_steps=4, trackers=["mlflow"])
    (warning,) = [line for line in told(caplog) if "cannot be deleted" in line]
    assert "trackers.json: cannot be deleted (" in warning
    assert sound.calls
    assert not earlier.exists(), "the others are deleted"


def test_samples_with_invalid_bytes_are_written_and_sent(noted, tmp_path, caplog):
    tracker = noted("mlflow")
    monitor = Monitor(tmp_path, TrainingConfig(trackers=["mlflow"], track_samples=True), Activity())
    monitor.open(0, 0.0, None)
    monitor.validation({"step": 1, "valid_loss": 1.0}, [Sample("a \udce9", "b", "c")], better=True)
    monitor.close("finished")
    assert "source:    a ?\n" in (tmp_path / "samples.txt").read_text(encoding="utf-8")
    assert next(given[2] for method, *given in tracker.calls if method == "text").startswith("source:    a ?\n")
    assert not told(caplog)


def test_training_does_not_wait_for_a_tracker_that_hangs(noted, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(trackers, "SECONDS_TO_FINISH", 0.3)
    hanging, released = noted("wandb"), threading.Event()
    hanging.scalars = lambda step, values: released.wait(60)
    try:
        train(tmp_path / "run", max_steps=12, trackers=["wandb"])
    finally:
        released.set()
    assert told(caplog) == ["wandb is left out (it did not receive all within 0.3 s); metrics.jsonl is complete"]
    assert records(tmp_path / "run")[-1]["step"] == 12


def test_figures_are_those_of_the_file_and_text_is_sent_only_if_it_is_asked_for(noted, tmp_path):
    quiet, asked = noted("wandb"), noted("mlflow")
    train(tmp_path / "quiet", max_steps=12, trackers=["wandb", "wandb"])
    train(tmp_path / "asked", max_steps=12, trackers=["mlflow"], track_samples=True)
    for tracker, folder in ((quiet, "quiet"), (asked, "asked")):
        sent = defaultdict(list)
        for method, *given in tracker.calls:
            if method == "scalars":
                for name, value in given[1].items():
                    sent[name].append((given[0], value))
        assert dict(sent) == figures(tmp_path / folder)
    assert {method for method, *_ in quiet.calls} == {"start", "scalars", "finish"}
    assert "source:    an input" in next(given[2] for method, *given in asked.calls if method == "text")


def test_a_run_that_continues_has_the_same_remote_run_and_a_failure_then_names_the_way_out(noted, tmp_path, caplog):
    for steps, remote in ((10, None), (20, "an-id")):
        tracker = noted("wandb")
        train(tmp_path, max_steps=steps, trackers=["wandb"])
        (run,) = (given[0] for method, *given in tracker.calls if method == "start")
        assert (run.remote, run.step) == (remote, steps - 10)
    noted("wandb", "start")
    train(tmp_path, max_steps=30, trackers=["wandb"])
    assert told(caplog)[-1].count(f"delete {tmp_path / 'trackers.json'} to begin a new remote run") == 1


def test_a_remote_run_whose_settings_were_refused_is_continued_and_no_second_one_begun(noted, tmp_path, caplog):
    for steps, remote in ((10, None), (20, "an-id")):
        tracker = noted("wandb", "describe")
        train(tmp_path, max_steps=steps, trackers=["wandb"])
        assert [given[0].remote for method, *given in tracker.calls if method == "start"] == [remote]
    assert [warning.startswith("wandb is left out (OSError: ") for warning in told(caplog)] == [True, True]


def test_a_run_that_starts_again_without_a_checkpoint_is_a_new_remote_run(noted, tmp_path):
    """Also if another tracker, or none, was chosen in between: figures of a lost start never precede those of a run."""
    for first, second in ((["wandb"], ["wandb"]), (["wandb"], []), (["wandb"], ["mlflow"])):
        folder = tmp_path / "-".join(first + second)
        noted("wandb"), noted("mlflow")
        with pytest.raises(Killed):
            train(folder, compute_loss=killed_at(5), trackers=first)
        assert (folder / "trackers.json").exists()
        tracker = noted("wandb")
        train(folder, max_steps=20, trackers=second)
        train(folder, max_steps=30, trackers=["wandb"])
        starts = [given[0] for method, *given in tracker.calls if method == "start"]
        assert [(run.remote, run.step) for run in starts][:1] == [(None, 0 if second == ["wandb"] else 20)]


@pytest.mark.parametrize("package", ["tensorboard", "mlflow", "wandb"])
def test_an_absent_package_is_one_line_with_the_extra(package, tmp_path, monkeypatch, caplog):
    module = "torch.utils.tensorboard" if package == "tensorboard" else package
    monkeypatch.setitem(sys.modules, module, None)
    train(tmp_path, trackers=[package], max_steps=4)
    (warning,) = told(caplog)
    assert f"pip install 'seq2seq-toolkit[{package}]'" in warning
    assert len(warning.splitlines()) == 1


def test_only_the_main_rank_has_trackers(noted):
    tracker = noted("wandb")
    monitor = Monitor(None, TrainingConfig(trackers=["wandb"]), Activity())
    monitor.open(0, 0.0, {})
    monitor.training({"step": 1, "loss": 1.0, "tokens_per_second": 1.0})
    monitor.close("finished")
    assert not tracker.calls


def test_settings_leave_without_absolute_paths_and_credentials(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {key: shareable(value) for key, value in SETTINGS.items()} == {
        "data.train.tsv": "train.tsv", "training.learning_rate": 0.001, "seed": 1,
        "data.valid.hub": "https://hub.example/name", "training.freeze": '["encoder.*"]',
    }  # fmt: skip
    assert shareable(str(tmp_path / "corpus" / "a.en")) == "corpus/a.en"
    assert shareable([str(tmp_path / "a"), "/etc/b", "~/c", "d/e"]) == '["a", "b", "c", "d/e"]'
    assert shareable({"a": "/etc/b"}) == '{"a": "b"}'
    assert shareable("sqlite:////srv/secret/mlflow.db") == "mlflow.db"
    assert shareable(None) is None
    monkeypatch.chdir("/")  # every path is relative to it
    assert shareable("/srv/secret/a.en") == "a.en"


def configured(folder: Path) -> Path:
    """A run folder with a configuration, whose paths are absolute."""
    folder.mkdir(parents=True)
    place = "/home/someone/secret-place"
    data = f"{{train: {{tsv: {place}/train.tsv}}, valid: {{tsv: {place}/valid.tsv}}, cache_dir: {place}/cache}}"
    (folder / "config.yaml").write_text(f"source_language: en\ntarget_language: de\ndata: {data}\n")
    return folder


@pytest.mark.slow
def test_tensorboard_shows_the_figures_of_the_file(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tmp_path, max_steps=20)  # it is the default
    train(tmp_path, max_steps=40)
    shown = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    wanted = figures(tmp_path)
    assert sorted(shown.Tags()["scalars"]) == sorted(wanted)
    for name, values in wanted.items():
        assert [(event.step, event.value) for event in shown.Scalars(name)] == [
            (step, np.float32(value)) for step, value in values
        ]


@pytest.mark.slow
@pytest.mark.parametrize("second", [["tensorboard"], []])
def test_tensorboard_shows_no_figures_of_a_start_that_was_lost(second, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with pytest.raises(Killed):
        train(tmp_path, compute_loss=killed_at(5), log_every=1, trackers=["tensorboard"])
    train(tmp_path, max_steps=20, trackers=second)
    train(tmp_path, max_steps=40, trackers=["tensorboard"])
    shown = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    logged = {step for step, _ in figures(tmp_path)["loss"] if second or step > 20}
    assert {event.step for event in shown.Scalars("loss")} == logged


@pytest.mark.slow
def test_mlflow_has_the_figures_of_the_file_in_one_run(tmp_path, monkeypatch, caplog):
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./store")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    configured(Path("run"))
    train("run", max_steps=20, trackers=["mlflow"])
    train("run", max_steps=40, trackers=["mlflow"])
    assert not told(caplog)
    client = MlflowClient()
    (experiment,) = client.search_experiments(filter_string="name = 'seq2seq'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    wanted = figures(Path("run"))
    assert run.data.metrics.keys() == wanted.keys()
    for name, values in wanted.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [(metric.step, metric.value) for metric in history] == values
    assert {"train.tsv", "valid.tsv", "cache", "en"} <= set(run.data.params.values())
    stored = b"".join(path.read_bytes() for path in Path("store").rglob("params/*"))
    assert b"secret-place" not in stored


@pytest.mark.slow
def test_mlflow_takes_any_name_of_a_label(tmp_path, monkeypatch, caplog):
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./labels")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)  # MLflow sets it to the latest experiment
    names = {"4+": "good", "4?": "fair", "a/../b": "mixed", "//": "bad", "été ✓": "warm", "x" * 300: "long"}
    run = configured(Path("run"))
    known = (run / "config.yaml").read_text().removesuffix("}\n").replace("data: {", "data: {label_names: %s, ")
    classifying = known.replace("source_language: en\ntarget_language: de", "task: classification")
    (run / "config.yaml").write_text(classifying % json.dumps(names) + "}\n")
    train("run", max_steps=4, trackers=["mlflow"])
    assert not told(caplog)
    client = MlflowClient()
    (experiment,) = client.search_experiments(filter_string="name = 'seq2seq'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert set(names.values()) <= set(found.data.params.values())


@pytest.mark.slow
def test_a_database_of_mlflow_that_a_kill_left_is_named(tmp_path, monkeypatch, caplog):
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    with contextlib.closing(sqlite3.connect("mlflow.db")) as database:
        database.execute("create table experiment_tags (key text)")
    configured(Path("run"))
    train("run", max_steps=4, trackers=["mlflow"])
    (said,) = told(caplog)
    assert "mlflow is left out (mlflow.db cannot be used, as after a kill while it was made; move it away)" in said
    caplog.clear()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///missing/mlflow.db")
    train("run", max_steps=8, trackers=["mlflow"])
    (said,) = told(caplog)
    assert "move it away" not in said


@pytest.mark.slow
def test_wandb_has_the_figures_of_the_file_in_one_run_and_nothing_else(tmp_path, monkeypatch, caplog):
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = configured(tmp_path / "secret-place" / "run")
    train(run, max_steps=20, trackers=["wandb"])
    train(run, max_steps=40, trackers=["wandb"])
    wandb.teardown()  # as at the end of a process; it waits until the files are written
    files = sorted(run.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2
    assert {path.name for path in files} == {f"run-{json.loads((run / 'trackers.json').read_text())['wandb']}.wandb"}
    sent = defaultdict(list)
    for path in files:
        for record in wandb_records(path):
            row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name in row.keys() - {"step"}:
                if not name.startswith("_"):
                    sent[name].append((row["step"], row[name]))
    assert dict(sent) == figures(run)
    assert not told(caplog)
    everything = b"".join(path.read_bytes() for path in run.glob("wandb/offline-run-*/**/*.wandb"))
    assert b"train.tsv" in everything
    for private in (b"secret-place", b"an input", str(Path.cwd()).encode(), sys.executable.encode()):
        assert private not in everything
    assert not list(run.glob("wandb/offline-run-*/files/*.txt"))


@pytest.mark.slow
def test_wandb_without_a_key_asks_nothing(tmp_path, monkeypatch, caplog):
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    wandb.teardown()  # it remembers the environment of the first start
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    train(tmp_path / "run", max_steps=4, trackers=["wandb"])
    (warning,) = told(caplog)
    assert warning.startswith("wandb is left out (UsageError: ")
