"""Which run is taken where no MODEL is named: the newest of the task that is asked for."""

import os
from pathlib import Path

import pytest
from support.our_models import make_classifier, make_ours

from seq2seq import Classifier, Translator
from seq2seq.cli import main
from seq2seq.cli.options import newest_models
from seq2seq.errors import ModelError
from seq2seq.store.finding import find_model


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    make_ours(folder / "translation", ending=3.0)
    make_classifier(folder / "classification", ["good", "bad"])
    return folder


@pytest.fixture
def runs(made, tmp_path, monkeypatch):
    """`runs(task, task, ...)` makes runs in this order, `runs/1` the oldest; `runs/latest` names the last."""
    monkeypatch.chdir(tmp_path)

    def make(*tasks):
        for number, task in enumerate(tasks, start=1):
            run = Path("runs") / str(number)
            (run / "best").mkdir(parents=True)
            for path in (made / task).iterdir():
                (run / "best" / path.name).write_bytes(path.read_bytes())
            os.utime(run / "best" / "config.json", (number, number))
        Path("runs/latest").symlink_to(str(len(tasks)))

    return make


@pytest.mark.parametrize(
    ("tasks", "translation", "classification"),
    [
        ("t", 1, None),
        ("c", None, 1),
        ("tc", 1, 2),
        ("ct", 2, 1),
        ("tcc", 1, 3),
        ("ttc", 2, 3),
        ("tctcc", 3, 5),
        ("cctt", 4, 2),
    ],
)
def test_each_task_has_its_newest_run(runs, tasks, translation, classification):
    names = {"t": "translation", "c": "classification"}
    runs(*(names[letter] for letter in tasks))
    expected = {"translation": translation, "classification": classification}
    for task, number in expected.items():
        if number is None:
            with pytest.raises(ModelError, match=f"no run under runs/ is a {task} model"):
                find_model(None, task)
        else:
            assert find_model(None, task).resolve() == Path(f"runs/{number}/best").resolve()
    assert find_model(None).resolve() == Path(f"runs/{len(tasks)}/best").resolve()
    served = [path.resolve() for path in newest_models()]
    assert served == [Path(f"runs/{number}/best").resolve() for number in expected.values() if number is not None]


def test_commands_and_the_library_take_the_run_of_their_task(runs, capsys):
    runs("translation", "classification", "translation", "classification")
    Path("text").write_text("two dogs play\n")
    for verb, number in (("translate", 3), ("classify", 4), ("info", 4)):
        capsys.readouterr()
        assert main([verb, *(["-i", "text"] if verb != "info" else [])]) == 0
        assert f"using {Path(f'runs/{number}/best').resolve()}" in capsys.readouterr().err
    assert Translator.load().description.task == "translation"
    assert Classifier.load().labels == ("good", "bad")


def test_a_newest_run_without_a_model_yet_is_said_and_not_passed_over(runs, capsys):
    runs("translation")
    Path("runs/2").mkdir()
    Path("runs/2/config.yaml").write_text("task: translation\n")
    Path("runs/latest").unlink()
    Path("runs/latest").symlink_to("2")
    assert main(["translate"]) == 2
    assert "no best model yet" in capsys.readouterr().err


@pytest.mark.parametrize("gone", ["its run", "the link"])
def test_the_next_newest_run_is_taken_when_the_newest_is_gone(runs, gone):
    runs("translation", "classification", "translation")
    Path("runs/latest").unlink() if gone == "the link" else Path("runs/3").rename("away")
    left = 3 if gone == "the link" else 2
    assert find_model(None).resolve() == Path(f"runs/{left}/best").resolve()
    assert find_model(None, "classification").resolve() == Path("runs/2/best").resolve()


def test_no_run_at_all_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for task in (None, "translation", "classification"):
        with pytest.raises(ModelError, match="there is no run under runs/"):
            find_model(None, task)
