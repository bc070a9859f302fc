"""Targets are read as in training: what training does not see changes no score, link, probability or translation."""

import unicodedata

import pytest
from support.our_models import make_ours

from seq2seq import runtime
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.translator import Translator
from seq2seq.store.model_folder import load_model
from seq2seq.text.alignment import pharaoh
from seq2seq.text.normalization import normalized

PAIRS = [
    ("the cat sat on the mat", "die Katze saß auf der Matte"),
    ("two men walk home!", "zwei Männer gehen, nach Hause!"),
    ("two men", "two men"),
    ("she reads 你好 a book", "sie liest (ein) Büchlein 你好"),
    ("no one", "niemand kennt ihn, und " * 12 + "es regnet"),  # in several parts
    ("the", ""),
]
UNSEEN = {
    "a blank at the end": lambda text: f"{text} ",
    "white space at both ends": lambda text: f"\t\u2003{text}\r\n",
    "no-break spaces": lambda text: text.replace(" ", "\xa0"),
    "decomposed letters": lambda text: unicodedata.normalize("NFD", text),
    "soft hyphens": lambda text: " ".join(f"{word[:2]}\xad{word[2:]}" for word in text.split(" ")),
    "invisible characters": lambda text: f"\ufeff\u200b{text}\x00\u200f",
    "all of them": lambda text: unicodedata.normalize("NFD", f" \u200b{text[:5]}\xad{text[5:]}\u2028"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with a byte for each character that its vocabulary lacks."""
    return make_ours(tmp_path_factory.mktemp("targets") / "model", ending=1.0).folder


@pytest.fixture(scope="module")
def loaded(folder):
    return load_model(folder), runtime.start("cpu", "float32", 1)


def spelled(text: str, spans) -> list[str]:
    return [normalized(text[slice(*span)]).strip() for span in spans]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("change", UNSEEN)
def test_what_training_does_not_see_changes_no_score_and_no_link(loaded, change, both):
    changed = [(UNSEEN[change](one) if both else one, UNSEEN[change](other)) for one, other in PAIRS]
    assert [normalized(other).strip() for _, other in changed] == [other for _, other in PAIRS]
    scorer, aligner = Scorer(*loaded), Aligner(*loaded)
    for ended in (True, False):
        expected, scores = scorer.score(PAIRS, ended), scorer.score(changed, ended)
        assert [one.tokens for one in scores] == [one.tokens for one in expected]
        assert [one.parts for one in scores] == [one.parts for one in expected]
        assert [one.log_prob for one in scores] == pytest.approx([one.log_prob for one in expected], abs=1e-4)
    for pair, given, details, found in zip(PAIRS, changed, aligner.align(PAIRS), aligner.align(changed), strict=True):
        assert pharaoh(found) == pharaoh(details)
        assert [link.weight for link in found.links] == pytest.approx([link.weight for link in details.links], abs=1e-4)
        log_probs = [word.log_prob for word in details.words]
        assert [word.log_prob for word in found.words] == pytest.approx(log_probs, abs=1e-4)
        assert spelled(given[1], [word.span for word in found.words]) == spelled(
            pair[1], [word.span for word in details.words]
        )
        assert spelled(given[0], found.source_words) == spelled(pair[0], details.source_words)
        assert (found.source, found.target) == ((0, len(given[0])), (0, len(given[1])))
    spaced = [aligner.align(pairs, spaced=True) for pairs in (PAIRS, changed)]
    assert list(map(pharaoh, spaced[0])) == list(map(pharaoh, spaced[1]))


@pytest.mark.parametrize("change", UNSEEN)
def test_a_prefix_is_kept_as_it_is_and_continued_as_its_normal_form(folder, change):
    translator = Translator.load(folder, engine="torch", beam_size=1, threads=1, max_length_ratio=0.5)
    text = "die Männer saßen auf"
    given = UNSEEN[change](text)
    usual = text + " " * (normalized(given)[-1:] == " ")
    plain, other = translator.translate(["two men"] * 2, [usual, given])
    kept = given.replace("\r", " ").replace("\n", " ")
    assert other.text.startswith(kept)
    assert other.text.removeprefix(kept) == plain.text.removeprefix(usual)
    assert (other.log_prob, other.tokens) == (pytest.approx(plain.log_prob, abs=1e-4), plain.tokens)
