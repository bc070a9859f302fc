"""The trainer: one gradient however it is cut, exact going-on, best models, and every way a run can end."""

import json
import math
import random
import time

import pytest
import torch
from support import toy_run
from support.toy_run import ToyModel, make_batch, make_trainer, outcome, poisoned, records, steps_of, toy_loss, train

from seq2seq import runtime
from seq2seq.config.schema import TrainingConfig
from seq2seq.errors import RunError
from seq2seq.model.dropout import Dropout
from seq2seq.training.loss import LossSum
from seq2seq.training.state import RunState, Validation, dropout_share, end_reason, has_diverged
from seq2seq.training.step import GradientStep, padded_size
from seq2seq.training.weights import Weights

CPU = runtime.Runtime(torch.device("cpu"), torch.float32)


_one_thread = pytest.fixture(toy_run.one_thread, autouse=True)


# -- the gradient ------------------------------------------------------------------------------------------------------


def gradients(batches, compute_loss=toy_loss, split_above=None, dropout=0.0, weights=Weights):
    torch.manual_seed(5)
    module = ToyModel(dropout)
    step = GradientStep(weights(module, CPU), compute_loss, TrainingConfig())
    step.split_above = split_above
    total, correct = step.compute_gradient(batches, sum(batch.num_targets for batch in batches))
    return [parameter.grad for parameter in module.parameters()], total.item(), correct.item(), step


def rows(start, stop):
    inputs, labels = toy_run.examples()
    return make_batch(inputs[start:stop], labels[start:stop])


