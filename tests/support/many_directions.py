"""A run of many directions over number words in three languages: en-de both ways, and a few pairs of en-fr.

`train` makes it in a second, too short to learn anything; with `LEARNED` it translates nearly every word.
"""

from pathlib import Path

import pytest
from support.number_words import WORDS, sentences

from seq2seq.cli import main

ENGLISH = {word: word for word in WORDS}
FRENCH = dict(zip(WORDS, ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"], strict=True))
SPELLED = {"en": ENGLISH, "de": WORDS, "fr": FRENCH}
TRAINED = (("en", "de"), ("de", "en"), ("en", "fr"))
CONFIG = """
languages: {source: [en, de], target: [de, en, fr], tags: TAGS}
data:
  train:
    - {source: train.en, target: train.de, from: en, to: de, both_ways: true}
    - {source: small.en, target: small.fr, from: en, to: fr}
  valid: {en-de: {source: valid.en, target: valid.de}, en-fr: {source: valid.en, target: valid.fr}}
  test: {zero: {source: valid.de, target: valid.fr, from: de, to: fr}, en-de: {source: valid.en, target: valid.de}}
  temperature: 3
  num_workers: 1
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1, max_length: 32}
training: {max_steps: 6, batch_tokens: 256, warmup_steps: 5, validate_every: 3, checkpoint_every: 3, log_every: 3,
  threads: 1, best_of: worst, best_metric: chrf}
search: {beam_size: 2}
"""
# Whole words as pieces, and a decaying rate without dropout: confident answers after 4 seconds of one CPU. In float32,
# because CPUs with bfloat16 would train other models than those without.
LEARNED = (
    "tokenizer.vocab_size=315", "model.d_model=64", "model.dropout=0.0", "training.max_steps=250",
    "training.learning_rate=0.005", "training.warmup_steps=30", "training.schedule=cosine",
    "training.label_smoothing=0.0", "training.precision=float32", "training.validate_every=250",
    "training.checkpoint_every=250",
)  # fmt: skip
LONG = "one two three four five six. " * 12


def spelled(rows: list[list[str]], language: str) -> list[str]:
    """The lines of rows of English number words in a language."""
    return [" ".join(SPELLED[language][word] for word in row) for row in rows]


def write_corpora(folder: Path) -> None:
    for name, count, seed in (("train", 400, 1), ("small", 50, 3), ("valid", 12, 2)):
        for language in SPELLED:
            lines = spelled(sentences(count, seed), language)
            (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def train(folder: Path, tags: str, *settings: str) -> Path:
    """Write the corpora and `many.yaml` into a folder, and train; returns the run."""
    write_corpora(folder)
    (folder / "many.yaml").write_text(CONFIG.replace("TAGS", tags), encoding="utf-8")
    changes = [word for setting in settings for word in ("--set", setting)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "many.yaml", "--run-dir", "run", *changes]) == 0
    return folder / "run"
