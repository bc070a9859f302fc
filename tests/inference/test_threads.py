"""Several threads use one object of the library at the same time, and each gets what it would get alone."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.number_words import sentences
from support.our_models import make_classifier, make_ours

import seq2seq
from seq2seq.config.schema import SearchConfig

THREADS, CALLS = 4, 12
LINES = [" ".join(row) for row in sentences(6, 1)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    make_ours(folder / "model", ending=1.0, search=SearchConfig(beam_size=2, max_length_ratio=1.5))
    make_classifier(folder / "classifier", ["good", "bad"])
    (folder / "terms.tsv").write_text("two\tKatzen\nthree\tHunde\n")
    return folder


def aligner(models):
    return seq2seq.Aligner.load(models / "model", threads=1)


def pipeline(models, **options):
    return seq2seq.Pipeline.load(models / "model", with_aligner=True, threads=1, **options)


def pairs(lines):
    return list(zip(lines, reversed(lines), strict=True))


def documents(form, pattern):
    def translate(found, lines):
        return found.translate([pattern.format(line) for line in lines], form=form)

    return lambda models: partial(translate, pipeline(models))


def scored(scorer, lines):
    return scorer.score(pairs(lines))


def aligned(aligner, lines):
    return aligner.align(pairs(lines))


def aligned_or_scored(models):
    """The scores of an aligner while other threads align with it."""
    found = aligner(models)
    return lambda lines: (scored if LINES.index(lines[0]) % 2 else aligned)(found, lines)


USES = {
    "Translator, CTranslate2": lambda m: seq2seq.Translator.load(m / "model", threads=1).translate,
    "Translator, PyTorch": lambda m: seq2seq.Translator.load(m / "model", engine="torch", threads=1).translate,
    "Translator, samples": lambda m: seq2seq.Translator.load(m / "model", sample=True, threads=1).translate,
    "Scorer": lambda m: partial(scored, seq2seq.Scorer.load(m / "model", threads=1)),
    "Aligner": lambda m: partial(aligned, aligner(m)),
    "Aligner, which also scores": aligned_or_scored,
    "Classifier": lambda m: seq2seq.Classifier.load(m / "classifier", threads=1).classify,
    "Pipeline, details": lambda m: partial(pipeline(m).translate, details=["alignment"]),
    "Pipeline, glossary": lambda m: pipeline(m, glossary=m / "terms.tsv").translate,
    "Pipeline, HTML": documents("html", "<p>one <b>two</b> three</p><p>{}</p>"),
    "Pipeline, XML": documents("xml", "<text><b>one</b> two {}</text>"),
    "Pipeline, Markdown": documents("markdown", "# One **two**\n\n{} `code`\n"),
    "Pipeline, plain": documents("plain", "one two\n\n{}\n"),
}


QUICK = {"Translator, CTranslate2", "Scorer", "Aligner, which also scores", "Classifier", "Pipeline, HTML"}
NAMES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in USES]


@pytest.mark.parametrize("name", NAMES)
def test_threads_that_share_an_object_get_the_results_of_one_thread(models, name):
    use = USES[name](models)
    inputs = [LINES[index:] + LINES[:index] for index in range(len(LINES))]
    expected = [repr(use(lines)) for lines in inputs]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(lambda call: repr(use(inputs[call % len(inputs)])), range(CALLS)))
    finally:
        sys.setswitchinterval(before)
    assert found == [expected[call % len(inputs)] for call in range(CALLS)]
