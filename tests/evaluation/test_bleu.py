"""`s2s bleu` beside the command `sacrebleu` on the same files: the same figures, signatures and JSON."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.scored import GOOD, POOR, REFERENCE, failing, s2s, sacrebleu, writer

from seq2seq.cli import main

# Characters at which careless readers end a line, in the middle of lines and at their ends.
ODD = "\n".join(
    [
        "eins\u2028zwei drei\u0085vier",
        "a\rb c d e\r",
        "fünf\x0csechs\x1csieben \u00a0",
        "\ufeffacht neun\t",
        " zehn  elf \u2029",
    ]
)


ODD_REFERENCE = "\n".join(
    ["eins zwei drei\u2028vier", "a b c d e", "fünf sechs\x0csieben", "acht neun", "zehn\u2029elf"]
)


@pytest.fixture
def write(tmp_path):
    return writer(tmp_path)


@pytest.mark.parametrize(
    ("reference", "hypothesis"),
    [
        (REFERENCE, GOOD),
        (REFERENCE, POOR + "\n"),
        (ODD_REFERENCE, ODD),
        (ODD_REFERENCE.replace("\n", "\r\n"), ODD),
        ("\ufeff" + REFERENCE, GOOD),
    ],
    ids=["good", "poor", "odd line separators", "windows line ends", "byte order mark"],
)
def test_figures_and_signatures_are_sacrebleus(write, reference, hypothesis):
    reference, hypothesis = write("ref", reference), write("hyp", hypothesis)
    options = ("-m", "bleu", "chrf", "ter", "-f", "json")
    for width in (1, 6):
        theirs = json.loads(sacrebleu(reference, "-i", hypothesis, *options, "-w", width))
        ours = json.loads(s2s(reference, hypothesis, "--metrics", "bleu,chrf,ter", "--format", "json", "-w", width))
        assert ours == theirs


def test_the_text_lines_are_sacrebleus(write):
    reference, hypothesis = write("ref", REFERENCE), write("hyp", GOOD)
    theirs = sacrebleu(reference, "-i", hypothesis, "-m", "bleu", "chrf", "ter", "-f", "text")
    ours = s2s(reference, hypothesis, "--metrics", "ter,bleu,chrf")
    assert [line.split() for line in ours.splitlines()] == [line.split() for line in theirs.splitlines()]


def test_one_metric_is_one_object(write):
    reference, hypothesis = write("ref", REFERENCE), write("hyp", GOOD)
    theirs = sacrebleu(reference, "-i", hypothesis, "-m", "bleu", "-f", "json")
    assert s2s(reference, hypothesis, "--metrics", "bleu", "-f", "json") == theirs


@pytest.mark.parametrize("tokenizer", ["intl", "char", "none", "zh"])
def test_tokenizers_are_sacrebleus(write, tokenizer):
    reference, hypothesis = write("ref", REFERENCE), write("hyp", GOOD)
    theirs = json.loads(sacrebleu(reference, "-i", hypothesis, "-m", "bleu", "-tok", tokenizer, "-w", 4))
    assert (
        json.loads(s2s(reference, hypothesis, "-m", "bleu", "--tokenize", tokenizer, "-w", 4, "-f", "json")) == theirs
    )


def test_lower_case_is_sacrebleus(write):
    reference, hypothesis = write("ref", REFERENCE), write("hyp", GOOD.upper())
    for metric, flag in (("bleu", "--lowercase"), ("chrf", "--chrf-lowercase")):
        ours = s2s(reference, hypothesis, "-m", metric, "--lowercase", "--format", "json")
        theirs = sacrebleu(reference, "-i", hypothesis, "-m", metric, flag)
        assert json.loads(ours) == json.loads(theirs)
        assert json.loads(ours)["score"] > 50
    both = s2s(reference, hypothesis, write("other", GOOD), "--lowercase", "--format", "json")
    first, second = json.loads(both)
    assert first["BLEU"]["score"] == second["BLEU"]["score"]


def test_confidence_is_sacrebleus(write):
    reference, hypothesis = write("ref", REFERENCE), write("hyp", POOR)
    theirs = json.loads(sacrebleu(reference, "-i", hypothesis, "-m", "bleu", "chrf", "-ci", "-w", 3))
    assert json.loads(s2s(reference, hypothesis, "--confidence", "-w", 3, "-f", "json")) == theirs


def test_paired_bootstrap_is_sacrebleus(write):
    reference, good, poor, same = (write(n, t) for n, t in zip("rgps", (REFERENCE, GOOD, POOR, GOOD), strict=True))
    # of BLEU alone: sacrebleu 2.6 cannot write the results of the others as JSON
    theirs = json.loads(sacrebleu(reference, "-i", good, poor, "-m", "bleu", "--paired-bs", "-f", "json"))
    assert json.loads(s2s(reference, good, poor, "--metrics", "bleu", "-f", "json")) == theirs
    ours = json.loads(s2s(reference, good, poor, same, "--metrics", "bleu,chrf,ter", "-f", "json"))
    assert [list(record) for record in ours] == [["system", "BLEU", "chrF2", "TER"]] * 3
    assert ours[2]["BLEU"]["p_value"] == 1.0  # the same text is not a different system


def test_json_of_several_systems_has_its_signatures_on_stderr(write, capsys):
    reference, good, poor = (write(n, t) for n, t in zip("rgp", (REFERENCE, GOOD, POOR), strict=True))
    assert main(["bleu", str(reference), str(good), str(poor), "-f", "json"]) == 0
    told = capsys.readouterr().err
    assert all(f"s2s: {metric}|nrefs:1|" in told for metric in ("BLEU", "chrF2"))


def test_translations_in_json_are_those_in_text(write):
    """`s2s compare` reads both too."""
    reference, good, poor = (write(n, t) for n, t in zip("rgp", (REFERENCE, GOOD, POOR), strict=True))
    lines = Path(poor).read_text().splitlines()
    in_json = write("p.jsonl", "".join(f"{json.dumps({'source': 'x', 'translation': line})}\n" for line in lines))
    of_text, of_json = (json.loads(s2s(reference, good, path, "-f", "json"))[1] for path in (poor, in_json))
    assert of_json == {**of_text, "system": str(in_json)}


def test_the_table_of_several_systems_has_sacrebleus_figures(write):
    reference, good, poor = (write(n, t) for n, t in zip("rgp", (REFERENCE, GOOD, POOR), strict=True))
    theirs = sacrebleu(
        reference, "-i", good, poor, "-m", "bleu", "chrf", "ter", "--paired-bs", "-f", "text", "-w", 4, "-nc"
    )
    ours = s2s(reference, good, poor, "--metrics", "bleu,chrf,ter", "-w", 4)
    for pattern in (r"\d+\.\d{4} \(\d+\.\d{4} ± \d+\.\d{4}\)", r"p = \d\.\d{4}", r"nrefs:\S+"):
        found = re.findall(pattern, ours)
        assert found == re.findall(pattern, theirs)
        assert len(found) >= 3


def test_standard_input_is_the_file(write):
    reference, hypothesis = write("ref", ODD_REFERENCE), write("hyp", ODD)
    assert s2s(reference, stdin=ODD.encode()) == s2s(reference, hypothesis)


def test_a_byte_order_mark_is_counted_as_sacrebleu_does_and_warned_of(write, caplog):
    reference, hypothesis = write("ref", REFERENCE), write("hyp", "\ufeff" + REFERENCE)
    marked = s2s(reference, hypothesis)
    assert f"{hypothesis}: begins with a byte order mark" in caplog.text
    assert marked == s2s(reference, stdin=hypothesis.read_bytes())
    assert "standard input: begins with a byte order mark" in caplog.text
    assert marked != s2s(reference, reference)


def test_packed_text_on_standard_input_is_read_as_it_is(write):
    reference, hypothesis = write("ref", REFERENCE), write("hyp", GOOD)
    command = [sys.executable, "-m", "seq2seq", "bleu", str(reference)]
    done = subprocess.run(command, input=gzip.compress(GOOD.encode()), capture_output=True, timeout=60, check=True)
    assert done.stdout.decode() == s2s(reference, hypothesis)


def test_a_packed_reference_is_read_as_it_is(write):
    plain, packed = write("ref", REFERENCE), write("ref.gz", REFERENCE, pack=True)
    assert s2s(packed, stdin=GOOD.encode()) == s2s(plain, stdin=GOOD.encode())


def test_the_figure_alone(write):
    reference = write("ref", REFERENCE)
    assert s2s(reference, "-b", "-m", "bleu", "-w", "2", stdin=REFERENCE.encode()) == "100.00\n"


def test_unequal_line_counts_exit_2_with_both(write, capsys):
    reference, hypothesis = write("ref", "a\n" * 1200), write("hyp", "a\n" * 1199)
    code, message = failing(capsys, reference, hypothesis)
    assert code == 2
    assert "1,199" in message
    assert "1,200" in message


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "REFERENCE"),
        (("missing.txt",), "missing.txt"),
        (("{ref}", "missing.txt"), "missing.txt"),
        (("{ref}", "{ref}", "--metrics", "bleu,rouge"), "rouge"),
        (("{ref}", "{ref}", "--metrics", ","), "--metrics"),
        (("{ref}", "{ref}", "--tokenize", "13b"), "13b"),
        (("{ref}", "{ref}", "--format", "xml"), "xml"),
        (("{ref}", "{ref}", "{ref}"), "twice"),
        (("{ref}", "--beam-size", "4"), "--model"),
        (("{ref}", "--source", "{ref}"), "--model"),
        (("{ref}", "--length-penalty", "0"), "--model"),
        (("{ref}", "--engine", "torch"), "--model"),
        (("--model", "x", "-o", "no/where"), "no/where"),
        (("{ref}", "--model", "x"), "--reference"),
        (("--model", "x", "--source", "{ref}"), "--reference"),
        (("--model", "no/such/model"), "no/such/model"),
        (("{folder}", "{ref}"), "folder"),
        (("{empty}", "{empty}"), "no lines"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(write, tmp_path, capsys, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    places = {"ref": write("ref", "a b c d\n"), "folder": "folder", "empty": write("empty", "")}
    code, message = failing(capsys, *(argument.format(**places) for argument in arguments))
    assert code == 2
    assert word in message


def test_invalid_utf8_is_counted_and_its_line_named(write, tmp_path, capsys):
    reference = write("ref", "eins zwei drei vier\nfünf sechs sieben acht\n")
    hypothesis = tmp_path / "hyp"
    hypothesis.write_bytes("eins zwei drei vier\nf\xfcnf sechs sieben acht\n".encode("latin-1"))
    assert main(["bleu", str(reference), str(hypothesis)]) == 0
    captured = capsys.readouterr()
    assert "line 2" in captured.err
    assert str(hypothesis) in captured.err
    assert captured.out.startswith("BLEU|")
