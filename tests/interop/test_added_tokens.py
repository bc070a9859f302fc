"""Tokens that were added to a folder of transformers: a tag is read as there, any other is refused by name."""

import json

import pytest
from support.foreign_models import LANGUAGES, make_marian
from support.multilingual_models import make_multilingual

from seq2seq.errors import ModelError
from seq2seq.store.model_folder import load_model
from seq2seq.text.direction import Direction

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def with_tokens(folder, tokens, family="marian"):
    """A folder whose owner added tokens, as the documentation of transformers shows it; their tokenizer."""
    if family == "marian":
        make_marian(folder, languages=LANGUAGES)
    else:
        make_multilingual(folder, family)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer.add_tokens(tokens)
    model.resize_token_embeddings(max(model.config.vocab_size, max(tokenizer.get_vocab().values()) + 1))
    for written in (tokenizer, model):
        written.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize("family", ["marian", "m2m100", "nllb", "mbart50", "mbart25"])
def test_a_token_that_is_no_tag_is_refused_by_name(family, tmp_path):
    with_tokens(tmp_path, ["<ent>", "▁the"], family)
    with pytest.raises(ModelError, match=r"added tokens: '<ent>', '▁the' \(possible: tags ") as refused:
        load_model(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("listed", ["tokenizer_config.json", "added_tokens.json"])
def test_an_added_tag_is_a_language_of_the_model(listed, tmp_path):
    tokenizer = with_tokens(tmp_path, [">>fra<<"])
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    if listed == "added_tokens.json":
        config.pop("added_tokens_decoder", None)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        (tmp_path / listed).write_text(json.dumps(tokenizer.get_added_vocab()))
    source = load_model(tmp_path).tokenizers.source
    for line in (">>fra<< the cat", ">>fra<<the cat", ">>deu<< the cat", "the cat"):
        assert [*source.encode(line), source.eos_id] == tokenizer(line)["input_ids"]
    directed = load_model(tmp_path).directed(Direction(target="fr")).tokenizers.source
    assert directed.read("the cat") == source.read(">>fra<< the cat")


@pytest.mark.parametrize("family", ["m2m100", "nllb"])
def test_an_added_tag_comes_in_addition_to_the_usual_languages(family, tmp_path):
    """Earlier versions of transformers wrote such a folder after a language was added."""
    make_multilingual(tmp_path, family)
    usual = load_model(tmp_path).tokenizers.source
    name, tag = {"m2m100": ("quz", "__quz__"), "nllb": ("tyv_Cyrl", "tyv_Cyrl")}[family]
    free = max(usual.vocabulary[piece] for piece in usual.tags.values()) + 2
    (tmp_path / "tokenizer.json").unlink(missing_ok=True)
    named = {"m2m100": "M2M100Tokenizer", "nllb": "NllbTokenizer"}[family]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": named}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({tag: free}))
    both = load_model(tmp_path).tokenizers.source
    assert {**usual.tags, name: tag} == both.tags
    assert both.vocabulary[tag] == free
    assert all(both.vocabulary[piece] == usual.vocabulary[piece] for piece in usual.tags.values())


def test_the_lists_count_in_the_order_of_transformers(tmp_path):
    """The list of tokenizer_config.json comes first; a tokenizer.json beside it has no effect on Marian."""
    tokenizer = with_tokens(tmp_path, [">>fra<<"])
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": 0, "content": "</s>"}]}))
    source = load_model(tmp_path).tokenizers.source
    assert [*source.encode(">>fra<< the cat"), source.eos_id] == tokenizer(">>fra<< the cat")["input_ids"]
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config.pop("added_tokens_decoder", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<ent>": 9}))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": 8, "content": "<one>"}]}))
    with pytest.raises(ModelError, match="added tokens: '<ent>', '<one>' "):
        load_model(tmp_path)


@pytest.mark.parametrize("id_", [5, 10**6, -1])
def test_an_id_that_is_not_free_is_named_with_its_token(id_, tmp_path):
    make_marian(tmp_path, languages=LANGUAGES)
    (tmp_path / "added_tokens.json").write_text(json.dumps({">>fra<<": id_}))
    with pytest.raises(ModelError, match=f"added token '>>fra<<': its id {id_} is not free"):
        load_model(tmp_path)


def test_a_damaged_list_is_one_line(tmp_path):
    make_marian(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": 3}')
    with pytest.raises(ModelError, match=r"tokenizer\.json: added_tokens is not a list; copy the folder again"):
        load_model(tmp_path)
