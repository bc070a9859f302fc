"""A run continues with what it was trained with, wherever that lies: content decides, and not paths."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
from support.number_words import CONFIG, WORDS, sentences
from support.our_models import make_ours

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.schema import Config
from seq2seq.tasks.fingerprints import noted_identity, noted_tests
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.run_folder import RunFolder, differences, write_note
from seq2seq.workflows.parts import PartCounts, finish_folder, open_parts, write_part

TMX = """<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>
</body></tmx>
"""
# For each corpus, the paths that it names, and for some their settings.
TRAIN = {
    "data.train.0": ("source: train.en", "target: train.de"),
    "data.train.1": ("tsv: more.tsv",),
    "data.train.2": ("tsv: more.csv",),
    "data.train.3": ("jsonl: more.jsonl",),
    "data.train.4": ("jsonl: parts",),
    "data.train.5": ("tmx: more.tmx",),
    "data.train.6": ("hub: ./shards",),
    "data.train.7": ("hub: ./saved",),
    "data.train.8": ("hub: ./shards", "streaming: true"),
    "data.train.9": ("hub: ./shards", "noise: {upper: 0.5}"),
}
VALID = {
    "training.init_from": ("source: valid.en", "target: valid.de"),
    "tokenizer.init_from": ("hub: ./shards", "split: validation"),
}
PLACES = {
    "training.init_from": ("moved", "linked"),
    "tokenizer.init_from": ("moved", "copied"),
}


def keys_of_paths(model: str) -> dict[str, tuple[str, ...]]:
    """The keys of paths by key with a fingerprint, in a run with a model."""
    named = {**TRAIN, "data.valid": VALID[model]}
    kinds = {"source", "target", "tsv", "jsonl", "tmx", "hub"}
    written = {key: [setting.partition(":")[0] for setting in corpus] for key, corpus in named.items()}
    return {key: tuple(f"{key}.{kind}" for kind in kinds.intersection(names)) for key, names in written.items()} | {
        model: (model,)
    }


def write_all(seed: int = 1, models: tuple[str, ...] = ("model",)) -> None:
    """Write a corpus of each kind and models into the current folder; another seed gives other contents."""
    rows = [(" ".join(row), " ".join(WORDS[word] for word in row)) for row in sentences(60, seed)]
    for name in ("train", "valid"):
        for side, ending in enumerate(("en", "de")):
            Path(f"{name}.{ending}").write_text("".join(f"{row[side]}\n" for row in rows))
    Path("more.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    Path("more.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    Path("more.jsonl").write_text("".join(json.dumps({"en": one, "de": other}) + "\n" for one, other in rows))
    Path("more.tmx").write_text(TMX.format(*rows[0]))
    for name in ("parts", "saved"):
        shutil.rmtree(name, ignore_errors=True)
    Path("shards").mkdir(exist_ok=True)
    for name in ("train", "validation"):
        shutil.copy("more.jsonl", f"shards/{name}.jsonl")
    datasets.Dataset.from_list([{"en": one, "de": other} for one, other in rows]).save_to_disk("saved")
    counts = PartCounts(len(rows), len(rows))
    with open_parts(Path("parts"), {"languages": {"source": "en", "target": "de"}}, {}) as description:
        write_part(Path("parts"), 0, [{"source": one, "target": other} for one, other in rows], counts)
        finish_folder(Path("parts"), description, 1, counts)
    for name in models:
        make_ours(Path(name), shared=seed == 1, seed=seed)


def config_of(model: str) -> Config:
    """The configuration with a corpus of each kind, of which `model` names a key of a model, in the current folder."""
    named = [f"{{{', '.join(corpus)}}}" for corpus in TRAIN.values()]
    data = CONFIG[: CONFIG.index("  test:")] + "  num_workers: 1\n"
    data = data.replace("{source: train.en, target: train.de}", f"[{', '.join(named)}]")
    data = data.replace("{source: valid.en, target: valid.de}", f"{{{', '.join(VALID[model])}}}")
    section, _ = model.split(".")
    own = {"training": "max_steps: 4", "tokenizer": "sampling: 0.0"} | {section: "init_from: model"}
    if section == "tokenizer":
        own["model"] = "tied_embeddings: decoder"  # the other model has two vocabularies
    Path("all.yaml").write_text(data + "".join(f"{key}: {{{value}}}\n" for key, value in own.items()))
    return config_file.load(Path("all.yaml"))


def opened(model: str) -> Inputs:
    return Inputs.open(config_of(model), Path("cache"))


def write_run(model: str) -> Inputs:
    """Write the notes of a run with corpora of every kind to `runs/all`."""
    write_all()
    inputs, folder = opened(model), RunFolder(Path("runs/all"))
    folder.path.mkdir(parents=True)
    folder.config.write_text(config_file.dump(inputs.config))
    write_note(folder.identity, inputs.identity())
    return inputs


def put(old: Path, new: Path, how: str) -> None:
    """Move or copy a project, or leave links to all that is in it."""
    if how == "copied":
        shutil.copytree(old, new)
        return
    old.rename(stored := new if how == "moved" else new.with_name("stored"))
    if how == "linked":
        new.mkdir()
        for path in stored.iterdir():
            (new / path.name).symlink_to(path)


@pytest.fixture
def old(tmp_path, monkeypatch) -> Path:
    """The current folder."""
    monkeypatch.delenv("S2S_DATA", raising=False)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture(params=[(model, how) for model, places in PLACES.items() for how in places], ids="-".join)
def model(request, old, monkeypatch) -> str:
    """The key of the model of a run in `runs/all`, whose project was moved; the current folder is the new place."""
    model, how = request.param
    write_run(model)
    put(old, new := old.with_name("new"), how)
    monkeypatch.chdir(new)
    return model


def test_paths_of_every_kind_may_change_and_contents_of_every_kind_may_not(model):
    folder, inputs, keys = RunFolder(Path("runs/all")), opened(model), keys_of_paths(model)
    assert inputs.identity().keys() == keys.keys()
    assert differences(folder, inputs.config, inputs.identity()) == {}
    write_all(seed=2)
    changed = opened(model)
    found = differences(folder, changed.config, changed.identity())
    assert keys.keys() <= found.keys()


def test_other_settings_of_a_source_and_paths_without_a_fingerprint_still_count(model):
    folder, inputs = RunFolder(Path("runs/all")), opened(model)
    Path("all.yaml").write_text(Path("all.yaml").read_text().replace("tsv: more.csv", "tsv: more.csv, weight: 2.0"))
    weighted = Inputs.open(config_file.load(Path("all.yaml")), Path("cache"))
    assert differences(folder, weighted.config, weighted.identity()) == {"data.train.2.weight": "was 1.0, now 2.0"}
    write_note(folder.identity, {})
    paths = {path for named in keys_of_paths(model).values() for path in named}
    assert differences(folder, inputs.config, inputs.identity()).keys() == paths


def test_a_run_that_began_with_former_fingerprints_goes_on_where_nothing_changed(old):
    """Former fingerprints contained the paths of local datasets, with noise too."""
    inputs, folder = write_run("tokenizer.init_from"), RunFolder(Path("runs/all"))
    former = {source.fingerprint: source.former for source in (*inputs.train, *inputs.valid.values())}
    began = {key: former.get(known, known) for key, known in inputs.identity().items()}
    changed = {key for key, known in inputs.identity().items() if began[key] != known}
    assert changed == {key for key, paths in keys_of_paths("tokenizer.init_from").items() if f"{key}.hub" in paths}
    write_note(folder.identity, began)
    assert noted_identity(folder, inputs) == began
    assert differences(folder, inputs.config, began) == {}
    tested = replace(inputs, tests={"shards": inputs.train[6], "saved": inputs.train[7]})
    scored = {name: source.former for name, source in tested.tests.items()}
    write_note(folder.test_scores, {"scored": {"tests": scored}})
    assert noted_tests(folder, tested) == scored
    write_all(seed=2)
    others = opened("tokenizer.init_from")
    assert not noted_identity(folder, others).items() & began.items()


@pytest.mark.slow
def test_a_run_in_a_project_that_was_moved_goes_on(old, monkeypatch, capfd):
    """Also if it began with former fingerprints, and went on before it was moved."""
    write_all(models=())
    files = "{source: train.en, target: train.de}"
    Path("toy.yaml").write_text(CONFIG.replace(f"train: {files}", f"train: [{files}, {{hub: ./shards}}]"))
    command = ["train", "toy.yaml", "--set", "data.test={}", "--set"]
    assert main([*command, "training.max_steps=4"]) == 0
    folder = RunFolder(Path("runs/toy"))
    _, source = Inputs.open(config_file.load(folder.config), Path("runs/cache")).train
    folder.identity.write_text(folder.identity.read_text().replace(source.fingerprint, source.former))
    assert main([*command, "training.max_steps=5"]) == 0
    old.rename(new := old.with_name("new"))
    monkeypatch.chdir(new)
    write_all(seed=2, models=())
    assert main([*command, "training.max_steps=6"]) == 2
    refused = capfd.readouterr().err
    assert all(f"{name} changed since the run began" in refused for name in ("train.de", f"{new}/shards"))
    write_all(models=())
    assert main([*command, "training.max_steps=6"]) == 0
    assert "continuing from step 5" in capfd.readouterr().err
    assert all(f"{new}/{name}\n" in folder.config.read_text() for name in ("train.en", "shards"))
