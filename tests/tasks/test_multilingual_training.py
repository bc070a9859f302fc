"""Fine-tuning of M2M-100, NLLB and mBART: a step is that of transformers, and a run keeps languages and licence."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.foreign_models import SOURCE, TARGET
from support.multilingual_models import PAIRS, make_multilingual

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.data.collate import collate_translation
from seq2seq.data.directions import RowTags
from seq2seq.inference.translator import Translator
from seq2seq.interop.m2m_weights import fill
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import load_model
from seq2seq.tasks.run import train
from seq2seq.tensors import HeldTensors
from seq2seq.text.direction import Direction
from seq2seq.training.loss import translation_loss

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@pytest.mark.parametrize("family", ["nllb", "mbart25"])
def test_a_step_is_that_of_transformers(family, tmp_path):
    """The same loss, of the translation without its tag, and the same optimiser."""
    theirs, _ = make_multilingual(tmp_path, family, dropout=0.0, attention_dropout=0.0)
    ours = load_model(tmp_path).directed(Direction(*PAIRS[family]))
    pair = ours.tokenizers
    batch = collate_translation(
        pair.source.encode_all(SOURCE), pair.target.encode_all(TARGET), pair, range(len(SOURCE))
    )
    labels = batch.target_output.masked_fill(~batch.target_mask, -100)
    for model, loss in (
        (theirs.train(), lambda: _their_loss(theirs, batch, labels)),
        (ours.model.train(), lambda: _our_loss(ours.model, batch)),
    ):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss().backward()
        optimizer.step()
    expected, problems = Transformer(ours.model.config, pair.source.vocab_size, pair.target.vocab_size), []
    fill(expected, HeldTensors(theirs.state_dict()), problems)
    assert not problems
    for name, weight in expected.state_dict().items():
        if name != "output.bias":  # theirs is not trained
            torch.testing.assert_close(ours.model.state_dict()[name], weight, atol=1e-5, rtol=1e-4)


def _their_loss(model, batch, labels):
    logits = model(batch.source_ids, batch.source_mask.long(), decoder_input_ids=batch.target_input).logits
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels)


def _our_loss(model, batch):
    loss = translation_loss(model, batch, smoothing=0.0)
    return loss.total / loss.count


MANY = """
languages: {source: [eng_Latn, deu_Latn], target: [deu_Latn, eng_Latn, fra_Latn], tags: decoder}
data:
  train:
    - {source: a.en, target: a.de, from: eng_Latn, to: deu_Latn, both_ways: true}
    - {source: a.en, target: a.fr, from: en, to: fr, weight: 0.5}
  valid: {en-de: {source: a.en, target: a.de}, de-en: {source: a.de, target: a.en}}
  num_workers: 1
training: {init_from: nllb, max_steps: 90, learning_rate: 0.003, warmup_steps: 1, validate_every: 90, ema: 0.0,
  threads: 1, precision: float32}
