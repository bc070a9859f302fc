"""Arguments of the library: those of a kind are treated alike, in any collection, and a mistake is refused by name."""

import copy
import json
import multiprocessing
import pickle

import numpy as np
import pytest
import torch
from support.number_words import sentences
from support.our_models import make_classifier, make_many, make_ours

import seq2seq
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import DataError, UserError

LINES = [" ".join(row) for row in sentences(4, 1)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    make_ours(folder / "model", ending=1.0, search=SearchConfig(beam_size=2, max_length_ratio=1.5))
    make_classifier(folder / "classifier", ["good", "bad"])
    (folder / "terms.tsv").write_text("two\tkatze\nSix\tHunde\n-\tzwei\n")
    return folder


@pytest.fixture(scope="module")
def pipeline(models):
    return seq2seq.Pipeline.load(models / "model", with_aligner=True)


# -- search settings -------------------------------------------------------------------------------

OTHERS = {
    "sample": {"sample": True, "temperature": 3.0, "seed": 1},
    "min_length": {"min_length": 5},
    "no_repeat_ngram": {"no_repeat_ngram": 2},
    "record": {"record": True},
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_search_setting_that_the_engine_lacks_is_refused(models, name):
    translator = seq2seq.Translator.load(models / "model")
    assert translator.engine_note.startswith("CTranslate2")
    with pytest.raises(UserError, match=rf"^search\.{name}: .*give it to load"):
        translator.with_search(**OTHERS[name])


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "record"])
def test_a_search_setting_of_pytorch_gives_what_load_gives(models, name):
    changed = seq2seq.Translator.load(models / "model", engine="torch").with_search(**OTHERS[name])
    loaded = seq2seq.Translator.load(models / "model", **OTHERS[name])
    assert changed.translate(LINES) == changed.translate(LINES) == loaded.translate(LINES)


def test_draws_of_ctranslate2_take_no_seed(models):
    drawing = seq2seq.Translator.load(models / "model", engine="ctranslate2", sample=True)
    assert len(drawing.with_search(temperature=0.5).translate(LINES)) == len(LINES)
    with pytest.raises(UserError, match=r"^search\.seed: "):
        drawing.with_search(seed=3)


# -- collections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_batches_and_prefixes_of_a_stream_may_be_any_collection_in_order(pipeline, kind):
    prefixes = ["eins", "", "zwei", "drei"]
    expected = [pipeline.translate(LINES[:2], prefixes[:2]), pipeline.translate(LINES[2:], prefixes[2:], first_line=2)]
    batches = kind([kind(LINES[:2]), kind(LINES[2:])])
    assert list(pipeline.translate_stream(batches, prefixes=kind(prefixes))) == expected


@pytest.mark.parametrize("count", [3, 5])
def test_another_number_of_prefixes_than_lines_of_a_stream_is_refused(pipeline, count):
    with pytest.raises(DataError, match="prefixes: "):
        list(pipeline.translate_stream([LINES[:2], LINES[2:]], prefixes=["eins"] * count))


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys])
def test_collections_without_an_order_are_refused(models, pipeline, kind):
    texts, pairs = kind(LINES), kind(zip(LINES, LINES, strict=True))
    scorer = seq2seq.Scorer.load(models / "model")
    for use, wrong, noun in (
        (pipeline.translator.translate, texts, "texts"),
        (pipeline.translate, texts, "texts"),
        (lambda given: pipeline.translate(given, form="html"), texts, "texts"),
        (lambda given: list(pipeline.translate_stream([given])), texts, "texts"),
        (lambda given: pipeline.translate(LINES, given), texts, "texts"),
        (lambda given: list(pipeline.translate_stream([LINES], prefixes=given)), texts, "texts"),
        (lambda given: seq2seq.score_texts(given, LINES), texts, "texts"),
        (lambda given: seq2seq.score_texts(LINES, given), texts, "texts"),
        (scorer.score, pairs, "pairs"),
        (pipeline.aligner.align, pairs, "pairs"),
        (scorer.score, [kind(["two", "zwei"])], "pairs"),
    ):
        with pytest.raises(TypeError, match=f"takes a list of {noun}"):
            use(wrong)


# -- names -----------------------------------------------------------------------------------------


def test_one_name_is_taken_as_a_list_of_one_is(pipeline):
    (answer,) = pipeline.translate(LINES[:1], details="alignment")
    assert repr(answer) == repr(pipeline.translate(LINES[:1], details=["alignment"])[0])
    assert answer.details
    assert answer.as_json("alignment") == answer.as_json(["alignment"])
    one, listed = (seq2seq.score_texts(LINES, LINES, metrics) for metrics in ("bleu", iter(["bleu"])))
    assert [str(score.result) for score in one] == [str(score.result) for score in listed]
    assert len(one) == 1


@pytest.mark.parametrize("wrong", ["aligment", "a", ["alignment", "aligment"], [3], [None], None])
def test_an_unknown_name_is_refused_with_the_known_ones(pipeline, wrong):
    (answer,) = pipeline.translate(LINES[:1])
    for use, known in (
        (lambda: pipeline.translate(LINES, details=wrong), "details .*: not one of alignment, words, confidence"),
        (lambda: answer.as_json(wrong), "kinds .*: not one of alignment, words, confidence, sentences, terms"),
        (lambda: seq2seq.score_texts(LINES, LINES, wrong), r"metric .*: not one of bleu, chrf, chrf\+\+, ter"),
    ):
        with pytest.raises(UserError, match=known):
            use()


@pytest.mark.parametrize("form", ["htm", None, 3])
def test_an_unknown_format_is_refused_with_the_known_ones_also_without_an_aligner(models, form):
    with pytest.raises(UserError, match=r"format .*: not one of html, xml, markdown, plain"):
        seq2seq.Pipeline.load(models / "model").translate(LINES, form=form)


