"""Every value that a user can write, at and beyond its range: a valid setting that comes back as it was, or one line.

The keys are found by walking the configuration, the options by walking the commands, so that new ones are covered.
"""

import math
import re
import types
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import click
import pytest
from support.plain_words import python_words

from seq2seq.cli import VERBS, group, main
from seq2seq.cli.options import Number
from seq2seq.config import file as config_file
from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import Config
from seq2seq.config.values import Section
from seq2seq.config.yaml_text import as_yaml, read_yaml
from seq2seq.errors import ConfigError

LONGEST_LINE = 700
BASE = """source_language: en
target_language: de
data: {train: {tsv: x}, valid: {tsv: x}}
"""
CLASSIFIER = "task: classification\ndata: {train: {tsv: x}, valid: {tsv: x}}\n"
# As they stand in a file or behind `--set KEY=`; YAML reads them.
EXTREMES = [
    "0", "-1", "1", "2", "0.5", "1.0", "1e4", str(2**31), str(2**32), str(2**63 - 1), str(2**63), str(2**64),
    str(10**25), "1e308", "-1e308", "1e-308", "1e400", ".nan", ".inf", "-.inf", "0x" + "f" * 5000, "9" * 5000,
    "", '""', "null", "true", "no", "text", "~nosuch/x", "~/c", '"a\\0b"', '"a\\nb"', '"a\\tb"', '"\\ud800"',
    "caf\udce9", "x" * 100_000, "[" * 1000, "[" * 25 + "]" * 25, "{a: " * 25 + "1" + "}" * 25, "[]", "{}", "[1, x]",
    "[[]]", "{a: 1}", "{1: 2}", "{? [a] : b}", "2001-99-99", "2001-01-01", "!!int abc", "!!binary aGk=", "!!set {a, b}",
    "&a [*a]", "*a", "!!python/object:os.system x", "'unclosed", "@x", "x: y: z", "/dev/zero", ".", "..", "/",
    "y" * 300, "-", "[0.9, 0.98]", "[0.9, 1.0]", "[bleu]", "[bleu, bleu]",
]  # fmt: skip


def sections(kind: Any):
    """The sections among the types that an annotation is made of."""
    if isinstance(kind, type) and issubclass(kind, Section):
        yield kind
    for part in get_args(kind):
        yield from sections(part)


def keys_of(section: type[Section], prefix: str = ""):
    """Every key of a section and of the sections in it; those of sources once."""
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        for inner in dict.fromkeys(sections(field.annotation)):
            if inner is not SourceConfig or name == "train":
                yield from keys_of(inner, f"{prefix}{name}.")
            elif name == "test":
                yield from (f"{prefix}{name}.new.{key}" for key in inner.model_fields)


KEYS = [*keys_of(Config), "data.label_names.0", "data.test.new", "data.train.0.weight"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    (tmp_path / "x").write_text("a\tb\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_kept_or_told(read) -> None:
    """A configuration that its own text gives again, or problems of one printable line each."""
    try:
        config = read()
    except ConfigError as error:
        for line in str(error).splitlines():
            assert len(line) < LONGEST_LINE
            assert not python_words(line), line
            assert not re.search(r"\bfloat\b|Input", line), line
            line.encode()
        return
    text = config_file.dump(config)
    text.encode()
    assert config_file.parse(text) == config


@pytest.mark.parametrize(("number", "key"), list(enumerate(KEYS)), ids=KEYS)
def test_every_key_takes_a_value_or_says_what_is_wrong_with_it(here, number, key):
    # a fourteenth of the values for each key, so that neighbours have others; the slow test tries a third
    for value in EXTREMES[number % 14 :: 14]:
        is_kept_or_told(lambda value=value: config_file.parse(BASE, "c.yaml", here, [f"{key}={value}"]))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "key"), list(enumerate(KEYS)), ids=KEYS)
def test_every_key_takes_values_of_each_kind_or_says_what_is_wrong_with_them(here, number, key):
    # neighbours among the values are of one kind: a third of them for each key, the others for the next two keys
    for place, value in list(enumerate(EXTREMES))[number % 3 :: 3]:
        if len(value) < 1000 or number % 20 == 0:  # YAML takes most of the time for long values, and knows no keys
            base = (BASE, CLASSIFIER)[(number + place) % 2]  # neighbours have the other
            is_kept_or_told(lambda value=value, base=base: config_file.parse(base, "c.yaml", here, [f"{key}={value}"]))


@pytest.mark.slow
def test_every_key_at_once(here):
    for value in EXTREMES:
        keys = KEYS if len(value) < 1000 else KEYS[:5]  # a long value takes its time once for each key
        is_kept_or_told(
            lambda value=value, keys=keys: config_file.parse(BASE, "c.yaml", here, [f"{key}={value}" for key in keys])
        )


