"""`s2s compare`: which trainings are the seeds of one row, and the figures and tests of such rows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.compared import REFERENCE, seeded, spoiled
from support.run_folders import make_run

from seq2seq.cli.compare import _table
from seq2seq.evaluation.text import score_texts
from seq2seq.workflows.compare.comparison import TestLines as Lines
from seq2seq.workflows.compare.comparison import compare
from seq2seq.workflows.compare.page import page
from seq2seq.workflows.compare.systems import System, rows
from seq2seq.workflows.compare.wording import cell, p_of, verdict
from seq2seq.workflows.runs import run_of

SYSTEMS = [
    System(name, spoiled(REFERENCE, rate, seed)) for name, rate, seed in (("a", 0.2, 1), ("b", 0.2, 2), ("c", 0.4, 3))
]


def bleu(lines) -> float:
    return score_texts(lines, REFERENCE, ["bleu"])[0].score


def test_seeds_of_one_configuration_are_one_row_with_mean_and_deviation(tmp_path):
    systems = [
        seeded(tmp_path, name, seed, dropout, spoiled(REFERENCE, rate, seed * 10 + place))
        for place, (name, dropout) in enumerate((("base", 0.1), ("wide", 0.2)))
        for seed, rate in ((1, 0.1), (2, 0.2), (3, 0.3))
    ]
    found = compare([*systems, SYSTEMS[0]], Lines("set", [REFERENCE]), ["bleu"])
    assert list(found.rows) == ["base (3 seeds)", "wide (3 seeds)", "a"]
    assert found.seeds == {"base (3 seeds)": [1, 2, 3], "wide (3 seeds)": [1, 2, 3], "a": [None]}
    own = [bleu(system.translations) for system in systems[:3]]
    figure = found.rows["base (3 seeds)"]["bleu"]
    assert list(figure.members.values()) == own
    assert figure.score == pytest.approx(np.mean(own))
    assert figure.sd == pytest.approx(np.std(own, ddof=1))
    assert f"(sd {figure.sd:.2f})" in cell(figure)
    assert figure.half_width > found.rows["a"]["bleu"].half_width  # chance of the seeds
    assert not found.pairs[0].is_different
    assert len(rows(systems, apart=True)) == 6
    alone = compare(systems[:2], Lines("set", [REFERENCE]), ["bleu"])
    assert (list(alone.rows), alone.pairs, alone.sentences) == (["base (2 seeds)"], [], [])
    assert "Scores of each seed" in page(alone)
    members = [system.name for system in systems[:2]]
    assert f"base (2 seeds): {', '.join(members)}" in list(_table(alone))
    turned = compare([*systems[::-1], SYSTEMS[0]], Lines("set", [REFERENCE]), ["bleu"])
    assert dict(turned.rows) == dict(found.rows)


def test_the_test_of_seeds_says_their_number_and_is_not_called_sacrebleus(tmp_path):
    several = [seeded(tmp_path, "base", seed, 0.1, spoiled(REFERENCE, 0.2, seed)) for seed in (1, 2, 3)]
    test = Lines("set", [REFERENCE])
    found = compare([*several, *SYSTEMS[1:]], test, ["bleu"])
    over_seeds, _, single = found.pairs
    assert [p_of(pair).partition(" (")[2] for pair in found.pairs] == ["3 and 1 seeds)", "3 and 1 seeds)", "sacreBLEU)"]
    assert over_seeds.corrected >= over_seeds.p_value
    (alone,) = compare(SYSTEMS[1:], test, ["bleu"]).pairs
    assert single.p_value == alone.p_value  # that of sacreBLEU
    assert [note.partition(":")[0] for note in found.notes if "one training" in note] == ["b", "c"]
    assert "--paired-bs" in page(found)
    shown = page(compare([*several, SYSTEMS[1]], test, ["bleu"]))
    assert "3 and 1 seeds" in shown
    assert "--paired-bs" not in shown


def test_systems_that_differ_alike_in_every_line_are_different_and_one_line_shows_nothing():
    empty, whole = System("empty", [""] * len(REFERENCE)), System("whole", REFERENCE)
    for pair in compare([whole, empty], Lines("set", [REFERENCE]), ["bleu", "chrf", "ter"]).pairs:
        assert (verdict(pair), pair.corrected) == ("different", 0.0)
    one = [replace(system, translations=system.translations[:1]) for system in (whole, empty)]
    found = compare(one, Lines("set", [REFERENCE[:1]]), ["bleu", "chrf", "ter"])
    assert {verdict(pair) for pair in found.pairs} == {"no difference found"}
    assert "one line cannot show whether systems differ; give a longer test set" in found.notes


@pytest.mark.parametrize(
    ("names", "shared"),
    [(("systems1", "systems2"), "systems"), (("x-s1", "x-s2"), "x"), (("x,seed=1", "x,seed=2"), "x"),
     (("classes_1", "classes_2"), "classes"), (("runs/s1", "runs/s2"), "runs"), (("base2-s1", "base2-s2"), "base2")],
)  # fmt: skip
def test_a_row_has_the_shared_name_without_the_seed(tmp_path, names, shared):
    systems = [replace(training(tmp_path, seed), name=name) for seed, name in enumerate(names, start=1)]
    assert [row.name for row in rows(systems)] == [f"{shared} (2 seeds)"]


def test_it_is_said_that_lines_and_texts_are_those_of_the_first_seed(tmp_path):
    systems = [replace(training(tmp_path, seed), translations=spoiled(REFERENCE, 0.2, seed)) for seed in (1, 2)]
    told = "lines and texts are those of the first seed"
    assert told in page(compare([*systems, SYSTEMS[2]], Lines("set", [REFERENCE]), ["chrf"]))
    assert told not in page(compare([systems[0], SYSTEMS[2]], Lines("set", [REFERENCE]), ["chrf"]))


def test_the_way_in_which_paths_are_typed_changes_no_figure(tmp_path):
    systems = [seeded(tmp_path, "base", seed, 0.1, spoiled(REFERENCE, seed / 10, seed)) for seed in (1, 2)]
    typed = [replace(system, name=f"./{system.name}/") for system in systems]
    found = [compare([*own, SYSTEMS[0]], Lines("set", [REFERENCE]), ["bleu"]) for own in (systems, typed)]
    one, other = ([row["bleu"] for row in each.rows.values()] for each in found)
    assert [replace(figure, members={}) for figure in one] == [replace(figure, members={}) for figure in other]
    assert [pair.corrected for pair in found[0].pairs] == [pair.corrected for pair in found[1].pairs]


def test_other_data_or_settings_are_other_rows_and_one_training_twice_is_two(tmp_path):
    systems = [seeded(tmp_path, "x", seed, 0.1, REFERENCE) for seed in (1, 2)]
    (tmp_path / "x,seed=2" / "identity.json").write_text('{"data.train": "other"}')
    assert len(rows(systems)) == 2
    twice = seeded(tmp_path / "copy", "x", 1, 0.1, REFERENCE)
    assert len(rows([systems[0], System("copy", REFERENCE, None, twice.run)])) == 2


# -- which trainings are seeds of one row ------------------------------------------------------------------------------

CONFIG = """
seed: {seed}
data: {{train: {{source: {folder}/train.en, target: {folder}/train.de}}, test: {{}}}}
search: {{beam_size: 5}}
training: {{init_from: {folder}/base, log_every: 50, max_steps: 40, compile: auto}}
"""
IDENTITY = {"data.train": "1", "training.init_from": "2", "tokenizer": "3", "fixed_shapes": False}


def training(folder, seed, changes=(), identity=(), beam_size=5, finished="max_steps 40 reached", place="/data"):
    """A run of CONFIG, with changed texts in it, changed fingerprints, and another search in best/."""
    text = CONFIG.format(seed=seed, folder=place)
    for old, new in dict(changes).items():
        assert old in text
        text = text.replace(old, new)
    path = make_run(folder / f"x-s{seed}", bleu=3.0, config=text, finished=finished)
    (path / "identity.json").write_text(json.dumps({**IDENTITY, "tokenizer": str(seed), **dict(identity)}))
    search = {"beam_size": beam_size, "length_penalty": 1.0}
    (path / "best" / "generation_config.json").write_text(json.dumps({"search": search}))
    return System(path.name, REFERENCE, None, run_of(path))


@pytest.mark.parametrize(
    "change",
    [
        {"place": "/home/other/data"},
        {"changes": {"log_every: 50": "log_every: 7, num_samples: 0, keep_last: 9, keep_best: 3"}},
        {"changes": {"compile: auto": "compile: false, trackers: [mlflow], record: false, device: cpu"}},
        {"changes": {"test: {}": "test: {news: {source: a, target: b}}"}},
        {"changes": {"search: {": "search: {record: false, "}},
        {"identity": {"fixed_shapes": True}},
    ],
)
def test_what_does_not_change_the_model_keeps_no_seeds_apart(tmp_path, change):
    systems = [training(tmp_path, 1), training(tmp_path, 2, **change), training(tmp_path, 3)]
    assert [row.name for row in rows(systems)] == ["x (3 seeds)"]


@pytest.mark.parametrize(
    "change",
    [
        {"identity": {"data.train": "other"}},
        {"identity": {"training.init_from": "other"}},
        {"identity": {"tokenizer.init_from": "other"}},
        {"beam_size": 1},
        {"finished": None},
        {"changes": {"max_steps: 40": "max_steps: 41"}},
        {"changes": {"train.en,": "train.en, weight: 2,"}},
        {"changes": {"search: {beam_size: 5": "search: {beam_size: 4"}},
    ],
)
def test_what_changes_the_translations_keeps_seeds_apart(tmp_path, change):
    systems = [training(tmp_path, 1), training(tmp_path, 2, **change)]
    assert [len(row.members) for row in rows(systems)] == [1, 1]


def test_paths_count_where_no_fingerprint_is_known(tmp_path):
    systems = [training(tmp_path, 1), training(tmp_path, 2, place="/other")]
    for system in systems:
        (system.run.folder.identity).write_text("{}")
    assert len(rows(systems)) == 2


def test_a_search_that_options_replace_keeps_no_seeds_apart(tmp_path):
    systems = [training(tmp_path, 1), training(tmp_path, 2, beam_size=1)]
    assert len(rows([replace(system, options=frozenset({"beam_size"})) for system in systems])) == 1
    assert len(rows([replace(system, options=frozenset({"length_penalty"})) for system in systems])) == 2


def test_a_run_that_is_not_finished_is_named(tmp_path):
    systems = [training(tmp_path, 1), training(tmp_path, 2), training(tmp_path, 3, finished=None)]
    found = compare(systems, Lines("set", [REFERENCE]), ["chrf"])
    assert list(found.seeds.values()) == [[1, 2], [3]]
    (note,) = [note for note in found.notes if "not finished" in note]
    assert note.startswith("x-s3: ")
    assert "step 40" in note
