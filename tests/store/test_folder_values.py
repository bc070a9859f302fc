"""Model folders whose checksums are right and whose contents are not: loaded, or refused in one line, at once.

Every value of every JSON file is replaced by extremes, one at a time; the checksums are written anew each time, so that
it is the content that is looked at. Pipes and devices stand in the place of every file.
"""

import copy
import json
import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import wrong_files
from support.foreign_models import make_marian
from support.multilingual_models import make_multilingual
from support.our_models import make_ours
from support.plain_words import python_words

from seq2seq import hub
from seq2seq.cli import main
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import UserError
from seq2seq.files import record
from seq2seq.inference.classifier import Classifier
from seq2seq.inference.translator import Translator
from seq2seq.store.model_folder import load_model, save_model

VALUES = [
    None, True, 0, -1, 1, 5, 2**24, 2**31, 2**62, 10**18, 10**30, 10**400, 0.5, 1e-308, 1e300, 1e308, float("nan"),
    float("inf"), "", "text", "a\tb", "\ud800", "x" * 100_000, [], [1, 2], ["a", "a"], {}, {"a": 1}, {"a": "b"},
    {"0": "x", "1": "x"}, [[[[]]]],
]  # fmt: skip
LINES = ["A man rides a bicycle.", ""]


def places(value, path=()):
    """The path of every value in a JSON object; lists as a whole."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))


def replaced(value, path, new):
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


def sign(folder: Path) -> None:
    """Write the checksums of a folder's files into its description, where it has some."""
    for name in ("config.json", "seq2seq.json"):
        path = folder / name
        values = json.loads(path.read_text()) if path.is_file() else {}
        if isinstance(values.get("files"), dict):
            values["files"] = {file: record(folder / file) for file in values["files"] if (folder / file).is_file()}
            path.write_text(json.dumps(values))


def is_used_or_told(folder: Path, kind: str) -> None:
    """The folder answers two lines, or is refused in one line of moderate length, in little time."""
    start, told = time.monotonic(), ""
    try:
        if kind == "classifier":
            answers = Classifier.load(folder).classify(LINES)
            assert abs(sum(answers[0].probabilities.values()) - 1) < 1e-6
        else:
            languages = dict(source_language="en", target_language="de") if kind in MULTILINGUAL else {}
            assert len(Translator.load(folder, **languages).translate(LINES)) == len(LINES)
    except UserError as error:
        told = str(error)
    assert "\n" not in told
    assert not python_words(told), told
    assert len(told) < 1000
    assert time.monotonic() - start < 10


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("folders")
    make_ours(folder / "translation", search=SearchConfig(beam_size=2, max_length_ratio=1.0, max_length_offset=3))
    shutil.copytree(wrong_files.fill(tmp_path_factory.mktemp("shelf")) / "classifier", folder / "classifier")
    make_marian(folder / "marian")
    make_multilingual(folder / "mbart", "mbart50")
    loaded = load_model(folder / "mbart")
    save_model(folder / "languages", loaded.model.state_dict(keep_vars=True), loaded.description, loaded.tokenizers)
    return folder


MULTILINGUAL = ("mbart", "languages")
KINDS = {
    "translation": ("config.json", "generation_config.json"),
    "classifier": ("config.json", "generation_config.json"),
    "marian": ("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json"),
    "mbart": ("config.json", "generation_config.json", "tokenizer_config.json"),
    "languages": ("languages.json", "vocab.json"),
}
OTHERS = [kind for kind in KINDS if kind != "translation"]


@pytest.mark.parametrize("number", range(len(VALUES)))
@pytest.mark.parametrize("kind", ["translation", *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)])
def test_every_value_of_a_folder_is_used_or_told(shelf, tmp_path, kind, number):
    folder = tmp_path / "model"
    shutil.copytree(shelf / kind, folder)
    for name in KINDS[kind]:
        original = (folder / name).read_bytes()
        values = json.loads(original)
        every = [path for path in places(values) if path and path[0] != "files"]
        some = every[number % 9 :: 9] if len(every) < 60 else every[number % 80 :: 80]
        for path in some:
            (folder / name).write_text(json.dumps(replaced(values, path, VALUES[number])))
            is_used_or_told(folder, kind)
        (folder / name).write_text(json.dumps(VALUES[number]))
        is_used_or_told(folder, kind)
        (folder / name).write_bytes(original)


