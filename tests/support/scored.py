"""`s2s bleu` and `sacrebleu` as functions, and what they are asked to score: texts, and a run with two test sets."""

import gzip
import subprocess
import sys

import torch
from click.testing import CliRunner

from seq2seq.cli import group, main
from seq2seq.config.description import ModelDescription
from seq2seq.config.file import dump
from seq2seq.config.schema import Config
from seq2seq.data.collate import collate_translation
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import save_model
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

REFERENCE = "\n".join(
    [
        "Ein Mann fährt Fahrrad.",
        "Zwei Hunde spielen im Schnee.",
        "Die Frau, die lacht, trägt einen Hut.",
        "",
        "Es regnet.",
    ]
    * 8
)
GOOD = REFERENCE.replace("Schnee", "Garten").replace("trägt", "hat")
POOR = REFERENCE.replace("Ein Mann", "Mann").replace("Zwei Hunde spielen", "Hunde").replace("Die Frau, die", "Frau")


def sacrebleu(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def s2s(*arguments, stdin=b""):
    result = CliRunner().invoke(group, ["bleu", *map(str, arguments)], input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def failing(capsys, *arguments):
    code = main(["bleu", *map(str, arguments)])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1, captured.err
    return code, captured.err


SENTENCES = [
    "the old man reads a book",
    "two dogs play in the snow",
    "a woman wears a red hat",
    "it rains",
    "we are here",
]


def writer(folder):
    """Return a function that writes a text, packed or not, to a file of this folder and returns its path."""

    def write(name, text, pack=False):
        path = folder / name
        content = text.encode("utf-8")
        path.write_bytes(gzip.compress(content) if pack else content)
        return path

    return write


def small_run(folder):
    """Make a run folder with two test sets and a model that was taught a little, so that its output has words."""
    for name, lines in {"test.en": SENTENCES, "test.de": SENTENCES[::-1], "odd.en": [*SENTENCES, ""]}.items():
        (folder.parent / name).write_text("".join(f"{line}\n" for line in lines))
    pair = {"source": str(folder.parent / "test.en"), "target": str(folder.parent / "test.de")}
    odd = {"tsv": str(folder.parent / "odd.tsv")}
    (folder.parent / "odd.tsv").write_text("".join(f"{line}\t{line} .\n" for line in SENTENCES[:3]))
    config = Config.model_validate(
        {
            "source_language": "en",
            "target_language": "de",
            "data": {"train": pair, "valid": pair, "test": {"plain": pair, "odd": odd}},
            "tokenizer": {"vocab_size": 300},
            "model": {"preset": "tiny", "d_model": 32, "num_heads": 2, "d_ff": 32, "max_length": 64},
            "search": {"beam_size": 2, "max_length_ratio": 1.0, "max_length_offset": 3},
            "evaluation": {"metrics": ["chrf", "ter"]},
        }
    )
    tokenizer = Tokenizer.train(SENTENCES * 20, config.tokenizer, seed=1)
    torch.manual_seed(1)
    model = Transformer(config.model, tokenizer.vocab_size, tokenizer.vocab_size)
    pair = TokenizerPair(tokenizer, tokenizer)
    ids = tokenizer.encode_all(SENTENCES)
    batch = collate_translation(ids, ids[1:] + ids[:1], pair, range(len(ids)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(25):
        logits = model.project(model(batch.source_ids, batch.source_mask, batch.target_input))
        loss = torch.nn.functional.cross_entropy(logits[batch.target_mask], batch.target_output[batch.target_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save_model(folder / "best", model.state_dict(), ModelDescription.of(config), pair)
    (folder / "config.yaml").write_text(dump(config))
    return folder
