"""Mistakes that `s2s augment` refuses before it writes anything, each in one line with the remedy."""

import os
import re
import shutil
from pathlib import Path

import pytest
from support.converted import converted_engine
from support.foreign_models import make_marian
from support.our_models import make_ours

from seq2seq.cli import main
from seq2seq.config.schema import SearchConfig
from seq2seq.workflows.parts import folder_record

GERMAN = ["Der alte Mann geht mit seinem Hund langsam durch den Park.", "Zwei Kinder spielen auf der Straße Fußball."]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with untrained models, texts, and a folder of pairs of another command."""
    place = tmp_path_factory.mktemp("refusals")
    make_ours(place / "model", True, ending=1.0)
    make_marian(place / "marian")
    shutil.copytree(place / "model", place / "twin")
    texts = {"text": ["A man."] * 3, "two": ["Ein Mann."] * 2, "german": GERMAN * 20, "empty": [], "blank": [""] * 3}
    for name, lines in texts.items():
        (place / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (place / "table.tsv").write_text("A man.\tEin Mann.\n" * 3)
    (place / "x.jsonl").write_text('{"en": "A man.", "de": "Ein Mann."}\n' * 3)
    (place / "x.tmx").write_text('<tmx version="1.4"><body><tu/></body></tmx>')
    (place / "x.html").write_text("<!doctype html>\n<p>A man.</p>\n")
    (place / "x.mac").write_bytes(b"A man.\rA dog.\rA cat.\r")
    (place / "damaged.gz").write_bytes(b"\x1f\x8b\x08broken")
    os.mkfifo(place / "pipe")
    (place / "full").mkdir()
    (place / "full" / "letter").write_text("Dear Sir")
    return place


MISTAKES = {
    "another language": (["--text", "german"], "are German, but the model translates from English; give another "
                         "text or model, or --force"),
    "another language in small shards": (["--text", "german", "--shard-lines", "3"], "are German, but the model "
                                         "translates from English; give another text or model, or --force"),
    "an empty text": (["--text", "empty"], "empty: no lines"),
    "a missing text": (["--text", "nowhere"], "nowhere: cannot be read (No such file or directory)"),
    "a truncated text": (["--text", "damaged.gz"], "damaged.gz: damaged after line 0"),
    "a text twice": (["--text", "text", "--text", "text"], "a --text is given twice; name each once"),
    "a tag of two words": (["--tag", "two words"], "--tag: 'two words' cannot be a piece; give one word such "
                           "as <back>, but no special piece"),
    "a special piece": (["--tag", "<unk>"], "--tag: '<unk>' cannot be a piece; give one word such as <back>, but"),
    "a tag of targets": (["--tag", "<b>", "--kind", "forward"], "--tag is for synthetic sources"),
    "no calibration": (["--min-confidence", "0.3"], "model: has no confidence (it is not calibrated); calibrate it "
                       "with s2s align model SOURCE TARGET --calibrate, or leave out --min-confidence"),
    "a folder of something else": (["-o", "full"], "full: exists already, and has no augment.json; name a new folder"),
    "a reference without its use": (["--reference", "text"], "--keep chrf and --reference belong together"),
    "a use without a reference": (["--keep", "chrf", "--n-best", "2"], "--keep chrf and --reference belong together"),
    "a text in a table": (["--text", "table.tsv"], "table.tsv: this looks like a table with tabs (TSV); translate one "
                          "column of it (cut -f 1 FILE), or give --force"),
    "a reference in a table": (["--keep", "chrf", "--n-best", "2", "--reference", "table.tsv"], "table.tsv: this"),
    "held-out objects": (["--held-out", "x.jsonl"], "x.jsonl: this looks like JSON; extract the text"),
    "a held-out translation memory": (["--held-out", "x.tmx"], "x.tmx: this looks like a translation memory (TMX)"),
    "a text in HTML": (["--text", "x.html"], "x.html: this looks like HTML; write its sentences into a file"),
    "line ends of Mac OS": (["--text", "x.mac"], "x.mac: this looks like text with the line ends of classic Mac OS"),
    "a short reference": (["--keep", "chrf", "--n-best", "2", "--reference", "two"], "--text text has 3 lines, "
                          "but --reference two has 2; line i of the reference must translate line i of its text"),
    "references of other files": (["--keep", "chrf", "--n-best", "2", "--text", "text", "--text", "two", "--reference",
                                   "two", "--reference", "text"], "--text text has 3 lines, but --reference two has"),
    "fewer references": (["--keep", "chrf", "--n-best", "2", "--text", "text", "--text", "two", "--reference", "text"],
                         "two: no --reference belongs to this --text; give one --reference for each --text"),
    "one candidate": (["--keep", "mbr"], "--keep mbr chooses among several translations; give --n-best 2 or more"),
    "no choice": (["--n-best", "3"], "--n-best needs --keep chrf or mbr"),
    "confidence of another": (["--keep", "mbr", "--n-best", "2", "--min-confidence", "0.1"], "--min-confidence judges "
                              "the best translation; leave it out, or --keep"),
    "draws of CTranslate2": (["--sample", "--engine", "ctranslate2"], "--sample: CTranslate2 cannot repeat its draws"),
    "a draw without draws": (["--top-k", "3"], "--top-k is for random draws; add --sample"),
    "a beam of draws": (["--sample", "--beam-size", "3"], "--beam-size is for a search; leave out --sample"),
    "unknown noise": (["--noise", "typo=0.1"], "--noise: 'typo' is not a kind of noise; did you mean 'typos'?"),
    "noise twice": (["--noise", "typos=0.1,typos=0.2"], "--noise typos: given twice; give it once"),
    "no number": (["--noise", "seed=x"], "--noise seed: must be a whole number from 0 to 4,294,967,295, not 'x'"),
    "a negative seed": (["--noise", "seed=-1"], "--noise seed: must be a whole number from 0 to 4,294,967,295, not"),
    "a device": (["--text", "/dev/null"], "/dev/null: a device; write its text to a file first"),
    "too much noise": (["--noise", "typos=2"], "--noise typos: must be a share from 0 to 1, not '2'"),
    "an unknown executor": (["--executor", "ray"], "executor 'ray': not an executor; give local, or dask:ADDRESS"),
    "workers of a cluster": (["--executor", "dask:a", "--workers", "2"], "--workers is for --executor local"),
    "one of each": (["--each"], "--each is for several MODELs"),
    "another direction": (["--from", "fr"], "model has en alone; name another model"),
    "a pipe": (["--text", "pipe"], "pipe: a pipe, which can be read only once; write its text to a file first"),
    "an output over its input": (["-o", "text"], "text: exists already, and has no augment.json; name a new folder"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(mistake, made, monkeypatch, capsys):
    options, message = MISTAKES[mistake]
    monkeypatch.chdir(made)
    before = sorted(made.rglob("*"))
    options = options if "--text" in options else ["--text", "text", *options]
    options = options if "-o" in options else ["-o", "new", *options]
    assert main(["augment", "model", *options]) == 2
    (line,) = (
        line for line in capsys.readouterr().err.splitlines() if not re.search("^s2s: engine|is not in a run", line)
    )
    assert message in line
    assert sorted(made.rglob("*")) == before


PAIRS = {
    "a model twice": (["model", "model"], "a MODEL is given twice; name each once"),
    "another vocabulary": (["model", "marian"], "its vocabulary is not that of"),
    "confidence of an ensemble": (["model", "twin", "--min-confidence", "0.1"], "--min-confidence needs the attention "
                                  "of one MODEL; an ensemble has several"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", PAIRS)
def test_models_that_do_not_go_together_are_refused(mistake, made, monkeypatch, capsys):
    arguments, message = PAIRS[mistake]
    monkeypatch.chdir(made)
    (made / "twin" / "README.md").write_text("twin")
    assert main(["augment", *arguments, "--text", "text", "-o", "new"]) == 2
    assert message in capsys.readouterr().err
    assert not (made / "new").exists()


def test_another_command_is_refused_and_a_dry_run_writes_nothing(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    arguments = ["augment", "model", "--text", "text", "-o", "pairs"]
    assert main([*arguments, "--dry-run"]) == 0
    assert "3 lines in 1 part; nothing is written" in capsys.readouterr().out
    assert not Path("pairs").exists()
    assert main(arguments) == 2  # an untrained model leaves no pair, in a complete folder
    assert "pairs: has no pairs" in capsys.readouterr().err
    for more in ((), ("--dry-run",)):
        assert main([*arguments, "--beam-size", "2", *more]) == 2
        assert "pairs: was made by another command: options.beam_size 3 there, 2 here" in capsys.readouterr().err
    assert main([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out == "3 lines in 1 part, of which 1 is there; nothing is written\n"
    assert main([*arguments[:-1], "narrow", "--shard-lines", "1"]) == 2
    Path("narrow/part-00001.jsonl.gz").unlink()
    capsys.readouterr()
    assert main([*arguments[:-1], "narrow", "--shard-lines", "1", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("3 lines in 3 parts, of which 2 are there; nothing is written\n")
    assert said.endswith(" minutes for the others\n")
    shutil.rmtree("narrow")
    assert main([*arguments[:-1], "narrow", "--beam-size", "2"]) == 2
    capsys.readouterr()
    for more in ((), ("--dry-run",)):
        assert main([*arguments[:-1], "narrow", *more]) == 2
        assert "narrow: was made by another command: options.beam_size 2 there, 3 here" in capsys.readouterr().err


CHANGES = {
    "first/generation_config.json": "models/first has other weights or files than the model there",
    "second/config.json": "models/second has other weights or files than the model there",
    "text": "text has other lines than there",
    "reference": "reference has other lines than there",
    "held": "other lines are held out",
}


@pytest.mark.parametrize("each", [[], ["--each"]], ids=["ensemble", "each"])
def test_what_changed_since_a_folder_was_made_is_told_by_its_name(each, made, tmp_path, monkeypatch, capsys):
    """Models and texts are told apart by digests, which say nothing to people."""
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    paths = {name: Path(name) if "/" not in name else Path("models") / name for name in CHANGES}
    for model in ("first", "second"):
        shutil.copytree(made / "model", Path("models") / model)
    for name in ("text", "reference", "held"):
        Path(name).write_text("A man.\n")
    sets = ["--text", "text", "--reference", "reference", "--held-out", "held", "-o", "pairs"]
    chosen = ["--kind", "forward", "--keep", "chrf", "--beam-size", "2", "--n-best", "2"]
    command = ["augment", "models/first", "models/second", *each, *sets, *chosen]
    assert main(command) == 2  # the folder is complete, without pairs
    capsys.readouterr()
    for name, path in paths.items():
        content = path.read_bytes()
        path.write_bytes(content + (b" " if path.suffix == ".json" else b"A dog.\n"))
        if name in ("text", "reference"):
            path.write_bytes(b"A dog.\n")
        assert main(command) == 2
        told = capsys.readouterr().err.splitlines()[-1]
        assert f"pairs: was made by another command: {CHANGES[name]}; name another folder" in told
        path.write_bytes(content)
    assert main([*command, "--dry-run"]) == 0
    alone = [word for word in command if word not in ("models/second", "--each")]
    assert main(alone) == 2
    assert f"another command: models: 2 there, 1 here{';' if each else ''}" in capsys.readouterr().err


def test_a_command_without_pairs_fails_and_its_folder_is_complete(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    for _ in range(2):
        assert main(["augment", "model", "--text", "blank", "-o", "none"]) == 2
        out, err = capsys.readouterr()
        assert out == "0 pairs of 3 lines in none\nleft out: blank 3\n"
        assert "none: has no pairs, so no training can read it; change the text or the options" in err


@pytest.mark.parametrize("stores", [True, False], ids=["stored", "given"])
def test_draws_of_ctranslate2_are_refused_whoever_chose_them(stores, made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    search = SearchConfig(sample=True) if stores else None
    model = make_ours(made / f"drawing {stores}", True, ending=1.0, search=search)
    converted_engine(model, made / f"export {stores}")
    sampled = [] if stores else ["--sample"]
    for options in [[f"export {stores}"], [f"drawing {stores}", "--engine", "ctranslate2"]]:
        assert main(["augment", *options, "--text", "text", "-o", "drawn", *sampled]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert "CTranslate2 cannot repeat its draws" in error
        assert ("name the model that it was converted from" in error) == ("--engine" not in options)
        assert not Path("drawn").exists()


@pytest.mark.parametrize("kind", ["ours", "exported", "marian"])
def test_a_model_is_known_by_the_files_that_it_consists_of(kind, made, tmp_path):
    model = tmp_path / "model"
    match kind:
        case "ours":
            make_ours(model)
            (model / "details.json").write_text("{}")
        case "exported":
            converted_engine(make_ours(tmp_path / "whole"), model)
        case _:
            shutil.copytree(made / "marian", model)
    before, paths = folder_record(model), sorted(path for path in model.iterdir() if not path.name.startswith("README"))
    for path in paths:
        content = path.read_bytes()
        path.write_bytes(content + b" ")
        assert folder_record(model) != before, path.name
        path.write_bytes(content)
    (model / "README.md").write_text("another card")
    (model / ".hidden").write_text("")
    assert folder_record(model) == before
    (model / "notes.txt").write_text("try it with a larger beam")
    assert (folder_record(model) == before) == (kind != "marian"), "the files of another toolkit are not known"
