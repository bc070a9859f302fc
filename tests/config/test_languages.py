"""The section `languages`: names and tags, the direction of each corpus, and each mistake as one message."""

from pathlib import Path

import pytest

from seq2seq.config.directions import LanguagesConfig
from seq2seq.config.file import dump, parse
from seq2seq.errors import ConfigError
from seq2seq.languages import are_other, is_same_language, language_tag

MANY = """
languages: {source: [en, de], target: [de, en, fr]}
data:
  train:
    - {source: a.en, target: a.de, from: en, to: de, both_ways: true}
    - {source: b.en, target: b.fr, from: english, to: fra}
  valid: {en-de: {source: a, target: b}, other: {source: a, target: b, from: en, to: fr}}
  test: {x: {source: a, target: b, from: de, to: fr}}
  temperature: 3
training: {best_of: worst}
"""
SINGLE = "data: {train: {source: a, target: b}, valid: {source: a, target: b}}\n"


def problems(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, check_files=False)
    return str(caught.value)


def test_a_configuration_with_languages_is_read_as_written():
    config = parse(MANY, check_files=False)
    assert parse(dump(config), check_files=False) == config
    first, second = config.data.train
    assert config.sides_of(first) == ("en", "de")
    assert config.sides_of(second) == ("en", "fr")  # under the names of the section
    assert config.sides_of(config.data.valid_sets["en-de"], "en-de") == ("en", "de")
    assert config.sides_of(config.data.test["x"], "x") == ("de", "fr")


@pytest.mark.parametrize("side", ["{source: en, target: de}", "{source: [en], target: [de], tags: both}"])
def test_one_language_of_each_is_a_configuration_of_one_direction(side):
    one = parse(f"languages: {side}\n{SINGLE}", check_files=False)
    assert one == parse(f"source_language: en\ntarget_language: de\n{SINGLE}", check_files=False)


@pytest.mark.parametrize("name", ["en-de", "news"])
def test_one_direction_may_have_one_validation_set_with_a_name(name):
    """And the best checkpoint is that of this set."""
    config = parse(f"source_language: en\ntarget_language: de\n{SINGLE}", check_files=False)
    valid = config.data.valid.model_dump_json(exclude_unset=True, by_alias=True)
    text, sets = f"languages: {{source: [en], target: [de]}}\n{SINGLE}", f"data.valid={{{name}: {valid}}}"
    for best_of in (name, "mean", "en-de"):
        assert parse(text, overrides=[sets, f"training.best_of={best_of}"], check_files=False) == config
    for wrong, said in (("en-fr", "en-fr needs languages"), ("[x]", "must be text"), ("{a: 1}", "must be text")):
        with pytest.raises(ConfigError, match=rf"training.best_of: {said}"):
            parse(text, overrides=[f"training.best_of={wrong}"], check_files=False)


@pytest.mark.parametrize(
    ("name", "tag"),
    [("de", ">>deu<<"), ("German", ">>deu<<"), ("sr_Cyrl", ">>srp_Cyrl<<"), ("srp-latn", ">>srp_Latn<<"),
     ("pt-BR", ">>por<<"), ("cmn_Hans", ">>zho_Hans<<"), ("kab", ">>kab<<"),
     ("yue", ">>yue<<"), ("arz", ">>arz<<"), ("cmn", ">>zho<<")],
)  # fmt: skip
def test_tags_are_written_as_opus_writes_them(name, tag):
    assert language_tag(name) == tag


def test_scripts_of_one_language_are_two_languages():
    languages = LanguagesConfig(source=("en",), target=("sr_Cyrl", "sr_Latn"))
    assert languages.named("target", "srp_Latn") == "sr_Latn"
    assert languages.named("target", "sr") is None  # it is either of them


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("zh_Hant", "zh_Hans", False), ("yue", "zh", False), ("arz", "ar", False), ("srp_Latn", "srp_Cyrl", False),
        ("zh", "zho_Hans", True), ("cmn", "zh", True), ("German", "deu_Latn", True), ("pt_BR", "pt", True),
    ],
)  # fmt: skip
def test_a_language_that_is_not_the_same_is_never_taken_for_it(name, other, same):
    """Law: this holds in both orders, in `languages`, for corpora, and for models of one direction."""
    for one, two in ((name, other), (other, name)):
        assert is_same_language(one, two) is same
        assert are_other([one, "en"], [two, "en"]) is not same
        assert are_other([one, None], [two, "en"], only_recognised=True) is not same
        assert LanguagesConfig(source=("en",), target=(two,)).named("target", one) == (two if same else None)
        entry = f"data: {{train: {{source: a, target: b, to: {one}}}, valid: {{source: a, target: b}}}}\n"
        text = f"source_language: en\ntarget_language: {two}\n{entry}"
        if same:
            parse(text, check_files=False)
        else:
            assert "is not the language of this config" in problems(text)


