"""A tuned model: neither its description nor its card has a score that it does not give."""

import json
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.our_models import make_ours

from seq2seq.config import file as config_file
from seq2seq.store.finding import CONFIG, GENERATION
from seq2seq.store.model_card import ScoreRecord, model_card
from seq2seq.store.model_folder import CARD, load_outline, update_search
from seq2seq.store.tuning import NOTE

BEFORE = {"valid": {"bleu": 30.5, "chrf": 50.25}, "news | old": {"bleu": 20.0, "ter": 61.0}, "other": {"chrf": 44.0}}
METRICS = {
    "step": 7,
    "valid_loss": 1.5,
    "bleu": 30.5,
    "bleu_se": 0.4,
    "chrf": 50.25,
    "chrf.en-de": 51.0,
    "valid_loss_se": 1.0,
}
AFTER = {
    "all": {
        "validation": {"bleu": 31.0, "chrf": 52.0},
        "news | old": {"bleu": 22.0, "ter": 60.0},
        "other": {"chrf": 4.0},
    },
    "validation": {"validation": {"bleu": 31.0, "chrf": 52.0}},
    "one metric": {"validation": {"chrf": 52.0}},
    "a test set": {"news | old": {"bleu": 22.0}},
    "nothing": {},
}


def found(after: dict, **other) -> dict:
    """The record that `s2s tune` stores."""
    changes = {
        data: {name: {"before": 1.0, "after": value} for name, value in each.items()} for data, each in after.items()
    }
    return {"metric": "bleu", "scores": changes, **other}


@pytest.fixture
def folder(tmp_path) -> Path:
    """A model with scores in its description and in its card."""
    make_ours(tmp_path / "model")
    path = tmp_path / "model" / CONFIG
    path.write_text(json.dumps({**json.loads(path.read_text()), "metrics": METRICS}))
    for side in "ab":
        (tmp_path / side).write_text("x\n")
    text = (
        "source_language: en\ntarget_language: de\ndata: {train: {source: a, target: b}, valid: {source: a, target: b}}"
    )
    (tmp_path / "toy.yaml").write_text(text)
    scores = [
        ScoreRecord(data, name, value, f"a|{name}") for data, each in BEFORE.items() for name, value in each.items()
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        config = config_file.load(tmp_path / "toy.yaml")
    card = model_card(
        config, title="m", command="s2s train", num_parameters=1, step=7, scores=scores, notes=["A note."]
    )
    (tmp_path / "model" / CARD).write_text(card, encoding="utf-8")
    return tmp_path / "model"


def rows(folder: Path) -> dict[tuple[str, str], float]:
    """The table of scores."""
    table = re.findall(r"^\| (.*) \| (\S+) \| ([\d.]+) \| `.*` \|$", (folder / CARD).read_text("utf-8"), re.MULTILINE)
    return {(data.replace("\\|", "|"), metric): float(value) for data, metric, value in table}


def front(folder: Path) -> dict[tuple[str, str], float]:
    """The scores that model hubs read."""
    results = ModelCard.load(folder / CARD).data.eval_results or ()
    return {(result.dataset_name, result.metric_type): result.metric_value for result in results}


def expected(after: dict) -> dict[tuple[str, str], float]:
    named = {"valid" if data == "validation" else data: each for data, each in after.items()}
    return {(data, metric): value for data, each in named.items() for metric, value in each.items()}


@pytest.mark.parametrize("name", AFTER)
def test_scores_are_those_of_the_settings(name, folder):
    assert rows(folder) == front(folder) == expected(BEFORE)
    update_search(folder, {"beam_size": 7}, found(AFTER[name]))
    assert rows(folder) == front(folder) == expected(AFTER[name])
    metrics = load_outline(folder).description.metrics
    kept = {"step": 7, "valid_loss": 1.5, "valid_loss_se": 1.0}
    assert metrics == {**kept, **AFTER[name].get("validation", {})}
    assert f"\n- {NOTE}: beam_size 7 (in training 3).\n" in (folder / CARD).read_text()
    update_search(folder, {"beam_size": 5}, found(AFTER["all"]))
    text = (folder / CARD).read_text()
    assert text.count(NOTE) == 1
    assert "beam_size 5 (in training 3)" in text
    assert "- A note.\n" in text


def test_scores_of_another_set_than_that_of_the_run_are_not_those_of_its_validation(folder):
    update_search(folder, {"beam_size": 7}, found(AFTER["all"], source="news.en"))
    assert ("valid", "bleu") not in rows(folder)
    assert rows(folder)["other", "chrf"] == 4.0
    assert "bleu" not in load_outline(folder).description.metrics


def test_means_over_some_of_the_directions_are_not_those_over_all(folder):
    after = {"validation": {"chrf": 60.0, "chrf.en-de": 61.0}}
    update_search(folder, {"beam_size": 7}, found(after, directions=["en-de"]))
    metrics = load_outline(folder).description.metrics
    assert "chrf" not in metrics
    assert metrics["chrf.en-de"] == 61.0
    assert ("valid", "chrf") not in rows(folder)
    assert ("valid", "chrf") not in front(folder)


@pytest.mark.parametrize("search", [{}, {"beam_size": 3}])
def test_settings_that_stay_leave_the_scores(search, folder):
    before = (folder / CARD).read_bytes()
    update_search(folder, search, found({}))
    assert (folder / CARD).read_bytes() == before
    assert load_outline(folder).description.metrics == METRICS


def test_settings_of_training_that_come_back_have_no_note(folder):
    for beam_size in (7, 3):
        update_search(folder, {"beam_size": beam_size}, found(AFTER["all"]))
    assert NOTE not in (folder / CARD).read_text()
    assert rows(folder) == front(folder) == expected(AFTER["all"])


@pytest.mark.parametrize(
    "card", ["", "text\n", "---\n[\n---\n# m\n", "---\nmodel-index: 3\n---\n", "---\na: b\n---\n| x | bleu | 3 |\n"]
)
def test_a_card_of_a_user_is_kept(card, folder):
    (folder / CARD).write_text(card)
    update_search(folder, {"beam_size": 7}, found({}))
    text = (folder / CARD).read_text()
    assert NOTE in text
    assert all(line in text for line in card.splitlines() if "bleu" not in line)
    (folder / CARD).unlink()
    update_search(folder, {"beam_size": 6}, found({}))
    assert not (folder / CARD).exists()


@pytest.mark.parametrize(
    "tuned",
    [
        {},
        {"scores": 3},
        {"scores": {"validation": []}},
        {"scores": {"validation": {"bleu": 5}}},
        {"scores": {"validation": {"bleu": {"after": "x"}}}},
    ],
)
def test_whatever_is_stored_the_model_is_read(tuned, folder):
    update_search(folder, {"beam_size": 7}, tuned)
    assert "bleu" not in load_outline(folder).description.metrics
    assert json.loads((folder / GENERATION).read_text())["tuned"] == tuned
