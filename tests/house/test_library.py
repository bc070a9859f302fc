"""The public interface: the names of `seq2seq`, what a type checker sees of them, and that a single text is never taken
for a list of letters."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.number_words import CONFIG, sentences
from support.our_models import make_classifier, make_ours

import seq2seq
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import UserError
from seq2seq.evaluation.classification import classification_report

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    search = SearchConfig(beam_size=3, max_length_ratio=1.5)
    make_ours(folder / "model", ending=3.0, search=search)
    make_classifier(folder / "classifier", ["good", "bad"])
    (folder / "terms.tsv").write_text("dogs\tKatzen\n")
    return folder


# -- names -----------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_described():
    assert seq2seq.__all__ == sorted(seq2seq.__all__)
    assert set(seq2seq.__all__) <= set(dir(seq2seq))
    for name in seq2seq.__all__:
        assert getattr(seq2seq, name).__doc__, name
    with pytest.raises(AttributeError, match="Translater"):
        seq2seq.Translater  # noqa: B018


def test_the_names_of_a_type_checker_are_those_of_the_library():
    text = (ROOT / "seq2seq" / "__init__.py").read_text()
    block = text[text.index("if TYPE_CHECKING:") : text.index("__version__")]
    named = {
        name
        for line in block.splitlines()[1:]
        if "import" in line
        for name in re.findall(r"\w+", line.split("import")[1])
    }
    assert named == set(seq2seq.__all__) - {"__version__"}
    assert (ROOT / "seq2seq" / "py.typed").exists()


def test_the_readme_names_every_public_name():
    text = (ROOT / "README.md").read_text()
    assert [name for name in seq2seq.__all__ if name not in text] == []


@pytest.mark.slow
def test_mypy_knows_the_names_and_sees_a_typo(tmp_path):
    pytest.importorskip("mypy", reason="needs mypy")
    (tmp_path / "use.py").write_text(
        "import seq2seq\nfrom seq2seq import Translator\n"
        "reveal_type(Translator.load('x').translate(['a'])[0].text)\n"
        "reveal_type(seq2seq.train('a.yaml', max_minutes=5).folder)\n"
        "seq2seq.Translater\n"
    )
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "use.py"]
    environment = {"PATH": "", "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert 'Revealed type is "str"' in done.stdout, done.stdout
    assert 'Revealed type is "pathlib.Path"' in done.stdout
    assert 'has no attribute "Translater"' in done.stdout


# -- texts -----------------------------------------------------------------------------------------

TEXTS = {
    "Translator.translate": lambda m: seq2seq.Translator.load(m / "model").translate,
    "prefixes": lambda m: lambda texts: seq2seq.Translator.load(m / "model").translate(["a"] * len(texts), texts),
    "Classifier.classify": lambda m: seq2seq.Classifier.load(m / "classifier").classify,
    "a glossary": lambda m: seq2seq.Pipeline.load(m / "model", glossary=m / "terms.tsv").translate,
    "documents": lambda m: (
        lambda texts: seq2seq.Pipeline.load(m / "model", with_aligner=True).translate(texts, form="html")
    ),
    "score_texts": lambda m: lambda texts: seq2seq.score_texts(texts, ["two dogs"] * len(texts)),
    "score_texts, references": lambda m: lambda texts: seq2seq.score_texts(["two dogs"] * len(texts), texts),
    "score_texts, other references": lambda m: (
        lambda texts: seq2seq.score_texts(["two"] * len(texts), ["two"] * len(texts), other_references=[texts])
    ),
    "score_sentences": lambda m: lambda texts: seq2seq.score_sentences(texts, ["two dogs"] * len(texts)),
    "compare_systems": lambda m: lambda texts: seq2seq.compare_systems({"a": texts, "b": texts}, ["a"] * len(texts)),
    "classification_report": lambda m: lambda texts: classification_report(texts, texts),
}
PAIRS = {
    "Scorer.score": lambda m: seq2seq.Scorer.load(m / "model").score,
    "Aligner.align": lambda m: seq2seq.Aligner.load(m / "model").align,
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_single_text_is_refused_and_not_taken_letter_by_letter(models, name):
    function = TEXTS[name](models)
    for wrong in ("two dogs", b"two dogs", "", ["two dogs", None], [b"two dogs"], [3]):
        with pytest.raises(TypeError, match="takes a list of texts") as raised:
            function(wrong)
        remedy = "put a single text into a list" if isinstance(wrong, str | bytes) else r"but item \d is of type "
        assert re.search(remedy, str(raised.value))
    assert function(["two dogs", "play"])
    assert function(("two dogs", "play"))


@pytest.mark.parametrize("name", PAIRS)
def test_a_single_pair_is_refused(models, name):
    function = PAIRS[name](models)
    for wrong in (("two", "zwei"), "ab", [("two",)], [("two", None)], ["ab"], [("a", "b", "c")]):
        with pytest.raises(TypeError, match="takes a list of pairs"):
            function(wrong)
    assert len(function([("two", "zwei"), ("dogs", "Hunde")])) == 2


def test_a_stream_of_lines_is_taken_as_a_list_is(models):
    translator = seq2seq.Translator.load(models / "model")
    lines = ["two dogs", "", "play"]
    assert translator.translate(iter(lines)) == translator.translate(lines)


# -- what commands do, from Python -----------------------------------------------------------------


def test_glossaries_documents_and_alignments_are_those_of_the_command(models, tmp_path, capsys):
    from seq2seq.cli import main

    (tmp_path / "text").write_text("two dogs\n")
    (tmp_path / "page").write_text("<p>two <b>dogs</b></p>")
    assert (
        main(
            ["translate", str(models / "model"), "-i", str(tmp_path / "text"), "--glossary", str(models / "terms.tsv")]
        )
        == 0
    )
    keeper = seq2seq.Pipeline.load(models / "model", glossary=models / "terms.tsv")
    assert capsys.readouterr().out == f"{keeper.translate(['two dogs'])[0].text}\n"
    page = ["translate", str(models / "model"), "-i", str(tmp_path / "page"), "--input-format", "html"]
    for more, glossary in (([], None), (["--glossary", str(models / "terms.tsv")], str(models / "terms.tsv"))):
        assert main([*page, *more]) == 0
        marker = seq2seq.Pipeline.load(models / "model", glossary=glossary, with_aligner=True)
        assert capsys.readouterr().out == marker.translate([(tmp_path / "page").read_text()], form="html")[0].text
    with pytest.raises(UserError, match="did you mean 'html'"):
        marker.translate(["x"], form="htm")
    own = seq2seq.Glossary.read(models / "terms.tsv", "de")
    other = seq2seq.Pipeline.load(models / "model", glossary=own)
    assert other.translate(["two dogs"]) == keeper.translate(["two dogs"])


@pytest.mark.parametrize("name", ["glossary", "input_format", "details", "prefix_file", "each_line", "format"])
def test_an_option_of_the_command_that_is_elsewhere_in_the_library_is_named(models, name):
    with pytest.raises(UserError, match=f"^{name}: not an option of Translator.load; use "):
        seq2seq.Translator.load(models / "model", **{name: "x"})


def test_a_model_is_trained_by_one_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    lines = "".join(f"{' '.join(row)}\n" for row in sentences(60, 1))
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        (tmp_path / name).write_text(lines)
    (tmp_path / "toy.yaml").write_text(CONFIG)
    changes = {"model.d_model": 16, "model.dropout": 0.0, "data.test": None}
    folder = Path("runs") / "it's a run"
    run = seq2seq.train("toy.yaml", folder, changes=changes, max_steps=4, validate_every=4, checkpoint_every=4)
    assert (run.folder, run.result.step) == (tmp_path / folder, 4)
    assert len(run.translator(beam_size=1).translate(["one two"])) == 1
    card = (run.folder / "best" / "README.md").read_text()
    (command,) = [line for line in card.splitlines() if line.startswith("seq2seq.train('toy.yaml', ")]
    again = eval(command, {"seq2seq": seq2seq})
    assert (again.folder, again.result.status) == (run.folder, "already finished")
    with pytest.raises(UserError, match="max_step"):
        seq2seq.train("toy.yaml", max_stepss=4)


SCRIPT = """
import seq2seq
from seq2seq.data import text_files

print("imported", flush=True)
text_files.CHUNK_BYTES = 100  # so that a small corpus has chunks enough for workers
run = seq2seq.train("toy.yaml", changes={"data.num_workers": 2}, max_steps=1)
print(run.result.step)
"""


@pytest.mark.slow
def test_a_script_trains_with_workers(tmp_path):
    """The script of the README has no `if __name__ == "__main__":`; the corpus is large enough for workers."""
    for name, count in (("train.en", 600), ("train.de", 600), ("valid.en", 20), ("valid.de", 20)):
        (tmp_path / name).write_text("".join(f"{' '.join(row)}\n" for row in sentences(count, 1)))
    (tmp_path / "toy.yaml").write_text(CONFIG)
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout) == (0, "imported\n1\n"), done.stderr
