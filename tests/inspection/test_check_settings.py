"""`s2s check CONFIG` and training agree: on the filters, on the initial model, and on the recommended sizes."""

import json
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.our_models import make_ours

from seq2seq.cli import main
from seq2seq.config.file import load
from seq2seq.config.schema import ModelConfig

PAIRS = [(f'He said, "{i} times"', f"Er sagte; {i} mal.") for i in range(100)]
COMMON = [(f"der Hund sieht die Donaudampfschifffahrt {i}", f"the dog sees the steamboat {i}") for i in range(500)]
# Words of one piece against words that are spelled: no rate of pieces for each character tells their ratio.
DRAW = random.Random(1)
ODD = [("Donaudampfschifffahrt", "".join(DRAW.choices("bjkmpqvwxyz", k=n))) for n in range(9, 50)]


def write_config(folder, rows, **settings):
    for side, name in enumerate(("a.en", "a.de")):
        (folder / name).write_text("".join(f"{row[side]}\n" for row in rows))
    part = {"source": "a.en", "target": "a.de"}
    config = {"source_language": "en", "target_language": "de", "data": {"train": part, "valid": part}, "seed": 3}
    config["data"] |= settings.pop("data", {})
    (folder / "run.yaml").write_text(json.dumps(config | settings))
    return str(folder / "run.yaml")


def checked(capfd, *arguments):
    assert main(["check", *arguments]) in (0, 1)
    out, err = capfd.readouterr()
    return out, err


def trained(capfd, folder, *arguments):
    assert main(["train", *arguments, "--dry-run", "--run-dir", str(folder / "run")]) == 0
    return "".join(capfd.readouterr())


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer": {"kind": "bpe", "vocab_size": 500}, "model": {"d_model": 16}},
        {"tokenizer": {"vocab_size": 500}, "model": {"d_model": 16, "max_length": 20}},
        {"training": {"init_from": "START"}},
        {"tokenizer": {"init_from": "START"}, "model": {"d_model": 16}},
    ],
)
def test_the_filters_of_check_drop_what_those_of_training_drop(tmp_path, capfd, settings):
    make_ours(tmp_path / "start")
    settings = json.loads(json.dumps(settings).replace("START", str(tmp_path / "start")))
    path = write_config(tmp_path, COMMON + ODD, data={"filters": {"max_length": 40}}, **settings)
    out, err = checked(capfd, path)
    (kept,) = re.findall(r"the filters[^:]*: (.* kept .*)", out)
    assert "ratio" in kept or "length" in kept
    log = trained(capfd, tmp_path, path)
    assert kept in log
    has_less_room = "max_length" in settings.get("model", {})
    assert ("data.filters.max_length: 19 instead of 40, because model.max_length is 20" in err) == has_less_room
    assert ("data.filters.max_length: 19 instead of 40" in log) == has_less_room


@pytest.mark.parametrize(
    ("source", "size", "are_exact"), [({}, 300, True), ({"noise": {"typos": 0.5}}, 300, False), ({}, 8001, False)]
)
def test_lengths_are_exact_where_the_tokenizers_are_those_of_training(tmp_path, capfd, source, size, are_exact):
    part = {"source": "a.en", "target": "a.de", **source}
    path = write_config(tmp_path, PAIRS, data={"train": part}, tokenizer={"vocab_size": size})
    out, _ = checked(capfd, path, "--format", "json")
    assert json.loads(out)["lengths_are_exact"] == are_exact


SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model": SIZES, "training": {"max_steps": 60}},
        {"model": {"preset": "big", "dropout": 0.25, **SIZES}, "training": {"max_steps": 60, "max_minutes": 1}},
    ],
)
def test_the_advice_is_a_command_that_fits(tmp_path, capfd, settings):
    path = write_config(tmp_path, PAIRS, **settings)
    out, _ = checked(capfd, path)
    advised = dict(re.findall(r"([a-z]+\.[a-z_]+) ([a-z0-9,]+)", re.search("^for .*:(.*)$", out, re.MULTILINE)[1]))
    for key in ("batch_tokens", "warmup_steps", "validate_every"):
        assert re.search(rf"training\.{key} is \d,?\d+; about [\d,]+ would fit", out)
    (command,) = re.findall(r"try: s2s (train .*?[^\\])$", out, re.MULTILINE | re.DOTALL)
    arguments = shlex.split(command.replace("\\\n", " "))[1:]
    config = load(Path(path), arguments[2::2])
    for name, value in advised.items():
        section, key = name.split(".")
        assert str(getattr(getattr(config, section), key)).removesuffix(".0") == value.replace(",", "")
    shape = ModelConfig(preset=config.model.preset)
    assert all(getattr(config.model, key) == getattr(shape, key) for key in SIZES)
    assert config.model.dropout == settings.get("model", {}).get("dropout", shape.dropout)
    assert config.training.max_steps is config.training.max_minutes is None
    trained(capfd, tmp_path, *arguments)
    assert "would fit" not in checked(capfd, *arguments)[0]


def test_the_advised_command_trains_what_was_checked(tmp_path, capfd):
    """It repeats the settings of the check, apart from those that it changes."""
    path = write_config(tmp_path, PAIRS)
    for side, name in enumerate(("b.en", "b.de")):
        (tmp_path / name).write_text("".join(f"{row[side]}\n" for row in COMMON))
    given = [f"data.train.source={tmp_path}/b.en", f"data.train.target={tmp_path}/b.de", "seed=7", "model.dropout=0.3",
             "training.max_steps=60", "training.clip_norm=2.0"]  # fmt: skip
    out, _ = checked(capfd, path, *(part for one in given for part in ("--set", one)))
    (command,) = re.findall(r"try: s2s (train .*?[^\\])$", out, re.MULTILINE | re.DOTALL)
    settings = shlex.split(command.replace("\\\n", " "))[1:][2::2]
    assert [one for one in given if one in settings] == [one for one in given if one != "training.max_steps=60"]
    keys = [one.split("=")[0] for one in settings]
    assert len(keys) == len(set(keys))
    config = load(Path(path), settings)
    assert (config.seed, config.data.train[0].source.name, config.training.max_steps) == (7, "b.en", None)


def test_a_config_without_an_initial_model_needs_no_torch(tmp_path):
    """It would take a second of two."""
    code = "import sys; from seq2seq.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    command = [sys.executable, "-c", code, "check", write_config(tmp_path, PAIRS), "--workers", "1"]
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow
def test_sizes_of_an_initial_model_are_not_advised(tmp_path, capfd):
    """Its vocabulary and its sizes cannot be changed, and it needs fewer epochs than a new model."""
    make_ours(tmp_path / "start")
    start = str(tmp_path / "start")
    out, _ = checked(capfd, write_config(tmp_path, PAIRS, training={"init_from": start}))
    assert not re.search("would fit|try:|vocab_size|preset", out)
    path = write_config(tmp_path, PAIRS, tokenizer={"init_from": start}, training={"max_steps": 60})
    out, _ = checked(capfd, path)
    assert "vocab_size" not in out
    (command,) = re.findall(r"try: s2s (train .*?[^\\])$", out, re.MULTILINE | re.DOTALL)
    trained(capfd, tmp_path, *shlex.split(command.replace("\\\n", " "))[1:])
