"""Laws of recorded steps: they are ordinary steps, follow every change, and give way to ordinary steps.

The recorder is a `Tape`, which repeats the calls of the first time with its Python numbers, as a CUDA graph does.
"""

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest
import torch
from support.gradient_steps import CPU, VOCAB, make_batch
from support.launches import Launches, as_on_a_gpu
from support.tape import Tapes
from support.toy_run import one_thread
from support.whole_runs import corpus

from seq2seq.cli import main
from seq2seq.config.schema import Config, ModelConfig, TrainingConfig
from seq2seq.data.collate import TranslationBatch
from seq2seq.errors import RunError, UserError
from seq2seq.model.dropout import scale_dropout
from seq2seq.model.transformer import Transformer
from seq2seq.runtime import Runtime
from seq2seq.tasks import machine
from seq2seq.tasks.run_folder import RunFolder, began_with_fixed_shapes, write_note
from seq2seq.training import recorded
from seq2seq.training.loss import translation_loss
from seq2seq.training.recorded import RecordedStep, check_record, choose_recording
from seq2seq.training.step import GradientStep, padded_size
from seq2seq.training.weights import Weights


class Side:
    pad_id = 0


class Pair:
    source = target = Side


def filled(rows, *lengths, source=12, target=11) -> TranslationBatch:
    batch = make_batch(*lengths).filled(rows, source, target, Pair)
    assert batch.is_filled
    return batch


# Two shapes; within a shape, other numbers of sentences, tokens and targets.
SMALL = [filled(4, (5, 6), (2, 9), (7, 7)), filled(4, (3, 3), (8, 1), (1, 1), (9, 10)), filled(4, (1, 2))]
LARGE = [filled(6, *[(n, n + 5) for n in range(1, 6)], target=15), filled(6, (4, 14), (11, 2), target=15)]


ORDINARY_STEPS = 2


@pytest.fixture(autouse=True)
def _quick_gpu(monkeypatch):
    """The branches of a GPU, few steps before a recording, and one thread for tiny products."""
    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(recorded, "ORDINARY_STEPS", ORDINARY_STEPS)
    yield from one_thread()


