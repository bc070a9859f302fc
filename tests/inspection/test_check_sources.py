"""`s2s check CONFIG` of several sources: what they share is dropped and advised on as training does."""

import json
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path

import pytest
from support.examples import write_parts
from support.many_directions import spelled
from support.number_words import sentences
from support.our_models import our_tokenizers

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.corpora import NoiseConfig, SourceConfig
from seq2seq.data.corpus import prepare_corpus
from seq2seq.inspection.check import Corpora, check_corpora
from seq2seq.tasks.inputs import Inputs

ROWS = sentences(300, 1)  # some occur several times
PAIRS = list(zip(spelled(ROWS, "en"), spelled(ROWS, "de"), strict=True))
OTHERS = [(f"{source} more", f"{target} mehr") for source, target in PAIRS]
A, B = "source: a.en, target: a.de", "source: b.en, target: b.de"
NOISE = "noise: {upper: 0.3, lost_punctuation: 0.5, typos: 0.3, copies: 0.2}"
SHARED = {
    "one": [A],
    "none": [A, B],
    "twice": [A, A],
    "half of a folder": [A, "jsonl: half"],
    "half of a folder that comes first": ["jsonl: half", A],
    "a folder with a tag": [A, "jsonl: tagged"],
    "two folders with a tag": ["jsonl: tagged", A, "jsonl: tagged", B],
    "lines that differ in white space": [A, "source: odd.en, target: odd.de"],
    "rows that differ in white space": ["jsonl: odd.jsonl", "source: odd.en, target: odd.de"],
    "a noisy copy": [A, f"{A}, {NOISE}"],
    "noisy copies with a tag": ["jsonl: tagged", f"jsonl: tagged, {NOISE}", f"jsonl: half, {NOISE}"],
}
PLAIN = "source_language: en\ntarget_language: de\n"
WHITE = " \r\t\v\f\x1c\x85\u2028\xa0\u3000"
EN_DE, DE_EN = "from: en, to: de", "from: de, to: en"
DIRECTED = {
    "twice in both ways": [f"{A}, {EN_DE}, both_ways: true", f"{A}, {EN_DE}, both_ways: true"],
    "both ways, then one": [f"{A}, {EN_DE}, both_ways: true", f"source: a.de, target: a.en, {DE_EN}", f"{A}, {EN_DE}"],
    "one, then both ways": [f"source: a.de, target: a.en, {DE_EN}", f"{A}, {EN_DE}, both_ways: true"],
    "a tag, read both ways": [f"jsonl: tagged, {EN_DE}, both_ways: true", f"{A}, {EN_DE}, both_ways: true"],
    "noise in both ways": [
        f"{A}, {EN_DE}, both_ways: true",
        f"{A}, {EN_DE}, both_ways: true, {NOISE}",
        f"source: a.de, target: a.en, {DE_EN}, {NOISE}",
    ],
}
MANY = "languages: {source: [en, de], target: [de, en]}\n"
LABELS = {
    "labels twice": ["tsv: hard.tsv", "tsv: hard.tsv"],
    "soft labels beside labels": ["tsv: hard.tsv", "jsonl: soft.jsonl", "tsv: hard.tsv"],
    "soft labels twice": ["jsonl: soft.jsonl", "jsonl: soft.jsonl"],
    "noisy soft labels": ["jsonl: soft.jsonl", "jsonl: soft.jsonl, noise: {upper: 0.5}"],
}
CASES = [
    *((PLAIN, sources) for sources in SHARED.values()),
    *((MANY, sources) for sources in DIRECTED.values()),
    *(("task: classification\n", sources) for sources in LABELS.values()),
]
CASES = [pytest.param(*case, marks=pytest.mark.slow if number % 3 else ()) for number, case in enumerate(CASES)]


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, pairs in (("a", [*PAIRS, ("", "leer")]), ("b", OTHERS)):
        for side, language in enumerate(("en", "de")):
            Path(f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    odd = [(f"one{mark}two", f"eins{mark}zwei") for mark in WHITE] + [(f"one{mark}", f"eins{mark}") for mark in WHITE]
    for side, language in enumerate(("en", "de")):
        Path(f"odd.{language}").write_bytes("".join(f"{pair[side]}\n" for pair in odd).encode())
    Path("odd.jsonl").write_text("".join(json.dumps({"en": one, "de": other}) + "\n" for one, other in odd))
    write_parts(Path("half"), [*PAIRS[:150], *OTHERS[:150]])
    write_parts(Path("tagged"), [*PAIRS[:150], *OTHERS[:150]], "<back>")
    labels = [len(row) % 2 for row in ROWS]
    texts = [source for source, _ in PAIRS]
    rows = [f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True)]
    Path("hard.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    soft = [
        json.dumps({"text": text, "probabilities": {str(label): 0.75, str(1 - label): 0.25}}) + "\n"
        for text, label in zip(texts, labels, strict=True)
    ]
    Path("soft.jsonl").write_text("".join(soft))
    Path("cache").mkdir()


