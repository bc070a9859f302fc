"""A model with more pieces, or with another tokenizer: old text stays as it was, new text has no unknown characters."""

import functools
import json
import math
import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.foreign_models import JAPANESE, SOURCE, TARGET, make_marian, sentencepiece_model
from support.multilingual_models import make_multilingual
from support.our_models import make_ours
from support.vocabulary_models import KINDS, hypotheses, make

from seq2seq.cli import main
from seq2seq.config.schema import TokenizerConfig
from seq2seq.inference.translator import Translator
from seq2seq.store.model_folder import load_model
from seq2seq.tensors import distinct
from seq2seq.text.direction import Direction
from seq2seq.text.extending import extended, first_of_each
from seq2seq.text.marian_tokenizer import MarianTokenizer, MarianTokenizerPair
from seq2seq.text.segmenter import Segmenter
from seq2seq.text.tagged_tokenizer import Languages, tagged_pair
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.workflows import extension

NEW = ["der Straßenbahnfahrer ißt Öl, ねこ", "die Straßenbahnfahrerin fährt", "zwei Straßenbahnen, ねこ und いぬ"] * 3
TEXTS = [*SOURCE, *TARGET[:2]]


@functools.cache
def larger(kind: str, number: int):
    """The tokenizer of texts without the characters of `NEW`, ours with bytes or over a table; and one with more."""
    if number == 0:
        whole = Tokenizer.train(TEXTS * 5, TokenizerConfig(vocab_size=380, kind=kind), 1)
        pair = TokenizerPair(whole, whole)
    else:
        model = sentencepiece_model(tuple(TEXTS), 80, kind)
        pieces = [piece for piece in Tokenizer(model).vocabulary if piece not in ("<unk>", "<s>", "</s>")]
        table = {piece: id_ for id_, piece in enumerate(["</s>", "<unk>", *reversed(pieces), "<pad>"])}
        whole = MarianTokenizer(model, table)
        pair = MarianTokenizerPair(whole, whole)
    return whole, extended(pair, [[*NEW, *TARGET]], 12)


ANY = st.text(alphabet="abcdehimnorstuwKMäßü ?!,.☃ねこ\u2581", max_size=25)
WORDS = st.lists(st.sampled_from([*" ".join([*TEXTS, *NEW, *TARGET]).split(), *"abcdeßuä?,"]), max_size=12)


@pytest.mark.parametrize("number", [0, 1], ids=["ours", "table"])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@settings(max_examples=60, deadline=None)
@given(text=st.one_of(ANY, WORDS.map(" ".join)))
def test_text_without_a_new_piece_is_segmented_as_before(kind, number, text):
    old, result = larger(kind, number)
    new = result.tokenizers.target
    assert new.vocab_size == old.vocab_size + len(result.pieces)
    assert new.pieces(range(old.vocab_size)) == old.pieces(range(old.vocab_size))
    pieces = {*new.split_all([text])[0], *new.pieces(new.encode(text))}  # U+2581 is spelled by the second alone
    if not {added.piece for added in result.pieces} & pieces:
        assert new.encode(text) == old.encode(text)
    if number == 0:
        assert new.decode(new.encode(text)) == old.decode(old.encode(text))


@pytest.mark.parametrize("number", [0, 1], ids=["ours", "table"])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_new_pieces_are_counted_and_leave_nothing_unknown(kind, number):
    old, result = larger(kind, number)
    new, lines = result.tokenizers.target, [*NEW, *TARGET]
    counts = Counter(piece for row in new.split_all(lines) for piece in row)
    assert {added.piece: added.count for added in result.pieces} == {
        added.piece: counts[added.piece] for added in result.pieces
    }
    characters = {added.piece for added in result.pieces if len(added.piece) == 1}
    assert {*"ねこいぬÖ"} <= characters
    assert not characters & set("".join(old.text_pieces()))
    assert 2 <= len(result.pieces) - len(characters) <= 12
    assert any("Straßenbahn" in added.piece for added in result.pieces)
    assert all("".join(added.made_of) == added.piece for added in result.pieces)
    assert result.unknown > 0
    assert new.unk_id not in {id_ for row in new.encode_all(lines) for id_ in row}
    spelled = [sum(map(len, side.split_all(lines))) for side in (old, new)]
    assert result.tokens == tuple(spelled)
    assert spelled[1] < spelled[0]
    rest = result.tokenizers.target.encode_all(TEXTS)
    again = extended(result.tokenizers, [lines], 0)
    assert not again.pieces
    assert again.tokenizers.target.encode_all(TEXTS) == rest


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_piece_is_split_as_sentencepiece_splits_it(kind):
    for number in (0, 1):
        old, _ = larger(kind, number)
        segmenter = Segmenter(old.model_bytes)
        for word in {*" ".join(TEXTS).split()}:
            assert segmenter.split("\u2581" + word) == old.split_all([word])[0]
    assert segmenter.split("\u2581☃a") == ["\u2581", "☃", "a"]


