"""Runs in stages: borders, patience, the schedule and the best model, and the same bits after any interruption."""

import json
import math

import pytest
from support import toy_run
from support.ranks import finish, start, wait_for
from support.toy_run import Killed, killed_at, make_trainer, outcome, poisoned, records, steps_of, toy_loss, train

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.stages import ONE_STAGE, Stage, Stages
from seq2seq.errors import RunError
from seq2seq.training.loss import LossSum
from seq2seq.training.optim import learning_rate
from seq2seq.training.progress import estimate, foreseen_steps, further, unreached
from seq2seq.training.state import RunState, Validation, progress, schedule_progress

_one_thread = pytest.fixture(toy_run.one_thread, autouse=True)

TWO = [(1, [1.0, 0.5], False), (None, [0.0, 2.0], True)]
THREE = [(1, [1.0, 0.0], False), (3, [0.5, 1.0], True), (None, [0.0, 1.5], False)]
FULL = dict(ema=0.9, accumulate=2, patience=2, max_steps=60, schedule="cosine", stages=THREE)


def borders(folder):
    return [(record["step"], record["stage"], record["epoch"]) for record in records(folder) if "stage" in record]


def scripted(values):
    """A validation that finds these accuracies, one after the other, and then the last again."""
    found = iter(values)
    last = [values[-1]]

    def validate(module):
        last[0] = next(found, last[0])
        return Validation({"valid_loss": 1.0, "accuracy": last[0]})

    return validate


# -- the same bits -----------------------------------------------------------------------------------------------------


def test_interrupted_anywhere_ends_in_the_same_bits(tmp_path):
    train(tmp_path / "whole", **FULL)
    assert [stage for _, stage, _ in borders(tmp_path / "whole")] == [2, 3]
    for count in (5, 19, 30, 47, 61, 84, 110):
        folder = tmp_path / f"{count}"
        with pytest.raises(Killed):
            train(folder, compute_loss=killed_at(count), **FULL)
        train(folder, **FULL)
        assert outcome(folder) == outcome(tmp_path / "whole"), f"interrupted after {count} micro-batches"


@pytest.mark.parametrize("rows", [TWO, THREE])
def test_half_of_the_steps_and_then_the_others_are_all_steps(tmp_path, rows):
    """Also where the first half ends at a border, where nothing of the next stage may have happened."""
    train(tmp_path / "whole", stages=rows)
    steps = {20, *(step for step, _, _ in borders(tmp_path / "whole"))}
    for step in steps:
        folder = tmp_path / f"{step}"
        train(folder, stages=rows, max_steps=step)
        train(folder, stages=rows)
        ours, whole = outcome(folder), outcome(tmp_path / "whole")
        assert ours["files"].keys() == whole["files"].keys()
        for name in ("model.safetensors", "optimizer.safetensors", "random.safetensors"):
            assert ours["files"][name] == whole["files"][name], (step, name)
        assert borders(folder) == borders(tmp_path / "whole")


@pytest.mark.parametrize("most", [0.5, 1.0, 2.0, 3.0])
def test_a_run_that_ended_before_a_stage_goes_on_to_the_same_bits(tmp_path, most):
    """A limit at a border ends the run there, and nothing of the next stage happens."""
    settings = dict(stages=THREE, schedule="constant", max_steps=None)
    train(tmp_path / "whole", max_epochs=4.0, **settings)
    _, result = train(tmp_path / "part", max_epochs=most, **settings)
    assert result.reason == f"max_epochs {most:g} reached"
    assert [stage for _, stage, _ in borders(tmp_path / "part")] == [2] * (most > 1)
    train(tmp_path / "part", max_epochs=4.0, **settings)
    ours, whole = outcome(tmp_path / "part"), outcome(tmp_path / "whole")
    for name in ("model.safetensors", "optimizer.safetensors", "random.safetensors"):
        assert ours["files"][name] == whole["files"][name], name
    assert borders(tmp_path / "part") == borders(tmp_path / "whole")


