"""`s2s train` as its user meets it: a run from config to translations, going on, refusing, and both tasks."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from support.forked import s2s
from support.number_words import CONFIG, WORDS, sentences
from support.ranks import finish, start_work

from seq2seq.cli import main
from seq2seq.config.schema import TrainingConfig
from seq2seq.runtime import Runtime
from seq2seq.store.model_folder import load_model
from seq2seq.tasks.machine import batch_advice, feed_advice
from seq2seq.tasks.run_folder import WRITTEN


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """A folder with a tiny corpus and its config, as the current one."""
    for name, count, seed in (("train", 1500, 1), ("valid", 20, 2)):
        rows = sentences(count, seed)
        (tmp_path / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
        (tmp_path / f"{name}.de").write_text(
            "".join(" ".join(WORDS[word] for word in reversed(row)) + "\n" for row in rows), encoding="utf-8"
        )
    (tmp_path / "toy.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    return tmp_path


def train(*arguments: str) -> int:
    return main(["train", "toy.yaml", *arguments])


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_everything_that_is_promised(folder, curves, capfd):
    assert train() == 0
    run = folder / "runs" / "toy"
    for name in (
        "config.yaml",
        "metrics.jsonl",
        "samples.txt",
        "curves.png",
        "tokenizer/source.spm",
        "best/config.json",
    ):
        assert (run / name).exists(), name
    for name in ("model.safetensors", "source.spm", "target.spm", "generation_config.json", "README.md"):
        assert (run / "best" / name).exists(), name
    assert {path.name for path in run.iterdir()} <= {"config.yaml", "identity.json", *WRITTEN}, "--overwrite knows them"
    assert (folder / "runs" / "latest").resolve() == run.resolve()
    written = records(run)
    assert {"step", "loss", "tokens_per_second", "learning_rate", "grad_norm"} <= set(written[0])
    assert {"valid_loss", "bleu", "chrf"} <= set(written[-1])
    assert not list(run.rglob("*.pt"))
    assert not list(run.rglob("*.pkl"))
    out, err = capfd.readouterr()
    assert out == "", "standard output belongs to what programs read"
    assert "s2s translate" in err
    card = (run / "best" / "README.md").read_text(encoding="utf-8")
    assert "s2s " in card
    assert "sacrebleu" not in card.splitlines()[0]
    assert "train.en" in card


@pytest.mark.slow
def test_the_same_command_says_that_it_is_finished(folder, capfd):
    assert train() == 0
    before = (folder / "runs/toy/metrics.jsonl").read_bytes()
    capfd.readouterr()
    assert train() == 0
    assert "already finished" in capfd.readouterr().err
    assert (folder / "runs/toy/metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_more_steps_go_on_from_where_it_stopped(folder, capfd):
    assert train("--set", "training.max_steps=6") == 0
    assert train("--run-dir", "runs/straight") == 0
    assert train() == 0
    assert "continuing from step 6" in capfd.readouterr().err
    resumed, straight = (load_model(folder / "runs" / name).model.state_dict() for name in ("toy", "straight"))
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


@pytest.mark.slow
def test_a_changed_config_is_refused_key_by_key(folder, capfd):
    assert train() == 0
    before = {path: path.read_bytes() for path in (folder / "runs/toy").rglob("*") if path.is_file()}
    capfd.readouterr()
    assert train("--set", "model.d_ff=96", "--set", "training.learning_rate=0.5", "--set", "training.log_every=1") == 2
    message = capfd.readouterr().err
    assert "model.d_ff: was 64, now 96" in message
    assert "training.learning_rate: was 0.001, now 0.5" in message
    assert "--overwrite" in message
    assert "log_every" not in message
    assert before == {path: path.read_bytes() for path in (folder / "runs/toy").rglob("*") if path.is_file()}
    assert train("--set", "model.d_ff=96", "--overwrite") == 0
    assert load_model(folder / "runs/toy").model.config.d_ff == 96


def test_a_folder_that_is_no_run_is_left_alone(folder, capfd):
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("do not lose this")
    assert train("--run-dir", "mine", "--overwrite") == 2
    assert "not a run folder" in capfd.readouterr().err
    assert (folder / "mine" / "thesis.txt").read_text() == "do not lose this"


def test_dry_run_shows_figures_and_trains_nothing(folder, capfd):
    assert train("--dry-run") == 0
    out = capfd.readouterr().out
    for figure in ("parameters", "vocabulary", "padding", "1,500", "max_steps: 12"):
        assert figure in out
    assert not (folder / "runs" / "toy").exists()


@pytest.mark.parametrize(
    ("kind", "batch_tokens", "accumulate", "is_recorded", "remedy"),
    [
        ("cpu", 1000, 1, False, ""),
        ("cuda", 25000, 1, False, ""),
        ("cuda", 1000, 1, True, ""),
        ("cuda", 1000, 1, False, "higher learning rate"),
        ("cuda", 1000, 4, False, "lower training.accumulate (4)"),
    ],
)
def test_a_batch_too_small_for_a_gpu_is_pointed_out(kind, batch_tokens, accumulate, is_recorded, remedy):
    training = TrainingConfig(batch_tokens=batch_tokens, accumulate=accumulate)
    lines = batch_advice(training, Runtime(torch.device(kind), torch.float32), is_recorded)
    assert [remedy in line for line in lines] == [True] * bool(remedy)


def test_a_feeder_that_is_too_slow_for_the_steps_is_pointed_out():
    assert ["waits" in line for fed in (3e6, 1.1e6, 4e5) for line in feed_advice(fed, 1e6)] == [False, True, True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--set", "training.mx_steps=3"], "training.mx_steps: unknown key; did you mean 'max_steps'?"),
        (["--set", "data.train.source=gone.en"], "gone.en not found"),
        (["--set", "training.device=cuda:99"], "cuda"),
        (["--set", "training.device=abacus"], "abacus"),
        (["--set", "training.init_from=nowhere"], "nowhere not found"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_2(folder, capfd, change, words):
    assert train(*change) == 2
    message = capfd.readouterr().err.strip()
    assert words in message
    assert len(message.splitlines()) == 1
    assert not (folder / "runs").exists()


def test_unequal_sides_are_counted_before_training(folder, capfd):
    with open(folder / "train.de", "a", encoding="utf-8") as file:
        file.write("eins\n")
    assert train() == 2
    message = capfd.readouterr().err
    assert "1,500" in message
    assert "1,501" in message


@pytest.mark.slow
def test_fine_tuning_starts_from_the_model_and_keeps_its_vocabulary(folder, capfd):
    assert train() == 0
    (folder / "tune.yaml").write_text(
        CONFIG.split("model:")[0]
        + "training: {max_steps: 1, init_from: runs/toy, learning_rate: 1.0e-9, threads: 1}\nsearch: {beam_size: 1}\n"
    )
    assert main(["train", "tune.yaml"]) == 0
    first, tuned = load_model(folder / "runs/toy"), load_model(folder / "runs/tune")
    assert tuned.tokenizers.fingerprint == first.tokenizers.fingerprint
    assert tuned.model.config.d_model == first.model.config.d_model == 32
    for name, weight in first.model.state_dict().items():
        torch.testing.assert_close(tuned.model.state_dict()[name], weight, atol=1e-4, rtol=0)
    capfd.readouterr()
    assert main(["train", "tune.yaml", "--set", "model.d_model=64", "--overwrite"]) == 2
    assert "model.d_model: 64, but the model of training.init_from has 32" in capfd.readouterr().err


@pytest.fixture
def reviews(folder: Path) -> Path:
    draw = random.Random(3)
    for name, count in (("train", 300), ("valid", 40)):
        rows = []
        for _ in range(count):
            label = draw.randint(0, 1)
            words = draw.choices(list(WORDS), k=4)
            words[draw.randrange(4)] = "good" if label else "bad"
            rows.append(f"{' '.join(words)}\t{label}\n")
        (folder / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    (folder / "toy.yaml").write_text(
        "task: classification\n"
        "data: {train: {tsv: train.tsv}, valid: {tsv: valid.tsv}, num_workers: 1,\n"
        "  label_names: {'0': negative, '1': positive}}\n"
        "tokenizer: {vocab_size: 320}\n"
        "model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1}\n"
        "training: {max_steps: 120, batch_tokens: 512, warmup_steps: 10, learning_rate: 3.0e-3,\n"
        "  validate_every: 60, threads: 1}\n"
    )
    return folder


def test_a_classifier_learns_what_is_there_to_learn(reviews, capfd):
    assert train() == 0
    last = records(reviews / "runs/toy")[-1]
    assert {"valid_loss", "accuracy", "precision", "recall", "f1"} <= set(last)
    assert last["accuracy"] >= 0.95, "one word decides"
    capfd.readouterr()
    (reviews / "in.txt").write_text("one good two\n\nbad three\n")
    assert main(["classify", "runs/toy", "-i", "in.txt"]) == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.split("\n")[:-1]]
    assert [row[0] for row in rows] == ["positive", "", "negative"]
    assert main(["classify", "runs/toy", "--gold", "valid.tsv", "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["accuracy"] == pytest.approx(last["accuracy"])


@pytest.mark.slow
def test_a_classifier_starts_from_the_encoder_of_a_translation_run(folder, reviews, capfd):
    (folder / "translate.yaml").write_text(CONFIG)
    assert main(["train", "translate.yaml"]) == 0
    text = (
        (reviews / "toy.yaml")
        .read_text()
        .replace("tokenizer: {vocab_size: 320}\n", "")
        .replace("model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1}\n", "")
    )
    text = text.replace("max_steps: 120", "init_from: runs/translate, max_steps: 1").replace("3.0e-3", "1.0e-9")
    (folder / "toy.yaml").write_text(text)
    assert train() == 0
    encoder = load_model(folder / "runs/translate").model.encoder.state_dict()
    for name, weight in load_model(folder / "runs/toy").model.encoder.state_dict().items():
        torch.testing.assert_close(weight, encoder[name], atol=1e-4, rtol=0)


def test_a_label_that_training_never_saw_is_named(reviews, capfd):
    with open(reviews / "valid.tsv", "a") as file:
        file.write("one two\t7\n")
    assert train() == 2
    assert "'7'" in capfd.readouterr().err


@pytest.mark.slow
def test_a_dry_run_of_two_processes_makes_one_report(folder, monkeypatch):
    """Batches of a rank are compared with what that rank reads."""
    compared = folder / "compared"

    def told(fed, trained):
        compared.joinpath(os.environ["RANK"]).write_text(str(trained))
        return feed_advice(fed, trained)

    compared.mkdir()
    assert train("--set", "training.max_steps=1") == 0  # SentencePiece may fail to train in a forked process
    monkeypatch.setattr("seq2seq.tasks.run.feed_advice", told)
    monkeypatch.setattr("seq2seq.training.trainer.Trainer.time_steps", lambda trainer: (1.0, 0.5))
    monkeypatch.setattr("seq2seq.tasks.run.FEED_SECONDS", 0.01)
    ended = finish(start_work(lambda: main(["train", "toy.yaml", "--dry-run"]), 2, folder))
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert [output.count("# model: ") for _, output, _ in ended] == [1, 0]
    reports = "".join(output + errors for _, output, errors in ended)
    assert reports.count("batches are made at") == 1
    tokens = [float(compared.joinpath(str(rank)).read_text()) for rank in range(2)]
    assert tokens[0] == tokens[1]
    alone = finish(start_work(lambda: main(["train", "toy.yaml", "--dry-run"]), 1, folder))
    assert alone[0][0] == 0, alone
    assert float(compared.joinpath("0").read_text()) == 2 * tokens[0]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_same_command_goes_on(folder, number):
    assert train("--set", "training.max_steps=1") == 0  # SentencePiece may fail to train in a forked process
    process = s2s(folder, "train", "toy.yaml", "--set", "training.max_steps=100000")
    deadline = time.monotonic() + 120
    while len(list(folder.glob("runs/toy/checkpoints/step_*"))) < 2 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Run the same command to continue." in err
    steps = sorted(int(path.name.removeprefix("step_")) for path in folder.glob("runs/toy/checkpoints/step_*"))
    assert f"Saved at step {steps[-1]} and stopped" in err.replace(",", "")
    again = s2s(folder, "train", "toy.yaml", "--set", f"training.max_steps={steps[-1] + 1}")
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0
    assert f"continuing from step {steps[-1]}" in err.replace(",", "")


@pytest.mark.slow
def test_torchrun_trains_on_two_processes(folder):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    result = subprocess.run(
        [*torchrun, "-m", "seq2seq", "train", "toy.yaml"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "2 ranks" in result.stderr
    for once in ("finished at step 12", "try: echo", "held out: bleu"):
        assert result.stderr.count(once) == 1, f"{once!r} is told by one of them"
    refused = finish(start_work(lambda: main(["train", "toy.yaml", "--set", "model.dropout=0.3"]), 2, folder))
    assert all(code != 0 for code, _, _ in refused)
    said = "".join(errors for _, _, errors in refused)
    assert said.count("model.dropout: was 0.1, now 0.3") == 1
    assert "internal error" not in said
    assert [record["step"] for record in records(folder / "runs/toy") if "bleu" in record] == [6, 12]
    assert load_model(folder / "runs/toy").model.config.d_model == 32


@pytest.mark.slow
def test_a_small_model_learns_to_reverse_and_translate_number_words(folder, capfd):
    """A task whose answer is known, end to end: words are translated one by one and come in reverse order."""
    changes = (
        "training.max_steps=300", "training.learning_rate=2e-2", "training.warmup_steps=20",
        "training.schedule=linear", "training.optimizer=muon", "training.precision=float32",
        "training.validate_every=300", "model.dropout=0.0", "model.d_model=64",
    )  # fmt: skip
    assert train(*(part for change in changes for part in ("--set", change))) == 0
    capfd.readouterr()
    assert main(["bleu", "--model", "runs/toy", "--metrics", "bleu", "--format", "json"]) == 0
    assert '"score"' in capfd.readouterr().out
    assert records(folder / "runs/toy")[-1]["bleu"] > 90
    (folder / "in.txt").write_text("one two three\n\nnine four\n")
    assert main(["translate", "runs/toy", "-i", "in.txt", "--beam-size", "3"]) == 0
    assert capfd.readouterr().out == "drei zwei eins\n\nvier neun\n"


def test_two_processes_never_train_in_one_folder(folder, capfd):
    fcntl = pytest.importorskip("fcntl")
    (folder / "runs").mkdir()
    with open(folder / "runs" / ".toy.lock", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert train("--overwrite") == 2
    assert "another process trains in this folder" in capfd.readouterr().err
    assert not (folder / "runs" / "toy").exists()
