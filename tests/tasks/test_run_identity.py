"""What a run was trained with is what it goes on with: every key and every file, whenever the run was stopped."""

import functools
import json
import math
import re
import shutil
import types
import typing
from pathlib import Path

import pytest
import torch
from support.number_words import CONFIG, WORDS, sentences
from support.plain_words import python_words
from support.toy_run import Killed

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.schema import Config
from seq2seq.config.values import Section
from seq2seq.store.checkpoint import latest_checkpoint, load_checkpoint
from seq2seq.tasks.run_folder import CHANGEABLE, may_change
from seq2seq.training.trainer import Trainer

BASE = CONFIG.replace("test: {held out: {source: valid.en, target: valid.de}}", "test: {}").replace("12", "4")
SOURCES = "[{source: train.en, target: train.de}, {source: more.en, target: more.de, weight: 2}]"
TUNE = BASE.replace("{source: train.en, target: train.de}", SOURCES).replace(
    "training: {", "training: {init_from: runs/base, ema: null, "
)
MOMENTS = ("before the first checkpoint", "in mid-epoch", "at an epoch's end")
LATER = "training.max_epochs=4"
DATA = {"data.train.0": "train", "data.train.1": "more", "data.valid": "valid"}


def write(name: str, count: int, seed: int) -> None:
    rows = sentences(count, seed)
    Path(f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
    Path(f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in row) + "\n" for row in rows))


def write_all() -> None:
    for name, count, seed in (("train", 300, 1), ("more", 200, 4), ("valid", 10, 2), ("test", 10, 3)):
        write(name, count, seed)


def train(*arguments: str, config: str = "tune.yaml") -> int:
    pairs = [part for argument in arguments for part in (("--set", argument) if "=" in argument else (argument,))]
    return main(["train", config, "--run-dir", "runs/toy", *pairs])


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """A folder with a corpus, a model in `runs/base`, and runs that started from it and were stopped at each moment."""
    folder = tmp_path_factory.mktemp("identity")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        write_all()
        (folder / "base.yaml").write_text(BASE)
        (folder / "tune.yaml").write_text(TUNE)
        assert main(["train", "base.yaml"]) == 0
        for moment, limit in zip(MOMENTS[1:], ("training.max_steps=3", "training.max_epochs=1"), strict=True):
            unlimited = "training.max_steps=null" if "epochs" in limit else limit
            assert train("training.patience=null", unlimited, limit) == 0
            (folder / "runs/toy").rename(folder / moment)
        step, one = Trainer._train_step, iter([None])

        def dying(trainer):
            if next(one, Killed) is Killed:
                raise Killed
            return step(trainer)

        patch.setattr(Trainer, "_train_step", dying)
        assert main(["train", "base.yaml", "--run-dir", str(folder / MOMENTS[0])]) == 1
    shutil.copytree(folder / "runs/base", folder / "base")
    return folder


@pytest.fixture
def run(shelf, monkeypatch):
    """Puts the run that was stopped at a moment into `runs/toy`; everything else is as it was then."""
    monkeypatch.chdir(shelf)
    monkeypatch.delenv("S2S_DATA", raising=False)
    write_all()
    shutil.rmtree("runs/base")
    shutil.copytree("base", "runs/base")

    def put(moment: str) -> Path:
        shutil.rmtree("runs/toy", ignore_errors=True)
        shutil.copytree(moment, "runs/toy")
        return Path("runs/toy")

    return put


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(capfd, *words: str) -> None:
    said = capfd.readouterr().err
    for word in (*words, "--overwrite", "--run-dir"):
        assert word in said, said
    assert not python_words(said), said


def test_the_only_training_corpus_is_named_by_its_files(run, capfd):
    other_words(Path("train.de"))
    assert main(["train", "base.yaml", "--set", "training.max_epochs=9", "--run-dir", "runs/base"]) == 2
    refused(capfd, "data.train: ", "train.en or ", "train.de changed since the run began")


# -- content ---------------------------------------------------------------------------------------


