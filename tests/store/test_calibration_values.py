"""`details.json` of a stranger: each value that cannot be is named when the file is read, and what passes works."""

import contextlib
import copy
import json
from functools import reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.our_models import make_ours

from seq2seq import Translator
from seq2seq.errors import ModelError
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.confidence import features
from seq2seq.inference.pipeline import Pipeline
from seq2seq.store.calibration import FILE, LONGEST_WORD, NUM_FEATURES, Calibration, read_calibration

RIGHT: dict[str, Any] = {
    "heads": {"1.1": 0.5, "2.2+": 0.5}, "distance": 1.0, "accuracy": 0.9, "anchors": 60,
    "confidence": {"means": [0.1] * 4, "scales": [1.0] * 4, "weights": [1.0] * 4, "bias": 0.0,
                   "table": [{"predicted": 0.5, "observed": 0.5, "sentences": 20}]},
    "stand_ins": [{"name": "known words", "words": ["man", "dog"], "answers": ["Mann", "Hund"], "kept": 1.0}],
}  # fmt: skip
PLACES = [
    ("heads",), ("heads", "1.1"), ("distance",), ("accuracy",), ("anchors",), ("confidence",), ("confidence", "means"),
    ("confidence", "means", 0), ("confidence", "scales"), ("confidence", "scales", 3), ("confidence", "weights"),
    ("confidence", "bias"), ("confidence", "table"), ("confidence", "table", 0, "sentences"), ("stand_ins",),
    ("stand_ins", 0), ("stand_ins", 0, "name"), ("stand_ins", 0, "words"), ("stand_ins", 0, "words", 1),
    ("stand_ins", 0, "answers"), ("stand_ins", 0, "kept"),
]  # fmt: skip
WRONG = {
    ("confidence", "means"): [[], [0.0] * 3, [0.0] * 5, [0.0] * 10**5, ["0"] * 4, [1e300] * 4],
    ("confidence", "scales"): [[], [1.0] * 3, [0.0] * 4, [-1.0] * 4],
    ("confidence", "weights"): [[], [1.0], [None] * 4],
    ("stand_ins", 0, "words"): [[], ["man"], ["man", "man"], ["a b", "c"], ["", "x"], ["x" * 100_000, "y"], "md"],
    ("stand_ins", 0, "answers"): [[], ["Mann"], ["Mann"] * 3, ["x" * (LONGEST_WORD + 1), "y"]],
    ("stand_ins", 0, "name"): ["x\n" * 9, 5],
    ("confidence", "table"): [[]],
    ("accuracy",): [[], {}, "", -0.1],
    ("heads",): [
        {},
        [],
        {"1.1": 0.0},
        {"1.1": 0, "2.2+": 0},
        {"9.1": 1.0},
        {"1": 1.0},
        {"1.1": "x"},
        {"1.1": -1},
        {f"1.{n}": 0.1 for n in range(1, 20_000)},
    ],
    ("anchors",): [0, [], -1, 1.5, "5", 10**400],
}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated") / "model"
    make_ours(folder, ending=4.0, d_model=16)
    return folder


def changed(place: tuple, value: Any) -> dict[str, Any]:
    values = copy.deepcopy(RIGHT)
    reduce(lambda inner, key: inner[key], place[:-1], values)[place[-1]] = value
    return values


def works(folder) -> None:
    """All that reads a calibration."""
    aligner = Aligner.load(folder, device="cpu", threads=1)
    (details,) = aligner.align([("a man", "ein Mann")])
    assert details.confidence is None or 0 <= details.confidence <= 1
    translator = Translator.load(folder, engine="torch", threads=1)
    Pipeline(translator, aligner).translate(["<p>a {x} <b>man</b></p>"], form="html")


def test_the_features_are_as_many_as_are_read():
    assert len(features((), (), 1)) == NUM_FEATURES


@pytest.mark.parametrize(("place", "value"), [(place, value) for place, values in WRONG.items() for value in values])
def test_a_value_that_cannot_be_is_one_line(folder, place, value):
    (folder / FILE).write_text(json.dumps(changed(place, value)))
    with pytest.raises(ModelError, match="s2s align --calibrate") as error:
        Aligner.load(folder, device="cpu", threads=1)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300 + len(str(folder))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), ANY)
def test_any_value_is_refused_or_works(folder, place, value):
    (folder / FILE).write_text(json.dumps(changed(place, value)))
    with contextlib.suppress(ModelError):
        if read_calibration(folder) != Calibration.model_validate(RIGHT):
            works(folder)


@pytest.mark.parametrize("values", [RIGHT, {}, Calibration(anchors=5).model_dump(mode="json")])
def test_what_training_writes_works(folder, values):
    (folder / FILE).write_text(json.dumps(values))
    works(folder)
