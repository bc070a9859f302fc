"""Marian folders: the same numbers and the same text as transformers, and back again."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.foreign_models import LANGUAGES, SOURCE, TARGET, drawn_settings, make_marian, write_tokenizers

from seq2seq import hub
from seq2seq.config.schema import SearchConfig
from seq2seq.data.collate import collate_translation
from seq2seq.errors import ModelError
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.interop.marian import read_marian
from seq2seq.search.base import Sentence
from seq2seq.store.finding import find_model
from seq2seq.store.model_folder import load_model
from seq2seq.text.stored import load_tokenizers
from seq2seq.training.loss import translation_loss
from seq2seq.workflows.convert import export_marian, import_foreign

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SEEDS = range(4)
REAL = Path(os.environ.get("S2S_MODELS", Path(__file__).parents[3] / "shared" / "models")) / "marian-multi30k-small"


@pytest.fixture(scope="module", params=SEEDS)
def drawn(request, tmp_path_factory):
    """A model of a random architecture: the folder, theirs, ours."""
    folder = tmp_path_factory.mktemp("drawn") / "marian"
    theirs = make_marian(folder, request.param, **drawn_settings(random.Random(request.param)))
    return folder, theirs, load_model(folder)


@pytest.fixture(scope="module")
def trained(trained_marian):
    theirs = transformers.MarianMTModel.from_pretrained(trained_marian).eval()
    return trained_marian, theirs, load_model(trained_marian)


def their_tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def their_search(theirs, ours, lines, **options):
    """For each line their best sequence, without start and end, its score and whether it ended."""
    tokenizer = ours.tokenizers
    rows = [[*ids, tokenizer.source.eos_id] for ids in tokenizer.source.encode_all(lines)]
    width = max(map(len, rows))
    ids = torch.tensor([row + [tokenizer.source.pad_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    done = theirs.generate(
        input_ids=ids, attention_mask=mask, max_length=31, output_scores=True, return_dict_in_generate=True, **options
    )
    found = []
    for row in done.sequences[:, 1:].tolist():
        end = row.index(tokenizer.target.eos_id) if tokenizer.target.eos_id in row else len(row)
        found.append((row[:end], end < 29))
    return found, done.get("sequences_scores")


def our_search(ours, lines, **options):
    """The same limit of 30 tokens for all."""
    config = SearchConfig(max_length_ratio=1e-6, max_length_offset=30, early_stopping=True, **options)
    engine = TorchEngine(TransformerSteps(ours.model, ours.tokenizers, torch.device("cpu")))
    return engine.translate([Sentence(ids) for ids in ours.tokenizers.source.encode_all(lines)], config)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [(SOURCE, TARGET)])
def test_logits_and_loss_are_those_of_transformers(drawn, lines):
    _, theirs, ours = drawn
    source, target = (
        tokenizer.encode_all(side)
        for tokenizer, side in zip((ours.tokenizers.source, ours.tokenizers.target), lines, strict=True)
    )
    batch = collate_translation(source, target, ours.tokenizers, range(len(source)))
    labels = batch.target_output.masked_fill(~batch.target_mask, -100)
    with torch.no_grad():
        expected = theirs(batch.source_ids, batch.source_mask.long(), decoder_input_ids=batch.target_input)
        expected_loss = theirs(batch.source_ids, batch.source_mask.long(), labels=labels).loss
        hidden = ours.model(batch.source_ids, batch.source_mask, batch.target_input)
        loss = translation_loss(ours.model, batch, smoothing=0.0)
    difference = (ours.model.project(hidden) - expected.logits)[batch.target_mask].abs().max()
    assert difference < 1e-4
    assert abs(float(loss.total) / loss.count - float(expected_loss)) < 1e-4


def test_greedy_search_gives_their_ids(drawn):
    _, theirs, ours = drawn
    expected, _ = their_search(theirs, ours, SOURCE, num_beams=1)
    found = our_search(ours, SOURCE, beam_size=1)
    compared = [(list(mine[0].ids), ids) for mine, (ids, ended) in zip(found, expected, strict=True) if ended]
    assert all(mine == ids for mine, ids in compared)
    assert all(not ended or mine[0].finished for mine, (_, ended) in zip(found, expected, strict=True))


@pytest.mark.parametrize("length_penalty", [1.0, 0.6])
def test_beam_search_gives_their_ids_and_scores(drawn, length_penalty):
    _, theirs, ours = drawn
    options = dict(num_beams=4, early_stopping=True, length_penalty=length_penalty)
    expected, scores = their_search(theirs, ours, SOURCE, **options)
    found = our_search(ours, SOURCE, beam_size=4, n_best=4, length_penalty=length_penalty)
    compared = 0
    for mine, (ids, ended), score in zip(found, expected, scores.tolist(), strict=True):
        if ended and all(hypothesis.finished for hypothesis in mine):  # at the limit the two differ by design
            compared += 1
            assert list(mine[0].ids) == ids
            assert mine[0].score == pytest.approx(score, abs=1e-4)
    assert compared or not any(ended for _, ended in expected)


def test_a_trained_model_gives_their_text(trained):
    folder, theirs, ours = trained
    tokenizer = their_tokenizer(folder)
    for lines in (SOURCE, [" ".join(reversed(line.split())) for line in SOURCE]):
        for options, beam_size in ((dict(num_beams=1), 1), (dict(num_beams=5, early_stopping=True), 5)):
            expected, _ = their_search(theirs, ours, lines, **options)
            texts = tokenizer.batch_decode([ids for ids, _ in expected], skip_special_tokens=True)
            found = our_search(ours, lines, beam_size=beam_size)
            ours_texts = [ours.tokenizers.target.decode(mine[0].ids) for mine in found]
            ended = [place for place, (_, is_whole) in enumerate(expected) if is_whole]
            assert len(ended) > len(lines) / 2
            assert [ours_texts[place] for place in ended] == [texts[place] for place in ended]
    assert texts != TARGET, "these lines were not learnt by heart"


def test_the_trained_model_was_trained(trained):
    _, _, ours = trained
    found = [ours.tokenizers.target.decode(mine[0].ids) for mine in our_search(ours, SOURCE, beam_size=4)]
    assert found == TARGET


def test_a_real_model_gives_their_text():
    if not REAL.is_dir():
        pytest.skip("needs a Marian model in $S2S_MODELS/marian-multi30k-small")
    lines = ["A man rides a red bicycle.", "Two dogs are playing in the snow.", "The woman in blue reads a book."]
    theirs, ours = transformers.MarianMTModel.from_pretrained(REAL).eval(), load_model(REAL)
    expected, scores = their_search(theirs, ours, lines, num_beams=5, early_stopping=True)
    found = our_search(ours, lines, beam_size=5)
    assert [list(mine[0].ids) for mine in found] == [ids for ids, _ in expected]
    assert [mine[0].score for mine in found] == pytest.approx(scores.tolist(), abs=1e-4)


# -- text ------------------------------------------------------------------------------------------


def test_text_becomes_their_ids_and_ids_their_text(drawn):
    folder, _, ours = drawn
    tokenizer = their_tokenizer(folder)
    odd = ["", " double  space ", "Ünïcödé 日本 😀", "a\u00a0b\u200b", "tab\tand ▁ meta", "no >>deu<< here"]
    for side, lines in (("source", SOURCE + odd), ("target", TARGET + odd)):
        ours_side = getattr(ours.tokenizers, side)
        expected = tokenizer(lines) if side == "source" else tokenizer(text_target=lines)
        assert [[*ids, ours_side.eos_id] for ids in ours_side.encode_all(lines)] == expected["input_ids"]
        assert ours_side.encode_all(lines) == [ours_side.encode(line) for line in lines]
    draw = random.Random(0)
    target = ours.tokenizers.target
    # With two vocabularies transformers takes the source's id of padding for the target's.
    drawable = [id_ for id_ in range(target.vocab_size) if ours.tokenizers.shared or id_ != target.pad_id]
    rows = [draw.choices(drawable, k=draw.randint(0, 12)) for _ in range(40)]
    assert [target.decode(row) for row in rows] == tokenizer.batch_decode(rows, skip_special_tokens=True)


def test_a_target_language_is_one_piece(tmp_path):
    make_marian(tmp_path, languages=LANGUAGES)
    tokenizer, source = their_tokenizer(tmp_path), load_model(tmp_path).tokenizers.source
    for line in (">>deu<< the cat", ">>nld<<the cat", ">>deu<<", "the >>deu<< cat"):
        assert [*source.encode(line), source.eos_id] == tokenizer(line)["input_ids"]
    assert source.pieces(source.encode(">>deu<< the cat"))[0] == ">>deu<<"
    assert source.sample(">>deu<< the cat", random.Random(0), 16, 0.2)[0] == source.encode(">>deu<<")[0]
    # A language that the model does not know is text; transformers makes one unknown piece of it.
    assert len(source.encode(">>xyz<< the cat")) > len(source.encode("the cat")) + 1


def test_sampled_segmentations_are_of_the_same_text(tmp_path):
    write_tokenizers(tmp_path)
    tokenizer = load_tokenizers(tmp_path).source
    sampled = {tuple(tokenizer.sample(SOURCE[0], random.Random(seed), 16, 0.1)) for seed in range(30)}
    assert len(sampled) > 3
    assert {tokenizer.decode(ids) for ids in sampled} == {SOURCE[0]}


def test_special_pieces_in_text_are_text(tmp_path):
    write_tokenizers(tmp_path)
    tokenizer = load_tokenizers(tmp_path).source
    assert not {tokenizer.eos_id, tokenizer.pad_id} & set(tokenizer.encode("the </s> cat <pad>"))


def test_decoding_never_breaks_a_line_and_takes_any_ids(drawn):
    target = drawn[2].tokenizers.target
    text = target.decode([-1, 10**9, *range(target.vocab_size)])
    assert "\n" not in text


# -- our model folders -----------------------------------------------------------------------------


def test_an_imported_model_is_an_ordinary_model_folder(drawn, tmp_path):
    folder, _, ours = drawn
    again = load_model(import_foreign(folder, tmp_path / "model"))
    assert again.tokenizers.fingerprint == ours.tokenizers.fingerprint
    assert again.description == ours.description
    assert again.description.languages == ["en", "de"]
    assert all(torch.equal(again.model.state_dict()[name], weight) for name, weight in ours.model.state_dict().items())
    assert again.tokenizers.shared == ours.tokenizers.shared


def test_the_imported_settings_are_the_folders(tmp_path):
    make_marian(tmp_path, activation_function="swish", dropout=0.3)
    ours = load_model(tmp_path)
    assert ours.model.config.activation == "silu"
    assert ours.model.config.dropout == 0.3
    assert ours.model.config.max_length == 64
    assert ours.description.search.beam_size == 4
    assert ours.tokenizers.target.start_id == ours.tokenizers.target.pad_id == ours.tokenizers.target.vocab_size - 1


def test_rows_of_the_weights_without_a_piece_are_kept(tmp_path):
    make_marian(tmp_path)
    vocabulary = json.loads((tmp_path / "vocab.json").read_text())
    removed = list(vocabulary)[10:13]
    (tmp_path / "vocab.json").write_text(json.dumps({k: v for k, v in vocabulary.items() if k not in removed}))
    ours = load_model(tmp_path)
    assert ours.tokenizers.source.vocab_size == len(vocabulary)
    assert ours.tokenizers.source.pieces([10]) == ["<unused_10>"]
    assert ours.tokenizers.target.decode([10, 4, 11]) == ours.tokenizers.target.decode([4])


# -- out -------------------------------------------------------------------------------------------


def test_importing_an_export_is_the_identity(drawn, tmp_path):
    folder, _, _ = drawn
    description, tokenizers, weights = read_marian(folder)
    again, tokenizers_again, weights_again = read_marian(export_marian(folder, tmp_path / "export"))
    assert again == description
    assert tokenizers_again.fingerprint == tokenizers.fingerprint
    assert set(weights_again) == set(weights)
    assert all(torch.equal(weights_again[name], weight) for name, weight in weights.items())


# -- refusals --------------------------------------------------------------------------------------


def edit(folder, name="config.json", **changes):
    path = folder / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


def test_every_unsupported_setting_is_in_one_message(tmp_path):
    make_marian(tmp_path)
    edit(
        tmp_path, activation_function="tanh", encoder_ffn_dim=48, normalize_before=True, encoder_layerdrop=0.1,
        decoder_start_token_id=5, static_position_embeddings=False,
    )  # fmt: skip
    edit(
        tmp_path, "generation_config.json", repetition_penalty=1.3, do_sample=True, bad_words_ids=[[3, 4]],
        forced_bos_token_id=7,
    )  # fmt: skip
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path)
    for word in (
        "activation_function", "ffn_dim", "normalize_before", "encoder_layerdrop", "decoder_start_token_id",
        "static_position_embeddings", "repetition_penalty", "do_sample", "bad_words_ids", "forced_bos_token_id",
    ):  # fmt: skip
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def damage(folder, change):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


DAMAGES = {
    "a tensor is missing": (lambda f: damage(f, lambda t: t.pop("model.encoder.layers.0.fc1.weight")), "fc1.weight"),
    "a tensor too many": (lambda f: damage(f, lambda t: t.update(extra=torch.zeros(2))), "extra is unexpected"),
    "other positions": (
        lambda f: damage(f, lambda t: t.update({"model.encoder.embed_positions.weight": torch.zeros(64, 16)})),
        "sinusoidal",
    ),
    "a wrong size": (lambda f: edit(f, d_model=32), "shape"),
    "absurd layers": (lambda f: edit(f, encoder_layers=10**9), "encoder_layers: must be"),
    "many layers": (lambda f: edit(f, encoder_layers=900), "far larger"),
    "absurd positions": (lambda f: edit(f, max_position_embeddings=10**9), "max_position_embeddings: must be"),
    "no beams": (lambda f: edit(f, "generation_config.json", num_beams=0), "num_beams: must be"),
    "many positions": (lambda f: edit(f, max_position_embeddings=10**6, d_model=2**14), "table of positions"),
    "no number": (lambda f: edit(f, encoder_layers="six"), "\\bencoder_layers"),
    "vocabulary of another size": (lambda f: edit(f, vocab_size=9, decoder_vocab_size=9), "vocab_size: 9"),
    "no vocabulary": (lambda f: (f / "vocab.json").unlink(), "vocab.json"),
    "vocabulary with holes": (lambda f: (f / "vocab.json").write_text('{"</s>": 0, "<pad>": 1000}'), "ids are not"),
    "vocabulary of texts": (lambda f: (f / "vocab.json").write_text('{"</s>": "0"}'), "vocab.json"),
    "no tokenizer": (lambda f: (f / "source.spm").unlink(), "source.spm.*; copy the model folder again"),
    "damaged config": (lambda f: (f / "generation_config.json").write_text("{"), "generation_config.json"),
    "shortened weights": (lambda f: os.truncate(f / "model.safetensors", 999), "model.safetensors"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_one_line(name, tmp_path):
    make_marian(tmp_path)
    harm, expected = DAMAGES[name]
    harm(tmp_path)
    with pytest.raises(ModelError, match=expected) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value) or name == "vocabulary with holes"


def test_a_pickle_is_refused_with_a_remedy_and_read_only_as_tensors(tmp_path):
    state = make_marian(tmp_path / "marian").state_dict()
    whole = load_model(tmp_path / "marian").model.state_dict()
    (tmp_path / "marian" / "model.safetensors").unlink()
    torch.save(state, tmp_path / "marian" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="--pickle"):
        load_model(tmp_path / "marian")
    again = load_model(import_foreign(tmp_path / "marian", tmp_path / "ours", torch_file=True))
    assert all(torch.equal(again.model.state_dict()[name], weight) for name, weight in whole.items())

    parts = {name: f"pytorch_model-0000{1 + place % 2}-of-00002.bin" for place, name in enumerate(state)}
    for file in set(parts.values()):
        torch.save({name: state[name] for name in parts if parts[name] == file}, tmp_path / "marian" / file)
    (tmp_path / "marian" / "pytorch_model.bin").rename(tmp_path / "whole.bin")
    (tmp_path / "marian" / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": parts}))
    with pytest.raises(ModelError, match=r"has pytorch_model.bin.index.json and no .*--pickle"):
        load_model(tmp_path / "marian")
    again = load_model(import_foreign(tmp_path / "marian", tmp_path / "of-parts", torch_file=True)).model.state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in whole.items())

    class Harmful:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"model.shared.weight": Harmful()}, tmp_path / "marian" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="plain tensors"):
        import_foreign(tmp_path / "marian", tmp_path / "other", torch_file=True)
    assert not (tmp_path / "ran").exists()


# -- the hub ---------------------------------------------------------------------------------------


def test_what_can_be_a_name_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert hub.is_hub_name("Helsinki-NLP/opus-mt-en-de")
    assert hub.is_hub_name(Path("Helsinki-NLP/opus-mt-en-de"))
    for name in ("runs/none", "none", "a/b/c", "/a/b", "../b", "a/", ""):
        assert not hub.is_hub_name(name)


@pytest.mark.slow
def test_a_model_of_the_hub_comes_from_its_cache_without_a_network(tmp_path):
    """In a process of its own, because the hub's settings are read when it is imported."""
    snapshot = tmp_path / "cache" / "models--someone--opus" / "snapshots" / ("0" * 40)
    make_marian(snapshot)
    (tmp_path / "cache" / "models--someone--opus" / "refs").mkdir()
    (tmp_path / "cache" / "models--someone--opus" / "refs" / "main").write_text("0" * 40)
    script = "import sys; from seq2seq.store.model_folder import *; print(load_model(sys.argv[1]).description.task)"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", script, "someone/opus"]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        command, env=environment | {"PYTHONPATH": root}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "translation"


def test_a_model_that_is_nowhere_is_one_line(tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="hub") as caught:
        find_model("someone/nothing-of-that-name")
    assert "\n" not in str(caught.value)


def test_a_pair_is_shared_by_its_vocabulary(tmp_path):
    write_tokenizers(tmp_path / "one")
    write_tokenizers(tmp_path / "two", separate=True)
    assert load_tokenizers(tmp_path / "one").shared
    assert not load_tokenizers(tmp_path / "two").shared
