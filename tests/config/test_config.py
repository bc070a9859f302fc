"""Configurations: what they need, how values and overrides are read, and the one line for each mistake."""

import math
import os
import re
from pathlib import Path

import pytest

from seq2seq.config import file as config_file
from seq2seq.config.schema import PRESETS, Config, ModelConfig
from seq2seq.config.values import PUBLIC_CORPORA
from seq2seq.data.fetch import CORPORA
from seq2seq.errors import ConfigError
from seq2seq.tasks.run_folder import changes, may_change

MINIMAL = """
source_language: en
target_language: de
data:
  train: {source: train.en, target: train.de}
  valid: {source: valid.en, target: valid.de}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        (tmp_path / name).write_text("a line\n")
    return tmp_path


def parse(folder: Path, text: str = MINIMAL, *overrides: str) -> Config:
    return config_file.parse(text, origin="test.yaml", folder=folder, overrides=overrides)


def problems(folder: Path, text: str = MINIMAL, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(folder, text, *overrides)
    lines = str(caught.value).splitlines()
    assert all(line.startswith("test.yaml: ") for line in lines)
    return str(caught.value)


def test_data_and_languages_are_all_a_config_needs(folder):
    config = parse(folder)
    assert config.task == "translation"
    assert config.data.train[0].source == (folder / "train.en").resolve()


def test_dump_then_parse_is_the_identity(folder):
    config = parse(folder, MINIMAL, "model.preset=base", "training.clip_norm=null", "tokenizer.sampling=0.25")
    assert config_file.parse(config_file.dump(config)) == config
    assert config.training.clip_norm is None


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("source_language=no", "source_language", "no"),
        ("training.learning_rate=1e-4", "training.learning_rate", 1e-4),
        ("training.learning_rate=2", "training.learning_rate", 2.0),
        ("training.max_minutes=null", "training.max_minutes", None),
        ("model.tied_embeddings=decoder", "model.tied_embeddings", "decoder"),
        ("evaluation.metrics=[bleu]", "evaluation.metrics", ("bleu",)),
    ],
)
def test_yaml_1_2_values_keep_their_meaning(folder, override, path, value):
    setting = parse(folder, MINIMAL, override)
    for name in path.split("."):
        setting = getattr(setting, name)
    assert setting == value
    assert type(setting) is type(value)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.warmup_step=3", "training.warmup_step: unknown key; did you mean 'warmup_steps'?"),
        ("trainnig.max_steps=3", "trainnig: unknown key; did you mean 'training'?"),
        ("training.max_steps=ten", "training.max_steps: must be a whole number from 1 to 1,000,000,000, not 'ten'"),
        ("training.max_steps=1.5", "training.max_steps: must be a whole number from 1 to 1,000,000,000, not 1.5"),
        ("training.max_steps=true", "training.max_steps: must be a whole number from 1 to 1,000,000,000, not true"),
        ("search.beam_size=0", "search.beam_size: must be a whole number from 1 to 1,000, not 0"),
        ("search.n_best=9", "search: n_best 9 is more than beam_size 5"),
        ("model.d_model=250", "model: d_model 250 is not a multiple of num_heads 4; change one or set head_dim"),
        (
            "model.activation=rel",
            "model.activation: 'rel' is not one of relu, gelu, silu, swiglu; did you mean 'relu'?",
        ),
        ("model.preset=smal", "model.preset: 'smal' is not one of"),
        ("model.dropout=1.0", "model.dropout: must be a number from 0 to 0.999999, not 1.0"),
        ("tokenizer.shared=false", "model.tied_embeddings: all needs tokenizer.shared: true"),
        ("training.best_metric=accuracy", "training.best_metric: 'accuracy' is not a metric of translation"),
        ("training.average=last", "training.average: unknown key; s2s average writes the mean of checkpoints"),
        ("data.train.source=trian.en", "data.train.source: file trian.en not found"),
        ("data.train.taget=x", "data.train.taget: unknown key; did you mean 'target'?"),
        (
            "data.train.tsv=train.en",
            "data.train: needs exactly one of source + target, tsv, jsonl, tmx, hub; source and tsv given",
        ),
        ("data.valid.target=null", "data.valid: has source but no target"),
    ],
)
def test_each_mistake_names_its_key_and_the_remedy(folder, override, expected):
    assert expected in problems(folder, MINIMAL, override)


def test_r_drop_without_dropout_is_refused(folder):
    assert parse(folder, MINIMAL, "training.r_drop=1", "model.word_dropout=0.1", "model.dropout=0")
    assert "training.r_drop: compares two draws" in problems(folder, MINIMAL, "training.r_drop=1", "model.dropout=0")


def test_all_problems_are_told_at_once(folder):
    text = problems(
        folder,
        MINIMAL,
        "data.train.source=gone.en",
        "model.d_model=250",
        "search.beam_size=0",
        "sed=1",
        "training.max_steps=x",
    )
    assert len(text.splitlines()) == 5


def test_cross_problems_and_missing_files_are_told_together(folder):
    text = problems(folder, MINIMAL, "data.valid.source=gone.en", "source_language=null", "training.best_metric=f1")
    assert len(text.splitlines()) == 3


def test_duplicate_keys_are_refused_with_their_lines(folder):
    text = problems(folder, MINIMAL + "training:\n  max_steps: 1\n  max_steps: 2\nseed: 1\nseed: 2\n")
    assert "training.max_steps: given twice, on lines 8 and 9" in text
    assert "seed: given twice, on lines 10 and 11" in text


def test_a_valid_set_without_lines_is_found_before_anything_heavy(folder):
    (folder / "valid.de").write_text("")
    assert "data.valid.target" in problems(folder)
    assert "has no lines" in problems(folder)


@pytest.mark.parametrize(
    "text", ["", "- a\n- b", "just words", "a: [1", "\tx: 1", "a: &x *x", "!!python/object:os.system x"]
)
def test_what_is_no_mapping_gets_one_line(folder, text):
    assert len(problems(folder, text).splitlines()) <= 2


@pytest.mark.parametrize(
    "override", ["nonsense", "=1", "  =1", ".seed=1", "training..x=1", "training=3", "training.max_steps.x=1"]
)
def test_malformed_overrides(folder, override):
    problems(folder, MINIMAL, override)


def test_paths_are_looked_up_in_the_documented_order(folder, tmp_path_factory, monkeypatch):
    here, named = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("named")
    monkeypatch.chdir(here)
    monkeypatch.setenv("S2S_DATA", str(named))
    assert parse(folder).data.train[0].source.parent == folder.resolve()
    for found in (named, here):
        for side in ("en", "de"):
            (found / f"train.{side}").write_text("x\n")
        assert parse(folder).data.train[0].source.parent == found.resolve()


def test_a_missing_file_says_where_it_was_looked_for(folder, monkeypatch):
    monkeypatch.setenv("S2S_DATA", str(folder / "elsewhere"))
    text = problems(folder, MINIMAL, "data.train.source=train.em")
    assert str(folder) in text
    assert "elsewhere" in text
    assert "did you mean 'train.en'?" in text


def test_a_missing_public_corpus_names_the_command_that_brings_it(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert tuple(CORPORA) == PUBLIC_CORPORA
    for name in CORPORA:
        assert f"; get it with s2s fetch {name}" in problems(folder, MINIMAL, f"data.train.source={name}/train.en")
    assert "s2s fetch" not in problems(folder, MINIMAL, "data.train.source=mine/train.en")
    (folder / "sst2").mkdir()
    (folder / "sst2/dev.tsv").write_text("x\n")
    other = problems(folder, MINIMAL, "data.train.source=sst2/def.tsv")
    assert "s2s fetch" not in other
    assert "did you mean 'dev.tsv'?" in other


def test_a_missing_validation_set_says_how_to_make_one(folder):
    without = "\n".join(line for line in MINIMAL.splitlines() if "valid" not in line)
    assert "data.valid: missing; take lines out of train" in problems(folder, without)


def test_a_preset_fills_and_keys_beside_it_win():
    assert ModelConfig(preset="base").d_model == 512
    assert ModelConfig(preset="base", d_ff=100).d_ff == 100
    assert ModelConfig(preset="base", d_ff=100).num_encoder_layers == 6
    assert {ModelConfig(preset=name).num_encoder_layers for name in PRESETS} == {2, 3, 6}


def test_changes_lists_every_difference_and_knows_which_may_be(folder):
    old = parse(folder)
    new = parse(folder, MINIMAL, "training.max_steps=7", "model.dropout=0.3", "search.beam_size=1")
    found = {key: (before, after) for key, before, after in changes(old, new)}
    assert found == {"training.max_steps": (None, 7), "model.dropout": (0.1, 0.3), "search.beam_size": (5, 1)}
    assert [key for key in found if not may_change(key)] == ["model.dropout"]


def test_sources_mix_with_weights(folder):
    text = MINIMAL.replace(
        "train: {source: train.en, target: train.de}",
        "train:\n    - {source: train.en, target: train.de, weight: 2.5}\n    - {jsonl: more.jsonl}",
    )
    assert "data.train.1.jsonl: file more.jsonl not found" in problems(folder, text)
    (folder / "more.jsonl").write_text("{}\n")
    assert [source.weight for source in parse(folder, text).data.train] == [2.5, 1.0]


def test_numbers_that_are_not_finite_are_refused(folder):
    for value in (".inf", ".nan"):
        assert "training.learning_rate" in problems(folder, MINIMAL, f"training.learning_rate={value}")
    assert math.isfinite(parse(folder).training.learning_rate)


def test_a_wrong_key_does_not_hide_what_is_wrong_with_its_section(folder):
    text = problems(folder, MINIMAL, "model.num_head=4", "model.d_model=250", "search.bem_size=3", "search.n_best=9")
    assert len(text.splitlines()) == 4
    assert "d_model 250 is not a multiple of num_heads 4" in text
    assert "n_best 9 is more than beam_size 5" in text


def test_a_section_with_a_wrong_value_is_not_judged_by_its_default(folder):
    overrides = ("data.train.source=3", "model.num_heads=x", "model.d_model=250", "search.n_best=9")
    assert len(problems(folder, MINIMAL, *overrides).splitlines()) == 3


def test_a_wrong_entry_of_a_list_hides_nothing_else(folder):
    overrides = ("evaluation.metrics=[bleu, foo]", "training.r_drop=1", "model.dropout=0")
    text = problems(folder, MINIMAL, *overrides)
    assert len(text.splitlines()) == 2
    assert "'foo' is not one of" in text
    assert "training.r_drop: compares two draws of dropout" in text


def test_one_source_in_a_list_is_that_source(folder):
    listed = parse(folder, MINIMAL, "data.train=[{source: train.en, target: train.de}]")
    assert listed == parse(folder)
    assert changes(listed, parse(folder, MINIMAL, "data.train.weight=2"))[0][0] == "data.train.weight"


def test_a_required_key_that_is_wrong_is_told_once(folder):
    assert len(problems(folder, MINIMAL, "data.train=5").splitlines()) == 1
    assert len(problems(folder, MINIMAL, "data.valid=null", "seed=x").splitlines()) == 2


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.train={source: train.en}", "data.train: has source but no target"),
        ("data.train=3", "data.train: must be a source, such as {tsv: FILE}, or a list, not 3"),
        ("data.train=[]", "data.train: is empty; name at least one"),
        ("data.train=[3]", "data.train.0: must be a source, such as {tsv: FILE}, not 3"),
        ("data.train=[[1]]", "data.train.0: must be a source, such as {tsv: FILE}, not [1]"),
        ("data.valid=[1]", "data.valid: must be a source, such as {tsv: FILE}, not [1]"),
        ("model=3", "model: must be keys with values, such as {key: value}, not 3"),
    ],
)
def test_what_could_be_one_source_or_several_is_told_once(folder, override, expected):
    told = problems(folder, MINIMAL, override)
    assert expected in told
    assert len(told.splitlines()) == 1


def test_what_exists_and_is_something_else_is_named(folder):
    (folder / "other").mkdir()
    for wrong, kind in (("other", "folder"), ("/dev/null", "device")):
        told = problems(folder, MINIMAL, f"data.valid.source={wrong}")
        assert told.endswith(f"data.valid.source: {wrong} is a {kind}; name a file")


@pytest.mark.parametrize("value", ["5", "[en]"])
def test_a_wrong_language_is_not_told_to_be_missing(folder, value):
    assert "missing" not in problems(folder, MINIMAL, f"source_language={value}")


def test_a_folder_is_not_suggested_for_a_file(folder):
    (folder / "valid.enn").mkdir()
    assert problems(folder, MINIMAL, "data.valid.source=valid.enm").endswith("; did you mean 'valid.en'?")


def test_a_byte_order_mark_is_no_part_of_a_config(folder):
    path = folder / "test.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert config_file.load(path) == parse(folder)
    path.write_bytes(MINIMAL.encode("utf-16"))
    with pytest.raises(ConfigError, match="not UTF-8 text; save it as UTF-8"):
        config_file.load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data:\n    train: 1\n  valid: 2\n", "line 3 is indented differently from line 2"),
        ("data:\n  train: 1\n    valid: 2\n", "line 3 is indented differently from line 2"),
        ("data:\n\ttrain: 1\n", "line 2: a tab; YAML indents with spaces"),
        ("data:\n  train:\n    source:a\n    target: b\n", "line 3: a space after the colon is missing"),
        (
            "data: {train: {source:a, target: b}}\n",
            "data.train.source:a: unknown key; a space after the colon is missing",
        ),
        ("seed: 'x\ntask: translation\n", "line 1: a quotation mark is never closed"),
        ("seed: [1, 2\n", "line 1: a comma or the closing ']' is missing"),
        ("seed: *x\n", "line 1: * begins the name of an alias"),
        ("seed: a: b\n", "line 1: a second colon, text after a complete value"),
        ("seed: @x\n", "line 1: a value cannot begin with '@'; put it in quotes"),
        ("\r%", "line 2: "),
        ("seed: 1\n---\nseed: 2\n", "line 2: a second document begins; keep one"),
        ("seed: \x07\n", "line 1: a control character (code 7); remove it"),
        ("data: &a {train: *a}\n", "line 1: a value that contains itself"),
        (
            "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)),
            "aliases make",
        ),
        ("a: " + "[" * 3000, "nested too deeply"),
        ("a: " + "{a: " * 3000, "nested too deeply"),
    ],
)
def test_what_is_wrong_with_yaml_is_told_in_words(folder, text, words):
    assert words in problems(folder, text)


def test_sections_and_sets_of_which_only_the_name_is_written(folder):
    config = parse(folder, MINIMAL + "training:\nmodel:\n", "data.test=", "data.label_names=")
    assert config == parse(folder)
    assert config.data.test == {}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("dropout=0.2", "dropout: unknown key; did you mean 'model.dropout' or 'classifier.dropout'?"),
        ("training.beam_size=2", "training.beam_size: unknown key; did you mean 'search.beam_size'?"),
        ("training.shard=1", "training.shard: must be true or false, not 1"),
        ("training.compile=yes", "training.compile: 'yes' is not one of auto, true, false"),
        ("source_language=5", "source_language: must be text, not 5; put it in quotes"),
        ("training.betas=[0.9]", "training.betas: has too few values"),
        ("data.test={valid: {tsv: train.en}}", "data.test.valid: a test set cannot be named valid"),
        ("data.test={news/2016: {tsv: train.en}}", "data.test.news/2016: the name of a test set is"),
        ("data.label_names={0: a, 1: a}", "data.label_names: '0' and '1' are both called 'a'; rename one"),
        ('data.label_names={0: "a\u2028b"}', "data.label_names.0: 'a\\u2028b' holds a control character"),
        ('data.label_names={0: "a\\tb"}', "data.label_names.0: 'a\\tb' holds a control character"),
        ("data.train.source=~nosuch/x", "data.train.source: '~nosuch/x': there is no such user"),
        ("data.cache_dir=~nosuch/x", "data.cache_dir: '~nosuch/x': there is no such user"),
        ('training.init_from="a\\0b"', "training.init_from: 'a\\x00b' holds a control character, or is not UTF-8"),
        ("data.train.source=caf\udce9", "data.train.source: 'caf\\udce9' holds a control character, or is not UTF-8"),
        (f"task={'x' * 10**6}", "task: 'xxxx"),
    ],
)
def test_values_are_told_in_words(folder, override, words):
    told = problems(folder, MINIMAL, override)
    assert words in told
    assert len(told) < 400


def test_a_users_folder_is_found(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    config = parse(folder, MINIMAL, "data.cache_dir=~/c", "data.train.source=~/train.en")
    assert config.data.cache_dir == folder / "c"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large", "misspelt"])
def test_a_config_that_is_no_small_file_is_told_at_once(folder, kind):
    (folder / "my.yaml").write_text(MINIMAL)
    path = {"device": Path("/dev/zero"), "folder": folder, "misspelt": folder / "my.yml"}.get(kind, folder / "c.yaml")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        path.write_bytes(b"# " * 2**20)
    words = {"folder": "directory", "large": "more than", "misspelt": "did you mean 'my.yaml'?"}
    with pytest.raises(ConfigError, match=re.escape(words.get(kind, "not a regular file"))):
        config_file.load(path)


def test_many_problems_are_counted_rather_than_listed(folder):
    assert len(problems(folder, MINIMAL + "".join(f"key{i}: 1\n" for i in range(1000))).splitlines()) == 21


@pytest.mark.parametrize("preset", [None, "scratch", "finetune"])
def test_a_null_preset_is_the_default_one(folder, preset):
    overrides = [
        f"training.init_from={folder}",
        "training.preset=null" if preset is None else f"training.preset={preset}",
    ]
    config = parse(folder, MINIMAL, *overrides)
    assert config.training.preset == (preset or "finetune")
    assert config_file.parse(config_file.dump(config)) == config