def make(recorder=None, optimizer="adamw", precision=torch.float32, **model):
    torch.manual_seed(3)
    sizes = dict(preset="tiny", d_model=32, d_ff=48, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    module = Transformer(ModelConfig(**sizes | model), VOCAB, VOCAB)
    # with a small epsilon, AdamW would make a whole step of a gradient that is zero but for rounding
    config = TrainingConfig(optimizer=optimizer, weight_decay=0.1, epsilon=1e-3)
    given = Weights(module, Runtime(CPU, precision)), partial(translation_loss, smoothing=0.1), config
    return (GradientStep(*given) if recorder is None else RecordedStep(*given, recorder)), module


def train(step, batches, accumulate=1):
    """The loss and the norm of each step; the rate differs from step to step."""
    figures = []
    for number in range(0, len(batches) - accumulate + 1, accumulate):
        part = batches[number : number + accumulate]
        total, correct = step.compute_gradient(part, sum(batch.num_targets for batch in part))
        norm = step.update(1e-3 * (1 + number % 4))
        figures.append([total.item(), float(correct), norm.item()])
    return torch.tensor(figures)


def order(count):
    draw = torch.Generator().manual_seed(1)
    return [(SMALL + LARGE)[index] for index in torch.randint(len(SMALL + LARGE), (count,), generator=draw).tolist()]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_recorded_steps_in_any_order_are_ordinary_steps(optimizer, accumulate):
    tapes, results = Tapes(), []
    for recorder in (None, tapes):
        step, module = make(recorder, optimizer)
        results.append([train(step, order(16), accumulate), *module.parameters()])
    torch.testing.assert_close(results[1], results[0], rtol=2e-3, atol=1e-4)
    assert len(tapes.made) == 3, "two shapes, and the update"
    assert all(tape.replays > 1 for tape in tapes.made)


def test_batches_without_a_shape_are_ordinary():
    tapes, step_and_module = Tapes(), []
    plain = [make_batch((5, 4), (3, 3)), make_batch((1, 1))]
    batches = [*SMALL * 2, plain[0], SMALL[0], plain[1], *SMALL]
    for recorder in (None, tapes):
        step, module = make(recorder)
        step_and_module.append([train(step, batches, 2), *module.parameters()])
    torch.testing.assert_close(step_and_module[1], step_and_module[0], rtol=2e-3, atol=1e-4)


def test_a_rare_shape_is_not_recorded():
    tapes = Tapes()
    step, _ = make(tapes)
    train(step, SMALL[:1] * ORDINARY_STEPS)
    assert not tapes.made
    train(step, SMALL[:1])
    assert len(tapes.made) == 2


def test_a_recorded_step_launches_little_but_its_replays():
    """Copies of the batch, gradients that are cleared, and copies of the sums; the number may only be lowered."""
    tapes = Tapes()
    step, _ = make(tapes)
    train(step, SMALL[:1] * (ORDINARY_STEPS + 1))
    before = [tape.replays for tape in tapes.made]
    with Launches() as launches:
        step.compute_gradient(SMALL[1:2], SMALL[1].num_targets)
        step.update(1e-3)
    assert launches.calls.total() <= 16, launches.calls
    assert not launches.reads
    assert [tape.replays for tape in tapes.made] == [count + 1 for count in before]


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "word_dropout"])
def test_recorded_dropout_follows_its_share(kind):
    step, module = make(Tapes(), **{kind: 0.5})
    train(step, SMALL[:1] * (ORDINARY_STEPS + 1))
    losses = {}
    for share in (0.0, 1.0, 0.0, 1.0):
        scale_dropout(module, share)
        found = [step.compute_gradient(SMALL[:1], 10)[0].item() for _ in range(3)]
        losses.setdefault(share, []).extend(found)
    assert len(set(losses[0.0])) == 1
    assert len(set(losses[1.0])) == 6


def test_rows_and_targets_that_fill_a_shape_change_no_gradient():
    plain, batch = make_batch((5, 6), (2, 9), (7, 7)), SMALL[0]
    step, module = make()
    spare = dataclasses.replace(batch, has_spare_targets=True, num_targets=batch.target_mask.numel())
    results = []
    for each in (plain, batch, spare):
        sums = step.compute_gradient([each], plain.num_targets)
        results.append([*(each.float() for each in sums), *(weight.grad.clone() for weight in module.parameters())])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-5)


def test_halves_of_a_filled_batch_are_those_of_its_examples():
    halves, expected = SMALL[1].split(), make_batch((3, 3), (8, 1), (1, 1), (9, 10)).split()
    for half, other in zip(halves, expected, strict=True):
        assert torch.equal(half.source_ids, other.source_ids)
        assert (half.num_targets, half.num_tokens, half.is_filled) == (other.num_targets, other.num_tokens, False)


