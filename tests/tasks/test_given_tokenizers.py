"""`tokenizer.init_from`: a new model has the tokenizers of another one, and a run knows them."""

import json
import shutil
from pathlib import Path

import pytest
from support.multilingual_models import make_multilingual
from support.number_words import CONFIG, WORDS, sentences
from support.our_models import make_ours

import seq2seq
from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.errors import ConfigError
from seq2seq.store.model_folder import load_model

STEPS = ("--set", "training.max_steps=2", "--set", "training.validate_every=2", "--set", "training.checkpoint_every=2")


@pytest.fixture
def teacher(tmp_path, monkeypatch):
    """The folder of an untrained model, next to a corpus and a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    for name, count in (("train", 60), ("valid", 10)):
        rows = sentences(count, count)
        Path(f"{name}.en").write_text("".join(f"{' '.join(row)}\n" for row in rows))
        Path(f"{name}.de").write_text("".join(f"{' '.join(map(WORDS.get, row))}\n" for row in rows))
    Path("toy.yaml").write_text(CONFIG.replace("tokenizer: {vocab_size: 300}", "tokenizer: {init_from: teacher}"))
    make_ours(tmp_path / "teacher")
    return load_model("teacher")


@pytest.mark.slow
def test_a_run_has_the_tokenizers_of_the_model_and_stops_if_they_change(teacher, capsys):
    assert main(["train", "toy.yaml", *STEPS]) == 0
    made = load_model("runs/toy")
    assert made.tokenizers.fingerprint == teacher.tokenizers.fingerprint
    assert made.description.model.d_model == 32
    config = config_file.load(Path("runs/toy/config.yaml"))
    assert config.tokenizer.vocab_size == teacher.tokenizers.source.vocab_size
    assert config.tokenizer.init_from == Path("teacher").resolve()
    assert main(["train", "toy.yaml", *STEPS, "--set", "training.max_steps=3"]) == 0
    assert "tokenizer.init_from" in json.loads(Path("runs/toy/identity.json").read_text())
    shutil.rmtree("teacher")
    shutil.copytree("runs/toy/best", "teacher")
    assert main(["train", "toy.yaml", *STEPS, "--set", "training.max_steps=4"]) == 0, "weights do not matter"
    make_ours(Path("teacher"), False, tied_embeddings="none")
    capsys.readouterr()
    assert main(["train", "toy.yaml", *STEPS, "--set", "training.max_steps=5"]) == 2
    assert "tokenizer.init_from" in capsys.readouterr().err


def test_other_settings_and_models_of_many_languages_are_refused(teacher, tmp_path, capsys):
    assert main(["train", "toy.yaml", *STEPS, "--set", "tokenizer.vocab_size=77"]) == 2
    assert "tokenizer.vocab_size: 77, but the tokenizers of tokenizer.init_from have" in capsys.readouterr().err
    make_multilingual(tmp_path / "many", "nllb")
    assert main(["train", "toy.yaml", *STEPS, "--set", "tokenizer.init_from=many"]) == 2
    assert "tokenizer.init_from: a model of many languages; name it in training.init_from" in capsys.readouterr().err
    many = ["source_language=null", "target_language=null", "languages={source: [en], target: [de, fr]}",
            "data.train={source: train.en, target: train.de, from: en, to: de}", "data.test={}",
            "data.valid={en-de: {source: valid.en, target: valid.de}}"]  # fmt: skip
    assert main(["train", "toy.yaml", *STEPS, *(part for change in many for part in ("--set", change))]) == 2
    assert "tokenizer.init_from: not with languages, whose tags are pieces; leave it out" in capsys.readouterr().err
    make_ours(tmp_path / "two", False, tied_embeddings="none")
    two = ["--set", "tokenizer.init_from=two", "--set", "model.tied_embeddings=all"]
    for more in ([], ["--dry-run"]):
        assert main(["train", "toy.yaml", *STEPS, *two, *more]) == 2
        assert "the tokenizers of tokenizer.init_from have two vocabularies; set it to" in capsys.readouterr().err
    assert not Path("runs/toy").exists()
    assert main(["train", "toy.yaml", *STEPS, *two[:2], "--set", "model.tied_embeddings=decoder", "--dry-run"]) == 0


@pytest.mark.parametrize(
    "change",
    [
        "tokenizer.vocab_size=77",
        "training.freeze=[nothing]",
        "model.tied_embeddings=all",
    ],
)
def test_problems_that_show_next_to_a_model_name_the_file_too(teacher, tmp_path, capsys, change):
    if "tied" in change:
        make_ours(tmp_path / "teacher", False, tied_embeddings="none")
    commands = [["train", "toy.yaml"], ["train", "toy.yaml", "--dry-run"], ["check", "toy.yaml"]]
    for command in commands[: 2 if "freeze" in change else 3]:
        capsys.readouterr()
        assert main([*command, "--set", change]) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
        assert [line for line in lines if line.startswith("s2s: toy.yaml: ")] == lines[-1:], lines
    with pytest.raises(ConfigError, match=r"^toy\.yaml: "):
        seq2seq.train("toy.yaml", changes=dict([change.split("=", 1)]))
