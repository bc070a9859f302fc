"""Model folders: they come back as they were, or are refused in one line, and never run code."""

import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.our_models import make_ours
from support.stored_bytes import flip_a_bit, snapshot
from support.tokenizer_kinds import KINDS, pair_of_kind

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.corpora import SourceConfig
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import ClassifierConfig, Config, TokenizerConfig
from seq2seq.errors import ModelError, RunError
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.transformer import Transformer
from seq2seq.store import checkpoint
from seq2seq.store.finding import find_model
from seq2seq.store.model_card import DataRecord, ScoreRecord, model_card
from seq2seq.store.model_folder import load_model, save_model, update_search, update_settings
from seq2seq.tensors import distinct
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

# -- model folders -----------------------------------------------------------------------------------------------------

SIZES = dict(preset=None, d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=32, max_length=64)


@pytest.fixture(scope="module")
def tokenizer():
    texts = [f"the {number} cats see {number % 7} small dogs in the garden" for number in range(200)]
    return Tokenizer.train(texts, TokenizerConfig(vocab_size=320, kind="bpe"), seed=1)


def config(task="translation", **model):
    source = {"source": Path("a"), "target": Path("b")} if task == "translation" else {"tsv": Path("a")}
    languages = {"source_language": "en", "target_language": "no"} if task == "translation" else {}
    return Config(task=task, **languages, data={"train": source, "valid": source}, model={**SIZES, **model})


def save_translation(folder, tokenizer, **model):
    settings = config(**model)
    torch.manual_seed(3)
    module = Transformer(settings.model, tokenizer.vocab_size, tokenizer.vocab_size).eval()
    pair = TokenizerPair(tokenizer, tokenizer)
    save_model(folder, module.state_dict(), ModelDescription.of(settings, metrics={"bleu": 1.5}), pair, "# card\n")
    return module


@pytest.mark.parametrize("tied", ["none", "decoder", "all"])
def test_a_model_comes_back_as_it_was(tmp_path, tokenizer, tied):
    module = save_translation(tmp_path / "model", tokenizer, tied_embeddings=tied)
    loaded = load_model(tmp_path / "model")
    assert loaded.description == ModelDescription.of(config(tied_embeddings=tied), metrics={"bleu": 1.5})
    assert loaded.tokenizers.source.fingerprint == tokenizer.fingerprint
    assert loaded.tokenizers.shared
    assert not loaded.model.training
    stored = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (stored["format"], stored["format_version"]) == ("seq2seq model", 1), "folders of today are read tomorrow"
    expected, found = module.state_dict(), loaded.model.state_dict()
    assert list(expected) == list(found)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert len(stored) == len(distinct(expected))
    same = loaded.model.output.weight.data_ptr() == loaded.model.decoder.embedding.tokens.weight.data_ptr()
    assert same == (tied != "none")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "README.md", "config.json", "generation_config.json", "model.safetensors", "source.spm", "target.spm",
    ]  # fmt: skip


def test_a_classifier_comes_back_as_it_was(tmp_path, tokenizer):
    settings = config("classification")
    module = EncoderClassifier(settings.model, ClassifierConfig(), tokenizer.vocab_size, 3).eval()
    pair = TokenizerPair(tokenizer, tokenizer)
    labels = ("bad", "good", "so-so")
    save_model(tmp_path / "m", module.state_dict(), ModelDescription.of(settings, labels), pair)
    loaded = load_model(tmp_path / "m")
    assert loaded.description == ModelDescription.of(settings, labels)
    assert loaded.tokenizers.source is loaded.tokenizers.target
    assert not (tmp_path / "m" / "target.spm").exists()
    ids, mask = torch.tensor([[1, 20, 30, 2]]), torch.ones(1, 4, dtype=torch.bool)
    assert torch.equal(loaded.model(ids, mask), module(ids, mask))