def assert_same_gradient(one, other):
    assert one[1] == pytest.approx(other[1], rel=1e-5)
    assert one[2] == other[2]
    for mine, theirs in zip(one[0], other[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_accumulated_uneven_batches_equal_one_big_batch():
    assert_same_gradient(gradients([rows(0, 50)]), gradients([rows(0, 7), rows(7, 40), rows(40, 50)]))


def test_gradient_is_that_of_the_mean_loss():
    found, *_ = gradients([rows(0, 50)])
    torch.manual_seed(5)
    module = ToyModel(0.0)
    batch = rows(0, 50)
    torch.nn.functional.cross_entropy(module(batch.inputs), batch.labels).backward()
    for mine, theirs in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs.grad)


def limited(most_rows):
    """A loss for whose batches memory ends at `most_rows`, half-way through the step's work."""

    def compute(module, batch):
        loss = toy_loss(module, batch)
        if len(batch) > most_rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return loss

    return compute


def test_a_batch_that_does_not_fit_is_split_with_the_same_gradient():
    whole = gradients([rows(0, 10), rows(10, 50)])
    found = gradients([rows(0, 10), rows(10, 50)], limited(12))
    assert_same_gradient(whole, found)
    assert found[3].split_above < padded_size(rows(10, 50))


def test_a_size_that_did_not_fit_is_split_before_it_is_tried_again():
    sizes = []

    def compute(module, batch):
        sizes.append(len(batch))
        return toy_loss(module, batch)

    assert_same_gradient(
        gradients([rows(0, 40)]), gradients([rows(0, 40)], compute, split_above=padded_size(rows(0, 12)))
    )
    assert sizes == [10, 10, 10, 10]


class TogetherWeights(Weights):
    """Weights that all ranks must compute equally often, as those of shards are."""

    can_split_alone = False


def test_a_known_size_is_not_split_where_the_other_ranks_would_not():
    """A run that was split continues with shards."""
    sizes = []

    def compute(module, batch):
        sizes.append(len(batch))
        return toy_loss(module, batch)

    gradients([rows(0, 40)], compute, split_above=padded_size(rows(0, 12)), weights=TogetherWeights)
    assert sizes == [40]


def test_one_failure_is_enough_to_know_what_does_not_fit():
    sizes = []

    def compute(module, batch):
        sizes.append(len(batch))
        return limited(12)(module, batch)

    batches = [rows(0, 40), rows(40, 80), rows(80, 86)]
    assert_same_gradient(gradients(batches), gradients(batches, compute))
    assert sizes == [40, 20, *[10] * 8, 6]


def test_a_run_that_continues_knows_what_does_not_fit(tmp_path):
    tried = {20: [], 40: []}
    for steps, sizes in tried.items():

        def compute(module, batch, sizes=sizes):
            sizes.append(len(batch))
            return limited(12)(module, batch)

        train(tmp_path, compute_loss=compute, max_steps=steps)
    assert max(tried[20]) > 12
    assert max(tried[40]) <= 12


def test_memory_that_ends_in_backward_leaves_no_half_gradient():
    tried = []

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            if not tried:
                tried.append(True)
                raise torch.OutOfMemoryError("out of memory")
            return gradient

    def compute(module, batch):
        hidden = module.norm(torch.tanh(module.first(batch.inputs)))
        total = torch.nn.functional.cross_entropy(module.last(Fails.apply(hidden)), batch.labels, reduction="sum")
        return LossSum(total, batch.num_targets, torch.zeros(()))

    whole = gradients([rows(0, 30)])
    found = gradients([rows(0, 30)], compute)
    assert tried
    for mine, theirs in zip(whole[0], found[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_one_row_that_does_not_fit_ends_the_run_in_words(tmp_path):
    with pytest.raises(RunError, match=r"single example.*data\.filters\.max_length"):
        train(tmp_path, compute_loss=limited(0))


def test_an_error_that_is_not_of_memory_is_not_retried():
    def compute(module, batch):
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        gradients([rows(0, 4)], compute)


def test_rehearsal_changes_nothing_and_comes_first(tmp_path):
    seen = []

    def compute(module, batch):
        seen.append(len(batch))
        return toy_loss(module, batch)

    train(tmp_path / "with", compute_loss=compute, rehearsal=[rows(0, 150)])
    train(tmp_path / "without")
    assert seen[0] == 150
    assert outcome(tmp_path / "with") == outcome(tmp_path / "without")


# -- how runs end ------------------------------------------------------------------------------------------------------


def test_end_always_validates_and_saves(tmp_path):
    _, result = train(tmp_path, max_steps=3)
    assert result.status == "finished"
    assert result.best_step == 3
    assert (tmp_path / "best" / "model.safetensors").exists()
    assert steps_of(tmp_path) == [3]


def test_dropout_rises_with_the_epochs_whatever_limits_the_run(tmp_path):
    def rates(name, **limit):
        found = []

        def noted(module, batch):
            found.append(module.drop.rate)
            return toy_loss(module, batch)

        trainer = make_trainer(tmp_path / name, compute_loss=noted, dropout_epochs=2.0, max_steps=None, **limit)
        trainer.module.drop = Dropout(0.4)
        trainer.run()
        return found

    short, long = rates("short", max_epochs=1.0), rates("long", max_epochs=3.0)
    assert long[: len(short)] == short
    assert long == sorted(long)
    assert long[0] < 0.1
    assert max(short) == pytest.approx(0.2, abs=0.05)
    assert long[2 * len(short)] == long[-1] == 0.4


@pytest.mark.parametrize("epoch", [0.0, 0.3, 1.9, 2.0, 7.5])
def test_the_share_of_dropout_is_that_of_the_epochs(epoch):
    assert dropout_share(epoch, 2.0) == pytest.approx(min(1.0, epoch / 2.0), abs=1 / 16)


def test_limits_in_epochs_and_minutes(tmp_path):
    trainer, result = train(tmp_path / "epochs", max_steps=None, max_epochs=1.5)
    assert "max_epochs 1.5" in result.reason
    assert 1.5 <= trainer.stream.epoch < 1.6
    started = time.monotonic()
    _, result = train(tmp_path / "minutes", max_steps=None, max_minutes=0.01)
    assert "max_minutes 0.01" in result.reason
    assert time.monotonic() - started < 10


def test_without_limits_there_are_twenty_thousand_steps():
    config = TrainingConfig()
    assert end_reason(RunState(step=19_999), 1e9, config) is None
    assert end_reason(RunState(step=20_000), 0.0, config) is not None


def test_patience_ends_the_run_and_survives_going_on(tmp_path):
    values = {10: 0.5, 20: 0.7, 30: 0.6, 40: 0.7, 50: 0.65}

    def validate(module):
        return Validation({"valid_loss": 1.0, "accuracy": values[trainer.state.step]})

    trainer = make_trainer(tmp_path, validate=validate, max_steps=1000, patience=3)
    result = trainer.run()
    assert result.step == 50
    assert result.best_step == 40  # equal to the highest, and later
    assert "in 3 validations" in result.reason
    trainer = make_trainer(tmp_path, validate=validate, max_steps=1000, patience=3)
    assert trainer.run().status == "already finished"


def test_loss_as_best_metric_is_better_when_lower_and_nan_never_wins(tmp_path):
    values = {10: 3.0, 20: 2.0, 30: math.nan, 40: 2.5}

    def validate(module):
        return Validation({"valid_loss": values[trainer.state.step], "accuracy": 0.1 * trainer.state.step})

    trainer = make_trainer(tmp_path, validate=validate, best_metric="loss")
    result = trainer.run()
    assert (result.best_step, result.best_value) == (20, 2.0)
    assert json.loads((tmp_path / "best" / "metrics.json").read_text())["step"] == 20
    assert [line["valid_loss"] for line in records(tmp_path) if "valid_loss" in line] == [3.0, 2.0, None, 2.5]


def test_keeps_the_last_and_the_best_checkpoints(tmp_path):
    values = {10: 0.9, 20: 0.8, 30: 0.1, 40: 0.2}

    def validate(module):
        return Validation({"accuracy": values[trainer.state.step]})

    trainer = make_trainer(tmp_path, validate=validate, checkpoint_every=5, keep_last=2, keep_best=2)
    trainer.run()
    assert steps_of(tmp_path) == [10, 20, 35, 40]


def test_best_holds_the_moving_average(tmp_path):
    from safetensors.torch import load_file

    trainer, result = train(tmp_path, ema=0.99, validate_every=40)
    best = load_file(tmp_path / "best" / "model.safetensors")
    newest = load_file(tmp_path / "checkpoints" / "step_00000040" / "ema.safetensors")
    assert result.best_step == 40
    assert all(torch.equal(best[name], newest[name]) for name in newest)
    assert not torch.equal(best["first.weight"], trainer.module.first.weight)
    assert "twin.weight" not in best  # a tied weight is stored once


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_step_that_is_not_finite_is_skipped_and_counted(tmp_path):
    trainer, result = train(tmp_path, compute_loss=poisoned({6, 7, 20}))
    assert result.status == "finished"
    assert trainer.state.bad_steps == 3
    assert all(tensor.isfinite().all() for tensor in trainer.module.state_dict().values())
    assert records(tmp_path)[-2]["bad_steps"] == 3
    assert all(line.get("loss", 1.0) is not None for line in records(tmp_path))


def test_too_many_bad_steps_in_a_row_end_the_run_naming_the_checkpoint(tmp_path):
    with pytest.raises(RunError, match=r"4 steps in a row.*step_00000014"):
        train(tmp_path, compute_loss=poisoned(set(range(17, 100))), max_bad_steps=3, max_rollbacks=0)


def test_without_a_checkpoint_the_message_says_so(tmp_path):
    with pytest.raises(RunError, match="no checkpoint yet"):
        train(tmp_path, compute_loss=poisoned(set(range(1, 100))), max_bad_steps=3)


def test_divergence_goes_back_with_a_lower_rate_at_most_k_times(tmp_path, caplog):
    trainer, result = train(tmp_path, compute_loss=poisoned(set(range(17, 25))), max_bad_steps=3)
    assert result.status == "finished"
    assert trainer.state.rollbacks == 2
    assert trainer.state.rate_scale == 0.25
    assert [line["rollback"] for line in records(tmp_path) if "rollback" in line] == [1, 2]
    assert "roll-back 2 of 3" in caplog.text
    with pytest.raises(RunError, match=r"after 2 roll-backs.*start a new run with a lower training\.learning_rate"):
        train(tmp_path / "b", compute_loss=poisoned(set(range(17, 10**5))), max_bad_steps=3, max_rollbacks=2)
    assert "steps in a row" in records(tmp_path / "b")[-1]["diverged"]


def spiking(steps):
    count = iter(range(1, 10**6))

    def compute(module, batch):
        loss = toy_loss(module, batch)
        return LossSum(loss.total * (50 if next(count) in steps else 1), loss.count, loss.correct)

    return compute


def test_a_loss_that_rises_for_good_goes_back_and_one_odd_batch_does_not(tmp_path):
    trainer, result = train(tmp_path / "rises", compute_loss=spiking(range(24, 31)))
    assert result.status == "finished"
    assert trainer.state.rollbacks == 1
    trainer, result = train(tmp_path / "odd", compute_loss=spiking({24}))
    assert trainer.state.rollbacks == 0


def test_ordinary_losses_are_no_divergence():
    draw = random.Random(0)
    state = RunState()
    for step in range(1, 5000):
        state.step = step
        state.note_loss(2.0 + 7.0 / step + draw.gauss(0, 0.4))
        assert not has_diverged(state)


def test_a_full_disk_stops_the_run_in_one_line_and_keeps_what_was_there(tmp_path):
    import resource

    train(tmp_path, max_steps=14)
    before = {path: path.read_bytes() for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    smallest = min(path.stat().st_size for path in before if path.name == "optimizer.safetensors")
    resource.setrlimit(resource.RLIMIT_FSIZE, (smallest // 2, hard))
    try:
        with pytest.raises(RunError) as failure:
            train(tmp_path, max_steps=40)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(failure.value)
    assert {path: path.read_bytes() for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()} == before
    assert train(tmp_path, max_steps=40)[1].status == "finished"
