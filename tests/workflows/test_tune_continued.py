"""A run that goes on after `s2s tune`: its best model keeps the tuned settings, or the log says that they are gone; its
settings, its card and its scores agree. About 25 s."""

import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.forked import s2s
from support.number_words import CONFIG, WORDS, sentences

from seq2seq.cli import main
from seq2seq.store.model_folder import load_outline
from seq2seq.store.tuning import NOTE
from seq2seq.tasks.run_folder import read_note
from seq2seq.workflows import tune
from seq2seq.workflows.runs import read_run

pytestmark = pytest.mark.slow

NEW_TEST = "data.test={held out: {source: valid.en, target: valid.de}, new: {source: train.en, target: train.de}}"
# The learning rates of a run that does not improve its initial model, and of one that does.
RATES = {"still": "1e-12", "improving": "1e-2"}
FIXED = (
    *("training.init_from=runs/base", "training.validate_every=2", "training.patience=1000", "training.max_steps=2"),
    *("search.beam_size=4", "search.length_penalty=0.1"),
)
KEPT, GONE = True, False
# A run, the settings with which it goes on, and whether the tuned settings stay.
WAYS = {
    "nothing changes": ("still", (), KEPT),
    "further, without a better model": ("still", ("training.max_steps=4",), KEPT),
    "further, with a better model": ("improving", ("training.max_steps=40",), GONE),
    "another test set": ("still", (NEW_TEST,), KEPT),
    "another test set, and further": ("still", (NEW_TEST, "training.max_steps=4"), KEPT),
    "no test set": ("still", ("data.test={}",), KEPT),
    "another search": ("still", ("search.beam_size=3",), GONE),
    "other metrics": ("still", ("evaluation.metrics=[bleu,chrf,ter]",), GONE),
    "another tokenization": ("still", ("evaluation.tokenize=char",), GONE),
}


def train(config: str, *settings: str) -> int:
    return main(["train", config, *(part for setting in settings for part in ("--set", setting))])


def goes_on(name: str, *settings: str) -> list[str]:
    """The command that begins or continues one of the two runs."""
    fixed = (*FIXED, f"training.learning_rate={RATES[name]}")
    changes = [part for setting in (*fixed, *settings) for part in ("--set", setting)]
    return ["train", "tuned.yaml", "--run-dir", f"runs/{name}", *changes]


@pytest.fixture(scope="module")
def tuned(made_once) -> Path:
    """A folder with two runs that began from a model that has learned half of its task, both tuned."""
    return made_once("tuned", train_and_tune)


