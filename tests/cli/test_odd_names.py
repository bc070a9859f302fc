"""File names that are not UTF-8, as old archives and other systems leave them: they work, or one line refuses them."""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

import click
import pytest
from support.every_command import commands
from support.run_folders import make_run
from support.wrong_files import CONFIG, TEXTS, save

from seq2seq.cli import main
from seq2seq.cli.check import SPOILED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux")

ODD = "caf\udce9"
RUN = f"runs/{ODD}"
WORK = [
    ["train", f"{ODD}.yaml", "--run-dir", RUN],
    ["train", f"{ODD}.yaml", "--run-dir", RUN, "--set=training.max_steps=2"],
    ["train", f"{ODD}.yaml", "--dry-run"],
    ["translate", RUN, "-i", f"{ODD}.en", "-o", f"{ODD}.de"],
    ["score", RUN, f"{ODD}.en", f"{ODD}.de", "-o", f"{ODD}.gz"],
    ["align", RUN, f"{ODD}.en", f"{ODD}.de", "-o", f"{ODD}.links"],
    ["bleu", "text", f"{ODD}.en", f"{ODD}.de"],
    ["bleu", "--model", RUN, "--source", "text", "--reference", f"{ODD}.en"],
    ["plot", RUN],
    ["plot", RUN, "--attention", f"A {ODD}"],
    ["average", RUN, RUN, "-o", f"{ODD} mean"],
    ["vocabulary", "extend", RUN, "--corpus", f"{ODD}.new", "-o", f"{ODD} large"],
    ["vocabulary", "trim", RUN, "--corpus", f"{ODD}.less", "-o", f"{ODD} small"],
    ["augment", RUN, "--text", f"{ODD}.en", "-o", f"{ODD} pairs"],
    ["filter", f"{ODD}.en", f"{ODD}.de", "--model", RUN, "--keep", "0.5", "-o", f"{ODD} clean", "--force"],
    ["tune", RUN, "--source", f"{ODD}.en", "--reference", f"{ODD}.en", "-o", f"{ODD} tuned"],
    ["info", f"{ODD} mean"],
    ["bench", "serve", RUN, "-i", f"{ODD}.en", "--clients", "2", "--seconds", "0.5", "--sentences", "4"],
]


def s2s(*typed: str) -> tuple[int, str]:
    with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.redirect_stdout(io.StringIO()):
        code = main(list(typed))
    return code, stderr.getvalue()


@pytest.mark.slow
def test_names_that_are_no_utf8_work_from_training_to_pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # for the server that bench starts
    text = "".join(f"{line} {number}\n" for number in range(20) for line in TEXTS)
    for name in ("text", f"{ODD}.en"):
        Path(name).write_text(text)
    Path(f"{ODD}.less").write_text(f"{TEXTS[0]}\n")  # trim finds pieces to remove
    Path(f"{ODD}.new").write_text("日本 語\n" * 5)
    for name in ("run.yaml", f"{ODD}.yaml"):
        Path(name).write_text(CONFIG)
    for typed in WORK:
        code, err = s2s(*typed)
        expected = 2 if "has no pairs" in err else 0  # a model that has learned nothing leaves none
        assert (code, "internal error" in err) == (expected, False), (typed, err)
    for key in ("data.train.source", "data.cache_dir", "training.init_from"):  # a run's config.yaml is UTF-8
        code, err = s2s("train", "run.yaml", "--run-dir", "runs/new", f"--set={key}={ODD}.en")
        assert (code, len(err.splitlines())) == (2, 1), err
        assert key in err
    assert not Path("runs/new").exists()
    assert Path(RUN, "attention.png").stat().st_size
    assert not list(Path().rglob("*\ufffd*")), "a library wrote beside the place"
    Path(RUN, "best", "README.md").read_text(encoding="utf-8")
    code, err = s2s("convert", RUN, "--to", "ctranslate2", "-o", f"{ODD}.ct2", "--force")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "name is not UTF-8; rename it" in err
    assert not os.path.exists(f"{ODD}.ct2")


