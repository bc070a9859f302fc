"""`s2s runs`: run folders in every state, listed, selected, compared and cleaned; a real run that is cleaned."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import wrong_files
from support.run_folders import make_run
from support.toy_reversal import STEPS

from seq2seq import atomic
from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.errors import UserError
from seq2seq.tasks.run_folder import open_run, read_note
from seq2seq.workflows.cleaning import removals, remove
from seq2seq.workflows.runs import find_runs

SCORES = {"small": (20.0, 0.1), "wide": (31.5, 0.2), "third": (25.0, 0.1)}


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, (bleu, dropout) in SCORES.items():
        make_run(tmp_path / "runs" / name, bleu, dropout)
    (tmp_path / "runs" / "latest").symlink_to("wide")
    (tmp_path / "runs" / "cache" / "0123").mkdir(parents=True)
    return tmp_path / "runs"


def s2s(capsys, *arguments) -> str:
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def table(text: str) -> list[dict[str, str]]:
    head, *rows = (line.split("\t") for line in text.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_each_run_is_one_line_with_what_differs(runs, capsys):
    rows = table(s2s(capsys, "runs", "-f", "tsv"))
    assert {row["name"]: (float(row["bleu"]), float(row["model.dropout"])) for row in rows} == SCORES
    assert {row["state"] for row in rows} == {"finished"}
    assert {float(row["news chrf"]) for row in rows} == {2 * bleu for bleu, _ in SCORES.values()}
    assert {row["hours"] for row in rows} == {"1.0"}
    assert "seed" not in rows[0]


def test_the_three_formats_have_the_same_figures(runs, capsys):
    objects = [json.loads(line) for line in s2s(capsys, "runs", runs, "-f", "jsonl").splitlines()]
    rows = table(s2s(capsys, "runs", "list", runs, "-f", "tsv"))
    plain = s2s(capsys, "runs", runs).splitlines()
    for one, row, line in zip(objects, rows, plain[1:], strict=True):
        assert one["validation"]["bleu"] == float(row["bleu"])
        assert str(one["bytes"]) == row["size"]
        assert line.split()[:2] == [one["name"], one["state"]]
        assert f"{one['validation']['bleu']:.4g}" in line.split()
        assert one["settings"]["training.max_steps"] == 40


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--sort", "bleu"], ["wide", "third", "small"]),
        (["--sort", "valid_loss"], ["wide", "third", "small"]),
        (["--sort", "news chrf"], ["wide", "third", "small"]),
        (["--sort", "dropout", "--where", "model.dropout=0.10"], ["small", "third"]),
        (["--where", "dropout=0.2"], ["wide"]),
        (["--where", "state=finished", "--where", "name=third"], ["third"]),
    ],
)
def test_runs_are_sorted_and_selected(runs, capsys, options, names):
    assert [row["name"] for row in table(s2s(capsys, "runs", *options, "-f", "tsv"))] == names


def test_every_column_can_be_named(runs, capsys):
    score = {"dataset": "zero (de-fr, zero-shot)", "metric": "bleu", "value": 2.5, "signature": ""}
    (runs / "wide" / "test_scores.json").write_text(json.dumps({"scores": [score]}))
    every = s2s(capsys, "runs", "-f", "tsv")
    names = every.splitlines()[0].split("\t")
    assert "zero (de-fr, zero-shot) bleu" in names
    assert s2s(capsys, "runs", "-f", "tsv", "--columns", ",".join(names)) == every
    for name in names:
        assert s2s(capsys, "runs", "-f", "tsv", "--columns", f"name,{name}").splitlines()[0] == f"name\t{name}"


def test_columns_are_those_that_are_named(runs, capsys):
    assert s2s(capsys, "runs", "--columns", "bleu,name", "--sort", "bleu", "-f", "tsv").splitlines()[0] == "bleu\tname"


def test_every_state_is_told(tmp_path, capsys):
    make_run(tmp_path / "stopped", finished=None)
    make_run(tmp_path / "diverged", finished=None, lines=['{"step": 41, "diverged": "the loss rose"}'])
    make_run(tmp_path / "broken", 3.0, lines=["half a li", "[1]", '{"step": 4'])
    make_run(tmp_path / "foreign", 3.0, config="data: [")
    make_run(tmp_path / "older", 3.0, config="brand: {new_key: 3}\nmodel: {dropout: 0.1}\n")
    make_run(tmp_path / "sweep" / "running", 4.0, finished=None)
    (tmp_path / "empty").mkdir()
    with atomic.locked(tmp_path / "sweep" / ".running.lock", wait=False):
        found = {run.name: run for run in find_runs(tmp_path)}
    states = {name: run.state for name, run in found.items()}
    assert states == {
        "stopped": "stopped", "diverged": "diverged", "broken": "finished", "foreign": "finished", "older": "finished",
        "sweep/running": "running",
    }  # fmt: skip
    assert found["broken"].broken_lines == 3
    assert "3 broken lines" in found["broken"].note
    assert "config.yaml cannot be read" in found["foreign"].note
    assert found["older"].settings["brand.new_key"] == 3
    assert "the loss rose" in found["diverged"].note
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


def test_a_config_yaml_of_the_user_hides_no_runs(tmp_path, capsys):
    make_run(tmp_path / "project" / "runs" / "mine")
    (tmp_path / "project" / "config.yaml").write_text("data: {train: {source: a.en}}\n")
    assert [run.name for run in find_runs(tmp_path)] == ["project/runs/mine"]
    assert main(["runs", "diff", str(tmp_path / "project"), str(tmp_path / "project" / "runs" / "mine")]) == 2
    assert "project: not a run folder (metrics.jsonl is missing); name one" in capsys.readouterr().err


def test_the_time_left_is_told_while_a_run_trains(tmp_path):
    make_run(tmp_path / "half", finished=None, config="training: {max_steps: 80}\n")
    with atomic.locked(tmp_path / ".half.lock", wait=False):
        (run,) = find_runs(tmp_path)
    assert (run.state, run.note) == ("running", "60 minutes left")


def test_a_key_that_an_earlier_version_lacked_is_no_difference(tmp_path, capsys):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", config="model: {dropout: 0.1, brand_new: 3}\n")
    assert "brand_new" not in s2s(capsys, "runs", tmp_path)


def test_diff_shows_settings_data_code_and_packages(runs, capsys):
    for name, version in (("small", "2.9"), ("wide", "3.0")):
        made = {"code": {"sources": name}, "packages": {"torch": version}, "machine": {"host": "one"}}
        (runs / name / "made_with.json").write_text(json.dumps(made))
    (runs / "wide" / "identity.json").write_text(json.dumps({"data.train": "xyz"}))
    found = json.loads(s2s(capsys, "runs", "diff", runs / "small", runs / "wide", "-f", "json"))
    assert found == {
        "config": {"model.dropout": [0.1, 0.2]}, "data": {"data.train": ["abc", "xyz"]},
        "code": {"sources": ["small", "wide"]}, "packages": {"torch": ["2.9", "3.0"]},
    }  # fmt: skip
    text = s2s(capsys, "runs", "diff", runs / "small", runs / "wide" / "best")
    assert all(word in text for word in ("model.dropout", "packages: torch", "2.9", "3.0", "xyz"))
    assert s2s(capsys, "runs", "diff", runs / "small", runs / "small") == "no difference\n"


def test_clean_shows_first_and_deletes_with_yes(runs, capsys):
    make_run(runs / "stopped", 5.0, finished=None)
    make_run(runs / "no-best")
    shown = s2s(capsys, "runs", "clean", "--keep", "best")
    folders = [runs / name / "checkpoints" / "step_00000040" for name in sorted(SCORES)]
    assert [Path(line).resolve() for line in shown.splitlines()] == folders
    assert all(folder.exists() for folder in folders)
    assert s2s(capsys, "runs", "clean", "--keep", "best", "--yes") == shown
    assert not any(folder.exists() for folder in folders)
    left = {path.parts[len(runs.parts)] for path in runs.rglob("model.safetensors")}
    assert left == {"stopped", "no-best"}
    assert all((runs / name / "best" / "config.json").exists() for name in SCORES)
    rows = {row["name"]: row for row in table(s2s(capsys, "runs", "-f", "tsv"))}
    assert rows["small"]["state"] == "finished"
    assert rows["small"]["note"] == "max_steps 40 reached"
    assert s2s(capsys, "runs", "clean", "--keep", "best", "--yes") == ""


def test_clean_never_touches_what_a_process_holds(runs, capsys):
    before = removals(find_runs(runs))  # of a run that begins to train between the question and the answer
    with atomic.locked(runs / ".wide.lock", wait=False):
        (own,) = [removal for removal in removals(find_runs(runs)) if removal.run.name == "wide"]
        assert own.folders == ()
        (late,) = [removal for removal in before if removal.run.name == "wide"]
        with pytest.raises(Exception, match="another process trains"):
            remove(late)
    (runs / "wide" / "checkpoints" / "step_00000040" / "state.json").write_text('{"run": {"finished": null}}')
    assert remove(late) == 0
    assert late.folders[0].exists()


def test_a_link_to_a_run_counts_only_where_the_run_is_not_found_itself(runs, tmp_path):
    make_run(tmp_path / "elsewhere" / "run", 20.0, 0.1)
    (runs / "a link").symlink_to("wide")
    (runs / "group").mkdir()
    (runs / "group" / "inside").symlink_to(runs / "wide")
    (runs / "outside").symlink_to(tmp_path / "elsewhere" / "run")
    assert [run.name for run in find_runs(runs)] == ["outside", *sorted(SCORES)]
    assert [run.name for run in find_runs(runs / "group")] == ["inside"]


@pytest.mark.parametrize("way", ["a link", "the folder itself", "."])
def test_a_run_that_trains_is_found_by_every_path(runs, tmp_path, monkeypatch, way):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "other name").symlink_to(runs / "wide")
    monkeypatch.chdir(runs / "wide")
    place = {"a link": tmp_path / "links", "the folder itself": runs / "wide", ".": Path()}[way]
    (before,) = removals(find_runs(place))
    assert before.folders
    with atomic.locked(runs / ".wide.lock", wait=False):
        (run,) = find_runs(place)
        assert run.state == "running"
        with pytest.raises(Exception, match="another process trains"):
            remove(before)
    assert all(step.exists() for step in before.folders)


def test_a_cleaned_run_that_went_on_is_not_finished(runs):
    folder = runs / "wide"
    (folder / "cleaned.json").write_text('{"finished": "max_steps 20 reached", "step": 20}')
    (folder / "checkpoints" / "step_00000040" / "state.json").write_text('{"run": {"finished": null}}')
    (run,) = find_runs(folder)
    assert run.state == "stopped"


def test_a_run_that_goes_on_after_a_cut_clean_is_no_longer_cleaned(tmp_path):
    path = make_run(tmp_path / "run", config=wrong_files.CONFIG)
    (path / "cleaned.json").write_text('{"finished": "max_steps 20 reached", "step": 20}')
    (run,) = find_runs(path)
    config = config_file.load(run.folder.config, check_files=False)
    open_run(run.folder, config, overwrite=False, now=read_note(run.folder.identity))
    assert not run.folder.cleaned.exists()


@pytest.mark.parametrize("event", ["it continues", "a process trains in it"])
def test_clean_counts_what_it_deleted(runs, capsys, monkeypatch, event):
    """A run that changes between the list and its deletion is kept, and the others are deleted."""
    before = removals(find_runs(runs))
    monkeypatch.setattr("seq2seq.workflows.cleaning.removals", lambda found: before)
    state = runs / "third" / "checkpoints" / "step_00000040" / "state.json"
    with contextlib.ExitStack() as stack:
        if event == "it continues":
            state.write_text('{"run": {"finished": null}}')
        else:
            stack.enter_context(atomic.locked(runs / ".third.lock", wait=False))
        assert main(["runs", "clean", "--keep", "best", "--yes"]) == 0
    shown, told = capsys.readouterr()
    assert [Path(line).parents[1].name for line in shown.splitlines()] == ["small", "wide"]
    assert state.exists()
    assert not (runs / "wide" / "checkpoints" / "step_00000040").exists()
    size = sum(removal.num_bytes for removal in before if removal.run.name != "third")
    assert f"deleted 2 checkpoints, {size / 2**20:,.1f} MiB" in told
    why = "third: nothing is deleted, because" if event == "it continues" else "third is kept unchanged: "
    assert why in told


@pytest.mark.slow
def test_a_run_that_was_cleaned_is_not_trained_from_the_start_by_accident(reversed_run, monkeypatch):
    monkeypatch.chdir(reversed_run)
    (run,) = find_runs(Path("runs"))
    assert (run.name, run.state, run.note) == ("toy", "finished", f"max_steps {STEPS} reached")
    assert run.step == STEPS
    assert run.machine.endswith("cpu")
    assert main(["runs", "clean", "--keep", "best", "--yes"]) == 0
    config, identity = config_file.load(run.folder.config, check_files=False), read_note(run.folder.identity)
    with pytest.raises(UserError, match="s2s runs clean deleted the checkpoints"):
        open_run(run.folder, config, overwrite=False, now=identity)
    assert (run.folder.best / "model.safetensors").exists()
    assert find_runs(Path("runs"))[0].state == "finished"
    open_run(run.folder, config, overwrite=True, now=identity)
    assert not run.folder.cleaned.exists()


def test_torch_is_not_imported(runs):
    code = f"import sys; from seq2seq.cli import main; main(['runs', {str(runs)!r}]); print('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# -- settings in which runs differ -------------------------------------------------------------------------------------

ONE = "data: {train: {source: a.en, target: a.de}}\n"
NOISY = "data: {train: {source: a.en, target: a.de, noise: {typos: 0.1}}}\n"
TWO = "data: {train: [{source: b.en, target: b.de}, {source: c.en, target: c.de}]}\n"
STAGED = ONE.replace("}}", "}, stages: [{weights: {a: 1}, until_epoch: 2}]}")


def listed(tmp_path, capsys, *configs) -> list[dict[str, str]]:
    for number, config in enumerate(configs):
        make_run(tmp_path / f"r{number}", config=config)
    return table(s2s(capsys, "runs", tmp_path, "-f", "tsv"))


def test_one_source_and_several_are_columns_of_one_name(tmp_path, capsys):
    rows = listed(tmp_path, capsys, ONE, TWO)
    assert [row["data.train.0.source"] for row in rows] == ["a.en", "b.en"]
    assert [row["data.train.1.source"] for row in rows] == ["", "c.en"]
    assert not any("data.train.source" in row for row in rows)
    found = json.loads(s2s(capsys, "runs", "diff", tmp_path / "r0", tmp_path / "r1", "-f", "json"))
    assert found["config"]["data.train.0.source"] == ["a.en", "b.en"]
    (row, _) = table(s2s(capsys, "runs", tmp_path, "-f", "tsv", "--columns", "train.0.source"))
    assert row == {"data.train.0.source": "a.en"}


@pytest.mark.parametrize(
    ("other", "column", "values"),
    [
        (NOISY, "data.train.noise.typos", ["", "0.1"]),
        (STAGED, "data.stages.0.until_epoch", ["", "2"]),
        (ONE.replace("target", "weight: 2, target"), "data.train.weight", ["", "2"]),
    ],
)
def test_data_that_one_run_alone_has_is_a_difference(tmp_path, capsys, other, column, values):
    assert [row[column] for row in listed(tmp_path, capsys, ONE, other)] == values
    columns = listed(tmp_path / "same", capsys, other, other)[0]
    assert not any(name.startswith("data.") for name in columns)


def test_runs_of_one_source_keep_the_key_of_their_configuration(tmp_path, capsys):
    rows = listed(tmp_path, capsys, ONE, ONE.replace("a.", "b."))
    assert [row["data.train.source"] for row in rows] == ["a.en", "b.en"]


def test_a_setting_of_all_data_that_an_earlier_version_lacked_is_no_difference(tmp_path, capsys):
    newer = ONE.replace("}}", "}, num_workers: 1, temperature: 1.0, filters: {max_length: 9}}")
    assert not any("data." in name for name in listed(tmp_path, capsys, ONE, newer)[0])


def test_what_is_recorded_as_unset_is_not_called_missing(tmp_path, capsys):
    for name, value in (("a", "patience: null, brand_new: 3"), ("b", "patience: 4")):
        make_run(tmp_path / name, config=f"training: {{{value}}}\n")
    rows = [line.split() for line in s2s(capsys, "runs", "diff", tmp_path / "a", tmp_path / "b").splitlines()[1:]]
    assert rows == [["training.patience", "unset", "4"], ["training.brand_new", "3", "not", "recorded"]]
    found = json.loads(s2s(capsys, "runs", "diff", tmp_path / "a", tmp_path / "b", "-f", "json"))
    assert found["config"] == {"training.patience": [None, 4], "training.brand_new": [3, None]}


def test_a_key_that_is_a_number_is_a_column(tmp_path, capsys):
    rows = listed(tmp_path, capsys, "1: 2\nseed: 3\n", "1: 3\nseed: 3\n")
    assert [row["1"] for row in rows] == ["2", "3"]
    s2s(capsys, "runs", tmp_path, "--sort", "seed")
    assert main(["runs", str(tmp_path), "--sort", "sed"]) == 2


# -- conditions of test scores -----------------------------------------------------------------------------------------

SIGNATURE = "nrefs:1|case:mixed|tok:13a|version:2.6.0"


def scored(path: Path, content="abc", signature=SIGNATURE, dataset="news") -> None:
    score = {"dataset": dataset, "metric": "bleu", "value": 20.0, "signature": signature}
    note = {"scored": {"tests": {"news": content}, "measure": ""}, "scores": [score], "notes": []}
    (path / "test_scores.json").write_text(json.dumps(note))


@pytest.mark.parametrize("dataset", ["news", "news (en-de, zero-shot)"])
@pytest.mark.parametrize(
    ("other", "kind"),
    [
        ({}, None),
        ({"content": "xyz"}, "test sets"),
        ({"signature": SIGNATURE.replace("13a", "zh")}, "signatures"),
        ({"signature": ""}, None),  # not recorded
    ],
)
def test_scores_of_other_test_sets_or_signatures_are_named(tmp_path, capsys, dataset, other, kind):
    for name, changes in (("a", {}), ("b", other), ("c", {})):
        make_run(tmp_path / name)
        scored(tmp_path / name, dataset=dataset, **changes)
    make_run(tmp_path / "not scored")
    assert main(["runs", str(tmp_path)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (kind is not None)
    for line in lines:
        assert f"{dataset} bleu: the runs have different {kind}" in line
        assert "s2s compare" in line
    assert main(["runs", str(tmp_path), "--columns", "name,step"]) == 0
    assert main(["runs", str(tmp_path), "--where", "name=a"]) == 0
    assert capsys.readouterr().err == ""


def test_diff_shows_test_sets_and_signatures(tmp_path, capsys):
    for name, changes in (("a", {}), ("b", {"content": "xyz", "signature": "tok:zh"})):
        make_run(tmp_path / name)
        scored(tmp_path / name, **changes)
    found = json.loads(s2s(capsys, "runs", "diff", tmp_path / "a", tmp_path / "b", "-f", "json"))
    assert found == {"tests": {"news content": ["abc", "xyz"], "news bleu signature": [SIGNATURE, "tok:zh"]}}
    rows = s2s(capsys, "runs", tmp_path, "-f", "jsonl").splitlines()
    assert [json.loads(row)["conditions"]["news content"] for row in rows] == ["abc", "xyz"]


@pytest.mark.parametrize(
    "note", ['{"scored": 3}', '{"scored": {"tests": [1]}, "scores": {"a": 1}}', '{"scores": [3]}', "["]
)
def test_damaged_test_scores_lose_only_themselves(tmp_path, capsys, note):
    make_run(tmp_path / "a")
    (tmp_path / "a" / "test_scores.json").write_text(note)
    (run,) = find_runs(tmp_path)
    assert (run.tests, run.conditions, run.state) == ({}, {}, "finished")
