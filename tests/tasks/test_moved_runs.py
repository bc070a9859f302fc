"""A run continues with what it was trained with, wherever that lies: content decides, and not paths."""

import json
import shutil
from pathlib import Path

import pytest
from support.number_words import CONFIG, WORDS, sentences
from support.our_models import make_ours

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.schema import Config
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.run_folder import RunFolder, differences, write_note
from seq2seq.workflows.parts import PartCounts, finish_folder, open_parts, write_part

TMX = """<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>
</body></tmx>
"""
# For each key with a fingerprint, the paths that it names.
PATHS = {
    "data.train.0": ("source: train.en", "target: train.de"),
    "data.train.1": ("tsv: more.tsv",),
    "data.train.2": ("tsv: more.csv",),
    "data.train.3": ("jsonl: more.jsonl",),
    "data.train.4": ("jsonl: parts",),
    "data.train.5": ("tmx: more.tmx",),
    "data.valid": ("source: valid.en", "target: valid.de"),
}
MODELS = ("training.init_from", "tokenizer.init_from")


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
    shutil.rmtree("parts", ignore_errors=True)
    counts = PartCounts(len(rows), len(rows))
    with open_parts(Path("parts"), {"languages": {"source": "en", "target": "de"}}, {}) as description:
        write_part(Path("parts"), 0, [{"source": one, "target": other} for one, other in rows], counts)
        finish_folder(Path("parts"), description, 1, counts)
    for name in models:
        make_ours(Path(name), shared=seed == 1, seed=seed)


def config_of(model: str) -> Config:
    """The configuration with a corpus of each kind, of which `model` names a key of a model, in the current folder."""
    named = [f"{{{', '.join(paths)}}}" for key, paths in PATHS.items() if key.startswith("data.train")]
    data = CONFIG[: CONFIG.index("  test:")] + "  num_workers: 1\n"
    data = data.replace("{source: train.en, target: train.de}", f"[{', '.join(named)}]")
    section, _ = model.split(".")
    own = {"training": "max_steps: 4", "tokenizer": "sampling: 0.0"} | {section: "init_from: model"}
    if section == "tokenizer":
        own["model"] = "tied_embeddings: decoder"  # the other model has two vocabularies
    Path("all.yaml").write_text(data + "".join(f"{key}: {{{value}}}\n" for key, value in own.items()))
    return config_file.load(Path("all.yaml"))


def opened(model: str) -> Inputs:
    return Inputs.open(config_of(model), Path("cache"))


@pytest.fixture(params=MODELS)
def model(request, tmp_path, monkeypatch) -> str:
    """The key of the model of a run in `runs/all`, whose project was moved; the current folder is the new place."""
    monkeypatch.delenv("S2S_DATA", raising=False)
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    write_all()
    inputs, folder = opened(request.param), RunFolder(Path("runs/all"))
    folder.path.mkdir(parents=True)
    folder.config.write_text(config_file.dump(inputs.config))
    write_note(folder.identity, inputs.identity())
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    return request.param


def test_paths_of_every_kind_may_change_and_contents_of_every_kind_may_not(model):
    folder, inputs = RunFolder(Path("runs/all")), opened(model)
    assert inputs.identity().keys() == {*PATHS, model}
    assert differences(folder, inputs.config, inputs.identity()) == {}
    write_all(seed=2)
    changed = opened(model)
    found = differences(folder, changed.config, changed.identity())
    assert {*PATHS, model} <= found.keys()


def test_other_settings_of_a_source_and_paths_without_a_fingerprint_still_count(model):
    folder, inputs = RunFolder(Path("runs/all")), opened(model)
    Path("all.yaml").write_text(Path("all.yaml").read_text().replace("tsv: more.csv", "tsv: more.csv, weight: 2.0"))
    weighted = Inputs.open(config_file.load(Path("all.yaml")), Path("cache"))
    assert differences(folder, weighted.config, weighted.identity()) == {"data.train.2.weight": "was 1.0, now 2.0"}
    write_note(folder.identity, {})
    paths = {f"{key}.{path.split(':')[0]}" for key, named in PATHS.items() for path in named}
    assert differences(folder, inputs.config, inputs.identity()).keys() == {*paths, model}


@pytest.mark.slow
def test_a_run_in_a_project_that_was_moved_goes_on(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("S2S_DATA", raising=False)
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    write_all(models=())
    Path("toy.yaml").write_text(CONFIG)
    command = ["train", "toy.yaml", "--set", "training.max_steps=4", "--set", "data.test={}"]
    assert main(command) == 0
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    write_all(seed=2, models=())
    assert main([*command, "--set", "training.max_steps=5"]) == 2
    assert "train.de changed since the run began" in capfd.readouterr().err
    write_all(models=())
    assert main([*command, "--set", "training.max_steps=5"]) == 0
    assert "continuing from step 4" in capfd.readouterr().err
    assert f"{tmp_path}/new/train.en" in Path("runs/toy/config.yaml").read_text()