def other_words(path: Path) -> None:
    """As many lines, words and pieces as before."""
    text = path.read_text()
    swap = {"one": "two", "two": "one", "eins": "zwei", "zwei": "eins"}
    path.write_text("\n".join(" ".join(swap.get(word, word) for word in line.split()) for line in text.split("\n")))
    assert path.read_text() != text


@pytest.mark.parametrize("moment", MOMENTS[1:])
def test_a_corpus_that_changed_stops_the_run(run, capfd, moment):
    folder = run(moment)
    before = contents(folder)
    for key, name in DATA.items():
        for path in (Path(f"{name}.en"), Path(f"{name}.de")):
            other_words(path)
            assert train(LATER, "training.max_steps=null") == 2
            refused(capfd, f"{key}: ", path.name, "training.init_from=runs/toy")
            write_all()
    assert contents(folder) == before
    assert train("training.max_epochs=1.1", "training.max_steps=null") == 0, "and with the old one it goes on"
    assert "continuing from step" in capfd.readouterr().err


@pytest.mark.parametrize("moment", MOMENTS[1:])
def test_everything_that_changed_has_a_line(run, capfd, moment):
    folder = run(moment)
    other_words(Path("train.en"))
    other_words(Path("valid.de"))
    for path in (folder / "tokenizer").iterdir():
        path.write_bytes(path.read_bytes() + b"\n")
    assert main(["train", "base.yaml", "--run-dir", "runs/base", "--overwrite"]) == 0
    capfd.readouterr()
    assert train(LATER, "training.max_steps=null") == 2
    refused(capfd, "data.train.0: ", "data.valid: ", "tokenizer: ", "training.init_from: ")


@pytest.mark.parametrize("moment", MOMENTS[1:])
def test_an_initial_model_that_was_trained_again_stops_the_run(run, capfd, moment):
    """With the same architecture and as many pieces, but from another corpus."""
    folder = run(moment)
    before = contents(folder)
    write("train", 300, 99)
    assert main(["train", "base.yaml", "--run-dir", "runs/base", "--overwrite"]) == 0
    write_all()
    capfd.readouterr()
    assert train(LATER, "training.max_steps=null") == 2
    refused(capfd, "training.init_from: ", "runs/base")
    assert contents(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS[1:])
def test_the_tokenizers_of_a_run_are_its_own(run, capfd, moment):
    folder = run(moment)
    shutil.rmtree(folder / "tokenizer")
    assert train(LATER, "training.max_steps=null") == 0, "they are those of the initial model"
    tokenizer = folder / "tokenizer/source.spm"
    tokenizer.write_bytes(Path("base/best/source.spm").read_bytes() + b"\n")
    assert train("training.max_epochs=5", "training.max_steps=null") == 2
    refused(capfd, "tokenizer: ")


def test_a_run_whose_fingerprints_are_lost_continues_with_a_warning(run, capfd):
    folder = run(MOMENTS[1])
    (folder / "identity.json").unlink()
    capfd.readouterr()
    assert train("training.max_steps=4") == 0
    assert capfd.readouterr().err.count("missing or damaged") == 1
    assert train("training.max_steps=5") == 0
    assert "missing or damaged" not in capfd.readouterr().err
    other_words(Path("valid.en"))
    assert train("training.max_steps=6") == 2


# -- before anything was learned -------------------------------------------------------------------


