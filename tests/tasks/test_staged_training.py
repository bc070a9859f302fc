"""Training in stages by the command: what it shows, what it refuses, and the runs of every kind that have stages.

The corpora are number words. The second source is a folder as `s2s augment` makes it.
"""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from support.launches import as_on_a_gpu
from support.many_directions import CONFIG as MANY
from support.many_directions import write_corpora
from support.number_words import WORDS, sentences
from support.tape import Tapes
from support.whole_runs import differences

from seq2seq.cli import main
from seq2seq.data.parts import part_path
from seq2seq.plots import learning_curves
from seq2seq.store.model_folder import load_model
from seq2seq.tasks import machine
from seq2seq.tasks.stages import epochs_of
from seq2seq.training import recorded
from seq2seq.workflows.runs import find_runs

CONFIG = """
source_language: en
target_language: de
data:
  train:
    - {name: genuine, source: train.en, target: train.de}
    - {name: back, jsonl: back}
  valid: {source: valid.en, target: valid.de}
  stages:
    - {until_epoch: 2, weights: {genuine: 0.5, back: 2}}
    - {weights: {genuine: 1}, restart: true}
  num_workers: 1
tokenizer: {vocab_size: 300, sampling: 0.3}
model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1, max_length: 64, dropout: 0.1}
training: {max_epochs: 4, batch_tokens: 256, warmup_steps: 5, schedule: cosine, validate_every: 10, checkpoint_every: 4,
  log_every: 3, threads: 1, device: cpu, keep_last: 100}
search: {beam_size: 1}
"""


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    return [(" ".join(row), " ".join(WORDS[word] for word in row)) for row in sentences(count, seed)]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with corpora, and a run in stages in `runs/staged`."""
    folder = tmp_path_factory.mktemp("staged")
    for name, count, seed in (("train", 300, 1), ("valid", 20, 3)):
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs(count, seed)))
    (folder / "back").mkdir()
    for part in range(2):
        lines = [json.dumps({"source": source, "target": target}) for source, target in pairs(60, 7 + part)]
        part_path(folder / "back", part).write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))
    described = {"counts": {"parts": 2}, "languages": ["en", "de"]}
    (folder / "back" / "augment.json").write_text(json.dumps(described))
    (folder / "staged.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        assert main(["train", "staged.yaml"]) == 0
    return folder


@pytest.fixture(autouse=True)
def _inside(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.delenv("S2S_DATA", raising=False)


def train(name: str, *changes: str, config: str = "staged.yaml") -> int:
    given = [part for change in changes for part in (("--set", change) if "=" in change else (change,))]
    return main(["train", config, "--run-dir", f"runs/{name}", *given])


def records(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(f"runs/{name}/metrics.jsonl").read_text().splitlines()]


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_the_dry_run_has_each_stage_with_the_shares_of_its_sources(capfd):
    assert train("dry", "--dry-run") == 0
    lines = [line.removeprefix("# ") for line in capfd.readouterr().out.splitlines()]
    first, second = (
        next(number for number, line in enumerate(lines) if line.startswith(words))
        for words in ("stage 1 of 2, epochs 0 to 2: ", "stage 2 of 2, from epoch 2, the schedule of the learning rate ")
    )
    sizes = [int(line.split(":")[1].split()[0]) for line in lines[first + 1 : first + 3]]
    seen = 0.5 * sizes[0] + 2 * sizes[1]
    assert lines[first + 1].startswith("  genuine: ")
    assert f"{50 * sizes[0] / seen:.3g} % of an epoch, each seen 0.5 times" in lines[first + 1]
    assert lines[first + 2].startswith("  back: ")
    assert f"{200 * sizes[1] / seen:.3g} % of an epoch, each seen 2 times" in lines[first + 2]
    assert "100 % of an epoch, each seen 1 time" in lines[second + 1]
    assert "0 % of an epoch, each seen 0 times" in lines[second + 2]
    assert "batches per epoch" in lines[first]
    assert not Path("runs/dry").exists()


def test_the_start_has_the_same_lines_and_a_stage_that_is_not_reached_is_named(capfd):
    assert train("short", "training.max_steps=2", "training.max_epochs=") == 0
    told = capfd.readouterr().err
    assert "stage 1 of 2, epochs 0 to 2: " in told
    assert "  back: " in told
    assert told.count("data.stages.1: training ends before, with about epoch 0") == 1


def test_curves_show_the_stages(tmp_path):
    (border,) = [record["step"] for record in records("staged") if "stage" in record]
    marked = learning_curves(records("staged"), tmp_path / "staged.svg").read_text(encoding="utf-8")
    plain = learning_curves([one for one in records("staged") if "stage" not in one], tmp_path / "plain.svg")
    assert marked.count("stroke-dasharray") > plain.read_text(encoding="utf-8").count("stroke-dasharray")
    assert border in [record["step"] for record in records("staged") if "valid_loss" in record]


def test_the_stages_of_a_model_are_those_that_began_before_its_step():
    """A stage that was passed at once is none of them, and what a roll-back forgot did not happen."""
    found = [
        {"step": 10, "loss": 1.0, "epoch": 0.5},
        {"step": 20, "stage": 2, "epoch": 2.0, "ended": 1.25},
        {"step": 30, "stage": 4, "epoch": 5.0},
    ]
    last, first, second = float("inf"), (0.0, 1.25), (2.0, 5.0)
    expected = {0: {}, 5: {0: (0.0, last)}, 20: {0: (0.0, last)}, 21: {0: first, 1: (2.0, last)}}
    expected |= {30: {0: first, 1: (2.0, last)}, 31: {0: first, 1: second, 3: (5.0, last)}}
    assert {step: epochs_of(found, step) for step in expected} == expected
    for back, stages in ((10, [0]), (20, [0, 1]), (29, [0, 1]), (30, [0, 1, 3])):
        assert list(epochs_of([*found, {"step": back, "rollback": 1, "from_step": 33}], 40)) == stages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [("whole", ()), ("first", ("training.max_epochs=1",)), ("border", ("training.max_epochs=2",)),
     ("early", ("data.stages.0.until_epoch=50", "training.max_epochs=52", "training.max_steps=60",
                "training.patience=1"))],
)  # fmt: skip
def test_the_card_has_the_stages_that_the_model_was_trained_in(name, changes):
    """And no others, also if the run went on, or ended before; their epochs are those that were trained."""
    assert train(f"card-{name}", *changes) == 0
    borders = [record for record in records(f"card-{name}") if "stage" in record]
    best = Path(f"runs/card-{name}/best")
    step = load_model(best).description.metrics["step"]
    told = [line for line in (best / "README.md").read_text("utf-8").splitlines() if "Training, stage " in line]
    if borders and borders[0]["step"] < step:
        (border,) = borders
        first, second = told
        assert f"Training, stage 1 of 2, epochs 0 to {border.get('ended', border['epoch']):g}: genuine: " in first
        assert f"Training, stage 2 of 2, from epoch {border['epoch']:g}, " in second
    else:
        (only,) = told
        assert "Training, stage 1 of 2, from epoch 0: genuine: " in only


def test_a_run_that_trains_is_listed_with_its_stage(made, tmp_path):
    from seq2seq import atomic

    shutil.copytree(made / "runs/staged", tmp_path / "run")
    for checkpoint in (tmp_path / "run/checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    with atomic.locked(tmp_path / ".run.lock", wait=False):
        (found,) = find_runs(tmp_path)
    assert (found.state, found.note) == ("running", "stage 2 of 2")


def test_a_source_whose_examples_are_all_left_out_is_named(capfd):
    """A stage that sees nothing else is refused; in other runs there is a warning."""
    files = "source: train.en, target: train.de"
    stages = "data.stages=[{until_epoch: 1, weights: {all: 1}}, {weights: {clean: 1, all: 0}}]"
    assert train("empty", f"data.train=[{{name: all, {files}}}, {{name: clean, {files}}}]", stages) == 2
    told = capfd.readouterr().err.splitlines()
    assert told[-1].startswith("s2s: data.stages.1: no example of clean is left: sources before it in data.train have")
    assert train("half", f"data.train=[{{{files}}}, {{{files}}}]", "data.stages=[]", "training.max_steps=1") == 0
    warned = [line for line in capfd.readouterr().err.splitlines() if ": no example is left" in line]
    assert len(warned) == 1
    assert "train.en: " in warned[0]


# -- identity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("data.stages.0.until_epoch=3", "data.stages.0.until_epoch: was 2, now 3"),
        ("data.stages.0.weights.back=1", "data.stages.0.weights.back: was 2.0, now 1.0"),
        ("data.stages.1.restart=false", "data.stages.1.restart: was true, now false"),
        ("data.stages=[{weights: {genuine: 1, back: 1}}]", "data.stages.0.until_epoch: was 2, now unset"),
    ],
)
def test_other_stages_stop_a_run_by_name(capfd, change, key):
    assert train("staged", change, "training.max_epochs=5") == 2
    told = capfd.readouterr().err
    assert key in told
    assert "--overwrite" in told
    assert "training.init_from=runs/staged" in told


def test_a_longer_training_lengthens_the_last_stage(made):
    shutil.copytree("runs/staged", "runs/longer")
    assert train("longer", "training.max_epochs=4.5") == 0
    assert [record["stage"] for record in records("longer") if "stage" in record] == [2]
    assert records("longer")[-1]["step"] > records("staged")[-1]["step"]


def test_stages_do_not_change_tokenizers_and_corpora(made):
    before = {path.name for path in (made / "runs/cache").iterdir()}
    assert train("other", "data.stages.0.weights.back=3", "training.max_epochs=", "training.max_steps=1") == 0
    assert (made / "runs/other/tokenizer/source.spm").read_bytes() == (
        made / "runs/staged/tokenizer/source.spm"
    ).read_bytes()
    assert {path.name for path in (made / "runs/cache").iterdir()} == before


# -- the same bits -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_stage_with_the_weights_of_the_sources_is_a_config_without_stages(capfd):
    plain = ["data.stages=[]", "data.train.0.name=", "data.train.1.name=", "data.train.1.weight=1.5"]
    one = ["data.stages=[{weights: {genuine: 1, back: 1.5}}]"]
    for name, changes in (("plain", plain), ("one", one)):
        assert train(name, *changes, "training.max_epochs=1") == 0
    told = [one for one in differences(Path("runs/plain"), Path("runs/one")) if not one.startswith("best/README.md")]
    assert told == []
    assert "of 1" not in capfd.readouterr().err


# -- other kinds of runs -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_shares_of_directions_are_those_of_each_stage(made, tmp_path, monkeypatch, capfd):
    write_corpora(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = MANY.replace("TAGS", "source").replace("- {source: train", "- {name: large, source: train")
    text = text.replace("- {source: small", "- {name: small, source: small").replace("max_steps: 6", "max_epochs: 2")
    stages = "  stages: [{until_epoch: 1, weights: {large: 1, small: 1}}, {weights: {small: 2}}]\n"
    Path("many.yaml").write_text(text.replace("  temperature: 3\n", f"  temperature: 3\n{stages}"), encoding="utf-8")
    assert main(["train", "many.yaml", "--run-dir", "run"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert any("stage 2 of 2 begins, at epoch 1" in line for line in lines)
    shares = {sides: [line for line in lines if f"stage {sides}: " in line] for sides in ("1, en-de", "1, en-fr")}
    assert all(len(found) == 1 for found in shares.values())
    (alone,) = [line for line in lines if "stage 2, en-fr: " in line]
    assert "100 % of an epoch, each seen 2 times" in alone
    assert any("stage 2, en-de: " in line and " 0 % of an epoch" in line for line in lines)


def test_a_classifier_trains_in_stages(made, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    for name, count in (("a", 60), ("b", 40)):
        rows = [f"{' '.join(row)}\t{'one' in row:d}" for row in sentences(count, count)]
        Path(f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    Path("classes.yaml").write_text("""
