"""The figures of a distillation: what is measured, and under which conditions."""

from pathlib import Path

import pytest
from support.our_models import make_ours

from seq2seq.config import file as config_file
from seq2seq.config.schema import Config, SearchConfig
from seq2seq.evaluation.probe import Probe
from seq2seq.inference.pipeline import Pipeline
from seq2seq.workflows.convert import export_ctranslate2
from seq2seq.workflows.distill.figures import MeasuredSystems
from seq2seq.workflows.distill.measured import measure

CONFIG = """
source_language: en
target_language: de
data:
  train: {source: test.en, target: test.de}
  valid: {source: test.en, target: test.de}
"""
LINES = ["A man walks.", "Two dogs run."]
ROWS = ["teacher, float32", "teacher, int8", "student, float32", "student, int8"]
GREEDY = SearchConfig(beam_size=1, max_length_offset=5)


@pytest.fixture
def student(tmp_path, monkeypatch) -> Config:
    """The configuration of a student, whose folders are in the current folder, next to two teachers."""
    monkeypatch.chdir(tmp_path)
    for side in ("en", "de"):
        Path(f"test.{side}").write_text("".join(f"{line}\n" for line in LINES))
    Path("student.yaml").write_text(CONFIG)
    for seed, name in enumerate(("teacher", "second", "student")):
        make_ours(tmp_path / name, seed=seed, search=GREEDY, num_encoder_layers=1, num_decoder_layers=1)
    export_ctranslate2(Path("student"), Path("int8"), "int8", Probe(tuple(LINES)), force=True)
    return config_file.load(Path("student.yaml"))


def measured_of(config: Config, *teachers: str, **loading: object) -> MeasuredSystems:
    return measure(config, list(map(Path, teachers)), loading, Path("student"), Path("int8"))


@pytest.mark.parametrize("teachers", [["teacher"], ["teacher", "second"]])
def test_all_speeds_are_those_of_the_cpu_with_the_same_batches_and_threads(student, monkeypatch, teachers):
    """Also for teachers that made the pairs on a GPU, which a machine without one refuses to open."""
    loaded, load = [], Pipeline.load

    def noted(*paths, **options):
        loaded.append({key: options.get(key) for key in ("device", "threads", "batch_tokens")})
        return load(*paths, **options)

    monkeypatch.setattr(Pipeline, "load", noted)
    measured = measured_of(student, *teachers, device="cuda", threads=1, batch_tokens=64, beam_size=2)
    assert list(measured.systems) == [row for row in ROWS if row != "teacher, int8" or len(teachers) == 1]
    assert loaded == [{"device": "cpu", "threads": 1, "batch_tokens": 64}] * len(measured.systems)
    assert not any("cuda" in system.engine for system in measured.systems.values())


def test_a_teacher_that_int8_cannot_run_is_left_out_and_the_rest_is_measured(student, tmp_path, caplog):
    """CTranslate2 counts `search.min_length` in another way."""
    make_ours(tmp_path / "long", search=GREEDY.model_copy(update={"min_length": 2}))
    assert list(measured_of(student, "long").systems) == [row for row in ROWS if row != "teacher, int8"]
    (message,) = [message for message in caplog.messages if "int8" in message]
    assert message.startswith("the teacher is not measured in int8: ")
    assert "search.min_length" in message
