"""What the command line is given and cannot use is refused or named: options twice, options that exclude each other,
and text on standard input that no one reads. Each `-o` that names a folder makes the folders above it."""

import sys
from pathlib import Path

import click
import pytest
from support.every_command import commands
from support.our_models import make_classifier, make_ours

from seq2seq import cli
from seq2seq.cli.commands import Command

COMMANDS = commands()
OPTIONS = [
    (words, option)
    for words, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option)
]
ONCE = [pair for pair in OPTIONS if not pair[1].multiple]
REPEATABLE = [pair for pair in OPTIONS if pair[1].multiple]


def typed(option: click.Option, number: int = 1) -> list[str]:
    """An option with some value, as typed."""
    name = option.opts[number % len(option.opts)]
    if option.is_flag:
        return [name]
    kind = option.type
    return [name, kind.choices[0] if isinstance(kind, click.Choice) else f"a{number}=1" if name == "--set" else "1"]


def one_line(capsys, *arguments) -> str:
    """The one line with which a command line is refused."""
    assert cli.main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_every_command_is_of_the_class_that_counts_options():
    assert len(COMMANDS) > len(cli.VERBS)
    assert all(isinstance(command, Command) for command in COMMANDS.values())


def named(pairs) -> list[str]:
    return [" ".join([*words, option.opts[-1]]) for words, option in pairs]


@pytest.mark.parametrize(("words", "option"), ONCE, ids=named(ONCE))
def test_an_option_that_is_not_repeatable_is_refused_the_second_time(words, option, capsys):
    line = one_line(capsys, *words, *typed(option, 0), *typed(option, 1))
    assert f"{option.opts[-1]} is given 2 times" in line
    assert f"s2s {' '.join(words)} --help" in line


@pytest.mark.parametrize(("words", "option"), REPEATABLE, ids=named(REPEATABLE))
def test_a_repeatable_option_keeps_all_its_values(words, option):
    command = COMMANDS[words]
    others = [other for other in command.params if isinstance(other, click.Option) and other is not option]
    needed = [word for other in others if other.required for word in typed(other, 0)]
    values = [*typed(option, 0), *typed(option, 1)]
    context = command.make_context(words[-1], [*needed, *values, "x"], resilient_parsing=False)
    assert len(context.params[option.name]) == 2