def test_tuned_settings_stay_until_those_of_the_run_change(tmp_path, tokenizer, caplog):
    caplog.set_level("INFO", "seq2seq")
    save_translation(tmp_path / "m", tokenizer)
    own, path = config(), tmp_path / "m" / "generation_config.json"
    update_settings(tmp_path / "m", own)
    before = path.read_bytes()
    for beam in (2, 3):  # tuned again
        update_search(tmp_path / "m", {"beam_size": beam}, {"metric": "bleu", "beam_size": beam})
    tuned = path.read_bytes()
    update_settings(tmp_path / "m", own)
    assert path.read_bytes() == tuned
    assert "s2s tune" not in caplog.text
    other = own.model_copy(update={"search": own.search.model_copy(update={"length_penalty": 1.7})})
    update_settings(tmp_path / "m", other)
    values = json.loads(path.read_text())
    assert (values["search"]["length_penalty"], values["search"]["beam_size"]) == (1.7, own.search.beam_size)
    assert "tuned" not in values
    assert caplog.text.count(f"to choose new ones after training: s2s tune {tmp_path / 'm'}") == 1
    update_settings(tmp_path / "m", own)
    assert path.read_bytes() == before
    assert caplog.text.count("s2s tune") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_comes_back_with_tokenizers_of_every_kind(tmp_path, kind):
    """The tokenizers of a model of many languages, from which it was trained, have their languages in a file."""
    settings, pair = config("classification"), pair_of_kind(kind, "unigram")
    module = EncoderClassifier(settings.model, ClassifierConfig(), pair.source.vocab_size, 2).eval()
    save_model(tmp_path / "m", module.state_dict(), ModelDescription.of(settings, ("bad", "good")), pair)
    loaded = load_model(tmp_path / "m").tokenizers
    assert loaded.source.fingerprint == pair.undirected.source.fingerprint
    assert loaded.source.read("a small house") == pair.undirected.source.read("a small house")


def test_loading_draws_no_random_numbers(tmp_path, tokenizer):
    save_translation(tmp_path / "m", tokenizer)
    before = torch.get_rng_state()
    load_model(tmp_path / "m")
    assert torch.equal(before, torch.get_rng_state())


def test_a_model_moves_as_one_thing_and_a_run_stands_for_its_best(tmp_path, tokenizer, monkeypatch):
    save_translation(tmp_path / "runs" / "demo" / "best", tokenizer)
    assert find_model(tmp_path / "runs" / "demo") == tmp_path / "runs" / "demo" / "best"
    (tmp_path / "runs" / "latest").symlink_to("demo")
    monkeypatch.chdir(tmp_path)
    assert find_model(None).samefile(tmp_path / "runs" / "demo" / "best")
    shutil.move(tmp_path / "runs" / "demo" / "best", tmp_path / "elsewhere")
    assert load_model(tmp_path / "elsewhere").description.task == "translation"


def test_a_best_folder_whose_replacement_was_killed_is_found(tmp_path, tokenizer):
    save_translation(tmp_path / "demo" / "best", tokenizer)
    os.rename(tmp_path / "demo" / "best", tmp_path / "demo" / ".best.123-0123abcd01234567-0.old")
    assert load_model(tmp_path / "demo").description.task == "translation"


