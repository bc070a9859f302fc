"""Soft labels: examples with probabilities of labels, from the file over the corpus on disk to the loss and a run."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from support.foreign_models import SOURCE, TARGET
from support.our_models import our_tokenizers

from seq2seq.cli import main
from seq2seq.config.corpora import FilterConfig, SourceConfig
from seq2seq.config.schema import ClassifierConfig, ModelConfig
from seq2seq.data.collate import collate_classification
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.examples import LabelledText
from seq2seq.data.sources import open_labelled
from seq2seq.data.stream import CorpusBatches
from seq2seq.errors import DataError
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.store.model_folder import load_model
from seq2seq.training.loss import classification_loss

NAMES = {"0": "negative", "1": "positive"}
SHARES = [{"0": 0.75, "1": 0.25}, {"0": 0.0, "1": 1.0}, {"0": 0.5, "1": 0.5}]
RECORDS = [{"text": f"text {number}", "probabilities": shares} for number, shares in enumerate(SHARES)]
EXPECTED = [
    LabelledText(f"text {number}", label, shares)
    for number, (label, shares) in enumerate(zip("010", SHARES, strict=True))
]


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def as_answers(shares):
    """The shares by what answers call the labels, in another order."""
    return {NAMES[label]: share for label, share in reversed(shares.items())}


def soft(path, **keys):
    return list(open_labelled(SourceConfig(jsonl=path, **keys), label_names=NAMES))


# -- sources -----------------------------------------------------------------------------------------------------------


def test_every_form_of_probabilities_is_one_example(tmp_path):
    import datasets

    as_label = [{"text": record["text"], "label": record["probabilities"]} for record in RECORDS]
    answers = [
        {"text": record["text"], "label": "negative", "probabilities": as_answers(record["probabilities"])}
        for record in RECORDS
    ]
    assert soft(write(tmp_path / "own", *RECORDS)) == EXPECTED
    assert soft(write(tmp_path / "label", *as_label)) == EXPECTED
    assert soft(write(tmp_path / "answers", *answers)) == EXPECTED
    renamed = [{"sentence": record["text"], "teacher": record["probabilities"]} for record in RECORDS]
    assert soft(write(tmp_path / "renamed", *renamed), label_column="teacher") == EXPECTED
    datasets.Dataset.from_list(RECORDS).save_to_disk(str(tmp_path / "saved"))
    for streaming in (False, True):
        assert list(open_labelled(SourceConfig(hub=str(tmp_path / "saved"), streaming=streaming))) == EXPECTED


def test_the_label_beside_them_is_read_where_the_config_names_it(tmp_path):
    answers = [{**record, "label": "1"} for record in RECORDS]
    hard = soft(write(tmp_path / "x", *answers), label_column="label")
    assert hard == [LabelledText(f"text {number}", "1") for number in range(3)]
    listed = [{"text": "a", "label": "1", "probabilities": [0.2, 0.8]}]  # not by name
    assert soft(write(tmp_path / "listed", *listed)) == [LabelledText("a", "1")]


def test_what_is_rounded_adds_up_to_one(tmp_path):
    (example,) = soft(write(tmp_path / "x", {"text": "a", "label": {"0": 0.33, "1": 0.33, "2": 0.33}}))
    assert example.probabilities == pytest.approx(dict.fromkeys("012", 1 / 3))


def test_a_blank_line_has_no_probabilities_wherever_it_stands(tmp_path):
    blank = {"text": " ", "label": "", "probabilities": {}}
    assert soft(write(tmp_path / "x", blank, *RECORDS, blank)) == EXPECTED


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"0": 0.5, "1": 0.3}, "the probabilities add up to 0.8 instead of 1"),
        ({"0": 1.2, "1": -0.2}, "0: 1.2 is not a probability; write a number from 0 to 1"),
        ({"0": 1.01, "1": -0.01}, "1: -0.01 is not a probability"),
        ({"0": "0.5", "1": 0.5}, "0: '0.5' is not a probability"),
        ({"0": None, "1": 1.0}, "0: null is not a probability"),
        ({"0": True, "1": 0}, "0: true is not a probability"),
        ({"0": float("nan"), "1": 0.5}, "0: NaN is not a probability"),
        ({"0": 10**400, "1": 0.5}, "0: 1000.* is not a probability"),
        ({"0": 1.0}, "no probability of '1'; write 0 where it is impossible"),
        ({"0": 0.5, "1": 0.2, "I": 0.3}, "unknown label 'I'; it has 0, 1"),
        ({}, "no probability of '0'"),
        ("0", "text instead of an object with probabilities"),
        ([0.5, 0.5], "a list instead of an object with probabilities"),
    ],
)
def test_wrong_probabilities_are_one_line_with_place(tmp_path, found, problem):
    path = write(tmp_path / "x.jsonl", *RECORDS, {"text": "a", "probabilities": found})
    with pytest.raises(DataError, match=rf"x\.jsonl: line 4: probabilities: {problem}") as error:
        soft(path)
    assert len(str(error.value).splitlines()) == 1


def test_names_that_are_misspelt_or_mean_one_label_are_named(tmp_path):
    answers = {"text": "a", "probabilities": {"negative": 0.5, "positive": 0.5}}
    typo = {"text": "a", "probabilities": {"negativ": 0.5, "positive": 0.5}}
    with pytest.raises(DataError, match=r"line 2: .*unknown label 'negativ'.*did you mean 'negative'"):
        soft(write(tmp_path / "typo", answers, typo))
    with pytest.raises(DataError, match=r"line 1: probabilities: 'negative' and '0' are both called '0'"):
        soft(write(tmp_path / "both", {"text": "a", "probabilities": {"negative": 0.5, "0": 0.5}}))
    with pytest.raises(DataError, match=r"line 2: no column 'probabilities'"):
        soft(write(tmp_path / "without", answers, {"text": "a", "label": "negative"}))


# -- the corpus on disk ------------------------------------------------------------------------------------------------


def prepared(tmp_path, *records, labels=(), filters=None):
    """A corpus of one source for each list of records, or of (text, label) rows."""
    sources = []
    for number, rows in enumerate(records):
        path = tmp_path / f"{number}.jsonl"
        sources.append(open_labelled(SourceConfig(jsonl=write(path, *rows)), label_names=NAMES))
    return prepare_corpus(sources, our_tokenizers(True), filters, tmp_path / "cache", 1, labels)


def hard(*labels):
    return [{"text": f"hard {number}", "label": label} for number, label in enumerate(labels)]


def test_a_corpus_gives_the_probabilities_of_each_example_and_one_to_a_label(tmp_path):
    answers = [{"text": r["text"], "probabilities": as_answers(r["probabilities"])} for r in RECORDS]
    corpus = prepared(tmp_path, hard("1", "0"), answers, [{"text": " ", "label": "1"}], hard("1"), RECORDS[::-1],
                      filters=FilterConfig(drop_duplicates=False))  # fmt: skip
    assert corpus.labels == ("0", "1")
    rows = [list(shares.values()) for shares in SHARES]
    expected = np.array([[0, 1], [1, 0], *rows, [0, 1], *rows[::-1]], np.float32)
    for indices in (np.arange(9), np.array([8, 0, 5, 3]), np.array([5])):
        np.testing.assert_array_equal(corpus.probabilities(indices), expected[indices])
    most_likely = [0, 1, 0]
    assert corpus.label_ids(np.arange(9)) == [1, 0, *most_likely, 1, *most_likely[::-1]]
    batch = CorpusBatches(corpus, our_tokenizers(True))(np.array([2, 0, 4]), 0)
    np.testing.assert_array_equal(batch.probabilities, expected[[2, 0, 4]])
    np.testing.assert_array_equal(
        torch.cat([half.probabilities for half in batch.split()]), expected[[2, 0, 4]]
    )  # fmt: skip


def test_a_corpus_of_labels_has_no_probabilities(tmp_path):
    corpus = prepared(tmp_path, hard("1", "0", "1"))
    assert corpus.probabilities(np.arange(3)) is None
    assert CorpusBatches(corpus, our_tokenizers(True))(np.arange(3), 0).probabilities is None
    assert not (corpus.folder / "probabilities").exists()


def test_what_is_dropped_takes_its_probabilities_along(tmp_path):
    again = {"text": "text 0", "probabilities": {"0": 0.7, "1": 0.3}}  # the same text with the same label
    long = {"text": "word " * 90, "probabilities": {"0": 0.9, "1": 0.1}}
    corpus = prepared(tmp_path, [long, RECORDS[0], again, *RECORDS[1:]], filters=FilterConfig(max_length=40))
    assert corpus.counts.dropped == {"duplicate": 1, "length": 1}
    np.testing.assert_allclose(corpus.probabilities(np.arange(3)), [list(shares.values()) for shares in SHARES])


def test_probabilities_are_no_duplicates_of_the_labels_of_the_same_texts(tmp_path):
    """Texts whose probabilities agree with the label are kept too; of a mixture, only the others were left."""
    gold = [{"text": record["text"], "label": label} for record, label in zip(RECORDS, "010", strict=True)]
    corpus = prepared(tmp_path, gold, RECORDS, gold, filters=FilterConfig())
    assert corpus.counts.dropped == {"duplicate": len(gold)}
    expected = [[1, 0], [0, 1], [1, 0], *(list(shares.values()) for shares in SHARES)]
    np.testing.assert_allclose(corpus.probabilities(np.arange(6)), expected)


def test_all_sources_have_probabilities_of_all_labels(tmp_path):
    with pytest.raises(DataError, match=r"0\.jsonl: no probabilities of label '2', which other texts have"):
        prepared(tmp_path, RECORDS, hard("2"))
    with pytest.raises(DataError, match=r"0\.jsonl: no probabilities of label 'odd'"):
        prepared(tmp_path, RECORDS, labels=("0", "1", "odd"))
    with pytest.raises(DataError, match=r"label '1' is not one of those in the training corpus \(0, 2\)"):
        prepared(tmp_path, RECORDS, labels=("0", "2"))


# -- the loss ----------------------------------------------------------------------------------------------------------


def batch_and_model(probabilities, dropout=0.0):
    torch.manual_seed(5)
    tokenizer = our_tokenizers(True).source
    labels = np.asarray(probabilities).argmax(axis=1).tolist()
    ids = tokenizer.encode_all((SOURCE + TARGET)[: len(labels)])
    shares = np.asarray(probabilities, np.float32)
    batches = [collate_classification(ids, labels, tokenizer, range(len(ids)), given) for given in (None, shares)]
    config = ModelConfig(preset="tiny", num_encoder_layers=1, dropout=dropout)
    return *batches, EncoderClassifier(config, ClassifierConfig(dropout=dropout), tokenizer.vocab_size, 3)


def loss_and_gradients(model, batch, smoothing, r_drop):
    torch.manual_seed(6)
    found = classification_loss(model, batch, smoothing, r_drop)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return found, torch.autograd.grad(found.total, weights)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_all_probability_on_a_label_is_the_label(smoothing, r_drop):
    labels, shares, model = batch_and_model(np.eye(3)[[0, 2, 1, 1]], dropout=0.3)
    (one, gradients), (other, others) = (loss_and_gradients(model, b, smoothing, r_drop) for b in (labels, shares))
    torch.testing.assert_close(other.total, one.total)
    assert (other.count, other.correct) == (one.count, one.correct)
    for mine, theirs in zip(gradients, others, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_the_loss_is_the_mean_of_the_losses_of_labels(r_drop):
    shares = np.array([[0.2, 0.5, 0.3], [0.0, 0.9, 0.1]])
    _, batch, model = batch_and_model(shares)
    expected = 0.0
    for row in range(2):
        for label in range(3):
            one = np.eye(3)[[label, label]]
            _, alone, _ = batch_and_model(one)
            half = alone.split()[row]
            expected += shares[row, label] * classification_loss(model, half, 0.1, r_drop).total
    torch.testing.assert_close(classification_loss(model, batch, 0.1, r_drop).total, expected)


# -- runs --------------------------------------------------------------------------------------------------------------

CONFIG = (
    "task: classification\n"
    "data: {train: {TRAIN}, valid: {VALID}, num_workers: 1, label_names: {'0': negative, '1': positive}}\n"
    "tokenizer: {vocab_size: 300}\n"
    "model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1}\n"
    "training: {max_steps: 60, batch_tokens: 512, warmup_steps: 10, learning_rate: 3.0e-3, validate_every: 30,\n"
    "  threads: 1, device: cpu}\n"
)


WORDS = ["bad", "good"]


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """Texts in which one word decides."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    numbers = ["one", "two", "three", "four", "five"]
    for name, count in (("train", 300), ("valid", 60)):
        draw = random.Random(count)
        texts = [" ".join([*draw.choices(numbers, k=6), WORDS[row % 2]]) for row in range(count)]
        rows = [f"{text}\t{row % 2}\n" for row, text in enumerate(texts)]
        (tmp_path / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
        (tmp_path / f"{name}.txt").write_text("\n".join([*texts[:9], "", *texts[9:]]) + "\n")


def train(name, source, *changes, valid="tsv: valid.tsv"):
    Path(f"{name}.yaml").write_text(CONFIG.replace("TRAIN", source).replace("VALID", valid))
    return main(["train", f"{name}.yaml", *(part for change in changes for part in ("--set", change))])


def last(name):
    return json.loads(Path(f"runs/{name}/metrics.jsonl").read_text().splitlines()[-1])


@pytest.mark.slow
def test_what_an_ensemble_writes_trains_as_it_is(reviews, capfd):
    assert train("a", "tsv: train.tsv") == 0
    assert train("b", "tsv: train.tsv", "seed=2", "classifier.pooling=mean_max") == 0
    classify = ["classify", "runs/a", "runs/b", "--format", "jsonl", "--device", "cpu"]
    for name in ("train", "valid"):
        assert main([*classify, "-i", f"{name}.txt", "-o", f"{name}.jsonl"]) == 0
    Path("valid.jsonl").write_text("".join(line for line in open("valid.jsonl") if '"text": ""' not in line))
    assert train("student", "jsonl: train.jsonl", valid="jsonl: valid.jsonl") == 0
    assert last("student")["accuracy"] >= 0.95
    # its loss cannot fall below the entropy of the ensemble's answers
    rows = [json.loads(line)["probabilities"].values() for line in open("valid.jsonl")]
    entropy = np.mean([-sum(share * np.log(share) for share in shares) for shares in rows])
    assert last("student")["valid_loss"] >= entropy
    capfd.readouterr()
    assert main(["classify", "runs/student", "--gold", "valid.tsv", "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["labels"] == ["negative", "positive"]
    assert main(["check", "student.yaml", "--format", "json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert set(report["corpora"][1]["labels"]) == {"0", "1"}
    # the same command goes on with the same data; other names of labels would mean other data
    assert train("student", "jsonl: train.jsonl", "training.max_steps=61", valid="jsonl: valid.jsonl") == 0
    swapped = 'data.label_names={"0": positive, "1": negative}'
    assert train("student", "jsonl: train.jsonl", "training.max_steps=62", swapped, valid="jsonl: valid.jsonl") == 2
    assert "data.train" in capfd.readouterr().err


def test_a_run_with_certain_probabilities_is_the_run_with_labels(reviews):
    rows = [line.split("\t") for line in Path("train.tsv").read_text().splitlines()[1:]]
    sure = [{"text": text, "probabilities": {"1": int(label), "0": 1 - int(label)}} for text, label in rows]
    write(Path("sure.jsonl"), *sure)
    # Some gradients are zero but for rounding, such as those of the keys' biases. With its usual epsilon, Adam divides
    # them by their own size, so rounding would decide the weights.
    few = ["training.max_steps=10", "training.r_drop=1.0", "training.epsilon=1e-3"]
    assert train("hard", "tsv: train.tsv", *few) == 0
    assert train("sure", "jsonl: sure.jsonl", *few) == 0
    one, other = (load_model(f"runs/{name}").model.state_dict() for name in ("hard", "sure"))
    for name, weight in one.items():
        torch.testing.assert_close(other[name], weight, atol=1e-5, rtol=0)
    assert last("sure")["valid_loss"] == pytest.approx(last("hard")["valid_loss"], abs=1e-5)


def test_check_counts_the_most_likely_label_of_a_file(tmp_path, capsys):
    rare = [{"text": f"a text of number {i}", "label": "a", "probabilities": {"a": 0.6, "b": 0.4}} for i in range(40)]
    blank = {"text": "", "label": "", "probabilities": {}}
    assert main(["check", str(write(tmp_path / "x.jsonl", *rare, blank)), "--format", "json"]) == 0
    (corpus,) = json.loads(capsys.readouterr().out)["corpora"]
    assert corpus["labels"] == {"a": 40, "b": 0}
    rare[7]["probabilities"] = {"a": 0.6, "b": 0.6}
    assert main(["check", str(write(tmp_path / "y.jsonl", *rare))]) == 1
    assert "line 8: probabilities: the probabilities add up to 1.2" in capsys.readouterr().out
