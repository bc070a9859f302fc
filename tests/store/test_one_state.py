"""A model folder that is replaced while it is used: what is read later comes from the files that were opened first."""

import os
import shutil
from pathlib import Path

import pytest
from support.our_models import make_ours
from support.serving import lines, quick_model, serving

from seq2seq import Translator
from seq2seq.errors import ModelError
from seq2seq.inference.aligner import Aligner, load_both
from seq2seq.inference.conversion_cache import converted
from seq2seq.inference.pipeline import Pipeline
from seq2seq.serve.limits import Refusal
from seq2seq.serve.models import load
from seq2seq.store.opened import Opened, in_one_state

DETAILS = ["alignment", "words", "confidence", "terms"]
WAYS = ("replaced", "removed", "file by file")
PAGE = {"text": "<p>a man <b>rides</b> two dogs</p>", "format": "html", "details": []}


def replace(folder: Path, other: Path, way: str) -> None:
    """As a training, a user, or a copy does it."""
    match way:
        case "replaced":
            shutil.copytree(other, folder.with_name("new"))
            folder.rename(folder.with_name("old"))
            folder.with_name("new").rename(folder)
        case "removed":
            shutil.rmtree(folder)
        case "file by file":
            for path in other.iterdir():
                shutil.copy(path, folder / f".{path.name}")
                os.replace(folder / f".{path.name}", folder / path.name)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    quick_model(place / "one")
    quick_model(place / "two", seed=4)
    (place / "terms.tsv").write_text("dogs\tKatzen\n")
    return place


def asked(server, **fields):
    return server.ask("/v1/translate", {"text": lines(3), "details": DETAILS, **fields})


@pytest.fixture(scope="module")
def expected(models):
    with serving(models / "one", "--glossary", f"terms={models / 'terms.tsv'}") as known:
        return [asked(known).json, asked(known, glossary="terms").json, asked(known, **PAGE).json]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_server_explains_with_the_model_that_translates(models, expected, tmp_path, way):
    shutil.copytree(models / "one", tmp_path / "best")
    with serving(tmp_path / "best", "--glossary", f"terms={models / 'terms.tsv'}") as server:
        replace(tmp_path / "best", models / "two", way)
        found = [asked(server), asked(server, glossary="terms"), asked(server, **PAGE)]
    for one, right in zip(found, expected, strict=True):
        assert one.status == 200, one.body
        assert one.json["translations"] == right["translations"]
        assert one.json["model"]["fingerprint"] == right["model"]["fingerprint"]


def test_files_that_are_overwritten_are_not_used(models, tmp_path, caplog):
    shutil.copytree(models / "one", tmp_path / "best")
    (served,) = load([tmp_path / "best"], {"threads": 1}, {"device": "cpu", "threads": 1})
    for path in (models / "two").iterdir():
        (tmp_path / "best" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(Refusal, match="log"):
        _ = served.aligner
    assert f"{tmp_path / 'best'}: its files changed after the model was loaded" in caplog.text


def test_an_error_names_the_folder_and_not_a_temporary_one(models, tmp_path, caplog):
    shutil.copytree(models / "one", tmp_path / "best")
    (tmp_path / "best" / "details.json").write_text("{")
    (served,) = load([tmp_path / "best"], {"threads": 1}, {"device": "cpu", "threads": 1})
    with pytest.raises(Refusal):
        _ = served.aligner
    assert f"{tmp_path / 'best'}/details.json" in caplog.text


@pytest.mark.parametrize("door", ["both", "terms", "server"])
def test_a_folder_that_is_replaced_between_two_reads_is_read_again(models, tmp_path, door, monkeypatch):
    """As often as three times; then it is refused."""
    shutil.copytree(models / "one", tmp_path / "best")
    loading, left = Translator.load, [1]

    def replaced_after(*arguments, **options):
        found = loading(*arguments, **options)
        if left[0] > 0:
            left[0] -= 1
            shutil.rmtree(tmp_path / "old", ignore_errors=True)
            replace(tmp_path / "best", models / ("two" if left[0] % 2 == 0 else "one"), "replaced")
        return found

    monkeypatch.setattr(Translator, "load", replaced_after)

    def read():
        match door:
            case "both":
                return load_both(tmp_path / "best", threads=1, device="cpu")
            case "terms":
                keeper = Pipeline.load(tmp_path / "best", glossary=models / "terms.tsv", threads=1, device="cpu")
                return keeper.translator, keeper.aligner
        (served,) = load([tmp_path / "best"], {"threads": 1}, {"device": "cpu", "threads": 1})
        return served.translator, served.aligner

    translator, aligner = read()
    right = loading(models / "two", threads=1).translate(lines(2))
    assert [one.text for one in translator.translate(lines(2))] == [one.text for one in right]
    pairs = [(one.source, one.text) for one in right]
    same = Aligner.load(models / "two", device="cpu", threads=1).score(pairs)
    assert [one.log_prob for one in aligner.score(pairs)] == pytest.approx([one.log_prob for one in same])
    left[0] = 99
    with pytest.raises(ModelError, match="changes while it is read"):
        read()


def test_an_error_of_a_folder_that_stays_is_told_at_once(tmp_path):
    make_ours(tmp_path / "model")
    calls = []

    def read():
        calls.append(1)
        raise ModelError("no")

    with pytest.raises(ModelError, match="no"):
        in_one_state(tmp_path / "model", read)
    assert len(calls) == 1


def test_a_conversion_of_a_folder_that_changes_is_not_kept(models, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(models / "one", tmp_path / "best")
    from seq2seq.store import model_folder

    loading = model_folder.load_model

    def replaced_after(folder):
        found = loading(folder)
        replace(tmp_path / "best", models / "two", "replaced")
        return found

    monkeypatch.setattr(model_folder, "load_model", replaced_after)
    with pytest.raises(ModelError, match="changed while it was converted"), converted(tmp_path / "best", "float32"):
        pass
    assert not list((tmp_path / "cache").rglob("model.bin"))


def test_files_are_let_go(models):
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    opened = Opened(models / "one")
    assert opened.is_current()
    opened.close()
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)