# -- models ----------------------------------------------------------------------------------------


def run(folder, command, *typed, capsys):
    code = main(
        ["vocabulary", command, str(folder / "model"), *map(str, typed), "-o", str(folder / "new"), "-f", "json"]
    )
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_says_the_same_while_its_new_pieces_are_suppressed(kind, tmp_path, capsys):
    languages = make(tmp_path / "model", kind)
    (tmp_path / "text").write_text("\n".join(NEW) + "\n")
    report = run(tmp_path, "extend", "--corpus", tmp_path / "text", "--pieces", 5, capsys=capsys)
    old, new = (load_model(tmp_path / name).directed(Direction(*languages)) for name in ("model", "new"))
    assert new.tokenizers.shared == old.tokenizers.shared
    sides = old.tokenizers.target, new.tokenizers.target
    added = [piece["piece"] for piece in report["pieces"]]
    assert report["unknown"] > 0
    own = sides[1].pieces(range(sides[0].vocab_size, sides[1].vocab_size))
    assert own
    assert set(own) <= set(added) if kind.endswith("separate") else own == added
    assert (tmp_path / "new" / "added-pieces.tsv").read_text().count("\n") == len(added) + 1
    ids = {id_ for line in NEW for id_ in sides[1].encode(line)}
    assert sides[1].unk_id not in ids
    assert ids & set(range(sides[0].vocab_size, sides[1].vocab_size))

    read = old.tokenizers.source.encode_all(SOURCE)
    assert new.tokenizers.source.encode_all(SOURCE) == read
    logits = [_logits(model, read[0]) for model in (old, new)]
    torch.testing.assert_close(logits[1][..., : sides[0].vocab_size], logits[0])
    assert (
        distinct(new.model.state_dict(keep_vars=True)).keys() == distinct(old.model.state_dict(keep_vars=True)).keys()
    )
    if (bias := new.model.output.bias) is not None:
        free = bias.detach()[sides[0].vocab_size :].clone()
        bias.data[sides[0].vocab_size :] = -1e9
        assert hypotheses(new, SOURCE) == hypotheses(old, SOURCE)
        assert torch.isfinite(free).all()
        assert free.abs().max() < 100
    loading = dict(zip(("source_language", "target_language"), languages, strict=True))
    texts = []
    for engine in ("torch", "ctranslate2"):
        translator = Translator.load(tmp_path / "new", engine=engine, beam_size=1, **loading)
        texts.append([translation.text for translation in translator.translate([*SOURCE[:3], NEW[0]])])
    assert texts[0] == texts[1]


UNBIASED = {
    "m2m100": {}, "nllb": {}, "ours shared": dict(tied_embeddings="all"),
    "ours shared, one side tied": dict(tied_embeddings="decoder"),
    "ours separate": dict(shared=False, tied_embeddings="decoder"),
    "ours separate, untied": dict(shared=False, tied_embeddings="none"),
}  # fmt: skip
SHORT = dict(min_length=3, no_repeat_ngram=1, max_length_ratio=1e-6, max_length_offset=8)


