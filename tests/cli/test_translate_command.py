"""`s2s translate` as people and scripts meet it: streams, formats, exit codes."""

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.our_models import make_tiny

from seq2seq.cli import main
from seq2seq.config.schema import SearchConfig

ROOT = Path(__file__).parents[2]
TEXTS = ["A man rides a red bicycle.", "Two dogs play in the snow!", "Der Hund schläft, und die Katze sieht zu."]
HOSTILE = [
    b"A man.", b"", b"  ", b"a\xe2\x80\xa8b\xc2\x85c\x0cd\x00e", b"broken \xff\xfe bytes", b"\xed\xa0\x80",
    b"tab\there", b"cr\r", "😀 日本語 עברית\u200f".encode(), b"word " * 60, b"no newline at the end",
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    def decide(transformer, _):
        transformer.output.weight.mul_(3)  # an untrained model is nearly indifferent: its choices would be coin tosses

    search = SearchConfig(max_length_ratio=1.0, max_length_offset=2)
    return make_tiny(tmp_path_factory.mktemp("models") / "best", TEXTS * 10, 320, search, decide, max_length=64)


@pytest.fixture
def lines(tmp_path) -> Path:
    path = tmp_path / "input.txt"
    path.write_bytes(b"\n".join(HOSTILE))
    return path


def translate(*arguments: object) -> int:
    return main(["translate", *map(str, arguments), "--device", "cpu"])


def run_s2s(*arguments: object, **kwargs) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seq2seq", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **kwargs)


def test_lines_in_are_lines_out(model, lines, capfdbinary):
    assert translate(model, "-i", lines) == 0
    out, err = capfdbinary.readouterr()
    translations = out.split(b"\n")
    assert translations.pop() == b""
    assert len(translations) == len(HOSTILE)
    assert [not line.strip() for line in HOSTILE] == [not line for line in translations]
    out.decode("utf-8")
    assert b"input.txt: line 5 is not UTF-8" in err
    assert b"input.txt: line 6 is not UTF-8" in err
    assert b"Traceback" not in err


def test_jsonl_has_every_line_with_its_scores(model, lines, capfd):
    assert translate(model, "-i", lines, "--format", "jsonl", "--n-best", 3) == 0
    answers = [json.loads(line) for line in capfd.readouterr().out.split("\n")[:-1]]
    assert len(answers) == len(HOSTILE)
    for line, answer in zip(HOSTILE, answers, strict=True):
        assert set(answer) == {
            "source", "text", "log_prob", "score", "tokens", "flags", "alternatives", "translation", "normalized_score"
        }  # fmt: skip
        assert answer["source"] == line.decode("utf-8", "replace").removesuffix("\r")
        if line.strip() and "verbatim" not in answer["flags"]:
            texts = {answer["text"], *(one["text"] for one in answer["alternatives"])}
            assert 1 <= len(answer["alternatives"]) == len(texts) - 1 <= 2
            assert answer["score"] == pytest.approx(answer["log_prob"] / answer["tokens"], abs=1e-5)
    assert "split" in answers[-2]["flags"]


def test_stderr_counts_what_came_out_degenerate_and_what_still_is(model, lines, capfd):
    assert translate(model, "-i", lines, "--format", "jsonl", "--beam-size", 1) == 0
    out, err = capfd.readouterr()
    flags = [set(json.loads(line)["flags"]) for line in out.split("\n")[:-1]]
    other = {"split", "repaired", "verbatim", "lost"}
    found = [flag for flag in flags if flag - other]
    repaired = sum("repaired" in flag for flag in found)
    assert 0 < len(found) < len(HOSTILE)
    (told,) = [line for line in err.splitlines() if "came out degenerate" in line]
    assert told.startswith(f"s2s: warning: {len(found)} of {len(HOSTILE)} lines came out degenerate (")
    assert told.endswith(f"; a second search repaired {repaired}, so {len(found) - repaired} remain degenerate")
    for kind in set().union(*found) - other:
        assert f"{kind} {sum(kind in flag for flag in found)}" in told
    for kind, what in (("split", "translated in parts"), ("verbatim", "copied, in full or in part")):
        count = sum(kind in flag for flag in flags)
        assert (f"1 line was {what}" if count == 1 else f"{count} lines were {what}") in err


@pytest.mark.parametrize("kind", ["html", "markdown"])
def test_documents_count_their_sentences_as_lines_are_counted(kind, model, tmp_path, capfd):
    sentences = ["a man", "a man rides his red bicycle", "word " * 60, "日本語", "12 34", "she waves"]
    told = []
    for name, arguments, text in (
        ("lines", (), "\n".join(sentences)),
        (
            "document",
            ("--input-format", kind),
            "\n\n".join(f"<p>{one}</p>" * (kind == "html") or one for one in sentences),
        ),
    ):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert translate(model, "-i", path, "--beam-size", 1, *arguments) == 0
        err = capfd.readouterr().err
        told.append([line for line in err.splitlines() if re.search(r"degenerate|lines? w|sentences? w", line)])
    lines, document = told
    assert any("degenerate" in line for line in lines)
    assert any("copied" in line for line in lines)
    hint = "; --format jsonl shows which"
    assert document == [line.replace("line", "sentence").replace(hint, "") for line in lines]


def test_bleu_counts_degenerate_lines_as_translate_does(model, lines, tmp_path, capfd):
    assert translate(model, "-i", lines) == 0
    told = [line for line in capfd.readouterr().err.splitlines() if "came out degenerate" in line]
    assert main(["bleu", "--model", str(model), "--source", str(lines), "--reference", str(lines)]) == 0
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "came out degenerate" in line]
    assert told == [line.replace("s2s:", "s2s: warning:") + "; --format jsonl shows which"]


