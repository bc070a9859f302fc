"""A named pipe, such as `<(zcat a.gz)` of a shell, is answered as the file would be; or refused, never half read."""

import os
import threading
from pathlib import Path

import pytest
from support.wrong_files import CONFIG, TEXTS, save

from seq2seq.cli import main

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")

LABELLED = "sentence\tlabel\n" + "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(TEXTS))
COMMANDS = {
    "translate": ["translate", "model", "-i", "SOURCE"],
    "translate with prefixes": ["translate", "model", "-i", "SOURCE", "--prefix-file", "TARGET"],
    "score": ["score", "model", "SOURCE", "TARGET"],
    "align": ["align", "model", "SOURCE", "TARGET"],
    "bleu": ["bleu", "SOURCE", "TARGET"],
    "bleu of a model": ["bleu", "--model", "model", "--source", "SOURCE", "--reference", "TARGET"],
    "classify": ["classify", "classifier", "-i", "SOURCE"],
    "classify --gold": ["classify", "classifier", "--gold", "LABELLED"],
    "check": ["check", "SOURCE", "TARGET", "--workers", "1"],
}
CONTENTS = {"SOURCE": "".join(f"{text}\n" for text in TEXTS), "TARGET": "Ein Mann.\n\nHunde\n", "LABELLED": LABELLED}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save(folder / "model")
    save(folder / "classifier", task="classification")
    return folder


@pytest.fixture
def pipe(tmp_path):
    """Makes a named pipe with somebody at the other end who writes a text once."""
    writers = []

    def pipe(name: str, text: str) -> Path:
        (tmp_path / "pipes").mkdir(exist_ok=True)
        path = tmp_path / "pipes" / name
        os.mkfifo(path)
        writers.append(threading.Thread(target=path.write_text, args=(text,), daemon=True))
        writers[-1].start()
        return path

    yield pipe
    for writer in writers:
        writer.join(5)


@pytest.mark.parametrize("typed", COMMANDS.values(), ids=COMMANDS)
def test_a_pipe_is_answered_as_the_file_would_be(models, pipe, tmp_path, monkeypatch, capfd, typed):
    monkeypatch.chdir(models)
    answers, codes = [], set()
    for make in (lambda name: tmp_path / name, lambda name: pipe(name, CONTENTS[name])):
        for name in CONTENTS:
            (tmp_path / name).write_text(CONTENTS[name])
        arguments = [str(make(word)) if word in CONTENTS else word for word in typed]
        codes.add(main(arguments))
        # a report on files names them in its first line
        answers.append(capfd.readouterr().out.splitlines()[typed[0] == "check" :])
    assert codes == {1 if typed[0] == "check" else 0}  # it finds something
    assert answers[0] == answers[1]
    assert len(answers[0]) >= 2


def test_a_corpus_that_is_a_pipe_is_refused_before_anything_is_read(pipe, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    pipe("text", "one line\n")
    Path("run.yaml").write_text(CONFIG.replace("train: {source: text", "train: {source: pipes/text"))
    Path("text").write_text("one line\n")
    assert main(["train", "run.yaml"]) == 2
    err = capfd.readouterr().err
    assert len(err.splitlines()) == 1
    assert "data.train.source: pipes/text is a pipe" in err
    assert Path("pipes/text").read_text() == "one line\n"
