"""A model with another tokenizer keeps the rows of shared pieces, its tags, and both tokenizers of the other model."""

import pytest
import torch
from support.foreign_models import JAPANESE, LANGUAGES, SOURCE, TARGET, make_marian, sentencepiece_model
from support.our_models import make_many, make_ours
from support.vocabulary_models import hypotheses, make

from seq2seq.cli import main
from seq2seq.config.schema import TokenizerConfig
from seq2seq.store.model_folder import load_model
from seq2seq.text.direction import Direction
from seq2seq.text.tokenizer import Tokenizer

NEW = ["der Straßenbahnfahrer ißt Öl, ねこ", "die Straßenbahnfahrerin fährt", "zwei Straßenbahnen, ねこ und いぬ"] * 3


@pytest.mark.parametrize(
    "kind",
    ["marian", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ours shared", "ours separate", "nllb"))],
)
def test_a_transplant_of_the_old_tokenizer_brings_the_old_weights_back(kind, tmp_path, capsys):
    languages = make(tmp_path / "model", kind)
    (tmp_path / "text").write_text("\n".join(NEW))
    old, new, back, text = (str(tmp_path / name) for name in ("model", "new", "back", "text"))
    assert main(["vocabulary", "extend", old, "--corpus", text, "-o", new]) == 0
    assert main(["vocabulary", "transplant", new, old, "-o", back]) == 0, capsys.readouterr().err
    old, back = (load_model(tmp_path / name).directed(Direction(*languages)) for name in ("model", "back"))
    pieces = back.tokenizers.target.pieces(range(back.tokenizers.target.vocab_size))
    rows = [old.tokenizers.target.vocabulary[piece] for piece in pieces]
    assert torch.equal(back.model.output.weight, old.model.output.weight[rows])
    assert hypotheses(back, SOURCE) == hypotheses(old, SOURCE)


@pytest.mark.parametrize("kind", ["ours shared", "marian", "m2m100"])
@pytest.mark.parametrize("padded", [True, False], ids=["as ours", "without padding"])
def test_another_tokenizer_keeps_shared_pieces_and_tags(kind, padded, tmp_path, capsys):
    languages = make(tmp_path / "model", kind)
    other = (
        Tokenizer.train(TARGET * 5, TokenizerConfig(vocab_size=320), 2).model_bytes
        if padded
        else sentencepiece_model(tuple(TARGET), 60)
    )
    (tmp_path / "other.spm").write_bytes(other)
    typed = [str(tmp_path / "model"), str(tmp_path / "other.spm"), "-o", str(tmp_path / "new")]
    assert main(["vocabulary", "transplant", *typed]) == 0
    assert "kept" in capsys.readouterr().out
    old, new = (load_model(tmp_path / name).directed(Direction(*languages)) for name in ("model", "new"))
    assert new.tokenizers.source.tags == old.tokenizers.source.tags
    assert len(hypotheses(new, TARGET)) == len(TARGET)
    ids = [side.tokenizers.target.vocabulary for side in (old, new)]
    rows = [side.model.output.weight for side in (old, new)]
    shared = [piece for piece in ids[1] if piece in ids[0] and not piece.startswith("<")]
    assert shared
    assert all(torch.equal(rows[1][ids[1][piece]], rows[0][ids[0][piece]]) for piece in shared)
    for role in ("eos_id", "start_id"):
        sides = [getattr(side.tokenizers.target, role) for side in (old, new)]
        assert torch.equal(rows[1][sides[1]], rows[0][sides[0]])
    assert torch.isfinite(rows[1]).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("model", "nothing to do"),
        ("text", "not a SentencePiece model"),
        ("nothing", "nothing"),
        ("separate", "two vocabularies, but"),
        ("marian separate", "two vocabularies, but"),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(given, said, tmp_path, capsys):
    make_ours(tmp_path / "model")
    make_ours(tmp_path / "separate", shared=False, tied_embeddings="none")
    make_marian(tmp_path / "marian separate", separate=True)
    (tmp_path / "text").write_text("the cat")
    typed = [str(tmp_path / "model"), str(tmp_path / given), "-o", str(tmp_path / "new")]
    assert main(["vocabulary", "transplant", *typed]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("model", "given"), [(LANGUAGES, ()), ((), LANGUAGES), (LANGUAGES, LANGUAGES), (LANGUAGES, "ours separate")]
)
def test_both_tokenizers_of_a_model_are_taken_and_tags_stay(model, given, tmp_path, capsys):
    separate = dict.fromkeys(["share_encoder_decoder_embeddings", "tie_word_embeddings"], False)
    make_marian(tmp_path / "model", languages=model, separate=True, **separate)
    if given == "ours separate":
        make_ours(tmp_path / "given", shared=False, tied_embeddings="none")
    else:
        make_marian(tmp_path / "given", languages=given, texts=(JAPANESE, TARGET))
    folders = [str(tmp_path / name) for name in ("model", "given", "new")]
    assert main(["vocabulary", "transplant", *folders[:2], "-o", folders[2]]) == 0, capsys.readouterr().err
    old, donor, new = (load_model(tmp_path / name).tokenizers for name in ("model", "given", "new"))
    assert new.source.tags == old.source.tags
    for mine, theirs in ((new.source, donor.source), (new.target, donor.target)):
        assert mine.split_all([*JAPANESE, *TARGET]) == theirs.split_all([*JAPANESE, *TARGET])
        known = {piece for line in theirs.split_all([*JAPANESE, *TARGET]) for piece in line} & theirs.vocabulary.keys()
        assert known <= mine.vocabulary.keys()


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [("nllb", "marian", "a tokenizer for each side, but"), ("tags", "marian separate", "two vocabularies, but")],
)
def test_two_tokenizers_are_refused_where_one_is_needed(model, given, said, tmp_path, capsys):
    if model == "tags":
        make_marian(tmp_path / "model", languages=LANGUAGES)
    else:
        make(tmp_path / "model", model)
    make(tmp_path / "given", given)
    typed = ["vocabulary", "transplant", str(tmp_path / "model"), str(tmp_path / "given"), "-o", str(tmp_path / "new")]
    assert main(typed) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_tags_of_the_other_model_do_not_come_with_its_tokenizer(tmp_path, capsys):
    make_ours(tmp_path / "model")
    make_many(tmp_path / "given", ["en"], ["de", "fr"], "source")
    typed = [str(tmp_path / "model"), str(tmp_path / "given"), "-o", str(tmp_path / "new")]
    assert main(["vocabulary", "transplant", *typed]) == 0, capsys.readouterr().err
    new, donor = (load_model(tmp_path / name).tokenizers for name in ("new", "given"))
    assert not new.choices
    assert not new.source.tags
    assert new.source.split_all(TARGET) == donor.source.split_all(TARGET)


def test_a_typed_tag_and_a_named_language_are_the_same(tmp_path, capsys):
    """Also with a tokenizer that keeps the white space after the tag."""
    make_marian(tmp_path / "model", languages=LANGUAGES)
    make_ours(tmp_path / "given")
    typed = [str(tmp_path / "model"), str(tmp_path / "given" / "source.spm"), "-o", str(tmp_path / "new")]
    assert main(["vocabulary", "transplant", *typed]) == 0, capsys.readouterr().err
    for name in ("model", "new"):
        pair = load_model(tmp_path / name).tokenizers
        tag = pair.source.tags["deu"]
        named = pair.directed(Direction(target="deu")).source
        for text in SOURCE:
            assert pair.source.read(f"{tag} {text}") == named.read(text)
            spans = pair.source.spans(f"{tag} {text}")[1]
            assert f"{tag} {text}"[spans[0][0] :].lstrip() == text