def test_n_best_text_names_the_line(model, tmp_path, capfd):
    path = tmp_path / "two.txt"
    path.write_text("A man.\n\nTwo dogs.\n")
    assert translate(model, "-i", path, "--n-best", 2) == 0
    rows = [line.split(" ||| ") for line in capfd.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "2", "2"]
    assert all(len(row) == 3 and float(row[2]) <= 0 for row in rows)
    assert translate(model, "-i", path, "--n-best", 2, "--format", "jsonl") == 0
    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    ranked = [one["score"] for answer in answers for one in (answer, *answer["alternatives"])]
    assert [float(row[2]) for row in rows] == pytest.approx(ranked, abs=1e-4)
    assert float(rows[0][2]) >= float(rows[1][2])
    assert float(rows[3][2]) >= float(rows[4][2])


def test_options_reach_the_search(model, tmp_path, capfd):
    outputs, lines = set(), tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS))
    for options in (
        ["--beam-size", 1],
        ["--beam-size", 1, "--batch-tokens", 1],
        ["--sample", "--seed", 1],
        ["--sample", "--seed", 2],
        ["--sample", "--seed", 1, "--top-k", 1],
        ["--max-length-ratio", 0.1],
    ):
        assert translate(model, "-i", lines, *options) == 0
        outputs.add(capfd.readouterr().out)
    assert len(outputs) == 4  # the batch does not matter, and drawing from one piece is greedy


def test_prefixes_begin_translations(model, tmp_path, capfd):
    (tmp_path / "in.txt").write_text("A man.\nTwo dogs.\n")
    (tmp_path / "prefixes.txt").write_text("Der Hund\n\n")
    assert translate(model, "-i", tmp_path / "in.txt", "--prefix-file", tmp_path / "prefixes.txt") == 0
    assert capfd.readouterr().out.startswith("Der Hund")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 9000])
def test_a_prefix_file_of_another_length_is_told_before_anything_is_translated(model, tmp_path, capfd, count, packed):
    source, prefixes = tmp_path / "in.txt", tmp_path / "prefixes.txt"
    source.write_bytes((gzip.compress if packed else bytes)(b"A man.\nTwo dogs.\n"))
    prefixes.write_text("Der\n" * count)
    assert translate(model, "-i", source, "--prefix-file", prefixes) == 2
    out, err = capfd.readouterr()
    assert out == ""
    remedy = "give one prefix for each line, empty for none"
    assert f"{source} has 2 lines and {prefixes} {count:,}; they must be equal ({remedy})" in err


