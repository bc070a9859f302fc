"""A distillation continues after its folders were moved, and makes a deleted result again if a step needs it."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.number_words import sentences
from support.our_models import make_ours

from seq2seq.config.corpora import NoiseConfig
from seq2seq.config.values import PARTS_FILE
from seq2seq.errors import DataError, UserError
from seq2seq.files import read_object, record
from seq2seq.inspection.overlap import normalise
from seq2seq.workflows.augment.request import Request, prepare
from seq2seq.workflows.distill.request import Distillation
from seq2seq.workflows.distill.steps import RESULT, Student
from seq2seq.workflows.parts import PartCounts, finish_folder, open_parts, write_part

CONFIG = """
source_language: en
target_language: de
data:
  train: {source: train.en, target: train.de}
  valid: {source: valid.en, target: valid.de}
  test: {news: {source: valid.en, target: valid.de}}
tokenizer: {init_from: tokens}
"""


def write_text(name: str, number: int) -> None:
    Path(name).write_text(f"A man has {number} dogs.\n")


def write_pairs(folder: Path) -> dict[str, str]:
    """Write two parts of pairs, and return the facts about them that a step keeps."""
    with open_parts(folder, {"languages": {"source": "en", "target": "de"}}, {}) as description:
        for number in range(2):
            write_part(folder, number, [{"source": "a", "target": "b"}], PartCounts(1, 1))
        finish_folder(folder, description, 2, PartCounts(2, 2))
    return {"description": record(folder / PARTS_FILE)["sha256"]}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """A project with models, corpora, a text, and pairs of another student."""
    folder = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("train.en", "train.de", "valid.en", "valid.de", "more.en"):
            write_text(name, 2)
        for seed, name in enumerate(("teacher", "tokens")):
            make_ours(Path(name), seed=seed)
        write_pairs(Path("pairs"))
        Path("student.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
def project(shelf, tmp_path, monkeypatch) -> Path:
    """A copy of the project, the current folder."""
    monkeypatch.delenv("S2S_DATA", raising=False)
    shutil.copytree(shelf, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def student(
    *, teacher="teacher", output="out", text="more.en", pairs: str | None = None, genuine=False, **changes: str
) -> Student:
    overrides = tuple(f"{key.replace('__', '.')}={value}" for key, value in changes.items())
    wanted = Distillation((Path(teacher),), Path("student.yaml"), Path(output), (Path(text),), overrides,
                          pairs=pairs and Path(pairs), has_genuine=genuine, is_forced=genuine)  # fmt: skip
    return Student(wanted)


def moved(path: str) -> str:
    return str(shutil.move(path, f"moved-{path}"))


MOVES: dict[str, Callable[[], dict[str, str]]] = {
    "the output": lambda: {"output": "another"},
    "the teacher": lambda: {"teacher": moved("teacher")},
    "the text": lambda: {"text": moved("more.en")},
    "the model of the tokenizers": lambda: {"tokenizer__init_from": moved("tokens")},
    "a corpus": lambda: {"data__train": f"{{source: {moved('train.en')}, target: train.de}}"},
    "a test set": lambda: (
        {"data__test__news": f"{{source: {moved('valid.en')}, target: valid.de}}"}
        | {"data__valid": "{source: moved-valid.en, target: valid.de}"}
    ),
    "the pairs of another student": lambda: {"pairs": moved("pairs")},
}


@pytest.mark.parametrize("what", MOVES)
def test_the_same_contents_at_another_path_are_the_same_student(project, what):
    has_pairs = {"pairs": "pairs"} if "pairs" in what else {}
    before = student(**has_pairs)._identity()
    assert student(**MOVES[what]())._identity() == before


def identity_of_pairs() -> dict[str, Any]:
    Path("out").mkdir(exist_ok=True)
    return dict(prepare(student()._wanted_pairs()).identity)


def test_pairs_are_the_same_if_their_teacher_is_moved_out_of_its_run_meanwhile(project):
    """The lines of the sets of that run are left out too."""
    shutil.move("teacher", "runs/old/best")
    write_text("other.en", 5)
    write_text("other.de", 6)
    Path("runs/old/config.yaml").write_text(CONFIG.replace("valid.", "other."))
    shutil.copytree("runs/old/best", "alone")
    Path("out").mkdir()
    inside = prepare(student(teacher="runs/old")._wanted_pairs())
    assert prepare(student(teacher="alone")._wanted_pairs()).identity == inside.identity
    for number in (2, 5, 6):
        assert f"amanhas{number}dogs" in inside.job.held_out


def test_a_project_that_was_moved_has_the_same_student_and_pairs(project, monkeypatch):
    before = student()._identity(), identity_of_pairs()
    assert str(project) not in str(before)
    project.rename(project.parent / "new")
    monkeypatch.chdir(project.parent / "new")
    assert (student()._identity(), identity_of_pairs()) == before


def write_tagged(folder: Path) -> None:
    """Write a folder of back-translations with a tag."""
    identity = {"options": {"tag": "<back>"}, "languages": {"source": "en", "target": "de"}}
    with open_parts(folder, identity, {}) as description:
        write_part(folder, 0, [{"source": "<back> A dog.", "target": "Ein Hund."}], PartCounts(1, 1))
        finish_folder(folder, description, 1, PartCounts(1, 1))


BOTH = "[{source: train.en, target: train.de}, {jsonl: back}]"


def test_teachers_do_not_read_the_tag_of_back_translations(project):
    write_tagged(Path("back"))
    Path("out").mkdir()
    source, *_ = student(data__train=BOTH)._wanted_pairs().texts
    assert gzip.decompress(source.read_bytes()).decode() == "A man has 2 dogs.\nA dog.\n"


EXTRA = {"tokenizer": "{vocab_size: 300, extra_pieces: [<back>]}"}
OWN = {"tokenizer": "{vocab_size: 300}"}
REFUSED = {
    "the teacher's tokenizer": ({"tokenizer": "{sampling: 0.1}"}, "name it in tokenizer.extra_pieces, for a new "),
    "tokenizer.init_from": ({}, "make the folder again without --tag"),
    "a new tokenizer": (OWN, "add <back> to tokenizer.extra_pieces"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_tag_that_the_student_cannot_read_is_refused_before_the_teachers_translate(name, project):
    write_tagged(Path("back"))
    changes, remedy = REFUSED[name]
    with pytest.raises(DataError, match=f"begin with <back>, which is not a piece of the tokenizer; {remedy}"):
        student(genuine=True, data__train=BOTH, **changes).make()
    assert not Path("out").exists()


@pytest.mark.parametrize("given", [{"genuine": True, **EXTRA}, OWN], ids=["a piece", "only for the teachers"])
def test_a_tag_that_the_student_can_read_or_need_not_is_no_obstacle(given, project, monkeypatch):
    write_tagged(Path("back"))
    monkeypatch.setattr(Student, "_take_steps", lambda *_: None)
    student(data__train=BOTH, **given).make()
    assert (Path("out") / RESULT).exists()


SIDES = {"en": 7, "de": 8}  # the seeds of their lines


@pytest.mark.parametrize("kind", NoiseConfig.kinds)
@pytest.mark.parametrize("name", ["valid", "test.news"])
def test_sets_with_noise_are_held_out_without_it_too(name, kind, project):
    """Sets of the student, and of the run of a teacher, in both of which they have the noise."""
    Path("out").mkdir()
    lines = {side: [f"{' '.join(sentence)}." for sentence in sentences(20, seed)] for side, seed in SIDES.items()}
    for side, texts in lines.items():
        Path(f"noisy.{side}").write_text("".join(f"{text}\n" for text in texts))
    noisy = f"{{source: noisy.en, target: noisy.de, noise: {{{kind}: 1}}}}"
    own = prepare(student(**{f"data__{name.replace('.', '__')}": noisy})._wanted_pairs()).job.held_out
    assert own >= set(map(normalise, lines["en"]))
    key = name.rpartition(".")[2]
    shutil.move("teacher", "runs/old/best")
    Path("runs/old/config.yaml").write_text(
        CONFIG.replace(f"{key}: {{source: valid.en, target: valid.de}}", f"{key}: {noisy}")
    )
    of_run = prepare(Request((Path("runs/old"),), (Path("more.en"),), Path("pairs"))).job.held_out
    assert of_run >= set(map(normalise, lines["en"] + lines["de"]))


CHANGES: dict[str, Callable[[], object]] = {
    "teachers": lambda: make_ours(Path("teacher"), seed=9),
    "texts": lambda: write_text("more.en", 3),
    "tokenizer": lambda: make_ours(Path("tokens"), seed=9, shared=False),
    "data": lambda: write_text("valid.de", 3),
}


@pytest.mark.parametrize("key", CHANGES)
def test_other_contents_at_the_same_path_are_another_student(project, key):
    before = student()._identity()
    CHANGES[key]()
    after = student()._identity()
    assert {name for name in before if before[name] != after[name]} == {key}


# -- steps that are left -----------------------------------------------------------------------------------------------

STEPS = ("augment", "train", "tune", "convert", "measure")
FOLDERS = ("out/pairs", "out/run/best", "out/model", "out/int8")


@pytest.mark.parametrize(
    ("done", "deleted", "left"),
    [
        (5, [], []),
        (5, ["out/pairs", "out/run"], []),
        (5, ["out/pairs", "out/run", "out/report.html"], ["measure"]),
        (5, ["out/pairs", "out/model"], ["tune"]),
        (5, ["out/run", "out/model"], ["train", "tune", "convert", "measure"]),
        (5, ["out/pairs", "out/run", "out/model"], list(STEPS)),
        (2, ["out/pairs"], ["tune", "convert", "measure"]),
        (1, [], ["train", "tune", "convert", "measure"]),
        (1, ["out/pairs"], list(STEPS)),
        (1, [f"out/pairs/{PARTS_FILE}"], list(STEPS)),
        (1, ["out/pairs/part-00001.jsonl.gz"], list(STEPS)),
    ],
)
def test_what_was_deleted_is_made_again_if_a_step_that_is_left_needs_it(project, done, deleted, left):
    results = {name: {} for name in STEPS[:done]} | {"augment": write_pairs(Path("out/pairs"))}
    for folder in FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)
    Path("out/report.html").touch()
    for path in map(Path, deleted):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert {name for name, is_left in student()._is_left(results).items() if is_left} == set(left)


class Interrupted(Exception):
    pass


def test_a_step_that_is_stopped_when_it_is_done_again_is_left(project, monkeypatch):
    """Later steps are left too, because their results are those of an earlier student."""
    first = student()
    with open_parts(first.folder, first._identity(), {}, RESULT) as description:
        pass
    results = {name: {} for name in STEPS} | {"augment": write_pairs(Path("out/pairs"))}
    (first.folder / RESULT).write_text(json.dumps({**description, "steps": results}))
    for folder in ("out/int8", "out/pairs"):
        Path(folder).mkdir(exist_ok=True)
    Path("out/report.html").touch()

    def interrupted(self):
        (self.run / "best").mkdir(parents=True, exist_ok=True)
        raise Interrupted

    monkeypatch.setattr(Student, "_train", interrupted)
    for _ in range(2):  # the second finds a model of a training that is not finished
        with pytest.raises(Interrupted):
            student().make()
        assert read_object(first.folder / RESULT)["steps"].keys() == {"augment"}


def test_a_student_of_a_teacher_with_two_vocabularies_ties_none_of_them(project):
    make_ours(Path("two"), shared=False, tied_embeddings="none")
    Path("student.yaml").write_text(CONFIG.replace("tokenizer: {init_from: tokens}", ""))
    write_pairs(Path("out/pairs"))
    config = student(teacher="two").student_config()
    assert (config.model.preset, config.model.tied_embeddings) == ("student", "decoder")
    assert student(teacher="teacher").student_config().model.tied_embeddings == "all"
    assert student(teacher="two", model__tied_embeddings="none").student_config().model.tied_embeddings == "none"


def test_a_folder_may_have_any_name(project):
    write_pairs(Path("😀 é/pairs"))
    (source,) = student(output="😀 é").student_config().data.train
    assert source.jsonl == Path("😀 é/pairs").resolve()


def test_pairs_of_another_student_that_are_missing_are_named_before_the_work(project):
    shutil.rmtree("pairs")
    with pytest.raises(UserError, match=r"--pairs pairs: not a folder of pairs \(augment.json is missing\)"):
        student(pairs="pairs").make()
    assert not Path("out").exists()


# -- what the first step refuses ---------------------------------------------------------------------------------------

OF_OTHERS: dict[str, tuple[Callable[[], object], str]] = {
    "another teacher": (
        lambda: make_ours(Path("teacher"), seed=9),
        "teacher has other weights or files than the model",
    ),
    "other genuine pairs": (lambda: write_text("train.en", 3), "data.train has other lines than there"),
    "more genuine pairs": (
        lambda: (Path("train.en").write_text("A dog.\n" * 3), Path("train.de").write_text("Ein Hund.\n" * 3)),
        "data.train has other lines than there;",
    ),
    "another text": (lambda: write_text("more.en", 3), "more.en has other lines than there"),
    "another validation set": (lambda: write_text("valid.en", 3), "other lines are held out"),
}


@pytest.mark.parametrize("change", OF_OTHERS)
def test_pairs_of_other_data_are_refused_in_the_words_of_the_user_before_anything_is_written(project, change):
    with open_parts(Path("of another"), identity_of_pairs(), {}):
        shutil.rmtree("out")
    assert set(student(pairs="of another")._checked_texts()) == {"source.txt.gz", "held_out.txt.gz"}
    spoil, told = OF_OTHERS[change]
    spoil()
    before = sorted(project.rglob("*"))
    with pytest.raises(UserError) as refusal:
        student(pairs="of another").make()
    assert str(refusal.value).startswith("--pairs of another: was made by another command: ")
    assert told in str(refusal.value)
    assert ".txt.gz" not in str(refusal.value)
    assert sorted(project.rglob("*")) == before


def test_a_text_given_twice_is_refused_before_anything_is_written(project):
    texts = Path("more.en"), project / "more.en"
    wanted = Distillation((Path("teacher"),), Path("student.yaml"), Path("out"), texts)
    with pytest.raises(UserError, match="a --text is given twice"):
        Student(wanted).make()
    assert not Path("out").exists()


# -- steps made again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("is_other", [False, True])
@pytest.mark.parametrize("deleted", ["model", "int8"])
def test_a_step_made_again_with_another_result_repeats_the_steps_that_read_it(
    project, deleted, is_other, is_stopped, monkeypatch
):
    """If the command was stopped meanwhile, the earlier result is not known."""
    first, taken, stops = student(), [], [True] * is_stopped
    with open_parts(first.folder, first._identity(), {}, RESULT) as description:
        pass
    names = dict(zip(("tune", "convert", "measure"), ("model", "int8", "report.html"), strict=True))
    results = {name: {"value": 1} for name in STEPS} | {"augment": write_pairs(Path("out/pairs"))}
    (first.folder / RESULT).write_text(json.dumps({**description, "steps": results}))
    for name in ("run/best", *names.values()):
        (first.folder / name).mkdir(parents=True, exist_ok=True)
    shutil.rmtree(first.folder / deleted)

    def made(step: str) -> Callable[..., dict[str, Any]]:
        def take(self, *done):
            taken.append(step)
            (self.folder / names[step]).mkdir(exist_ok=True)
            if stops and stops.pop():
                raise Interrupted
            return {"value": 1 + is_other}

        return take

    for step in names:
        monkeypatch.setattr(Student, f"_{step}", made(step))
    if is_stopped:
        with pytest.raises(Interrupted):
            student().make()
        taken.clear()
    student().make()
    own = list(names.values()).index(deleted)
    assert taken == list(names)[own : None if is_other or is_stopped else own + 1]
    taken.clear()
    student().make()
    assert taken == []
