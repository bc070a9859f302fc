"""Validation and test sets: what cannot be scored is refused before the first step, and a score belongs to its set."""

import json
import re
from pathlib import Path

import pytest
from support.number_words import CONFIG, WORDS, sentences

from seq2seq.cli import main

LABELLED = """
task: classification
data: {train: {tsv: train.tsv}, valid: {tsv: valid.tsv}, test: {first: {tsv: valid.tsv}, other: {tsv: other.tsv}}}
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 16, d_ff: 16, num_heads: 2, num_encoder_layers: 1}
training: {max_steps: 2, batch_tokens: 256, threads: 1, device: cpu}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Corpora and configurations of both tasks, in the current folder."""
    for name, count, seed in (("train", 300, 1), ("valid", 10, 2), ("other", 10, 3)):
        rows = sentences(count, seed)
        Path(tmp_path / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
        Path(tmp_path / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in row) + "\n" for row in rows))
        lines = (f"{' '.join(row)}\t{len(row) % 2}\n" for row in rows)
        Path(tmp_path / f"{name}.tsv").write_text("".join(lines))
    (tmp_path / "blank").write_text("\n" * 10)
    (tmp_path / "toy.yaml").write_text(CONFIG.replace("max_steps: 12", "max_steps: 2"))
    (tmp_path / "labels.yaml").write_text(LABELLED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    return tmp_path


def train(config: str, *settings: str) -> int:
    return main(["train", config, "--run-dir", "run", *(part for one in settings for part in ("--set", one))])


def scores(folder: Path) -> dict[str, float]:
    """The scores of test sets in `test_scores.json`, by name."""
    path = folder / "run" / "test_scores.json"
    found = json.loads(path.read_text())["scores"] if path.exists() else []
    return {score["dataset"]: score["value"] for score in found}


def card_scores(folder: Path) -> set[str]:
    """The names of the test sets in the model card."""
    table = (folder / "run" / "best" / "README.md").read_text().partition("## Scores")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| (?!data |valid )([^|]+?) \|", table, re.MULTILINE))


@pytest.mark.parametrize(
    ("config", "key", "given", "message"),
    [
        ("toy.yaml", "data.valid", "{source: blank, target: valid.de}", "the source of every example is blank"),
        ("toy.yaml", "data.valid", "{source: valid.en, target: blank}", "the target of every example is blank"),
        ("toy.yaml", "data.test.held out", "{source: blank, target: valid.de}", "the source of every example is blank"),
        ("labels.yaml", "data.valid", "{tsv: blank.tsv}", "the text of every example is blank"),
        ("labels.yaml", "data.test.other", "{tsv: blank.tsv}", "the text of every example is blank"),
        ("labels.yaml", "data.valid", "{tsv: new.tsv}", "line 3: label '2' is not one of those in the training corpus"),
        ("labels.yaml", "data.test.other", "{tsv: new.tsv}", "line 3: label '2' is not one of those in the training"),
        ("labels.yaml", "data.train", "{tsv: unlabelled.tsv}", "line 2: a text without a label; write the label, or"),
        ("labels.yaml", "data.valid", "{tsv: unlabelled.tsv}", "line 2: a text without a label; write the label, or"),
        ("labels.yaml", "data.test.other", "{tsv: unlabelled.tsv}", "line 2: a text without a label; write the label"),
        ("labels.yaml", "data.test.other", "{jsonl: unlabelled.jsonl}", "line 1: a text without a label; write the"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_the_first_step(folder, capfd, config, key, given, message):
    (folder / "blank.tsv").write_text(" \t0\n" * 10)
    (folder / "new.tsv").write_text("one\t0\ntwo\t1\nthree\t2\n")
    (folder / "unlabelled.tsv").write_text("one\t0\ntwo\t\nthree\t1\n")
    (folder / "unlabelled.jsonl").write_text('{"text": "one", "label": " "}\n')
    assert train(config, f"{key}={given}") == 2
    (told,) = [line for line in capfd.readouterr().err.splitlines() if message in line]
    assert re.search(r"(blank|blank\.tsv|new\.tsv|unlabelled\.(tsv|jsonl)|valid\.(en|de))", told)
    assert not list((folder / "run").glob("checkpoints/step_*"))


def test_blank_lines_among_others_are_scored(folder):
    (folder / "some.en").write_text("\n\none two\n")
    (folder / "some.de").write_text("\n\neins zwei\n")
    assert train("toy.yaml", "data.valid={source: some.en, target: some.de}") == 0
    (folder / "some.tsv").write_text("\t\none\t1\n \t7\n")
    assert train("labels.yaml", "data.test.other.tsv=some.tsv") == 2, "a run of another task"
    assert main(["train", "labels.yaml", "--run-dir", "labelled", "--set", "data.test.other.tsv=some.tsv"]) == 0


def test_scores_of_another_test_set_are_forgotten_before_the_new_one_is_scored(folder, monkeypatch, capfd):
    assert train("labels.yaml") == 0
    assert set(scores(folder)) == {"first", "other"} == card_scores(folder)
    (folder / "other.tsv").write_text("one\t1\n")  # another content under the same name
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("seq2seq.tasks.task.Task.score_test_sets", interrupted)
        assert train("labels.yaml") == 130
    assert scores(folder) == {}
    assert card_scores(folder) == set()
    assert train("labels.yaml") == 0
    assert set(scores(folder)) == {"first", "other"} == card_scores(folder)
    (folder / "new.tsv").write_text("one\t2\n")
    assert train("labels.yaml", "data.test.other.tsv=new.tsv") == 2
    assert scores(folder) == {}, "config.yaml names the new set, which cannot be scored"
    assert train("labels.yaml", "data.test={}") == 0
    assert train("labels.yaml") == 0
    assert train("labels.yaml", "data.test={}") == 0
    assert (scores(folder), card_scores(folder)) == ({}, set())


def test_the_card_has_the_label_names_and_the_search_that_hold_now(folder):
    assert train("labels.yaml", "data.test={}") == 0
    card = folder / "run" / "best" / "README.md"
    assert train("labels.yaml", "data.test={}", 'data.label_names={"0": schlecht, "1": gut}') == 0
    assert "'0': schlecht" in card.read_text()
    card.write_text("written by hand")
    assert train("labels.yaml", "data.test={}", 'data.label_names={"0": schlecht, "1": gut}') == 0
    assert card.read_text() == "written by hand", "nothing has changed"