def test_values_that_were_not_computed_are_null_in_json(pipeline):
    (answer,) = pipeline.translate(LINES[:1], ["eins zwei"], details=["alignment"])
    words = answer.as_json(["words"])["details"][0]["words"]
    assert [word["probability"] for word in words] == [None] * len(words) != []
    for found in (answer, *pipeline.translate(["<p>one <b>two</b></p>"], form="html")):
        json.dumps(found.as_json(["words", "confidence", "terms"]), allow_nan=False)


# -- glossaries ------------------------------------------------------------------------------------


def test_a_glossary_enforces_what_its_file_does(models):
    """The model translates into German, in which terms are found in compounds."""
    path = models / "terms.tsv"
    given = [path, str(path), seq2seq.Glossary.read(path)]
    of_path, *others = (seq2seq.Pipeline.load(models / "model", glossary=one) for one in given)
    text = "Six two one"
    for other in others:
        assert vars(other.glossary)["target_language"] == "de"
        assert other.glossary.matches(text) == of_path.glossary.matches(text) != []
        assert other.translate([*LINES, text]) == of_path.translate([*LINES, text])
    french = seq2seq.Pipeline.load(models / "model", glossary=seq2seq.Glossary.read(path, "fr")).glossary
    assert (french.source_language, french.target_language) == ("en", "fr")


@pytest.mark.parametrize("wrong", [3, {"two": "katze"}, {}, [("two", "katze")], True])
def test_a_glossary_that_is_neither_a_path_nor_a_glossary_is_refused(models, wrong):
    with pytest.raises(UserError, match=r"^glossary .*: must be a path, or a glossary"):
        seq2seq.Pipeline.load(models / "model", glossary=wrong)


# -- values of another kind ------------------------------------------------------------------------

CLASSES = {
    "Translator": seq2seq.Translator.load,
    "Pipeline": lambda *paths, **options: seq2seq.Pipeline.load(*paths, with_aligner=True, **options),
    "Scorer": seq2seq.Scorer.load,
    "Aligner": seq2seq.Aligner.load,
    "Classifier": seq2seq.Classifier.load,
}
WRONG = {
    "threads": [0, -1, 1.5, "two", True],
    "device": [0, 1.5, ["cpu"], "gpu"],
    "precision": [16, ["float32"], "fp16"],
    "batch_tokens": [0, -4, "many"],
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_refuses_values_of_another_kind_by_name(models, name):
    for option, values in WRONG.items():
        for value in values:
            with pytest.raises(UserError, match=option):
                CLASSES[name](models / ("classifier" if name == "Classifier" else "model"), **{option: value})
    for wrong in (["model"], 3, {"model": 1}):
        with pytest.raises(UserError, match=r"^model .*: must be text or a path"):
            CLASSES[name](wrong)


@pytest.mark.parametrize("name", CLASSES)
def test_devices_and_types_of_torch_and_numbers_of_numpy_are_taken(models, name):
    path = models / ("classifier" if name == "Classifier" else "model")
    options = {"device": torch.device("cpu"), "precision": torch.float32}
    CLASSES[name](path, threads=np.int64(1), batch_tokens=np.int32(512), **options)


def test_search_settings_may_be_numbers_of_numpy(models):
    given = {"beam_size": np.int64(3), "length_penalty": np.float32(0.5), "early_stopping": np.bool_(True)}
    translator = seq2seq.Translator.load(models / "model", **given)
    plain = {name: value.item() for name, value in given.items()}
    assert translator.config == seq2seq.Translator.load(models / "model").with_search(**plain).config
    assert translator.with_search(**given).translate(LINES) == translator.translate(LINES)


@pytest.mark.parametrize("wrong", [None, ("en", "de"), "en-de", 3])
def test_what_is_no_direction_is_refused(models, wrong):
    for load in (seq2seq.Translator.load, seq2seq.Scorer.load):
        with pytest.raises(UserError, match="directed takes a direction"):
            load(models / "model").directed(wrong)
    with pytest.raises(UserError, match=r"source language .*: must be text"):
        seq2seq.Direction(3, "de")


def test_a_pivot_needs_named_languages(tmp_path):
    many = make_many(tmp_path / "many", ["en", "de", "fr"], ["en", "de", "fr"], "source")
    with pytest.raises(UserError, match=r"^all_languages: not with a pivot"):
        seq2seq.Pipeline.load(many, pivot="en", all_languages=True)


def test_forbidden_words_are_those_of_each_line(pipeline):
    translate = pipeline.translator.translate
    for wrong in ([{"a": True}], [{"a": True}] * 5):
        with pytest.raises(DataError, match="give the words of each line"):
            translate(LINES, forbidden=wrong)
    for wrong in ({"a": True}, ["a"] * 4, "aaaa"):
        with pytest.raises(TypeError, match="forbidden takes a list of mappings"):
            translate(LINES, forbidden=wrong)
    assert translate(LINES, forbidden=iter([{"a": True}] * 4)) == translate(LINES, forbidden=[{"a": True}] * 4)


# -- processes -------------------------------------------------------------------------------------


def _answer_in_child(use, answers):
    try:
        use()
    except UserError as error:
        answers.put(str(error))


def test_a_translator_in_another_process_is_refused_and_does_not_hang(models):
    translator = seq2seq.Translator.load(models / "model")
    translator.translate(LINES)
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    child = fork.Process(target=_answer_in_child, args=(lambda: translator.translate(LINES), answers))
    child.start()
    try:
        assert "load it in the other process" in answers.get(timeout=60)
    finally:
        child.kill()
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(UserError, match="load it in the other process"):
            copied(translator)
