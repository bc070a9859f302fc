"""The head of a classifier: what is fine-tuned or averaged has the pooling of the models that it is made of."""

import json
from pathlib import Path

import pytest
from support.our_models import make_classifier, make_many

from seq2seq.cli import main
from seq2seq.store.model_folder import load_model

LABELS = ["good", "bad"]
CONFIG = """
task: classification
data: {train: {tsv: train.tsv}, valid: {tsv: train.tsv}, num_workers: 1}
training: {init_from: first, max_steps: 1, batch_tokens: 64, threads: 1}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A corpus with its config, and the models `first`, whose pooling is not the default, and `mean`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    rows = [f"{'two dogs play' if row % 2 else 'a cat sleeps'} {row}\t{LABELS[row % 2]}" for row in range(20)]
    Path("train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    Path("tune.yaml").write_text(CONFIG)
    for pooling in ("first", "mean"):
        make_classifier(Path(pooling), sorted(LABELS), pooling=pooling)
    return tmp_path


def first_step() -> int:
    return json.loads(Path("runs/tune/metrics.jsonl").read_text().splitlines()[0])["step"]


def test_a_pooling_that_is_not_written_is_that_of_the_initial_model(folder, capfd):
    assert main(["train", "tune.yaml"]) == 0
    assert load_model("runs/tune").description.classifier.pooling == "first"
    assert first_step() == 0, "the initial model is validated"
    assert "classification head is new" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("classifier.pooling=mean", "classifier.pooling is mean, and that of the initial model first"),
        ("training.init_from=other", "the initial model has other labels"),
    ],
)
def test_a_head_that_does_not_fit_is_new_and_that_is_told(folder, change, reason, capfd):
    make_classifier(folder / "other", ["bad", "fine"])
    assert main(["train", "tune.yaml", "--set", change]) == 0
    assert f"the classification head is new: {reason}\n" in capfd.readouterr().err
    assert first_step() > 0, "no initial model is validated"


def test_a_classifier_of_an_encoder_with_tags_has_no_direction(folder, capfd):
    """The encoder of a model of many languages gives its tokenizer, which has tags."""
    make_many(folder / "many", ["en", "de"], ["de", "en"], "source")
    assert main(["train", "tune.yaml", "--set", "training.init_from=many", "--run-dir", "run"]) == 0
    assert load_model("run").directed().description.task == "classification"
    Path("texts").write_text("two dogs play\n")
    capfd.readouterr()
    assert main(["classify", "run", "-i", "texts"]) == 0
    assert capfd.readouterr().out.strip().partition("\t")[0] in LABELS


def test_heads_of_different_pooling_have_no_mean(folder, capfd):
    assert main(["average", "first", "mean", "-o", "both"]) == 2
    assert "mean: another model than first: classifier.pooling is mean, not first" in capfd.readouterr().err
    assert not Path("both").exists()


def test_best_of_needs_languages(folder, capfd):
    assert main(["train", "tune.yaml", "--set", "training.best_of=worst"]) == 2
    assert "training.best_of: worst needs languages; leave it out" in capfd.readouterr().err
    assert not Path("runs").exists()
