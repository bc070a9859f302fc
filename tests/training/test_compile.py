"""Compiled layers and loss: where they are compiled, in how few graphs, and with the same results.

The graphs are made as on a GPU and run by torch as they are, without generated code.
"""

import functools

import pytest
import torch
from support.gradient_steps import BATCH, CPU, make_batch, make_step
from support.launches import as_on_a_gpu

from seq2seq.config.schema import TrainingConfig
from seq2seq.errors import UserError
from seq2seq.model.dropout import scale_dropout
from seq2seq.training import loss
from seq2seq.training.compiling import check_compile, choose_compilation, compile_layers
from seq2seq.training.optim import ExponentialMovingAverage
from seq2seq.training.state import dropout_share
from seq2seq.training.step import undisturbed

# Sizes of batches: sentences, source and target length. In the first, two are equal, and whole rows of 8.
ORDINARY = [(5, 8, 8), (6, 11, 16), (3, 24, 5)]


@pytest.fixture
def graphs(monkeypatch):
    """Counts the graphs of layers that are compiled; a graph that is broken has several."""
    import torch._dynamo.config
    import torch._dynamo.testing
    import torch.fx.experimental._config

    as_on_a_gpu(monkeypatch)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    loss._compiled_softmax_loss.cache_clear()
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counter))
    with (  # what is set inside is restored
        torch._dynamo.config.patch(recompile_limit=8, suppress_errors=False),
        torch.fx.experimental._config.patch(use_duck_shape=True),
    ):
        yield counter
    torch._dynamo.reset()
    loss._compiled_softmax_loss.cache_clear()


def of_size(sentences, source, target):
    return make_batch(*((max(source - 1 - row % 3, 0), max(target - 1 - row % 2, 0)) for row in range(sentences)))


def train_and_validate(step, module, batch):
    step.compute_gradient([batch], batch.num_targets)
    step.update(1e-3)
    with undisturbed(module):
        step._compute_loss(module, batch)
        with torch.inference_mode():  # as a search does
            module.encode(batch.source_ids, batch.source_mask)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_all_layers_and_shapes_share_seven_graphs(graphs, layers):
    """Encoder, decoder and loss, in training and validation, and the encoder in a search."""
    step, module = make_step(compiled=True, num_encoder_layers=layers, num_decoder_layers=layers)
    for sizes in ORDINARY:
        train_and_validate(step, module, of_size(*sizes))
    assert graphs.frame_count == 7
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.slow
@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_nothing_in_a_run_compiles_again(graphs, attention_dropout):
    """Neither rising dropout, nor validations, with a moving average too, nor short batches."""
    rates = dict(dropout=0.3, attention_dropout=attention_dropout)
    step, module = make_step(compiled=True, num_encoder_layers=1, num_decoder_layers=1, **rates)
    average = ExponentialMovingAverage(module, 0.9)
    scale_dropout(module, 0.0)
    for sizes in ORDINARY:
        train_and_validate(step, module, of_size(*sizes))
    before = graphs.frame_count
    for number, sizes in enumerate([*ORDINARY, (1, 9, 8), (5, 1, 8), (5, 9, 1), (1, 1, 1), (2, 2, 2)]):
        scale_dropout(module, dropout_share(number, 7.0))
        train_and_validate(step, module, of_size(*sizes))
        average.update(number + 1)
        with average.applied():
            train_and_validate(step, module, of_size(*ORDINARY[0]))
    assert graphs.frame_count == before


@pytest.mark.slow
def test_compiled_dropout_has_the_present_rate(graphs):
    step, module = make_step(compiled=True, num_encoder_layers=1, num_decoder_layers=1, dropout=0.5)
    batch, losses = of_size(*ORDINARY[1]), {}
    for share in (0.0, 1.0, 0.0):
        scale_dropout(module, share)
        losses.setdefault(share, []).extend(
            step.compute_gradient([batch], batch.num_targets)[0].item() for _ in range(2)
        )
    assert len(set(losses[0.0])) == 1
    assert len({*losses[0.0], *losses[1.0]}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [{}, dict(positions="rotary", activation="swiglu", norm="rms")])
def test_compiled_layers_are_the_layers(graphs, architecture):
    results = []
    for compiled in (False, True):
        sizes = dict(num_encoder_layers=2, num_decoder_layers=2, dropout=0.0)
        step, module = make_step(compiled=compiled, **sizes, **architecture)
        sums = step.compute_gradient([BATCH], BATCH.num_targets)
        results.append([*sums, *(parameter.grad for parameter in module.parameters())])
    assert graphs.frame_count == 3
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.slow
@pytest.mark.parametrize("r_drop", [0.0, 2.0])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_loss_is_the_loss(graphs, dtype, bias, r_drop):
    for rows in (8, 30, 2) if r_drop else (7, 30, 1):
        logits, targets = torch.randn(rows, 50, dtype=dtype), torch.randint(0, 50, (rows,))
        offsets, given = torch.randn(50) if bias else None, logits.clone()
        expected = loss._softmax_loss(logits, offsets, targets, 0.1, r_drop, True)
        actual = loss._compiled_softmax_loss()(given, offsets, targets, 0.1, r_drop, True)
        torch.testing.assert_close([*actual[:2], given], [*expected[:2], logits])
        if bias:
            torch.testing.assert_close(actual[2], expected[2])
    assert graphs.frame_count <= 2


@pytest.mark.slow
def test_layers_that_cannot_be_compiled_run_as_they_are_unless_they_must(monkeypatch, graphs):
    def failing(*_):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=failing))
    step, module = make_step(compiled=True, num_encoder_layers=1, num_decoder_layers=1)
    with pytest.raises(RuntimeError, match="C compiler"):
        step.compute_gradient([BATCH], BATCH.num_targets)
    torch._dynamo.reset()
    compile_layers(module, must=False)
    step.compute_gradient([BATCH], BATCH.num_targets)
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize(
    ("settings", "device", "steps", "expected", "reason"),
    [
        (dict(compile=True), "cuda", 10, True, "training.compile is true"),
        (dict(compile=False), "cuda", 1e9, False, "training.compile is false"),
        (dict(batch_tokens=25_000), "cuda", 100_000, True, "95 minutes"),
        (dict(batch_tokens=25_000), "cuda", 1_000, False, "57 seconds"),
        (dict(batch_tokens=25_000, max_minutes=5), "cuda", 100_000, False, "5 minutes"),
        (dict(batch_tokens=4096), "cuda", 1e9, False, "batch_tokens is below 16,384"),
        (dict(batch_tokens=25_000), "cpu", 1e9, False, "only on a GPU"),
    ],
)
def test_layers_are_compiled_where_it_pays(settings, device, steps, expected, reason):
    choice = choose_compilation(TrainingConfig(**settings), torch.device(device), 60_500_000, steps)
    assert choice.is_on == expected
    assert reason in choice.reason


def test_a_cpu_refuses_compilation():
    check_compile(TrainingConfig(), CPU)
    with pytest.raises(UserError, match="compile: true makes training slower on a CPU"):
        check_compile(TrainingConfig(compile=True), CPU)
