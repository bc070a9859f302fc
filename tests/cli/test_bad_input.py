"""Whatever a user gives that is wrong: one line, exit 2 (or 1), no traceback, nothing overwritten. Every command.

Each row of the table is a command line; the folder that it runs in holds files of every wrong kind (`wrong_files`).
"""

import importlib
import shutil
from pathlib import Path

import pytest
from support import wrong_files
from support.plain_words import python_words

from seq2seq.cli import VERBS, main


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """Models, and files of every wrong kind."""
    return wrong_files.fill(tmp_path_factory.mktemp("shelf"))


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
        ("marian-absurd -i text", "num_encoder_layers"),
        ("marian-pickle -i text", "--pickle"),
        ("exported -i text", "exported"),
        ("exported -i text --engine torch", "CTranslate2"),
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
        ("model -i text --prefix-file shorter -o kept", "they must be equal"),
        ("model -i text --engine abacus", "--engine"),
        ("model -i text --format xml", "xml"),
        ("model -i text --glossary missing", "missing"),
        ("model -i text --glossary thesis", "thesis"),
        ("model model -i text --glossary text", "one MODEL"),
        ("exported -i text --glossary text", "CTranslate2"),
        ("model -i text --glossary text --sample", "--sample"),
        ("model -i text --details words", "--format jsonl"),
        ("model -i text --input-format docx", "markdown"),
        ("model -i missing --input-format html", "missing"),
        ("model model -i text --input-format html", "one MODEL"),
        ("exported -i text --input-format html", "CTranslate2"),
        ("model -i text --each-line", "--input-format"),
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
        ("--model model --source text --reference text --test-set one", "--test-set"),
        ("text text empty --score-only", "--score-only"),
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
    "serve": [
        ("missing --port 0", "missing"),
        ("text --port 0", "text"),
        ("cut --port 0", "model.safetensors"),
        ("odd --port 0", "config.json"),
        ("model --port 65536", "--port"),
        ("model --port 0 --host 0.0.0.0", "--open"),
        ("model --port 0 --host nowhere.invalid --open", "nowhere.invalid"),
        ("model --port 0 --key-file missing", "missing"),
        ("model --port 0 --key-file empty", "no key"),
        ("model --port 0 --key-file binary", "binary"),
        ("model --port 0 --key-file text", "space"),
        ("model --port 0 --key-file text --open", "--open"),
        ("model --port 0 --max-queue 0", "--max-queue"),
        ("model --port 0 --deadline nan", "--deadline"),
        ("model --port 0 --device abacus", "abacus"),
        ("model --port 0 --engine abacus", "--engine"),
        ("model --port 0 --beam-size 0", "--beam-size"),
        ("classifier --port 0 --precision float8", "float8"),
        ("marian-pickle --port 0", "--pickle"),
        ("exported --port 0", "exported"),
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
    "glossary": [
        ("chekc", "chekc"),
        ("check", "GLOSSARY"),
        ("check missing", "missing"),
        ("check thesis", "thesis"),
        ("check cut.gz", "cut.gz"),
        ("check text --corpus missing", "missing"),
        ("check text --model model", "--corpus"),
        ("check text --corpus text --model classifier", "classif"),
        ("check text --format xml", "xml"),
    ],
    "align": [
        ("", "MODEL"),
        ("missing text text", "missing"),
        ("classifier text text", "classif"),
        ("cut text text", "model.safetensors"),
        ("exported text text", "CTranslate2"),
        ("model text shorter", "240"),
        ("model text missing", "missing"),
        ("model thesis text", "thesis"),
        ("model cut.gz cut.gz -o kept", "cut.gz"),
        ("model text text -o text", "same file"),
        ("model text text -o missing/out", "missing"),
        ("model text text --format xml", "xml"),
        ("model text text --device abacus", "abacus"),
        ("model text text --calibrate --format jsonl", "--format"),
        ("model empty empty --calibrate", "give more pairs"),
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
    "tune": [
        ("missing", "missing"),
        ("thesis", "thesis"),
        ("model", "--source"),
        ("model --source text", "--reference"),
        ("model --source text --reference shorter", "240"),
        ("model --source empty --reference empty", "nothing to tune on"),
        ("model --source cut.gz --reference text", "cut.gz"),
        ("model --source text --reference text -m ter", "ter"),
        ("model --source text --reference text -o thesis", "exists already"),
        ("model --source text --reference text -o text/new", "text"),
        ("model --source text --reference text --device abacus", "abacus"),
        ("cut --source text --reference text", "model.safetensors"),
        ("odd --source text --reference text", "config.json"),
        ("classifier --source text --reference text", "classif"),
        ("marian --source text --reference text", "--from marian"),
        ("exported --source text --reference text", "CTranslate2"),
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
    "convert": [
        ("", "MODEL"),
        ("model", "--output"),
        ("model -o new", "--from marian"),
        ("model -o new --to tensorflow", "tensorflow"),
        ("model -o new --from ctranslate2", "ctranslate2"),
        ("model -o new --from marian --to marian", "--from marian"),
        ("model -o new --to ctranslate2 --quantization int4", "int4"),
        ("model -o new --to marian --quantization int8", "--quantization"),
        ("model -o new --to marian --pickle", "--pickle"),
        ("model -o new --to marian --source-language en", "--source-language"),
        ("model -o new --to ctranslate2 --reference text", "--probe"),
        ("model -o new --to ctranslate2 --probe missing", "missing"),
        ("model -o new --to ctranslate2 --probe empty", "nothing to translate"),
        ("model -o new --to ctranslate2 --probe cut.gz", "cut.gz"),
        ("model -o new --to ctranslate2 --probe text --reference shorter", "240"),
        ("model -o new --to marian", "norm_position"),
        ("model -o new --to argos", ".argosmodel"),
        ("classic -o new.argosmodel --to argos --target-language german", "german"),
        *(
            (f"{model} -o {'new.argosmodel' if to == 'argos' else 'new'} --to {to}", word)
            for to in ("marian", "ctranslate2", "argos")
            for model, word in (
                ("missing", "missing"),
                ("text", "text"),
                ("empty-folder", "empty-folder"),
                ("thesis", "thesis"),
                ("cut", "model.safetensors"),
                ("odd", "config.json"),
                ("classifier", "classification"),
                ("exported", "CTranslate2"),
                ("marian-pickle", "--pickle"),
            )
        ),
        *(
            (f"classic -o {output} --to {to}", "exists already")
            for to, output in (
                ("marian", "thesis"),
                ("ctranslate2", "thesis"),
                ("marian", "kept"),
                ("argos", "a.argosmodel"),
            )
        ),
        ("classic -o text/new --to marian", "text"),
        ("classic -o text/new --to ctranslate2", "text"),
        ("missing -o new --from marian", "missing"),
        ("text -o new --from marian", "text"),
        ("thesis -o new --from marian", "config.json"),
        ("model -o new --from marian", "a model of seq2seq already"),
        ("marian -o thesis --from marian", "exists already"),
        ("marian -o text/new --from marian", "text"),
        ("marian-cut -o new --from marian", "model.safetensors"),
        ("marian-absurd -o new --from marian", "num_encoder_layers"),
        ("marian-traversal -o new --from marian", "vocab.json"),
        ("marian-pickle -o new --from marian", "--pickle"),
        ("marian-pickle -o new --from marian --pickle", "plain tensors"),
        ("nobody/nothing -o new --from marian", "nobody/nothing"),
    ],
    "bench": [
        ("trian", "trian"),
        ("train missing.yaml", "missing.yaml"),
        ("train open.yaml", "YAML"),
        ("train good.yaml extra", "extra"),
        ("train good.yaml --batch-tokens 0", "--batch-tokens"),
        ("train good.yaml --rounds 0", "--rounds"),
        ("train good.yaml --seconds 0", "--seconds"),
        ("train good.yaml --seconds 1 --steps 1", "--steps"),
        ("train good.yaml --peer abacus", "abacus"),
        ("train good.yaml --peer none --peer torch", "none"),
        ("train good.yaml --device abacus", "abacus"),
        ("train good.yaml --precision float8", "float8"),
        ("train good.yaml --set model.d_model=7", "d_model"),
        ("train good.yaml --format xml", "xml"),
        ("train cut.yaml", "cut.gz"),
        ("decode missing", "missing"),
        ("decode thesis", "thesis"),
        ("decode cut -i text", "model.safetensors"),
        ("decode classifier -i text", "classif"),
        ("decode model -i missing", "missing"),
        ("decode model -i empty", "nothing to translate"),
        ("decode model -i text --reference shorter", "240"),
        ("decode model --reference text", "--input"),
        ("decode model -i text --beam-size 1", "--beam-size"),
        ("decode model -i text --batch-size 0", "--batch-size"),
        ("decode model -i text --engine abacus", "--engine"),
        ("decode model -i text --engine torch --quantization int8_float16", "--engine"),
        ("decode model -i text --peer torch", "torch"),
        ("decode model -i text --device abacus", "abacus"),
        ("decode model -i text --format xml", "xml"),
        ("serve missing", "missing"),
        ("serve model -i empty", "nothing to translate"),
        ("serve model -i text --clients 0", "--clients"),
        ("serve model -i text --seconds 0", "--seconds"),
        ("serve classifier -i text", "classif"),
    ],
    "compare": [
        ("", "SYSTEMS"),
        ("text", "two systems"),
        ("text ./text --reference text", "given twice"),
        ("text shorter", "--reference"),
        ("text shorter --source text", "--reference"),
        ("text shorter --reference text", "240"),
        ("text missing --reference text", "missing"),
        ("text cut.gz --reference text", "cut.gz"),
        ("text binary --reference text", "translations"),
        ("text not.jsonl --reference text", "line 1"),
        ("text thesis --reference text --source text", "thesis"),
        ("text model --reference text", "--source"),
        ("shorter model --reference text --source text", "240"),
        ("model classifier --reference text --source text", "classif"),
        ("cut model --reference text --source text", "model.safetensors"),
        ("model wider", "--source"),
        ("run model", "config.yaml"),
        ("text shorter --reference empty", "no lines"),
        ("text shorter --reference text --source shorter", "240"),
        ("text shorter --reference text -m rouge", "rouge"),
        ("text shorter --reference text -m ,", "--metrics"),
        ("text shorter --reference text --tokenize 13b", "13b"),
        ("text shorter --reference text --beam-size 3", "--beam-size"),
        ("text shorter --reference text --training text", "--training"),
        ("text shorter --reference text --source text --training missing", "missing"),
        ("text shorter --reference text --html text", "same file"),
        ("text shorter --reference text --html missing/page.html", "missing"),
        ("text shorter --reference text --format xml", "xml"),
    ],
    "runs": [
        ("", "runs"),
        ("missing", "missing"),
        ("text", "text"),
        ("thesis", "thesis"),
        ("empty-folder", "empty-folder"),
        ("run extra", "extra"),
        ("run --sort bluu", "bluu"),
        ("run --where step", "KEY=VALUE"),
        ("run --where stap=1", "stap"),
        ("run --where state=lost", "lost"),
        ("run --columns nothing", "nothing"),
        ("run --columns ,", "--columns"),
        ("run --format xml", "xml"),
        ("dif run run", "dif"),
        ("diff run", "SECOND"),
        ("diff run thesis", "thesis"),
        ("diff missing run", "missing"),
        ("clean run", "--keep"),
        ("clean run --keep all", "all"),
        ("clean missing --keep best", "missing"),
        ("clean thesis --keep best --yes", "thesis"),
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
    for name in ("kept", "a.argosmodel"):
        (folder / name).write_text("an earlier result")
    return folder


@pytest.mark.parametrize(("verb", "typed", "word"), ROWS, ids=[f"{verb} {typed}" for verb, typed, _ in ROWS])
def test_one_line_and_nothing_overwritten(place, capfd, monkeypatch, verb, typed, word):
    monkeypatch.chdir(place)
    for module in ("huggingface_hub.constants", "datasets.config"):  # they read the environment when they are imported
        monkeypatch.setattr(importlib.import_module(module), "HF_HUB_OFFLINE", True)
    monkeypatch.delenv("S2S_DATA", raising=False)
    before = snapshot(place)
    code = main([verb, *typed.split()])
    out, err = capfd.readouterr()
    assert code in (1, 2), err
    said = ("s2s: warning", "s2s: training the tokenizer", "s2s: model: engine: ", "s2s: engine: ")
    told = [line for line in err.splitlines() if not line.startswith(said)]
    assert len(told) == 1, err
    assert told[0].startswith("s2s: ")
    assert word in told[0]
    assert "internal error" not in err
    assert not python_words(err), err
    assert verb == "translate" or out == ""
    after = snapshot(place)
    shutil.rmtree(place / "runs", ignore_errors=True)
    changed = {name for name in before if after.get(name) != before[name]}
    assert not changed
    assert {name for name in after if name not in before and not name.startswith("runs/")} == set()


def test_the_table_has_every_command():
    assert set(TABLE) >= set(VERBS)
