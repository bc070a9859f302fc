"""`s2s bench`: all systems do the same work, ratios are of paired rounds, and what is counted is what is computed.

Speeds themselves are not tested: they are what the command is for, and a busy machine has others.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.foreign_models import SOURCE, TARGET
from support.launches import as_on_a_gpu
from support.marian_beside import train as train_beside
from support.our_models import make_ours, our_tokenizers
from support.tape import Tapes
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from seq2seq import Translator, runtime
from seq2seq.bench import decoding, feeding, training
from seq2seq.bench.measure import Entrant, figures, forward_flops, peak_memory
from seq2seq.bench.training_peers import HandLoop, MarianLogits
from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.schema import ModelConfig, TrainingConfig
from seq2seq.data.collate import collate_translation
from seq2seq.errors import UserError
from seq2seq.evaluation.probe import Probe
from seq2seq.model.transformer import Transformer
from seq2seq.training import recorded
from seq2seq.training.loss import translation_loss

CPU = runtime.Runtime(torch.device("cpu"), torch.float32)
SHAPE = dict(preset=None, d_model=16, num_heads=2, num_encoder_layers=2, num_decoder_layers=1, d_ff=24)
CONFIG = """source_language: en
target_language: de
data: {train: {source: text.en, target: text.de}, valid: {source: text.en, target: text.de}, num_workers: 1}
tokenizer: {vocab_size: 330}
model: {preset: tiny, d_model: 16, num_heads: 2, d_ff: 16, num_encoder_layers: 1, num_decoder_layers: 1}
training: {batch_tokens: 100, accumulate: 2, ema: 0.9, threads: 1, device: cpu, precision: float32}
"""
ROUNDS, STEPS = 3, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    for name, texts in (("text.en", SOURCE), ("text.de", TARGET)):
        (folder / name).write_text("".join(f"{text} {number}\n" for number in range(30) for text in texts))
    (folder / "tiny.yaml").write_text(CONFIG)
    return folder


def measure_training(folder, **options):
    config = config_file.load(folder / "tiny.yaml")
    rounds = training.TrainingRounds(ROUNDS, STEPS, matmul_size=32)
    return training.bench_training(config, folder / "cache", rounds=rounds, **options)


def watch_updates(patch, note):
    """Let `note` have each system and its batches before they are used."""

    def watched(update):
        return lambda self, batches: note(self, batches) or update(self, batches)

    for system in (training.OurTraining, HandLoop):
        patch.setattr(system, "update", watched(system.update))


@pytest.fixture(scope="module")
def trained(folder):
    """The report, and the batches that each system was given, in order."""
    given = {}

    def note(system, batches):
        given.setdefault(id(system), []).append([batch.source_ids.tolist() for batch in batches])

    with pytest.MonkeyPatch.context() as patch:
        watch_updates(patch, note)
        report = measure_training(folder)
    return report, list(given.values())


@pytest.fixture(scope="module")
def model(trained_marian, tmp_path_factory):
    """A Marian folder, which all systems can run, that has learnt its sentences by heart."""
    return Path(shutil.copytree(trained_marian, tmp_path_factory.mktemp("model") / "model"))


def measure_decoding(model, threads=1, **options):
    rounds = decoding.DecodingRounds(ROUNDS, 6, (1, 3), single_sentences=2, batch_size=4, matmul_size=32)
    engines = decoding.Engines(device="cpu", threads=threads)
    return decoding.bench_decoding(model, Probe(("", *SOURCE), ("", *TARGET)), engines, rounds=rounds, **options)


@pytest.fixture(scope="module")
def decoded(model):
    return measure_decoding(model)


def test_the_stream_of_batches_is_measured_without_a_model(folder):
    config = config_file.load(folder / "tiny.yaml", ["tokenizer.sampling=0.5"])
    report = feeding.bench_feed(config, folder / "cache", rounds=2, seconds=0.01)
    (system,) = report.systems
    assert report.work["sampling"] == 0.5
    assert all(len(system[name]["rounds"]) == 2 for name in ("tokens_per_second", "tokens_per_cpu_second"))
    assert system["tokens_per_second"]["low"] > 0


@pytest.mark.slow
def test_the_model_that_is_trained_beside_ours_is_a_marian_folder(folder, tmp_path):
    steps = train_beside(folder / "tiny.yaml", 0.02, tmp_path / "marian")
    assert steps > 1
    translations = Translator.load(tmp_path / "marian", device="cpu", threads=1).translate(SOURCE)
    assert len(translations) == len(SOURCE)


@pytest.mark.parametrize(
    "settings", [{}, {"activation": "swiglu", "head_dim": 5}, {"norm_position": "post", "num_decoder_layers": 3}]
)
def test_flops_are_what_torch_counts_but_for_attention(settings):
    config = ModelConfig(**{**SHAPE, **settings})
    model, (rows, source, target) = Transformer(config, 50, 50).train(), (3, 7, 5)
    ids = torch.randint(0, 50, (rows, source)), torch.randint(0, 50, (rows, target))
    with FlopCounterMode(display=False) as counted:
        model.project(model(ids[0], torch.ones(rows, source, dtype=torch.bool), ids[1]))
    pairs = config.num_encoder_layers * source**2 + config.num_decoder_layers * (target**2 + source * target)
    attention = 4 * config.num_heads * config.head_width * rows * pairs
    assert forward_flops(model, rows * source, rows * target) == counted.get_total_flops() - attention


def test_the_ratio_is_that_of_adjacent_rounds():
    def entrant(name, rates):
        return Entrant(name, "work", dict, {}, {"rate": rates, "flops_per_second": rates})

    ours, theirs = figures([entrant("ours", [10.0, 1.0, 4.0]), entrant("theirs", [5.0, 0.25, 4.0])], [10.0, 10.0, 10.0])
    assert ours["rate_ratio"] is None
    assert theirs["rate_ratio"]["rounds"] == [2.0, 4.0, 1.0]
    assert theirs["rate_ratio"]["median"] == 2.0  # and not 4 / 4, that of the medians
    assert theirs["matmul_share"]["rounds"] == [0.5, 0.025, 0.4]


def test_a_round_without_a_rate_has_no_ratio():
    first, other = figures([Entrant(name, "work", dict, {}, {"rate": rates}) for name, rates in
                            (("first", [1.0, 0.0]), ("other", [0.0, 2.0]))])  # fmt: skip
    assert first["rate_ratio"] is other["rate_ratio"] is None


def test_memory_that_was_held_for_a_moment_is_seen():
    with peak_memory(CPU.device) as peak:
        torch.ones(2**24).sum()
    if not peak:
        pytest.skip("the system does not tell")
    assert 0.9 * 2**26 < peak[0] < 3 * 2**26


def test_every_system_trains_on_the_same_ids(trained):
    report, given = trained
    assert [system["name"] for system in report.systems] == ["seq2seq", "transformers MarianMTModel"]
    assert report.left_out == {}
    ours, *others = given
    assert others == [ours]
    # the last ROUNDS * STEPS updates are measured, of two batches each: padding is 3 in these tokenizers
    measured = [ids for update in ours[-ROUNDS * STEPS :] for ids in update]
    assert all(len(update) == 2 for update in ours[-ROUNDS * STEPS :])
    tokens = sum(id_ != 3 for ids in measured for row in ids for id_ in row)
    assert tokens > 0


def test_a_training_report_agrees_with_itself(trained):
    report, _ = trained
    ours, *peers = report.systems
    for peer in peers:
        pairs = zip(ours["tokens_per_second"]["rounds"], peer["tokens_per_second"]["rounds"], strict=True)
        assert peer["tokens_per_second_ratio"]["rounds"] == pytest.approx(
            [our / their for our, their in pairs], rel=2e-3
        )
    assert ours["tokens_per_second_ratio"] is None
    flops_a_token = []
    for system in report.systems:
        tokens_an_update = system["tokens_per_second"]["rounds"][0] / system["updates_per_second"]["rounds"][0]
        assert 50 < tokens_an_update < 2 * 2.5 * 100
        flops = system["matmul_share"]["rounds"][0] * report.work["matmul_flops_a_second"]["rounds"][0]
        flops_a_token.append(flops / system["tokens_per_second"]["rounds"][0])
    assert flops_a_token == pytest.approx([flops_a_token[0]] * 2, rel=5e-3)


def test_a_hand_loop_has_our_loss():
    class Logits(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, source_ids, source_mask, target_input):
            return self.model.project(self.model(source_ids, source_mask, target_input))

    tokenizers = our_tokenizers(True)
    model = Transformer(ModelConfig(**SHAPE, dropout=0.0), tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    batch = collate_translation([[5, 6, 7], [8]], [[9], [10, 11, 12, 13]], tokenizers, [0, 1])
    loop = HandLoop(Logits(model), TrainingConfig(label_smoothing=0.2), CPU)
    ours = translation_loss(model, batch, smoothing=0.2)
    torch.testing.assert_close(loop._loss(batch), ours.total / ours.count)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_peer_sees_neither_padding_nor_the_future(norm):
    tokenizers = our_tokenizers(True)
    module = MarianLogits(ModelConfig(**SHAPE, norm_position=norm), tokenizers).eval()
    rows, targets = [[5, 6, 7], [8]], [[9, 10, 11], [12, 13, 14]]
    both = collate_translation(rows, targets, tokenizers, [0, 1])
    alone = collate_translation(rows[1:], targets[1:], tokenizers, [1])
    with torch.no_grad():
        logits = module(both.source_ids, both.source_mask, both.target_input)
        other = module(alone.source_ids, alone.source_mask, alone.target_input)
        changed = both.target_input.clone()
        changed[:, -1] = 20
        later = module(both.source_ids, both.source_mask, changed)
    torch.testing.assert_close(logits[1:], other, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(logits[:, :-1], later[:, :-1])
    assert not torch.allclose(logits[:, -1], later[:, -1])


@pytest.mark.slow
def test_recorded_steps_are_measured_where_training_has_them(folder, monkeypatch):
    config = config_file.load(folder / "tiny.yaml", ["training.record=true", "training.accumulate=1"])
    rounds = training.TrainingRounds(2, 60, matmul_size=32)
    with pytest.raises(UserError, match=r"training\.record: true needs a CUDA device"):
        training.bench_training(config, folder / "cache", peers=(), rounds=rounds)
    tapes, filled = Tapes(), {}

    def note(system, batches):
        filled.setdefault(type(system), set()).update(batch.is_filled for batch in batches)

    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(recorded, "CudaGraphs", lambda: tapes)
    monkeypatch.setattr(training, "check_record", lambda *_: None)
    watch_updates(monkeypatch, note)
    report = training.bench_training(config, folder / "cache", rounds=rounds)
    assert sum(tape.replays for tape in tapes.made) > 40
    assert filled == {training.OurTraining: {True}, HandLoop: {False}}
    assert training.REMARK_ON_SHAPES in report.notes


def test_peers_have_our_sizes(trained):
    report, _ = trained
    ours, marian = (system["parameters"] for system in report.systems)
    assert abs(marian - ours) <= 4 * 16  # norms at the ends


def test_what_a_peer_cannot_be_is_said(folder):
    config = config_file.load(folder / "tiny.yaml", ["model.activation=swiglu"])
    report = training.bench_training(config, folder / "cache", rounds=training.TrainingRounds(1, 1, matmul_size=32))
    assert list(report.left_out) == ["transformers MarianMTModel"]
    assert "swiglu" in report.left_out["transformers MarianMTModel"]


def test_a_classifier_is_refused(folder):
    config = config_file.load(folder / "tiny.yaml").model_copy(update={"task": "classification"})
    with pytest.raises(UserError, match="classification"):
        training.bench_training(config, folder / "cache")


@pytest.mark.slow
def test_every_system_translates_alike(decoded):
    by_name = {(system["name"], system["work"]): system for system in decoded.systems}
    names = ["seq2seq", "ctranslate2 float32", "ctranslate2 int8", "transformers float32"]
    assert list(by_name) == [(name, search) for search in ("greedy", "beam 3") for name in names]
    assert decoded.work["sentences"] == 6
    assert decoded.work["lines_left_out"] == len(SOURCE) + 1 - 6
    ours = by_name["seq2seq", "greedy"]
    for name in names[1::2] + names[3:]:
        other = by_name[name, "greedy"]
        assert other["same_text"] == 1.0
        assert other["output_tokens"] == ours["output_tokens"]
        assert other["bleu"] == ours["bleu"]
    assert ours["output_tokens"] > 6


@pytest.mark.slow
def test_a_decoding_report_agrees_with_itself(decoded):
    half = len(decoded.systems) // 2
    for first, *others in (decoded.systems[:half], decoded.systems[half:]):
        assert first["sentences_per_second_ratio"] is None
        for other in others:
            for key in ("sentences_per_second", "single_sentences_per_second"):
                pairs = zip(first[key]["rounds"], other[key]["rounds"], strict=True)
                assert other[f"{key}_ratio"]["rounds"] == pytest.approx([our / their for our, their in pairs], rel=2e-3)


@pytest.mark.slow
def test_every_system_has_the_threads_that_were_asked_for(model, monkeypatch):
    before, opened = torch.get_num_threads(), set()
    package = pytest.importorskip("ctranslate2")
    open_translator = package.Translator

    def spy(*given, **named):
        opened.add((named.get("compute_type"), named["inter_threads"], named["intra_threads"]))
        return open_translator(*given, **named)

    monkeypatch.setattr(package, "Translator", spy)
    try:
        report = measure_decoding(model, threads=2, peers=("ctranslate2",))
        assert torch.get_num_threads() == report.machine["threads"] == 2  # CTranslate2 makes it 1
        assert opened == {(kind, *threads) for kind in ("float32", "int8") for threads in ((1, 2), (2, 1))} | {
            (None, 2, 1)
        }
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_a_model_that_marian_cannot_express_is_measured_without_it(tmp_path):
    folder = make_ours(tmp_path / "model", ending=3.0).folder  # pre-norm
    report = measure_decoding(folder, peers=("transformers",))
    assert {system["name"] for system in report.systems} == {"seq2seq"}
    assert "norm_position" in report.left_out["transformers"]


@pytest.mark.parametrize("kind", ["trained", pytest.param("decoded", marks=pytest.mark.slow)])
def test_table_and_document_say_the_same(kind, request):
    report = request.getfixturevalue(kind)
    report = report[0] if kind == "trained" else report
    document = json.loads(json.dumps(report.as_dict()))
    lines = list(report.lines())
    narrow = "\n".join(report.lines(most_columns=40))
    table = [line.split("  ") for line in lines[3 : 4 + len(report.systems)]]
    assert all(cell.strip() in narrow for row in table for cell in row)
    assert list(report.lines(most_columns=500)) == lines
    assert lines[0].startswith("machine: ")
    assert torch.__version__ in lines[0]
    assert document["machine"]["transformers"] in lines[0]
    start = next(number for number, line in enumerate(lines) if line.startswith("system"))
    for system, line in zip(document["systems"], lines[start + 1 :], strict=False):
        assert line.startswith(system["name"])
        for column in report.columns:
            assert column.cell(system) in line
    rate = document["systems"][0][report.columns[1].key if kind == "trained" else report.columns[2].key]
    assert rate["median"] == np.median(rate["rounds"])
    assert rate["low"] <= rate["median"] <= rate["high"]


@pytest.mark.slow
@pytest.mark.parametrize("measure", [measure_training, measure_decoding])
def test_a_missing_peer_is_reported(measure, folder, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    report = measure(folder if measure is measure_training else model)
    (reason,) = report.left_out.values()
    assert "pip install 'seq2seq-toolkit[bench]'" in reason
    assert any(line.startswith("not measured: ") and "seq2seq-toolkit[bench]" in line for line in report.lines())
    assert report.systems[0]["name"] == "seq2seq"


def test_a_server_is_measured_next_to_the_translator(model, folder, capfd, monkeypatch):
    """Every answer is compared, and every request is counted."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (folder / "lines").write_text("\n".join(SOURCE) + "\n")
    typed = f"bench serve {model} -i {folder / 'lines'} --clients 2 --clients 5 --texts 3 --seconds 0.5 --threads 1"
    typed += " --record off"
    assert main([*typed.split(), "--format", "json"]) == 0
    first, *others = json.loads(capfd.readouterr().out)["systems"]
    assert first["answers"] == len(SOURCE)
    assert [system["name"] for system in others] == ["2 clients", "5 clients"]
    for system, count in zip(others, (2, 5), strict=True):
        assert (system["wrong"], system["lost"], system["refused"]) == (0, 0, 0)
        assert system["answers"] >= count
        assert 0 < system["p50_ms"] <= system["p95_ms"]
        ratio = first["sentences_per_second"]["median"] / system["sentences_per_second"]["median"]
        assert system["sentences_per_second_ratio"]["median"] == pytest.approx(ratio, rel=0.01)


@pytest.mark.slow
def test_the_commands_print_one_document(folder, model, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    (folder / "lines").write_text("\n".join(SOURCE) + "\n")
    train = "bench train tiny.yaml --steps 1 --rounds 1 --peer none --batch-tokens 90 --format json"
    assert main(train.split()) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["bench"], document["work"]["batch_tokens"]) == ("train", 90)
    decode = f"bench decode {model} -i lines --rounds 1 --single 1 --sentences 3 --greedy --peer none --threads 1"
    engines = ["--engine", "torch", "--engine", "ctranslate2", "--quantization", "int8"]
    engines += ["--record", "off", "--record", "auto"]
    assert main([*decode.split(), *engines, "--device", "cpu", "--format", "json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["work"]["sentences"] == 3
    assert [(system["name"], system["work"]) for system in document["systems"]] == [
        (f"seq2seq{kind}", "greedy")
        for kind in (" torch record=off", " torch record=auto", " ctranslate2", " ctranslate2 int8")
    ]
