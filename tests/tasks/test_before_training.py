"""What `s2s train` does before its first step: it looks for overlap, and tries its largest batches.

The corpora and the configuration are those of `test_train`.
"""

from pathlib import Path

import pytest
from support.number_words import CONFIG, WORDS

from seq2seq.cli import main
from seq2seq.training.step import GradientStep, padded_size


def write(folder: Path, name: str, rows: list[list[str]]) -> None:
    (folder / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
    (folder / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A corpus and a validation set that share nothing, in the current folder."""
    words = list(WORDS)
    write(tmp_path, "train", [[words[i % 10], words[i // 10 % 10], *words[: i % 5]] for i in range(400)])
    write(tmp_path, "valid", [[words[i], *reversed(words)] for i in range(10)])
    (tmp_path / "toy.yaml").write_text(CONFIG.replace("max_steps: 12", "max_steps: 3"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    return tmp_path


def card(folder: Path) -> str:
    return (folder / "runs" / "toy" / "best" / "README.md").read_text()


def test_overlap_is_warned_about_and_stands_in_the_model_card(folder, capfd):
    shared = (folder / "train.en").read_text().splitlines()[:4]
    with open(folder / "valid.en", "a") as source, open(folder / "valid.de", "a") as target:
        for line in shared:
            source.write(f"{line}\n")
            target.write(" ".join(WORDS[word] for word in line.split()) + "\n")
    assert main(["train", "toy.yaml"]) == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if "training contains" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("s2s: warning: ")
    assert "4 of 14 examples of valid" in warnings[0]
    assert warnings[0].removeprefix("s2s: warning: ") in card(folder)


def test_corpora_that_share_nothing_are_mentioned_only_in_the_card(folder, capfd):
    assert main(["train", "toy.yaml"]) == 0
    assert "training contains" not in capfd.readouterr().err
    assert "No training example equals" in card(folder)


@pytest.mark.slow
def test_the_largest_batches_are_tried_before_the_first_step(folder, monkeypatch):
    tried: list[tuple[str, int]] = []
    rehearse, accumulate = GradientStep.rehearse, GradientStep._accumulate

    def watched_rehearse(step, batch):
        tried.append(("rehearsal", padded_size(batch)))
        return rehearse(step, batch)

    def watched_accumulate(step, batches, num_targets):
        tried.extend(("batch", padded_size(batch)) for batch in batches)
        return accumulate(step, batches, num_targets)

    monkeypatch.setattr(GradientStep, "rehearse", watched_rehearse)
    monkeypatch.setattr(GradientStep, "_accumulate", watched_accumulate)
    assert main(["train", "toy.yaml", "--set", "training.max_steps=40"]) == 0
    assert tried[0][0] == "rehearsal"
    rehearsed = [size for kind, size in tried if kind == "rehearsal"]
    last = max(place for place, (kind, _) in enumerate(tried) if kind == "rehearsal")
    steps = [size for _, size in tried[last + 2 :]]  # the rehearsed batch itself stands between
    assert len(set(steps)) > 1, "batches differ in size"
    assert max(steps) <= max(rehearsed)