def test_a_name_of_no_known_language_differs_only_as_such():
    assert are_other(["mul"], ["en"])
    assert not are_other(["mul"], ["en"], only_recognised=True)


def test_members_of_a_macrolanguage_stand_beside_it():
    languages = LanguagesConfig(source=("en",), target=("zh", "yue", "ar", "arz"))
    assert [languages.named("target", name) for name in ("zho", "yue", "arb", "arz")] == ["zh", "yue", "ar", "arz"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[en, de], t", "[zh, zho_Hans], t", "languages: zh and zho_Hans are two names of one tag, >>zho<<; keep one"),
        ("[en, de], t", "[zh, cmn], t", "languages: zh and cmn are two names of one tag, >>zho<<; keep one"),
        ("[en, de], t", "[en, en], t", "languages: source has a language twice"),
        ("[en, de], t", "[en, klingonisch], t",
         "languages: klingonisch is not a language; write a code such as de, deu or srp_Cyrl"),
        ("languages", "source_language: en\nlanguages", "source_language: replaced by languages; leave it out"),
        ("temperature: 3", "temperature: 0.5", "data.temperature: must be a number from 1 to 1000, not 0.5"),
        ("to: fra", "to: frr", "data.train.1: to: frr is not in languages.target (de, en, fr); did you mean 'fr'?"),
        ("from: english, ", "", "data.train.1: from is missing; name one of languages.source: en, de"),
        ("both_ways: true}", "both_ways: true}\n    - {source: c, target: d, from: en, to: fr, both_ways: true}",
         "data.train.1.both_ways: fr-en is not possible with languages; leave out both_ways, or add fr to "
         "languages.source"),
        ("from: en, to: fr}}", "from: de, to: fr}}",
         "data.valid.other: de-fr is not trained; move it to data.test, or add it to data.train"),
        ("best_of: worst", "best_of: en-dx",
         "training.best_of: en-dx is not one of mean, worst, en-de, en-fr; did you mean 'en-de'?"),
        ("from: english,", "from_column: a, ", "data.train.1: from_column and to_column belong together; give both"),
        ("from: english, to: fra", "from_column: a, to_column: b",
         "data.train.1: from_column and to_column are for jsonl without from and to"),
        ("to: fr}}\n  temp", "to: fr, both_ways: true}}\n  temp",
         "data.test.x.both_ways: only for data.train; leave it out"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_message(old, new, message):
    assert old in MANY
    assert problems(MANY.replace(old, new)).splitlines() == [f"config: {message}"]


@pytest.mark.parametrize(
    ("source", "target", "missing"),
    [
        ("[en]", "[de, en]", "de to languages.source"),
        ("[en, de]", "[de]", "en to languages.target"),
        ("[en, fr]", "[de]", "de to languages.source and en to languages.target"),
    ],
)
def test_a_reverse_direction_needs_its_languages_on_their_sides(source, target, missing):
    """The message names those that are missing, and with them the configuration has no other problem."""
    sides = "source: a, target: b, from: en, to: de"
    text = f"data: {{train: {{{sides}, both_ways: true}}, valid: {{{sides}}}}}\n"
    languages = f"languages: {{source: {source}, target: {target}}}\n"
    told = "data.train.both_ways: de-en is not possible with languages; leave out both_ways, or add"
    assert problems(languages + text) == f"config: {told} {missing}"
    assert parse("languages: {source: [en, de], target: [de, en]}\n" + text, check_files=False)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{source: a, target: b, from: en, to: fr}",
         "data.train.to: fr is not the language of this config (de); for several, set languages"),
        ("{source: a, target: b, both_ways: true}",
         "data.train: both_ways needs several directions; name the languages of both in languages"),
    ],
)  # fmt: skip
def test_keys_of_directions_need_languages(entry, message):
    text = f"source_language: en\ntarget_language: de\ndata: {{train: {entry}, valid: {{source: a, target: b}}}}\n"
    assert problems(text) == f"config: {message}"


def test_several_validation_sets_need_languages():
    text = "source_language: en\ntarget_language: de\ndata: {train: {tsv: a}, valid: {en-de: {tsv: a}}}\n"
    assert problems(text) == "config: data.valid: several sets need languages; name one set, or the languages"


def test_a_missing_file_of_a_named_set_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"data\.valid\.en-de\.source: file a not found"):
        parse(MANY, folder=tmp_path)
