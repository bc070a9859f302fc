"""`s2s distill`: five steps, each done once; killed in each of them, the command ends in the same student.

The teacher reverses sentences of number words.
"""

import functools
import gzip
import importlib
import json
import shutil
import signal
from pathlib import Path

import pytest
from support.forked import Forked, dies_in, typed_in_a_shell
from support.our_models import make_classifier
from support.reversed_folder import folder

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.schema import ModelConfig
from seq2seq.files import read_object
from seq2seq.interop.ctranslate2 import read_description
from seq2seq.store.model_folder import load_model, load_outline
from seq2seq.store.tuning import is_tuned
from seq2seq.workflows.distill.figures import Figures, MeasuredSystem, MeasuredSystems, speeds_and_scores
from seq2seq.workflows.distill.measured import _megabytes, page
from seq2seq.workflows.distill.request import Distillation
from seq2seq.workflows.distill.steps import Student

__all__ = ["folder"]  # a fixture

SECONDS = 300  # for a command, on a busy machine
STEPS = ["augment", "train", "tune", "convert", "measure"]
CONFIG = """
source_language: en
target_language: de
data:
  train: {source: train.en, target: train.de}
  valid: {source: valid.en, target: valid.de}
  num_workers: 1
MODEL
training: {max_steps: 60, batch_tokens: 512, learning_rate: 8.0e-3, warmup_steps: 30, validate_every: 30,
  checkpoint_every: 20, log_every: 30, threads: 1}
search: {beam_size: 1}
"""
MODEL = "model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1, max_length: 64}"


@pytest.fixture(scope="module")
def place(folder, tmp_path_factory) -> Path:
    """A folder with the teacher, its corpora (300 pairs), and configurations of students."""
    place = tmp_path_factory.mktemp("distill")
    for side in ("en", "de"):
        shutil.copy(folder / f"valid.{side}", place)
        lines = (folder / f"train.{side}").read_text().splitlines(keepends=True)
        (place / f"train.{side}").write_text("".join(lines[:300]))
    shutil.copytree(folder / "runs" / "toy" / "best", place / "teacher")
    (place / "student.yaml").write_text(CONFIG.replace("MODEL", MODEL))
    (place / "plain.yaml").write_text(CONFIG.replace("MODEL", ""))
    (place / "table.tsv").write_text("one two\teins zwei\n" * 3)
    (place / "german").write_text("Der alte Mann geht mit seinem Hund langsam durch den großen Park.\n" * 30)
    return place


@pytest.fixture(autouse=True)
def _inside(place, monkeypatch):
    monkeypatch.delenv("S2S_DATA", raising=False)
    monkeypatch.chdir(place)


# Where the process kills itself: a function, and the number of the call of it.
MOMENTS = [
    ("seq2seq.workflows.augment.job", "write_part", 1),
    ("seq2seq.training.trainer", "learning_rate", 45),
    ("seq2seq.workflows.tune", "translated", 3),
    ("seq2seq.workflows.distill.steps", "update_search", 0),
    ("seq2seq.workflows.convert", "write_ctranslate2", 0),
    ("seq2seq.workflows.distill.steps", "json_text", 0),  # converted, but not noted
    ("seq2seq.workflows.distill.measured", "score_texts", 1),
]
COMMAND = ["distill", "teacher", "student.yaml", "-o", "out", "--force", "--shard-lines", "100"]


def results(made: Path) -> dict[str, bytes]:
    """The files that a user gets, without the cards and the figures of speed."""
    files = [*made.glob("pairs/*"), *made.glob("model/*"), *made.glob("int8/*"), made / "run" / "metrics.jsonl"]
    kept = {path for path in files if path.suffix != ".md" and path.name != "metrics.jsonl"}
    assert {"model.safetensors", "model.bin", "augment.json", "generation_config.json"} <= {path.name for path in kept}
    return {str(path.relative_to(made)): path.read_bytes() for path in kept}