class Exploit:
    """A pickle that would leave a trace if anyone loaded it."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (Path(self.trace),))


def edit(folder, name, **values):
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**content, **values}))


def edit_model(folder, **values):
    edit(folder, "config.json", model={**json.loads((folder / "config.json").read_text())["model"], **values})


def replace_weights(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    files = json.loads((folder / "config.json").read_text())["files"]
    edit(folder, "config.json", files={**files, "model.safetensors": checkpoint.record(folder / "model.safetensors")})


def other_tokenizer(folder):
    texts = [f"ein {number} anderer Text mit anderen Wörtern" for number in range(100)]
    Tokenizer.train(texts, TokenizerConfig(vocab_size=320, kind="bpe"), seed=1).save(folder / "source.spm")


def traversal(folder):
    files = json.loads((folder / "config.json").read_text())["files"]
    edit(folder, "config.json", files={**files, "../../etc/passwd": {"sha256": "", "size": 1}})


def planted(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit(folder.parent / "trace")))


HOSTILE = {
    "weights missing": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
    "config missing": (lambda f: (f / "config.json").unlink(), "not a model folder"),
    "tokenizer missing": (lambda f: (f / "target.spm").unlink(), "target.spm"),
    "generation missing": (lambda f: (f / "generation_config.json").unlink(), "generation_config.json"),
    "weights truncated": (lambda f: os.truncate(f / "model.safetensors", 500), "model.safetensors has 500 bytes"),
    "weights flipped": (lambda f: flip_a_bit(f / "model.safetensors"), "changed after it was written"),
    "another tokenizer": (other_tokenizer, "source.spm"),
    "not json": (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
    "not an object": (lambda f: (f / "config.json").write_text("[]"), "not a JSON object"),
    "nested too deeply": (lambda f: (f / "config.json").write_text('{"a":' * 100_000), "not JSON"),
    "another format": (lambda f: edit(f, "config.json", format="x"), "not that of a seq2seq model"),
    "a newer format": (lambda f: edit(f, "config.json", format_version=99), "update seq2seq"),
    "another task": (lambda f: edit(f, "config.json", task="poetry"), "poetry"),
    "marian": (lambda f: edit(f, "config.json", model_type="marian"), "vocab.json"),
    "unknown size key": (lambda f: edit_model(f, d_modle=3), "d_modle"),
    "size of another type": (lambda f: edit_model(f, d_model="16"), "d_model"),
    "absurd layers": (lambda f: edit_model(f, num_encoder_layers=10**9), "num_encoder_layers: must be"),
    "many layers": (lambda f: edit_model(f, num_encoder_layers=900), "far larger"),
    "absurd width": (lambda f: edit_model(f, d_model=10**12), "d_model: must be"),
    "absurd feed-forward": (lambda f: edit_model(f, d_ff=10**11), "d_ff: must be"),
    "large feed-forward": (lambda f: edit_model(f, d_ff=10**6), "has shape"),
    "absurd positions": (lambda f: edit_model(f, max_length=10**10), "max_length: must be"),
    "many positions": (lambda f: edit_model(f, max_length=10**6, d_model=2**14), "table of positions"),
    "other width": (lambda f: edit_model(f, d_model=32), "has shape"),
    "other depth": (lambda f: edit_model(f, num_encoder_layers=2), "missing"),
    "pickle as weights": (lambda f: replace_weights(f, pickle.dumps(Exploit(f.parent / "trace"))), "not a whole safe"),
    "absurd header": (lambda f: replace_weights(f, struct.pack("<Q", 2**62) + b"{}"), "not a whole safetensors"),
    "empty weights": (lambda f: replace_weights(f, b""), "not a whole safetensors"),
    "planted pickle": (planted, "pytorch_model.bin is not read"),
    "path traversal": (traversal, "does not list the files"),
    "search out of range": (lambda f: edit(f, "generation_config.json", search={"beam_size": 0}), "beam_size"),
    "other special ids": (lambda f: edit(f, "generation_config.json", eos_id=9), "eos_id"),
}


@pytest.mark.parametrize(("change", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_broken_or_hostile_folder_is_one_line(tmp_path, tokenizer, change, words):
    folder = tmp_path / "model"
    save_translation(folder, tokenizer)
    change(folder)
    with pytest.raises(ModelError) as failure:
        load_model(folder)
    assert words in str(failure.value)
    assert str(folder) in str(failure.value)
    assert "\n" not in str(failure.value)
    assert not (tmp_path / "trace").exists()


def test_a_pickle_beside_a_whole_model_is_left_alone(tmp_path, tokenizer):
    save_translation(tmp_path / "model", tokenizer)
    for name in ("pytorch_model.bin", "optimizer.pt", "state.pkl"):
        (tmp_path / "model" / name).write_bytes(pickle.dumps(Exploit(tmp_path / "trace")))
    load_model(tmp_path / "model")
    assert not (tmp_path / "trace").exists()


def test_missing_models_are_named(tmp_path, tokenizer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no run under runs/"):
        find_model(None)
    save_translation(tmp_path / "multi30k", tokenizer)
    with pytest.raises(ModelError, match="did you mean 'multi30k'"):
        find_model(tmp_path / "multi3k")
    with pytest.raises(ModelError, match="a file"):
        find_model(tmp_path / "multi30k" / "config.json")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ModelError, match="no best model yet"):
        find_model(tmp_path / "run")


def test_a_full_disk_leaves_the_model_that_was_there(tmp_path, tokenizer):
    import resource

    save_translation(tmp_path / "model", tokenizer)
    before = snapshot(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(RunError, match="cannot be written"):
            save_translation(tmp_path / "model", tokenizer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert snapshot(tmp_path) == before


def test_the_card_says_where_the_model_comes_from(tmp_path):
    from ruamel.yaml import YAML

    card = model_card(
        config(),
        title="en-no: a | b",
        command="s2s train configs/demo.yaml",
        num_parameters=12345,
        step=900,
        data=[DataRecord("train", "corpus.en", 15000, "abc123")],
        scores=[ScoreRecord("test_2016", "bleu", 36.25, "nrefs:1|case:mixed")],
    )
    _, front, body = card.split("---\n", 2)
    values = YAML(typ="safe").load(front)
    assert values["language"] == ["en", "no"]
    assert values["model-index"][0]["results"][0]["metrics"][0] == {"type": "bleu", "value": 36.25}
    for text in ("s2s train configs/demo.yaml", "abc123", "15,000", "36.25", "12,345"):
        assert text in body


def test_the_card_is_rendered_as_it_was_meant(tmp_path):
    """Bars in names and signatures end no cell, and a name that is no UTF-8 is shown as well as it can be."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"
    here = SourceConfig(source=tmp_path / "a.en", target=Path("b|c.de"))
    settings = config()
    dataset = SourceConfig(hub=str(tmp_path / "reviews"))
    settings = settings.model_copy(update={"data": settings.data.model_copy(update={"train": (here, dataset)})})
    card = model_card(
        settings,
        title="caf\udce9",
        command="s2s train '```\n# no heading' caf\udce9",
        num_parameters=1,
        step=1,
        data=[DataRecord("train|1", "a|b\nc.en", 1, "abc")],
        scores=[ScoreRecord("news|2016", "bleu", 1.0, signature), ScoreRecord("news", "accuracy", 2.0)],
    )
    assert card.encode().decode() == card
    html = markdown.render(card.split("---\n", 2)[2])
    cells = re.findall("<t[dh].*?>(.*?)</t[dh]>", html)
    assert cells[4:8] == ["train|1", "a|b c.en", "1", "<code>abc</code>"]
    assert cells[12:] == [
        "news|2016", "bleu", "1.00", f"<code>{signature}</code>", "news", "accuracy", "2.00", "",
    ]  # fmt: skip
    assert html.count("<h1>") == 1
    assert "caf\ufffd" in html
    assert str(tmp_path) not in card
    for name in ("a.en", "b|c.de", "a", "b"):
        (tmp_path / name).write_text("a line\n")
    described = card.split("```yaml\n")[1].split("```")[0]
    assert "source: a.en" in described
    assert "hub: reviews\n" in described
    assert config_file.parse(described, "card", tmp_path).model == settings.model