@pytest.mark.parametrize("fits", [1, 0], ids=["without its spare rows", "not at all"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_single_example_loses_its_spare_rows_where_memory_is_short(is_known, fits):
    batch, plain = SMALL[2], make_batch((1, 2))
    step, _ = make()
    compute = step._compute_loss

    def short(module, given):
        if len(given) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(module, given)

    step._compute_loss, step.split_above = short, padded_size(plain) if is_known else None
    if not fits:
        with pytest.raises(RunError, match="a single example of"):
            step.compute_gradient([batch], batch.num_targets)
        return
    expected, _ = make()[0].compute_gradient([plain], plain.num_targets)
    torch.testing.assert_close(step.compute_gradient([batch], batch.num_targets)[0], expected)


def test_a_batch_that_does_not_fit_its_shape_is_unchanged():
    batch = make_batch((5, 6), (2, 9))
    assert all(batch.filled(*shape, Pair) is batch for shape in ((1, 20, 20), (2, 5, 20), (2, 20, 9)))


# -- faults ------------------------------------------------------------------------------------------------------------


class Wrong(Tapes):
    """Records another function than the given one: its results are a thousandth too large, or none."""

    def __init__(self, at, error=None):
        super().__init__()
        self.at, self.error = at, error

    def record(self, function):
        tape = super().record(function)
        if len(self.made) == self.at:
            if self.error is not None:
                raise self.error
            replay = tape.replay

            def wrong():
                replay()
                tape.outputs[0].mul_(1.5)
                if len(tape.outputs) == 1:  # the update
                    self.weight.data.add_(0.1)

            tape.replay = wrong
        return tape


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "of a recorded step differs from that of an ordinary step"),
        (RuntimeError("operation not permitted\nwhen stream is capturing"), "not permitted when stream is capturing"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out of memory"),
    ],
)
def test_a_recording_that_is_wrong_or_fails_leaves_ordinary_steps(caplog, at, error, reason):
    wrong, results = Wrong(at, error), []
    for recorder in (None, wrong):
        step, module = make(recorder)
        wrong.weight = next(module.parameters())
        results.append([train(step, order(12)), *module.parameters()])
    torch.testing.assert_close(results[1], results[0], rtol=2e-3, atol=1e-4)
    (line,) = [record.message for record in caplog.records]
    assert reason in line
    assert "training continues with ordinary steps" in line
    assert len(wrong.made) == at


def test_a_replay_that_fails_names_the_remedy():
    tapes = Tapes()
    step, _ = make(tapes)
    train(step, SMALL[:1] * (ORDINARY_STEPS + 1))

    def broken():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    tapes.made[0].replay = broken
    with pytest.raises(RunError, match=r"illegal memory access .* --set training\.record=false"):
        train(step, SMALL[:1])


def test_new_moments_of_the_optimizer_are_recorded_anew():
    """A roll-back loads the numbers of a checkpoint into the optimizer."""
    tapes = Tapes()
    step, module = make(tapes)
    train(step, SMALL[:1] * 4)
    for state in step.optimizer.state.values():
        for name, moment in state.items():
            state[name] = moment.clone()
    step.forget()
    before, count = module.output.weight.detach().clone(), len(tapes.made)
    train(step, SMALL[:1])
    assert len(tapes.made) == 2 * count
    assert not torch.equal(module.output.weight, before)


# -- the choice --------------------------------------------------------------------------------------------------------


DATA = {"train": {"source": "a", "target": "b"}, "valid": {"source": "a", "target": "b"}}


@pytest.mark.parametrize(
    ("training", "others", "here", "reason"),
    [
        ({}, {}, {}, ""),
        ({"batch_tokens": 16_383}, {}, {}, ""),
        ({"batch_tokens": 16_384}, {}, {}, "16,384 or more, which keeps the GPU busy"),
        ({}, {}, {"device": CPU}, "recording needs a CUDA device"),
        ({"r_drop": 1.0}, {}, {}, "training.r_drop"),
        ({"record": False}, {}, {}, "training.record is false"),
        ({"record": True}, {}, {}, ""),
        ({"record": True, "r_drop": 1.0}, {}, {}, "training.r_drop"),
        ({"record": True, "recompute": True}, {}, {}, "training.recompute"),
        ({"record": True, "compile": True}, {}, {}, "compiled layers"),
        ({"record": True}, {"model": {"output_bias": True}}, {}, "model.output_bias"),
        ({"record": True}, {"task": "classification", "data": {"train": {"tsv": "a"}, "valid": {"tsv": "a"}}}, {},
         "a classifier"),
        ({"record": True}, {}, {"world_size": 2}, "several ranks"),
        ({"record": True}, {}, {"precision": torch.float16}, "float16"),
    ],
)  # fmt: skip
def test_what_is_recorded_is_chosen_with_a_reason(training, others, here, reason):
    config = Config.model_validate({"data": DATA, "training": training, **others})
    runtime = Runtime(**{"device": torch.device("cuda"), "precision": torch.bfloat16, **here})
    choice = choose_recording(config, runtime, config.training.compile is True)
    assert choice.is_on == (reason == "")
    assert reason in choice.reason