@pytest.mark.parametrize("kind", UNBIASED)
def test_without_an_output_bias_old_text_is_translated_as_before(kind, tmp_path, capsys):
    """Greedy and beam search, while the logits of new pieces are those of impossible ones; searches ban no new piece,
    so that a likely one is in every translation."""
    if kind.startswith("ours"):
        make_ours(tmp_path / "model", **UNBIASED[kind])
        languages = (None, None)
    else:
        languages = make(tmp_path / "model", kind)
    (tmp_path / "text").write_text("\n".join(NEW) + "\n")
    run(tmp_path, "extend", "--corpus", tmp_path / "text", "--pieces", 5, capsys=capsys)
    old, new = (load_model(tmp_path / name).directed(Direction(*languages)) for name in ("model", "new"))
    first, last = old.tokenizers.target.vocab_size, new.tokenizers.target.vocab_size
    assert new.model.output.bias is None
    assert first < last
    draw, words = random.Random(0), " ".join([*SOURCE, *TARGET]).split()
    shuffled = (" ".join(draw.choices(words, k=draw.randint(1, 8))) for _ in range(12))
    texts = [
        text
        for text in [*SOURCE, *shuffled]
        if max(new.tokenizers.source.encode(text)) < old.tokenizers.source.vocab_size
    ]
    assert len(texts) > 10

    added = torch.zeros(last)
    with new.model.output.register_forward_hook(lambda layer, given, logits: logits + added):
        added[first:] = -1e9
        for beam_size in (1, 4):
            before, after = (hypotheses(loaded, texts, beam_size, **SHORT) for loaded in (old, new))
            assert len({*before}) > 3
            assert after == before
        added[first:] = 1e9
        pieces = new.tokenizers.target.pieces(range(first, last))
        for text in hypotheses(new, texts[:4], **SHORT):
            assert any(piece.strip("\u2581") in text for piece in pieces)


def _logits(loaded, ids):
    with torch.inference_mode():
        source, mask = torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool)
        return loaded.model.project(loaded.model(source, mask, torch.tensor([[4, 5, 6, 7]])))


def test_rows_are_means_of_old_rows_with_their_norm(tmp_path, capsys):
    make(tmp_path / "model", "marian")
    (tmp_path / "text").write_text("\n".join([*NEW, "ç é õ", "xx a a a"]) + "\n")
    report = run(tmp_path, "extend", "--corpus", tmp_path / "text", "--pieces", 5, capsys=capsys)
    old, new = (load_model(tmp_path / name) for name in ("model", "new"))
    before, after = (loaded.model.decoder.embedding.tokens.weight.detach() for loaded in (old, new))
    ids, target = old.tokenizers.target.vocabulary, new.tokenizers.target.vocabulary
    checked = 0
    for piece in report["pieces"]:
        row = after[target[piece["piece"]]]
        if len(piece["made_of"]) > 1 and all(part in ids for part in piece["made_of"]):
            parts = before[[ids[part] for part in piece["made_of"]]]
            mean = parts.mean(0)
            torch.testing.assert_close(row, mean * (parts.norm(dim=1).mean() / mean.norm()))
            checked += 1
    assert checked
    torch.testing.assert_close(after[target["õ"]], before[ids["o"]])  # its accent has no row
    kana = after[[target["ね"], target["こ"]]]
    assert torch.equal(kana[0], kana[1])  # the model has no letter of this script: the mean of all characters
    lines = (tmp_path / "text").read_text().splitlines()
    counted = Counter(piece for row in new.tokenizers.target.split_all(lines) for piece in row)
    counts = {piece["piece"]: counted[piece["piece"]] for piece in report["pieces"]}
    bias = new.model.output.bias.detach()
    made = torch.tensor([[1.0, math.log(counts[piece]), bias[target[piece]]] for piece in counts if counts[piece]])
    line = torch.linalg.lstsq(made[:, :2], made[:, 2:]).solution  # over the logarithm of the count
    torch.testing.assert_close(made[:, :2] @ line, made[:, 2:], atol=1e-4, rtol=0.0)


