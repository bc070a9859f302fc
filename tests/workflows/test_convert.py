"""`s2s convert`, from the command line: foreign models in, fine-tuned, and out again, each export measured."""

import gzip
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.foreign_models import SOURCE, TARGET
from support.our_models import make_many, make_ours

from seq2seq import cli
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import DataError, RunError
from seq2seq.evaluation.probe import SENTENCES, Comparison, builtin_sentences, compare, least_chrf
from seq2seq.interop.ctranslate2 import read_description
from seq2seq.store.model_folder import load_model
from seq2seq.workflows.convert import Probe, export_ctranslate2

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def marian(trained_marian, tmp_path_factory):
    return Path(shutil.copytree(trained_marian, tmp_path_factory.mktemp("foreign") / "opus-mt-en-de"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def s2s(*arguments, capsys):
    """Exit code, output and messages of one command."""
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


# -- the whole path --------------------------------------------------------------------------------


def test_five_commands_from_a_foreign_model_to_a_fast_one(marian, tmp_path, capsys, monkeypatch):
    """Score it, fine-tune it, convert it, translate with it; offline, from a Marian folder made on the spot."""
    pytest.importorskip("ctranslate2")
    source, reference = write_lines(tmp_path / "test.en", SOURCE), write_lines(tmp_path / "test.de", TARGET)
    code, out, err = s2s(
        "bleu", "--model", marian, "--source", source, "--reference", reference, "--format", "json", capsys=capsys
    )
    assert code == 0, err
    assert json.loads(out)[0]["score"] == pytest.approx(100.0)

    config = tmp_path / "tune.yaml"
    config.write_text(
        "source_language: en\ntarget_language: de\n"
        f"data:\n  train: {{source: {source}, target: {reference}}}\n"
        f"  valid: {{source: {source}, target: {reference}}}\n"
        "  num_workers: 1\n"
        f"training: {{init_from: {marian}, max_steps: 3, batch_tokens: 64, device: cpu}}\n"
    )
    code, _, err = s2s("train", config, "--run-dir", tmp_path / "run", capsys=capsys)
    assert code == 0, err
    tuned, first = load_model(tmp_path / "run"), load_model(marian)
    assert tuned.tokenizers.fingerprint == first.tokenizers.fingerprint
    assert (tuned.model.config, tuned.description.search) == (first.model.config, first.description.search)

    code, out, err = s2s(
        "convert", "--to", "ctranslate2", tmp_path / "run", "-o", tmp_path / "fast", "--quantization", "int8",
        "--probe", source, "--reference", reference, capsys=capsys,
    )  # fmt: skip
    assert code == 0, err
    assert out.strip() == str(tmp_path / "fast")
    assert "are those of the original" in err
    assert "references" in err

    code, _, err = s2s("translate", tmp_path / "fast", "-i", source, "-o", tmp_path / "out.de", capsys=capsys)
    assert code == 0, err
    assert (tmp_path / "out.de").read_text().splitlines() == TARGET

    code, _, err = s2s("convert", "--to", "marian", tmp_path / "run", "-o", tmp_path / "back", capsys=capsys)
    assert code == 0, err
    from transformers import AutoTokenizer, MarianMTModel

    tokenizer, model = (
        AutoTokenizer.from_pretrained(tmp_path / "back"),
        MarianMTModel.from_pretrained(tmp_path / "back"),
    )
    rows = model.generate(**tokenizer(SOURCE, return_tensors="pt", padding=True))
    assert tokenizer.batch_decode(rows, skip_special_tokens=True) == TARGET


@pytest.mark.slow
def test_translate_takes_a_marian_folder_through_a_pipe(marian, tmp_path):
    pytest.importorskip("ctranslate2")
    lines = [SOURCE[0], "", SOURCE[1], "   "]
    for engine in ("torch", "ctranslate2"):
        done = subprocess.run(
            [sys.executable, "-m", "seq2seq", "translate", str(marian), "--engine", engine],
            input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n") == [TARGET[0], "", TARGET[1], "", ""]


def test_an_import_is_a_model_folder_that_info_describes(marian, tmp_path, capsys):
    code, out, err = s2s("convert", "--from", "marian", marian, "-o", tmp_path / "ours", capsys=capsys)
    assert (code, out.strip()) == (0, str(tmp_path / "ours")), err
    code, out, _ = s2s("info", tmp_path / "ours", "--format", "json", capsys=capsys)
    described = json.loads(out)
    assert code == 0
    assert described["vocabulary"]["shared"] is True
    code, out, _ = s2s("info", marian, "--format", "json", capsys=capsys)
    assert code == 0
    assert json.loads(out)["parameters"] == described["parameters"]


def test_models_that_were_imported_can_be_averaged(marian, tmp_path, capsys):
    s2s("convert", "--from", "marian", marian, "-o", tmp_path / "ours", capsys=capsys)
    code, _, err = s2s("average", tmp_path / "ours", marian, "-o", tmp_path / "mean", capsys=capsys)
    assert code == 0, err
    assert load_model(tmp_path / "mean").tokenizers.fingerprint == load_model(marian).tokenizers.fingerprint


def test_a_classifier_can_have_the_tokenizer_of_a_foreign_model(marian, tmp_path):
    from seq2seq.model.classifier import EncoderClassifier
    from seq2seq.store.model_folder import save_model

    first = load_model(marian)
    description = ModelDescription(task="classification", model=first.model.config, labels=("a", "b"))
    model = EncoderClassifier(description.model, description.classifier, first.tokenizers.source.vocab_size, 2)
    save_model(tmp_path / "c", model.state_dict(), description, first.tokenizers)
    again = load_model(tmp_path / "c")
    assert again.tokenizers.source.encode_all(SOURCE) == first.tokenizers.source.encode_all(SOURCE)
    assert not (tmp_path / "c" / "target.spm").exists()


# -- proof -----------------------------------------------------------------------------------------


def test_an_export_that_says_something_else_is_not_kept_unless_forced(tmp_path):
    """Weights on a grid of 8 bits are not the weights; random ones show it."""
    pytest.importorskip("ctranslate2")
    make_ours(tmp_path / "ours", ending=2.0)
    with pytest.raises(RunError, match="--force") as caught:
        export_ctranslate2(tmp_path / "ours", tmp_path / "fast", "int8", Probe(tuple(SOURCE)))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "fast").exists()
    kept = export_ctranslate2(tmp_path / "ours", tmp_path / "fast", "int8", Probe(tuple(SOURCE)), force=True)
    assert not kept.is_good
    assert (tmp_path / "fast" / "model.bin").is_file()


def test_draws_of_a_model_are_not_compared(tmp_path):
    """Two engines draw differently, so the best translations are compared."""
    pytest.importorskip("ctranslate2")
    found = []
    for name, settings in (("plain", {}), ("drawn", {"n_best": 3, "sample": True})):
        search = SearchConfig(beam_size=2, max_length_ratio=1.5, **settings)
        make_ours(tmp_path / name, search=search, ending=2.0)
        output = tmp_path / f"{name} fast"
        compared = export_ctranslate2(tmp_path / name, output, "float32", Probe(tuple(SOURCE[:4])), force=True)
        found.append((compared.identical, compared.chrf))
        assert read_description(output)[0].search == search
    assert found[0] == found[1]
    assert found[0][1] > 50


def test_what_a_probe_finds():
    def say(texts):
        return lambda lines: texts[: len(lines)]

    same = compare(say(TARGET), say(TARGET), SOURCE, least=99.0)
    assert (same.identical, same.chrf, same.bleu, same.is_good) == (len(SOURCE), 100.0, 100.0, True)
    assert same.bleu_change is None
    other = [*TARGET[:-1], "etwas ganz anderes"]
    changed = compare(say(TARGET), say(other), SOURCE, least=50.0, references=TARGET)
    assert changed.identical == len(SOURCE) - 1
    assert changed.bleu_change < -1.0
    assert not changed.is_good, "it lost more than a point against the references"
    assert compare(say(TARGET), say(other), SOURCE, least=50.0).is_good
    assert not compare(say(TARGET), say(other), SOURCE, least=99.9).is_good
    assert compare(say(other), say(TARGET), SOURCE, least=50.0, references=TARGET).is_good, "it gained"


def test_the_report_names_what_decides():
    figures = Comparison(10, 9, 98.0, 99.0, -0.25, 0.5, 2.0, 1.0, 97.0, "int8_float32")
    report = " ".join(figures.lines_of_report())
    for word in ("9 of 10", "98.00", "99.00", "-0.25", "+0.50", "int8_float32"):
        assert word in report
    assert figures.speed() is None, "ten lines are over before an engine is at its speed"
    many = Comparison(1000, 900, 98.0, 99.0, None, None, 20.0, 10.0, 97.0)
    assert many.speed() == "speed: export 100.0 lines/s, original 50.0 lines/s"


def test_both_engines_are_warm_where_speed_is_told():
    calls = {"model": [], "export": []}

    def engine(name):
        return lambda lines: calls[name].append(len(lines)) or list(lines)

    assert compare(engine("model"), engine("export"), ["a b"] * 100, least=0.0).speed() is not None
    assert all(len(sizes) == 2 and sizes[0] < sizes[1] == 100 for sizes in calls.values())


def test_builtin_sentences_are_in_the_models_language():
    assert builtin_sentences("de") == builtin_sentences("deu") == builtin_sentences("de_AT") == SENTENCES["de"]
    assert builtin_sentences(None) == builtin_sentences("xx") == SENTENCES["en"]
    assert all(line == line.strip() and line for lines in SENTENCES.values() for line in lines)
    assert least_chrf("int8", builtin=True) < least_chrf("int8", builtin=False) < least_chrf("float32", builtin=True)


def test_a_probe_is_read_line_by_line(tmp_path):
    lines = write_lines(tmp_path / "a", SOURCE)
    (tmp_path / "b.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in TARGET).encode()))
    assert Probe.read(lines, tmp_path / "b.gz") == Probe(tuple(SOURCE), tuple(TARGET))
    assert Probe.read(None, None) == Probe()
    with pytest.raises(DataError, match="8 lines and"):
        Probe.read(lines, write_lines(tmp_path / "short", TARGET[:3]))
    with pytest.raises(DataError, match="nothing to translate"):
        Probe.read(write_lines(tmp_path / "blank", ["", " "]), None)


# -- usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["M", "-o", "O"], "--from marian"),
        (["--from", "marian", "--to", "marian", "M", "-o", "O"], "one of --from and --to"),
        (["--to", "marian", "M"], "output"),
        (["--to", "marian", "M", "-o", "O", "--quantization", "int8"], "--quantization"),
        (["--to", "marian", "M", "-o", "O", "--force"], "--force"),
        (["--to", "ctranslate2", "M", "-o", "O", "--reference", "F"], "--probe"),
        (["--to", "ctranslate2", "M", "-o", "O", "--pickle"], "--pickle"),
        (["--to", "ctranslate2", "M", "-o", "O", "--source-language", "en"], "--source-language"),
        (["--to", "ctranslate2", "M", "-o", "O", "--quantization", "int4"], "int4"),
        (["--to", "marian", "nowhere", "-o", "O"], "nowhere"),
        (["--to", "argos", "M", "-o", "O"], ".argosmodel"),
    ],
)
def test_wrong_usage_is_one_line(arguments, word, capsys):
    code, out, err = s2s("convert", *arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert word in err
    assert len(err.splitlines()) == 1


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    pytest.importorskip("ctranslate2")
    folder = tmp_path_factory.mktemp("converted")
    make_ours(folder / "ours", ending=4.0)
    export_ctranslate2(folder / "ours", folder / "fast", "int8", Probe(tuple(SOURCE)), force=True)
    return folder / "fast"


def test_info_describes_a_converted_folder(converted, capsys):
    code, out, _ = s2s("info", converted, "--format", "json", capsys=capsys)
    assert code == 0
    found = json.loads(out)
    _, out, _ = s2s("info", converted.parent / "ours", "--format", "json", capsys=capsys)
    original = json.loads(out)
    same = ("task", "source_language", "target_language", "vocabulary", "search", "tokenizer_fingerprint", "model")
    assert {key: found[key] for key in same} == {key: original[key] for key in same}
    assert (found["format"], found["quantization"]) == ("CTranslate2", "int8")
    assert found["bytes"] == (converted / "model.bin").stat().st_size
    _, out, _ = s2s("info", converted, capsys=capsys)
    assert "translation, en to de" in out
    assert "CTranslate2, int8" in out


def test_a_folder_that_does_not_name_its_architecture_is_to_be_converted_again(converted, tmp_path, capsys):
    shutil.copytree(converted, tmp_path / "old")
    description = json.loads((tmp_path / "old" / "seq2seq.json").read_text())
    del description["model"]
    (tmp_path / "old" / "seq2seq.json").write_text(json.dumps(description))
    code, _, err = s2s("info", tmp_path / "old", capsys=capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "model: missing" in err
    assert "convert the model again" in err


def test_bleu_translates_with_a_converted_folder(converted, tmp_path, capsys):
    source, target = write_lines(tmp_path / "a.en", SOURCE), write_lines(tmp_path / "a.de", TARGET)
    code, out, _ = s2s("bleu", "--model", converted, "--source", source, "--reference", target, capsys=capsys)
    assert code == 0
    assert "BLEU" in out


@pytest.mark.parametrize("verb", ["score", "classify", "convert"])
def test_a_converted_folder_is_named_where_it_is_of_no_use(converted, verb, tmp_path, capsys):
    source, target = write_lines(tmp_path / "a.en", SOURCE), write_lines(tmp_path / "a.de", TARGET)
    options = {
        "score": [source, target],
        "classify": ["-i", source],
        "convert": ["--to", "marian", "-o", tmp_path / "x"],
    }
    code, _, err = s2s(verb, converted, *options[verb], capsys=capsys)
    assert code == 2
    assert "a CTranslate2 folder, which can only translate; name the model it was made from" in err
    assert len(err.splitlines()) == 1


def test_a_model_that_cannot_be_downloaded_is_one_plain_line(tmp_path, monkeypatch, capsys):
    import huggingface_hub.constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    code, _, err = s2s("info", "nobody/nothing", capsys=capsys)
    assert code == 2
    (line,) = err.splitlines()
    assert "could not be downloaded from the Hugging Face hub (no network?)" in line


def test_nothing_that_is_there_is_overwritten(marian, tmp_path, capsys):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("x")
    for arguments in (["--from", "marian", marian], ["--to", "marian", marian], ["--to", "ctranslate2", marian]):
        code, _, err = s2s("convert", *arguments, "-o", tmp_path / "there", capsys=capsys)
        assert code == 2
        assert "exists already" in err
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["mine"]


def test_quantization_without_ctranslate2_is_one_line(marian, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    code, _, err = s2s("translate", marian, "--engine", "torch", "--quantization", "int16", capsys=capsys)
    assert code == 2
    assert "only CTranslate2 has this option" in err


@pytest.mark.parametrize(
    ("source", "target", "tags"),
    [
        (["de", "fr"], ["en"], "source"),
        (["en"], ["de", "fr"], "source"),
        (["de"], ["en", "fr"], "decoder"),
        (["de", "fr"], ["en", "de"], "decoder"),
        (["en", "de"], ["fr", "nl"], "both"),
    ],
)
def test_models_of_any_directions_are_compared_in_one_that_they_have(source, target, tags, tmp_path):
    pytest.importorskip("ctranslate2")
    make_many(tmp_path / "model", source, target, tags)
    compared = export_ctranslate2(tmp_path / "model", tmp_path / "new", "float32", Probe(tuple(SOURCE)))
    assert compared.lines == len(SOURCE)
    assert compared.identical > 0.8 * len(SOURCE)
