"""A run is its folder, whatever path leads to it: links, dots, `runs/latest`; and what is in the folder agrees."""

import json
import os
import shutil
from pathlib import Path

import pytest
from support.toy_run import Killed
from test_run_identity import BASE, TUNE, other_words, outcome, write_all

from seq2seq import atomic
from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.store.model_folder import GENERATION, load_model
from seq2seq.tasks import run as runs
from seq2seq.tasks.run_folder import RunFolder
from seq2seq.training.trainer import Trainer

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs links")
TEST = BASE.replace("test: {}", "test: {a: {source: test.en, target: test.de}}")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """A folder with a corpus and a finished run in `runs/one`."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        write_all()
        for name, text in (("base", BASE), ("tune", TUNE), ("test", TEST)):
            Path(f"{name}.yaml").write_text(text)
        assert main(["train", "base.yaml", "--run-dir", "runs/one"]) == 0
    shutil.copytree(folder / "runs/one", folder / "one")
    return folder


@pytest.fixture
def folder(shelf, monkeypatch) -> Path:
    """The shelf as it was, and a `runs/latest` that names `runs/one`, as the current folder."""
    monkeypatch.chdir(shelf)
    monkeypatch.delenv("S2S_DATA", raising=False)
    write_all()
    for name in os.listdir("runs"):
        place = Path("runs", name)
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif name != "cache":
            shutil.rmtree(place)
    shutil.rmtree("big", ignore_errors=True)
    Path("big").mkdir()
    shutil.copytree("one", "runs/one")
    Path("runs/latest").symlink_to("one")
    return shelf


def train(run: str, *arguments: str, config: str = "base.yaml") -> int:
    pairs = [part for argument in arguments for part in (("--set", argument) if "=" in argument else (argument,))]
    return main(["train", config, "--run-dir", run, *pairs])


def newest_step(run: str) -> int:
    return max(int(path.name.removeprefix("step_")) for path in Path(run, "checkpoints").iterdir())


def records(run: str) -> list[dict]:
    return [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]


# -- one folder, many paths ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["runs/latest", "runs/one/", "./runs/one", "runs/../runs/one", "runs/latest/../one", "runs/one/.", "link"]
)
def test_every_path_to_a_run_goes_on_in_it(folder, path, capfd):
    if path == "link":
        shutil.rmtree("link", ignore_errors=True) if not Path("link").is_symlink() else Path("link").unlink()
        Path("link").symlink_to("runs/one")
    assert train(path, "training.max_steps=5") == 0
    assert "continuing from step 4" in capfd.readouterr().err
    assert newest_step("runs/one") == 5
    assert os.readlink("runs/latest") == "one"
    assert sorted(os.listdir("runs")) == [".one.lock", "cache", "latest", "one"]


@pytest.mark.parametrize("path", ["runs/latest", "runs/new", "."])
def test_overwrite_deletes_the_run_and_keeps_the_way_to_it(folder, path, capfd, monkeypatch):
    """And what the run did not write."""
    if path == "runs/new":
        shutil.move("runs/one", "big/one")
        Path("runs/new").symlink_to("../big/one")
    real = Path(path).resolve() if path != "." else Path("runs/one").resolve()
    inode = real.stat().st_ino
    for name in ("notes.txt", "corpus/train.en"):
        Path(real, name).parent.mkdir(exist_ok=True)
        Path(real, name).write_text("mine")
    if path == ".":
        monkeypatch.chdir("runs/one")
        assert main(["train", "../../base.yaml", "--run-dir", ".", "--overwrite", "--set", "training.max_steps=2"]) == 0
        monkeypatch.chdir("../..")
    else:
        assert train(path, "--overwrite", "training.max_steps=2") == 0
    assert [newest_step(str(real)), real.stat().st_ino] == [2, inode]
    assert [Path(real, name).read_text() for name in ("notes.txt", "corpus/train.en")] == ["mine", "mine"]
    assert records(real)[-1]["step"] == 2
    assert Path("runs/latest").resolve() == real
    assert path == "." or Path(path).is_symlink()


def test_a_kill_while_a_run_is_emptied_leaves_nothing_to_go_on_with(folder, monkeypatch):
    removed = []

    def dying(target):
        if removed:
            raise Killed
        removed.append(target)
        remove(target)

    remove = atomic.remove_folder
    monkeypatch.setattr(atomic, "remove_folder", dying)
    train("runs/one", "--overwrite", "training.max_steps=2")
    monkeypatch.setattr(atomic, "remove_folder", remove)
    assert not Path("runs/one/checkpoints").exists()
    assert train("runs/one", "model.d_ff=32") == 2, "a best model is something to lose"
    assert train("runs/one", "model.d_ff=32", "--overwrite", "training.max_steps=2") == 0


@pytest.mark.slow
def test_a_run_in_a_linked_folder_becomes_the_newest(folder):
    Path("big/run").mkdir()
    Path("runs/new").symlink_to("../big/run")
    assert train("runs/new", "training.max_steps=2") == 0
    assert os.readlink("runs/latest") == "new"
    assert train("runs/one", "training.max_steps=5") == 0
    assert os.readlink("runs/latest") == "one"
    assert train("big/run", "training.max_steps=3") == 0, "it has a name in runs/, whatever was typed"
    assert os.readlink("runs/latest") == "new"
    assert train("elsewhere/run", "training.max_steps=1") == 0
    assert os.readlink("runs/latest") == "new"
    shutil.rmtree("elsewhere")


@pytest.mark.parametrize("paths", [("runs/new", "big/run"), ("big/run", "runs/new"), ("runs/latest", "runs/one")])
def test_two_paths_to_one_folder_are_one_run(folder, paths, capfd):
    Path("big/run").mkdir()
    Path("runs/new").symlink_to("../big/run")
    inside = []
    step = Trainer._train_step

    def train_again(trainer):
        if not inside:
            inside.append(None)
            inside.append(train(paths[1], "training.max_steps=6"))
        return step(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_train_step", train_again)
        assert train(paths[0], "training.max_steps=6") == 0
    assert inside[1] == 2
    assert "another process trains in this folder" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("runs/latest", "newest run"),
        ("runs/loop", "leads nowhere"),
        ("runs/gone", "leads nowhere"),
        ("runs/cache", "cor"),
    ],
)
def test_what_is_no_place_for_a_run_is_one_line(folder, path, word, capfd):
    Path("runs/latest").unlink()
    Path("runs/loop").symlink_to("loop")
    Path("runs/gone").symlink_to("../big/gone")
    before = sorted(os.listdir("runs"))
    capfd.readouterr()
    assert train(path) == 2
    said = capfd.readouterr().err
    assert word in said
    assert len(said.splitlines()) == 1
    assert sorted(os.listdir("runs")) == before


def test_what_a_cpu_refuses_is_told_before_a_folder_is_made(folder, capfd):
    before = sorted(os.listdir("runs"))
    capfd.readouterr()
    assert train("runs/two", "training.compile=true", "training.device=cpu") == 2
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said if "warning" not in line] == [
        "s2s: training.compile: true makes training slower on a CPU; leave it out"
    ]
    assert sorted(os.listdir("runs")) == before


def test_a_link_to_itself_from_before_is_mended(folder):
    Path("runs/latest").unlink()
    Path("runs/latest").symlink_to("latest")
    assert train("runs/one", "training.max_steps=5") == 0
    assert os.readlink("runs/latest") == "one"


def test_a_folder_in_the_place_of_latest_is_told(folder, capfd):
    Path("runs/latest").unlink()
    Path("runs/latest").mkdir()
    assert train("runs/one", "training.max_steps=5") == 0
    assert "does not lead to this run" in capfd.readouterr().err
    assert sorted(os.listdir("runs")) == [".one.lock", "cache", "latest", "one"]


def test_a_config_named_latest_needs_a_run_dir(folder, capfd):
    shutil.copy("base.yaml", "latest.yaml")
    assert main(["train", "latest.yaml"]) == 2
    assert "--run-dir" in capfd.readouterr().err
    assert newest_step("runs/one") == 4


def test_a_run_does_not_overwrite_the_model_it_starts_from(folder, capfd):
    remedies = {
        "runs/one": "holds the model of training.init_from",
        "runs/one/best": "holds the model of training.init_from",
        "runs/latest": "is the link to the newest run",
    }
    for start, remedy in remedies.items():
        assert train("runs/one", f"training.init_from={start}", "--overwrite") == 2
        assert remedy in capfd.readouterr().err
    assert newest_step("runs/one") == 4


def test_a_path_is_shown_as_short_as_it_can_be(folder):
    assert RunFolder.at(Path("runs/latest")).path == Path("runs/one")
    assert RunFolder.at(folder / "runs" / "one").path == Path("runs/one")
    assert RunFolder.at(Path(".")).path == folder.resolve()


# -- what best means -------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [4, 8])
def test_another_measure_measures_the_best_model_anew(folder, capfd, limit):
    """Also where the run had finished; and only once."""
    before = load_model(Path("runs/one")).description.metrics
    changed = ("evaluation.tokenize=char", "search.beam_size=2", f"training.max_steps={limit}")
    assert train("runs/one", *changed) == 0
    said = capfd.readouterr().err
    assert "search or evaluation changed: with the new settings, the best model (step 4)" in said
    event = next(record for record in records("runs/one") if "measured_anew" in record)
    assert (event["measured_anew"], event["was"]) == (4, before["bleu" if before["bleu"] >= 1 else "chrf"])
    assert event["now"] != event["was"]
    best = load_model(Path("runs/one")).description
    later = {record["step"]: record for record in records("runs/one") if record["step"] > 4 and "bleu" in record}
    if (step := best.metrics["step"]) == 4:
        assert event["now"] in (best.metrics["bleu"], best.metrics["chrf"])
    else:
        assert best.metrics == {**best.metrics, **later[step]}
    assert best.search.beam_size == 2
    assert "tok:char" in Path("runs/one/best/README.md").read_text()
    assert train("runs/one", *changed) == 0
    said = capfd.readouterr().err
    assert "already finished" in said
    assert "measured" not in said


def test_settings_that_measure_nothing_follow_the_config_too(folder, capfd):
    assert train("runs/one", "search.batch_tokens=77") == 0
    assert "measured" not in capfd.readouterr().err
    assert json.loads(Path("runs/one/best", GENERATION).read_text())["search"]["batch_tokens"] == 77


@pytest.mark.slow
def test_test_sets_are_scored_when_they_have_not_been(folder, capfd, monkeypatch):
    def scored(*arguments: str) -> bool:
        capfd.readouterr()
        assert train("runs/one", *arguments, config="test.yaml") == 0
        said = capfd.readouterr().err
        card = Path("runs/one/best/README.md").read_text()
        assert "| a | bleu |" in card
        return "scoring the test sets" in said

    assert scored(), "data.test came after the run had finished"
    assert not scored()
    assert scored("data.test.b={source: valid.en, target: valid.de}")
    assert scored("search.beam_size=2")
    assert scored(), "back to the other beam"
    other_words(Path("test.de"))
    assert scored(), "another text in the same file"
    assert scored("training.max_steps=5", "evaluation.metrics=[bleu]")

    def dying(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runs, "load_model", dying)
        train("runs/one", "training.max_steps=6", config="test.yaml")
    assert scored("training.max_steps=6"), "it was killed while it scored"
    noted = json.loads(Path("runs/one/test_scores.json").read_text())
    assert {score["dataset"] for score in noted["scores"]} == {"a"}


def test_a_former_test_set_may_be_gone(folder):
    shutil.copy("test.en", "gone.en")
    assert train("runs/one", "data.test.g={source: gone.en, target: test.de}") == 0
    os.unlink("gone.en")
    assert train("runs/one", "training.max_steps=5") == 0


# -- where fine-tuning starts ----------------------------------------------------------------------

WORSE = (
    "training.learning_rate=0.5", "training.warmup_steps=1", "training.init_from=runs/one", "training.best_metric=loss",
)  # fmt: skip


def test_what_fine_tuning_starts_from_is_the_first_candidate(folder, capfd):
    assert train("runs/tuned", *WORSE, config="tune.yaml") == 0
    said = capfd.readouterr().err
    first = records("runs/tuned")[0]
    initial = load_model(Path("runs/one"))
    assert first["step"] == 0
    measured = {key: initial.description.metrics[key] for key in ("valid_loss", "bleu", "chrf")}
    assert {key: first[key] for key in measured} == measured, "the same model on the same sentences"
    assert "at step 0, the initial model: training has not improved on it" in said
    best = load_model(Path("runs/tuned"))
    assert best.description.metrics["step"] == 0
    assert all((weight == initial.model.state_dict()[name]).all() for name, weight in best.model.state_dict().items())
    assert newest_step("runs/tuned") == 4
    capfd.readouterr()
    assert train("runs/tuned", *WORSE, config="tune.yaml") == 0
    assert "not improved" in capfd.readouterr().err
    assert [record["step"] for record in records("runs/tuned") if "bleu" in record] == [0, 4]


@pytest.mark.slow
def test_fine_tuning_that_was_killed_ends_in_the_same_bits(folder, monkeypatch):
    tune = ("training.init_from=runs/one", "training.best_metric=loss", "training.max_steps=6")
    assert train("runs/whole", *tune, config="tune.yaml") == 0
    for name, call in (("_rehearse", 1), ("_train_step", 2), ("_validate_now", 2), ("_save", 2)):
        original, calls = getattr(Trainer, name), []

        def dying(*arguments, original=original, calls=calls, call=call, **options):
            calls.append(None)
            if len(calls) == call:
                raise Killed
            return original(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, name, dying)
            assert train("runs/killed", *tune, config="tune.yaml") == 1
        assert train("runs/killed", *tune, config="tune.yaml") == 0
        assert outcome(Path("runs/killed")) == outcome(Path("runs/whole"))
        shutil.rmtree("runs/killed")


def test_a_run_from_nothing_is_not_judged_before_it_learns(folder):
    assert train("runs/new", "training.max_steps=2") == 0
    assert [record["step"] for record in records("runs/new") if "bleu" in record] == [2]


def test_a_short_run_has_its_training_loss(folder):
    assert train("runs/new", "training.max_steps=2", "training.log_every=50") == 0
    assert [record["step"] for record in records("runs/new") if "loss" in record] == [2]
    assert records("runs/new")[0]["seconds"] > 0


@pytest.mark.slow
def test_lines_of_the_log_go_on_as_if_there_had_been_no_end(folder):
    long = ("training.log_every=4", "training.max_steps=8")
    assert train("runs/whole", *long) == 0
    assert train("runs/parts", *long, "training.max_steps=6") == 0
    assert train("runs/parts", *long) == 0
    whole, parts = ({r["step"]: r["loss"] for r in records(run) if "loss" in r} for run in ("runs/whole", "runs/parts"))
    assert parts == {**whole, 6: parts[6]}


def test_a_preset_beside_an_initial_model_is_not_passed_over(folder, capfd):
    assert train("runs/new", "training.init_from=runs/one", "model={preset: base}", config="tune.yaml") == 2
    assert "model.preset: base has d_model 512, but the model of training.init_from has 32" in capfd.readouterr().err
    assert train("runs/new", "training.init_from=runs/one", "training.max_steps=1", config="tune.yaml") == 0
    assert config_file.load(Path("runs/new/config.yaml"), check_files=False).model.d_ff == 64


def test_a_run_without_a_best_model_says_when_it_comes(folder, capfd):
    for config, words in (("base.yaml", "at step 4"), ("tune.yaml", "at the start of training")):
        shutil.rmtree("runs/new", ignore_errors=True)
        Path("runs/new").mkdir()
        text = config_file.dump(config_file.load(Path(config), ["training.init_from=runs/one"] * (config[0] == "t")))
        Path("runs/new/config.yaml").write_text(text)
        capfd.readouterr()
        assert main(["info", "runs/new"]) == 2
        assert words in capfd.readouterr().err
