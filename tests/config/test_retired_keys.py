"""Keys of earlier versions in the records of runs: read where they had no effect, refused where they would have one."""

import pytest
from pydantic import ValidationError

from seq2seq.config.schema import ClassifierConfig, ModelConfig, TrainingConfig

EARLIER = {
    "classifier": {"hidden": 0},
    "training": {"average": "none", "average_count": 5},
    "model": {"preset": "deep-encoder", "d_model": 64, "num_heads": 2},
}


@pytest.mark.parametrize("section", EARLIER)
def test_the_record_of_a_run_of_an_earlier_version_is_read(section):
    """Its retired keys had no effect, so the run continues, and its model is scored and served."""
    classes = {"classifier": ClassifierConfig, "training": TrainingConfig, "model": ModelConfig}
    own = classes[section]
    now = own().model_dump()
    assert own.model_validate({**now, **EARLIER[section]}).model_dump() == {
        **now, **({"preset": None, "d_model": 64, "num_heads": 2} if section == "model" else {})
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own", "given"),
    [
        (ClassifierConfig, {"hidden": 64}),
        (TrainingConfig, {"average": "best"}),
        (TrainingConfig, {"average": "best", "average_count": 5}),
        (TrainingConfig, {"average_count": 3}),
        (ModelConfig, {"preset": "deep-encoder"}),
    ],
)
def test_a_retired_key_that_would_have_an_effect_is_refused(own, given):
    with pytest.raises(ValidationError):
        own.model_validate(given)