DIFFERENCES = {
    "--interpolate": "options.interpolate false there, true here",
    "--beam-size 2": "options.beam_size 1 there, 2 here",
    "--set data.filters.max_length=50": "data.filters.max_length 200 there, 50 here",
    "--set data.train.weight=3": "data.train.0.1 1.0 there, 3.0 here",
    "--set data.test={news: {source: train.en, target: train.de}}": "data.test.news not given there",
    "--set training.learning_rate=7e-3": "config.training.learning_rate 0.008 there, 0.007 here",
}


CHANGED = {
    "teacher/generation_config.json": "teacher has other weights or files than the model there",
    "valid.de": "data.valid has other lines than there",
}


def killed_in(module: str, name: str, calls: int, command: list[str]) -> int:
    dies_in(importlib.import_module(module), name, calls)()
    return typed_in_a_shell(*command)


@pytest.mark.slow
def test_killed_in_each_step_it_ends_in_the_same_student(place, capsys):
    assert main(COMMAND) == 0
    whole = results(Path("out"))
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("teacher, float32", "teacher, int8", "student, float32", "student, int8"))
    shutil.move("out", "whole")
    command = COMMAND
    for moment in MOMENTS:
        died = Forked(functools.partial(killed_in, *moment, command))
        _, said = died.communicate(SECONDS)
        assert died.returncode == -signal.SIGKILL, (moment, said)
        if "learning_rate" in moment:  # the training goes on elsewhere, without the pairs
            shutil.rmtree("out/pairs")
            Path("out").rename("moved")
            shutil.copytree("teacher", "elsewhere")
            command = ["distill", "elsewhere", "student.yaml", "-o", "moved", *COMMAND[5:]]
    last = Forked(lambda: typed_in_a_shell(*command))
    _, said = last.communicate(SECONDS)
    assert last.returncode == 0, said
    Path("moved").rename("out")
    assert "step 4 of 5, convert: done" in said
    assert results(Path("out")) == whole
    steps, others = (json.loads((Path(name) / "distill.json").read_text())["steps"] for name in ("out", "whole"))
    assert list(steps) == STEPS
    metrics = load_outline("out/model").description.metrics
    if is_tuned(read_object(Path("out/model/generation_config.json"))):
        assert {name: metrics[name] for name in steps["tune"]["after"]} == steps["tune"]["after"]
    assert read_description(Path("out/int8"))[0].metrics == metrics
    assert {name: steps[name] for name in STEPS[:4]} == {name: others[name] for name in STEPS[:4]}
    assert {path.name: each["figures"] for path in [Path("out")] for each in steps["measure"]["systems"].values()}
    student, teacher = load_model("out/model"), load_model("teacher")
    assert student.tokenizers.fingerprint == teacher.tokenizers.fingerprint
    for made in ("model", "int8"):
        shutil.rmtree(Path("out") / made)
    Path("out/report.html").unlink()
    assert main(COMMAND) == 0
    assert results(Path("out")) == whole, "what was deleted is made again"
    for change, difference in DIFFERENCES.items():
        assert main([*COMMAND, *change.split(" ", 1)]) == 2, change
        assert f"was made by another command: {difference}" in capsys.readouterr().err
    for path, told in CHANGED.items():
        content = Path(path).read_bytes()
        Path(path).write_bytes(content.swapcase() if path.startswith("valid") else content + b" ")
        assert main(COMMAND) == 2
        assert f"was made by another command: {told}; name another folder" in capsys.readouterr().err
        Path(path).write_bytes(content)
    for change in ("training.log_every=7", "training.threads=2", "training.num_samples=3", "data.num_workers=2",
                   "training.checkpoint_every=9", "training.record=false"):  # fmt: skip
        assert main([*COMMAND, "--set", change]) == 0, change
    assert main([*COMMAND, "--batch-tokens", "512"]) == 0
    assert results(Path("out")) == whole