def test_a_cpu_refuses_to_record():
    check_record(TrainingConfig(), CPU)
    with pytest.raises(UserError, match=r"training\.record: true needs a CUDA device, and training runs on cpu"):
        check_record(TrainingConfig(record=True), CPU)


@pytest.mark.slow
def test_a_recorded_run_learns_and_continues(tmp_path, monkeypatch):
    """With random segmentations, accumulation, a moving average, rising dropout and validations."""
    tapes = Tapes()
    monkeypatch.setattr(recorded, "CudaGraphs", lambda: tapes)
    monkeypatch.setattr(machine, "check_record", lambda *_: None)
    monkeypatch.chdir(corpus(tmp_path / "toy"))
    changes = ["training.record=true", "training.r_drop=0", "training.precision=float32", "training.validate_every=10",
               "training.max_steps="]  # fmt: skip
    for limit in (35, 70):
        given = [*changes[:-1], f"{changes[-1]}{limit}"]
        assert main(["train", "toy.yaml", *(word for change in given for word in ("--set", change))]) == 0
        assert sum(tape.replays for tape in tapes.made) > 20
        tapes.made.clear()
    records = [json.loads(line) for line in open("runs/toy/metrics.jsonl", encoding="utf-8")]
    losses = [record["valid_loss"] for record in records if "valid_loss" in record]
    assert len(losses) >= 6
    assert losses[-1] < 0.9 * losses[0]


def progress_of(folder):
    """(step, epoch) of each log of a run, and the losses in training and validation."""
    records = [json.loads(line) for line in open(f"{folder}/metrics.jsonl", encoding="utf-8")]
    places = [(record["step"], record["epoch"]) for record in records if "epoch" in record]
    return places, [record[name] for record in records for name in ("loss", "valid_loss") if name in record]


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
def test_a_run_keeps_its_batches_when_it_is_recorded_no_more_or_only_now(first, tmp_path, monkeypatch):
    """A run that moves to another device does so; a position in the data is a number of batches."""
    tapes = Tapes()
    monkeypatch.setattr(recorded, "CudaGraphs", lambda: tapes)
    monkeypatch.setattr(machine, "check_record", lambda *_: None)
    monkeypatch.chdir(corpus(tmp_path / "toy"))

    def train_to(limit, folder, record):
        tapes.made.clear()
        settings = ["precision=float32", "r_drop=0", "log_every=2", "validate_every=10", "max_steps=" + str(limit)]
        given = [f"training.{setting}" for setting in (*settings, f"record={str(record).lower()}")]
        # recorded and ordinary steps draw other numbers
        given += ["model.dropout=0", "model.attention_dropout=0", "model.word_dropout=0"]
        assert main(["train", "toy.yaml", "--run-dir", folder, *(w for each in given for w in ("--set", each))]) == 0
        return sum(tape.replays for tape in tapes.made)

    assert (train_to(40, "whole", first) > 20) == first
    assert (train_to(20, "moved", first) > 20) == first
    begun = json.loads(Path("moved/identity.json").read_text())
    assert begun["fixed_shapes"] == first
    assert not train_to(40, "moved", not first)  # steps are ordinary both ways
    (places, losses), moved = progress_of("whole"), progress_of("moved")
    assert len(places) == 20
    assert moved[0] == places
    assert moved[1] == pytest.approx(losses, rel=1e-3 if first else 0)


def test_a_run_of_an_older_version_keeps_its_batches(tmp_path):
    config, folder = Config.model_validate({"data": DATA}), RunFolder(tmp_path)
    assert began_with_fixed_shapes(folder, config) is None  # nothing was learned
    (folder.checkpoints / "step_00000010").mkdir(parents=True)
    write_note(folder.identity, {})
    assert began_with_fixed_shapes(folder, config) is False  # `auto` recorded nothing then
    for value in (True, False):
        write_note(folder.identity, {"fixed_shapes": value})
        assert began_with_fixed_shapes(folder, config) is value
