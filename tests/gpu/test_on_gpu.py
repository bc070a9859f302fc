"""What must hold on a GPU, against the same work on the processor. Skipped where there is none."""

import copy
import json

import pytest
import torch
from support.gradient_steps import BATCH, make_batch, make_step
from support.our_models import make_ours
from support.whole_runs import corpus
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from seq2seq import runtime
from seq2seq.bench.measure import seconds_of
from seq2seq.cli import main
from seq2seq.config.schema import ModelConfig, SearchConfig, TrainingConfig
from seq2seq.inference.steps import TransformerSteps, float32_logits
from seq2seq.inference.translator import Translator
from seq2seq.model.attention import attend, key_bias
from seq2seq.model.decoding import DecoderCache, decode_step
from seq2seq.model.transformer import Transformer
from seq2seq.training.loss import label_smoothed_cross_entropy
from seq2seq.training.optim import build_optimizer

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

VOCAB = 300
LINES = ["a man rides a red bicycle", "", "two dogs play in the snow", "a woman reads a book to a child"] * 10


@pytest.fixture(autouse=True)
def _started():
    runtime.start(str(DEVICE))


def build(**settings) -> Transformer:
    return Transformer(ModelConfig(preset="tiny", d_model=64, d_ff=96, **settings), VOCAB, VOCAB)


def example():
    source, target = torch.randint(4, VOCAB, (5, 19)), torch.randint(4, VOCAB, (5, 23))
    mask = torch.arange(19) < torch.tensor([19, 4, 11, 1, 17])[:, None]
    return source, mask, target


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@torch.no_grad()
def test_logits_are_those_of_the_processor(norm_position, positions):
    model, arguments = build(norm_position=norm_position, positions=positions).eval(), example()
    expected = model.project(model(*arguments))
    model.to(DEVICE)
    found = model.project(model(*(each.to(DEVICE) for each in arguments)))
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_cached_steps_equal_the_full_decode():
    model, (source, mask, target) = build().eval().to(DEVICE), (each.to(DEVICE) for each in example())
    full = model(source, mask, target)
    cache = DecoderCache(model, model.encode(source, mask), mask, beam_size=1, max_length=target.size(1))
    steps = torch.stack([decode_step(model, target[:, t], cache) for t in range(target.size(1))], dim=1)
    torch.testing.assert_close(steps, full, atol=1e-4, rtol=1e-3)


