"""Stages in a configuration: what they need, what they may leave out, and one line for each mistake."""

import pytest
from test_config import folder, parse, problems

from seq2seq.config import file as config_file
from seq2seq.tasks.effects import without_effect

__all__ = ["folder"]  # the fixture

STAGED = """
source_language: en
target_language: de
data:
  train:
    - {name: genuine, source: train.en, target: train.de}
    - {name: back, source: valid.en, target: valid.de}
  valid: {source: valid.en, target: valid.de}
  stages:
    - {until_epoch: 2, weights: {genuine: 0.6, back: 0.4}}
    - {weights: {genuine: 1}, restart: true}
"""


def test_a_stage_names_the_sources_that_it_sees(folder):
    config = parse(folder, STAGED, "training.max_epochs=3")
    assert [dict(stage.weights) for stage in config.data.stages] == [{"genuine": 0.6, "back": 0.4}, {"genuine": 1.0}]
    assert [(stage.until_epoch, stage.restart) for stage in config.data.stages] == [(2, False), (None, True)]
    assert config_file.parse(config_file.dump(config)) == config


def test_sources_may_share_a_name_and_names_may_be_numbers(folder):
    parse(folder, STAGED, "data.train.0.name=back", "data.stages=[{weights: {back: 1}}]")
    numbered = ("data.train.0.name='1'", "data.train.1.name='2'", "data.stages=[{weights: {1: 1, 2: 0.5}}]")
    assert parse(folder, STAGED, *numbered).data.stages[0].weights == {"1": 1.0, "2": 0.5}


def test_without_stages_the_dump_is_that_of_earlier_versions_but_for_an_empty_list(folder):
    text = config_file.dump(parse(folder))
    assert "name:" not in text
    assert "stages: []" in text


@pytest.mark.parametrize("limit", [1, 1.5, 2, 2.5])
def test_a_run_may_end_before_its_last_stage(folder, limit):
    """`unreached` names the stage before the first step."""
    assert parse(folder, STAGED, f"training.max_epochs={limit}").training.max_epochs == limit


FIRST, LAST = "data.stages.0", "data.stages.1"
THREE = (
    "data.stages=[{{until_epoch: 3, weights: {{back: 1}}}}, {{until_epoch: {}, weights: {{back: 1}}}}, "
    "{{weights: {{genuine: 1}}}}]"
)
# What is changed, and the one line that answers.
WRONG = [
    (f"{FIRST}.weights={{genuin: 1, back: 1}}",
     f"{FIRST}.weights: no source of data.train has the name 'genuin'; did you mean 'genuine'?"),
    (f"{LAST}.weights={{zebra: 1}}",
     f"{LAST}.weights: no source of data.train has the name 'zebra'; the names are genuine, back"),
    ("data.train.1.name=", "data.train.1.name: missing; the weights of data.stages need a name for each source"),
    (f"{FIRST}.weights={{genuine: 1}}",
     "data.train.1: no stage sees back; give it a weight in data.stages, or leave the source out"),
    (f"{FIRST}.weights.back=0",
     "data.train.1: no stage sees back; give it a weight in data.stages, or leave the source out"),
    ("data.train.1.weight=3", "data.train.1.weight: replaced by the weights of data.stages; write it there"),
    (f"{FIRST}.weights={{}}",
     f"{FIRST}: no source has a weight above 0; raise one, such as weights: {{genuine: 1}}"),
    (f"{FIRST}.weights=", f"{FIRST}: no source has a weight above 0; raise one, such as weights: {{genuine: 1}}"),
    (f"{FIRST}.weights={{genuine: 0, back: 0.0}}",
     f"{FIRST}: no source has a weight above 0; raise one, such as weights: {{genuine: 1}}"),
    (f"{FIRST}.weights.back=-1", f"{FIRST}.weights.back: must be a number from 0 to 1000, not -1"),
    (f"{FIRST}.weights.back=1e9", f"{FIRST}.weights.back: must be a number from 0 to 1000, not 1000000000.0"),
    (f"{FIRST}.weights.back=many", f"{FIRST}.weights.back: must be a number from 0 to 1000, not 'many'"),
    (f"{FIRST}.weights=[1, 2]", f"{FIRST}.weights: must be keys with values, such as {{key: value}}, not [1, 2]"),
    (f"{FIRST}={{until_epoch: 2}}",
     f"{FIRST}.weights: missing; name the sources that the stage sees, such as {{genuine: 1}}"),
    (f"{FIRST}.until_epoch=", f"{FIRST}.until_epoch: missing; write after which epoch the next stage begins"),
    (f"{FIRST}.until_epoch=0", f"{FIRST}.until_epoch: must be a whole number from 1 to 1,000,000,000, not 0"),
    (f"{FIRST}.until_epoch=1.5", f"{FIRST}.until_epoch: must be a whole number from 1 to 1,000,000,000, not 1.5"),
    (f"{FIRST}.until_epoch=2e9",
     f"{FIRST}.until_epoch: must be a whole number from 1 to 1,000,000,000, not 2000000000"),
    (f"{LAST}.until_epoch=4",
     f"{LAST}.until_epoch: the last stage ends with training; leave it out, and set training.max_epochs"),
    (THREE.format(3),
     f"{LAST}.until_epoch: 3 is not above that of the stage before, 3; epochs are counted from the start of training"),
    (THREE.format(1),
     f"{LAST}.until_epoch: 1 is not above that of the stage before, 3; epochs are counted from the start of training"),
    (f"{LAST}.restart=1", f"{LAST}.restart: must be true or false, not 1"),
    (f"{LAST}.patience=1", f"{LAST}.patience: unknown key; did you mean 'training.patience'?"),
    (f"{LAST}.weight=1", f"{LAST}.weight: unknown key; did you mean 'weights'?"),
    ("data.stages={weights: {genuine: 1}}",
     'data.stages: must be a list, such as [a, b], not {"weights": {"genuine": 1}}'),
    ("data.stages=3", "data.stages: must be a list, such as [a, b], not 3"),
    ("data.train.0.name=-back",
     "data.train.0.name: the name of a source is up to 64 letters, digits, spaces, '_', '-' and '.'; rename it"),
    ("data.train.0.name=7", "data.train.0.name: must be text, not 7; put it in quotes"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "answer"), WRONG, ids=range(len(WRONG)))
def test_each_mistake_is_one_line(folder, change, answer):
    assert problems(folder, STAGED, change) == f"test.yaml: {answer}"


def test_names_that_are_all_missing_are_named_one_by_one(folder):
    told = problems(folder, STAGED, "data.train.0.name=", "data.train.1.name=").splitlines()
    assert [line.split(": ")[1] for line in told] == ["data.train.0.name", "data.train.1.name"]


def test_a_mistake_elsewhere_does_not_hide_those_of_stages(folder):
    told = problems(folder, STAGED, "training.max_steps=0", "data.stages.1.weights={zebra: 1}").splitlines()
    assert [line.split(": ")[1] for line in told] == ["training.max_steps", "data.stages.1.weights"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (("data.stages.0.restart=true",), "data.stages.0.restart"),
        (("data.stages=[]", "data.train.1.name="), "data.train.0.name"),
        (("data.valid.name=held out",), "data.valid.name"),
    ],
)
def test_settings_of_stages_without_effect_are_named(folder, changes, key):
    assert [line.split(": ")[0] for line in without_effect(parse(folder, STAGED, *changes))] == [key]
    assert list(without_effect(parse(folder, STAGED))) == []