task: classification
data:
  train: [{name: a, tsv: a.tsv}, {name: b, tsv: b.tsv}]
  valid: {tsv: b.tsv}
  stages: [{until_epoch: 1, weights: {a: 1}}, {weights: {a: 0.5, b: 1}}]
  num_workers: 1
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 16, num_heads: 2, d_ff: 16, num_encoder_layers: 1}
training: {max_epochs: 2, batch_tokens: 128, threads: 1, device: cpu}
""")
    assert main(["train", "classes.yaml", "--run-dir", "run"]) == 0
    told = capfd.readouterr().err
    assert "stage 2 of 2 begins, at epoch 1" in told
    assert "texts, " in told


@pytest.mark.slow
def test_a_recorded_run_changes_its_stage(monkeypatch):
    """Its recordings serve both stages, whatever the rate and the sources are."""
    tapes = Tapes()
    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(recorded, "CudaGraphs", lambda: tapes)
    monkeypatch.setattr(machine, "check_record", lambda *_: None)
    assert train("recorded", "training.record=true", "training.precision=float32") == 0
    assert sum(tape.replays for tape in tapes.made) > 10
    assert [record["stage"] for record in records("recorded") if "stage" in record] == [2]


def test_a_student_has_no_stages(made, capfd):
    assert main(["distill", "runs/staged", "staged.yaml", "-o", "student"]) == 2
    assert "data.stages: a student learns from all pairs in one stage; leave it out" in capfd.readouterr().err
    assert not Path("student").exists()
