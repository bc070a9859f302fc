"""A model with a smaller vocabulary segments and translates the kept text as before, or the command refuses."""

import functools
import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.foreign_models import JAPANESE, LANGUAGES, SOURCE, TARGET, make_marian, sentencepiece_model
from support.multilingual_models import make_multilingual
from support.our_models import make_ours, make_tiny
from support.vocabulary_models import KINDS, hypotheses, make

from seq2seq.cli import main
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import ModelConfig, SearchConfig, TokenizerConfig
from seq2seq.inference.translator import Translator
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import load_model, save_model
from seq2seq.tensors import distinct
from seq2seq.text.direction import Direction
from seq2seq.text.marian_tokenizer import MarianTokenizer
from seq2seq.text.tagged_tokenizer import Languages, tagged_pair
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.trimming import necessary
from seq2seq.workflows.vocabulary import trim

LINES = SOURCE[:2] + TARGET[:2]
TEXTS = [*SOURCE, *TARGET]


@functools.cache
def tokenizers(kind: str) -> list[Tokenizer]:
    """Ours, and one whose ids are a table."""
    config = TokenizerConfig(vocab_size=400, kind=kind)
    model = sentencepiece_model(tuple(TEXTS), 110, kind)
    pieces = [piece for piece in Tokenizer(model).vocabulary if piece not in ("<unk>", "<s>", "</s>")]
    table = {piece: id_ for id_, piece in enumerate(["</s>", "<unk>", *reversed(pieces), "<pad>"])}
    return [Tokenizer.train(TEXTS * 5, config, 1), MarianTokenizer(model, table)]


@functools.cache
def trimmed(kind: str, number: int) -> tuple[Tokenizer, Tokenizer]:
    whole = tokenizers(kind)[number]
    used = {piece for ids in whole.encode_all(LINES) for piece in whole.pieces(ids)}
    kept = necessary([whole], used)
    assert len(kept) < whole.vocab_size
    smaller = whole.without(whole.vocabulary.keys() - kept)
    assert set(smaller.vocabulary) == kept
    return whole, smaller


def test_targets_need_the_pieces_of_their_normal_form(tmp_path):
    """Training drops soft hyphens, so a corpus with them needs the pieces of the words without them."""
    folder, kept = make_tiny(tmp_path / "model", TEXTS * 5, 400, SearchConfig(), lambda *_: None), []
    for name, hyphen in (("plain", ""), ("hyphens", "\u00ad")):
        lines = [re.sub(r"\b(\w\w)(?=\w\w)", rf"\1{hyphen}", line) for line in TARGET[:4]]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
        trim(folder, [tmp_path / name], tmp_path / f"to {name}")
        kept.append(load_model(tmp_path / f"to {name}").tokenizers.target.vocabulary.keys())
    assert kept[0] == kept[1]


WORDS = st.lists(st.sampled_from([*" ".join(TEXTS).split(), *"abcdeßuä?,"]), max_size=12)
ANY = st.text(alphabet="abcdehimnorstuwKMäßü ?!,.☃\u2581", max_size=25)


@pytest.mark.parametrize("number", [0, 1], ids=["ours", "table"])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@settings(max_examples=60, deadline=None)
@given(draw=st.data())
def test_text_of_kept_pieces_is_segmented_as_before(kind, number, draw):
    whole, smaller = trimmed(kind, number)
    kept = sorted(set(smaller.text_pieces()))
    made = st.lists(st.sampled_from(kept), max_size=12).map(lambda pieces: "".join(pieces).replace("\u2581", " "))
    text = draw.draw(st.one_of(made, WORDS.map(" ".join), ANY))
    before = whole.pieces(whole.encode(text))
    after = smaller.pieces(smaller.encode(text))
    assert whole.normalizer(text) == smaller.normalizer(text)
    if set(before) <= set(smaller.vocabulary):
        assert after == before
    if number == 0:
        assert smaller.decode(smaller.encode(text)) == whole.decode(whole.encode(text))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_law_has_cases_in_which_pieces_are_missing_and_a_closure_without_which_it_fails(kind):
    whole, smaller = trimmed(kind, 0)
    split = {text: whole.pieces(whole.encode(text)) for text in TEXTS}
    assert any(set(pieces) <= set(smaller.vocabulary) for pieces in split.values())
    assert any(not set(pieces) <= set(smaller.vocabulary) for pieces in split.values())
    if kind == "bpe":
        long = {piece for pieces in split.values() for piece in pieces if len(piece) > 3}
        letters = {piece for piece in whole.vocabulary if len(piece) == 1 or piece.startswith("<")}
        open_ = whole.without(whole.vocabulary.keys() - letters - long)
        assert any(open_.pieces(open_.encode(text)) != pieces for text, pieces in split.items())