search: {beam_size: 1}
"""


BEAM = ("--set", "search.beam_size=2")


def write_many(folder: Path, family: str = "nllb", **made) -> None:
    make_multilingual(folder / "nllb", family, dropout=0.0, attention_dropout=0.0, **made)
    for language, lines in (("en", SOURCE), ("de", TARGET), ("fr", [line.upper() for line in SOURCE])):
        (folder / f"a.{language}").write_text("\n".join(lines * 4) + "\n")
    (folder / "many.yaml").write_text(MANY)


@pytest.mark.parametrize("family", ["m2m100", "nllb", "mbart50"])
def test_a_batch_of_many_directions_has_the_rows_of_batches_of_one(family, tmp_path):
    make_multilingual(tmp_path, family)
    pair = load_model(tmp_path).tokenizers
    sides = PAIRS[family], PAIRS[family][::-1]
    rows = [pair.source.encode_all([line])[0] for line in (SOURCE[0], TARGET[1])]
    tags = RowTags(pair, sides, [1, 1])(np.array([0, 1]))
    mixed = collate_translation(rows, rows, pair, [0, 1], tags)
    for row, direction in enumerate(sides):
        own = pair.directed(Direction(*direction))
        alone = collate_translation(own.source.encode_all([SOURCE[0], TARGET[1]]), rows, own, [0, 1])
        for name in ("source_ids", "source_mask", "target_input", "target_output", "target_mask"):
            assert torch.equal(getattr(mixed, name)[row], getattr(alone, name)[row]), (direction, name)


@pytest.mark.slow
def test_a_run_of_many_directions_starts_from_such_a_folder(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path, noise=0.0, steps=60, d_model=32)
    for name, more in (("run", []), ("trimmed", ["--set", "training.vocabulary.trim=true"])):
        assert main(["train", "many.yaml", "--run-dir", name, *more]) == 0
        assert "eng_Latn-deu_Latn: valid_loss" in (said := capfd.readouterr().err)
        assert "(initial model" in said
        best = load_model(name)
        assert best.description.directions == ("eng_Latn-deu_Latn", "deu_Latn-eng_Latn", "eng_Latn-fra_Latn")
        metrics = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
        losses = [record["valid_loss.deu_Latn-eng_Latn"] for record in metrics if "valid_loss" in record]
        assert losses[-1] < losses[0]
        back = Translator.load(name, engine="torch", source_language="de", target_language="en").translate(TARGET)
        assert sum(one.text == line for one, line in zip(back, SOURCE, strict=True)) > len(SOURCE) / 2
    assert main(["train", "many.yaml", "--run-dir", "run", "--set", "training.max_steps=91", *BEAM]) == 0
    assert "measured_anew" in Path("run", "metrics.jsonl").read_text()
    assert "(initial model" not in capfd.readouterr().err, "it was measured with another search"
    assert set(best.tokenizers.source.tags) == {"eng_Latn", "deu_Latn", "fra_Latn"}
    assert "jpn_Jpan" in load_model("run").tokenizers.source.tags  # the other languages are still there
    assert main(["info", "run"]) == 0
    assert "trained in 3 directions" in capfd.readouterr().out


@pytest.mark.slow
def test_a_model_of_another_toolkit_may_know_directions_that_no_run_has_trained(tmp_path, monkeypatch, capfd):
    """A second fine-tuning takes what the first takes, and nothing is called zero-shot."""
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path, steps=5, d_model=32)
    one = "data.train=[{source: a.en, target: a.fr, from: eng_Latn, to: fra_Latn}]"
    tests = "data.test={t: {source: a.en, target: a.de, from: en, to: de}}"
    for name, initial in (("first", "nllb"), ("second", "first")):
        changes = [one, tests, "training.max_steps=1", "training.validate_every=1", f"training.init_from={initial}"]
        typed = [part for each in changes for part in ("--set", each)]
        assert main(["train", "many.yaml", "--run-dir", name, *typed]) == 0
        Translator.load(name, engine="torch", source_language="de", target_language="en")
        assert main(["bleu", "--model", name]) == 0
        assert "zero-shot" not in "".join(capfd.readouterr())
        assert "zero-shot" not in Path(name, "best", "README.md").read_text()


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        (
            "nllb",
            ("tags: decoder", "tags: source"),
            "languages.tags: source is not what the model of training.init_from has",
        ),
        ("nllb", ("eng_Latn", "en"), "the model of training.init_from names en eng_Latn"),
        ("nllb", ("[eng_Latn, deu_Latn],", "[eng_Latn, deu_Latn, tlh],"), "tlh: not a language of the model"),
        ("mbart25", ("", ""), "has tags at the end; train one direction with source_language"),
    ],
)
def test_a_run_of_many_directions_has_the_languages_of_such_a_folder(
    family, change, words, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path, family)
    Path("many.yaml").write_text(MANY.replace(*change))
    assert main(["train", "many.yaml", "--run-dir", "run"]) == 2
    err = capfd.readouterr().err
    assert words in err
    assert not Path("run/checkpoints").exists()


def test_a_language_that_such_a_folder_lacks_is_named_with_its_key(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path)
    Path("one.yaml").write_text(
        "source_language: en\ntarget_language: germn\ntraining: {init_from: nllb}\n"
        "data: {train: {source: a.en, target: a.de}, valid: {source: a.en, target: a.de}}\n"
    )
    assert main(["train", "one.yaml", "--run-dir", "run"]) == 2
    assert "target_language germn: not a language of the model; did you mean 'german'" in capfd.readouterr().err


@pytest.mark.slow
def test_a_run_starts_from_such_a_folder_and_keeps_its_direction(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_multilingual(tmp_path / "nllb", "nllb", noise=0.0, steps=60, dropout=0.0, attention_dropout=0.0, d_model=32)
    Path("nllb/README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    Path("a.en").write_text("\n".join(SOURCE * 4) + "\n")
    Path("a.lb").write_text("\n".join(TARGET * 4) + "\n")
    Path("tune.yaml").write_text(
        "source_language: en\ntarget_language: ltz_Latn\n"
        "data: {train: {source: a.en, target: a.lb}, valid: {source: a.en, target: a.lb}}\n"
        "training: {init_from: nllb, max_steps: 30, learning_rate: 0.003, warmup_steps: 1, validate_every: 30,\n"
        "  ema: 0.0}\n"
        "search: {beam_size: 1}\n"
    )
    train(config_file.load(Path("tune.yaml")), Path("run"), "s2s train tune.yaml")
    best = load_model("run")
    assert best.description.license == "cc-by-nc-4.0"
    assert "license: cc-by-nc-4.0" in (best.folder / "README.md").read_text()
    tuned = Translator.load("run", engine="torch")  # in the direction of the run
    before = Translator.load("nllb", engine="torch", source_language="en", target_language="lb", beam_size=1)
    texts, old = ([one.text for one in model.translate(SOURCE)] for model in (tuned, before))
    assert sum(a == b for a, b in zip(texts, TARGET, strict=True)) > sum(
        a == b for a, b in zip(old, TARGET, strict=True)
    )
    Translator.load("run", engine="torch", target_language="de")  # the other languages are still there
