"""A run whose model translates number words in reverse order, so that the place of each translation is known."""

from pathlib import Path

import pytest
from support.number_words import CONFIG, WORDS, sentences

from seq2seq.cli import main

STEPS = 360
SETTINGS = (
    f"max_steps={STEPS}", f"validate_every={STEPS}", f"checkpoint_every={STEPS}", "log_every=50", "batch_tokens=512",
    "learning_rate=2.0e-2", "schedule=linear", "warmup_steps=20", "optimizer=muon", "precision=float32",
)  # fmt: skip


def reversed_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences and their translations."""
    rows = sentences(count, seed)
    return [(" ".join(row), " ".join(WORDS[word] for word in reversed(row))) for row in rows]


def train(folder: Path) -> None:
    """Write a corpus into the folder and train on it; the run is `runs/toy`, with its calibration."""
    folder.mkdir()
    for name, count, seed in (("train", 3000, 1), ("valid", 150, 2)):
        pairs = reversed_pairs(count, seed)
        for side, suffix in enumerate(("en", "de")):
            (folder / f"{name}.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    (folder / "toy.yaml").write_text(CONFIG, encoding="utf-8")
    changes = [part for setting in SETTINGS for part in ("--set", f"training.{setting}")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        assert main(["train", "toy.yaml", *changes, "--set", "model.d_model=64", "--set", "model.dropout=0.0"]) == 0
