"""Files of the user: no folder of theirs is taken for a run, and `--overwrite` deletes only what a run wrote."""

import itertools
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from support.run_folders import make_run
from support.toy_run import Killed
from test_run_identity import BASE, write_all

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.tasks.run_folder import WRITTEN, RunFolder, open_run, read_note
from seq2seq.text.extending import TABLE
from seq2seq.training.monitor import METRICS, SAMPLES
from seq2seq.training.trackers import REMOTE_RUNS, TENSORBOARD


@pytest.fixture(autouse=True)
def exp(tmp_path, monkeypatch) -> Path:
    """A folder of one experiment, with its configuration and its corpora, as the current one."""
    folder = tmp_path / "exp"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("S2S_DATA", raising=False)
    write_all()
    Path("config.yaml").write_text(BASE)
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "others", [["thesis.txt"], ["best/config.json", "checkpoints/step_1000.pt", "tokenizer/vocab.json"]], ids=" ".join
)
@pytest.mark.parametrize("run_dir", ["exp", "."])
@pytest.mark.parametrize("option", ["--overwrite", "--dry-run", None])
def test_a_config_yaml_of_the_user_makes_no_run_folder(exp, capfd, monkeypatch, run_dir, option, others):
    """Not even in a folder that another toolkit wrote."""
    for name in others:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("do not lose this")
    before = contents(exp)
    monkeypatch.chdir(exp.parent if run_dir == "exp" else exp)
    assert main(["train", f"{run_dir}/config.yaml", "--run-dir", run_dir, *filter(None, [option])]) == 2
    assert "not empty and not a run folder; choose another --run-dir" in capfd.readouterr().err
    assert contents(exp) == before


def test_an_identity_of_the_user_is_left_alone(exp, capfd):
    Path("mine").mkdir()
    for name in ("identity.json", "thesis.txt"):
        Path("mine", name).write_text("do not lose this")
    before = contents(exp)
    assert main(["train", "config.yaml", "--run-dir", "mine", "--overwrite"]) == 2
    assert "not a run folder" in capfd.readouterr().err
    assert contents(exp) == before


def test_the_files_that_a_run_writes_are_known():
    run = RunFolder(Path("run"))
    kept = {run.config, run.identity}
    named = {path for name, path in vars(run).items() if name != "path"}
    named |= {run.path / name for name in (METRICS, SAMPLES, TENSORBOARD, REMOTE_RUNS, TABLE)}
    assert named - kept <= {run.path / name for name in WRITTEN}
    assert not kept & {run.path / name for name in WRITTEN}


def dies_at(moment: int, patch: pytest.MonkeyPatch) -> None:
    """Let the process die before a change of the disk, counted from 0, apart from those in folders without a name."""
    left = itertools.count(moment, -1)

    def change(call, *arguments, **options):
        if "dir_fd" not in options and next(left) <= 0:
            raise Killed
        return call(*arguments, **options)

    for name in ("rename", "replace", "unlink"):
        patch.setattr(os, name, partial(change, getattr(os, name)))


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("begun", ["nothing", "a run", "a run of version 0.1.0"])
def test_a_kill_at_any_moment_of_a_start_leaves_a_run(monkeypatch, begun, overwrite):
    """It can be continued and replaced, has a configuration if it had one, and keeps the notes of its user."""
    config, run = config_file.load(Path("config.yaml")), RunFolder(Path("runs/one"))
    for moment in itertools.count():
        shutil.rmtree(run.path, ignore_errors=True)
        if begun != "nothing":
            make_run(run.path, bleu=3.0, config=config_file.dump(config))
            run.tokenizer.mkdir()
            for name in ("tokenizer/source.spm", "notes.txt"):
                (run.path / name).write_text("mine")
        if begun == "a run of version 0.1.0":
            run.identity.unlink()
        with monkeypatch.context() as patch:
            dies_at(moment, patch)
            try:
                open_run(run, config, overwrite, {})
                break
            except Killed:
                pass
        for again in (False, True):
            run.check(config)
            assert begun == "nothing" or config_file.load(run.config) == config
            open_run(run, config, again, {"data.train": "abc"})
            assert config_file.load(run.config) == config
            assert read_note(run.identity) == {"data.train": "abc"}
            assert begun == "nothing" or (run.path / "notes.txt").read_text() == "mine"
        assert not run.has_learned
        assert not run.tokenizer.exists()
    assert moment > (7 if begun != "nothing" and overwrite else 1)
