"""Mistakes that `s2s filter` refuses before it writes anything, each in one line with the remedy."""

import os
import zipfile
from pathlib import Path

import pytest
from support.filtered import make_opposite
from support.our_models import make_ours

from seq2seq.cli import main

GERMAN = ["Der alte Mann geht mit seinem Hund langsam durch den Park.", "Zwei Kinder spielen auf der Straße Fußball."]
ENGLISH = ["The old man walks slowly through the park with his dog.", "Two children play football in the street."]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with untrained models, corpora, and a folder of something else."""
    place = tmp_path_factory.mktemp("refusals")
    make_ours(place / "model", True, ending=1.0)
    make_opposite(place / "model", place / "opposite")
    texts = {"en": ENGLISH * 20, "de": GERMAN * 20, "short": GERMAN, "empty": [], "other.xml": ["<a>"]}
    for name, lines in texts.items():
        (place / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (place / "short.tsv").write_text("A man.\tEin Mann.\nA dog.\nTwo dogs.\tZwei Hunde.\n")
    (place / "labels.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    (place / "names.jsonl").write_text('{"fr": "Oui.", "it": "Si."}\n')
    (place / "damaged.gz").write_bytes(b"\x1f\x8b\x08broken")
    with zipfile.ZipFile(place / "other.zip", "w") as archive:
        archive.writestr("c.fr-it.fr", "Oui.\n")
        archive.writestr("c.fr-it.it", "Si.\n")
    os.mkfifo(place / "pipe")
    (place / "full").mkdir()
    (place / "full" / "letter").write_text("Dear Sir")
    return place


MODEL, BOTH = ["--model", "model"], ["--model", "model", "--reverse", "opposite"]
MISTAKES = {
    "no threshold": (["en", "de", *MODEL], "--model needs a threshold; give --keep SHARE or --max-score SCORE"),
    "two thresholds": (["en", "de", *MODEL, "--keep", "0.5", "--max-score", "3"], "--keep and --max-score are two "
                       "thresholds; give one"),
    "a threshold of no score": (["en", "de", "--keep", "0.5"], "--keep is for scores; add --model"),
    "a reverse model alone": (["en", "de", "--reverse", "opposite"], "--reverse is for scores; add --model"),
    "a difference of one": (["en", "de", *MODEL, "--keep", "0.5", "--difference", "1"], "--difference is for two"),
    "a device for nothing": (["en", "de", "--device", "cpu"], "--device is for scores; add --model"),
    "a reverse model of the same direction": (["en", "de", *MODEL, "--reverse", "model", "--keep", "1"],
                                              "model: translates en-de, but --reverse must translate de-en"),
    "models in the wrong order": (["en", "de", "--model", "opposite", "--reverse", "model", "--keep", "1"],
                                  "en: 100 % of the clear sources of a sample are English, not German; swap the sides"),
    "swapped sides": (["de", "en", *BOTH, "--keep", "1"], "de: 100 % of the clear sources of a sample are German, not "
                      "English; swap the sides, give another corpus or model, or --force"),
    "swapped sides in small shards": (["de", "en", *BOTH, "--keep", "1", "--shard-lines", "3"], "de: 100 % of the "
                                      "clear sources of a sample are German, not English; swap the sides"),
    "another direction": (["en", "de", *MODEL, "--keep", "1", "--from", "fr"], "model has en alone"),
    "sides of unequal length": (["en", "short"], "en has 40 lines but "),
    "an empty corpus": (["empty", "empty"], "empty: no lines"),
    "a missing corpus": (["en", "nowhere"], "nowhere: cannot be read (No such file or directory)"),
    "a truncated corpus": (["damaged.gz", "damaged.gz"], "damaged.gz: damaged after line 0"),
    "one text": (["en"], "en: not a corpus; give two text files SOURCE and TARGET, or one .tsv, .csv, .jsonl, .tmx or "
                 ".zip"),
    "three texts": (["en", "de", "short"], "en de short: not a corpus"),
    "two tables": (["short.tsv", "short.tsv"], "short.tsv short.tsv: not a corpus; give two text files"),
    "a text and a table": (["en", "short.tsv"], "en short.tsv: not a corpus; give two text files"),
    "texts with labels": (["labels.tsv"], "labels.tsv: texts with labels, not pairs"),
    "a short row": (["short.tsv"], "short.tsv: line 2 has 1 column instead of"),
    "other columns": (["names.jsonl", "--from", "en", "--to", "de"], "names.jsonl: line 1: no column 'en'; it "
                      "has 'fr', 'it'"),
    "an archive of other languages": (["other.zip", "--from", "en", "--to", "de"], "other.zip: its text files are "
                                      "c.fr-it.fr, c.fr-it.it; name the languages of source and target"),
    "an archive without languages": (["other.zip"], "other.zip: its text files are c.fr-it.fr, c.fr-it.it; name the "
                                     "languages of source and target by these endings, such as fr, or extract"),
    "a language that cannot be written": (["en", "de", "--from", "\udcff"], "is not a language; give a code or name"),
    "a folder": (["full"], "full: a folder; name a file"),
    "a pipe": (["pipe", "de"], "pipe: a pipe, which can be read only once; write its text to a file first"),
    "a folder of something else": (["en", "de", "-o", "full"], "full: exists already, and has no filter.json"),
    "an unknown executor": (["en", "de", "--executor", "ray"], "executor 'ray': not an executor; give local, or dask"),
    "workers of a cluster": (["en", "de", "--executor", "dask:a", "--workers", "2"], "--workers is for --executor"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(mistake, made, monkeypatch, capsys):
    options, message = MISTAKES[mistake]
    monkeypatch.chdir(made)
    before = sorted(made.rglob("*"))
    assert main(["filter", *options, *([] if "-o" in options else ["-o", "new"])]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if not line.startswith("s2s: warning: "))
    assert message in line
    assert sorted(made.rglob("*")) == before


def test_another_command_is_refused_with_the_difference(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    assert main(["filter", "en", "de", "-o", "kept"]) == 0
    assert main(["filter", "en", "de", "-o", "kept", "--max-ratio", "2"]) == 2
    assert "kept: was made by another command: options.max_ratio 3.0 there, 2.0 here" in capsys.readouterr().err
    Path("de").write_text("".join(f"{line}\n" for line in GERMAN[::-1] * 20))
    assert main(["filter", "en", "de", "-o", "kept"]) == 2
    assert "kept: was made by another command: en or de has other lines than there; name" in capsys.readouterr().err
    Path("de").write_text("".join(f"{line}\n" for line in GERMAN * 20))


@pytest.mark.parametrize("changed", ["model", "opposite"])
def test_a_model_that_changed_is_told_by_its_name(changed, made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    command = ["filter", "en", "de", *BOTH, "--keep", "1", "-o", f"scored-{changed}", "--max-ratio", "9"]
    assert main(command) == 0
    path = made / changed / "generation_config.json"
    content = path.read_bytes()
    path.write_bytes(content + b" ")
    assert main(command) == 2
    told = f"another command: {changed} has other weights or files than the model there; name another folder"
    assert told in capsys.readouterr().err
    path.write_bytes(content)


def test_a_corpus_in_other_languages_may_be_forced(made, monkeypatch, capsys):
    """It is not refused; a rule leaves out each pair."""
    monkeypatch.chdir(made)
    assert main(["filter", "de", "en", "--from", "en", "--to", "de", "-o", "forced", "--force"]) == 2
    assert capsys.readouterr().out == "0 pairs of 40 lines in forced\nleft out: language 40\n"
