"""`s2s bleu` with several references, chrF++, scores of lines, standard input that nobody reads, and tokenizers whose
models are downloaded. The oracle is the command `sacrebleu` on the same files."""

import json
import os
import subprocess
import sys

import pytest
from support.scored import GOOD, POOR, REFERENCE, s2s, sacrebleu, small_run, writer

from seq2seq.cli import main
from seq2seq.errors import UserError
from seq2seq.evaluation import text
from seq2seq.store.finding import task_of

SECOND = REFERENCE.replace("Schnee", "Garten").replace("Mann", "Herr")
THIRD = REFERENCE.replace("lacht", "weint").replace("regnet", "schneit")
ALL = ("bleu", "chrf", "chrf++", "ter")
SACREBLEU_OPTIONS = {"chrf++": ("-m", "chrf", "--chrf-word-order", 2)}


def bleu_process(*arguments, **streams):
    command = [sys.executable, "-m", "seq2seq", "bleu", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=60, **streams)


@pytest.fixture
def write(tmp_path):
    return writer(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture
def files(write):
    texts = zip("rsthp", (REFERENCE, SECOND, THIRD, GOOD, POOR), strict=True)
    return {name: write(name, text) for name, text in texts}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_references_gives_sacrebleus_figures(files, count):
    references = [files[name] for name in "rst"[:count]]
    more = [part for path in references[1:] for part in ("-r", path)]
    ours = json.loads(s2s(references[0], files["h"], *more, "-m", ",".join(ALL), "-f", "json", "-w", 5))
    plain = json.loads(sacrebleu(*references, "-i", files["h"], "-m", "bleu", "chrf", "ter", "-w", 5))
    plus = json.loads(sacrebleu(*references, "-i", files["h"], "-m", "chrf", "--chrf-word-order", 2, "-w", 5))
    assert ours == [*plain[:2], plus, plain[2]]
    assert all(f"nrefs:{count}|" in one["signature"] for one in ours)
    named = [part for path in references for part in ("--reference", path)]
    by_stream = s2s(*named, "-m", ",".join(ALL), "-f", "json", "-w", 5, stdin=GOOD.encode())
    assert json.loads(by_stream) == ours


def test_several_systems_and_references_give_sacrebleus_figures(files):
    theirs = json.loads(
        sacrebleu(files["r"], files["s"], "-i", files["h"], files["p"], "-m", "bleu", "--paired-bs", "-f", "json")
    )
    ours = s2s(files["r"], "-r", files["s"], files["h"], files["p"], "-m", "bleu", "-f", "json")
    assert json.loads(ours) == theirs


def test_more_references_never_lower_a_score(files):
    one = json.loads(s2s(files["r"], files["h"], "-f", "json", "-w", 6))
    two = json.loads(s2s(files["r"], "-r", files["s"], files["h"], "-f", "json", "-w", 6))
    assert all(better["score"] > plain["score"] for plain, better in zip(one, two, strict=True))


def test_a_model_is_scored_against_several_references(run, tmp_path):
    source, reference, kept = run.parent / "test.en", run.parent / "test.de", tmp_path / "kept"
    arguments = ("--model", run, "--source", source, "--reference", reference, "-r", source, "-o", kept, "-m", "chrf++")
    assert s2s(*arguments) == s2s(reference, "-r", source, kept, "-m", "chrf++")


@pytest.mark.parametrize("metric", ALL)
def test_the_score_of_each_line_is_sacrebleus(files, metric):
    options = SACREBLEU_OPTIONS.get(metric, ("-m", metric))
    theirs = sacrebleu(files["r"], files["s"], "-i", files["h"], *options, "-sl", "-w", 4, "-b").splitlines()
    ours = s2s(files["r"], "-r", files["s"], files["h"], "-m", metric, "--sentence-level", "-w", 4)
    assert ours.splitlines() == theirs
    assert len(theirs) == REFERENCE.count("\n") + 1


def test_scores_of_lines_have_a_column_for_each_metric_and_their_signatures_on_stderr(files):
    done = bleu_process(files["r"], "-m", "ter,bleu", "--sentence-level", stdin=files["h"].open())
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    records = json.loads(s2s(files["r"], files["h"], "-m", "ter,bleu", "--sentence-level", "-f", "json"))
    assert [[f"{value:.1f}" for value in record.values()] for record in records] == rows
    assert list(records[0]) == ["BLEU", "TER"]
    names = [line.split("|")[0] for line in done.stderr.decode().splitlines()]
    assert names == ["s2s: BLEU", "s2s: TER"]
    assert b"eff:yes" in done.stderr


def piped(content):
    """The reading end of a pipe that has this content, and whose writer is still there or gone."""
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    return reader


@pytest.mark.parametrize("kind", ["file", "pipe", "empty file", "empty pipe", "null device"])
def test_text_on_standard_input_beside_files_is_refused(files, tmp_path, kind):
    (tmp_path / "empty").touch()
    streams = {
        "file": lambda: files["h"].open("rb"),
        "pipe": lambda: piped(b"A line.\n"),
        "empty file": lambda: (tmp_path / "empty").open("rb"),
        "empty pipe": lambda: piped(b""),
        "null device": lambda: subprocess.DEVNULL,
    }
    done = bleu_process(files["r"], files["s"], "-m", "bleu", stdin=streams[kind]())
    if kind in ("file", "pipe"):
        assert done.returncode == 2
        assert done.stdout == b""
        assert b"standard input" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{r}", "-r", "{r}", "{h}"], "reference is given twice"),
        (["{r}", "-r", "{short}", "{h}"], "40 lines"),
        (["--model", "{r}", "--source", "{r}", "--source", "{s}"], "--source"),
        (["--model", "{r}", "-r", "{s}"], "--source and --reference belong together"),
        (["{r}", "{h}", "-m", "chrf+"], "did you mean 'chrf"),
    ],
)
def test_wrong_references_are_one_line(files, write, capsys, arguments, words):
    places = {**files, "short": write("short", "a\nb\n")}
    assert main(["bleu", *(argument.format(**places) for argument in arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize(
    ("reference", "hypothesis", "words"),
    [
        ("สุนัขวิ่งในหิมะ\n", "สุนัขสีดำวิ่งในหิมะ\n", "--tokenize char"),
        ("これは本です。\n", "これは本でした。\n", "tok:13a"),
        ("Über die Brücke.\n", "U\u0308ber die Bru\u0308cke.\n", "U+0308"),
        ("the soft hyphen\n", "the soft hy\u00adphen\n", "U+00AD"),
    ],
    ids=["Thai", "Japanese", "decomposed letters", "soft hyphen"],
)
def test_texts_on_which_a_score_misleads_are_named_once(write, caplog, reference, hypothesis, words):
    paths = write("r", reference * 3), write("h", hypothesis * 3)
    s2s(*paths)
    (record,) = caplog.records
    assert words in record.message
    caplog.clear()
    s2s(*paths, "--sentence-level")
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [record.message]
    caplog.clear()
    s2s(paths[0], paths[0], "--tokenize", "char")
    assert not caplog.records


# -- tokenizers whose models are downloaded --------------------------------------------------------

DOWNLOADED = ("spm", "flores101", "flores200", "spBLEU-1K")


@pytest.fixture
def no_models(tmp_path, monkeypatch):
    """sacrebleu without models, and without a way to a network."""
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path / "none"))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path / "none"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    text._try_tokenizer.cache_clear()
    yield tmp_path / "none" / "models"
    text._try_tokenizer.cache_clear()


@pytest.mark.parametrize("tokenizer", DOWNLOADED)
def test_a_tokenizer_whose_model_cannot_be_fetched_is_refused_before_the_work(no_models, run, capsys, tokenizer):
    with pytest.raises(UserError, match="could not be downloaded"):
        text.check_settings(("bleu",), tokenizer)
    code = main(["bleu", "--model", str(run), "--tokenize", tokenizer, "-m", "bleu"])
    *others, line = capsys.readouterr().err.splitlines()
    assert code == 2
    assert "engine" not in "".join(others)  # nothing was translated; sacrebleu warns that spm has another name
    assert all(word in line for word in (repr(tokenizer), "https://", str(no_models), "or use char"))


def test_the_tokenizer_of_a_runs_config_is_tried_before_its_test_sets_are_translated(no_models, run, tmp_path, capsys):
    copy = tmp_path / "copy"
    (copy / "best").mkdir(parents=True)
    for path in (run / "best").iterdir():
        (copy / "best" / path.name).symlink_to(path)
    settings = (run / "config.yaml").read_text().replace("metrics: [chrf, ter]", "")
    settings = settings[: settings.index("evaluation:")] + "evaluation: {metrics: [bleu], tokenize: flores200}\n"
    (copy / "config.yaml").write_text(settings)
    assert main(["bleu", "--model", str(copy)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'flores200'" in line


def test_a_damaged_model_of_a_tokenizer_is_named(no_models, capsys, files):
    no_models.mkdir(parents=True)
    (no_models / "flores200sacrebleuspm").write_text("<html>Please log in</html>")
    assert main(["bleu", *map(str, (files["r"], files["h"])), "--tokenize", "flores200"]) == 2
    assert "remove the file" in capsys.readouterr().err


# -- models of the other task ----------------------------------------------------------------------


def test_a_classification_model_is_refused_in_one_line(tmp_path, capsys, files):
    from support.our_models import make_classifier

    make_classifier(tmp_path / "run" / "best", ["a", "b"])
    assert task_of(tmp_path / "run" / "best") == "classification"
    for command in (["bleu", "--model"], ["tune"]):
        for more in ([], ["--source", str(files["r"]), "--reference", str(files["s"])]):
            assert main([*command, str(tmp_path / "run"), *more]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert "classif" in line