def train_and_tune(folder: Path) -> None:
    folder.mkdir()
    for name, count, seed in (("train", 300, 1), ("valid", 15, 2)):
        pairs = [(" ".join(row), " ".join(WORDS[word] for word in row)) for row in sentences(count, seed)]
        for side, suffix in enumerate(("en", "de")):
            (folder / f"{name}.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    (folder / "base.yaml").write_text(CONFIG, encoding="utf-8")
    without_model = [line for line in CONFIG.splitlines(keepends=True) if not line.startswith(("tokenizer", "model"))]
    (folder / "tuned.yaml").write_text("".join(without_model), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        patch.setattr(tune, "BEAM_SIZES", (1,))
        patch.setattr(tune, "LENGTH_PENALTIES", (1.5,))
        assert train("base.yaml", "training.max_steps=150", "training.learning_rate=1e-2") == 0
        for name in RATES:
            assert main(goes_on(name)) == 0
            assert main(["tune", f"runs/{name}", "-m", "chrf", "--engine", "torch"]) == 0
            assert NOTE in Path(f"runs/{name}/best/README.md").read_text()


@pytest.fixture
def folder(tuned, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(shutil.copytree(tuned, tmp_path / "copy", symlinks=True))
    monkeypatch.delenv("S2S_DATA", raising=False)
    return Path.cwd()


def rows(text: str) -> dict[tuple[str, str], str]:
    """The scores in the card."""
    scores = text.partition("## Scores")[2]
    table = re.findall(r"^\| (.*) \| (\S+) \| ([\d.]+) \| `.*` \|$", scores, re.MULTILINE)
    return {(data, metric): value for data, metric, value in table}


def measured(run: Path, name: str, metrics: list[str], tokenize: str, capsys) -> dict[str, str]:
    """The scores that users measure on the validation set or the training corpus."""
    capsys.readouterr()
    files = ["--source", f"{name}.en", "--reference", f"{name}.de", "-m", ",".join(metrics), "--tokenize", tokenize]
    assert main(["bleu", "--model", str(run), *files, "--engine", "torch", "-f", "json", "-w", "6"]) == 0
    scores = [f"{score['score']:.2f}" for score in json.loads(capsys.readouterr().out)]
    return dict(zip(metrics, scores, strict=True))


def check_agreement(run: Path, capsys, is_scored: bool = True) -> None:
    """Card, its front matter, description, test scores and measurements have the same figures."""
    text = (run / "best" / "README.md").read_text()
    stored = read_note(run / "test_scores.json").get("scores", ()) if is_scored else ()
    front = ModelCard(text).data.eval_results
    assert {(one.dataset_name, one.metric_type): f"{one.metric_value:.2f}" for one in front} == rows(text)
    tokenize = "char" if "tok:char" in text else "13a"
    for data, name in (("valid", "valid"), ("held out", "valid"), ("new", "train")):
        shown = {metric: value for (of, metric), value in rows(text).items() if of == data}
        scored = {one["metric"]: f"{one['value']:.2f}" for one in stored if one["dataset"] == data}
        assert (scored or shown) == shown
        assert not shown or measured(run, name, list(shown), tokenize, capsys) == shown
    metrics = load_outline(run).description.metrics
    record = read_run(run)
    assert {**metrics, **record.validation} == metrics
    assert {f"{one['dataset']} {one['metric']}": one["value"] for one in stored} == (record.tests if is_scored else {})
    settings = text.partition(f"{NOTE}: ")[2].strip(".\n")
    assert (f"tuned: {settings}" in record.note) == (NOTE in text)
    assert ("tuned since its test scores" in record.note) == (not is_scored)
    assert all(f"{metrics[name]:.2f}" == value for (data, name), value in rows(text).items() if data == "valid")
    assert ("valid", "bleu") in rows(text)


@pytest.mark.parametrize("way", WAYS)
def test_tuned_settings_are_kept_or_said_to_be_gone_and_all_scores_are_theirs(folder, capsys, way):
    name, settings, is_kept = WAYS[way]
    run, best = folder / "runs" / name, folder / "runs" / name / "best"
    before, weights = read_note(best / "generation_config.json"), (best / "model.safetensors").read_bytes()
    capsys.readouterr()
    assert main(goes_on(name, *settings)) == 0
    said = capsys.readouterr().err
    after = read_note(best / "generation_config.json")
    assert (after == before) == is_kept
    assert said.count("the search settings that s2s tune chose are gone") == (not is_kept)
    assert ("tuned" in after) == (NOTE in (best / "README.md").read_text()) == is_kept
    assert ((best / "model.safetensors").read_bytes() == weights) == (way != "further, with a better model")
    check_agreement(run, capsys)


def test_a_run_that_is_stopped_before_a_better_model_keeps_its_tuned_settings(folder, capsys):
    run = folder / "runs" / "still"
    before = {path: path.read_bytes() for path in (run / "best").iterdir()}
    process = s2s(folder, *goes_on("still", "training.max_steps=100000"))
    deadline = time.monotonic() + 120
    while not list(run.glob("checkpoints/step_0000001?")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "and stopped" in said
    assert {path: path.read_bytes() for path in (run / "best").iterdir()} == before
    check_agreement(run, capsys, is_scored=False)
