"""A model of many directions that was trained until it answers with confidence obeys its tags, with both engines."""

import pytest
from support.many_directions import LEARNED, LONG, SPELLED, TRAINED, spelled, train
from support.number_words import sentences

from seq2seq.inference.translator import Translator
from seq2seq.store.model_folder import load_model

pytestmark = pytest.mark.slow

ROWS = sentences(40, 9)
# The engines end beam searches by different rules, so of two translations of about one score each may find the other.
NEAR = 0.02


@pytest.fixture(scope="module", params=["source", "both", "decoder"])
def run(request, tmp_path_factory):
    return train(tmp_path_factory.mktemp(request.param), request.param, *LEARNED)


def test_tags_are_obeyed(run):
    """Nearly every word is of the language requested, in every direction of the training."""
    for source, target in TRAINED:
        translator = Translator.load(run, engine="torch", source_language=source, target_language=target)
        found = [one.text.split() for one in translator.translate(spelled(ROWS, source))]
        words = [word in SPELLED[target].values() for words in found for word in words]
        assert sum(map(len, ROWS)) * 0.8 < len(words) < sum(map(len, ROWS)) * 1.25
        assert sum(words) >= 0.95 * len(words), (source, target)


def test_both_engines_give_the_same_translations_without_tags(run):
    """Law: CTranslate2, with tags and prefixes, equals PyTorch, text for text where the scores are apart."""
    loaded = load_model(run)
    lines = [*spelled(ROWS, "en"), LONG]
    for language in ("de", "fr"):
        options = {"source_language": "English", "target_language": language, "n_best": 2}
        ours, theirs = (
            Translator.load(run, engine=name, **options).translate(lines) for name in ("torch", "ctranslate2")
        )
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=NEAR)
        tied = [any(one.score - other.score < NEAR for other in one.alternatives) for one in ours]
        assert sum(tied) < len(lines) / 4
        for one, other, is_tied in zip(ours, theirs, tied, strict=True):
            assert one.text == other.text or is_tied
        texts = " ".join(each.text for one in (*ours, *theirs) for each in (one, *one.alternatives))
        assert not any(piece in texts for piece in loaded.tokenizers.languages.pieces.values())
