"""`s2s runs` names what is damaged, stopped or tuned, and hides no difference of runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.run_folders import make_run

from seq2seq.cli import main
from seq2seq.workflows.compare.curves import curves
from seq2seq.workflows.compare.systems import System
from seq2seq.workflows.runs import find_runs, read_run, run_of

DAMAGES: dict[str, Callable[[Path], object]] = {
    "best: source.spm cannot be read": lambda run: (run / "best" / "source.spm").unlink(),
    "best: source.spm has 0 bytes where 6": lambda run: (run / "best" / "source.spm").write_bytes(b""),
    "best: config.json is not JSON": lambda run: (run / "best" / "config.json").write_text("{"),
    "best: config.json does not list": lambda run: (run / "best" / "config.json").write_text("{}"),
    "best: config.json lists files without": lambda run: (run / "best" / "config.json").write_text(
        '{"files": {"source.spm": 6}}'
    ),
    "best: generation_config.json cannot": lambda run: (run / "best" / "generation_config.json").unlink(),
}
OTHERS: dict[str, Callable[[Path], object]] = {
    "test_scores.json cannot be read": lambda run: (run / "test_scores.json").write_text("{"),
    "identity.json cannot be read": lambda run: (run / "identity.json").write_text("half"),
    "metrics.jsonl is missing": lambda run: (run / "metrics.jsonl").unlink(),
    "no best model": lambda run: (run / "best").rename(run / "elsewhere"),
}


def same_size(run: Path) -> None:
    (run / "best" / "source.spm").write_bytes(b"PIECES")


@pytest.mark.parametrize("damage", [*DAMAGES.values(), same_size], ids=[*DAMAGES, "other content"])
def test_clean_keeps_the_checkpoints_of_a_run_whose_best_model_is_damaged(tmp_path, capsys, damage):
    """They are the only other weights."""
    run = make_run(tmp_path / "run", 20.0)
    damage(run)
    assert main(["runs", "clean", str(tmp_path), "--keep", "best", "--yes"]) == 0
    shown, told = capsys.readouterr()
    assert shown == ""
    assert "kept unchanged: its best model is damaged (" in told
    assert (run / "checkpoints" / "step_00000040" / "model.safetensors").exists()


@pytest.mark.parametrize("note", [*DAMAGES, *OTHERS])
def test_what_is_damaged_or_missing_is_noted(tmp_path, note):
    run = make_run(tmp_path / "run", 20.0)
    assert read_run(run).note == "max_steps 40 reached"
    (DAMAGES | OTHERS)[note](run)
    assert note in read_run(run).note


def test_a_run_that_did_not_begin_to_validate_has_no_such_note(tmp_path):
    assert read_run(make_run(tmp_path / "run", finished=None)).note == ""


@pytest.mark.parametrize("has_log", [True, False])
def test_the_step_of_a_stopped_run_is_that_of_its_checkpoint(tmp_path, has_log):
    """Log lines are `log_every` steps apart."""
    run = make_run(tmp_path / "run", finished=None)
    state = {"finished": None, "step": 57, "seconds": 7200.0}
    (run / "checkpoints" / "step_00000040" / "state.json").write_text(json.dumps({"run": state}))
    if not has_log:
        (run / "metrics.jsonl").unlink()
    found = read_run(run)
    assert (found.state, found.step, found.hours) == ("stopped", 57, 2.0)


def shelves(folder: Path, name: str) -> Path:
    source = f"/home/alice/corpora_{name}/shared_corpus_folder_v1/train.en"
    return make_run(folder / name, config=f"data: {{train: {{source: {source}}}}}\nmodel: {{dropout: 0.1{name[-1]}}}\n")


def test_values_that_differ_look_different(tmp_path, capsys):
    first, second = (shelves(tmp_path, name) for name in ("v1", "v2"))
    (second / "identity.json").write_text(json.dumps({"data.train": "b" + "a" * 60}))
    (first / "identity.json").write_text(json.dumps({"data.train": "c" + "a" * 60}))
    assert main(["runs", "diff", str(first), str(second)]) == 0
    assert main(["runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for value in ("/corpora_v1/", "/corpora_v2/", "b" + "a" * 60, "c" + "a" * 60):
        assert value in shown


def test_values_that_look_different_are_shortened(tmp_path, capsys):
    for name in ("first", "second"):
        make_run(tmp_path / name, config=f"data: {{train: {{source: {'long/' * 9}{name}}}}}\n")
    assert main(["runs", str(tmp_path)]) == 0
    assert "…" in capsys.readouterr().out


def test_a_tuned_run_differs_from_one_that_is_not(tmp_path, capsys):
    first, second = (make_run(tmp_path / name, 20.0) for name in ("one", "two"))
    measure = json.dumps({"search": {"beam_size": 5}})
    (second / "test_scores.json").write_text(json.dumps({"scores": [], "scored": {"measure": measure}}))
    assert main(["runs", "diff", str(first), str(second)]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert "tuned" not in read_run(second).note
    (second / "best" / "generation_config.json").write_text(json.dumps({"search": {"beam_size": 2}}))
    assert main(["runs", "diff", str(first), str(second)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["search:", "beam_size", "5", "2"]
    assert "tuned since its test scores" in read_run(second).note


@pytest.mark.parametrize(
    ("scores", "bleu"), [({}, None), ({"validation": {"bleu": {"before": 20.0, "after": 25.0}}}, 25.0)]
)
def test_a_tuned_run_has_no_score_of_other_settings(tmp_path, scores, bleu, capsys):
    """In each format; what its loss is does not depend on them."""
    run = make_run(tmp_path / "run", 20.0)
    search = {"search": {"beam_size": 2}, "search_before_tuning": {"beam_size": 5}, "tuned": {"scores": scores}}
    (run / "best" / "generation_config.json").write_text(json.dumps(search))
    assert main(["runs", str(tmp_path), "-f", "jsonl"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["validation"].get("bleu"), found["validation"]["valid_loss"]) == (bleu, 80.0)
    assert found["note"] == "max_steps 40 reached; tuned: beam_size 2 (in training 5)"
    assert main(["runs", str(tmp_path)]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert ("bleu" in head.split(), "25" in row.split()) == (bleu is not None, bleu is not None)


def test_a_setting_of_the_configuration_is_one_difference(tmp_path, capsys):
    for name, beam in (("one", 5), ("two", 4)):
        run = make_run(tmp_path / name, 20.0, config=f"search: {{beam_size: {beam}}}\n")
        (run / "best" / "generation_config.json").write_text(json.dumps({"search": {"beam_size": beam}}))
    assert main(["runs", "diff", str(tmp_path / "one"), str(tmp_path / "two"), "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"config": {"search.beam_size": [5, 4]}}


@pytest.mark.parametrize(
    ("other", "kind", "columns"),
    [
        ({"data.valid": "x", "tokenizer": "t"}, "", ""),
        ({"tokenizer": "t"}, "", ""),
        ({"data.valid": "y", "tokenizer": "t"}, "validation sets", "bleu, valid_loss"),
        ({"data.valid": "x", "tokenizer": "u"}, "tokenizers", "valid_loss"),
    ],
)
def test_figures_of_different_validation_sets_are_not_compared(tmp_path, capsys, other, kind, columns):
    for name, identity in (("one", {"data.valid": "x", "tokenizer": "t"}), ("two", other)):
        run = make_run(tmp_path / name, 20.0)
        (run / "identity.json").write_text(json.dumps(identity))
        with open(run / "metrics.jsonl", "a") as lines:
            lines.write('{"step": 40, "bleu": 20.0, "valid_loss": 3.0}\n')
    assert main(["runs", str(tmp_path), "--sort", "bleu"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [f"different {kind}, so" in line for line in said] == [True] * bool(kind)
    drawn = curves([System(run.name, [], run=run) for run in find_runs(tmp_path)])
    assert sorted(set(columns.split(", ")) & {"bleu", "valid_loss"}) == sorted(
        {"bleu", "valid_loss"} - set(drawn.points)
    )
    assert bool(drawn.note) == bool(kind)


def test_a_figure_that_one_run_has_is_compared_with_none(tmp_path, capsys):
    for name, identity in (("one", "x"), ("two", "x"), ("other", "y")):
        run = make_run(tmp_path / name, 20.0)
        (run / "identity.json").write_text(json.dumps({"data.valid": identity, "tokenizer": identity}))
    about = json.loads((run / "best" / "config.json").read_text())
    (run / "best" / "config.json").write_text(json.dumps({**about, "metrics": {"accuracy": 0.5}}))
    assert main(["runs", str(tmp_path)]) == 0
    assert "cannot be compared" not in capsys.readouterr().err


def test_scores_are_rounded_even_if_they_look_equal(tmp_path, capsys):
    for name, bleu in (("one", 13.475451434488123), ("two", 13.475499)):
        make_run(tmp_path / name, bleu)
    assert main(["runs", str(tmp_path)]) == 0
    assert "13.4754" not in capsys.readouterr().out


def test_cleaning_keeps_step_and_hours(tmp_path):
    run = make_run(tmp_path / "run", 20.0)
    state = {"finished": "max_steps 57 reached", "step": 57, "seconds": 7200.0}
    (run / "checkpoints" / "step_00000040" / "state.json").write_text(json.dumps({"run": state}))
    before = read_run(run)
    assert main(["runs", "clean", str(tmp_path), "--keep", "best", "--yes"]) == 0
    after = read_run(run)
    assert (after.step, after.hours, after.note) == (before.step, before.hours, before.note) == (57, 2.0, before.note)


def test_validations_lie_between_the_log_lines_of_training(tmp_path):
    run = make_run(tmp_path / "run", 20.0)
    records = [{"step": step, "seconds": 36.0 * step, "tokens_per_second": 1e6} for step in (50, 100)]
    records = [
        {"step": 10, "bleu": 1.0},
        *records[:1],
        {"step": 75, "bleu": 2.0},
        *records[1:],
        {"step": 100, "bleu": 3.0},
    ]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    points = curves([System("run", [], run=run_of(run))]).points["bleu"]["run"]
    expected = [(10, 0.1, 360.0, 1.0), (75, 0.75, 2700.0, 2.0), (100, 1.0, 3600.0, 3.0)]
    for point, wanted in zip(points, expected, strict=True):
        assert point == pytest.approx(wanted)
