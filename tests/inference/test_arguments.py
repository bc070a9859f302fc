"""Arguments of the library: those of a kind are treated alike, in any collection, and a mistake is refused by name."""

import json

import pytest
from support.number_words import sentences
from support.our_models import make_ours

import seq2seq
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import DataError, UserError

LINES = [" ".join(row) for row in sentences(4, 1)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    make_ours(folder / "model", ending=1.0, search=SearchConfig(beam_size=2, max_length_ratio=1.5))
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


@pytest.mark.parametrize("name", OTHERS.keys() - {"record"})
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
