"""The licence of a folder of transformers is that of each model made from it; an average has those of all members."""

import json
import zipfile
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.foreign_models import make_marian
from support.our_models import make_ours

from seq2seq.cli import main
from seq2seq.interop.model_licence import read_licence
from seq2seq.store.model_card import with_license
from seq2seq.store.model_folder import load_model, save_model

CARDS = {
    "---\nlicense: apache-2.0\n---\n": "apache-2.0",
    "---\nlanguage:\n- en\n- de\nlicense: 'cc-by-4.0' # as the data\ntags: [a]\n---\n# A\n": "cc-by-4.0",
    "---\nlicense:\n- mit\n- cc-by-nc-4.0\nlanguage: en\n---\n": "mit, cc-by-nc-4.0",
    "---\nlicense: [mit, 'gpl-3.0']\n---\n": "mit, gpl-3.0",
    "---\r\nlicense: mit\r\n---\r\n": "mit",
    "\ufeff---\nlicense: cc-by-nc-4.0\n---\n": "cc-by-nc-4.0",
    "--- \t\nlicense: cc-by-nc-4.0\n---\n": "cc-by-nc-4.0",
    '---\n"license": cc-by-nc-4.0\n---\n': "cc-by-nc-4.0",
    "---\nlicense: >-\n  cc-by-nc-4.0\ntags: [a]\n---\n": "cc-by-nc-4.0",
    "---\nlicense: mit\n": "mit",
    "---\nlicense: Apache License, version 2.0\n---\n": "Apache License, version 2.0",
    "---\nlicense: CC BY-NC 4.0\n---\n": "CC BY-NC 4.0",
    "---\nlicense: 'cc-by-nc-4.0 '\n---\n": "cc-by-nc-4.0",
    "---\nlicense: [\n  mit,\n  gpl-3.0\n]\n---\n": "mit, gpl-3.0",
    "---\nlicense:\n  - mit # a comment\n\n  - 'gpl-3.0'\ntags: [a]\n---\n": "mit, gpl-3.0",
    "---\nlicense:\n# of the weights\n- mit\n---\n": "mit",
    '---\nlicense: "mit\\u2028x"\n---\n': "mit x",
    "---\nlicense: mit: x: y\nlanguage: en\n---\n": "mit: x: y",
    "---\ntags: [a\nlicense: mit\n---\n": "mit",
    f"---\nlicense: {'x' * 500}\n---\n": "x" * 100,
    f"---\nlicense: {'x' * 99} y\n---\n": "x" * 99,
    '---\nlicense: "mit\n---\n': "mit",
    "---\nlicense: [mit # a comment\n---\n": "mit",
    with_license("---\nlanguage: en\n---\n", "null"): "null",
    with_license("---\nlanguage: en\n---\n", "true, mit"): "true, mit",
    "---\nlicense: null\n---\n": None,
    "---\nlicense: ~\n---\n": None,
    "---\nlicense: {name: mit}\n---\n": None,
    with_license("---\nlanguage: en\n---\n", "CC BY: 4.0, #1"): "CC BY: 4.0, #1",
    with_license("---\nlanguage: en\n---\n", "mit, gpl-3.0"): "mit, gpl-3.0",
    "---\nlanguage: en\n---\nlicense: mit\n": None,
    "---\nlicense:\n---\n": None,
    "---\nlicense_name: mine\n---\n": None,
    "# A card\n\nlicense: mit\n": None,
}


@pytest.mark.parametrize("card", CARDS)
def test_the_licence_is_that_of_the_front_matter(card, tmp_path):
    (tmp_path / "README.md").write_text(card, encoding="utf-8", newline="")
    assert read_licence(tmp_path, {}) == CARDS[card]
    assert read_licence(tmp_path, {"license": "afl-3.0"}) == (CARDS[card] or "afl-3.0")


def test_without_a_card_it_is_that_of_the_configuration(tmp_path):
    assert read_licence(tmp_path, {"license": ["mit", "afl-3.0"]}) == "mit, afl-3.0"
    for damaged in ({}, {"license": None}, {"license": 3}, {"license": [3, {}]}, {"license": "\n"}):
        assert read_licence(tmp_path, damaged) is None


@pytest.fixture
def opus(tmp_path) -> Path:
    """A Marian folder with the card that OPUS-MT models have."""
    pytest.importorskip("transformers")
    make_marian(tmp_path / "opus")
    (tmp_path / "opus" / "README.md").write_text("---\nlanguage:\n- en\nlicense: cc-by-4.0\n---\n# opus\n")
    return tmp_path / "opus"


def test_that_of_a_marian_folder_is_in_the_card_and_in_each_export(opus, tmp_path, capsys):
    assert main(["info", str(opus), "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["license"] == "cc-by-4.0"
    assert main(["convert", str(opus), "--from", "marian", "-o", str(tmp_path / "ours")]) == 0
    assert "licence: cc-by-4.0; the model card names it" in capsys.readouterr().err
    assert load_model(tmp_path / "ours").description.license == "cc-by-4.0"
    languages = ["--source-language", "en", "--target-language", "de"]
    for form, more in (("marian", []), ("ctranslate2", ["--force"]), ("argos", ["--force", *languages])):
        name = "made.argosmodel" if form == "argos" else form
        assert main(["convert", str(tmp_path / "ours"), "--to", form, "-o", str(tmp_path / name), *more]) == 0
    assert ModelCard.load(tmp_path / "ours" / "README.md").data.license == "cc-by-4.0"
    assert ModelCard.load(tmp_path / "marian" / "README.md").data.license == "cc-by-4.0"
    assert load_model(tmp_path / "marian").description.license == "cc-by-4.0"
    assert json.loads((tmp_path / "ctranslate2" / "seq2seq.json").read_text())["license"] == "cc-by-4.0"
    with zipfile.ZipFile(tmp_path / "made.argosmodel") as package:
        assert b"Licence: cc-by-4.0." in package.read("translate-en_de-1_0/README.md")


LICENCES = [
    (("mit", "cc-by-nc-4.0"), "mit, cc-by-nc-4.0"),
    ((None, "cc-by-nc-4.0"), "cc-by-nc-4.0"),
    (("mit", None, "mit"), "mit"),
    (("mit, gpl-3.0", "gpl-3.0, apache-2.0"), "mit, gpl-3.0, apache-2.0"),
    ((None, None), None),
]


@pytest.mark.parametrize(("given", "expected"), LICENCES)
def test_an_average_has_the_licences_of_all_members(given, expected, tmp_path):
    """They are in its description, its card, and the card of its export, from which they are read back."""
    for number, licence in enumerate(given):
        loaded = make_ours(tmp_path / "plain" / str(number), norm_position="post", position_layout="halves")
        described = loaded.description.model_copy(update={"license": licence})
        save_model(tmp_path / str(number), loaded.weights, described, loaded.tokenizers)
    members = [str(tmp_path / str(number)) for number in range(len(given))]
    assert main(["average", *members, "-o", str(tmp_path / "mean")]) == 0
    assert main(["convert", str(tmp_path / "mean"), "--to", "marian", "-o", str(tmp_path / "marian")]) == 0
    for made in ("mean", "marian"):
        assert load_model(tmp_path / made).description.license == expected
        named = ModelCard.load(tmp_path / made / "README.md").data.license
        assert (", ".join(named) if isinstance(named, list) else named) == expected