@pytest.mark.slow
def test_several_teachers_are_an_ensemble_and_genuine_pairs_are_mixed_in(place, capsys):
    shutil.copytree("teacher", "second")
    options = ["--interpolate", "--force", "--set", "training.max_steps=4", "--set", "training.checkpoint_every=4"]
    assert main(["distill", "teacher", "second", "student.yaml", "-o", "both", *options]) == 0
    command = ["augment", "teacher", "--text", "train.en", "--kind", "forward", "--engine", "torch", "-o", "single"]
    assert main([*command, "--held-out", "valid.en", "--held-out", "valid.de"]) == 0
    assert pairs_in(Path("both/pairs")) == pairs_in(Path("single")), "an ensemble of equal models translates as one"
    trained = config_file.load(Path("both/run/config.yaml"), check_files=False).data.train
    assert [source.jsonl or source.source for source in trained] == [
        Path("train.en").resolve(),
        Path("both/pairs").resolve(),
    ]
    found = json.loads(Path("both/distill.json").read_text())["steps"]["measure"]["systems"]
    assert list(found) == ["teacher, float32", "student, float32", "student, int8"]
    assert found["teacher, float32"]["megabytes"] == pytest.approx(
        2 * Path("teacher/model.safetensors").stat().st_size / 1e6, abs=0.01
    )
    assert (
        "Teachers, an ensemble, which only PyTorch runs, in float32: teacher, second. They gave "
        in Path("both/report.html").read_text()
    )
    before = contents(Path("both/pairs"))
    again = ["distill", "teacher", "second", "student.yaml", "-o", "sibling", "--pairs", "both/pairs"]
    assert main([*again, "--set", "model.d_ff=32", *options]) == 0
    assert contents(Path("both/pairs")) == before
    assert not Path("sibling/pairs").exists()
    assert main(again) == 2
    assert "sibling: was made by another command: " in capsys.readouterr().err
    without = [word for word in again if word not in ("--pairs", "both/pairs")]
    assert main([*without, "--set", "model.d_ff=32", *options]) == 2
    assert "pairs 'of another student' there, not given here" in capsys.readouterr().err
    shutil.move("both/pairs", "moved")
    assert main([*again, "--set", "model.d_ff=32", *options]) == 0, "what is finished needs no pairs"
    shutil.move("moved", "both/pairs")
    assert main(["plot", "both", "sibling", "-o", "students.png"]) == 0
    assert Path("students.png").read_bytes().startswith(b"\x89PNG")
    assert main(["distill", "teacher", "student.yaml", "-o", "other", "--pairs", "both/pairs", *options]) == 2
    assert "both/pairs: was made by another command: models" in capsys.readouterr().err


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def pairs_in(folder: Path) -> list[tuple[str, str]]:
    lines = [line for path in sorted(folder.glob("part-*.gz")) for line in gzip.open(path, "rt")]
    return [(row["source"], row["target"]) for row in map(json.loads, lines)]


def test_the_student_has_the_preset_and_the_tokenizers_of_the_teacher_unless_the_config_names_others(place):
    for name in ("pairs", "augment.json"):
        Path("folder/pairs").mkdir(parents=True, exist_ok=True)
        Path("folder/pairs/augment.json").write_text("{}")
    plain = Student(Distillation((Path("teacher"),), Path("plain.yaml"), Path("folder"))).student_config()
    assert plain.model == ModelConfig(preset="student")
    assert (plain.model.num_encoder_layers, plain.model.num_decoder_layers, plain.model.d_model) == (6, 1, 256)
    assert plain.tokenizer.init_from == Path("teacher").resolve()
    assert [source.jsonl for source in plain.data.train] == [Path("folder/pairs").resolve()]
    own = Distillation(
        (Path("teacher"),), Path("student.yaml"), Path("folder"), overrides=("tokenizer.vocab_size=200",),
        has_genuine=True,
    )  # fmt: skip
    config = Student(own).student_config()
    assert config.model.preset == "tiny"
    assert (config.tokenizer.init_from, config.tokenizer.vocab_size) == (None, 200)
    assert [source.source and source.source.name for source in config.data.train] == ["train.en", None]


