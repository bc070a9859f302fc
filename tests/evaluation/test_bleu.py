"""`s2s bleu` beside the command `sacrebleu` on the same files: the same figures, signatures and JSON."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from seq2seq.cli import group, main
from seq2seq.config.description import ModelDescription
from seq2seq.config.file import dump, load
from seq2seq.config.schema import Config
from seq2seq.data.collate import collate_translation
from seq2seq.evaluation.text import score_texts
from seq2seq.inference.attention import sentence_attention
from seq2seq.inference.translator import Translator
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import save_model
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

REFERENCE = "\n".join(
    [
        "Ein Mann fährt Fahrrad.",
        "Zwei Hunde spielen im Schnee.",
        "Die Frau, die lacht, trägt einen Hut.",
        "",
        "Es regnet.",
    ]
    * 8
)
GOOD = REFERENCE.replace("Schnee", "Garten").replace("trägt", "hat")
POOR = REFERENCE.replace("Ein Mann", "Mann").replace("Zwei Hunde spielen", "Hunde").replace("Die Frau, die", "Frau")
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


def sacrebleu(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def s2s(*arguments, stdin=b""):
    result = CliRunner().invoke(group, ["bleu", *map(str, arguments)], input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def write(tmp_path):
    def write(name, text, pack=False):
        path = tmp_path / name
        content = text.encode("utf-8")
        path.write_bytes(gzip.compress(content) if pack else content)
        return path

    return write


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


def failing(capsys, *arguments):
    code = main(["bleu", *map(str, arguments)])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1, captured.err
    return code, captured.err


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


# -- with a model ----------------------------------------------------------------------------------

SENTENCES = [
    "the old man reads a book",
    "two dogs play in the snow",
    "a woman wears a red hat",
    "it rains",
    "we are here",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with two test sets and a model that was taught a little, so that its output has words."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    for name, lines in {"test.en": SENTENCES, "test.de": SENTENCES[::-1], "odd.en": [*SENTENCES, ""]}.items():
        (folder.parent / name).write_text("".join(f"{line}\n" for line in lines))
    pair = {"source": str(folder.parent / "test.en"), "target": str(folder.parent / "test.de")}
    odd = {"tsv": str(folder.parent / "odd.tsv")}
    (folder.parent / "odd.tsv").write_text("".join(f"{line}\t{line} .\n" for line in SENTENCES[:3]))
    config = Config.model_validate(
        {
            "source_language": "en",
            "target_language": "de",
            "data": {"train": pair, "valid": pair, "test": {"plain": pair, "odd": odd}},
            "tokenizer": {"vocab_size": 300},
            "model": {"preset": "tiny", "d_model": 32, "num_heads": 2, "d_ff": 32, "max_length": 64},
            "search": {"beam_size": 2, "max_length_ratio": 1.0, "max_length_offset": 3},
            "evaluation": {"metrics": ["chrf", "ter"]},
        }
    )
    tokenizer = Tokenizer.train(SENTENCES * 20, config.tokenizer, seed=1)
    torch.manual_seed(1)
    model = Transformer(config.model, tokenizer.vocab_size, tokenizer.vocab_size)
    pair = TokenizerPair(tokenizer, tokenizer)
    ids = tokenizer.encode_all(SENTENCES)
    batch = collate_translation(ids, ids[1:] + ids[:1], pair, range(len(ids)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(25):
        logits = model.project(model(batch.source_ids, batch.source_mask, batch.target_input))
        loss = torch.nn.functional.cross_entropy(logits[batch.target_mask], batch.target_output[batch.target_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save_model(folder / "best", model.state_dict(), ModelDescription.of(config), pair)
    (folder / "config.yaml").write_text(dump(config))
    return folder


def test_a_run_is_scored_on_all_its_test_sets_by_name_and_with_its_metrics(run, tmp_path):
    kept = tmp_path / "out.txt"
    records = json.loads(s2s("--model", run, "--device", "cpu", "-f", "json", "-w", 4, "-o", kept))
    assert [(record["test_set"], record["name"]) for record in records] == [
        ("plain", "chrF2"), ("plain", "TER"), ("odd", "chrF2"), ("odd", "TER"),
    ]  # fmt: skip
    translator = Translator.load(run, device="cpu")
    for index, (name, reference) in enumerate((("plain", SENTENCES[::-1]), ("odd", [f"{s} ." for s in SENTENCES[:3]]))):
        sources = SENTENCES[: len(reference)]
        hypotheses = [translation.text for translation in translator.translate(sources)]
        assert (tmp_path / f"out.{name}.txt").read_text().split("\n") == [*hypotheses, ""]
        scores = score_texts(hypotheses, reference, ["chrf", "ter"])
        assert [record["score"] for record in records[2 * index : 2 * index + 2]] == [round(s.score, 4) for s in scores]


def test_translating_and_scoring_is_the_same_in_one_step_and_in_two(run, tmp_path):
    source, reference = run.parent / "test.en", run.parent / "test.de"
    options = ("--metrics", "bleu,chrf", "-w", 6)
    kept = tmp_path / "hypothesis"
    one = s2s("--model", run / "best", "--source", source, "--reference", reference, "-o", kept, *options)
    assert one == s2s(reference, kept, *options)
    assert one.startswith("BLEU|nrefs:1|")


def test_search_options_reach_the_translator(run, tmp_path):
    greedy, wide = tmp_path / "greedy", tmp_path / "wide"
    for path, beam_size in ((greedy, 1), (wide, 5)):
        s2s("--model", run, "--test-set", "plain", "--beam-size", beam_size, "--length-penalty", 0.5, "-o", path)
    assert greedy.read_text() != wide.read_text()
    for path, beam_size in ((greedy, 1), (wide, 5)):
        translator = Translator.load(run, beam_size=beam_size, length_penalty=0.5)
        assert path.read_text().splitlines() == [translation.text for translation in translator.translate(SENTENCES)]


def test_test_sets_are_named_in_text_too(run):
    lines = s2s("--model", run, "-m", "bleu").splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["plain", "odd"]
    assert s2s("--model", run, "--test-set", "odd", "-m", "bleu").splitlines() == lines[1:]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--test-set", "plane"], ["'plain'", "odd"]),
        (["--source", "{en}", "--reference", "{odd}"], ["5", "6", "test.en", "odd.en"]),
        (["--metrics", "bleu,rouge"], ["rouge"]),
        (["--tokenize", "13b"], ["13b"]),
        (["--beam-size", "0"], ["--beam-size"]),
        (["--device", "tpu"], ["tpu"]),
    ],
)
def test_wrong_use_with_a_model_is_one_line_and_exit_2(run, capsys, arguments, words):
    places = {"en": run.parent / "test.en", "odd": run.parent / "odd.en"}
    code, message = failing(capsys, "--model", run, *(argument.format(**places) for argument in arguments))
    assert code == 2
    for word in words:
        assert word in message


def test_a_model_without_its_run_asks_for_files(run, tmp_path, capsys):
    shutil.copytree(run / "best", tmp_path / "alone")
    code, message = failing(capsys, "--model", tmp_path / "alone")
    assert code == 2
    assert "--source" in message


def test_a_run_whose_training_data_is_gone_is_still_scored(run, tmp_path):
    moved = tmp_path / "run"
    shutil.copytree(run, moved)
    text = (moved / "config.yaml").read_text()
    config = load(moved / "config.yaml", check_files=False)
    text = text.replace(str(config.data.valid.source), str(tmp_path / "gone"), 2)  # train and valid
    (moved / "config.yaml").write_text(text)
    assert s2s("--model", moved) == s2s("--model", run)


def test_attention_of_the_models_own_and_of_a_given_translation(run, tmp_path, capsys):
    own, given = tmp_path / "own.png", tmp_path / "given.png"
    assert main(["plot", str(run), "--attention", SENTENCES[0], "-o", str(own)]) == 0
    assert (
        main(["plot", str(run), "--attention", SENTENCES[0], "--target", "a b", "--layer", "1", "-o", str(given)]) == 0
    )
    assert own.read_bytes() != given.read_bytes()
    seen = sentence_attention(run, SENTENCES[0], "two dogs", layer=2)
    tokenizer = load_tokenizers(run / "best").source
    assert seen.weights.shape == (2, len(tokenizer.encode("two dogs")) + 1, len(tokenizer.encode(SENTENCES[0])) + 1)
    assert seen.weights.shape[1:] == (len(seen.target_pieces), len(seen.source_pieces))
    assert main(["plot", str(run), "--attention", "x", "--layer", "9"]) == 2
    assert "layer 9" in capsys.readouterr().err


def test_a_test_set_that_no_file_can_be_named_after_is_refused_before_translating(run, tmp_path, capsys):
    moved = tmp_path / "run"
    shutil.copytree(run, moved)
    config = moved / "config.yaml"
    config.write_text(config.read_text().replace("plain:", "news/2016:"))
    (moved / "best" / "model.safetensors").write_bytes(b"not read")
    code, message = failing(capsys, "--model", moved, "-o", tmp_path / "out.txt")
    assert code == 2
    assert "data.test.news/2016: the name of a test set" in message


def test_several_models_are_compared_as_their_translations_are(run, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(run / "best", other)
    generation = json.loads((other / "generation_config.json").read_text())
    (other / "generation_config.json").write_text(json.dumps({**generation, "num_beams": 1, "beam_size": 1}))
    source, reference = run.parent / "test.en", run.parent / "test.de"
    files = []
    for number, model in enumerate((run, other)):
        files.append(tmp_path / f"{number}")
        s2s("--model", model, "--source", source, "--reference", reference, "-o", files[-1])
    expected = s2s(reference, *files, "-m", "chrf,ter")
    table = s2s("--model", run, "--model", other, "--source", source, "--reference", reference, "-m", "chrf,ter")
    named = dict(zip((str(run), str(other)), map(str, files), strict=True))
    for model, file in named.items():
        table, expected = (text.replace(name, "X") for text, name in ((table, model), (expected, file)))
    assert [line.split() for line in table.splitlines()] == [line.split() for line in expected.splitlines()]
    records = json.loads(s2s("--model", run, "--model", other, "-f", "json"))
    assert [(record["test_set"], record["system"]) for record in records] == [
        (name, system) for name in ("plain", "odd") for system in (f"Baseline: {run}", str(other))
    ]
    lines = s2s("--model", run, "--model", other).splitlines()
    assert (lines[0], lines.count("plain"), lines.count("odd")) == ("plain", 1, 1)
    for arguments, words in (
        (["--model", run, "--model", run / "best"], "given twice"),
        (["--model", run, "--model", other, "-o", tmp_path / "x"], "one model"),
        (["--model", run, "--model", tmp_path / "none"], "none"),
    ):
        code, message = failing(capsys, *arguments)
        assert code == 2
        assert words in message


def test_attention_is_drawn_beside_the_model_and_not_into_it(run, tmp_path, monkeypatch, capsys):
    moved = tmp_path / "run"
    shutil.copytree(run, moved)
    (moved / "metrics.jsonl").touch()
    shutil.copytree(run / "best", tmp_path / "alone")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    models = moved / "best", tmp_path / "alone"
    before = [sorted(model.iterdir()) for model in models]
    for model, place in ((moved, moved), (moved / "best", moved), (tmp_path / "alone", Path())):
        assert main(["plot", str(model), "--attention", SENTENCES[0]]) == 0
        assert capsys.readouterr().out == f"{place / 'attention.png'}\n"
        (place / "attention.png").unlink()
    assert [sorted(model.iterdir()) for model in models] == before


@pytest.mark.parametrize("long", [["two dogs " * 40], ["two dogs", "--target", "two dogs " * 40]])
def test_a_sentence_that_the_model_has_no_positions_for_is_one_line(run, capsys, long):
    assert main(["plot", str(run), "--attention", *long]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pieces, more than the model's 62; take a shorter one" in line