@pytest.mark.parametrize("count", [1, 3])
def test_a_prefix_file_of_another_length_is_told_behind_a_pipe_too(model, tmp_path, count):
    (tmp_path / "prefixes.txt").write_text("Der\n" * count)
    with run_s2s("translate", model, "--prefix-file", tmp_path / "prefixes.txt", stderr=subprocess.PIPE) as process:
        _, errors = process.communicate(b"A man.\nTwo dogs.\n")
    assert process.returncode == 2
    assert {1: b"prefixes: 1, lines: more than 1", 3: b"prefixes: 3, lines: 2"}[count] in errors


def test_output_file_is_whole_or_not_there(model, lines, tmp_path, capfd):
    output = tmp_path / "out.txt"
    assert translate(model, "-i", lines, "-o", output) == 0
    assert output.read_bytes().count(b"\n") == len(HOSTILE)
    assert translate(model, "-i", lines) == 0
    assert capfd.readouterr().out.encode() == output.read_bytes()
    (tmp_path / "short.txt").write_text("x\n")
    before = output.read_bytes()
    assert translate(model, "-i", lines, "--prefix-file", tmp_path / "short.txt", "-o", output) == 2
    assert output.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.txt", "out.txt", "short.txt"]


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ([], "CTranslate2, float32"),
        (["--engine", "torch"], "PyTorch on cpu (--engine torch)"),
        (["--sample"], "PyTorch on cpu (search.sample)"),
    ],
)
def test_one_line_says_which_engine_and_why(model, lines, capfd, options, note):
    assert translate(model, "-i", lines, *options) == 0
    assert [line for line in capfd.readouterr().err.splitlines() if "engine" in line] == [f"s2s: engine: {note}"]


