"""`s2s tune` compares settings of one model, and writes them to that model alone, completely or not at all."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from support.forked import Forked, dies_in, typed_in_a_shell
from support.our_models import make_ours

from seq2seq import atomic
from seq2seq.cli import main
from seq2seq.store import model_folder
from seq2seq.store.model_folder import load_outline, update_search
from seq2seq.tasks.run_folder import RunFolder
from seq2seq.workflows import tune

CONFIG = """
source_language: en
target_language: de
data:
  train: {source: FOLDER/text, target: FOLDER/text}
  valid: {source: FOLDER/text, target: FOLDER/text}
  test: {news: {source: FOLDER/text, target: FOLDER/text}, other: {source: FOLDER/other, target: FOLDER/text}}
"""
FILES = ("--source", "text", "--reference", "text")
NEW = ("-o", "new")
WAYS = pytest.mark.parametrize("output", [(), NEW], ids=["in place", "-o"])


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A run as training leaves it, without checkpoints, and with few candidates to tune."""
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("one two\nfour\n")
    Path("other").write_text("six\nfive\n")
    make_ours(Path("runs/a/best"), ending=3.0)
    Path("runs/a/config.yaml").write_text(CONFIG.replace("FOLDER", str(tmp_path)))
    monkeypatch.setattr(tune, "BEAM_SIZES", (1,))
    monkeypatch.setattr(tune, "LENGTH_PENALTIES", (1.0,))
    return Path("runs/a")


def tuned(*typed: str) -> int:
    return main(["tune", *map(str, typed), "--engine", "torch"])


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@WAYS
@pytest.mark.parametrize("model", ["runs/a", "runs/a/best", "link", None])
@pytest.mark.parametrize("files", [(), FILES], ids=["of the run", "given"])
def test_a_run_that_is_training_is_refused(run, model, files, output, capsys):
    Path("link").symlink_to("runs/a")
    before = contents(run)
    with RunFolder(run.resolve()).locked():
        assert tuned(*([model] if model else ()), *files, *output) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == (
        "s2s: runs/a: another process trains in this run; wait for it, stop it, or tune a copy of runs/a/best with "
        "--source and --reference"
    )
    assert contents(run) == before
    assert not Path("new").exists()


@WAYS
def test_a_copy_of_the_best_model_of_a_run_that_is_training_can_be_tuned(run, output):
    shutil.copytree("runs/a/best", "copy")
    with RunFolder(run.resolve()).locked():
        assert tuned("copy", *FILES, *output) == 0


CHANGES = {
    "other weights": lambda best: make_ours(best, ending=3.0, seed=4),
    "other search settings": lambda best: update_search(best, {"beam_size": 7}, {}),
    "no folder": shutil.rmtree,
}
# The first line of the set, and the number of its translation, after which the model changes.
MOMENTS = {"at the second candidate": ("one two", 2), "at the last test set": ("six", 2)}


@WAYS
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_changes_while_it_is_tuned_is_refused(run, change, moment, output, monkeypatch, capsys):
    """Law: there is no result, and the changed model stays as it is."""
    first_line, number = MOMENTS[moment]
    original, calls, changed_run = tune.translated, [], {}

    def translated(folder, pairs, *arguments, **search):
        texts = original(folder, pairs, *arguments, **search)
        calls.append(pairs[0].source)
        if calls[-1] == first_line and calls.count(first_line) == number:
            CHANGES[change](run / "best")
            changed_run.update(contents(run))
        return texts

    monkeypatch.setattr(tune, "translated", translated)
    assert tuned(run, *output) != 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("s2s: runs/a/best: ")
    if (change, moment) != ("no folder", "at the last test set"):  # there is nothing to copy or to write to
        assert "changed while it was tuned; tune it again when nothing writes to it" in captured.err
    assert captured.out == ""
    assert calls.count(first_line) == number, "it goes on with a model that changed"
    assert contents(run) == changed_run
    assert not Path("new").exists()


def test_notes_beside_a_model_may_change_while_it_is_tuned(run, monkeypatch):
    original = tune.translated

    def translated(folder, *arguments, **search):
        with open(run / "best" / "README.md", "a") as card:
            card.write("A line.\n")
        return original(folder, *arguments, **search)

    monkeypatch.setattr(tune, "translated", translated)
    assert tuned(run) == 0


def without_space(*arguments):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("is_killed", [False, True], ids=["full disk", "killed"])
def test_a_new_folder_has_the_tuned_settings_or_does_not_exist(run, is_killed, monkeypatch):
    """Law: whatever ends the command when it writes the settings, the same command works then."""
    typed = ["tune", "runs/a", *NEW, "--engine", "torch"]
    if is_killed:

        def work() -> int:
            dies_in(model_folder, "update_search", 0)()
            return typed_in_a_shell(*typed)

        assert Forked(work).wait() < 0
    else:
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "write_file", without_space)
            assert main(typed) == 1
    assert not Path("new").exists()
    assert main(typed) == 0
    assert "tuned" in json.loads(Path("new/generation_config.json").read_text())


GONE = {
    "missing": lambda path: path.unlink(),
    "of another length": lambda path: path.write_text("one\n"),
    "not text": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0"),
}


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, *(pytest.param(number, marks=pytest.mark.slow) for number in (errno.EACCES, errno.EIO))]
)
@pytest.mark.parametrize("left", [0, 2])
def test_a_file_that_cannot_be_copied_is_named_with_the_reason(run, number, left, monkeypatch, capsys):
    copies, copy = [], shutil.copy2

    def failing(source: Path, target: Path) -> None:
        copies.append(target)
        if len(copies) > left:
            raise OSError(number, os.strerror(number), str(target))
        copy(source, target)

    monkeypatch.setattr(shutil, "copy2", failing)
    assert tuned("runs/a", *FILES, *NEW) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("s2s: ")
    assert "internal error" not in error
    assert os.strerror(number).casefold() in error.casefold()
    assert not Path("new").exists()
    monkeypatch.setattr(shutil, "copy2", copy)
    assert tuned("runs/a", *FILES, *NEW) == 0


@pytest.mark.parametrize("files", [(), FILES], ids=["of the run", "given"])
@pytest.mark.parametrize("way", GONE)
def test_test_sets_that_cannot_be_read_are_left_out(run, way, files, capsys):
    """Law: the others are scored, and a warning names each that is not."""
    GONE[way](Path("other"))
    assert tuned(run, *files, "--format", "json") == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)["scores"]) == ["validation", "news"]
    (warning,) = [line for line in captured.err.splitlines() if "left out" in line]
    assert "test set other is left out: " in warning
    assert f"{Path('other').resolve()}" in warning


def test_a_validation_set_that_cannot_be_read_is_refused_with_the_remedy(run, capsys):
    Path("text").rename("moved")
    before = load_outline(run).description.search
    assert tuned(run) == 2
    assert capsys.readouterr().err.rstrip().endswith("; give --source and --reference")
    assert load_outline(run).description.search == before
    assert tuned(run, "--source", "moved", "--reference", "moved") == 0
