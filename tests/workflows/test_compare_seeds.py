"""`s2s compare`: which trainings are the seeds of one row, and the figures and tests of such rows."""

from dataclasses import replace

import numpy as np
import pytest
from support.compared import REFERENCE, seeded, spoiled

from seq2seq.evaluation.text import score_texts
from seq2seq.workflows.compare.comparison import TestLines as Lines
from seq2seq.workflows.compare.comparison import compare
from seq2seq.workflows.compare.page import page
from seq2seq.workflows.compare.systems import System, rows
from seq2seq.workflows.compare.wording import cell, p_of

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
    turned = compare([*systems[::-1], SYSTEMS[0]], Lines("set", [REFERENCE]), ["bleu"])
    assert dict(turned.rows) == dict(found.rows)


def test_the_test_of_seeds_says_their_number_and_is_not_called_sacrebleus(tmp_path):
    several = [seeded(tmp_path, "base", seed, 0.1, spoiled(REFERENCE, 0.2, seed)) for seed in (1, 2, 3)]
    test = Lines("set", [REFERENCE])
    found = compare([*several, *SYSTEMS[1:]], test, ["bleu"])
    over_seeds, _, single = found.pairs
    assert [p_of(pair).partition(" (")[2] for pair in found.pairs] == ["3 and 1 seeds)", "3 and 1 seeds)", ""]
    assert over_seeds.corrected >= over_seeds.p_value
    (alone,) = compare(SYSTEMS[1:], test, ["bleu"]).pairs
    assert single.p_value == alone.p_value  # that of sacreBLEU
    assert [note.partition(":")[0] for note in found.notes if "one training" in note] == ["b", "c"]
    assert "--paired-bs" in page(found)
    shown = page(compare([*several, SYSTEMS[1]], test, ["bleu"]))
    assert "3 and 1 seeds" in shown
    assert "--paired-bs" not in shown


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
