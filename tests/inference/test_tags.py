"""Tags of languages: every part of a long pair has them, and no word and no link does."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from support.foreign_models import LANGUAGES, SOURCE, TARGET, make_marian
from support.multilingual_models import PAIRS, make_multilingual
from support.our_models import SIZES, make_ours

from seq2seq import runtime
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import ModelConfig, TokenizerConfig
from seq2seq.data.collate import collate_translation
from seq2seq.errors import UserError
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.translator import Translator
from seq2seq.model.attention import CrossAttention, capture_attention
from seq2seq.model.transformer import Transformer
from seq2seq.search.base import Sentence
from seq2seq.store.calibration import Calibration, ConfidenceMap, Reliability, write_calibration
from seq2seq.store.model_folder import load_model, save_model
from seq2seq.text.alignment import pharaoh
from seq2seq.text.direction import Direction
from seq2seq.text.glossary import Glossary
from seq2seq.text.tagged_tokenizer import Languages, tagged_pair
from seq2seq.text.tokenizer import Tokenizer

TYPED = ">>deu<< "


class Made(NamedTuple):
    """A folder, the languages to open it with, and the tag to type."""

    folder: Path
    direction: Direction
    tag: str = ""


def make_tagged(folder: Path, tags: str, ending: float = 0.0) -> Made:
    """A model of many directions with random weights; with `ending`, its output bias makes it end."""
    languages = Languages({"en": ">>eng<<", "de": ">>deu<<"}, ("en", "de"), ("en", "de"), tags)
    config = TokenizerConfig(vocab_size=330)
    model_bytes = Tokenizer.train([*SOURCE, *TARGET] * 5, config, 1, tuple(languages.pieces.values())).model_bytes
    pair = tagged_pair(model_bytes, model_bytes, languages)
    shape = ModelConfig(**SIZES | {"max_length": 32, "output_bias": bool(ending)})
    model = Transformer(shape, pair.source.vocab_size, pair.target.vocab_size)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
        if ending:
            model.output.bias[pair.target.eos_id] = ending
    save_model(folder, model.state_dict(keep_vars=True), ModelDescription(model=shape), pair)
    return Made(folder, Direction("en", "de"))


def make_family(folder: Path, family: str) -> Made:
    make_multilingual(folder, family, max_position_embeddings=32)
    return Made(folder, Direction(*PAIRS[family]))


def make_plain(folder: Path) -> Made:
    """A model for which a typed tag is text, in several pieces."""
    make_ours(folder, max_length=48)
    return Made(folder, Direction(), TYPED)


def make_opus(folder: Path, direction: Direction, tag: str) -> Made:
    make_marian(folder, languages=LANGUAGES)
    return Made(folder, direction, tag)


KINDS = {
    "source": partial(make_tagged, tags="source"),
    "both": partial(make_tagged, tags="both"),
    "decoder": partial(make_tagged, tags="decoder"),
    "typed": partial(make_opus, direction=Direction(), tag=TYPED),
    "--to": partial(make_opus, direction=Direction(target="deu"), tag=""),
    "typed for another --to": partial(make_opus, direction=Direction(target="nld"), tag=TYPED),
    "typed, in pieces of text": make_plain,
    "m2m100": partial(make_family, family="m2m100"),
    "at the end": partial(make_family, family="mbart25"),
}


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory) -> Made:
    if request.param not in ("source", "both", "decoder", "typed, in pieces of text"):
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    return KINDS[request.param](tmp_path_factory.mktemp("made") / "model")


def opened(cls, made: Made):
    return cls(load_model(made.folder).directed(made.direction), runtime.start("cpu", "float32", 1))


@pytest.mark.parametrize("tags", ["source", "both", "decoder"])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_tags_do_not_count_for_the_minimum_length(tags, beam_size, tmp_path):
    """With both engines, of a model that ends as soon as it may."""
    made = make_tagged(tmp_path / "model", tags, ending=30.0)
    languages = {"source_language": made.direction.source, "target_language": made.direction.target}
    for engine in ("torch", "ctranslate2"):
        translator = Translator.load(made.folder, engine=engine, beam_size=beam_size, threads=1, **languages)
        ids, start = translator.tokenizers.source.read(SOURCE[0]), translator.tokenizers.target.start_ids
        for least in (0, 1, 2, 5):
            asked = Sentence(tuple(ids), start=start, min_length=least)
            ((found, *_),) = translator._engine.translate([asked], translator.config)
            assert len(found.ids) == least, engine


def words_of_one_piece(tokenizer, lines, count: int) -> list[str]:
    """`count` words in any order, each of one piece, so that parts end between words."""
    known = sorted({word for line in lines for word in line.split() if len(tokenizer.spans(word)[1]) == 1})
    assert len(known) > 1
    return [known[number * 7 % len(known)] for number in range(count)]


def both_sides(scorer: Scorer, count: int) -> tuple[list[str], list[str]]:
    known = scorer._tokenizers
    return words_of_one_piece(known.source, SOURCE, count), words_of_one_piece(known.target, SOURCE + TARGET, count + 3)


def test_a_long_pair_is_its_parts_alone_each_with_the_tag(made):
    scorer, aligner = opened(Scorer, made), opened(Aligner, made)
    sides = both_sides(scorer, 75)
    whole = made.tag + " ".join(sides[0]), " ".join(sides[1])
    (score,), (found,) = scorer.score([whole]), aligner.align([whole])
    count = score.parts
    assert count > 1
    cut = [
        [words[len(words) * part // count : len(words) * (part + 1) // count] for part in range(count)]
        for words in sides
    ]
    pairs = [(made.tag + " ".join(one), " ".join(other)) for one, other in zip(*cut, strict=True)]
    scores = [*scorer.score(pairs[:-1], ended=False), *scorer.score(pairs[-1:])]
    assert [one.parts for one in scores] == [1] * count
    assert score.log_prob == pytest.approx(sum(one.log_prob for one in scores), abs=1e-3)
    words, links, begins = [], [], [0, 0]
    for pair, part in zip(pairs, aligner.align(pairs), strict=True):
        moved = part.shifted(*begins)
        words += moved.words
        links += moved.links
        begins = [begins[0] + len(pair[0]) - len(made.tag) + 1, begins[1] + len(pair[1]) + 1]
    assert [word.span for word in found.words] == [word.span for word in words]
    assert [word.log_prob for word in found.words] == pytest.approx([word.log_prob for word in words], abs=1e-3)
    assert [link[:2] for link in found.links] == [link[:2] for link in links]
    assert [link.weight for link in found.links] == pytest.approx([link.weight for link in links], abs=1e-3)


@pytest.mark.parametrize("count", [6, 75])
def test_no_word_contains_a_tag_and_no_link_leads_to_one(made, count):
    aligner = opened(Aligner, made)
    sides = both_sides(aligner, count)
    text, target = " ".join(sides[0]), " ".join(sides[1])
    (found,) = aligner.align([(f" {made.tag}{text}", target)])
    begin = len(made.tag) + 1
    assert [f" {made.tag}{text}"[slice(*span)] for span in found.source_words] == sides[0]
    assert min(span[0] for span in found.source_words) == begin
    assert {link.source for link in found.links} <= set(found.source_words)
    (numbered,) = aligner.align([(made.tag + text, target)], spaced=True)
    first = len(made.tag.split())  # a typed tag is a word of its line, with a number
    assert len(numbered.source_words) == first + len(sides[0])
    linked = [tuple(map(int, pair.split("-"))) for pair in pharaoh(numbered).split()]
    assert min(source for source, _ in linked) >= first
    sources, targets = ({span: number for number, span in enumerate(spans)} for spans in (
        found.source_words, [word.span for word in found.words]
    ))  # fmt: skip
    assert linked == sorted((sources[link.source] + first, targets[link.target]) for link in found.links)
    only_tag, nothing = aligner.align([(made.tag, target), ("", target)])
    assert only_tag.source_words == only_tag.links == nothing.links == ()
    assert aligner.align([(made.tag, target)], spaced=True)[0].links == ()
    without_space = made.tag.strip() + text  # the first of the words between spaces has the weights of its rest alone
    apart, together = (aligner.align([(without_space, target)], spaced=spaced)[0] for spaced in (False, True))
    assert len(apart.source_words) == len(together.source_words)
    assert [link.weight for link in apart.links] == pytest.approx([link.weight for link in together.links], abs=1e-5)


def test_the_attention_of_a_word_is_that_of_its_pieces(made):
    """Law: the weights of the first word do not contain those of a tag before it, and no step is that of a tag."""
    aligner = opened(Aligner, made)
    sides = both_sides(aligner, 6)
    source, target = made.tag + " ".join(sides[0]), " ".join(sides[1])
    ((_, _, matrix, _),) = aligner.word_matrices([(source, target)])
    known, model = aligner._tokenizers, aligner._model
    batch = collate_translation([known.source.read(source)], [known.target.encode(target)], known, [0])
    with torch.inference_mode(), capture_attention(model, CrossAttention) as captured:
        model(batch.source_ids, batch.source_mask, batch.target_input)
    heads = torch.cat([captured[f"decoder.layers.{layer}.cross_attention"] for layer in range(2)], 1)[0].mean(0)
    end = batch.source_ids.shape[1] - len(known.source.end_ids)
    steps = len(known.target.start_ids) - 1
    expected = heads[steps : steps + len(sides[1]), end - len(sides[0]) : end]
    assert torch.allclose(torch.from_numpy(matrix[0]), expected, atol=1e-5)
    assert float(expected.sum(1).max()) < 1  # something is left for tags and ends


@pytest.fixture(scope="module")
def opus(tmp_path_factory) -> Path:
    pytest.importorskip("transformers")
    folder = make_opus(tmp_path_factory.mktemp("opus") / "model", Direction(), TYPED).folder
    row = Reliability(predicted=0.5, observed=0.5, sentences=100)
    four = {"means": (0.0,) * 4, "scales": (9.0,) * 4, "weights": (1.0,) * 4}
    write_calibration(folder, Calibration(confidence=ConfidenceMap(**four, bias=0.0, table=(row,))))
    return folder


@pytest.mark.parametrize("repeats", [1, 8])
def test_a_typed_tag_gives_the_details_and_terms_of_its_language(opus, repeats):
    """Also on lines in parts, whose spans do not contain the tag."""
    line = "the cat sat on the mat. she reads a book. " * repeats
    entries = Glossary.of(enumerate([("cat", "Hund"), ("book", "Haus")], 1), "de", "terms")
    plain, german = (
        Pipeline.load(opus, glossary=entries, engine="torch", device="cpu", beam_size=1, target_language=to)
        for to in (None, "deu")
    )
    with pytest.raises(UserError, match="details 'foo': not one of alignment, words, confidence"):
        plain.translate([line], details=("alignment", "foo"))
    (typed,) = plain.translate([f" {TYPED}{line}"], details=("alignment", "confidence"))
    (named,) = german.translate([line], details=("alignment", "confidence"))
    assert len(typed.parts) == len(named.parts)
    assert (len(typed.parts) > 1) == (repeats > 1)
    assert typed.text.strip() == named.text.strip()
    before = len(typed.text) - len(typed.text.lstrip())
    moved = [one.shifted(len(TYPED) + 1, before) for one in named.details]
    assert [replace(one, source=(0, 0)) for one in typed.details] == [replace(one, source=(0, 0)) for one in moved]
    assert typed.terms == tuple(term.shifted(len(TYPED) + 1, before) for term in named.terms)
    for one, part in zip(typed.details, typed.parts, strict=True):
        assert (one.source, one.target) == part[:2]
        assert 0 < one.confidence < 1


def test_tags_of_parts(opus):
    translator = Translator.load(opus, engine="torch", device="cpu", beam_size=1)
    long = "the cat sat on the mat. " * 8
    for line, tag in (
        (long, ""),
        (TYPED + long, TYPED),
        (f"  {TYPED}{long}", TYPED),
        (f"{TYPED}the cat", ""),
        ("", ""),
    ):
        assert translator.translate([line])[0].tag_of_parts == tag


RESTS = ["", "42", "😀", "😀 the cat", "the cat. " * 30, "x" * 300 + " 42", "the cat"]


@pytest.mark.parametrize("tag", [TYPED, ">>xy<< ", ">>xy_Latn<<", ">>Hello there<< "])
def test_text_in_the_form_of_a_tag_is_not_lost(made, tag):
    """Law: what has the form of a tag is left out only where it is one, or where the model reads it with other text."""
    named = {"source_language": made.direction.source, "target_language": made.direction.target}
    translator = Translator.load(made.folder, engine="torch", device="cpu", threads=1, beam_size=1, **named)
    lines, known = [(tag + rest).strip() for rest in RESTS], translator.tokenizers.source
    for rest, line, answer in zip(RESTS, lines, translator.translate(lines), strict=True):
        parts = [request.part for request in translator._requests([line], [], 0, ())]
        shown, read = "".join(part.before + part.text for part in parts), [part for part in parts if not part.is_copied]
        if known.language_named(line) is not None:
            assert tag == TYPED
            assert (shown == rest.strip() and all(part.tag == tag for part in read)) or shown == line
        elif shown != line:
            assert type(known) is Tokenizer  # of a model without tags, which may have learned tags that are spelled
            assert shown == rest.strip()
            assert read
            assert all(part.tag == tag for part in read)
        assert bool(answer.tag_of_parts) == (bool(parts) and shown != line)