@pytest.mark.parametrize(
    ("kind", "like", "tag"), [("m2m100", "de", "xx"), ("nllb", "deu_Latn", "xxx_Latn"), ("marian", "deu", "xxx")]
)
def test_a_new_language_begins_as_another(kind, like, tag, tmp_path, capsys):
    if kind == "marian":
        make_marian(tmp_path / "model", languages=(">>deu<<", ">>nld<<"))
    else:
        make_multilingual(tmp_path / "model", kind)
    (tmp_path / "text").write_text("\n".join(TARGET))
    typed = ["--corpus", tmp_path / "text", "--pieces", 0, "--tag", tag, "--like", like]
    report = run(tmp_path, "extend", *typed, capsys=capsys)
    assert tag in report["tag"]
    loaded = load_model(tmp_path / "new")
    assert tag in loaded.tokenizers.source.tags
    source = None if kind == "marian" else "en" if kind == "m2m100" else "eng_Latn"
    texts = [hypotheses(loaded.directed(Direction(source, name)), SOURCE) for name in (like, tag)]
    assert texts[0] == texts[1]
    assert texts[0] == hypotheses(load_model(tmp_path / "model").directed(Direction(source, like)), SOURCE)
    assert not any(report["tag"] in text for text in texts[1])
    weights = loaded.model.encoder.embedding.tokens.weight
    ids, tags = loaded.tokenizers.source.vocabulary, loaded.tokenizers.source.tags
    assert torch.equal(weights[ids[tags[tag]]], weights[ids[tags[like]]])


