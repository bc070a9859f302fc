"""A folder is a run because of what is in it, whatever its name is and the names of other folders in it."""

import json
import shutil
from pathlib import Path

import pytest
from support.run_folders import make_run

from seq2seq.cli import main
from seq2seq.workflows.runs import find_runs, run_of

NAMES = ("best", "checkpoints", "tokenizer", "step_00000040")


def put(path: Path, way: str, elsewhere: Path) -> Path:
    """A run at a path, or a link to one."""
    if way == "a folder":
        return make_run(path, 20.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(make_run(elsewhere / "target", 20.0))
    return path


def facts(run) -> dict:
    return {key: value for key, value in run.as_json().items() if key not in ("name", "path")}


@pytest.mark.parametrize("way", ["a folder", "a link"])
@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_run_changes_nothing(tmp_path, capsys, name, way):
    runs = tmp_path / "runs"
    plain, named = make_run(runs / "plain", 20.0), put(runs / name, way, tmp_path / "elsewhere")
    assert sorted(run.name for run in find_runs(tmp_path / "runs")) == sorted(["plain", name])
    for path in (named, named / "best"):
        assert facts(run_of(path)) == facts(run_of(plain))
    assert main(["runs", "diff", str(named), str(plain / "best")]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert main(["runs", "clean", str(runs), "--keep", "best"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("has_config", [False, True], ids=["", "a config of the user"])
@pytest.mark.parametrize("name", ["best", "checkpoints", "another"])
def test_a_copied_model_hides_no_run_and_is_none(tmp_path, capsys, name, has_config):
    run = make_run(tmp_path / "runs" / "one", 20.0)
    copied = tmp_path / name
    shutil.copytree(run / "best", copied)
    if has_config:
        (tmp_path / "config.yaml").write_text("data: {train: {source: a.en}}\n")
    assert [found.name for found in find_runs(tmp_path)] == ["runs/one"]
    assert run_of(copied) is None
    assert main(["runs", "diff", str(copied), str(run)]) == 2
    assert f"{name}: not a run folder" in capsys.readouterr().err


@pytest.mark.parametrize("link", ["best", "other name"])
def test_a_link_to_the_best_model_of_a_run_is_that_run(tmp_path, link):
    run = make_run(tmp_path / "runs" / "one", 20.0)
    (tmp_path / link).symlink_to(run / "best")
    assert facts(run_of(tmp_path / link)) == facts(run_of(run))


@pytest.mark.parametrize("left", ["config.yaml identity.json", "metrics.jsonl", "checkpoints"])
def test_a_run_that_lost_files_is_a_run(tmp_path, left):
    run = make_run(tmp_path / "runs" / "one", 20.0)
    for path in run.iterdir():
        if path.name not in left.split():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (found,) = find_runs(tmp_path)
    assert found.name == "runs/one"
    assert json.dumps(found.as_json())