# -- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_wants_no_removed_piece_is_translated_as_before_by_both_engines(kind, tmp_path, capsys):
    languages = make(tmp_path / "model", kind)
    original = load_model(tmp_path / "model").directed(Direction(*languages))
    before = hypotheses(original, SOURCE)
    sides = {"en": SOURCE[:4], "de": TARGET[:4] * 10 + before[:6]}
    for name, lines in sides.items():
        (tmp_path / name).write_text("\n".join(line for line in lines if line.strip()) + "\n")
    typed = ["--languages", ",".join(languages)] if languages[0] else []
    files = ["--corpus", str(tmp_path / "en"), "--corpus", str(tmp_path / "de")]
    code = main(
        ["vocabulary", "trim", str(tmp_path / "model"), *files, *typed, "-o", str(tmp_path / "new"), "-f", "json"]
    )
    out, err = capsys.readouterr()
    assert code == 0, err
    report = json.loads(out)
    smaller = load_model(tmp_path / "new").directed(Direction(*languages))
    assert report["after"]["target_pieces"] == smaller.tokenizers.target.vocab_size
    assert report["after"]["target_pieces"] < report["before"]["target_pieces"]
    assert 0 < report["removed_share"] < 1

    pieces = smaller.tokenizers.target.vocabulary.keys(), smaller.tokenizers.source.vocabulary.keys()
    whole = original.tokenizers
    compared = 0
    for line, old, new in zip(SOURCE, before, hypotheses(smaller, SOURCE), strict=True):
        read, written = whole.source.pieces(whole.source.read(line)), whole.target.pieces(whole.target.encode(old))
        if set(read) <= set(pieces[1]) and set(written) <= set(pieces[0]):
            compared += 1
            assert new == old
    assert compared >= 3
    check_logits(original, smaller)
    loading = dict(zip(("source_language", "target_language"), languages, strict=True))
    texts = []
    for engine in ("torch", "ctranslate2"):
        translator = Translator.load(tmp_path / "new", engine=engine, beam_size=1, **loading)
        texts.append([translation.text for translation in translator.translate(SOURCE[:4])])
    assert texts[0] == texts[1]


def check_logits(original, smaller):
    """Each kept row is the old row: logits of kept pieces are the old ones."""
    old, new = (side.tokenizers.target for side in (original, smaller))
    kept = [old.vocabulary[piece] for piece in new.pieces(range(new.vocab_size))]
    source = [[model.tokenizers.source.vocabulary[piece] for piece in smaller.tokenizers.source.pieces(range(9))]
              for model in (original, smaller)]  # fmt: skip
    with torch.inference_mode():
        logits = []
        for model, ids, target in zip((original, smaller), source, (kept[3:9], range(3, 9)), strict=True):
            mask = torch.ones(1, len(ids), dtype=torch.bool)
            logits.append(model.model.project(model.model(torch.tensor([ids]), mask, torch.tensor([list(target)]))))
    torch.testing.assert_close(logits[1], logits[0][..., kept])
    names = distinct(smaller.model.state_dict(keep_vars=True))
    assert names.keys() == distinct(original.model.state_dict(keep_vars=True)).keys()  # tied as before


