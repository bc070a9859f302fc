"""Models of other toolkits: read, or one line that says what they are and the way, by every command."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import wrong_files
from support.foreign_models import make_marian
from support.our_models import make_ours
from support.plain_words import python_words

from seq2seq.cli import main
from seq2seq.errors import ModelError
from seq2seq.inference.translator import Translator
from seq2seq.store.finding import find_model
from seq2seq.store.model_folder import load_foreign, load_model


def transformers_folder(model_type):
    return lambda path: write(path / "config.json", json.dumps({"model_type": model_type, "architectures": ["X"]}))


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def pytorch(*keys: str):
    """A file of torch.save with such keys."""

    def make(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({key: torch.zeros(2) for key in keys}, path)

    return make


def argos(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("translate-en_de/metadata.json", "{}")
        archive.writestr("translate-en_de/model/model.bin", "x")


def foreign_ctranslate2(path: Path) -> None:
    write(path / "model.bin", b"\x06\x00\x00\x00")
    write(path / "config.json", '{"add_source_eos": false, "unk_token": "<unk>"}')


def checkpoint(path: Path) -> None:
    write(path / "manifest.json", '{"format_version": 1, "files": {}}')
    write(path / "state.json", '{"step": 6}')


# What is made under a name, and the words that every command answers with.
FORMS = {
    "moe": (transformers_folder("nllb-moe"), ("NLLB-MoE", "OPUS-MT")),
    "t5": (transformers_folder("t5"), ("T5", "OPUS-MT")),
    "bart": (transformers_folder("bart"), ("BART", "OPUS-MT")),
    "llama": (transformers_folder("llama"), ("transformers (llama)", "OPUS-MT")),
    "ct2": (foreign_ctranslate2, ("a CTranslate2 folder of another converter", "s2s convert")),
    "step_00000006": (checkpoint, ("a checkpoint of a run", "s2s average")),
    "adapter": (lambda path: write(path / "adapter_config.json", "{}"), ("LoRA",)),
    "fairseq.pt": (pytorch("args", "fairseq"), ("a checkpoint of fairseq", "OPUS-MT")),
    "fairseq/model.pt": (pytorch("args", "fairseq"), ("a checkpoint of fairseq",)),
    "onmt.pt": (pytorch("generator", "vocab", "opt"), ("OpenNMT-py",)),
    "best.ckpt": (pytorch("model_state", "scheduler_state"), ("JoeyNMT",)),
    "other.pt": (pytorch("weights"), ("a checkpoint of PyTorch",)),
    "pytorch_model.bin": (pytorch("weights"), ("a checkpoint of PyTorch",)),
    "old.pt": (lambda path: write(path, b"\x80\x02}q\x00."), ("a pickle of PyTorch",)),
    "x.gguf": (lambda path: write(path, b"GGUF\x03\x00\x00\x00"), ("GGUF",)),
    "gguf/y.gguf": (lambda path: write(path, b"GGUF\x03\x00\x00\x00"), ("GGUF",)),
    "x.onnx": (lambda path: write(path, b"\x08\x07"), ("ONNX",)),
    "model.npz": (lambda path: write(path, b"\x93NUMPY"), ("Marian's own format",)),
    "sockeye/params.best": (lambda path: write(path, b"x"), ("Sockeye",)),
    "en_de.argosmodel": (argos, ("a package of Argos Translate", "name the model that it was made from")),
    "renamed.zip": (argos, ("a package of Argos Translate",)),
    "archive.zip": (lambda path: zipfile.ZipFile(path, "w").close(), ("archive",)),
    "x.spm": (lambda path: write(path, b"\n\x0e"), ("SentencePiece",)),
}
COMMANDS = {
    "translate": "translate {} -i text",
    "info": "info {}",
    "score": "score {} text text",
    "align": "align {} text text",
    "classify": "classify {} -i text",
    "convert": "convert {} --to ctranslate2 -o new",
    "tune": "tune {} --source text --reference text",
    "bleu": "bleu --model {} --source text --reference text",
    "serve": "serve {} --port 0",
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    write(folder / "text", "A dog.\n")
    for name, (make, _) in FORMS.items():
        make(folder / name)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_the_form_and_the_way(command, shelf, monkeypatch, capfd):
    monkeypatch.chdir(shelf)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, (_, words) in FORMS.items():
        path = str(Path(name).parent) if "/" in name else name
        assert main(COMMANDS[command].format(path).split()) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert not python_words(line)
        for word in (path, *words):
            assert word in line, line


def test_folders_of_ours_are_taken_whatever_is_beside(tmp_path):
    model = wrong_files.save(tmp_path / "model")
    for name in ("old.pt", "x.gguf", "notes.zip", "params.best", "adapter_config.json"):
        write(model / name, b"GGUF")
    assert find_model(model) == model
    load_model(model)
    with pytest.raises(ModelError, match="name the folder of a model"):
        find_model(model / "model.safetensors")


# -- what is read ----------------------------------------------------------------------------------


def sharded(folder: Path, count: int) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = [f"model-{index + 1:05}-of-{count:05}.safetensors" for index in range(count)]
    placed = {name: names[number % count] for number, name in enumerate(tensors)}
    for file in names:
        save_file({name: tensors[name] for name in tensors if placed[name] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("count", [1, 3])
def test_sharded_weights_are_read_through_their_index(count, tmp_path, capfd):
    make_marian(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "sharded")
    sharded(tmp_path / "sharded", count)
    whole, parts = (load_model(tmp_path / name).model.state_dict() for name in ("whole", "sharded"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    lines = ["A man rides a bicycle.", ""]
    both = [[one.text for one in Translator.load(tmp_path / name).translate(lines)] for name in ("whole", "sharded")]
    assert both[0] == both[1]
    assert main(["info", str(tmp_path / "sharded")]) == 0
    assert "sha256" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda index: {}, "weight_map"),
        (lambda index: {"weight_map": {"a": "../x.safetensors"}}, "weight_map"),
        (lambda index: {"weight_map": {"a": "/etc/passwd"}}, "weight_map"),
        (lambda index: {"weight_map": {"a": None}}, "weight_map"),
        (lambda index: {"weight_map": dict.fromkeys(index["weight_map"], "gone.safetensors")}, "gone.safetensors"),
        (lambda index: {"weight_map": {"none": next(iter(index["weight_map"].values()))}}, "no tensor none"),
    ],
)
def test_an_index_that_is_wrong_is_named(harm, words, tmp_path):
    make_marian(tmp_path / "m")
    sharded(tmp_path / "m", 2)
    path = tmp_path / "m" / "model.safetensors.index.json"
    path.write_text(json.dumps(harm(json.loads(path.read_text()))))
    with pytest.raises(ModelError, match=words) as caught:
        load_model(tmp_path / "m")
    assert not python_words(str(caught.value))


@pytest.mark.parametrize(
    ("named", "words"),
    [("../x.bin", "weight_map"), ("x.safetensors", "weight_map"), ("gone.bin", "gone.bin is missing"),
     ("pytorch_model-1.bin", "pytorch_model-1.bin has no tensor b")],
)  # fmt: skip
def test_parts_of_a_pickle_that_are_wrong_are_named(named, words, tmp_path):
    make_marian(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"a": torch.zeros(2)}, tmp_path / "pytorch_model-1.bin")
    index = {"weight_map": {"a": "pytorch_model-1.bin", "b": named}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=words) as caught:
        load_foreign(tmp_path, torch_file=True)
    assert not python_words(str(caught.value))


@pytest.mark.parametrize("value", [[], {}, None])
@pytest.mark.parametrize(
    "key", ["suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "sequence_bias", "constraints"]
)
def test_a_setting_without_content_is_neutral(key, value, tmp_path):
    make_marian(tmp_path / "m")
    path = tmp_path / "m" / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    load_model(tmp_path / "m")


def test_a_run_of_ours_is_not_read_as_marian(tmp_path, capsys):
    run = tmp_path / "run"
    make_ours(run / "best")
    for place in (run, run / "best"):
        assert main(["convert", "--from", "marian", str(place), "-o", str(tmp_path / "out")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{run / 'best'}: a model of seq2seq already" in line
    assert not (tmp_path / "out").exists()