# -- JSON --------------------------------------------------------------------------------------------

MODEL, SOURCE, TARGET = f"{ODD} model", f"{ODD}.en", f"{ODD}.de"
FEED = [f"{ODD}.yaml", "--seconds", "0.1"]
IN_JSON = {
    ("translate",): [MODEL, "-i", SOURCE],
    ("bleu",): [SOURCE, SOURCE, TARGET],
    ("classify",): [f"{ODD} classifier", "-i", SOURCE],
    ("align",): [MODEL, SOURCE, TARGET],
    ("glossary", "check"): [f"{ODD}.tsv", "--corpus", SOURCE],
    ("check",): [SOURCE, TARGET, "--workers", "1"],
    ("tune",): [MODEL, "--source", SOURCE, "--reference", TARGET],
    ("vocabulary", "trim"): [MODEL, "--corpus", f"{ODD}.few", "-o", f"{ODD} small"],
    ("vocabulary", "extend"): [MODEL, "--corpus", f"{ODD}.new", "-o", f"{ODD} large"],
    ("vocabulary", "transplant"): [MODEL, f"{ODD} other", "-o", f"{ODD} new"],
    ("bench", "train"): [*FEED, "--peer", "none", "--rounds", "1"],
    ("bench", "feed"): FEED,
    ("bench", "decode"): [MODEL, "-i", SOURCE, "--peer", "none", "--rounds", "1", "--sentences", "4"],
    ("bench", "serve"): [MODEL, "-i", SOURCE, "--clients", "1", "--seconds", "0.1", "--sentences", "4"],
    ("compare",): [SOURCE, TARGET, "--reference", SOURCE],
    ("runs", "list"): [f"{ODD} runs"],
    ("runs", "diff"): [f"{ODD} runs/{ODD}", f"{ODD} runs/other"],
    ("info",): [MODEL],
}
SLOW = [typed for typed in IN_JSON if typed[0] in ("bench", "tune", "vocabulary")]


@pytest.fixture(scope="module")
def oddly_named(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    save(folder / MODEL)
    save(folder / f"{ODD} other", vocab_size=310)
    save(folder / f"{ODD} classifier", task="classification")
    for name, dropout in ((ODD, 0.1), ("other", 0.2)):
        make_run(folder / f"{ODD} runs" / name, bleu=20.0, dropout=dropout)
    text = "".join(f"{line} {number}\n" for number in range(20) for line in TEXTS)
    contents = {".en": text, ".de": text.upper(), ".few": TEXTS[0], ".new": "日本 語\n" * 5, ".tsv": "man\tMann\n"}
    for ending, content in contents.items():
        (folder / f"{ODD}{ending}").write_text(content)
    (folder / f"{ODD}.yaml").write_text(CONFIG.replace("text", "plain"))
    (folder / "plain").write_text(text)
    return folder


def formats(command: click.Command) -> list[str]:
    """The forms of JSON in which a command answers."""
    kinds = [option.type for option in command.params if "--format" in option.opts]
    return [name for kind in kinds for name in kind.choices if "json" in name]


def test_every_command_with_json_is_here():
    assert IN_JSON.keys() == {typed for typed, command in commands().items() if formats(command)}


@pytest.mark.parametrize(
    "typed",
    [pytest.param(typed, marks=pytest.mark.slow if typed in SLOW else (), id=" ".join(typed)) for typed in IN_JSON],
)
def test_json_is_utf8_whatever_the_names_are(oddly_named, typed, monkeypatch, capfdbinary):
    monkeypatch.chdir(oddly_named)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    form = formats(commands()[typed])[0]
    code = main([*typed, *IN_JSON[typed], "--format", form])
    out, err = capfdbinary.readouterr()
    assert (code in (0, SPOILED), bool(out)) == (True, True), err
    for whole in out.splitlines() if form == "jsonl" else [out]:
        json.loads(whole.decode("utf-8"))
