"""Packages of Argos Translate: the documented layout, and the same translations in Argos Translate itself."""

import json
import os
import subprocess
import sys
import zipfile

import pytest
from support.foreign_models import LANGUAGES, SOURCE, TARGET, make_marian
from support.our_models import make_ours, our_tokenizers

from seq2seq import atomic
from seq2seq.errors import ModelError, RunError, UserError
from seq2seq.interop.argos import argos_obstacles, write_argos
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.workflows.convert import Probe, export_argos

pytest.importorskip("ctranslate2")

UNKNOWN_LANGUAGES = (None, None)

# Sentence boundaries are found by models that Argos Translate fetches; a test has no network.
TRANSLATE = """
import json, sys
from pathlib import Path
from argostranslate import package, translate

class Whole:
    def split_sentences(self, text):
        return [text]

package.install_from_path(Path(sys.argv[1]))
installed, = package.get_installed_packages()
translation = translate.PackageTranslation(None, None, installed)
translation.sentencizer = Whole()
texts = [translation.hypotheses(line)[0].value for line in json.load(sys.stdin)]
print(json.dumps({"texts": texts, "name": str(installed), "codes": [installed.from_code, installed.to_code]}))
"""


@pytest.fixture(scope="module")
def package(trained_marian, tmp_path_factory):
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("argos")
    path = folder / "en_de.argosmodel"
    comparison = export_argos(trained_marian, path, "float32", UNKNOWN_LANGUAGES, Probe(tuple(SOURCE)), force=False)
    assert comparison.identical == len(SOURCE)
    return path


def test_the_layout_is_the_documented_one(package):
    with zipfile.ZipFile(package) as archive:
        names = set(archive.namelist())
        root = "translate-en_de-1_0"
        assert {name.split("/")[0] for name in names} == {root}
        wanted = {"metadata.json", "README.md", "sentencepiece.model", "model/model.bin", "model/config.json"}
        assert {f"{root}/{name}" for name in wanted} <= names
        assert any(name.endswith("vocabulary.json") for name in names)
        metadata = json.loads(archive.read(f"{root}/metadata.json"))
        Tokenizer(archive.read(f"{root}/sentencepiece.model"))
    assert metadata["type"] == "translate"
    assert (metadata["from_code"], metadata["to_code"]) == ("en", "de")
    assert (metadata["from_name"], metadata["to_name"]) == ("English", "German")


@pytest.mark.slow
def test_argos_translate_says_what_the_model_says(package, tmp_path):
    pytest.importorskip("argostranslate.package")
    homes = {name: str(tmp_path) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", TRANSLATE, str(package)], input=json.dumps(SOURCE), env={**os.environ, **homes},
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["texts"] == TARGET
    assert answer["codes"] == ["en", "de"]


def test_languages_can_be_given(tmp_path):
    make_ours(tmp_path / "ours", ending=4.0)
    path = tmp_path / "package.argosmodel"
    export_argos(tmp_path / "ours", path, "int8", ("pt", None), Probe(), force=True)
    assert zipfile.ZipFile(path).namelist()[0].startswith("translate-pt_de")


def test_a_package_has_its_suffix(tmp_path):
    with pytest.raises(UserError, match=r"\.argosmodel"):
        export_argos(tmp_path, tmp_path / "package.zip", "int8", UNKNOWN_LANGUAGES, Probe(), force=False)


def test_bytes_that_the_source_does_not_know_are_an_obstacle(tmp_path):
    from seq2seq.config.schema import TokenizerConfig

    plain = TokenizerConfig(vocab_size=64, byte_fallback=False, character_coverage=0.99)
    source = Tokenizer.train(SOURCE * 9, plain, 1)
    target = Tokenizer.train(TARGET * 9, TokenizerConfig(vocab_size=320), 1)
    assert argos_obstacles(TokenizerPair(target, target)) == []
    assert argos_obstacles(TokenizerPair(target, source)) == []
    assert len(argos_obstacles(TokenizerPair(source, target))) == 1


@pytest.mark.parametrize("tags", [LANGUAGES, LANGUAGES[:1]], ids=["two targets", "one tag"])
def test_a_model_whose_sources_begin_with_a_tag_is_refused(tags, tmp_path):
    """Argos Translate cannot add `>>deu<<`, whichever language is given for the package."""
    pytest.importorskip("transformers")
    make_marian(tmp_path / "opus", languages=tags)
    for languages in (UNKNOWN_LANGUAGES, ("en", "de")):
        with pytest.raises(ModelError, match="tags of languages, which this model needs"):
            export_argos(tmp_path / "opus", tmp_path / "opus.argosmodel", "float32", languages, Probe(), force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["opus"]


def test_a_file_that_is_there_stays(tmp_path):
    make_ours(tmp_path / "ours", ending=4.0)
    path = tmp_path / "package.argosmodel"
    path.write_text("mine")
    with pytest.raises(ModelError, match="exists already"):
        export_argos(tmp_path / "ours", path, "int8", UNKNOWN_LANGUAGES, Probe(), force=False)
    assert path.read_text() == "mine"
    path.unlink()
    path.mkdir()  # an empty folder is not written to either, and this is said before the conversion
    with pytest.raises(ModelError, match="exists already"):
        export_argos(tmp_path / "missing", path, "int8", UNKNOWN_LANGUAGES, Probe(), force=False)
    (file := tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"a.argosmodel: cannot be written \(.*\); choose another name with -o"):
        export_argos(tmp_path / "ours", file / "a.argosmodel", "int8", ("en", "de"), Probe(), force=True)


def test_a_full_disk_names_the_place_and_leaves_nothing(tmp_path):
    """A limit on the size of files stands for the disk."""
    resource = pytest.importorskip("resource")
    folder = tmp_path / "converted"
    folder.mkdir()
    (folder / "model.bin").write_bytes(os.urandom(200_000))
    path = tmp_path / "package.argosmodel"
    pair = our_tokenizers(shared=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError) as failure, atomic.new_file(path) as file:  # noqa: PT011
            write_argos(file, folder, pair, ("en", "de"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failure.value.filename == str(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["converted"]


@pytest.mark.parametrize("named", [("eng", "deu"), ("eng_Latn", "German"), ("en", "de-DE")])
def test_languages_are_codes_of_two_letters(named, tmp_path):
    make_marian(tmp_path / "model")
    path = tmp_path / "x.argosmodel"
    export_argos(tmp_path / "model", path, "float32", named, Probe(tuple(SOURCE)), force=True)
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("metadata.json"))
        known = json.loads(archive.read(name))
    codes = [known[key] for key in ("from_code", "from_name", "to_code", "to_name")]
    assert codes == ["en", "English", "de", "German"]
