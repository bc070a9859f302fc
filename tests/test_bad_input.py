"""Whatever a user gives that is wrong: one line, exit 2 (or 1), no traceback, nothing overwritten. Every command.

Each row of the table is a command line; the folder that it runs in holds files of every wrong kind. Then the readers of
configurations and JSON lines, fed with what hypothesis makes up.
"""

import gzip
import shutil
from pathlib import Path

import pytest
import torch

from seq2seq.cli import VERBS, main
from seq2seq.config import Config
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.transformer import Transformer
from seq2seq.model_folder import save_model
from seq2seq.tokenizer import Tokenizer, TokenizerPair

TEXTS = ["A man rides a red bicycle.", "Two dogs play in the snow!", "Der Hund schläft."]
CONFIG = """source_language: en
target_language: de
data: {train: {source: text, target: text}, valid: {source: text, target: text}, num_workers: 1}
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 16, num_heads: 2, d_ff: 16, num_encoder_layers: 1, num_decoder_layers: 1}
training: {max_steps: 1, threads: 1, device: cpu}
"""


def save(folder: Path, seed: int = 0, vocab_size: int = 300, task: str = "translation", **shape: int) -> Path:
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
    return save_model(folder, model_state=model.state_dict(), config=config, tokenizers=pair, labels=labels)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """Models, and files of every wrong kind."""
    folder = tmp_path_factory.mktemp("shelf")
    save(folder / "model")
    save(folder / "wider", d_model=32)
    save(folder / "other-words", vocab_size=310)
    save(folder / "classifier", task="classification")
    save(folder / "cut")
    (folder / "cut" / "model.safetensors").write_bytes((folder / "model" / "model.safetensors").read_bytes()[:-100])
    save(folder / "odd")
    (folder / "odd" / "config.json").write_text("[]")
    (folder / "run" / "checkpoints" / "step_00000001").mkdir(parents=True)
    (folder / "run" / "checkpoints" / "step_00000001" / "manifest.json").write_text("{")
    shutil.copytree(folder / "model", folder / "run" / "best")
    (folder / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\nhalf a li\n{"step": 3, "loss": 1.0}\n')
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


# A row: what is typed, and a word of the answer.
TABLE = {
    "train": [
        ("missing.yaml", "missing.yaml"),
        ("thesis", "thesis"),
        ("binary.yaml", "UTF-8"),
        ("empty.yaml", "data"),
        ("list.yaml", "mapping"),
        ("open.yaml", "YAML"),
        ("tabs.yaml", "line 2"),
        ("binary", "UTF-8"),
        ("good.yaml extra", "extra"),
        ("good.yaml --set", "--set"),
        ("good.yaml --set training.max_steps", "KEY=VALUE"),
        ("good.yaml --set training.max_steps=0", "max_steps"),
        ("good.yaml --set training.max_steps=many", "max_steps"),
        ("good.yaml --set training.max_steps=1e400", "max_steps"),
        ("good.yaml --set training.learning_rate=.nan", "learning_rate"),
        ("good.yaml --set training.betas=[0.9]", "betas"),
        ("good.yaml --set training=5", "training"),
        ("good.yaml --set data.train=5", "data.train"),
        ("good.yaml --set training.device=abacus", "abacus"),
        ("good.yaml --set training.device=cuda:99", "cuda"),
        ("good.yaml --set training.precision=float8", "float8"),
        ("good.yaml --set training.threads=0", "threads"),
        ("good.yaml --set training.init_from=thesis", "thesis"),
        ("good.yaml --set training.init_from=cut", "cut"),
        ("good.yaml --set training.init_from=empty-folder", "empty-folder"),
        ("good.yaml --set data.train.source=missing", "missing"),
        ("good.yaml --set data.train.source=thesis", "thesis"),
        ("good.yaml --set data.valid.source=empty", "empty"),
        ("good.yaml --set model.d_model=7", "d_model"),
        ("good.yaml --set task=singing", "singing"),
        ("good.yaml --run-dir text", "text"),
        ("good.yaml --run-dir thesis", "thesis"),
        ("good.yaml --run-dir thesis --overwrite", "thesis"),
        ("cut.yaml", "cut.gz"),
        ("unequal.yaml", "240"),
        ("jsonl.yaml", "line 2"),
    ],
    "translate": [
        ("missing -i text", "missing"),
        ("text -i text", "text"),
        ("empty-folder -i text", "empty-folder"),
        ("thesis -i text", "thesis"),
        ("cut -i text", "model.safetensors"),
        ("odd -i text", "config.json"),
        ("classifier -i text", "classif"),
        ("model other-words -i text", "vocabulary"),
        ("model -i missing", "missing"),
        ("model -i thesis", "thesis"),
        ("model -i cut.gz -o kept", "cut.gz"),
        ("model -i text -o thesis", "thesis"),
        ("model -i text -o missing/out", "missing"),
        ("model -i text -o text", "same file"),
        ("model -i text --device abacus", "abacus"),
        ("model -i text --precision float8", "float8"),
        ("model -i text --threads 0", "--threads"),
        ("model -i text --threads many", "--threads"),
        ("model -i text --beam-size 0", "--beam-size"),
        ("model -i text --beam-size 1.5", "--beam-size"),
        ("model -i text --n-best 9", "n_best"),
        ("model -i text --batch-tokens -1", "--batch-tokens"),
        ("model -i text --length-penalty nan", "length"),
        ("model -i text --max-length-ratio inf", "max"),
        ("model -i text --temperature 2", "--sample"),
        ("model -i text --sample --top-p 2", "--top-p"),
        ("model -i text --sample --temperature nan", "temperature"),
        ("model -i text --prefix-file missing", "missing"),
        ("model -i text --prefix-file shorter -o kept", "prefixes"),
        ("model -i text --engine abacus", "--engine"),
        ("model -i text --format xml", "xml"),
    ],
    "bleu": [
        ("", "REFERENCE"),
        ("missing shorter", "missing"),
        ("text missing", "missing"),
        ("text shorter", "240"),
        ("text thesis", "thesis"),
        ("cut.gz text", "cut.gz"),
        ("text text -m rouge", "rouge"),
        ("text text --tokenize 13b", "13b"),
        ("text text -w 99", "-w"),
        ("empty empty", "no lines"),
        ("--model missing", "missing"),
        ("--model model", "--source"),
        ("--model run", "config.yaml"),
        ("--model classifier --source text --reference text", "classif"),
        ("--model cut --source text --reference text", "model.safetensors"),
        ("--model model --source text --reference shorter", "240"),
        ("--model model --source empty --reference empty", "no lines"),
        ("--model model --source text --reference text --device abacus", "abacus"),
        ("--model model --source text --reference text -o missing/out", "missing"),
        ("--model model --source text --reference text -o text", "same file"),
        ("--model model --source text --reference text --batch-tokens 0", "--batch-tokens"),
    ],
    "classify": [
        ("missing -i text", "missing"),
        ("model -i text", "classification"),
        ("cut -i text", "model.safetensors"),
        ("classifier -i missing", "missing"),
        ("classifier -i thesis", "thesis"),
        ("classifier -i cut.gz -o kept", "cut.gz"),
        ("classifier -i text -o text", "same file"),
        ("classifier -i text -o missing/out", "missing"),
        ("classifier --gold missing", "missing"),
        ("classifier --gold one-column.tsv -o kept", "one-column.tsv"),
        ("classifier --gold label.tsv -o kept", "'7'"),
        ("classifier --gold label.tsv -o label.tsv", "same file"),
        ("classifier --gold binary", "binary"),
        ("classifier -i text --device abacus", "abacus"),
        ("classifier -i text --batch-tokens 0", "--batch-tokens"),
        ("classifier -i text --precision float8", "float8"),
        ("classifier -i text --format json", "--gold"),
    ],
    "score": [
        ("", "MODEL"),
        ("missing text text", "missing"),
        ("classifier text text", "classif"),
        ("cut text text", "model.safetensors"),
        ("model text shorter", "240"),
        ("model text missing", "missing"),
        ("model thesis text", "thesis"),
        ("model cut.gz cut.gz -o kept", "cut.gz"),
        ("model text text -o text", "same file"),
        ("model text text -o missing/out", "missing"),
        ("model text text --device abacus", "abacus"),
        ("model text text --batch-tokens 0", "--batch-tokens"),
    ],
    "check": [
        ("missing.yaml", "missing.yaml"),
        ("open.yaml", "YAML"),
        ("binary.yaml", "UTF-8"),
        ("text", "text"),
        ("text missing", "missing"),
        ("text thesis", "thesis"),
    ],
    "fetch": [
        ("", "NAME"),
        ("multi30", "multi30k"),
        ("multi30k --from missing-folder/here -o new", "missing-folder"),
        ("multi30k --from thesis -o new", "thesis"),
        ("multi30k --from thesis -o text", "text"),
    ],
    "average": [
        ("", "MODEL"),
        ("model", "--output"),
        ("missing -o new", "missing"),
        ("text -o new", "text"),
        ("model cut -o new", "model.safetensors"),
        ("model wider -o new", "shape"),
        ("model other-words -o new", "vocabulary"),
        ("model classifier -o new", "classification"),
        ("model -o thesis", "thesis"),
        ("model -o text", "text"),
        ("run/checkpoints/step_00000001 -o new", "step_00000001"),
    ],
    "plot": [
        ("missing", "missing"),
        ("text", "text"),
        ("thesis", "thesis"),
        ("run", "line 2"),
        ("model --attention word -o picture.docx", "docx"),
        ("model --attention word --layer 9", "layer"),
        ("cut --attention word", "model.safetensors"),
        ("model --target word", "--attention"),
    ],
    "info": [
        ("missing", "missing"),
        ("text", "text"),
        ("empty-folder", "empty-folder"),
        ("cut", "model.safetensors"),
        ("odd", "config.json"),
        ("model --format xml", "xml"),
    ],
}
ROWS = [(verb, typed, word) for verb, rows in TABLE.items() for typed, word in rows]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def place(shelf, tmp_path_factory) -> Path:
    """A copy of the shelf with a file that must survive, and what it was."""
    folder = tmp_path_factory.mktemp("place") / "here"
    shutil.copytree(shelf, folder)
    (folder / "kept").write_text("an earlier result")
    return folder


@pytest.mark.parametrize(("verb", "typed", "word"), ROWS, ids=[f"{verb} {typed}" for verb, typed, _ in ROWS])
def test_one_line_and_nothing_overwritten(place, capfd, monkeypatch, verb, typed, word):
    monkeypatch.chdir(place)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("S2S_DATA", raising=False)
    before = snapshot(place)
    code = main([verb, *typed.split()])
    out, err = capfd.readouterr()
    assert code in (1, 2), err
    told = [line for line in err.splitlines() if not line.startswith(("s2s: warning", "s2s: training the tokenizer"))]
    assert len(told) == 1, err
    assert told[0].startswith("s2s: ")
    assert word in told[0]
    assert "Traceback" not in err
    assert "internal error" not in err
    assert verb == "translate" or out == ""
    after = snapshot(place)
    shutil.rmtree(place / "runs", ignore_errors=True)
    changed = {name for name in before if after.get(name) != before[name]}
    assert not changed
    assert {name for name in after if name not in before and not name.startswith("runs/")} == set()


def test_the_table_has_every_command():
    assert set(TABLE) >= set(VERBS) - {"convert", "bench"}
