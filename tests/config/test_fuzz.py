"""The readers of configurations, JSON lines and TSV, fed with what hypothesis makes up: only ever a UserError."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plain_words import python_words
from support.wrong_files import CONFIG

from seq2seq.config import file as config_file
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import UserError

# -- what nobody thought of ------------------------------------------------------------------------

FUZZ = settings(
    max_examples=300, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
KEYS = st.sampled_from(
    ["data", "train", "valid", "test", "source", "target", "tsv", "jsonl", "hub", "model", "training", "preset",
     "d_model", "max_steps", "betas", "search", "beam_size", "weight", "seed", "task", "init_from", "filters",
     "evaluation", "metrics", "[key]", "[one]", "[named]"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12),
    st.sampled_from(["a.txt", "", ".", "/", "~", "~nobody/x", "\x00", "1e400", "translation", "tiny"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS | st.text(max_size=5), inner)),
    max_leaves=12,
)  # fmt: skip


QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")  # a value that hypothesis made up


def only_user_errors(read, *arguments: object, content: str = "") -> None:
    """Anything else that is raised fails the test, and so does a message with terms of Python that `content` lacks."""
    told = ""
    try:
        read(*arguments)
    except UserError as error:
        told = QUOTED.sub("", str(error))
    assert not [word for word in python_words(told) if word not in str(arguments) + content]


@pytest.mark.slow
@FUZZ
@given(values=st.dictionaries(KEYS | st.text(max_size=5), VALUES, max_size=5))
def test_a_config_of_any_values_is_one_or_is_refused(values):
    only_user_errors(config_file.parse, json.dumps(values))


@FUZZ
@given(text=st.one_of(st.text(max_size=200), st.text(alphabet="{}[]:,-&*!|>'\"#%@`\n\t ?ab01", max_size=60)))
def test_a_config_of_any_text_is_one_or_is_refused(text):
    only_user_errors(config_file.parse, text)


@pytest.mark.slow
@FUZZ
@given(
    overrides=st.lists(
        st.one_of(st.text(max_size=30), st.tuples(KEYS, KEYS, SCALARS).map(lambda t: f"{t[0]}.{t[1]}={t[2]}"))
    )
)
def test_any_override_is_one_or_is_refused(overrides):
    only_user_errors(config_file.parse, CONFIG, "config", Path("/nowhere"), overrides)


@pytest.mark.slow
@FUZZ
@given(place=st.integers(0, len(CONFIG) - 1), count=st.integers(0, 20), inserted=st.text(max_size=5))
def test_a_good_config_with_a_piece_replaced(place, count, inserted):
    only_user_errors(config_file.parse, CONFIG[:place] + inserted + CONFIG[place + count :])


@FUZZ
@given(content=st.binary(max_size=120))
def test_a_config_file_of_any_bytes(content, tmp_path):
    (tmp_path / "c.yaml").write_bytes(content)
    only_user_errors(config_file.load, tmp_path / "c.yaml")


def read_all(opened, config, *languages) -> None:
    for example in opened(config, *languages):
        shares = getattr(example, "probabilities", None) or {}
        for text in (*example.texts, getattr(example, "label", ""), *shares):
            assert isinstance(text, str)
            assert "\n" not in text
        assert not shares or sum(shares.values()) == pytest.approx(1)


KEYS_OF_RECORDS = st.sampled_from(["en", "de", "translation", "sentence", "label", "probabilities", "x"])
SHARES = st.dictionaries(st.text(max_size=2), st.sampled_from([0, 0.5, 1, 0.25, -1]))
RECORDS = st.dictionaries(KEYS_OF_RECORDS | st.text(max_size=3), VALUES | SHARES)
JSON_LINES = st.lists(st.one_of(RECORDS.map(json.dumps), VALUES.map(json.dumps), st.text(max_size=20)), max_size=4)


@pytest.mark.slow
@FUZZ
@given(
    content=st.one_of(
        st.binary(max_size=120), JSON_LINES.map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass"))
    )
)
@pytest.mark.parametrize("kind", ["jsonl", "tsv"])
def test_jsonl_and_tsv_of_any_content(content, kind, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(content)
    given_text = content.decode(errors="replace")
    only_user_errors(read_all, open_pairs, SourceConfig(**{kind: path}), "en", "de", content=given_text)
    only_user_errors(read_all, open_labelled, SourceConfig(**{kind: path}), content=given_text)
