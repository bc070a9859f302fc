"""Fine-tuning of OPUS-MT models of several targets, whose sources begin with a tag that users may type."""

import pytest
from support.foreign_models import make_marian
from support.multilingual_models import PAIRS, make_multilingual
from support.our_models import make_many

from seq2seq.config.corpora import DataConfig, SourceConfig
from seq2seq.config.description import ModelDescription
from seq2seq.config.directions import LanguagesConfig
from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.errors import ConfigError
from seq2seq.store.direction import choices
from seq2seq.store.model_folder import load_model, save_model
from seq2seq.tasks.inputs import Inputs
from seq2seq.text.direction import Direction
from seq2seq.text.tagged_tokenizer import Languages, tagged_pair
from seq2seq.workflows.convert import export_marian


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A folder with an OPUS-MT model of several targets, and a corpus."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("several")
    make_marian(folder / "opus", languages=(">>deu<<", ">>nld<<"))
    for side in ("en", "de"):
        (folder / f"a.{side}").write_text("the house\nthe old house\n")
    return folder


def opened(folder, **changes) -> Inputs:
    corpus = SourceConfig(source=folder / "a.en", target=folder / "a.de")
    training = TrainingConfig(init_from=str(folder / "opus"))
    data = DataConfig(train=corpus, valid=corpus)
    config = Config(**{"source_language": "en", "target_language": "de", "data": data, "training": training} | changes)
    return Inputs.open(config, folder / "cache")


def test_a_model_of_several_targets_is_tuned_and_used_with_the_tag_of_one(several, tmp_path):
    """Training, `translate`, `--to` and the server read the same ids."""
    inputs = opened(several)
    tokenizers = inputs.initial.tokenizers
    assert tokenizers.source.tag == ">>deu<<"
    description = ModelDescription.of(inputs.config).model_copy(update=inputs.tagged_languages)
    save_model(tmp_path / "best", inputs.initial.weights, description, tokenizers)
    tuned = load_model(tmp_path / "best")
    assert choices(tuned.description, tuned.tokenizers) == {}
    text, expected = "the house", tokenizers.source.read("the house")
    for direction in (None, Direction(), Direction("en", "de"), Direction(target="deu")):
        assert tuned.directed(direction).tokenizers.source.read(text) == expected
    assert tuned.directed().tokenizers.source.read(f">>nld<< {text}") == tokenizers.source.read(f">>nld<< {text}")
    assert tuned.directed(Direction(target="nld")).tokenizers.source.tag == ">>nld<<"
    published = load_model(several / "opus")
    assert published.directed(None).tokenizers.source.tag is None
    assert set(choices(published.description, published.tokenizers)) == {"target"}


def test_an_export_tells_which_tag_texts_need(several, tmp_path, caplog):
    inputs = opened(several)
    for name, changes in (("tuned", inputs.tagged_languages), ("published", {"target_language": "gmw"})):
        description = ModelDescription.of(inputs.config).model_copy(update=changes)
        save_model(tmp_path / name, inputs.initial.weights, description, inputs.initial.tokenizers)
        caplog.clear()
        export_marian(tmp_path / name, tmp_path / f"{name}-marian")
        card = (tmp_path / f"{name}-marian" / "README.md").read_text()
        assert ("Begin each text with `>>deu<<`" in card) is (name == "tuned")
        assert ("begin each text with >>deu<<" in caplog.text) is (name == "tuned")


@pytest.mark.parametrize("family", ["m2m100", "nllb"])
def test_a_run_of_one_direction_stores_the_names_of_its_tags(family, several, tmp_path):
    make_multilingual(tmp_path / "many", family)
    changes = {"source_language": "English", "target_language": "ger"}
    inputs = opened(several, training=TrainingConfig(init_from=str(tmp_path / "many")), **changes)
    assert inputs.tagged_languages == dict(zip(changes, PAIRS[family], strict=True))


def test_a_model_of_many_keeps_the_tags_that_it_has(several, tmp_path):
    """Earlier versions gave Cantonese the tag of Chinese."""
    made = load_model(make_many(tmp_path / "many", ["zh", "de"], ["de", "zh"], "source"))
    pieces = {"yue": ">>zho<<", "de": ">>deu<<"}
    model = made.tokenizers.source.model_bytes
    tokenizers = tagged_pair(model, model, Languages(pieces, ("yue", "de"), ("de", "yue"), "source"))
    save_model(tmp_path / "old", made.weights, made.description, tokenizers)
    sides = {"source": several / "a.en", "target": several / "a.de", "from": "yue", "to": "de"}
    corpus = SourceConfig.model_validate(sides)
    inputs = opened(
        several,
        source_language=None,
        target_language=None,
        languages=LanguagesConfig(source=["yue", "de"], target=["de", "yue"]),
        data=DataConfig(train=corpus, valid=corpus),
        training=TrainingConfig(init_from=str(tmp_path / "old")),
    )
    assert inputs.initial.tokenizers.source.tags["yue"] == ">>zho<<"


def test_a_model_without_tags_is_not_tuned_in_many_directions(several):
    languages = LanguagesConfig(source=["en"], target=["deu", "nld"])
    corpus = SourceConfig.model_validate({"source": several / "a.en", "target": several / "a.de", "to": "deu"})
    with pytest.raises(ConfigError, match=r"languages: the model of training.init_from has no tags for them"):
        opened(several, source_language=None, target_language=None, languages=languages,
               data=DataConfig(train=corpus, valid=corpus))  # fmt: skip
