"""Models of other toolkits, recognised by names and content, with the way to use each.

`finding` calls `foreign_form` before a MODEL is opened, so all commands give the same message. No code of a file is
run.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from seq2seq.errors import typed
from seq2seq.files import DamagedFile, read_object
from seq2seq.interop.architectures import FOREIGN
from seq2seq.lines import DAMAGE

_READ = "of other toolkits, s2s reads only folders of transformers with Marian (OPUS-MT), M2M-100, NLLB or mBART"
_AVERAGE = "make a model of it: s2s average {path} -o MODEL"
# Names by `model_type` of config.json, in folders that transformers saved.
_TYPES = {
    "nllb-moe": "NLLB-MoE, whose experts have no counterpart here", "bart": "BART", "t5": "T5",
    "mt5": "mT5", "umt5": "UMT5",
    "fsmt": "fairseq's WMT", "pegasus": "PEGASUS", "encoder-decoder": "encoder-decoder", "seamless_m4t": "SeamlessM4T",
}  # fmt: skip
_MAGIC = {
    b"GGUF": "a GGUF file of llama.cpp",
    b"PK\x03\x04": "a zip archive",
    b"\x80\x02": "a pickle of PyTorch",
    b"\x89HDF": "an HDF5 file of Keras",
    b"%PDF": "a PDF",
    b"\x1f\x8b": "an archive; unpack it first",
}
_SUFFIXES = {
    ".onnx": "an ONNX file", ".npz": "a model of Marian's own format", ".spm": "a SentencePiece model",
    ".bin": "weights of PyTorch or CTranslate2", ".tflite": "a TensorFlow Lite file",
}  # fmt: skip
# Words in the pickle of a PyTorch file that identify the toolkit that wrote it.
_WRITERS = (
    ((b"fairseq",), "a checkpoint of fairseq"),
    ((b"model_state", b"scheduler_state"), "a checkpoint of JoeyNMT"),
    ((b"onmt",), "a model of OpenNMT-py"),
    ((b"generator", b"vocab"), "a model of OpenNMT-py"),
)
_LARGEST_PICKLE = 1 << 24


def foreign_form(path: Path) -> str | None:
    """Describe a file or folder that no command takes as MODEL, with the remedy; None if it may be a model of ours."""
    return _of_file(path) if path.is_file() else next(_of_folder(path), None)


def _of_folder(folder: Path) -> Iterator[str]:
    names = {entry.name for entry in folder.iterdir()}
    if {"manifest.json", "state.json"} <= names:
        yield f"a checkpoint of a run; {_AVERAGE.format(path=typed(folder))}"
    if "config.json" in names:
        try:
            values = read_object(folder / "config.json")
        except DamagedFile:
            return
        kind = values.get("model_type")
        if "model.bin" in names and "seq2seq.json" not in names:
            yield (
                "a CTranslate2 folder of another converter, which lacks information that s2s needs; name the model "
                "that it was made from, or convert that: s2s convert MODEL --to ctranslate2 -o NEW"
            )
        elif isinstance(kind, str) and kind not in FOREIGN and "format" not in values:
            yield f"a model of transformers ({_TYPES.get(kind, kind[:40])}); {_READ}"
    elif "adapter_config.json" in names:
        yield f"an adapter (LoRA), which is a part of a model; {_READ}"
    elif "best" not in names and "checkpoints" not in names:
        for name in sorted(names):
            if Path(name).suffix in (".pt", ".ckpt", ".bin", ".npz", ".onnx", ".gguf", ".argosmodel"):
                yield f"without config.json, but with {name}, {_of_file(folder / name)}"
        if "params.best" in names:
            yield f"a model of Sockeye; {_READ}"


def _of_file(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return None
    if path.suffix == ".argosmodel":
        return "a package of Argos Translate; name the model that it was made from, or serve it with LibreTranslate"
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), _SUFFIXES.get(path.suffix.lower()))
    if kind == "a zip archive":
        kind = _of_archive(path)
    elif path.suffix in (".pt", ".ckpt") and kind is None:
        kind = "a checkpoint of PyTorch"
    elif path.suffix == ".bin" and (path.parent / "config.json").is_file():
        return "a file; name the model folder that it belongs to"
    return kind and f"{kind}; {_READ}"


def _of_archive(path: Path) -> str:
    """Return the toolkit that wrote a zip archive; archives of PyTorch have a pickle with the names of classes and
    keys."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if any(name.endswith("metadata.json") for name in names) and any("/model/" in name for name in names):
                return "a package of Argos Translate"
            pickles = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
            if not pickles:
                return "a zip archive; unpack it first"
            with archive.open(pickles[0]) as file:
                content = file.read(_LARGEST_PICKLE)
    except (*DAMAGE, zipfile.BadZipFile, RuntimeError):
        return "a damaged zip archive"
    written = (kind for words, kind in _WRITERS if all(word in content for word in words))
    return next(written, "a checkpoint of PyTorch")
