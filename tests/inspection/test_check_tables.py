"""`s2s check` of tables, labels and sizes: what a spreadsheet exported, and what is told so that one can read it."""

import json
import re

import pytest

from seq2seq.cli import main
from seq2seq.inspection.layout import wrapped
from seq2seq.lines import BOM


def write(path, *lines):
    path.write_text("".join(line + "\n" for line in lines))
    return path


def run(capfd, *arguments):
    code = main(["check", *map(str, arguments)])
    out, err = capfd.readouterr()
    return code, out, err


PAIRS = [(f'He said, "{i} times"', f"Er sagte; {i} mal.") for i in range(100)]
REVIEWS = [(f"a review, number {i}", ("good", "bad")[i % 2]) for i in range(3000)]


def csv_of(rows):
    return [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]


@pytest.mark.parametrize("head", [(), ("English", "German"), ("source", "target")])
def test_a_csv_of_pairs(tmp_path, capfd, head):
    path = write(tmp_path / "a.csv", *csv_of([head] * bool(head) + PAIRS))
    path.write_bytes(BOM + path.read_bytes())
    code, out, err = run(capfd, path, "-f", "json")
    (corpus,) = json.loads(out)["corpora"]
    assert (code, err) == (0, "")
    assert corpus["examples"] == 100
    assert corpus["lines"] == [100]
    assert not {"control", "entity"} & {*corpus["sides"]["source"]["findings"]}


def test_a_line_that_is_not_utf8_is_told_of_its_side(tmp_path, capfd):
    """A U+FFFD that is in the file is another finding, of its own line."""
    lines = [f"{source}\t{target}".encode() for source, target in PAIRS]
    lines[4] = "a \ufffd house\tein Haus".encode()
    lines[7] = b"a good day\tein guter Tag \xff"
    lines[9] = b"one \xff day\tein Tag \xff"
    (tmp_path / "a.tsv").write_bytes(b"\n".join(lines) + b"\n")
    _, out, _ = run(capfd, tmp_path / "a.tsv", "-f", "json")
    (corpus,) = json.loads(out)["corpora"]
    found = {
        side: {name: [line for line, _ in corpus["sides"][side]["findings"].get(name, {"examples": []})["examples"]]
               for name in ("invalid_utf8", "replacement")}
        for side in ("source", "target")
    }  # fmt: skip
    assert found["source"]["invalid_utf8"] == [10]
    assert 5 in found["source"]["replacement"]
    assert found["target"] == {"invalid_utf8": [8, 10], "replacement": []}
    (tmp_path / "b.jsonl").write_bytes(
        b'{"source": "a day", "target": "ein Tag", "id": "\xff"}\n{"source": "a", "target": "b", "id": ""}\n'
    )
    _, out, _ = run(capfd, tmp_path / "b.jsonl", "-f", "json")
    source = json.loads(out)["corpora"][0]["sides"]["source"]["findings"]
    assert source["invalid_utf8"]["count"] == 1, "also in a column that is not read"
    assert "replacement" not in source


@pytest.mark.parametrize("head", [("text", "label"), ("Review", "Sentiment"), ("sentence", "class")])
def test_a_table_of_labelled_texts_is_known_by_its_header(tmp_path, capfd, head):
    code, out, _ = run(capfd, write(tmp_path / "a.csv", *csv_of([head, *REVIEWS[:60]])))
    assert code == 0
    assert "2 labels: bad 30, good 30" in out


def config_of(tmp_path, rows, valid):
    for name, some in (("train", rows), ("valid", valid)):
        write(tmp_path / f"{name}.tsv", *("\t".join(row) for row in some))
    data = {"train": {"tsv": "train.tsv"}, "valid": {"tsv": "valid.tsv"}}
    config = {"task": "classification", "data": data, "tokenizer": {"vocab_size": 400}, "model": {"preset": "tiny"}}
    return write(tmp_path / "run.yaml", json.dumps(config))


def test_swapped_columns_of_labels_are_told_in_short_lines(tmp_path, capfd):
    swapped = [(label, text) for text, label in REVIEWS]
    config = config_of(tmp_path, swapped, swapped[:50])
    code, out, _ = run(capfd, config)
    assert code == 1
    assert "error: train: 3,000 labels for 3,000 examples; are the columns swapped?" in out
    assert max(map(len, out.splitlines())) < 400
    assert main(["train", str(config), "--dry-run", "--run-dir", str(tmp_path / "run")]) == 2
    err = capfd.readouterr().err
    assert "3,000 labels for 3,000 examples; are the columns swapped?" in err
    assert max(map(len, err.splitlines())) < 400