MISTAKES = {
    "no teacher": (["student.yaml"], "name one or more TEACHERs, and then CONFIG, a YAML file"),
    "no config": (["teacher", "teacher2"], "teacher2: cannot be read"),
    "a folder as config": (["student.yaml", "teacher"], "teacher is a folder; name CONFIG, a YAML file, after the"),
    "a teacher twice": (["teacher", "./teacher", "student.yaml"], "a TEACHER is given twice; name each once"),
    "another direction": (["teacher", "student.yaml", "--set", "source_language=fr"], "teacher: translates en-de, but "
                          "the student translates fr-de; name another teacher or config"),
    "weights to begin with": (["teacher", "student.yaml", "--set", "training.init_from=teacher"],
                              "training.init_from: a student begins with new weights; leave it out"),
    "a classifier": (["classifier", "student.yaml"], "classifier: a classification model; name a translation model"),
    "many languages": (["teacher", "student.yaml", "--set", "source_language=null", "--set", "target_language=null",
                        "--set", "languages={source: [en], target: [de, fr]}", "--set", "data.valid={en-de: {source: "
                        "valid.en, target: valid.de}}", "--set", "data.train={source: train.en, target: train.de, "
                        "from: en, to: de}"], "languages: a student has one direction; write source_language and"),
    "a missing text": (["teacher", "student.yaml", "--text", "nowhere"], "nowhere: cannot be read"),
    "a text in a table": (["teacher", "student.yaml", "--text", "table.tsv"], "table.tsv: this looks like a table with "
                          "tabs (TSV); translate one column of it (cut -f 1 FILE), or give --force"),
    "a text in another language": (["teacher", "student.yaml", "--text", "german"], "german: 100 % of the sampled "
                                   "lines with a clear language are German, but the student translates from English; "
                                   "give text in this language, or --force"),
    "pairs of nothing": (["teacher", "student.yaml", "--pairs", "teacher"], "--pairs teacher: not a folder of "
                         "pairs (augment.json is missing); name that of another student, such as models/other/pairs"),
    "a missing corpus": (["teacher", "student.yaml", "--set", "data.train.source=none"], "file none not found"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_before_the_work(mistake, place, capsys):
    if not Path("classifier").exists():
        make_classifier(place / "classifier", ("a", "b"))
    arguments, message = MISTAKES[mistake]
    assert main(["distill", *arguments, "-o", "new"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("new").exists()


def test_a_text_in_another_language_may_be_forced(place, capsys):
    """The next check is that of the folder."""
    Path("full").mkdir()
    Path("full/letter").write_text("Dear Sir")
    command = ["distill", "teacher", "student.yaml", "--text", "german", "-o", "full"]
    for more, message in (([], "are German"), (["--force"], "full: exists already, and has no distill.json")):
        assert main([*command, *more]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


def test_the_page_escapes_text_and_asks_for_nothing():
    figures = {"a <b>": Figures({"bleu": 41.25, "chrf": 60.5}, 1234.5)}
    systems = {"student & co": MeasuredSystem("PyTorch", 10.26, figures)}
    measured = MeasuredSystems({"a <b>": 3}, systems, {"bleu": "BLEU|x"})
    assert MeasuredSystems.from_json(json.loads(json.dumps(measured.as_json()))) == measured
    text = page("Student in <i>", measured, ["Teacher: <u>."])
    assert "<i>" not in text
    assert "<b>" not in text
    assert "<u>" not in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert all(figure in text for figure in ("41.25", "60.50", "1,234.5", "10.3", "student &amp; co", "BLEU|x"))


def student_in(
    folder: Path, speeds: tuple[float, float, float] = (1.0, 2.0, 3.0), test: str = "news", **changes: object
) -> Path:
    """Write the figures of a student: speeds of the teacher and of the student in float32 and int8, and scores."""
    names = ("teacher, float32", "student, float32", "student, int8")
    systems = {
        name: MeasuredSystem("PyTorch", 10.26, {test: Figures({"bleu": 40.0 + place, "chrf": 60.0}, speed)})
        for place, (name, speed) in enumerate(zip(names, speeds, strict=True))
    }
    measured = MeasuredSystems({test: 3}, systems, {"bleu": "BLEU|x"}).as_json()
    described = {
        "teachers": ["a"],
        "options": {"beam_size": 5, "interpolate": bool(speeds[0] % 2)},
        "config": {"source_language": "en", "target_language": "de"},
        "data": {"train": [[f"of {folder.name}", 1.0]], "valid": "of both", "test": {test: "of both"}, "filters": {}},
        "steps": {"measure": measured},
    }
    folder.mkdir(parents=True)
    (folder / "distill.json").write_text(json.dumps({**described, **changes}))
    return folder


def test_students_measured_at_different_times_are_compared_by_the_speed_of_their_teacher(tmp_path):
    large = student_in(tmp_path / "large", (10.0, 50.0, 90.0))
    small = student_in(tmp_path / "small", (20.0, 80.0, 300.0))
    (points,) = speeds_and_scores([small, large], "bleu").values()
    assert points == {
        "teacher, float32": [(1.0, 40.0, "10.3 MB")],
        "students, float32": [(4.0, 41.0, "small, 10.3 MB"), (5.0, 41.0, "large, 10.3 MB")],
        "students, int8": [(9.0, 42.0, "large, 10.3 MB"), (15.0, 42.0, "small, 10.3 MB")],
    }


def test_students_of_one_name_are_told_apart_and_the_current_folder_has_its_name(tmp_path, monkeypatch):
    for parent in ("a", "b"):
        student_in(tmp_path / parent / "student")
    monkeypatch.chdir(tmp_path / "a/student")
    (alone,) = speeds_and_scores([Path()], "bleu").values()
    assert [label for _, _, label in alone["students, int8"]] == ["student, 10.3 MB"]
    monkeypatch.chdir(tmp_path)
    (points,) = speeds_and_scores([Path("a/student"), Path("b/student")], "bleu").values()
    assert [label for _, _, label in points["students, int8"]] == ["a/student, 10.3 MB", "b/student, 10.3 MB"]


OTHERS = {
    "its teachers differ from those of": {"teachers": ["b"]},
    "its search options differ from those of": {"options": {"beam_size": 1, "interpolate": True}},
    "its languages differ from those of": {"config": {"source_language": "en", "target_language": "fr"}},
    "its test sets differ from those of": {"data": {"valid": "of both", "test": {"news": "another"}}},
    "name students with the same test sets": {"test": "talks"},
    "not finished; run the same s2s distill command again": {"steps": {"augment": {}}},
}
DAMAGED = {"distill.json is not JSON": "{", "not a folder of s2s distill (distill.json is missing)": None}


def test_a_student_is_drawn_once(tmp_path, capsys):
    own = student_in(tmp_path / "own")
    assert main(["plot", str(own), f"{own}/.", "-o", str(tmp_path / "x.png")]) == 2
    assert "a student is given twice" in capsys.readouterr().err


@pytest.mark.parametrize("message", [*OTHERS, *DAMAGED])
def test_only_finished_students_of_the_same_conditions_are_compared(message, tmp_path, capsys):
    first, other = student_in(tmp_path / "first"), tmp_path / "other"
    if message in OTHERS:
        student_in(other, **OTHERS[message])
    else:
        other.mkdir()
        if DAMAGED[message] is not None:
            (other / "distill.json").write_text(DAMAGED[message])
    assert main(["plot", str(first), str(other), "-o", str(tmp_path / "x.png")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert str(other) in line
    assert not (tmp_path / "x.png").exists()


def test_the_size_of_a_model_is_that_of_the_weights_that_are_loaded(tmp_path):
    (tmp_path / "optimizer.bin").write_bytes(b"0" * 500_000)
    assert _megabytes(tmp_path) == 0.5
    for name in ("model-00001-of-2.safetensors", "model-00002-of-2.safetensors", "config.json"):
        (tmp_path / name).write_bytes(b"0" * 1_000_000)
    assert _megabytes(tmp_path) == 2.0
