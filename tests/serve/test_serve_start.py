"""How `s2s serve` starts: on which addresses, and what keeps it from starting."""

import sys

import pytest
from support.serving import models_and_keys, serving

from seq2seq.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models_and_keys(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder / "one") as served:
        yield served


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("one --port {taken}", "in use"),
        ("one --host nowhere.invalid --open", "nowhere.invalid"),
        ("one --host 0.0.0.0", "--key-file"),
        ("one --host 0.0.0.0 --open --key-file keys", "--open"),
        ("one --key-file missing", "missing"),
        ("one --key-file empty", "no key"),
        ("one --key-file spaced", "space"),
        ("one --key-file none", "missing value"),
        ("one --port 70000", "--port"),
        ("one --deadline 0", "--deadline"),
        ("missing", "missing"),
        ("labels --glossary terms.tsv", "no translation model"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(folder, server, typed, words, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "empty").write_text("# no key\n\n")
    (folder / "spaced").write_text("two words\n")
    (folder / "none").write_text("None\n")
    (folder / "terms.tsv").write_text("man\tMann\n")
    assert (
        main(["serve", *typed.format(taken=server.port).split(), *([] if "--port" in typed else ["--port", "0"])]) == 2
    )
    captured = capsys.readouterr()
    assert words in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


@pytest.mark.skipif(sys.platform != "linux", reason="one loopback address is enough elsewhere")
def test_it_starts_on_other_addresses(folder):
    with serving(folder / "one", "--host", "0.0.0.0", "--open") as served:
        assert served.ask("/health", Host="anything.example").status == 200
        assert served.stop() == 0
