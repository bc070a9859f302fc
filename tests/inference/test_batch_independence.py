"""What stands beside a sentence never changes its translation, and validation is what users measure afterwards."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.number_words import CONFIG, WORDS, sentences

from seq2seq import runtime
from seq2seq.cli import main
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config
from seq2seq.data.collate import collate_translation
from seq2seq.files import shipped_folder
from seq2seq.inference import ctranslate2_engine
from seq2seq.inference.engine import Engine
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.interop.ctranslate2_export import write_ctranslate2
from seq2seq.model.transformer import Transformer
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.translation import TranslationTask
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

pytestmark = pytest.mark.slow
MODES = [
    dict(beam_size=1),
    dict(beam_size=4),
    dict(beam_size=4, n_best=4),
]
MODE_NAMES = ["greedy", "beam", "n-best"]


def phrasebook() -> list[str]:
    """The sentences of the corpus that is always there, both sides, each once."""
    folder = shipped_folder() / "data" / "phrasebook"
    lines = [line for name in ("test", "valid", "train") for line in _lines(folder / f"{name}.en")]
    return list(dict.fromkeys(lines))


def _lines(path: Path) -> Iterator[str]:
    yield from path.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def briefly_trained(made_once) -> tuple[Transformer, TokenizerPair, Config]:
    """A small model that was taught for a moment to repeat sentences: unsure enough for choices to be close."""
    lines = phrasebook()
    config = Config.model_validate(
        {
            "source_language": "en",
            "target_language": "en",
            "data": {"train": {"source": "a", "target": "b"}, "valid": {"source": "a", "target": "b"}},
            "tokenizer": {"vocab_size": 500},
            "model": {"preset": "tiny", "d_model": 48, "d_ff": 96, "num_encoder_layers": 2, "num_decoder_layers": 1},
            "search": {"max_length_ratio": 0.4, "max_length_offset": 3},
        }
    )
    tokenizer = Tokenizer.train(lines[:400], config.tokenizer, seed=1)
    pair = TokenizerPair(tokenizer, tokenizer)
    torch.manual_seed(1)
    model = Transformer(config.model, tokenizer.vocab_size, tokenizer.vocab_size)

    def fill(folder: Path) -> None:
        learn_to_repeat(model, pair, lines)
        folder.mkdir()
        torch.save(model.state_dict(), folder / "weights")

    model.load_state_dict(torch.load(made_once("briefly", fill) / "weights", weights_only=True))
    return model.eval(), pair, config


def learn_to_repeat(model: Transformer, pair: TokenizerPair, lines: list[str]) -> None:
    tokenizer, draw = pair.source, random.Random(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        ids = tokenizer.encode_all(draw.sample(lines, 16))
        batch = collate_translation(ids, ids, pair, range(len(ids)))
        logits = model.project(model(batch.source_ids, batch.source_mask, batch.target_input))
        loss = torch.nn.functional.cross_entropy(logits[batch.target_mask], batch.target_output[batch.target_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Batches:
    """An engine that searches exactly `size` sentences at a time, in the order they come or the longest first."""

    def __init__(self, engine: Engine, size: int, by_length: bool):
        self._engine, self._size, self._by_length = engine, size, by_length
        self.max_length = engine.max_length

    def translate(self, sentences, config):
        order = list(range(len(sentences)))
        if self._by_length:
            order.sort(key=lambda index: -len(sentences[index].source_ids))
        together = config.model_copy(update={"batch_tokens": 10**9})
        found = [None] * len(order)
        for start in range(0, len(order), self._size):
            indices = order[start : start + self._size]
            answers = self._engine.translate([sentences[index] for index in indices], together)
            for index, answer in zip(indices, answers, strict=True):
                found[index] = answer
        return found


@pytest.fixture(params=["torch", "ctranslate2"])
def trained(request, briefly_trained, tmp_path, monkeypatch) -> tuple[Engine, TokenizerPair, Config]:
    """Each engine over the same model."""
    model, pair, config = briefly_trained
    if request.param == "torch":
        return TorchEngine(TransformerSteps(model, pair, torch.device("cpu")), workers=1), pair, config
    write_ctranslate2(tmp_path, model, ModelDescription.of(config), pair, "float32")
    for name in ("SMALLEST_GROUP", "LARGEST_GROUP"):  # it makes no groups of its own
        monkeypatch.setattr(ctranslate2_engine, name, 10**9)
    return ctranslate2_engine.CTranslate2Engine(tmp_path, pair, model.config.max_length), pair, config


def answers(trained, lines: list[str], mode: dict, size: int, by_length: bool = False) -> list[tuple[str, ...]]:
    engine, pair, config = trained
    search = type(config.search).model_validate({**config.search.model_dump(), **mode})
    found = Translator(Batches(engine, size, by_length), pair, search).translate(lines)
    return [(line.text, *(other.text for other in line.alternatives)) for line in found]


def long_sentence(trained) -> str:
    """Of 500 pieces."""
    tokenizer, words = trained[1].source, " ".join(phrasebook()[:200])
    return tokenizer.decode(tokenizer.encode(words)[:500])


def compare(trained, lines: list[str], mode: dict, crowd: int) -> None:
    """Batches of 1, 7 and 64, and of `crowd` with a long sentence in each."""
    alone = answers(trained, lines, mode, size=1)
    assert len(set(alone)) > len(lines) // 20, "the model says something of its own to each"
    for size in (7, 64):
        for by_length in (False, True):
            assert answers(trained, lines, mode, size, by_length) == alone, f"batch {size}, sorted {by_length}"
    beside, long = [], long_sentence(trained)
    for start in range(0, len(lines), crowd - 1):
        beside += [*lines[start : start + crowd - 1], long]
    with_long = zip(beside, answers(trained, beside, mode, crowd), strict=True)
    assert [answer for line, answer in with_long if line != long] == alone, "beside a sentence of 500 pieces"


@pytest.mark.parametrize("mode", MODES, ids=MODE_NAMES)
def test_the_batch_does_not_matter_to_a_sentence(trained, mode, request):
    """Of Multi30k's test set where it is there, else of the phrasebook."""
    compare(trained, _captions(request), mode, crowd=64)


