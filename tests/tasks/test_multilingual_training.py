"""Fine-tuning of M2M-100, NLLB and mBART: a step is that of transformers, and a run keeps languages and licence."""

from pathlib import Path

import pytest
import torch
from support.foreign_models import SOURCE, TARGET
from support.multilingual_models import PAIRS, make_multilingual

from seq2seq.config import file as config_file
from seq2seq.data.collate import collate_translation
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
