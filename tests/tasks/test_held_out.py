"""Validation and test sets: what cannot be scored is refused before the first step, and a score belongs to its set."""

import json
import re
from pathlib import Path

import pytest
from support.number_words import CONFIG, WORDS, sentences

from seq2seq.cli import main
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.examples import LabelledText
from seq2seq.data.sources import open_labelled
from seq2seq.errors import DataError

LABELLED = """
task: classification
data: {train: {tsv: train.tsv}, valid: {tsv: valid.tsv}, test: {first: {tsv: valid.tsv}, other: {tsv: other.tsv}}}
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 16, d_ff: 16, num_heads: 2, num_encoder_layers: 1}
training: {max_steps: 2, batch_tokens: 256, threads: 1, device: cpu}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Corpora and configurations of both tasks, in the current folder."""
    for name, count, seed in (("train", 300, 1), ("valid", 10, 2), ("other", 10, 3)):
        rows = sentences(count, seed)
        Path(tmp_path / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
        Path(tmp_path / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in row) + "\n" for row in rows))
        lines = (f"{' '.join(row)}\t{len(row) % 2}\n" for row in rows)
        Path(tmp_path / f"{name}.tsv").write_text("".join(lines))
    (tmp_path / "blank").write_text("\n" * 10)
    (tmp_path / "toy.yaml").write_text(CONFIG.replace("max_steps: 12", "max_steps: 2"))
    (tmp_path / "labels.yaml").write_text(LABELLED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    return tmp_path


def train(config: str, *settings: str) -> int:
    return main(["train", config, "--run-dir", "run", *(part for one in settings for part in ("--set", one))])


def scores(folder: Path) -> dict[str, float]:
    """The scores of test sets in `test_scores.json`, by name."""
    path = folder / "run" / "test_scores.json"
    found = json.loads(path.read_text())["scores"] if path.exists() else []
    return {score["dataset"]: score["value"] for score in found}


def card_scores(folder: Path) -> set[str]:
    """The names of the test sets in the model card."""
    table = (folder / "run" / "best" / "README.md").read_text().partition("## Scores")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| (?!data |valid )([^|]+?) \|", table, re.MULTILINE))


@pytest.mark.parametrize(
    ("config", "key", "given", "message"),
    [
        ("toy.yaml", "data.valid", "{source: blank, target: valid.de}", "the source of every example is blank"),
        ("toy.yaml", "data.valid", "{source: valid.en, target: blank}", "the target of every example is blank"),
        ("toy.yaml", "data.test.held out", "{source: blank, target: valid.de}", "the source of every example is blank"),
        ("labels.yaml", "data.valid", "{tsv: blank.tsv}", "the text of every example is blank"),
        ("labels.yaml", "data.test.other", "{tsv: blank.tsv}", "the text of every example is blank"),
        ("labels.yaml", "data.valid", "{tsv: new.tsv}", "line 3: label '2' is not one of those in the training corpus"),
        ("labels.yaml", "data.test.other", "{tsv: new.tsv}", "line 3: label '2' is not one of those in the training"),
        ("labels.yaml", "data.train", "{tsv: unlabelled.tsv}", "line 2: a text without a label; write the label, or"),
        ("labels.yaml", "data.valid", "{tsv: unlabelled.tsv}", "line 2: a text without a label; write the label, or"),
        ("labels.yaml", "data.test.other", "{tsv: unlabelled.tsv}", "line 2: a text without a label; write the label"),
        ("labels.yaml", "data.test.other", "{jsonl: unlabelled.jsonl}", "line 1: a text without a label; write the"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_the_first_step(folder, capfd, config, key, given, message):
    (folder / "blank.tsv").write_text(" \t0\n" * 10)
    (folder / "new.tsv").write_text("one\t0\ntwo\t1\nthree\t2\n")
    (folder / "unlabelled.tsv").write_text("one\t0\ntwo\t\nthree\t1\n")
    (folder / "unlabelled.jsonl").write_text('{"text": "one", "label": " "}\n')
    assert train(config, f"{key}={given}") == 2
    (told,) = [line for line in capfd.readouterr().err.splitlines() if message in line]
    assert re.search(r"(blank|blank\.tsv|new\.tsv|unlabelled\.(tsv|jsonl)|valid\.(en|de))", told)
    assert not list((folder / "run").glob("checkpoints/step_*"))


def test_blank_lines_among_others_are_scored(folder):
    (folder / "some.en").write_text("\n\none two\n")
    (folder / "some.de").write_text("\n\neins zwei\n")
    assert train("toy.yaml", "data.valid={source: some.en, target: some.de}") == 0
    (folder / "some.tsv").write_text("\t\none\t1\n \t7\n")
    assert train("labels.yaml", "data.test.other.tsv=some.tsv") == 2, "a run of another task"
    assert main(["train", "labels.yaml", "--run-dir", "labelled", "--set", "data.test.other.tsv=some.tsv"]) == 0


def of_classify(text: str, label: str) -> str:
    """An object as `s2s classify --format jsonl` writes it; that of a blank line has no probabilities."""
    shares = {name: float(name == label) for name in "01" if label}
    return json.dumps({"text": text, "label": label, "probability": float(bool(label)), "probabilities": shares})


ROWS = {
    "tsv": ("{}\t{}".format, ["\t", " \t", "\t\u3000"]),
    "csv": ("{},{}".format, [",", " ,  "]),
    "jsonl": (
        lambda text, label: json.dumps({"text": text, "label": label}),
        ['{"text": "", "label": ""}', '{"text": null, "label": null}', '{"text": " ", "label": null}'],
    ),
    "answers.jsonl": (of_classify, [of_classify("", ""), of_classify(" ", "")]),
}


def write_rows(folder: Path, form: str) -> tuple[SourceConfig, SourceConfig]:
    """Write the labelled texts of `other.tsv` in a form, without blank rows and with some in every place."""
    line, blank = ROWS[form]
    head = [line("sentence", "label")] if "jsonl" not in form else []
    rows = [line(*row.split("\t")) for row in (folder / "other.tsv").read_text().splitlines()]
    (folder / f"clean.{form}").write_text("\n".join([*head, *rows]) + "\n")
    (folder / f"rows.{form}").write_text("\n".join([*head, *blank, rows[0], *blank, *rows[1:], *blank]) + "\n")
    key = "jsonl" if "jsonl" in form else "tsv"
    clean, mixed = (SourceConfig(**{key: folder / f"{name}.{form}"}) for name in ("clean", "rows"))
    return clean, mixed


@pytest.mark.parametrize("form", ROWS)
def test_a_row_without_text_and_label_is_no_example(folder, form):
    for keys in ({}, {"label_column": "label"}):
        clean, mixed = (list(open_labelled(source.model_copy(update=keys))) for source in write_rows(folder, form))
        assert mixed == clean != []


@pytest.mark.parametrize("label", ["1", {"0": 0.25, "1": 0.75}])
@pytest.mark.parametrize("text", ["", " ", None])
def test_a_row_of_a_dataset_without_text_and_label_is_none_either(tmp_path, text, label):
    import datasets

    blanks = [{"text": text, "label": blank} for blank in ([{}, None] if isinstance(label, dict) else ["", None])]
    datasets.Dataset.from_list([{"text": "one", "label": label}, *blanks]).save_to_disk(str(tmp_path / "saved"))
    (found,) = open_labelled(SourceConfig(hub=str(tmp_path / "saved")))
    assert (found.text, found.label) == ("one", "1")


@pytest.mark.parametrize("row", ["one two\t", "\t1", "one\t7"])
def test_a_row_with_one_of_both_is_no_blank_row(folder, row):
    (folder / "half.tsv").write_text(f"sentence\tlabel\none\t0\n{row}\n")
    source = open_labelled(SourceConfig(tsv=folder / "half.tsv"))
    if row.endswith("\t"):
        with pytest.raises(DataError, match=r"line 3: a text without a label"):
            list(source)
    else:
        assert list(source)[1:] == [LabelledText(*row.split("\t"))]


@pytest.mark.parametrize("blank", ["", "\t\n"])
def test_a_blank_row_does_not_hide_an_unknown_header(folder, blank):
    texts = (folder / "train.tsv").read_text()
    (folder / "x.tsv").write_text(f"what they wrote\tklass\n{texts}{blank}")
    with pytest.raises(DataError, match=r"line 1 looks like a header"):
        open_labelled(SourceConfig(tsv=folder / "x.tsv"))


def test_blank_rows_change_no_score(folder, capfd):
    """In any form, in the training corpus, as the validation set, as a test set and as gold labels."""
    with open(folder / "train.tsv", "a") as rows:
        rows.write("\t\n \t\n")
    tests = {}
    for form in ROWS:
        for source in write_rows(folder, form):
            path = source.tsv or source.jsonl
            tests[path.name.replace(".", " ")] = f"{{{'tsv' if source.tsv else 'jsonl'}: {path.name}}}"
    (folder / "labels.yaml").write_text(LABELLED.replace("{tsv: valid.tsv}", "{tsv: rows.tsv}", 1))
    named = ", ".join(f"{name}: {source}" for name, source in tests.items())
    assert train("labels.yaml", f"data.test={{{named}}}") == 0
    records = json.loads((folder / "run" / "test_scores.json").read_text())["scores"]
    measured = {name: {r["metric"]: r["value"] for r in records if r["dataset"] == name} for name in tests}
    expected = measured["clean tsv"]
    assert measured == dict.fromkeys(tests, expected)
    last = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert 100 * last["accuracy"] == pytest.approx(expected["accuracy"])
    capfd.readouterr()
    for path in folder.glob("rows.*"):
        assert main(["classify", "run", "--gold", str(path), "--format", "json", "--device", "cpu"]) == 0
        report = json.loads(capfd.readouterr().out)
        assert (report["total"], 100 * report["f1"]) == (10, pytest.approx(expected["f1"]))


@pytest.mark.parametrize("content", ["", "sentence\tlabel\n", "sentence\tlabel\n\t\n \t\n"])
@pytest.mark.parametrize("key", ["data.train", "data.valid", "data.test.other"])
def test_a_set_without_examples_is_refused_before_the_first_step(folder, capfd, content, key):
    (folder / "none.tsv").write_text(content)
    assert train("labels.yaml", f"{key}={{tsv: none.tsv}}") == 2
    (told,) = [line for line in capfd.readouterr().err.splitlines() if re.search("no (examples|lines)", line)]
    assert re.search(r"none\.tsv|…: no examples", told), "a long path is cut"
    assert not list((folder / "run").glob("checkpoints/step_*"))


def test_scores_of_another_test_set_are_forgotten_before_the_new_one_is_scored(folder, monkeypatch, capfd):
    assert train("labels.yaml") == 0
    assert set(scores(folder)) == {"first", "other"} == card_scores(folder)
    (folder / "other.tsv").write_text("one\t1\n")  # another content under the same name
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("seq2seq.tasks.task.Task.score_test_sets", interrupted)
        assert train("labels.yaml") == 130
    assert scores(folder) == {}
    assert card_scores(folder) == set()
    assert train("labels.yaml") == 0
    assert set(scores(folder)) == {"first", "other"} == card_scores(folder)
    (folder / "new.tsv").write_text("one\t2\n")
    assert train("labels.yaml", "data.test.other.tsv=new.tsv") == 2
    assert scores(folder) == {}, "config.yaml names the new set, which cannot be scored"
    assert train("labels.yaml", "data.test={}") == 0
    assert train("labels.yaml") == 0
    assert train("labels.yaml", "data.test={}") == 0
    assert (scores(folder), card_scores(folder)) == ({}, set())


def test_the_card_has_the_label_names_and_the_search_that_hold_now(folder):
    assert train("labels.yaml", "data.test={}") == 0
    card = folder / "run" / "best" / "README.md"
    assert train("labels.yaml", "data.test={}", 'data.label_names={"0": schlecht, "1": gut}') == 0
    assert "'0': schlecht" in card.read_text()
    card.write_text("written by hand")
    assert train("labels.yaml", "data.test={}", 'data.label_names={"0": schlecht, "1": gut}') == 0
    assert card.read_text() == "written by hand", "nothing has changed"