def _captions(request) -> list[str]:
    try:
        folder = request.getfixturevalue("real_data")
    except pytest.skip.Exception:
        return phrasebook()[:64]
    with gzip.open(folder / "multi30k" / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as file:
        return file.read().split("\n")[:64]


# -- validation and the command --------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A run that has learned a little, with its moving average as the model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    for name, count, seed in (("train", 1500, 1), ("valid", 40, 2)):
        rows = sentences(count, seed)
        (tmp_path / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
        translated = [" ".join(WORDS[word] for word in row) for row in rows]
        (tmp_path / f"{name}.de").write_text("".join(f"{row}\n" for row in translated), encoding="utf-8")
    (tmp_path / "toy.yaml").write_text(CONFIG.replace("beam_size: 1", "beam_size: 3"), encoding="utf-8")
    changes = ("max_steps=150", "learning_rate=5e-3", "warmup_steps=20", "validate_every=75", "ema=0.9")
    assert main(["train", "toy.yaml", *(part for change in changes for part in ("--set", f"training.{change}"))]) == 0
    return tmp_path / "runs" / "toy"


def test_validation_and_the_command_give_the_same_figures_to_the_last_digit(run, capfd):
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = max((record for record in records if "bleu" in record), key=lambda record: record["bleu"])
    capfd.readouterr()
    assert 0 < measured["bleu"] < 100
    for metric in ("bleu", "chrf"):
        assert main(["bleu", "--model", str(run), "--engine", "torch", "-m", metric, "-f", "json", "-w", "10"]) == 0
        out, err = capfd.readouterr()
        (record,) = json.loads(out)
        assert record["score"] == round(measured[metric], 10)
        assert "of 40 lines came out degenerate" in err


@pytest.fixture
def task(briefly_trained, tmp_path) -> TranslationTask:
    """The task of the model, with 40 sentences to validate."""
    _, pair, config = briefly_trained
    text = "".join(f"{line}\n" for line in phrasebook()[:40])
    for side in ("a", "b"):
        (tmp_path / side).write_text(text, encoding="utf-8")
    source = config.data.valid.model_copy(update={"source": tmp_path / "a", "target": tmp_path / "b"})
    data = config.data.model_copy(update={"train": (source,), "valid": source, "num_workers": 1})
    inputs = Inputs.open(config.model_copy(update={"data": data}), tmp_path / "cache")
    return TranslationTask(inputs, pair, runtime.Runtime(torch.device("cpu"), torch.float32))


def test_validation_in_16_bits_leaves_the_weights_and_the_loss_alone(briefly_trained, task, monkeypatch):
    """The way of a GPU, taken on a CPU."""
    model, before = briefly_trained[0], {name: weight.clone() for name, weight in briefly_trained[0].named_parameters()}
    expected = task.validate(model).metrics
    for kind, precision in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        task._runtime = runtime.Runtime(torch.device(kind), torch.bfloat16)
        assert task.answer_precision == precision
    task._runtime = runtime.Runtime(torch.device("cpu"), torch.float32)
    monkeypatch.setattr(TranslationTask, "answer_precision", torch.bfloat16)
    decoded, encode = [], type(model).encode

    def noting(self, *arguments):
        decoded.append(next(self.parameters()).dtype)
        return encode(self, *arguments)

    monkeypatch.setattr(type(model), "encode", noting)
    found = task.validate(model).metrics
    assert torch.bfloat16 in decoded
    assert found["valid_loss"] == expected["valid_loss"]
    assert {name: (weight.dtype, weight.tolist()) for name, weight in model.named_parameters()} == {
        name: (torch.float32, weight.tolist()) for name, weight in before.items()
    }


def test_validation_gives_way_when_memory_runs_out(briefly_trained, task):
    """The same loss from halves of a batch that did not fit."""
    model = briefly_trained[0]
    expected = task.validate(model).metrics
    refused = []

    def cramped(module, arguments):
        if len(arguments[0]) > 5:
            refused.append(len(arguments[0]))
            raise torch.OutOfMemoryError("out of memory")

    hook = model.register_forward_pre_hook(cramped)
    try:
        found = task.validate(model).metrics
    finally:
        hook.remove()
    assert refused
    assert found["valid_loss"] == pytest.approx(expected["valid_loss"], rel=1e-6)
    assert {key: value for key, value in found.items() if key != "valid_loss"} == {
        key: value for key, value in expected.items() if key != "valid_loss"
    }