def test_only_the_named_languages_are_left_and_frequent_pieces_on_request(tmp_path, capsys):
    make_multilingual(tmp_path / "run" / "best", "nllb")
    (tmp_path / "text").write_text("\n".join(SOURCE[:2]))
    typed = ["vocabulary", "trim", str(tmp_path / "run" / "best"), "--corpus", str(tmp_path / "text"), "--languages"]
    assert main([*typed, "eng_Latn,deu_Latn", "-o", str(tmp_path / "few")]) == 0
    assert main([*typed, "en,de", "--keep-frequent", "60", "-o", str(tmp_path / "more")]) == 0
    few, more = (load_model(tmp_path / name).tokenizers.source for name in ("few", "more"))
    assert set(few.tags) == {"eng_Latn", "deu_Latn"}
    card = (tmp_path / "few" / "README.md").read_text()
    assert "`run/best` with" in card
    assert "s2s translate THIS_FOLDER --from SOURCE --to TARGET <" in card
    assert set(few.vocabulary) < set(more.vocabulary)
    capsys.readouterr()
    assert main([*typed, "en", "-o", str(tmp_path / "one")]) == 2
    assert "name the source and the target" in capsys.readouterr().err
    assert main([*typed, "en,klingon", "-o", str(tmp_path / "one")]) == 2
    assert "klingon" in capsys.readouterr().err
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("first", ["en", "ja"])
def test_a_corpus_is_of_the_side_that_knows_it(first, tmp_path, capsys):
    """Not of the one with fewer pieces: unknown characters in a row are one piece."""
    make_marian(tmp_path / "model", texts=(SOURCE, JAPANESE))
    texts = {"en": SOURCE[:4], "ja": JAPANESE[:4]}
    typed = ["vocabulary", "trim", str(tmp_path / "model"), "-o", str(tmp_path / "new")]
    for name in sorted(texts, key=lambda name: name != first):
        (tmp_path / name).write_text("\n".join(texts[name]))
        typed += ["--corpus", str(tmp_path / name)]
    assert main(typed) == 0, capsys.readouterr().err
    old, new = (load_model(tmp_path / name).tokenizers for name in ("model", "new"))
    assert new.target.vocab_size < old.target.vocab_size
    for before, after, own in ((old.source, new.source, "en"), (old.target, new.target, "ja")):
        for line in texts[own]:
            assert after.pieces(after.encode(line)) == before.pieces(before.encode(line))


@pytest.mark.parametrize("target", ["gmw", "de", "nl", "fr", None])
def test_the_default_of_a_model_may_be_a_group_of_languages_or_one_that_is_left_out(target, tmp_path, capsys):
    make_marian(tmp_path / "model", languages=(*LANGUAGES, ">>afr<<"))
    named = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({**named, "target_lang": target}))
    (tmp_path / "text").write_text("\n".join([*SOURCE[:4], *TARGET[:4]]))
    typed = ["vocabulary", "trim", str(tmp_path / "model"), "--corpus", str(tmp_path / "text"), "--languages"]
    assert main([*typed, "nld,afr", "-o", str(tmp_path / "new")]) == 0, capsys.readouterr().err
    assert set(load_model(tmp_path / "new").tokenizers.source.tags) == {"nld", "afr"}


@pytest.fixture
def many(tmp_path) -> Path:
    """A model from English and Dutch into German and French, and a text."""
    tags = {name: f"<2{name}>" for name in ("en", "nl", "de", "fr")}
    trained = Tokenizer.train(TEXTS * 5, TokenizerConfig(vocab_size=300), 1, list(tags.values()))
    pair = tagged_pair(trained.model_bytes, trained.model_bytes, Languages(tags, ("en", "nl"), ("de", "fr")))
    shape = ModelConfig(preset="tiny", d_model=32, d_ff=64)
    names = ("en-de", "nl-de", "nl-fr")
    torch.manual_seed(0)
    weights = Transformer(shape, pair.source.vocab_size, pair.target.vocab_size).state_dict()
    save_model(tmp_path / "model", weights, ModelDescription(model=shape, directions=names), pair)
    (tmp_path / "text").write_text("\n".join(LINES))
    return tmp_path


