"""Keys of a configuration as users write them: entries of lists, names of digits, and names of other toolkits."""

import json
import re

import pytest
from test_config import MINIMAL, folder, parse, problems

from seq2seq.config import file as config_file
from seq2seq.config.file import settings_of
from seq2seq.config.problems import _KEYS_OF, _all_keys
from seq2seq.config.schema import Config
from seq2seq.errors import ConfigError
from seq2seq.tasks.run_folder import changes

__all__ = ["folder"]  # the fixture

LIST = """
source_language: en
target_language: de
data:
  train: [{source: train.en, target: train.de}, &other {source: train.en, target: train.de, weight: 3.0}, *other]
  valid: {source: train.en, target: train.de}
"""


def test_entries_of_lists_are_set_by_index(folder):
    config = parse(folder, LIST, "data.train.0.weight=2.0", "data.train.1.noise.upper=0.5")
    assert [source.weight for source in config.data.train] == [2.0, 3.0, 3.0]
    assert [source.noise is not None for source in config.data.train] == [False, True, False]  # an alias is a copy
    assert parse(folder, MINIMAL, "data.train.0.weight=2.0").data.train[0].weight == 2.0
    assert parse(folder, MINIMAL, "data.label_names.0=bad").data.label_names == {"0": "bad"}  # keys of digits
    for wrong in ("data.train.3.weight=2", "data.train.-1.weight=2", "data.train.first.weight=2", "data.train.3={}",
                  f"data.train.{'9' * 5000}=1"):  # fmt: skip
        assert problems(folder, LIST, wrong).endswith("data.train is a list; name one of its entries (0 to 2)")


def test_a_key_is_given_once_in_a_value_too(folder):
    assert "--set 'training': max_steps: given twice" in problems(folder, LIST, "training={max_steps: 5, max_steps: 9}")


def test_every_key_that_an_error_names_can_be_set(folder):
    told = problems(folder, LIST, "data.train.1.weight=heavy", "data.train.2.noise={upper: 7}")
    keys = [line.split(": ")[1] for line in told.splitlines()]
    assert sorted(keys) == ["data.train.1.weight", "data.train.2.noise.upper"]
    parse(folder, LIST, *(f"{key}=0.5" for key in keys))


@pytest.mark.parametrize("name", sorted(_KEYS_OF))
def test_names_of_other_toolkits_lead_to_the_key_here(folder, name):
    key = _KEYS_OF[name]
    assert any(path.endswith(key.rpartition(".")[2]) for path in _all_keys(Config)), key
    section = key.rpartition(".")[0]
    assert f"did you mean '{key.rpartition('.')[2]}'" in problems(folder, MINIMAL, f"{section}.{name}=1".lstrip("."))
    assert f"did you mean '{key}'" in problems(folder, MINIMAL, f"classifier.{name.replace('_', '-')}=1")


def test_a_name_that_yaml_reads_as_a_number_can_be_set(folder):
    text = MINIMAL + "  test: {2016: {source: valid.en, target: valid.de}}\n"
    changed = parse(folder, text, "data.test.2016.source=train.en").data.test["2016"]
    assert (changed.source.name, changed.target.name) == ("train.en", "valid.de")


def test_the_link_to_the_newest_run_is_no_initial_model(folder, monkeypatch):
    """It leads to the new run as soon as that starts, so the same command could not continue."""
    monkeypatch.chdir(folder)
    (folder / "runs" / "one").mkdir(parents=True)
    (folder / "runs" / "latest").symlink_to("one")
    for key in ("training.init_from", "tokenizer.init_from"):
        told = problems(folder, MINIMAL, f"{key}=runs/latest")
        assert (
            told
            == f"test.yaml: {key}: runs/latest is the link to the newest run, which the new run will be; write runs/one"
        )
    (folder / "models").mkdir()
    (folder / "models" / "latest").symlink_to("../runs/one")
    assert parse(folder, MINIMAL, "training.init_from=models/latest").training.init_from == folder / "runs" / "one"


def test_a_setting_without_entries_is_a_list_in_messages_too(folder):
    given = ("training.freeze=[encoder.embedding]", "training.trackers=[]", "tokenizer.extra_pieces=[<b>]")
    found = changes(parse(folder), parse(folder, MINIMAL, *given))
    assert {key: before for key, before, _ in found}["training.freeze"] == []
    assert all(value != {} for _, *values in found for value in values)
    settings = dict(settings_of(parse(folder, MINIMAL, *given).model_dump(mode="json")))
    assert settings["training.trackers"] == []
    assert settings["data.label_names"] == {}


@pytest.mark.parametrize("name", ["[key]", "[one]", "[named]"])  # which pydantic puts into the paths of keys
@pytest.mark.parametrize(
    "section", ["", "data.", "data.train.", "data.valid.", "data.test.", "model.", "data.filters."]
)
@pytest.mark.parametrize("value", [None, 1, {"tsv": "x"}, []])
def test_a_key_that_is_a_word_of_the_reader_of_configs_is_told_by_its_name(section, name, value):
    config = {"data": {"train": {"tsv": "x"}, "valid": {"tsv": "x"}}}
    place = config
    for part in section.split(".")[:-1]:
        place = place.setdefault(part, {})
    place[name] = value
    with pytest.raises(ConfigError, match=re.escape(f"{section}{name}: ")):
        config_file.parse(json.dumps(config))