def outcome(folder: Path) -> dict[str, bytes]:
    """The weights, the tokenizers and what was measured."""
    files = {name: (folder / "best" / name).read_bytes() for name in ("model.safetensors", "source.spm", "target.spm")}
    files["tokenizer"] = (folder / "tokenizer/source.spm").read_bytes()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = {"seconds", "tokens_per_second"}
    return files | {"metrics": [{key: line[key] for key in line.keys() - timed} for line in lines]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "is_stale"),
    [
        ([], False),
        (["tokenizer.vocab_size=290"], True),
        (["tokenizer.kind=bpe"], True),
        (["seed=2"], True),
        (["data.train={source: more.en, target: more.de}"], True),
        (["data.filters.max_ratio=1.5"], True),
        (["training.learning_rate=0.01", "model.d_ff=32"], False),
        (["other words in", "train.en"], True),
        (["other words in", "valid.en"], False),
        (["other bytes in", "runs/toy/tokenizer/source.spm"], True),
        (["training.init_from=base", "tokenizer.vocab_size=300"], True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_before_the_first_checkpoint_a_run_becomes_that_of_the_new_configuration(run, capfd, changes, is_stale):
    folder = run(MOMENTS[0])
    shutil.rmtree("runs/fresh", ignore_errors=True)
    if changes[:1] == ["other words in"]:
        other_words(Path(changes[1]))
        changes = []
    elif changes[:1] == ["other bytes in"]:
        Path(changes[1]).write_bytes(b"nothing")
        changes = []
    capfd.readouterr()
    assert train(*changes, config="base.yaml") == 0
    assert ("making the tokenizers again" in capfd.readouterr().err) == is_stale
    pairs = [part for change in changes for part in ("--set", change)]
    assert main(["train", "base.yaml", "--run-dir", "runs/fresh", *pairs]) == 0
    assert outcome(folder) == outcome(Path("runs/fresh"))
    configs = [config_file.load(path / "config.yaml", check_files=False) for path in (folder, Path("runs/fresh"))]
    assert configs[0] == configs[1]


# -- every key -------------------------------------------------------------------------------------


def leaves(section: type[Section], prefix: str = "") -> typing.Iterator[tuple[str, typing.Any]]:
    """(key, type) of every setting; a source is one."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section) and kind.__name__ != "SourceConfig":
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, kind


# Where another value of the same type would not do.
OTHER = {
    "task": None, "languages": None, "training.best_of": None,
    "data.stages": None, "data.train": None, "data.valid": None, "data.test": "{a: {source: test.en, target: test.de}}",
    "data.label_names": None, "data.cache_dir": "elsewhere", "data.filters.max_ratio": 2.5,
    "data.filters.max_length": 20,
    "model.preset": "null", "model.head_dim": 4, "model.num_heads": 2, "model.activation": "gelu",
    "model.tied_embeddings": "decoder", "tokenizer.shared": None, "tokenizer.character_coverage": 0.99,
    "tokenizer.init_from": None, "tokenizer.extra_pieces": "[<tag>]",
    "training.preset": "finetune", "training.init_from": None, "training.device": "cpu", "training.shard": None,
    "training.best_metric": "chrf", "training.betas": "[0.8, 0.9]", "training.threads": 2,
    "evaluation.metrics": "[bleu, chrf, ter]", "evaluation.tokenize": "char",
    "search.n_best": None, "search.temperature": None, "search.top_k": None, "search.top_p": None, "search.seed": 3,
    "search.record": "true",
    "search.sample": "true", "search.max_length_ratio": 3.0, "training.precision": "float32",
    "training.compile": "false", "training.record": "false", "training.freeze": "[encoder.norm]",
    "source_language": "fr", "target_language": "fr",
    "training.learning_rate": 0.5, "training.max_minutes": 9.0, "training.trackers": "[tensorboard]",
}  # fmt: skip


def another(key: str, kind: typing.Any, value: typing.Any) -> str | None:
    """Another possible value, as it is written; None where other tests have to look."""
    if key in OTHER:
        return None if OTHER[key] is None else str(OTHER[key])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    if typing.get_origin(kind) is typing.Literal:
        return next(choice for choice in typing.get_args(kind) if choice != value)
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if kind is bool:
        return str(not value).lower()
    return str(2 * value if value else {int: 2, float: 0.25}[kind])


TOGETHER = 5  # keys that one run changes: few of one section, whose values could exclude each other


@pytest.mark.slow
def test_every_key_may_change_or_stops_the_run_by_name(run, capfd, monkeypatch):
    monkeypatch.setattr("seq2seq.tasks.run.FEED_SECONDS", 0.01)
    monkeypatch.setattr(Trainer, "time_steps", functools.partialmethod(Trainer.time_steps, most_steps=1))
    folder = run(MOMENTS[1])
    shutil.rmtree(folder)
    always = ("training.max_steps=3", "training.keep_last=6")
    assert train(*always, config="base.yaml") == 0
    config, before = config_file.load(folder / "config.yaml", check_files=False), contents(folder)
    changes = {}
    for key, kind in leaves(Config):
        written = another(key, kind, functools.reduce(getattr, key.split("."), config))
        if written is not None:
            changes[key] = f"{key}={written}"
    assert sum(map(may_change, changes)) >= 30
    assert sum(not may_change(key) for key in changes) >= 50
    apart = math.ceil(len(changes) / TOGETHER)
    for first in range(apart):
        keys = list(changes)[first::apart]
        capfd.readouterr()
        code = train(*always, *(changes[key] for key in keys), "--dry-run", config="base.yaml")
        said = capfd.readouterr().err
        assert code == 0, f"{keys}: {said}"
        named = re.findall(r"config\.yaml: ([\w.]+): was ", said)  # a preset also names what it sets
        assert [key in named for key in keys] == [not may_change(key) for key in keys], said
    assert contents(folder) == before


def test_the_table_of_the_keys_that_may_change_has_them_all():
    text = (Path(__file__).parents[2] / "configs/README.md").read_text("utf-8")
    _, table = text.split("\n## Keys that may change between")
    assert set(re.findall(r"^\| `([\w.]+)` \|", table.split("\n## ")[0], re.MULTILINE)) == set(CHANGEABLE)


def test_every_changeable_key_exists():
    keys = {key for key, _ in leaves(Config)}
    for key in CHANGEABLE:
        assert key in keys or any(leaf.startswith(f"{key}.") for leaf in keys), key
    assert may_change("search.beam_size")
    assert not may_change("searching")
    assert not may_change("training")


@pytest.mark.parametrize("moment", MOMENTS[1:])
@pytest.mark.parametrize(
    "change",
    ["seed=2", "data.filters.max_length=20", "tokenizer.sampling=0.3", "model.dropout=0.3", "classifier.pooling=first",
     "training.batch_tokens=128", "data.train=[{source: train.en, target: train.de}]"],
)  # fmt: skip
def test_another_key_stops_a_run_that_has_learned(run, capfd, moment, change):
    folder = run(moment)
    before = contents(folder)
    capfd.readouterr()
    assert train(LATER, "training.max_steps=null", change) == 2
    refused(capfd, change.partition("=")[0])
    assert contents(folder) == before


def test_the_way_out_that_is_named_works(run, capfd):
    run(MOMENTS[1])
    assert train("training.max_steps=3", "training.learning_rate=0.5") == 2
    said = capfd.readouterr().err
    assert "training.learning_rate: was 0.0001, now 0.5" in said
    way = said.split("from its best model: ")[1].split()
    assert main(["train", "tune.yaml", "--set", "training.max_steps=2", *way]) == 0
    assert Path("runs/toy-2/best").is_dir()
    changed = ["--set", "training.learning_rate=0.01", "--set", "training.max_steps=2"]
    assert main(["train", "tune.yaml", *changed, "--run-dir", "runs/toy", "--overwrite"]) == 0
    assert load_checkpoint(latest_checkpoint(Path("runs/toy/checkpoints"))).step == 2


def test_a_dry_run_says_that_training_would_be_refused_and_shows_the_figures(run, capfd):
    folder = run(MOMENTS[1])
    before = contents(folder)
    other_words(Path("valid.en"))
    capfd.readouterr()
    assert train("--dry-run", "model.dropout=0.3", "training.max_steps=3") == 0
    out, err = capfd.readouterr()
    assert "parameters" in out
    assert "training would be refused" in err
    assert "model.dropout: was 0.1, now 0.3" in err
    assert "data.valid: " in err
    assert contents(folder) == before


def test_weights_are_compared_bit_by_bit_here(shelf):
    """The comparisons above can fail: the runs at the three moments are different ones."""
    weights = [load_checkpoint(latest_checkpoint(shelf / moment / "checkpoints")) for moment in MOMENTS[1:]]
    assert weights[0].step != weights[1].step
    assert any(
        not torch.equal(tensor, weights[1].tensors["model"][name])
        for name, tensor in weights[0].tensors["model"].items()
    )