def test_a_row_of_padding_alone_is_finite_both_ways():
    query, key, value = (torch.randn(2, 4, 9, 16, device=DEVICE, requires_grad=True) for _ in range(3))
    mask = torch.zeros(2, 9, dtype=torch.bool, device=DEVICE)
    mask[0] = True
    attend(query, key, value, key_bias(mask, query)).sum().backward()
    assert all(each.grad.isfinite().all() for each in (query, key, value))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_is_that_of_the_processor(optimizer):
    # The gradient of the keys' biases is rounding alone, of which AdamW with a small epsilon would make a whole step.
    config = TrainingConfig(optimizer=optimizer, learning_rate=1e-2, epsilon=1e-4)
    here = build(dropout=0.0)
    there = copy.deepcopy(here).to(DEVICE)
    source, mask, target = example()
    for model, device in ((here, torch.device("cpu")), (there, DEVICE)):
        hidden = model(*(each.to(device) for each in (source, mask, target[:, :-1])))
        real = torch.ones(5, 22, dtype=torch.bool, device=device)
        sums = label_smoothed_cross_entropy(
            hidden[real], model.output.weight, model.output.bias, target[:, 1:].to(device)[real], 0.1
        )
        (sums.total / sums.count).backward()
    for (name, one), other in zip(here.named_parameters(), there.parameters(), strict=True):
        said = f"gradient of {name}"
        torch.testing.assert_close(
            other.grad.cpu(), one.grad, atol=1e-4, rtol=1e-3, msg=lambda text, said=said: f"{said}: {text}"
        )
    for model in (here, there):
        build_optimizer(model, config).step()
    for (name, one), other in zip(here.named_parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(
            other.cpu(), one, atol=2e-3, rtol=2e-2, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_reads_nothing_back(optimizer):
    step, _ = make_step(torch.bfloat16, DEVICE, optimizer)
    batch = make_batch(*[(60, 60)] * 64).pin_memory()  # large enough for the kernels of large batches
    step.compute_gradient([batch], batch.num_targets)
    step.update(1e-3)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step.compute_gradient([batch], batch.num_targets)
        step.update(1e-3)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_new_shape_costs_no_plan():
    """cuDNN's attention would make one for each, 20 to 900 ms."""
    step, _ = make_step(torch.bfloat16, DEVICE)

    def steps(lengths):
        for length in lengths:
            batch = make_batch(*((length + row % 5, length + row % 3) for row in range(10)))
            step.compute_gradient([batch], batch.num_targets)

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        steps([10])
    kernels = {event.name for event in seen.events() if event.device_type == DeviceType.CUDA}
    assert kernels
    assert not [name for name in kernels if "cudnn" in name.lower()]
    assert seconds_of(lambda: steps(range(11, 41)), DEVICE) < 3


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_compiled_layers_are_the_layers(precision):
    results = []
    for compiled in (False, True):
        step, module = make_step(
            precision, DEVICE, compiled=compiled, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
        )
        total, _ = step.compute_gradient([BATCH], BATCH.num_targets)
        results.append([total, step.update(1e-3), *(parameter.grad for parameter in module.parameters())])
    tolerance = dict(rtol=1e-3, atol=1e-4) if precision == torch.float32 else dict(rtol=5e-2, atol=5e-3)
    torch.testing.assert_close(results[1], results[0], **tolerance)


@pytest.mark.parametrize("how", [dict(beam_size=1), dict(beam_size=4, n_best=2)])
def test_recorded_searches_find_what_searches_find(tmp_path, caplog, how):
    folder = make_ours(tmp_path / "model", ending=4.0, search=SearchConfig(min_length=3, max_length_ratio=2.0)).folder
    given = dict(engine="torch", device="cuda", precision="float32", **how)
    ordinary, recorded = (Translator.load(folder, record=record, **given) for record in (False, True))
    assert "steps are recorded" in recorded.engine_note
    for _ in range(2):
        found, expected = recorded.translate(LINES), ordinary.translate(LINES)
        same = [one.score == pytest.approx(other.score, abs=1e-2) for one, other in zip(found, expected, strict=True)]
        assert sum(same) >= 0.9 * len(LINES)  # near ties may fall the other way
    assert not [record.message for record in caplog.records if "any more" in record.message]
    assert recorded._engine._search._known


@pytest.mark.parametrize("search", [dict(beam_size=1), dict(beam_size=4, n_best=2)])
def test_translations_have_the_scores_of_the_processor(tmp_path, search):
    folder = make_ours(tmp_path / "model", ending=4.0, search=SearchConfig(min_length=3, max_length_ratio=1.0)).folder
    here = Translator.load(folder, engine="torch", device="cpu", **search).translate(LINES)
    there = Translator.load(folder, device=str(DEVICE), precision="float32", **search).translate(LINES)
    same = [one.score == pytest.approx(other.score, abs=1e-2) for one, other in zip(here, there, strict=True)]
    assert sum(same) >= 0.9 * len(LINES)  # near ties may fall the other way


def trained(tmp_path, monkeypatch, settings, limits):
    """The validation losses of a run that is started once for each of these limits in steps."""
    monkeypatch.chdir(corpus(tmp_path / "toy"))
    monkeypatch.delenv("S2S_DATA", raising=False)
    changes = [f"training.device={DEVICE}", *settings]
    arguments = [word for change in changes for word in ("--set", change)]
    for limit in limits:
        assert main(["train", "toy.yaml", *arguments, "--set", f"training.max_steps={limit}"]) == 0
    records = [json.loads(line) for line in open("runs/toy/metrics.jsonl", encoding="utf-8")]
    return [record["valid_loss"] for record in records if "valid_loss" in record]


@pytest.mark.parametrize(
    "settings", [(), ("training.precision=float32",), ("training.precision=float16", "training.optimizer=muon")]
)
def test_a_run_learns_and_goes_on(tmp_path, monkeypatch, settings):
    losses = trained(tmp_path, monkeypatch, settings, (60, 120))
    assert len(losses) >= 6
    assert losses[-1] < 0.9 * losses[0]


def test_a_compiled_run_learns(tmp_path, monkeypatch):
    """It compiles once: rising dropout, validations and short batches share the graphs."""
    losses = trained(tmp_path, monkeypatch, ("training.compile=true",), (120,))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("search", [dict(beam_size=1), dict(beam_size=4)])
def test_a_search_waits_for_nothing_but_its_copies(tmp_path, monkeypatch, search):
    """From its first step on; in bfloat16, the default."""
    folder = make_ours(tmp_path / "model", ending=4.0, search=SearchConfig(min_length=3, max_length_ratio=1.0)).folder
    translator = Translator.load(folder, device=str(DEVICE), **search)

    def watch(name, mode):
        method = getattr(TransformerSteps, name)
        monkeypatch.setattr(
            TransformerSteps, name, lambda *given: torch.cuda.set_sync_debug_mode(mode) or method(*given)
        )

    watch("start", "default")
    watch("step", "error")
    try:
        assert len(translator.translate(LINES[:1])) == 1
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("output_bias", [False, True])
@torch.no_grad()
def test_logits_of_sixteen_bits_are_not_rounded(output_bias):
    model = build(output_bias=output_bias).bfloat16().to(DEVICE)
    hidden = torch.randn(7, model.config.d_model, device=DEVICE).bfloat16()
    found = float32_logits(model, hidden)
    torch.testing.assert_close(found.double(), model.double().project(hidden.double()), atol=1e-4, rtol=1e-4)


def test_work_is_timed_to_its_end():
    left = torch.randn(1024, 1024, device=DEVICE)
    torch.mm(left, left)  # loads cuBLAS, which must not be timed
    few, many = (seconds_of(lambda times=times: [left @ left for _ in range(times)], DEVICE) for times in (20, 2000))
    assert many > 5 * few