def harmed(tensor: torch.Tensor, how: str) -> torch.Tensor:
    match how:
        case "nan" | "inf" | "1e30":
            tensor = tensor.clone()
            tensor.flatten()[0] = float(how)
            return tensor
        case "double":
            return tensor.double() * 1e300
    return tensor.to(getattr(torch, how))


@pytest.mark.parametrize("how", ["nan", "inf", "1e30", "double", "int64", "bool", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_none_are_refused(shelf, tmp_path, kind, how):
    folder = tmp_path / "model"
    shutil.copytree(shelf / kind, folder)
    tensors = load_file(folder / "model.safetensors")
    name = sorted(tensors)[len(tensors) // 2]
    save_file({**tensors, name: harmed(tensors[name], how)}, folder / "model.safetensors", metadata={"format": "pt"})
    sign(folder)
    with pytest.raises(UserError, match=r"tensor .* (has values|has the type)"):
        load_model(folder)


@pytest.mark.parametrize("special", ["fifo", "/dev/zero", "/dev/tty", "folder", "nothing"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_never_read(shelf, tmp_path, kind, special, monkeypatch):
    monkeypatch.setattr(hub, "is_hub_name", lambda name: False)
    for name in sorted(path.name for path in (shelf / kind).iterdir()):
        folder = tmp_path / name
        shutil.copytree(shelf / kind, folder)
        place = folder / name
        for description in ("config.json", "seq2seq.json"):  # a device has no size
            values = json.loads((folder / description).read_text()) if (folder / description).is_file() else {}
            if name in values.get("files", {}):
                values["files"][name]["size"] = 0
                (folder / description).write_text(json.dumps(values))
        place.unlink()
        match special:
            case "fifo":
                os.mkfifo(place)
            case "folder":
                place.mkdir()
            case "nothing":
                place.touch()
            case device:
                place.symlink_to(device)
        is_used_or_told(folder, kind)


def without_piece(model_bytes: bytes, piece: str) -> bytes:
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model_bytes)
    for each in proto.pieces:
        if each.piece == piece:
            each.piece, each.type = "absent", 1
    return proto.SerializeToString()


@pytest.mark.parametrize("piece", ["<s>", "</s>", "<pad>", "<unk>"])
def test_a_tokenizer_without_a_special_piece_is_refused(shelf, tmp_path, piece):
    folder = tmp_path / "model"
    shutil.copytree(shelf / "translation", folder)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(without_piece((folder / name).read_bytes(), piece))
    sign(folder)
    with pytest.raises(UserError, match=r"\.spm"):
        load_model(folder)


@pytest.mark.parametrize("names", [{"0": "x", "1": "x"}, {"negative": "positive"}])
def test_labels_that_are_called_the_same_are_refused(shelf, tmp_path, names):
    folder = tmp_path / "model"
    shutil.copytree(shelf / "classifier", folder)
    values = json.loads((folder / "config.json").read_text())
    first, second, *_ = values["labels"]
    colliding = {first: second} if "negative" in names else {first: "x", second: "x"}
    (folder / "config.json").write_text(json.dumps({**values, "label_names": colliding}))
    with pytest.raises(UserError, match="both called"):
        load_model(folder)


def test_a_vocabulary_size_beyond_the_weights_costs_nothing(shelf, tmp_path, capfd):
    folder = tmp_path / "model"
    shutil.copytree(shelf / "marian", folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "vocab_size": 2**24, "decoder_vocab_size": 2**24}))
    start = time.monotonic()
    assert main(["info", str(folder)]) == 2
    assert time.monotonic() - start < 3
    assert "vocab_size: 16777216" in capfd.readouterr().err
