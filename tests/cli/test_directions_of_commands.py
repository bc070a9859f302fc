"""Every command that takes a model of many languages with `--from` and `--to` means the same direction by them.

The model is an NLLB that knows German translations of a few lines by heart.
"""

import gzip
import json
from pathlib import Path

import pytest
from support.every_command import commands
from support.foreign_models import SOURCE, TARGET

from seq2seq.cli import main

DIRECTED = {words for words, command in commands().items() if {"--from", "--to"} <= {
    name for option in command.params for name in option.opts} and words != ("convert",)}  # fmt: skip
FILES = ["--source", "lines", "--reference", "gold"]
# What is typed for each command, OUT being a new file or folder.
WORK = {
    ("translate",): ["ours", "-i", "lines", "-o", "OUT"],
    ("score",): ["ours", "lines", "gold"],
    ("align",): ["ours", "lines", "gold"],
    ("bleu",): ["--model", "ours", *FILES, "-m", "chrf", "-f", "json"],
    ("compare",): ["ours", "other", *FILES, "-m", "chrf", "-f", "json"],
    ("plot",): ["ours", "--attention", SOURCE[0], "-o", "OUT.png"],
    ("augment",): ["ours", "--text", "lines", "--kind", "forward", "--force", "-o", "OUT"],
    ("filter",): ["lines", "gold", "--model", "ours", "--reverse", "ours", "--keep", "1", "--force", "-o", "OUT"],
    ("tune",): ["ours", *FILES, "-m", "chrf", "-o", "OUT"],
    ("glossary", "check"): ["terms", "--corpus", "lines", "--model", "ours", "-f", "json"],
    ("bench", "decode"): ["ours", "-i", "lines", "--peer", "none"],
    ("bench", "serve"): ["ours", "-i", "lines"],
}
# `distill` has the direction of its config, and `serve` restricts its directions (tests/serve/test_serve_languages.py).
WITHOUT_NEED = {("distill",), ("serve",)}
MEASURED = {("bench", "decode"), ("bench", "serve")}  # the figures are speeds
SLOW = {("tune",), ("plot",)}


@pytest.fixture(scope="module")
def place(trained_nllb, tmp_path_factory) -> Path:
    """A folder with the model and files."""
    place = tmp_path_factory.mktemp("directed")
    assert main(["convert", str(trained_nllb), "--from", "nllb", "-o", str(place / "ours")]) == 0
    terms = ["cat\tKatze", "dog\tHund", "book\tBuch", "house\tHaus", "station\tBahnhof", "rains\tregnet"]
    other = [line.upper() for line in TARGET]
    for name, lines in (("lines", SOURCE), ("gold", TARGET), ("other", other), ("terms", terms)):
        (place / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


@pytest.fixture(autouse=True)
def _inside(place, monkeypatch):
    monkeypatch.chdir(place)


def answer(words: tuple[str, ...], languages: list[str], folder: Path, capfd) -> tuple[object, ...]:
    """Return what a command writes: its standard output, and its files except those about the command.

    `filter` fails in a direction in which no pair is left.
    """
    folder.mkdir()
    typed = [word.replace("OUT", str(folder / "out")) for word in WORK[words]]
    capfd.readouterr()
    code, out = main([*words, *typed, *languages]), capfd.readouterr().out
    assert code == (2 if out.startswith("0 pairs") else 0)
    files = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".md", ".json")}
    contents = {path.relative_to(folder): path.read_bytes() for path in files}
    return out.replace(str(folder), ""), contents


def test_every_command_with_directions_is_here():
    assert WORK.keys() | WITHOUT_NEED == DIRECTED


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=[pytest.mark.slow] * (words in SLOW)) for words in WORK if words not in MEASURED],
    ids=" ".join,
)
def test_a_direction_is_the_same_under_all_its_names(words, tmp_path, capfd):
    """And another one has another answer."""
    one = answer(words, ["--from", "en", "--to", "de"], tmp_path / "one", capfd)
    assert answer(words, ["--from", "English", "--to", "deu_Latn"], tmp_path / "other", capfd) == one
    assert answer(words, ["--from", "en", "--to", "ja"], tmp_path / "ja", capfd) != one


@pytest.mark.parametrize("words", WORK, ids=" ".join)
def test_a_direction_that_is_missing_or_unknown_is_one_line(words, tmp_path, capfd):
    typed = [word.replace("OUT", str(tmp_path / "out")) for word in WORK[words]]
    for languages, message in (
        ([], "name the languages with --from and --to; it has"),
        (["--from", "en"], "name the languages with --from and --to; it has"),
        (["--from", "en", "--to", "germn"], "--to germn: not a language of the model; did you mean 'german'"),
        (["--from", "englsh", "--to", "de"], "--from englsh: not a language of the model; did you mean 'english'"),
    ):
        assert main([*words, *typed, *languages]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert message in err.splitlines()[-1]
        assert not list(tmp_path.iterdir())


def test_the_texts_and_figures_are_those_of_translate_and_score(tmp_path, capfd):
    """Law: `augment` gives the translations of `translate`, `bleu` and `compare` score these, and `filter` scores a
    pair as `score` does, in both directions."""
    languages = ["--from", "en", "--to", "de"]
    assert main(["translate", "ours", "-i", "lines", "-o", str(tmp_path / "texts"), *languages]) == 0
    texts = (tmp_path / "texts").read_text(encoding="utf-8").splitlines()
    answer(("augment",), languages, tmp_path / "augmented", capfd)
    rows = _rows(tmp_path / "augmented" / "out")
    assert len(rows) > len(SOURCE) / 2
    assert all(row["target"] == texts[row["origin"][1] - 1] for row in rows)
    assert main(["bleu", "gold", str(tmp_path / "texts"), "-m", "chrf", "-f", "json"]) == 0
    chrf = json.loads(capfd.readouterr().out)["score"]
    assert json.loads(answer(("bleu",), languages, tmp_path / "scored", capfd)[0])["score"] == chrf
    compared = json.loads(answer(("compare",), languages, tmp_path / "compared", capfd)[0])["rows"]["ours"]
    assert next(iter(compared.values()))["score"] == pytest.approx(chrf, abs=0.06)
    figures = []
    for files, sides in ((("lines", "gold"), languages), (("gold", "lines"), ["--from", "de", "--to", "en"])):
        capfd.readouterr()
        assert main(["score", "ours", *files, *sides]) == 0
        figures.append([float(a) / int(b) for a, b in map(str.split, capfd.readouterr().out.splitlines())])
    answer(("filter",), languages, tmp_path / "filtered", capfd)
    judged = [row for row in _rows(tmp_path / "filtered" / "out" / "scores") if "forward" in row]
    assert len(judged) > len(SOURCE) / 2
    for row in judged:
        for name, own in zip(("forward", "reverse"), figures, strict=True):
            assert -row[name] == pytest.approx(own[row["line"] - 1], abs=1e-3)


def _rows(folder: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(folder.glob("part-*.gz")) for line in gzip.open(path, "rt")]