REFUSED = [
    (["train", "c.yaml", "--dry-run", "--overwrite"], "--overwrite"),
    (["translate", "--top-k", "3"], "--top-k"),
    (["translate", "--seed", "3"], "--seed"),
    (["translate", "--sample", "--beam-size", "3"], "--beam-size"),
    (["translate", "--each-line"], "--each-line"),
    (["translate", "--details", "words"], "--details"),
    (["translate", "a", "b", "--details", "words", "--format", "jsonl"], "--details"),
    (["translate", "a", "b", "--glossary", "g.tsv"], "--glossary"),
    (["translate", "--glossary", "g.tsv", "--n-best", "2"], "--n-best"),
    (["translate", "--glossary", "g.tsv", "--sample"], "--sample"),
    (["translate", "--glossary", "g.tsv", "--prefix-file", "p"], "--prefix-file"),
    (["translate", "--input-format", "html", "--n-best", "2"], "--n-best"),
    (["translate", "--input-format", "html", "--sample"], "--sample"),
    (["translate", "--input-format", "html", "--prefix-file", "p"], "--prefix-file"),
    (["translate", "--input-format", "html", "--format", "jsonl"], "--format"),
    (["translate", "a", "b", "--input-format", "xml"], "--input-format"),
    (["translate", "{model}", "--engine", "torch", "--quantization", "int8"], "--quantization"),
    (["translate", "{model}", "--precision", "bfloat16", "--quantization", "int8"], "--precision"),
    (["translate", "{model}", "{model}", "--engine", "ctranslate2"], "ctranslate2"),
    (["translate", "{model}", "--record", "on", "--device", "cpu"], "--record on"),
    (["translate", "{model}", "--record", "on", "--engine", "ctranslate2"], "--record on"),
    (["bleu", "r", "h", "--record", "off"], "--record"),
    (["bleu", "r", "h", "--source", "s"], "--source"),
    (["bleu", "r", "h", "--test-set", "t"], "--test-set"),
    (["bleu", "r", "h", "--device", "cpu"], "--device"),
    (["bleu", "r", "h", "-m", "chrf,ter", "--tokenize", "intl"], "--tokenize"),
    (["bleu", "r", "h", "-m", "ter", "--lowercase"], "--lowercase"),
    (["bleu", "r", "h", "-b", "-f", "json"], "-b"),
    (["bleu", "r", "h", "i", "-b"], "-b"),
    (["bleu", "r", "h", "i", "-f", "json", "-w", "3"], "-w"),
    (["bleu", "r", "h", "i", "--sentence-level"], "--sentence-level"),
    (["bleu", "r", "h", "--sentence-level", "--confidence"], "--confidence"),
    (["bleu", "r", "h", "--sentence-level", "-b"], "-b"),
    (["bleu", "r", "--model", "m"], "--reference"),
    (["bleu", "--model", "m", "--source", "s", "-r", "r", "--test-set", "t"], "--test-set"),
    (["bleu", "--model", "m", "--model", "n", "-o", "out"], "-o"),
    (["classify", "--gold", "g.tsv", "-i", "x"], "--gold"),
    (["classify", "--gold", "g.tsv", "--format", "jsonl"], "--format"),
    (["classify", "--format", "json"], "--format"),
    (["serve", "--open", "--key-file", "k"], "--open"),
    (["align", "m", "s", "t", "--calibrate", "-o", "x"], "-o"),
    (["align", "m", "s", "t", "--calibrate", "--batch-tokens", "9"], "--batch-tokens"),
    (["glossary", "check", "g.tsv", "--model", "m"], "--corpus"),
    (["glossary", "check", "g.tsv", "--threads", "1"], "--threads"),
    (["glossary", "check", "g.tsv", "--from", "en"], "--from"),
    (["glossary", "check", "g.tsv", "--corpus", "c", "--to", "de"], "--to"),
    (["check", "a", "b", "--set", "seed=2"], "--set"),
    (["check", "c.yaml", "--source-language", "en"], "--source-language"),
    (["check", "x.jsonl", "--source-language", "en"], "--target-language"),
    (["check", "a", "b", "-f", "json", "--examples", "1"], "--examples"),
    (["tune", "{model}", "--source", "s"], "--reference"),
    (["average", "{model}", "-o", "o", "--weights", "1,2"], "--weights"),
    (["vocabulary", "trim", "{model}", "--corpus", "s", "-o", "o", "--languages", "en"], "--languages"),
    (["convert", "m", "-o", "o", "--to", "marian", "--quantization", "int8"], "--quantization"),
    (["convert", "m", "-o", "o", "--to", "ctranslate2", "--reference", "r"], "--reference"),
    (["convert", "m", "-o", "o", "--to", "ctranslate2", "--pickle"], "--pickle"),
    (["convert", "m", "-o", "o", "--to", "ctranslate2", "--source-language", "en"], "--source-language"),
    (["convert", "m", "-o", "o", "--to", "argos", "--from", "marian"], "--from"),
    (["bench", "train", "--steps", "2", "--seconds", "3"], "--seconds"),
    (["bench", "train", "--batch-tokens", "9", "--set", "training.batch_tokens=8"], "--batch-tokens"),
    (["bench", "decode", "--greedy", "--beam-size", "4"], "--beam-size"),
    (["bench", "decode", "--peer", "none", "--batch-size", "4"], "--batch-size"),
    (["bench", "decode", "--reference", "r"], "--reference"),
    (["bench", "decode", "--engine", "torch", "--quantization", "int8"], "--quantization"),
    (["bench", "decode", "--engine", "ctranslate2", "--record", "off"], "--record"),
    (["compare", "a", "b", "--source", "s"], "--source"),
    (["compare", "a", "b", "-r", "r", "--test-set", "t"], "--test-set"),
    (["compare", "{model}", "b", "-r", "r"], "b: no such file"),
    (["runs", "--format", "jsonl", "--columns", "step"], "--columns"),
    (["info", "--cache", "--clear-cache"], "--clear-cache"),
    (["info", "m", "--cache"], "MODEL"),
    (["info", "m", "--clear-cache"], "--clear-cache"),
    (["info", "--clear-cache", "-f", "json"], "--format"),
    (["plot", "--layer", "1"], "--layer"),
    (["plot", "--target", "x"], "--target"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    make_ours(folder / "model", ending=3.0, norm_position="post", position_layout="halves")  # as Marian has them
    make_classifier(folder / "classifier", ["good", "bad"])
    return folder


@pytest.mark.parametrize(("arguments", "name"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_an_option_that_could_do_nothing_is_refused_by_name(models, arguments, name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert name in one_line(capsys, *(argument.format(model=models / "model") for argument in arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["translate", "classify"])
@pytest.mark.parametrize(
    ("path", "stdin", "is_named"),
    [("text", "other", True), ("text", "/dev/null", False), ("-", "text", False), ("/dev/stdin", "text", False)],
)
def test_text_on_standard_input_beside_a_file_is_named(
    models, verb, path, stdin, is_named, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("A line.\n")
    Path("other").write_text("Another line.\nA second one.\n")
    model = models / {"translate": "model", "classify": "classifier"}[verb]
    with open(stdin) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        if path == "/dev/stdin":
            path = f"/dev/fd/{stream.fileno()}"  # what it is, where the stream is not descriptor 0
        assert cli.main([verb, str(model), "-i", path]) == 0
    captured = capfd.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert ("standard input is not read" in captured.err) == is_named


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_text_that_a_command_of_files_does_not_read_is_named(words, tmp_path, monkeypatch, caplog):
    command = COMMANDS[words]
    monkeypatch.setattr(command, "callback", lambda: None)
    (tmp_path / "text").write_text("A line.\n")
    with open(tmp_path / "text") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        with click.Context(command, info_name=" ".join(words)) as context:
            command.invoke(context)
    named = f"standard input is not read, because {' '.join(words)} reads files"
    assert (named in caplog.text) != command.reads_input
    assert command.reads_input == (words[0] in ("translate", "classify", "bleu"))


@pytest.mark.parametrize("stdin", ["other", "text"])
def test_a_command_of_files_may_read_standard_input_as_one(models, stdin, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("A line.\n")
    Path("other").write_text("Another line.\n")
    with open(stdin) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert cli.main(["score", str(models / "model"), "text", "text"]) == 0
    captured = capfd.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert ("standard input is not read" in captured.err) == (stdin == "other")


def test_a_key_that_is_set_twice_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    changes = ["--set", "seed=1", "--set", "model.dropout=0.1", "--set", "seed=2"]
    assert cli.main(["train", "missing.yaml", *changes]) == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert "--set seed is given 2 times; the last value counts" in warning
    assert "missing.yaml" in error


# -- folders above an output -----------------------------------------------------------------------

MAKING = {
    "average": ["average", "{model}", "{model}"],
    "vocabulary": ["vocabulary", "trim", "{model}", "--corpus", "text"],
    "augment": ["augment", "{model}", "--text", "text"],
    "filter": ["filter", "text", "other", "--model", "{model}", "--keep", "1"],
    "tune": ["tune", "{model}", "--source", "text", "--reference", "text"],
    "to marian": ["convert", "{model}", "--to", "marian"],
    "to ctranslate2": ["convert", "{model}", "--to", "ctranslate2", "--force"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKING)
def test_an_output_that_is_a_folder_may_be_in_folders_that_are_not_there(name, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("two dogs play in the snow\n")
    Path("other").write_text("zwei Hunde spielen im Schnee\n")
    code = cli.main([*(argument.format(model=models / "model") for argument in MAKING[name]), "-o", "models/new/my"])
    assert code == 0
    assert any(Path("models/new/my").iterdir())