def test_reading_and_writing_need_no_pickle():
    """No module of storage imports pickle or calls torch.load or torch.save."""
    package = Path(checkpoint.__file__).parent.parent
    for name in ("store/checkpoint.py", "store/model_folder.py", "tensors.py", "files.py", "atomic.py"):
        text = (package / name).read_text()
        assert "pickle" not in text.replace("pickles", "").replace("pickle files", "")
        assert "torch.load" not in text
        assert "torch.save" not in text


def test_a_read_only_folder_is_one_line():
    """As an ordinary user: the superuser may write everywhere."""
    script = """
import os, sys, tempfile, torch
from pathlib import Path
from seq2seq.store import checkpoint
from seq2seq.errors import RunError
import safetensors.torch
folder = Path(tempfile.mkdtemp())
os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    checkpoint.save_checkpoint(folder, 1, {"model": {"w": torch.zeros(2)}}, {})
except RunError as error:
    print(error)
print(sorted(folder.iterdir()))
"""
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    message, left = found.stdout.strip().splitlines()
    assert "cannot be written (Permission denied)" in message
    assert left == "[]"


def test_models_of_different_directions_have_no_mean(tmp_path, capsys):
    loaded = make_ours(tmp_path / "one")
    for language in ("fr", "pt_BR"):
        other = loaded.description.model_copy(update={"target_language": language})
        save_model(tmp_path / language, loaded.weights, other, loaded.tokenizers)
        assert main(["average", str(tmp_path / "one"), str(tmp_path / language), "-o", str(tmp_path / "mean")]) == 2
        told = f"translates en-{language}, but {tmp_path / 'one'} translates en-de; average models of one direction"
        assert told in capsys.readouterr().err
        assert not (tmp_path / "mean").exists()