@pytest.mark.parametrize(("kept", "missing"), [("en,nl", "target of de, fr"), ("fr,de", "source of en, nl")])
def test_a_model_needs_a_language_of_each_side(many, kept, missing, capsys):
    typed = ["vocabulary", "trim", str(many / "model"), "--corpus", str(many / "text"), "--languages"]
    assert main([*typed, kept, "-o", str(many / "new")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"--languages: {kept.replace(',', ', ')}: add a {missing}")
    assert not (many / "new").exists()


@pytest.mark.parametrize(("kept", "left"), [("en,nl,de", ("en-de", "nl-de")), ("fr,nl", ("nl-fr",)), ("en,fr", ())])
def test_the_kept_languages_may_be_named_in_any_order(many, kept, left, capsys):
    """Translations are compared from one that is a source into one that is a target, and directions are lost."""
    typed = ["vocabulary", "trim", str(many / "model"), "--corpus", str(many / "text"), "--languages"]
    assert main([*typed, kept, "-o", str(many / "new")]) == 0, capsys.readouterr().err
    smaller = load_model(many / "new")
    assert sorted(smaller.tokenizers.source.tags) == sorted(kept.split(","))
    tags = {piece for piece in smaller.tokenizers.target.vocabulary if piece.startswith("<2")}
    assert tags == set(smaller.tokenizers.source.tags.values()), "a tag that is left could be generated"
    assert smaller.description.directions == left


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ねこがいます\n犬もいます\n", "not in a language of the model"),
        ("\n \n", "there is no text"),
        (None, "nothing to trim"),
    ],
)
def test_a_corpus_that_makes_no_smaller_model_is_refused(tmp_path, capsys, text, said):
    loaded = make_ours(tmp_path / "model")
    every = " ".join(loaded.tokenizers.source.text_pieces()) if text is None else text
    (tmp_path / "text").write_text(every)
    more = ["--keep-frequent", "1e6"] if text is None else []
    typed = ["vocabulary", "trim", str(tmp_path / "model"), "--corpus", str(tmp_path / "text"), *more]
    assert main([*typed, "-o", str(tmp_path / "new")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_translations_are_compared_whatever_the_search_of_the_model_returns(tmp_path, capsys):
    """Several translations, or draws, are stored settings; the measurement is that of greedy searches."""
    (tmp_path / "text").write_text("\n".join(SOURCE[:4]))
    reports = []
    for name, stored in (
        ("plain", {}), ("several", {"n_best": 3}), ("drawn", {"n_best": 3, "sample": True, "top_k": 9, "top_p": 0.9}),
    ):  # fmt: skip
        make_ours(tmp_path / name, search=SearchConfig(beam_size=4, max_length_ratio=1.5, **stored))
        typed = ["vocabulary", "trim", str(tmp_path / name), "--corpus", str(tmp_path / "text"), "-f", "json"]
        code, (out, err) = main([*typed, "-o", str(tmp_path / f"{name}-new")]), capsys.readouterr()
        assert code == 0, err
        reports.append(out)
    assert len(set(reports)) == 1


SENTENCES = {
    "english": "The old man walks slowly through the park with his dog, and the children play in the street.",
    "german": "Der alte Mann geht mit seinem Hund langsam durch den Park, und die Kinder spielen auf der Straße.",
    "french": "Le vieil homme se promène lentement dans le parc avec son chien, et les enfants jouent dans la rue.",
}


@pytest.mark.parametrize(
    ("languages", "corpora", "kept"),
    [
        ("en,de", ["english", "german"], None),
        ("en,de", ["english", "french", "german"], "English, German"),
        ("fr,de", ["french", "german"], None),
        ("en,fr", ["english", "french"], None),
        (None, ["english", "german"], None),
        (None, ["english", "french"], "English, German"),
    ],
)
def test_a_corpus_in_no_language_of_the_new_model_is_a_warning(languages, corpora, kept, tmp_path, capsys):
    """Corpora may be in different languages, but each must be in one that is kept."""
    if languages is None:
        make_ours(tmp_path / "model")
    else:
        make_multilingual(tmp_path / "model", "nllb")
    typed = ["vocabulary", "trim", str(tmp_path / "model"), "-o", str(tmp_path / "new")]
    for name in corpora:
        (tmp_path / name).write_text(f"{SENTENCES[name]}\n" * 30, encoding="utf-8")
        typed += ["--corpus", str(tmp_path / name)]
    assert main([*typed, *(["--languages", languages] if languages else [])]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    share = "100 % of the sampled lines with a clear language are French"
    text = f"{tmp_path / 'french'}: {share}, but the new model is for {kept}; give text in one of these languages"
    assert warnings == ([f"s2s: warning: {text}"] if kept else [])


def test_the_tag_that_a_model_has_by_default_is_not_lost(tmp_path, capsys):
    make_marian(tmp_path / "published", languages=LANGUAGES)
    loaded = load_model(tmp_path / "published")
    tuned = loaded.description.model_copy(update={"source_language": "en", "target_language": "deu"})
    save_model(tmp_path / "model", loaded.weights, tuned, loaded.tokenizers)
    (tmp_path / "text").write_text("\n".join([*SOURCE[:4], *TARGET[:4]]))
    typed = ["vocabulary", "trim", str(tmp_path / "model"), "--corpus", str(tmp_path / "text"), "--languages"]
    assert main([*typed, "nld", "-o", str(tmp_path / "new")]) == 2
    assert "model is for deu by default; name that too" in capsys.readouterr().err
    assert main([*typed, "nld,deu", "-o", str(tmp_path / "new")]) == 0