@pytest.mark.parametrize("keys", [("text", "label"), ("review", "sentiment"), ("en", "de")])
def test_the_columns_of_a_jsonl_say_whether_it_has_labels(tmp_path, capfd, keys):
    rows = [dict(zip(keys, (f"a text of number {i}", "ab"[i % 2]), strict=True)) for i in range(60)]
    path = write(tmp_path / "a.jsonl", *map(json.dumps, rows))
    _, out, _ = run(capfd, path, "--format", "json")
    (train,) = json.loads(out)["corpora"]
    assert bool(train["labels"]) == (keys != ("en", "de"))


def test_many_labels_are_shown_by_a_few(tmp_path, capfd):
    rows = [(f"a text of kind {i % 60}, number {i}", f"kind{i % 60}") for i in range(600)]
    config = config_of(tmp_path, rows, [("a text", "kindd1")])
    _, out, _ = run(capfd, config)
    assert re.search(r"60 labels: kind0 10, (kind\d+ 10, ){3}kind\d+ 10 and 55 more", out)
    assert "a label never occurs in training: kindd1" in out
    assert main(["train", str(config), "--dry-run", "--run-dir", str(tmp_path / "run")]) == 2
    assert "kind12 and 55 more); did you mean 'kind1'?" in capfd.readouterr().err


def test_a_header_in_two_text_files_is_a_warning(tmp_path, capfd):
    sides = [write(tmp_path / "a.en", "English", *(p[0] for p in PAIRS)),
             write(tmp_path / "a.de", "Deutsch", *(p[1] for p in PAIRS))]  # fmt: skip
    code, out, _ = run(capfd, *sides)
    assert code == 0
    assert "warning: train: line 1 looks like a header; remove it from both files" in out


@pytest.mark.slow
def test_swapped_sides_are_an_error_of_check_and_a_warning_of_training(tmp_path, capfd):
    lines = {
        "train.en": [f"the dog and the cat of number {i}" for i in range(300)],
        "train.de": [f"der Hund und die Katze mit Nummer {i}" for i in range(300)],
    }
    lines |= {"valid.en": lines["train.de"][:20], "valid.de": lines["train.en"][:20]}
    for name, some in lines.items():
        write(tmp_path / name, *some)
    data = {name: {"source": f"{name}.en", "target": f"{name}.de"} for name in ("train", "valid")}
    config = {"source_language": "en", "target_language": "de", "data": data, "tokenizer": {"vocab_size": 320}}
    path = write(tmp_path / "run.yaml", json.dumps({**config, "model": {"preset": "tiny", "d_model": 16}}))
    code, out, _ = run(capfd, path)
    assert code == 1
    assert "error: valid: source and target look swapped against train" in out
    assert main(["train", str(path), "--dry-run", "--run-dir", str(tmp_path / "run")]) == 0
    assert "warning: data.valid: source and target look swapped against data.train" in capfd.readouterr().err


def test_lines_break_between_words_on_a_terminal_alone():
    words = "a line of many words, /and/a/path/without/any/spaces/in/it/that/is/longer/than/the/rest "
    line = f"    error: {words * 3}".rstrip()
    broken = wrapped(line, 60).split("\n")
    assert " ".join(part.strip() for part in broken) == line.strip()
    assert all(part.startswith("    ") for part in broken)
    assert all(len(part) <= 60 or len(part.split()) == 1 for part in broken)
    assert wrapped(line, None) == line


def test_a_wrong_column_is_an_error_beside_a_held_out_set(tmp_path, capfd):
    write(tmp_path / "v.en", *(source for source, _ in PAIRS))
    write(tmp_path / "v.de", *(target for _, target in PAIRS))
    write(tmp_path / "t.tsv", "English\tGerman", *map("\t".join, PAIRS))
    config = write(
        tmp_path / "c.yaml",
        "source_language: en",
        "target_language: de",
        "data:",
        "  train: {tsv: t.tsv, source_column: english, target_column: german}",
        "  valid: {source: v.en, target: v.de}",
    )
    code, out, err = run(capfd, config)
    assert (code, err) == (1, "")
    (line,) = (line for line in out.splitlines() if line.startswith("error: train: "))
    assert "no column 'english'" in line
    assert "valid: 100 examples" in out