@pytest.mark.slow
@pytest.mark.parametrize("value", EXTREMES, ids=range(len(EXTREMES)))
def test_a_value_means_the_same_in_a_file(here, value):
    name = here / "c.yaml"
    for line in (f"seed: {value}", f"training:\n  betas: {value}", f"{value}: 1", f"a: 1\n{value}", value):
        name.write_text(f"{BASE}{line}\n", encoding="utf-8", errors="surrogateescape")
        is_kept_or_told(lambda: config_file.load(name))


def is_number(annotation: Any) -> bool:
    """Whether an annotation, or a part of it, is a number; lists and sections of them are not."""
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return any(map(is_number, get_args(annotation)))
    return annotation in (int, float)


def numeric_keys(section: type[Section] = Config, prefix: str = ""):
    for name, field in section.model_fields.items():
        if is_number(field.annotation):
            yield f"{prefix}{name}"
        for inner in dict.fromkeys(sections(field.annotation)):
            if name not in ("valid", "test", "stages"):  # test_stage_keys.py has those of stages
                yield from numeric_keys(inner, f"{prefix}{name}.")


NUMERIC = list(numeric_keys())


def test_the_walk_finds_the_numbers():
    assert {"seed", "training.max_steps", "training.threads", "model.d_ff", "search.temperature", "data.train.weight",
            "training.clip_norm", "data.filters.max_ratio", "data.train.source_column"} <= set(NUMERIC)  # fmt: skip


@pytest.mark.parametrize("key", NUMERIC)
def test_every_number_has_an_upper_bound_and_names_it(here, key):
    for value in ("1e25", str(10**25), "-1e25", ".nan", ".inf"):
        with pytest.raises(ConfigError) as caught:
            config_file.parse(BASE, "c.yaml", here, [f"{key}={value}"])
        told = [line for line in str(caught.value).splitlines() if line.startswith(f"c.yaml: {key}: must be a ")]
        assert len(told) == 1
        assert re.search(r"number (from|of) .* to ", told[0])


# -- the command line ------------------------------------------------------------------------------------------------


def commands(command: click.Command, path: tuple[str, ...] = ()):
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from commands(command.get_command(click.Context(command), name), (*path, name))


COMMANDS = dict(commands(group))
NUMBERS = [
    (path, option.opts[-1], option.type)
    for path, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option) and isinstance(option.type, Number)
]


def test_every_number_of_the_command_line_has_bounds():
    assert {path[0] for path in COMMANDS if path} == set(VERBS)
    unbounded = (click.types.IntParamType, click.types.FloatParamType, click.IntRange, click.FloatRange)
    for path, command in COMMANDS.items():
        assert not [option.name for option in command.params if isinstance(option.type, unbounded)], path


@pytest.mark.parametrize(
    ("path", "option", "kind"), NUMBERS, ids=[f"{' '.join(path)} {opt}" for path, opt, _ in NUMBERS]
)
def test_a_number_of_the_command_line_is_taken_or_refused_in_one_line(path, option, kind, capfd):
    context = click.Context(COMMANDS[path], info_name=path[-1])
    parameter = next(each for each in COMMANDS[path].params if option in each.opts)
    for bound in (kind.bounds.least, kind.bounds.most):
        assert parameter.type.convert(str(bound), parameter, context) == bound
    beyond = [kind.bounds.least - 1, kind.bounds.most * 2 + 1, "nan", "inf", "-inf", "1e400", "9" * 5000, "abc"]
    for value in [*beyond, "", "0x10", "\udce9", "x" * 100_000, *(["0.5"] if kind.bounds.is_whole else [])]:
        assert main([*path, f"{option}={value}"]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert len(line) < LONGEST_LINE
        assert f"must be {kind.bounds}" in line


def test_whole_numbers_may_be_written_as_floats(here):
    config = config_file.parse(BASE, "c.yaml", here, ["training.max_steps=1e4", "model.d_ff=512.0"])
    assert (config.training.max_steps, config.model.d_ff) == (10_000, 512)
    assert type(config.training.max_steps) is int
    assert math.isclose(config_file.parse(BASE, "c.yaml", here, ["training.learning_rate=1"]).training.learning_rate, 1)


@pytest.mark.parametrize("text", ["😀/a", "é\u2028\x85\ufeff", "\\ud83d\\ude00", "a\\😀\"'", "\ud83d", "日本"])
def test_a_value_is_read_as_it_was_written(text):
    for value in (text, [text], {"key": text}):
        assert read_yaml(as_yaml(value))[0] == value
