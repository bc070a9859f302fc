"""Names of labels in the data and in answers (`data.label_names`): all names of a file decide which of them it has."""

import json

import pytest
from support.examples import write_jsonl

from seq2seq.config.corpora import SourceConfig
from seq2seq.data.examples import LabelledText
from seq2seq.data.sources import open_labelled
from seq2seq.errors import DataError

SHARES = [{"0": 0.75, "1": 0.125, "2": 0.125}, {"0": 0.0, "1": 0.25, "2": 0.75}, {"0": 0.25, "1": 0.5, "2": 0.25}]
SOFT = [LabelledText(f"text {label}", label, shares) for label, shares in zip("021", SHARES, strict=True)]
HARD = [LabelledText(example.text, example.label) for example in SOFT]
BLANK = {"text": "", "label": "", "probability": 0.0, "probabilities": {}}

ONE_MEANING = {
    "none": {},
    "the same": {"0": "0", "1": "1", "2": "2"},
    "other words": {"0": "bad", "1": "fair", "2": "good"},
    "one other word": {"0": "bad"},
    "shifted up": {"0": "1", "1": "2", "2": "3"},
    "shifted down": {"0": "-1", "1": "0", "2": "1"},
    "one shifted": {"2": "3"},
}
TWO_MEANINGS = {
    "reversed": {"0": "2", "1": "1", "2": "0"},
    "exchanged": {"0": "1", "1": "0"},
    "rotated": {"0": "1", "1": "2", "2": "0"},
}
any_names = pytest.mark.parametrize("names", [*ONE_MEANING.values(), *TWO_MEANINGS.values()])


def answers(names):
    """The records that `s2s classify --format jsonl` would write, blank lines included."""
    called = [{names.get(label, label): share for label, share in shares.items()} for shares in SHARES]
    best = [max(shares, key=shares.get) for shares in called]
    records = [
        {"text": example.text, "label": label, "probability": shares[label], "probabilities": shares}
        for example, label, shares in zip(SOFT, best, called, strict=True)
    ]
    return [BLANK, *records, BLANK]


def by_labels():
    """Records with the names of the data."""
    return [{"text": one.text, "label": one.label, "probabilities": one.probabilities} for one in SOFT]


def read(path, records, names, **keys):
    return list(open_labelled(SourceConfig(jsonl=write_jsonl(path, records), **keys), label_names=names))


@any_names
def test_answers_are_read_as_the_labels_of_the_data(tmp_path, names):
    assert read(tmp_path / "x", answers(names), names) == SOFT
    assert read(tmp_path / "x", answers(names), names, label_column="label") == HARD


@any_names
def test_answers_in_a_dataset_are_too(tmp_path, names):
    import datasets

    write_jsonl(tmp_path / "answers.jsonl", answers(names))
    records = list(map(json.loads, (tmp_path / "answers.jsonl").read_text().splitlines()))
    datasets.Dataset.from_list(records).save_to_disk(str(tmp_path / "saved"))
    for keys, expected in (({}, SOFT), ({"label_column": "label"}, HARD)):
        assert list(open_labelled(SourceConfig(hub=str(tmp_path / "saved"), **keys), label_names=names)) == expected


@pytest.mark.parametrize("names", ONE_MEANING.values())
def test_the_names_of_the_data_are_read_as_they_are(tmp_path, names):
    assert read(tmp_path / "x", by_labels(), names) == SOFT
    assert read(tmp_path / "x", by_labels(), names, label_column="label") == HARD
    plain = [{"text": example.text, "label": example.label} for example in HARD]
    assert read(tmp_path / "x", plain, names) == HARD


@pytest.mark.parametrize("names", TWO_MEANINGS.values())
@pytest.mark.parametrize("column", [None, "label"])
def test_names_with_two_meanings_are_one_line_with_the_remedy(tmp_path, names, column):
    with pytest.raises(DataError, match=r"x: line 1: probabilities: .*data\.label_names") as error:
        read(tmp_path / "x", by_labels(), names, label_column=column)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("found", [{"1": 0.5, "2": 0.5}, {"1": 0.5, "2": 0.25, "tree": 0.25}])
def test_names_of_some_labels_alone_are_refused_where_they_have_two_meanings(tmp_path, found):
    with pytest.raises(DataError, match=r"x: line 1: probabilities: .*'1'.*data\.label_names.* every label"):
        read(tmp_path / "x", [{"text": "a", "probabilities": found}], ONE_MEANING["shifted up"])


@any_names
def test_another_column_has_the_labels_of_the_data(tmp_path, names):
    records = [{**record, "gold": example.label} for record, example in zip(answers(names)[1:-1], SOFT, strict=True)]
    assert read(tmp_path / "x", records, names, label_column="gold") == HARD
