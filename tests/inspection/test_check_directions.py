"""`s2s check` and the search for overlap before training, with many directions: no held-out set is overlooked."""

import json
from itertools import pairwise, product
from pathlib import Path

import pytest
import yaml
from support.examples import write_parts
from support.many_directions import SPELLED, spelled
from support.number_words import sentences

from seq2seq.cli import main
from seq2seq.config.corpora import NoiseConfig, SourceConfig, held_out_names
from seq2seq.config.directions import LanguagesConfig
from seq2seq.data.directions import open_training
from seq2seq.inspection.blocks import CorpusReader

DIRECTIONS = {"en-de": True, "de-en": True, "en-fr": True, "fr-de": False}  # whether training has the direction
TRAIN = {("en", "de"): "both_ways: true", ("en", "fr"): "both_ways: false"}
FORMS = ("text", "jsonl", "tsv")


def write(name: str, rows: list[list[str]], sides: tuple[str, str], form: str) -> str:
    """Write a corpus in a form; returns the keys of the config that name it."""
    source, target = (spelled(rows, language) for language in sides)
    if form == "text":
        for suffix, lines in (("source", source), ("target", target)):
            Path(f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return f"source: {name}.source, target: {name}.target"
    if form == "jsonl":
        objects = (json.dumps({"source": one, "target": other}) for one, other in zip(source, target, strict=True))
        Path(f"{name}.jsonl").write_text("".join(f"{each}\n" for each in objects), encoding="utf-8")
        return f"jsonl: {name}.jsonl, source_column: source, target_column: target"
    table = ("\t".join(pair) for pair in zip(source, target, strict=True))
    Path(f"{name}.tsv").write_text("".join(f"{row}\n" for row in table), encoding="utf-8")
    return f"tsv: {name}.tsv"


@pytest.fixture(params=FORMS)
def leaking(request, tmp_path, monkeypatch) -> dict[str, int]:
    """A config whose validation and test sets have the names of their directions; returns the number of training pairs
    in each set, by its name in reports."""
    monkeypatch.chdir(tmp_path)
    rows = list(dict.fromkeys(map(tuple, sentences(600, 1))))
    corpora, sets, shared = [], {"valid": [], "test": []}, {}
    for number, (sides, both) in enumerate(TRAIN.items()):
        keys = write(f"train{number}", rows[:200], sides, request.param)
        corpora.append(f"    - {{{keys}, from: {sides[0]}, to: {sides[1]}, {both}}}")
    kinds = [(kind, one) for one, is_trained in DIRECTIONS.items() for kind in ("valid", "test")[not is_trained :]]
    for number, (kind, direction) in enumerate(kinds):
        leaked = number + 1
        lines = [*rows[:leaked], *rows[300 + 20 * number : 320 + 20 * number]]
        keys = write(f"{kind}-{direction}", lines, tuple(direction.split("-")), request.param)
        sets[kind].append(f"{direction}: {{{keys}}}")
        name = f"test {direction}" if kind == "test" and DIRECTIONS[direction] else direction
        shared[name] = leaked if DIRECTIONS[direction] else 0
    sections = [f"  {kind}: {{{', '.join(each)}}}" for kind, each in sets.items()]
    config = ["languages: {source: [en, de, fr], target: [de, en, fr]}", "data:", "  num_workers: 1"]
    config += [*sections, "  train:", *corpora, "tokenizer: {vocab_size: 300}"]
    config += ["model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1}"]
    config += ["training: {max_steps: 1, batch_tokens: 256, threads: 1}"]
    Path("many.yaml").write_text("\n".join(config) + "\n")
    return shared


def test_each_set_is_compared_with_the_training_pairs_of_its_direction(leaking, capfd):
    assert set(SPELLED) == {"en", "de", "fr"}
    assert main(["check", "many.yaml", "--format", "json"]) == 1
    directions = json.loads(capfd.readouterr().out)["directions"]
    assert set(directions) == set(DIRECTIONS)
    # tokenizers of training have the texts of all directions
    assert not any(report["lengths_are_exact"] for report in directions.values())
    found = {
        name: overlap["pair_exact"]
        for report in directions.values()
        for name, overlap in report["overlaps"].get("train", {}).items()
    }
    assert {name: found.get(name, 0) for name in leaking} == leaking
    checked = [corpus["name"] for report in directions.values() for corpus in report["corpora"]]
    assert sorted(name for name in checked if not name.startswith("train")) == sorted(leaking)


NOISE = NoiseConfig(upper=1.0, typos=1.0, copies=1.0, repeated_punctuation=1.0)


@pytest.mark.parametrize("form", [*FORMS, "folder of tagged pairs"])
def test_the_check_reads_the_pairs_of_training_in_each_direction_without_their_noise(form, tmp_path, monkeypatch):
    """The lines of the files are reported, without their tag, and noise is in none of them."""
    monkeypatch.chdir(tmp_path)
    languages, sides = LanguagesConfig(source=("en", "de"), target=("de", "en")), ("en", "de")
    rows = list(map(tuple, sentences(40, 1)))
    if form in FORMS:
        keys = yaml.safe_load(f"{{{write('corpus', rows, sides, form)}}}")
    else:
        pairs = zip(spelled(rows, "en"), spelled(rows, "de"), strict=True)
        keys = {"jsonl": write_parts(tmp_path / "tagged", pairs, "<back>")}
    plain = SourceConfig.model_validate({**keys, "from": "en", "to": "de", "both_ways": True})
    opened = open_training(plain, languages)
    assert [source.direction for source in opened] == [sides, sides[::-1]]
    noisy = plain.model_copy(update={"noise": NOISE})
    assert all(list(one) != list(other) for one, other in zip(opened, open_training(noisy, languages), strict=True))
    for config, (source, is_reversed) in product((plain, noisy), zip(opened, (False, True), strict=True)):
        reader = CorpusReader("train", config, source.direction, {}, is_reversed)
        read = [texts for block in reader.blocks() for texts in zip(*block.columns, strict=True)]
        assert (read, reader.failure) == ([pair.without(source.tag).texts for pair in source], None)


@pytest.mark.slow
def test_training_warns_of_each_set_that_has_training_pairs(leaking, capfd):
    """It compares the pairs of all directions, so a set of a direction without training pairs has none."""
    assert main(["train", "many.yaml", "--run-dir", "run"]) == 0
    (warning,) = (line for line in capfd.readouterr().err.splitlines() if "warning: training contains" in line)
    for name, leaked in leaking.items():
        assert (f" of {name}" in warning) == bool(leaked), (name, warning)


def test_no_name_of_a_set_is_lost():
    names = ["valid", "en-de", "test en-de", "test test en-de", "train", "test train"]
    tests = {name: f"test {number}" for number, name in enumerate(names)}
    sets = held_out_names({"valid": "valid", "en-de": "other"}, tests)
    assert sorted(sets.values()) == sorted(["valid", "other", *tests.values()])
    assert "train" not in sets
    assert all(one != other for one, other in pairwise(sorted(sets)))
