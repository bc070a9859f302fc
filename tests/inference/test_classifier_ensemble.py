"""Several classifiers as one: the mean of their probabilities, with their labels matched by name."""

import json
from itertools import combinations

import pytest
from support.foreign_models import SOURCE
from support.our_models import make_classifier

from seq2seq.cli import main
from seq2seq.errors import ModelError
from seq2seq.inference.classifier import NO_TEXT, Classifier

LABELS = ("bad", "good", "odd")
LINES = [*SOURCE, "", " ".join(SOURCE * 4)]  # the last is longer than the models' positions


def load(*folders):
    return Classifier.load(*folders, device="cpu")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Three models with tokenizers, sizes and orders of labels of their own."""
    folder = tmp_path_factory.mktemp("models")
    return (
        make_classifier(folder / "a", LABELS, seed=1),
        make_classifier(folder / "b", LABELS[::-1], seed=2, vocab_size=285, d_model=32, max_length=40),
        make_classifier(folder / "c", ("0", "odd", "1"), seed=3, label_names={"0": "bad", "1": "good"}),
    )


def test_the_ensemble_is_the_mean_of_each_models_probabilities(folders):
    alone = [load(folder).classify(LINES) for folder in folders]
    answers = load(*folders).classify(LINES)
    assert len({answer.label for answer in answers}) > 2
    for answer, *others in zip(answers, *alone, strict=True):
        if answer == NO_TEXT:
            assert others == [NO_TEXT] * 3
            continue
        assert tuple(answer.probabilities) == LABELS
        mean = {label: sum(other.probabilities[label] for other in others) / 3 for label in LABELS}
        assert answer.probabilities == pytest.approx(mean, rel=1e-12)
        assert answer.probability == max(answer.probabilities.values()) == answer.probabilities[answer.label]


NAMES = {
    "none": {},
    "other words": {"0": "bad", "1": "fair", "2": "good"},
    "one other word": {"0": "bad"},
    "shifted up": {"0": "1", "1": "2", "2": "3"},
    "shifted down": {"0": "-1", "1": "0", "2": "1"},
    "exchanged": {"0": "1", "1": "0"},
    "rotated": {"0": "1", "1": "2", "2": "0"},
}


@pytest.mark.parametrize("others", ["012", "345", None], ids=["the same labels", "other labels", "one model"])
@pytest.mark.parametrize("names", NAMES.values(), ids=list(NAMES))
def test_labels_are_read_right_or_with_a_warning(names, others, tmp_path, caplog):
    """The spelling does not matter, nor which labels a file lacks; labels with one meaning draw no warning."""
    paths = [make_classifier(tmp_path / "first", "012", label_names=names)]
    displayed = [names.get(label, label) for label in "012"]
    if others is not None:
        called = dict(zip(others, displayed, strict=True))
        paths.append(make_classifier(tmp_path / "second", others, label_names=called))
    model, num_clear = load(*paths), 0
    for count in (1, 2, 3):
        for meant in combinations(range(3), count):
            right = [displayed[index] for index in meant]
            for written in (right, ["012"[index] for index in meant]):
                caplog.clear()
                found = model.names_of(written)
                assert found == right or "If that is wrong, write labels of the data" in caplog.text
                if not (set(written) <= set("012" + (others or "")) and set(written) <= set(displayed)):
                    num_clear += 1
                    assert (found, caplog.text) == (right, "")
    assert num_clear or set(displayed) == set("012")


def test_one_model_twice_is_that_model(folders):
    assert load(folders[1], folders[1]).classify(LINES) == load(folders[1]).classify(LINES)


def test_the_order_of_models_and_of_their_labels_does_not_matter(folders):
    forward, backward = (load(*some).classify(LINES) for some in (folders, folders[::-1]))
    for one, other in zip(forward, backward, strict=True):
        assert one.label == other.label
        assert one.probabilities == pytest.approx(other.probabilities, rel=1e-12)


def test_the_command_takes_several_models(folders, tmp_path, capsys):
    text, gold = tmp_path / "text", tmp_path / "gold.tsv"
    text.write_text("\n".join(LINES) + "\n")
    names = list(map(str, folders))
    assert main(["classify", *names, "-i", str(text), "--format", "jsonl", "--device", "cpu"]) == 0
    answers = load(*folders).classify(LINES)
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["probabilities"] for record in records] == [answer.probabilities for answer in answers]
    # gold labels may be those of any model's training data
    rows = [
        f"{line}\t{'0' if answer.label == 'bad' else answer.label}"
        for line, answer in zip(SOURCE, answers, strict=False)
    ]
    gold.write_text("sentence\tlabel\n" + "\n".join(rows) + "\n")
    assert main(["classify", *names, "--gold", str(gold), "--format", "json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0


@pytest.mark.parametrize("names", [["bad", "fair", "good"], ["1", "2", "3"], ["2", "1", "0"], ["1", "2", "0"]])
def test_models_agree_with_their_own_answers(names, tmp_path, capsys):
    """Whatever they call their labels: alone, and in an ensemble with a model whose labels are these names."""
    named = make_classifier(tmp_path / "named", "012", seed=1, label_names=dict(zip("012", names, strict=True)))
    plain = make_classifier(tmp_path / "plain", names, seed=11)
    text, own, table = (tmp_path / name for name in ("text", "own.jsonl", "own.tsv"))
    text.write_text("\n".join(LINES) + "\n")
    for models in ([named], [named, plain], [plain, named]):
        classify = ["classify", *map(str, models), "--device", "cpu"]
        assert main([*classify, "-i", str(text), "--format", "jsonl", "-o", str(own)]) == 0
        answers = [record for record in map(json.loads, own.read_text().splitlines()) if record["label"]]
        labels = {answer["label"] for answer in answers}
        assert len(labels) > 1
        table.write_text("text\tlabel\n" + "".join(f"{one['text']}\t{one['label']}\n" for one in answers))
        # a table with labels of the data alone has them from there
        for gold in [own] if models[0] == named and labels <= {*"012"} else [own, table]:
            assert main([*classify, "--gold", str(gold), "--format", "json"]) == 0
            report = json.loads(capsys.readouterr().out)
            assert (report["accuracy"], report["total"]) == (1.0, len(answers))
            assert report["labels"] == names


def test_other_labels_are_one_line_with_the_difference(folders, tmp_path, capsys):
    other = make_classifier(tmp_path / "other", ("bad", "good", "strange"))
    text = tmp_path / "text"
    text.write_text("a line\n")
    assert main(["classify", str(folders[0]), str(other), "-i", str(text), "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in (str(other), str(folders[0]), "odd, strange"))
    with pytest.raises(ModelError, match="same labels"):
        load(folders[0], make_classifier(tmp_path / "fewer", ("bad", "good")))
