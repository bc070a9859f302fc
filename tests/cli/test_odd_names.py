"""File names that are not UTF-8, as old archives and other systems leave them: they work, or one line refuses them."""

import contextlib
import io
import os
import sys
from pathlib import Path

import pytest
from support.wrong_files import CONFIG, TEXTS

from seq2seq.cli import main

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
