"""Small models, and beside them all that can be wrong with a file or folder; tests of wrong usage fill a folder."""

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import save_model
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.workflows.convert import export_marian

TEXTS = ["A man rides a red bicycle.", "Two dogs play in the snow!", "Der Hund schläft."]
CONFIG = """source_language: en
target_language: de
data: {train: {source: text, target: text}, valid: {source: text, target: text}, num_workers: 1}
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 16, num_heads: 2, d_ff: 16, num_encoder_layers: 1, num_decoder_layers: 1}
training: {max_steps: 1, threads: 1, device: cpu}
search: {beam_size: 1, max_length_ratio: 0.1}
"""


def save(folder: Path, seed: int = 0, vocab_size: int = 300, task: str = "translation", **shape: Any) -> Path:
    """A model folder of ours with random weights."""
    torch.manual_seed(seed)
    values = {"task": task, "source_language": "en", "target_language": "de"}
    values |= {"data": {"train": {"tsv": "a"}, "valid": {"tsv": "a"}}, "tokenizer": {"vocab_size": vocab_size}}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "max_length": 64}
    values["model"] = {"preset": "tiny", "d_model": 16, "num_heads": 2, "d_ff": 16, **layers, **shape}
    config = Config.model_validate(values)
    tokenizer = Tokenizer.train([f"{text} {vocab_size}" for text in TEXTS] * 10, config.tokenizer, seed=1)
    pair, labels = TokenizerPair(tokenizer, tokenizer), ()
    if task == "translation":
        model = Transformer(config.model, tokenizer.vocab_size, tokenizer.vocab_size)
    else:
        labels = ("0", "1")
        model = EncoderClassifier(config.model, config.classifier, tokenizer.vocab_size, len(labels))
    return save_model(folder, model.state_dict(), ModelDescription.of(config, labels), pair)


def fill(folder: Path) -> Path:
    """Models in `folder`, and files of every wrong kind."""
    save(folder / "model")
    save(folder / "wider", d_model=32)
    save(folder / "other-words", vocab_size=310)
    save(folder / "classifier", task="classification")
    save(folder / "cut")
    (folder / "cut" / "model.safetensors").write_bytes((folder / "model" / "model.safetensors").read_bytes()[:-100])
    save(folder / "odd")
    (folder / "odd" / "config.json").write_text("[]")
    _fill_foreign(folder)
    (folder / "run" / "checkpoints" / "step_00000001").mkdir(parents=True)
    (folder / "run" / "checkpoints" / "step_00000001" / "manifest.json").write_text("{")
    shutil.copytree(folder / "model", folder / "run" / "best")
    (folder / "run" / "metrics.jsonl").write_text('half a li\n{"step": 1, "loss')
    (folder / "run" / "config.yaml").write_text("data: [")
    (folder / "empty-folder").mkdir()
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter.txt").write_text("do not lose this")
    text = "".join(f"{line} {number}\n" for number in range(80) for line in TEXTS)
    (folder / "text").write_text(text)
    (folder / "shorter").write_text("one line\n")
    (folder / "empty").write_bytes(b"")
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "cut.gz").write_bytes(gzip.compress(text[:400].encode())[:-8])
    (folder / "not.jsonl").write_text('{"en": "a", "de": "b"}\n{"en": \n')
    (folder / "one-column.tsv").write_text("sentence\nhello\n")
    (folder / "label.tsv").write_text("sentence\tlabel\nhello\t7\n")
    (folder / "good.yaml").write_text(CONFIG)
    (folder / "binary.yaml").write_bytes(bytes(range(256)))
    (folder / "empty.yaml").write_text("")
    (folder / "list.yaml").write_text("- 1\n- 2\n")
    (folder / "open.yaml").write_text("data: {train: [\n")
    (folder / "tabs.yaml").write_text("data:\n\ttrain: x\n")
    (folder / "cut.yaml").write_text(CONFIG.replace("train: {source: text", "train: {source: cut.gz"))
    (folder / "unequal.yaml").write_text(
        CONFIG.replace("source: text, target: text", "source: text, target: shorter", 1)
    )
    (folder / "jsonl.yaml").write_text(
        CONFIG.replace("train: {source: text, target: text}", "train: {jsonl: not.jsonl}")
    )
    return folder


def _fill_foreign(folder: Path) -> None:
    """Folders in other toolkits' formats: a whole one of Marian, and what damage and malice make of it."""
    settings = dict(norm_position="post", position_layout="halves", activation="silu", output_bias=True)
    export_marian(save(folder / "classic", **settings), folder / "marian")
    for name in ("marian-cut", "marian-absurd", "marian-traversal", "marian-pickle"):
        shutil.copytree(folder / "marian", folder / name)
    os.truncate(folder / "marian-cut" / "model.safetensors", 999)
    values = json.loads((folder / "marian" / "config.json").read_text())
    (folder / "marian-absurd" / "config.json").write_text(json.dumps({**values, "encoder_layers": 10**9}))
    (folder / "marian-traversal" / "vocab.json").unlink()
    (folder / "marian-traversal" / "vocab.json").symlink_to("/etc/passwd")
    (folder / "marian-pickle" / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Harmful()}, folder / "marian-pickle" / "pytorch_model.bin")
    (folder / "exported").mkdir()
    (folder / "exported" / "config.json").write_text("{}")
    (folder / "exported" / "model.bin").write_bytes(b"not a model")
    (folder / "exported" / "seq2seq.json").write_text('{"format": "seq2seq ctranslate2", "files": ["../kept"]}')


class Harmful:
    """A pickle that would leave a trace if anyone loaded it."""

    def __reduce__(self):
        return (Path.touch, (Path("harm-was-done"),))