@pytest.mark.parametrize("first", [1, 4])
def test_a_roll_back_after_an_extension_at_a_border_begins_the_stage_there(tmp_path, first):
    """The checkpoint that is restored was saved at the end of the earlier run, before the border."""
    settings = dict(stages=[(1, [1.0, 1.0], False), (None, [0.0, 1.0], True)], schedule="constant")
    train(tmp_path / "whole", **settings)
    ((border, *_),) = borders(tmp_path / "whole")
    train(tmp_path / "part", max_steps=border, **settings)
    bad = poisoned(range(first, first + 4))
    trainer, _ = train(tmp_path / "part", compute_loss=bad, max_bad_steps=3, checkpoint_every=1000, **settings)
    assert trainer.state.rollbacks == 1
    assert (trainer.state.stage_step, trainer.state.schedule_step) == (border, border)
    assert {*borders(tmp_path / "part")} == {*borders(tmp_path / "whole")}


SCHEDULES = ["inverse_sqrt", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cosine", "linear", "constant"))]
LIMITS = [dict(max_steps=60), dict(max_epochs=1010.0), dict(max_epochs=1000.0), dict(max_epochs=30.0),
          dict(max_minutes=1e6)]  # fmt: skip


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_patience_enters_the_next_stage_or_ends_the_run(tmp_path, limit, schedule, restarts):
    """Law: a stage that begins is trained; if it lies after the limit, the run ends with the reason that ended it."""
    rows = [(1000, [1.0, 1.0], False), (None, [0.0, 1.0], restarts)]
    settings = dict(schedule=schedule, patience=2, log_every=7, validate=scripted([0.5]))
    _, result = train(tmp_path, stages=rows, **{"max_steps": None, **settings, **limit})
    is_reached = limit.get("max_epochs", math.inf) > 1000
    assert borders(tmp_path) == [(30, 2, 1000.0)] * is_reached
    assert (result.step, result.status) == (60 if is_reached else 30, "finished")
    told = "" if is_reached else "; the next stage begins at epoch 1000, after the end of training"
    reason = f"no significant improvement of accuracy in 2 validations{told}"
    assert result.reason == (reason if limit != {"max_steps": 60} else "max_steps 60 reached")
    assert further(result, TrainingConfig(patience=2, **limit)) == ""
    if not is_reached:  # a higher limit continues with the next stage
        _, result = train(tmp_path, stages=rows, **{"max_steps": None, **settings, "max_epochs": 1010.0})
        assert (borders(tmp_path), result.step) == ([(30, 2, 1000.0)], 60)


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("limit", ["max_steps", "max_epochs", "max_minutes"])
def test_a_limit_that_is_lowered_to_a_border_ends_the_run_there(tmp_path, limit, schedule, restarts):
    """Law: also if the next stage had begun, and with it a schedule; raised again, the limit leaves no trace."""
    settings = dict(stages=[(1, [1.0, 1.0], False), (None, [0.0, 1.0], restarts)], schedule=schedule, log_every=1000)
    train(tmp_path / "whole", **settings)
    ((border, _, epoch),) = borders(tmp_path / "whole")
    folder = tmp_path / "lowered"
    with pytest.raises(Killed):
        train(folder, compute_loss=killed_at(border), checkpoint_every=border, **settings)
    assert (steps_of(folder)[-1], len(borders(folder))) == (border, 1)
    lowered = {"max_steps": border, "max_epochs": epoch, "max_minutes": 1e-6}[limit]
    _, result = train(folder, **settings | {"max_steps": None, limit: lowered})
    assert (result.step, result.reason.split()[0]) == (border, limit)
    (rate,) = rates(folder).values()
    assert 0 <= rate <= toy_run.DEFAULTS["learning_rate"]
    train(folder, **settings)
    ours, whole = outcome(folder), outcome(tmp_path / "whole")
    assert ours["files"]["model.safetensors"] == whole["files"]["model.safetensors"]
    assert borders(folder) == borders(tmp_path / "whole")


@pytest.mark.parametrize("most", [0.5, 1.0, 2.0])
def test_a_limit_that_is_lowered_below_the_stage_ends_the_run(tmp_path, most):
    rows = [(1, [1.0, 0.5], False), (2, [1.0, 0.5], True), (None, [0.0, 2.0], True)]
    settings = dict(stages=rows, schedule="linear", log_every=1000)
    with pytest.raises(Killed):
        train(tmp_path, compute_loss=killed_at(55), max_steps=80, **settings)
    assert len(borders(tmp_path)) == 2
    _, result = train(tmp_path, max_steps=80, max_epochs=most, **settings)
    assert result.reason == f"max_epochs {most:g} reached"


def test_one_stage_is_no_stage(tmp_path):
    """Bit for bit, in all that a run writes."""
    train(tmp_path / "none", schedule="linear", max_steps=None, max_epochs=2.5)
    train(tmp_path / "one", schedule="linear", max_steps=None, max_epochs=2.5, stages=[(None, [1.0, 1.0], False)])
    assert outcome(tmp_path / "one") == outcome(tmp_path / "none")


def test_a_state_of_an_earlier_version_is_in_the_first_stage():
    plain = RunState(step=7).to_json()
    for name in ("stage", "stage_step", "schedule_step", "schedule_seconds"):
        del plain[name]
    assert RunState.from_json(plain) == RunState(step=7)


@pytest.mark.slow
def test_ranks_change_stages_together_and_continue_after_a_kill(tmp_path):
    settings = [f"{name}={json.dumps(value)}" for name, value in {**FULL, "max_steps": 40}.items()]
    for code, _, errors in finish(start(tmp_path / "whole", 2, *settings)):
        assert code == 0, errors
    killed = start(tmp_path / "killed", 2, *settings, "pause=0.05")
    wait_for(tmp_path / "killed" / "checkpoints" / "step_00000014", killed)
    for process in killed:
        process.kill()
    finish(killed)
    for code, _, errors in finish(start(tmp_path / "killed", 2, *settings)):
        assert code == 0, errors
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    assert len(borders(tmp_path / "whole")) == 2


# -- borders -----------------------------------------------------------------------------------------------------------


def test_a_border_is_told_validated_and_saved_by_the_rules_of_other_steps(tmp_path, caplog):
    caplog.set_level("INFO")
    train(tmp_path, stages=TWO, validate_every=1000, keep_best=3)
    ((step, stage, epoch),) = borders(tmp_path)
    assert (stage, epoch) == (2, 1.0)
    assert not any("ended" in record for record in records(tmp_path))  # the stage before had all of its epochs
    assert (
        f"step {step}: stage 2 of 2 begins, at epoch 1; the schedule of the learning rate starts again" in caplog.text
    )
    validated = [record["step"] for record in records(tmp_path) if "accuracy" in record]
    assert validated == [step, 40]
    assert step in steps_of(tmp_path)


def test_the_last_model_of_a_stage_is_judged_before_the_next_begins(tmp_path):
    train(tmp_path, stages=TWO, validate_every=1000)
    kinds = ["stage" if "stage" in record else "validation" for record in records(tmp_path) if "loss" not in record]
    assert kinds == ["validation", "stage", "validation"]


def test_stages_that_are_shorter_than_a_step_are_passed_together(tmp_path):
    rows = [(1, [0.2, 0.0], False), (2, [0.2, 0.0], True), (None, [1.0, 1.0], False)]
    train(tmp_path, stages=rows, accumulate=9, validate_every=1000)
    assert [(step, stage) for step, stage, _ in borders(tmp_path)] == [(1, 3)]


def test_a_loss_that_is_higher_in_the_next_stage_is_no_divergence(tmp_path):
    """In the middle of a stage, the same rise is one."""
    steps = iter(range(1000))

    def higher(module, batch):
        loss = toy_loss(module, batch)
        return LossSum(loss.total + 9.0 * batch.num_targets * (next(steps) >= border), batch.num_targets, loss.correct)

    rows = [(2, [1.0, 0.0], False), (None, [0.0, 1.0], False)]
    train(tmp_path / "plain", stages=rows)
    ((border, _, _),) = borders(tmp_path / "plain")
    train(tmp_path / "staged", stages=rows, compute_loss=higher)
    assert not any("rollback" in record for record in records(tmp_path / "staged"))
    steps = iter(range(1000))
    with pytest.raises(RunError, match="the loss rose from"):
        train(tmp_path / "unstaged", compute_loss=higher, max_rollbacks=0)


# -- patience and the best model ---------------------------------------------------------------------------------------

LONG = [(1000, [1.0, 1.0], False), (None, [0.0, 1.0], True)]


def test_patience_ends_a_stage_the_rest_of_which_is_skipped_and_then_the_run(tmp_path, caplog):
    caplog.set_level("INFO")
    _, result = train(tmp_path, stages=LONG, validate=scripted([0.5]), patience=2, max_steps=500)
    assert borders(tmp_path) == [(30, 2, 1000.0)]  # 10 is the first validation, and 20 and 30 are no better
    (ended,) = (record["ended"] for record in records(tmp_path) if "stage" in record)
    assert 0 < ended < 1000
    assert f"; epochs {ended:.4g} to 1000 are skipped" in caplog.text
    assert "step 30: stage 2 of 2 begins, at epoch 1000; epochs " in caplog.text
    assert "to 1000 are skipped (no significant improvement of accuracy in 2 validations); the schedule" in caplog.text
    assert (result.step, result.status) == (60, "finished")  # 40 is the first of its stage, 50 and 60 are no better
    assert "no significant improvement" in result.reason


def test_patience_counts_from_the_start_of_a_stage(tmp_path):
    """The second stage is worse than the first all along, but gets better."""
    rising = [0.9, 0.9, 0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    _, result = train(tmp_path, stages=LONG, validate=scripted(rising), patience=2, max_steps=90)
    assert borders(tmp_path) == [(30, 2, 1000.0)]
    assert (result.step, result.reason) == (90, "max_steps 90 reached")


@pytest.mark.parametrize(("second", "best"), [([0.1, 0.2, 0.3], 30), ([0.1, 0.95, 0.3], 50)])
def test_the_best_model_is_the_best_of_all_stages(tmp_path, second, best):
    rows = [(1000, [1.0, 1.0], False), (None, [0.0, 1.0], False)]
    _, result = train(tmp_path, stages=rows, validate=scripted([0.9, 0.9, 0.9, *second]), patience=2, max_steps=60)
    assert result.best_step == best
    assert json.loads((tmp_path / "best" / "metrics.json").read_text())["step"] == best


@pytest.mark.parametrize(
    ("second", "later", "end"),
    [
        ([0.1], [0.2, 0.3, 0.4, 0.5, 0.6], 90),  # the best model is of the first stage, and does not count
        ([0.95], [0.2, 0.3, 0.4, 0.5, 0.6], 60),  # it is of this stage
        ([0.1], [0.6, 0.5, 0.4, 0.3, 0.2], 70),
    ],
)
def test_a_new_measure_in_a_later_stage_leaves_patience_to_that_stage(second, later, end, tmp_path):
    train(tmp_path, stages=LONG, validate=scripted([0.9, 0.9, 0.9, *second]), patience=2, max_steps=40)
    settings = dict(patience=2, max_steps=90, measure="another beam")
    _, result = train(tmp_path, stages=LONG, validate=scripted([max(0.9, *second), *later]), **settings)
    assert [record["now"] for record in records(tmp_path) if "measured_anew" in record] == [max(0.9, *second)]
    assert result.step == end


@pytest.mark.parametrize(
    ("values", "improves"),
    [([0.9, 0.9, 0.9, 0.1], False), ([0.9, 0.9, 0.9, 0.95], True), ([0.9, 0.9, 0.9, 0.1, 0.2], False)],
)
def test_a_model_that_is_worse_than_the_best_does_not_still_improve(values, improves, tmp_path):
    """The first validation of a stage has no earlier one to compare with."""
    _, result = train(tmp_path, stages=LONG, validate=scripted(values), patience=2, max_steps=10 * len(values))
    assert borders(tmp_path) == [(30, 2, 1000.0)]
    assert result.reason.startswith("max_steps")
    assert result.is_improving == improves


def test_a_stage_that_patience_ended_stays_ended_after_a_kill(tmp_path):
    settings = dict(stages=LONG, patience=2, max_steps=80, checkpoint_every=10)
    with pytest.raises(Killed):
        train(tmp_path, validate=scripted([0.5]), compute_loss=killed_at(33), **settings)
    assert borders(tmp_path) == [(30, 2, 1000.0)]
    trainer = make_trainer(tmp_path, validate=scripted([0.5]), **settings)
    trainer.run()
    assert trainer.state.stage == 1
    assert borders(tmp_path) == [(30, 2, 1000.0)]


# -- the learning rate -------------------------------------------------------------------------------------------------


def rates(folder):
    return {record["step"]: record["learning_rate"] for record in records(folder) if "learning_rate" in record}


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant"])
def test_a_stage_that_restarts_has_the_schedule_of_a_run_of_its_own(tmp_path, schedule):
    limits = dict(schedule=schedule, max_steps=None, log_every=1, max_epochs=5.0)
    train(tmp_path, stages=[(2, [1.0, 0.0], False), (None, [0.0, 1.0], True)], **limits)
    ((border, _, _),) = borders(tmp_path)
    config, logged = TrainingConfig(**{**toy_run.DEFAULTS, **limits}), rates(tmp_path)
    epochs = {record["step"]: record["epoch"] for record in records(tmp_path) if "learning_rate" in record}
    expected = {
        step: learning_rate(step, epoch / 2, config)
        if step <= border
        else learning_rate(step - border, (epoch - 2) / 3, config)
        for step, epoch in epochs.items()
    }
    assert logged == pytest.approx(expected, abs=1e-6)  # the epochs in the log are rounded
    if schedule != "constant":
        assert logged[border] < 0.7 * max(rate for step, rate in logged.items() if step > border)


def test_without_a_restart_the_schedule_runs_on(tmp_path):
    train(tmp_path, stages=[(1, [1.0, 1.0], False), (None, [0.0, 1.0], False)], log_every=1)
    config = TrainingConfig(**toy_run.DEFAULTS)
    expected = {step: learning_rate(step, step / 40, config) for step in range(1, 41)}
    assert rates(tmp_path) == expected


def test_a_limit_in_steps_or_minutes_ends_a_restarted_schedule_too():
    stages = Stages((Stage(end=2.0), Stage(restarts=True)))
    state = RunState(step=60, seconds=90.0, stage=1, schedule_step=20, schedule_seconds=30.0)
    assert schedule_progress(state, 5.0, TrainingConfig(max_steps=100), stages) == 0.5
    assert schedule_progress(state, 5.0, TrainingConfig(max_minutes=2.5), stages) == 0.5
    assert schedule_progress(state, 5.0, TrainingConfig(max_epochs=8.0), stages) == 0.5
    assert schedule_progress(state, 5.0, TrainingConfig(max_steps=10), stages) == 1.0  # lowered since
    assert progress(state, 5.0, TrainingConfig(max_steps=100), stages) == 0.6


# -- time --------------------------------------------------------------------------------------------------------------


def test_the_time_left_knows_that_epochs_differ():
    stages = Stages((Stage(end=2.0), Stage(length=10.0)))
    config = TrainingConfig(max_epochs=4.0)
    assert foreseen_steps(config, 1.0, 0.01, stages) == pytest.approx(2200)
    assert foreseen_steps(config, 1.0, 0.01) == pytest.approx(400)
    assert "for 2,200 steps (4.0 epochs" in estimate(config, 1.0, 0.01, stages=stages)
    done = progress(RunState(step=1), 3.0, config, stages)
    assert done == pytest.approx(12 / 22)
    assert "for 1,000 steps (1.0 epochs" in estimate(config, 1.0, 0.01, done, stages)


@pytest.mark.parametrize(
    ("limit", "words"),
    [({"max_steps": 100}, "data.stages.1: training ends before, with about epoch 1"), ({"max_steps": 300}, None),
     ({"max_steps": 100, "patience": 3}, "unless training.patience ends that stage early"),
     ({"max_epochs": 2.0, "patience": 3}, "with about epoch 2; raise the limit"),  # the next stage begins there
     ({"max_epochs": 1.0, "max_steps": 50, "patience": 3}, "with about epoch 0.5; raise the limit"),
     ({"max_minutes": 1.0}, "data.stages.1: "), ({"max_minutes": 100.0}, None), ({"max_epochs": 3.0}, None),
     ({"max_epochs": 2.0}, "data.stages.1: training ends before, with about epoch 2; raise the limit of training"),
     ({"max_steps": 200}, "data.stages.1: training ends before"), ({"max_epochs": 2.1}, None)],
)  # fmt: skip
def test_a_stage_that_training_does_not_reach_is_named(limit, words):
    stages = Stages((Stage(end=2.0), Stage()))
    told = list(unreached(TrainingConfig(**limit), 1.0, 0.01, stages))
    assert len(told) == (words is not None)
    if words:
        assert words in told[0]
    assert list(unreached(TrainingConfig(**limit), 1.0, 0.01, ONE_STAGE)) == []
    assert list(unreached(TrainingConfig(max_minutes=1.0), 0.0, 0.01, stages)) == []  # the pace is not known