def test_newest_run_is_used_and_said(model, lines, tmp_path, monkeypatch, capfd):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "latest").symlink_to(model.parent)
    monkeypatch.chdir(tmp_path)
    assert translate("-i", lines) == 0
    assert "best" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["{model}", "-i", "{lines}", "-o", "{lines}"], "same file"),
        (["{model}", "-i", "missing.txt"], "missing.txt"),
        (["{model}", "-i", "{lines}", "-o", "missing/out.txt"], "no folder"),
        (["nowhere", "-i", "{lines}"], "no such folder"),
        (["{model}", "-i", "{lines}", "--beam-size", "0"], "--beam-size"),
        (["{model}", "-i", "{lines}", "--n-best", "9"], "n_best 9 is more than beam_size 5"),
        (["{model}", "-i", "{lines}", "--temperature", "2"], "add --sample"),
        (["{model}", "-i", "{lines}", "--device", "cuda:99"], "cuda"),
        (["{model}", "-i", "{lines}", "--engine", "abacus"], "--engine"),
        (["{model}", "-i", "{lines}", "--beam-sise", "2"], "--beam-sise"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(model, lines, capfd, arguments, problem):
    filled = [argument.format(model=model, lines=lines) for argument in arguments]
    before = lines.read_bytes()
    assert main(["translate", *filled]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert problem in err
    assert len(err.splitlines()) == 1
    assert lines.read_bytes() == before


def test_pipe_answers_before_the_next_line_is_sent(model):
    with run_s2s("translate", model, "--device", "cpu", stderr=subprocess.PIPE) as process:
        for line in TEXTS:
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait() == 0


def test_reader_that_goes_away_ends_it_quietly(model):
    with run_s2s("translate", model, "--device", "cpu", stderr=subprocess.PIPE) as process:
        process.stdin.write(b"A man.\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"Two dogs.\n" * 50)
        process.stdin.close()
        assert process.wait() == 0
        errors = process.stderr.read()
        assert all(b"degenerate" in line or b"engine: " in line for line in errors.splitlines()), errors


def on_a_terminal(*arguments: object, stdin, seconds: float = 60.0) -> str:
    """What `s2s` writes to a terminal as standard error while its standard output goes elsewhere."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 25, 80, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seq2seq", *map(str, arguments)]
    given = theirs if stdin is None else stdin
    shown = b""
    with subprocess.Popen(command, env=environment, stdin=given, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        deadline = time.monotonic() + seconds
        with contextlib.suppress(OSError):  # the other end of a terminal closes with an error
            while time.monotonic() < deadline:
                shown += (read := os.read(ours, 4096))
                if stdin is None and b"Ctrl-D" in read:
                    os.write(ours, b"A man.\n\x04")
        assert process.wait() == 0
    os.close(ours)
    return shown.decode()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_a_terminal_shows_progress_of_files_and_pipes_and_how_to_end_typing(model, tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("A man.\n" * 40)
    with open(path, "rb") as file:
        assert "40/40" in on_a_terminal("translate", model, "--device", "cpu", stdin=file)
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
        assert "40 lines [" in on_a_terminal("translate", model, "--device", "cpu", stdin=cat.stdout)
    shown = on_a_terminal("translate", model, "--device", "cpu", stdin=None)
    assert shown.count("end with Ctrl-D") == 1
    assert " lines [" not in shown


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_interrupt_is_quiet(model, tmp_path):
    import signal

    output = tmp_path / "out.txt"
    arguments = ("translate", model, "--device", "cpu", "-o", output)
    with run_s2s(*arguments, stderr=subprocess.PIPE, start_new_session=True) as process:
        process.stdin.write(b"A man.\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out.txt*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() in (b"", b"s2s: engine: CTranslate2, float32\n")
    assert list(tmp_path.iterdir()) == []


# What each way of translating may not import: torch takes a second, its compiler another.
BESIDE = ("glossary", "terms", "segmenter", "multilingual_tokenizer", "tokenizer_training", "spellings")
NOT_NEEDED = ("torch", "seq2seq.markup", "seq2seq.store.foreign", *(f"seq2seq.text.{name}" for name in BESIDE))
LIGHT = [
    ((), NOT_NEEDED),
    (("--quantization", "int8", "--beam-size", "1"), NOT_NEEDED),
    pytest.param(("--engine", "torch"), ("torch._dynamo", "sympy", *NOT_NEEDED[1:]), marks=pytest.mark.slow),
]
MOST_IMPORTED = 0.18  # of the lines of the package, by a translation with CTranslate2


@pytest.mark.parametrize(("options", "heavy"), LIGHT, ids=["float32", "int8", "torch"])
def test_a_translation_imports_no_more_than_it_needs(model, lines, tmp_path, options, heavy):
    arguments = ["translate", str(model), "-i", str(lines), "-o", str(tmp_path / "out"), "--device", "cpu", *options]
    code = f"import sys, seq2seq.cli as cli; cli.main({arguments!r}) or print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    assert main(arguments) == 0  # the first use may have to convert the model
    done = subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, stdout=subprocess.PIPE, text=True)
    imported = done.stdout.split()
    assert "seq2seq.inference.translator" in imported
    assert not set(heavy).intersection(imported)
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / "seq2seq").rglob("*.py")}
    paths = [(ROOT / name.replace(".", "/")).with_suffix(".py") for name in imported if name.startswith("seq2seq.")]
    assert options or sum(lines.get(path, 0) for path in paths) <= MOST_IMPORTED * sum(lines.values())


@pytest.mark.slow
def test_loading_a_model_needs_no_compiler():
    code = (
        "import sys, torch\n"
        "from seq2seq.config.schema import ModelConfig\n"
        "from seq2seq.model.transformer import Transformer\n"
        "from seq2seq.tensors import misfit\n"
        "for positions in ('sinusoidal', 'learned', 'rotary'):\n"
        "    config = ModelConfig(preset='tiny', positions=positions)\n"
        "    print(misfit(lambda: Transformer(config, 40, 30), {}))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is missing") == 3
