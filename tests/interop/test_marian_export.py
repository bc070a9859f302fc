"""Models of ours as Marian folders: transformers gives the same text, and what comes back is the model."""

import pytest
import torch
from support.foreign_models import SOURCE, TARGET
from support.our_models import make_ours as make_any

from seq2seq.cli import main
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import ModelError
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.interop.marian import marian_obstacles, write_marian
from seq2seq.search.base import Sentence
from seq2seq.store.model_folder import load_model
from seq2seq.text.tokenizer import TokenizerPair
from seq2seq.workflows.convert import export_marian

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

OURS = [
    dict(),
    dict(position_layout="interleaved"),
    dict(activation="gelu", tied_embeddings="decoder", output_bias=True, position_layout="interleaved"),
    dict(activation="silu", tied_embeddings="none", scale_embedding=False),
    dict(num_encoder_layers=1, num_decoder_layers=3, shared=False, tied_embeddings="decoder"),
]


def make_ours(folder, **settings):
    """A model that Marian can express, unless `settings` say otherwise."""
    return make_any(folder, **{"norm_position": "post", "position_layout": "halves", **settings})


def our_greedy(ours, lines):
    config = SearchConfig(beam_size=1, max_length_ratio=1e-6, max_length_offset=30, min_length=2)
    engine = TorchEngine(TransformerSteps(ours.model, ours.tokenizers, torch.device("cpu")))
    sentences = [Sentence(ids) for ids in ours.tokenizers.source.encode_all(lines)]
    return [list(found[0].ids) for found in engine.translate(sentences, config)]


@pytest.mark.parametrize("settings", OURS, ids=range(len(OURS)))
def test_a_model_of_ours_becomes_theirs(settings, tmp_path):
    ours = make_ours(tmp_path / "ours", **settings)
    exported = export_marian(tmp_path / "ours", tmp_path / "marian")
    theirs = transformers.MarianMTModel.from_pretrained(exported).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    lines = [*SOURCE, "Ünïcödé 日本 😀"]
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    ids = [[*row, ours.tokenizers.source.eos_id] for row in ours.tokenizers.source.encode_all(lines)]
    assert tokenizer(lines)["input_ids"] == ids
    rows = theirs.generate(**batch, num_beams=1, max_length=31, min_length=3)[:, 1:].tolist()
    end = ours.tokenizers.target.eos_id
    expected = [row[: row.index(end)] if end in row else row for row in rows]
    # At the limit theirs is given an end; until then both say the same.
    assert [row[:29] for row in our_greedy(ours, lines)] == [row[:29] for row in expected]
    texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
    assert [ours.tokenizers.target.decode(row).strip() for row in expected] == texts


@pytest.mark.parametrize("settings", OURS, ids=range(len(OURS)))
def test_a_model_of_ours_comes_back_as_itself(settings, tmp_path):
    ours = make_ours(tmp_path / "ours", **settings)
    again = load_model(export_marian(tmp_path / "ours", tmp_path / "marian"))
    assert type(again.tokenizers) is TokenizerPair
    assert again.tokenizers.fingerprint == ours.tokenizers.fingerprint
    assert again.description.search == ours.description.search
    ids = torch.tensor([ours.tokenizers.source.encode(SOURCE[0])])
    start = torch.tensor([[ours.tokenizers.target.start_id, 5, 6, 7]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        before, after = (one.project(one(ids, mask, start)) for one in (ours.model, again.model))
    # Sinusoids by turns come back in halves: the same numbers, added up in another order.
    assert (before - after).abs().max() < 1e-5
    if settings.get("position_layout") != "interleaved":
        assert again.model.config == ours.model.config.model_copy(update={"preset": None})
        assert torch.equal(before, after)


@pytest.mark.slow
def test_the_preset_marian_trains_straight_to_what_transformers_loads(tmp_path, monkeypatch, capfd):
    """From a config to their text, in the words of a user; the sizes are smaller than the preset's."""
    for name, lines in (("text.en", SOURCE), ("text.de", TARGET)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines * 4), encoding="utf-8")
    sizes = "d_model: 32, num_heads: 2, num_encoder_layers: 1, num_decoder_layers: 1, d_ff: 64"
    (tmp_path / "small.yaml").write_text(
        "source_language: en\ntarget_language: de\n"
        "data: {train: {source: text.en, target: text.de}, valid: {source: text.en, target: text.de}, num_workers: 1,\n"
        "  filters: {drop_duplicates: false}}\n"
        f"tokenizer: {{vocab_size: 320}}\nmodel: {{preset: marian, {sizes}, dropout: 0.0}}\n"
        "training: {max_steps: 120, batch_tokens: 512, learning_rate: 1.0e-2, warmup_steps: 10, validate_every: 120,\n"
        "  label_smoothing: 0.0, threads: 1}\n"
        "search: {beam_size: 1}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["train", "small.yaml"]) == 0
    assert main(["convert", "--to", "marian", "runs/small", "-o", "marian"]) == 0
    capfd.readouterr()
    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in SOURCE))
    assert main(["translate", "runs/small", "-i", "in.en"]) == 0
    ours = capfd.readouterr().out.splitlines()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "marian")
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    rows = theirs.generate(**tokenizer(SOURCE, return_tensors="pt", padding=True), num_beams=1)
    assert ours == tokenizer.batch_decode(rows, skip_special_tokens=True)
    assert ours == TARGET, "learnt by heart"


def test_every_obstacle_is_named(tmp_path):
    ours = make_ours(
        tmp_path / "ours", norm_position="pre", norm="rms", positions="rotary", activation="swiglu", head_dim=6,
        norm_epsilon=1e-6,
    )  # fmt: skip
    with pytest.raises(ModelError) as caught:
        export_marian(tmp_path / "ours", tmp_path / "marian")
    for word in ("norm_position", "norm rms", "positions rotary", "swiglu", "head_dim", "norm_epsilon"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "marian").exists()
    assert len(marian_obstacles(ours.model.config, ours.tokenizers)) == 6
    with pytest.raises(ModelError, match="norm_position"):
        write_marian(tmp_path, ours.description, ours.tokenizers, {})