def config(head: str, sources: list[str], more: str = "") -> str:
    listed = "".join(f"    - {{{source}}}\n" for source in sources)
    sizes = "tokenizer: {vocab_size: 300, extra_pieces: [<back>]}\nmodel: {preset: tiny}\n"
    valid = f"{{en-de: {{{A}}}}}" if head == MANY else f"{{{sources[0]}}}"
    data = f"data:\n  filters: {{max_length: 500, max_ratio: 50{more}}}\n  valid: {valid}\n  train:\n{listed}"
    Path("run.yaml").write_text(head + data + sizes)
    return "run.yaml"


def checked(path: str, capfd, code: tuple[int, ...] = (0, 1)) -> dict:
    assert main(["check", path, "--format", "json", "--workers", "1"]) in code
    return json.loads(capfd.readouterr().out)


def of_training(report: dict) -> list[dict]:
    return [corpus for corpus in report["corpora"] if corpus["name"].startswith("train")]


@pytest.mark.parametrize(("head", "sources"), CASES)
def test_what_sources_share_is_kept_once_as_in_training(head, sources, corpora, capfd):
    path = config(head, sources)
    found = checked(path, capfd)
    inputs = Inputs.open(config_file.load(Path(path)), Path("cache"))
    labels = () if "task" in head else None
    corpus = prepare_corpus(inputs.train, our_tokenizers(True), inputs.config.data.filters, Path("cache"), 1, labels)
    kept = defaultdict(list)
    for source, (start, stop, _) in zip(inputs.train, corpus.parts, strict=True):
        kept["-".join(source.direction or ())].append(stop - start)
    reports = found.get("directions", {"": found})
    assert {name: [c["filters"]["kept"] for c in of_training(report)] for name, report in reports.items()} == kept
    dropped = Counter()
    for one in chain.from_iterable(map(of_training, reports.values())):
        dropped.update(one["filters"]["dropped"])
    assert dropped == corpus.counts.dropped


@pytest.mark.parametrize("name", ["none", "half of a folder", "two folders with a tag"])
def test_duplicates_that_are_wanted_are_kept(name, corpora, capfd):
    found = checked(config(PLAIN, SHARED[name], ", drop_duplicates: false"), capfd)
    assert all("duplicate" not in corpus["filters"]["dropped"] for corpus in of_training(found))


def test_sources_without_new_examples_do_not_change_the_advice(corpora, capfd):
    """The sizes, and the numbers of examples and words that they are for, are those of what training sees."""
    alone = checked(config(PLAIN, [A, B]), capfd)["advice"]
    distinct = set(PAIRS) | set(OTHERS)
    assert (alone["examples"], alone["source_words"]) == (
        len(distinct), sum(len(source.split()) for source, _ in distinct),
    )  # fmt: skip
    assert checked(config(PLAIN, [A, B, B, A, "jsonl: half"]), capfd)["advice"] == alone


def test_a_source_that_adds_nothing_is_a_warning(corpora, capfd):
    """Training warns too, and trains on the others; with nothing left for another reason it may not even start."""
    problems = checked(config(PLAIN, [A, B, "jsonl: half"]), capfd)["problems"]
    (problem,) = (one for one in problems if one["corpus"] == "train.2")
    assert problem["level"] == "warning"
    assert "300 of 300 (duplicate 300); sources before it in data.train have the same examples" in problem["message"]
    Path("empty.tsv").write_text("en\tde\n" + "one\t\n" * 20)
    problems = checked(config(PLAIN, [A, "tsv: empty.tsv"]), capfd, (1,))["problems"]
    assert any((one["corpus"], one["level"]) == ("train.1", "error") for one in problems)


@pytest.mark.parametrize("noise", [None, NoiseConfig(copies=0.5)])
def test_noise_makes_the_lengths_of_given_tokenizers_estimates(noise, corpora):
    """It makes lines longer, and the report is about the lines of the files."""
    clean = SourceConfig(source=Path("a.en"), target=Path("a.de"))
    train = [clean, clean.model_copy(update={"noise": noise})]
    report = check_corpora(Corpora(train, {}, ("en", "de"), tokenizers=our_tokenizers(True)), num_workers=1)
    assert report.lengths_are_exact == (noise is None)
