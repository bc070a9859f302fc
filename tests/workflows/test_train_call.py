"""`seq2seq.train` as a script uses it: changes by key or by section, and what a signal does to the script."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.number_words import CONFIG, sentences

import seq2seq
from seq2seq.config.file import load
from seq2seq.errors import UserError

SIZES = {"model.d_model": 16, "data.test": None}


@pytest.fixture(autouse=True)
def _corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    lines = "".join(f"{' '.join(row)}\n" for row in sentences(60, 1))
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        (tmp_path / name).write_text(lines)
    (tmp_path / "toy.yaml").write_text(CONFIG)


def test_changes_of_a_section_are_those_of_its_keys():
    nested = {"model": {"dropout": 0.2, "d_model": 16}, "data": {"test": None}, "training": {"max_steps": 1}}
    flat = {"model.dropout": 0.2, "model.d_model": 16, "data.test": None, "training.max_steps": 1}
    given = [f"{key}={'null' if value is None else value}" for key, value in flat.items()]
    of_command = load(Path("toy.yaml"), given)
    one, other = (
        load(seq2seq.train("toy.yaml", name, changes=changes).folder / "config.yaml")
        for name, changes in (("nested", nested), ("flat", flat))
    )
    assert one == other
    assert (one.model, one.training, one.data.test) == (of_command.model, of_command.training, of_command.data.test)
    assert (one.model.preset, one.model.num_encoder_layers, one.model.d_model) == ("tiny", 1, 16)


def test_numbers_of_numpy_are_those_of_python():
    changes = {"model.d_model": np.int64(16), "data": {"test": None}, "training": {"learning_rate": np.float32(0.5)}}
    run = seq2seq.train("toy.yaml", "run", overwrite=np.bool_(False), changes=changes, max_steps=np.int32(1))
    settings = load(run.folder / "config.yaml")
    found = settings.model.d_model, settings.training.learning_rate, settings.training.max_steps
    assert found == (16, 0.5, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"changes": {"training.max_steps": 9}, "max_steps": 4}, "training.max_steps: given twice"),
        ({"changes": {"training": {"max_steps": 9}}, "max_steps": 4}, "training.max_steps: given twice"),
        ({"changes": {"model": {"dropout": 0.1}, "model.dropout": 0.2}}, "model.dropout: given twice"),
        ({"changes": ["model.dropout=0.1"]}, "changes: must be values by key"),
        ({"overwrite": "no"}, "overwrite 'no': must be true or false"),
        ({"overwrite": None}, "overwrite null: must be true or false"),
        ({"overwrite": 1}, "overwrite 1: must be true or false"),
    ],
)
def test_a_key_that_is_given_twice_and_a_value_of_another_kind_are_refused(tmp_path, options, said):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=f"^{said}"):
        seq2seq.train("toy.yaml", "run", **options)
    assert (tmp_path / "run" / "mine.txt").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_stops_training_reaches_the_script_after_the_checkpoint(tmp_path, monkeypatch, number):
    received = []

    def note(number, frame):
        received.append(list((tmp_path / "run" / "checkpoints").glob("step_*")))
        signal.default_int_handler(number, frame)

    def send():
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    before = signal.signal(number, note)
    try:
        threading.Thread(target=send, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            seq2seq.train("toy.yaml", "run", changes=SIZES, max_steps=100_000, checkpoint_every=100_000)
    finally:
        signal.signal(number, before)
    ((checkpoint,),) = received
    step = int(checkpoint.name.removeprefix("step_"))
    again = seq2seq.train("toy.yaml", "run", changes=SIZES, max_steps=step + 1)
    assert (again.result.status, again.result.step) == ("finished", step + 1)
