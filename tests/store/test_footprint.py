"""The memory of a model: known before it is loaded, and a model that a machine cannot hold is refused in one line."""

import json
import struct
from pathlib import Path

import pytest
from support.foreign_models import SOURCE, TARGET, make_marian
from support.multilingual_models import make_multilingual

from seq2seq.cli import main
from seq2seq.errors import ModelError
from seq2seq.store.footprint import WEIGHTS, footprint, machine_memory, shown_bytes
from seq2seq.store.model_folder import load_model, load_outline, save_model

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()


def claim(folder: Path, count: int) -> None:
    """Give a folder weights whose head lists `count` numbers."""
    head = json.dumps({"weight": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(head)) + head)


@pytest.mark.parametrize("count", [1024, 40_000, 2**20, 5 * 2**20, 2**30, 7_000_000_000])
def test_a_shown_size_keeps_its_first_digits(count):
    """It is never shown as 0.0 of a large unit."""
    number, unit = shown_bytes(count).split()
    assert float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit] == pytest.approx(count, rel=0.05)


@pytest.mark.parametrize("make", [make_marian, lambda folder: make_multilingual(folder, "m2m100")])
def test_the_footprint_is_that_of_the_weights(make, tmp_path):
    """In foreign folders and in ours, and in several files."""
    make(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    ours = save_model(tmp_path / "ours", loaded.model.state_dict(keep_vars=True), loaded.description, loaded.tokenizers)
    expected = sum(4 * weight.numel() for weight in loaded.model.parameters())
    assert footprint(ours).loaded == expected
    assert footprint(tmp_path / "theirs").loaded == pytest.approx(expected, rel=0.2)  # positions that ours computes
    single = footprint(ours)
    (ours / WEIGHTS).rename(ours / "model-00001-of-00002.safetensors")
    (ours / "model-00002-of-00002.safetensors").write_bytes((ours / "model-00001-of-00002.safetensors").read_bytes())
    assert footprint(ours).loaded == 2 * single.loaded
    assert single.trained() == 4 * single.loaded == 16 * single.converted


@pytest.mark.parametrize("make", [make_marian, lambda folder: make_multilingual(folder, "nllb")])
def test_info_describes_a_model_without_its_weights(make, tmp_path, monkeypatch, capfd):
    """The size of a model does not matter: only models of Marian, which are small, are loaded."""
    make(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    save_model(tmp_path / "ours", loaded.model.state_dict(keep_vars=True), loaded.description, loaded.tokenizers)
    monkeypatch.setattr("seq2seq.store.footprint.machine_memory", lambda: 100)
    for name in ("theirs", "ours"):
        with pytest.raises(ModelError, match="the weights need"):
            load_model(tmp_path / name)
        if (name, make) == ("theirs", make_marian):
            continue
        outline = load_outline(tmp_path / name)
        assert outline.description == loaded.description.model_copy(update={"license": outline.description.license})
        assert {weight.device.type for weight in outline.model.parameters()} == {"meta"}
        assert main(["info", str(tmp_path / name), "--format", "json"]) == 0
        described = json.loads(capfd.readouterr().out)
        assert described["parameters"] == sum(weight.numel() for weight in loaded.model.parameters())
        assert described["memory"]["float32"] > 100


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\2\0\0\0\0\0\0\0[]", b"\4\0\0\0\0\0\0\0null"])
def test_damaged_weights_have_no_footprint(content, tmp_path):
    (tmp_path / WEIGHTS).write_bytes(content)
    assert footprint(tmp_path) is None
    assert footprint(tmp_path / "nothing") is None


def test_a_model_that_the_machine_cannot_hold_is_refused_before_it_is_loaded(tmp_path, capfd):
    make_marian(tmp_path / "large")
    claim(tmp_path / "large", machine_memory() // 2)
    with pytest.raises(ModelError, match=r"the weights need .* but this machine has .* \(s2s vocabulary trim\)"):
        load_model(tmp_path / "large")
    (tmp_path / "line").write_text("the cat\n")
    capfd.readouterr()
    for command in ("translate", "info"):
        given = ["-i", str(tmp_path / "line")] if command == "translate" else []
        assert main([command, str(tmp_path / "large"), *given]) == 2
        out, err = capfd.readouterr()
        assert not out
        assert "--quantization int8" in err
        assert err.count("\n") == 1


def test_a_model_that_the_machine_cannot_train_is_refused_before_it_is_loaded(tmp_path, capfd):
    make_marian(tmp_path / "large")
    claim(tmp_path / "large", machine_memory() // 8)  # it could be loaded
    for side, lines in (("en", SOURCE), ("de", TARGET)):
        (tmp_path / f"text.{side}").write_text("\n".join(lines) + "\n")
    pair = f"{{source: {tmp_path}/text.en, target: {tmp_path}/text.de}}"
    (tmp_path / "tune.yaml").write_text(
        f"source_language: en\ntarget_language: de\ndata: {{train: {pair}, valid: {pair}}}\n"
        f"training: {{init_from: {tmp_path}/large, device: cpu, max_steps: 1}}\n"
    )
    for more in ([], ["--dry-run"]):
        assert main(["train", str(tmp_path / "tune.yaml"), "--run-dir", str(tmp_path / "run"), *more]) == 2
        err = capfd.readouterr().err
        assert "weights, gradients and optimizer need" in err
        assert "training.freeze" in err
    assert not (tmp_path / "run").exists()
