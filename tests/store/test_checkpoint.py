"""What is stored: whole or not there, checked before it is believed, and never able to run code."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.stored_bytes import flip_a_bit, snapshot

from seq2seq import atomic
from seq2seq.errors import CheckpointError, RunError
from seq2seq.store import checkpoint
from seq2seq.tensors import average

TENSORS = {
    "model": {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.zeros(3)},
    "optimizer": {"weight.exp_avg": torch.ones(2, 3)},
}


def save_steps(parent, *steps):
    return [checkpoint.save_checkpoint(parent, step, TENSORS, {"run": {"step": step}}) for step in steps]


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_what_is_saved_comes_back(tmp_path):
    (folder,) = save_steps(tmp_path, 7)
    found = checkpoint.load_checkpoint(folder)
    assert folder.name == "step_00000007"
    assert found.step == 7
    assert found.state["run"] == {"step": 7}
    assert {group: set(named) for group, named in found.tensors.items()} == {
        group: set(named) for group, named in TENSORS.items()
    }
    assert torch.equal(found.tensors["model"]["weight"], TENSORS["model"]["weight"])


def test_the_state_of_a_run_may_be_large(tmp_path):
    """It has the contributions of all validation examples."""
    state = {"run": {"best": "0" * 80_000_000}}
    folder = checkpoint.save_checkpoint(tmp_path, 7, TENSORS, state)
    assert checkpoint.latest_checkpoint(tmp_path) == folder
    assert checkpoint.load_checkpoint(folder).state["run"] == state["run"]


def test_no_checkpoint_is_none_and_the_newest_wins(tmp_path):
    assert checkpoint.latest_checkpoint(tmp_path / "nowhere") is None
    save_steps(tmp_path, 30, 4, 100)
    assert checkpoint.latest_checkpoint(tmp_path).name == "step_00000100"
    assert checkpoint.saved_steps(tmp_path) == [4, 30, 100]


DAMAGES = {
    "truncated weights": lambda folder: os.truncate(folder / "model.safetensors", 40),
    "empty weights": lambda folder: (folder / "model.safetensors").write_bytes(b""),
    "flipped bit in the weights": lambda folder: flip_a_bit(folder / "model.safetensors"),
    "flipped bit in the header": lambda folder: flip_a_bit(folder / "optimizer.safetensors", 0.2),
    "flipped bit in the state": lambda folder: flip_a_bit(folder / "state.json"),
    "missing weights": lambda folder: (folder / "optimizer.safetensors").unlink(),
    "missing state": lambda folder: (folder / "state.json").unlink(),
    "missing manifest": lambda folder: (folder / "manifest.json").unlink(),
    "empty manifest": lambda folder: (folder / "manifest.json").write_text(""),
    "truncated manifest": lambda folder: os.truncate(folder / "manifest.json", 60),
    "manifest of another kind": lambda folder: (folder / "manifest.json").write_text("[1, 2]"),
    "deeply nested manifest": lambda folder: (folder / "manifest.json").write_text("[" * 100_000),
    "empty folder": lambda folder: [path.unlink() for path in folder.iterdir()],
    "another step's content": lambda folder: (
        shutil.rmtree(folder),
        shutil.copytree(folder.parent / "step_00000001", folder),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_seen_named_and_the_one_before_used(tmp_path, caplog, damage):
    good, bad = save_steps(tmp_path, 1, 2)
    damage(bad)
    assert checkpoint.latest_checkpoint(tmp_path) == good
    assert str(bad) in caplog.text
    with pytest.raises(CheckpointError) as failure:
        checkpoint.load_checkpoint(bad)
    assert str(bad) in str(failure.value)
    assert "\n" not in str(failure.value)


def test_every_single_flipped_byte_is_seen(tmp_path):
    _, bad = save_steps(tmp_path, 1, 2)
    for path in sorted(bad.iterdir()):
        content = path.read_bytes()
        for place in range(0, len(content), 7):
            changed = bytearray(content)
            changed[place] ^= 0x10
            path.write_bytes(bytes(changed))
            try:
                assert checkpoint.latest_checkpoint(tmp_path) != bad, f"{path.name} byte {place}"
            except AssertionError:
                # white space and the letters of numbers that mean the same are not damage: the content must be equal
                assert path.name == "manifest.json"
                assert json.loads(changed) == json.loads(content)
        path.write_bytes(content)
    assert checkpoint.latest_checkpoint(tmp_path) == bad


def test_only_damaged_ones_is_an_error_not_a_new_start(tmp_path):
    for folder in save_steps(tmp_path, 1, 2):
        (folder / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"every checkpoint is damaged.*--overwrite"):
        checkpoint.latest_checkpoint(tmp_path)


def test_names_that_lead_out_of_the_folder_are_refused(tmp_path):
    (folder,) = save_steps(tmp_path / "run", 1)
    save_file({"weight": torch.zeros(1)}, tmp_path / "outside.safetensors")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../../outside.safetensors"] = checkpoint.record(tmp_path / "outside.safetensors")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"\.\./\.\./outside"):
        checkpoint.load_checkpoint(folder)


class Stopped(BaseException):
    """Stands for a kill."""


@pytest.mark.parametrize("function", ["fsync", "rename"])
def test_killed_between_write_and_rename_leaves_the_previous_one(tmp_path, monkeypatch, function):
    save_steps(tmp_path, 1)
    before = snapshot(tmp_path)

    def die(*args):
        os._exit(9)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, function, die)
        save_steps(tmp_path, 2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert checkpoint.latest_checkpoint(tmp_path).name == "step_00000001"
    checkpoint.prepare(tmp_path)
    assert snapshot(tmp_path) == before
    save_steps(tmp_path, 2)
    assert checkpoint.latest_checkpoint(tmp_path).name == "step_00000002"


def test_replacing_is_repaired_wherever_it_is_killed(tmp_path, monkeypatch):
    """The old or the new folder is whole after a kill at each rename and each deletion."""
    for function, calls in (("os.rename", 0), ("os.rename", 1), ("shutil.rmtree", 0)):
        parent = tmp_path / f"{function}-{calls}"
        target = parent / "best"
        with atomic.new_folder(target) as temporary:
            (temporary / "file").write_text("old")
        child = os.fork()
        if child == 0:
            module, _, name = function.partition(".")
            original, counter = getattr(sys.modules[module], name), iter(range(calls))

            def dying(*args, original=original, counter=counter, **kwargs):
                return os._exit(9) if next(counter, None) is None else original(*args, **kwargs)

            monkeypatch.setattr(function, dying)
            with atomic.new_folder(target) as temporary:
                (temporary / "file").write_text("new")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert (atomic.standing(target) / "file").read_text() in ("old", "new")
        atomic.remove_leftovers(parent)
        assert (target / "file").read_text() in ("old", "new")
        assert [path.name for path in parent.iterdir()] == ["best"]


def test_prune_keeps_what_it_is_told_and_a_kill_in_it_leaves_no_half(tmp_path, monkeypatch):
    save_steps(tmp_path, 1, 2, 3, 4)
    checkpoint.prune(tmp_path, keep=[2, 4])
    assert checkpoint.saved_steps(tmp_path) == [2, 4]

    def half(path, **_):
        next(iter(Path(path).iterdir())).unlink()
        os._exit(9)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(shutil, "rmtree", half)
        checkpoint.prune(tmp_path, keep=[4])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert checkpoint.saved_steps(tmp_path) == [4]
    checkpoint.prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000004"]


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(tmp_path):
    import resource

    save_steps(tmp_path, 1)
    before = snapshot(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(RunError, match=r"step_00000001: cannot be written") as failure:
            save_steps(tmp_path, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(failure.value)
    assert snapshot(tmp_path) == before
    assert checkpoint.latest_checkpoint(tmp_path) is not None


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot be written"):
        checkpoint.prepare(tmp_path / "file" / "checkpoints")
    with pytest.raises(RunError, match="cannot be written"):
        save_steps(tmp_path / "file" / "checkpoints", 1)


def test_average_is_the_mean_and_leaves_its_arguments_alone():
    states = [
        {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([3.0, 6.0]), "n": torch.tensor(4)},
    ]
    mean = average(states)
    assert torch.equal(mean["w"], torch.tensor([2.0, 4.0]))
    assert mean["n"] == 3
    assert torch.equal(states[0]["w"], torch.tensor([1.0, 2.0]))