@pytest.mark.parametrize(
    ("kind", "text", "typed", "said"),
    [
        ("ours shared", "the cat sat", ["--pieces", "0"], "nothing to add: the vocabulary has every character"),
        ("ours shared", "the cat sat", [], "and no sequence of pieces is frequent enough"),
        ("ours shared", " \n\n", [], "there is no text"),
        ("ours shared", "ねこ", ["--side", "target"], "has one tokenizer for both sides"),
        ("ours shared", "ねこ", ["--tag", "ltz", "--like", "de"], "has no tags of languages"),
        ("m2m100", "ねこ", ["--tag", "qq", "--like", "klingon"], "--like klingon: not a language of the model"),
        ("m2m100", "ねこ", ["--tag", "deu", "--like", "nl"], "has this language already (de)"),
        ("m2m100", "ねこ", ["--tag", "a b", "--like", "de"], "--tag a b: not a name such as de"),
        ("nllb", "ねこ", ["--tag", "no", "--like", "deu_Latn"], "--tag no: the model spells text with a piece of this"),
        ("m2m100", "ねこ", ["--tag", "qq"], "--tag and --like belong together"),
    ],
)  # fmt: skip
def test_what_cannot_be_added_is_one_line(kind, text, typed, said, tmp_path, capsys):
    make(tmp_path / "model", kind)
    capsys.readouterr()
    (tmp_path / "text").write_text(text)
    command = ["vocabulary", "extend", str(tmp_path / "model"), "--corpus", str(tmp_path / "text"), *typed]
    assert main([*command, "-o", str(tmp_path / "new")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1 or "belong together" in err
    assert not (tmp_path / "new").exists()


def test_only_the_named_side_is_extended(tmp_path, capsys):
    make_ours(tmp_path / "model", shared=False, tied_embeddings="none")
    (tmp_path / "text").write_text("\n".join(["ねこがいます"] * 6))
    typed = ["--corpus", tmp_path / "text", "--side", "target"]
    report = run(tmp_path, "extend", *typed, capsys=capsys)
    assert report["after"]["source_pieces"] == report["before"]["source_pieces"]
    assert report["after"]["target_pieces"] == report["before"]["target_pieces"] + len(report["pieces"])


@pytest.mark.parametrize(
    ("text", "side"), [("ねこがはしる猫犬", "target"), ("the cat sat #%", "source"), ("猫犬 猫猫", "both")]
)
def test_a_corpus_is_of_the_side_that_knows_it(text, side, tmp_path, capsys):
    """Not of the one with fewer pieces: unknown characters in a row are one piece."""
    make_marian(tmp_path / "model", texts=(SOURCE, JAPANESE))
    (tmp_path / "text").write_text("\n".join([text] * 6))
    run(tmp_path, "extend", "--corpus", tmp_path / "text", capsys=capsys)
    tokenizers = load_model(tmp_path / "new").tokenizers
    knows = {name: getattr(tokenizers, name).unk_id not in getattr(tokenizers, name).encode(text)
             for name in ("source", "target")}  # fmt: skip
    assert knows == {name: side in (name, "both") for name in knows}


def test_a_side_gets_the_characters_of_the_other_one(tmp_path, capsys):
    """They have rows already, which they keep."""
    make_marian(tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(["ßä Männer"] * 3))
    old = load_model(tmp_path / "model")
    assert old.tokenizers.source.unk_id in old.tokenizers.source.encode("ßä")
    report = run(tmp_path, "extend", "--corpus", tmp_path / "text", "--side", "source", "--pieces", 0, capsys=capsys)
    new = load_model(tmp_path / "new")
    assert new.tokenizers.source.pieces(new.tokenizers.source.encode("ßä")) == ["\u2581", "ß", "ä"]
    assert report["unknown"] == 3 * len("ßäMä")
    assert not report["pieces"]
    assert torch.equal(new.model.output.weight, old.model.output.weight)


def test_a_model_of_many_directions_gets_pieces_and_keeps_its_tags():
    tags = {"en": "<2en>", "de": "<2de>"}
    trained = Tokenizer.train(TEXTS * 5, TokenizerConfig(vocab_size=380), 1, list(tags.values()))
    pair = tagged_pair(trained.model_bytes, trained.model_bytes, Languages(tags, ("en",), ("de",)))
    result = extended(pair, [[*NEW, *TARGET]], 5)
    new = result.tokenizers.directed(Direction("en", "de"))
    assert {"ね", "こ"} <= {added.piece for added in result.pieces}
    assert new.source.tags == tags
    assert new.source.encode("the cat")[0] == trained.vocabulary["<2de>"]
    assert new.source.encode("the cat") == pair.directed(Direction("en", "de")).source.encode("the cat")


@pytest.mark.parametrize("sizes", [(), (3,), (900, 10), (10, 900), (5, 900, 900, 7), (400, 300, 300), (1, 1, 1)])
def test_small_corpora_are_read_whole_and_large_ones_share_the_rest(sizes):
    found = first_of_each([iter(range(size)) for size in sizes], 600)
    assert [items == list(range(len(items))) for items in found] == [True] * len(sizes)
    kept = list(map(len, found))
    assert sum(kept) <= 600
    assert all(len_ in (size, max(kept)) for len_, size in zip(kept, sizes, strict=True))
    assert sum(kept) >= min(600, sum(sizes)) - len(sizes) / 2


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_corpora_does_not_decide_what_is_learned(order, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(extension, "MOST_LINES", 100)
    make(tmp_path / "model", "ours shared")
    (tmp_path / "large").write_text("the cat sat\n" * 300)
    (tmp_path / "small").write_text("ねこ\n" * 10)
    typed = [part for name in ("large", "small")[::order] for part in ("--corpus", tmp_path / name)]
    report = run(tmp_path, "extend", *typed, "--pieces", 0, capsys=capsys)
    assert {added["piece"] for added in report["pieces"]} == {"ね", "こ"}


def test_a_corpus_that_two_segmenters_read_is_counted_once():
    """The sides of OPUS-MT models have segmenters of their own over one table of ids."""
    models = [sentencepiece_model(tuple(texts), 80, "unigram") for texts in (TEXTS, TEXTS[::-1])]
    pieces = {piece for model in models for piece in Tokenizer(model).vocabulary} - {"<unk>", "<s>", "</s>"}
    table = {piece: id_ for id_, piece in enumerate(["</s>", "<unk>", *sorted(pieces), "<pad>"])}
    pair = MarianTokenizerPair(*(MarianTokenizer(model, table) for model in models))
    lines = ["ねこ いぬ", "ねこ"] * 3
    both, once = extended(pair, [lines, lines], 5), extended(pair, [[], lines], 5)
    assert both.unknown == once.unknown == 3 * len("ねこいぬねこ")
    assert both.tokens == once.tokens
    assert {one.piece: one.count for one in both.pieces} == {one.piece: one.count for one in once.pieces}
    shown = [line for line in both.lines_of_report() if " time" in line]
    assert not any(" 0 times" in line for line in shown)
    assert "no piece before" in " ".join(shown)
