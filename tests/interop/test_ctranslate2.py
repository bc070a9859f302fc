"""The engine of CTranslate2: every architecture of ours, with what torch gives."""

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path

import ctranslate2
import pytest
import torch
from support.converted import converted_engine, sentences
from support.foreign_models import SOURCE, TARGET
from support.our_models import make_ours

from seq2seq.config.schema import SearchConfig
from seq2seq.inference.loading import load_engine
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.interop import ctranslate2_export as export
from seq2seq.lines import read_lines
from seq2seq.runtime import same_threads
from seq2seq.search.base import Sentence
from seq2seq.workflows.convert import Probe, export_ctranslate2

ARCHITECTURES = {
    "pre-norm": dict(),
    "post-norm": dict(norm_position="post"),
    "relu": dict(activation="relu", position_layout="halves"),
    "gelu": dict(activation="gelu"),
    "silu": dict(activation="silu", norm_position="post", position_layout="halves"),
    "swiglu": dict(activation="swiglu"),
    "rms": dict(norm="rms", norm_epsilon=1e-3),
    "learned positions": dict(positions="learned"),
    "rotary": dict(positions="rotary"),
    "rotary, rms, swiglu, wide heads": dict(positions="rotary", norm="rms", activation="swiglu", head_dim=12),
    "narrow heads": dict(head_dim=6),
    "uneven depth": dict(num_encoder_layers=3, num_decoder_layers=1),
    "unscaled": dict(scale_embedding=False),
    "as in M2M-100": dict(position_layout="halves", position_formula="fairseq", position_offset=2),
    "as in mBART": dict(positions="learned", embedding_norm=True, activation="gelu"),
    "untied": dict(tied_embeddings="none", norm_position="post"),
    "two vocabularies": dict(shared=False, tied_embeddings="decoder"),
}
ENGINES = ("auto", "torch")
SEARCHES = [
    SearchConfig(beam_size=1, max_length_ratio=1.0),
    SearchConfig(beam_size=4, early_stopping=True, batch_tokens=200),
    SearchConfig(beam_size=4, n_best=4, length_penalty=0.0, early_stopping=True),
    SearchConfig(beam_size=3, n_best=2, length_penalty=0.6, early_stopping=True),
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return make_ours(tmp_path_factory.mktemp("ours") / "model", ending=6.0, search=SearchConfig(early_stopping=True))


@pytest.fixture(scope="module")
def long_winded(tmp_path_factory):
    """Many of its translations reach their limits."""
    return make_ours(tmp_path_factory.mktemp("long") / "model", ending=4.0, search=SearchConfig(early_stopping=True))


def torch_engine(model):
    return TorchEngine(TransformerSteps(model.model, model.tokenizers, torch.device("cpu")))


def assert_alike(found, expected):
    assert [[h.ids for h in one] for one in found] == [[h.ids for h in one] for one in expected]
    assert [[h.finished for h in one] for one in found] == [[h.finished for h in one] for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert [h.log_prob for h in one] == pytest.approx([h.log_prob for h in other], abs=1e-3)
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-3)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_gives_the_same_probabilities(name, tmp_path):
    """Teacher forcing in both; what never comes out is taken out of ours, as it is out of the export."""
    model = make_ours(tmp_path / "ours", **ARCHITECTURES[name])
    (tmp_path / "export").mkdir()
    export.write_ctranslate2(tmp_path / "export", model.model, model.description, model.tokenizers, "float32")
    runner = ctranslate2.Translator(str(tmp_path / "export"), intra_threads=1)
    source, target = model.tokenizers.source, model.tokenizers.target
    rows = list(zip(source.encode_all(SOURCE[:4]), target.encode_all(TARGET[:4]), strict=True))
    scored = runner.score_batch([source.pieces(s) for s, _ in rows], [target.pieces(t) for _, t in rows])
    for (source_ids, target_ids), result in zip(rows, scored, strict=True):
        ids = torch.tensor([[*source_ids, source.eos_id]])
        start = torch.tensor([[target.start_id, *target_ids]])
        with torch.no_grad():
            logits = model.model.project(model.model(ids, torch.ones_like(ids, dtype=torch.bool), start))[0]
        logits[:, [target.start_id, target.pad_id]] = export.NEVER
        expected = logits.log_softmax(-1).gather(1, torch.tensor([*target_ids, target.eos_id])[:, None])
        assert result.log_probs == pytest.approx(expected[:, 0].tolist(), abs=1e-4)


class Counting:
    """CTranslate2's translator, which also counts the hypotheses that it was asked for."""

    def __init__(self, translator):
        self._translator, self.asked = translator, 0

    def __getattr__(self, name):
        return getattr(self._translator, name)

    def translate_batch(self, sources, *args, num_hypotheses, **options):
        self.asked += num_hypotheses * len(sources)
        return self._translator.translate_batch(sources, *args, num_hypotheses=num_hypotheses, **options)


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_greedy_search_is_made_once_for_each_sentence(early_stopping, length_penalty, ours, tmp_path):
    """CTranslate2 makes a greedy search as often as it is asked for hypotheses, all of which are the same."""
    engine = converted_engine(ours, tmp_path / "export")
    engine._translator = counting = Counting(engine._translator)
    asked = sentences(ours)
    search = SearchConfig(beam_size=1, early_stopping=early_stopping, length_penalty=length_penalty)
    assert [len(hypotheses) for hypotheses in engine.translate(asked, search)] == [1] * len(asked)
    assert counting.asked == len(asked)


@pytest.mark.parametrize("name", ["rotary, rms, swiglu, wide heads", "silu", "two vocabularies"])
@pytest.mark.parametrize("search", SEARCHES, ids=range(len(SEARCHES)))
def test_the_engine_gives_what_torch_gives(name, search, tmp_path):
    """Where a translation of each ends in time: CTranslate2 ranks what a limit cuts off among what ended."""
    model = make_ours(tmp_path / "ours", ending=6.0, **ARCHITECTURES[name])
    asked = sentences(model)
    engine = converted_engine(model, tmp_path / "export")
    found, expected = engine.translate(asked, search), torch_engine(model).translate(asked, search)
    ended = [
        index for index, pair in enumerate(zip(found, expected, strict=True)) if all(one[0].finished for one in pair)
    ]
    assert len(ended) > len(asked) / 3
    assert_alike([found[index][:1] for index in ended], [expected[index][:1] for index in ended])
    if search.beam_size == 1:
        assert_alike(found, expected)


@pytest.mark.parametrize("search", SEARCHES, ids=range(len(SEARCHES)))
def test_prefixes_are_kept_and_counted(ours, search, tmp_path):
    engine, asked = converted_engine(ours, tmp_path / "export"), sentences(ours)
    draw = random.Random(2)
    prefixes = [[draw.randrange(4, 90) for _ in range(draw.choice([0, 1, 3]))] for _ in asked]
    asked = [replace(sentence, prefix=prefix) for sentence, prefix in zip(asked, prefixes, strict=True)]
    found = engine.translate(asked, search)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert all(list(one.ids[: len(prefix)]) == prefix for one in hypotheses)
    assert_scored(ours, asked, found, search)
    if search.beam_size == 1:
        assert_alike(found, torch_engine(ours).translate(asked, search))


def test_forbidden_sequences_are_those_of_each_sentence(ours, tmp_path):
    engine, search = converted_engine(ours, tmp_path / "export"), SearchConfig(beam_size=4)
    free = engine.translate(sentences(ours), search)
    never = [(best[0].ids[:2], best[0].ids[-1:]) if index % 2 else () for index, best in enumerate(free)]
    asked = [replace(one, forbidden=own) for one, own in zip(sentences(ours), never, strict=True)]
    for own, before, hypotheses in zip(never, free, engine.translate(asked, search), strict=True):
        assert own or [one.ids for one in hypotheses] == [one.ids for one in before]
        for sequence in own:
            runs = zip(*(hypotheses[0].ids[start:] for start in range(len(sequence))), strict=False)
            assert sequence not in set(runs)


def test_a_translation_may_end_right_behind_its_prefix(ours, tmp_path):
    engine, search = converted_engine(ours, tmp_path / "export"), SearchConfig(beam_size=4)
    free = engine.translate(sentences(ours), search)
    asked = [replace(one, prefix=best[0].ids) for one, best in zip(sentences(ours), free, strict=True)]
    assert_alike([one[:1] for one in engine.translate(asked, search)], [one[:1] for one in free])


def assert_scored(model, asked, found, search):
    """The log-probabilities are those that the model gives the pieces, and rank the hypotheses that ended."""
    for sentence, hypotheses in zip(asked, found, strict=True):
        ended = [one.score for one in hypotheses if one.finished]
        assert ended == sorted(ended, reverse=True)
        for one in hypotheses:
            forced = replace(sentence, prefix=one.ids)
            greedy = search.model_copy(update=dict(
                beam_size=1, n_best=1, min_length=0, no_repeat_ngram=0, sample=False, top_k=0,
                max_length_offset=len(one.ids) + 1, max_length_ratio=1e-6,
            ))  # fmt: skip
            (again,) = torch_engine(model).translate([forced], greedy)[0]
            if again.finished == one.finished and again.ids == one.ids:
                assert one.log_prob == pytest.approx(again.log_prob, abs=1e-3)


@pytest.mark.parametrize(
    "values", [dict(sample=True, n_best=2, top_k=5), dict(min_length=4), dict(beam_size=1, no_repeat_ngram=2)]
)
def test_scores_under_a_rule_are_the_models_own(ours, values, tmp_path):
    search, asked = SearchConfig(**values), sentences(ours)
    found = converted_engine(ours, tmp_path / "export").translate(asked, search)
    assert all(len(one) == search.n_best for one in found)
    assert all(len(h.ids) >= search.min_length for one in found for h in one)
    assert_scored(ours, asked, found, search)


@pytest.mark.parametrize("values", [dict(beam_size=1), dict(beam_size=4, n_best=2)], ids=["greedy", "beam"])
def test_a_batch_has_sentences_of_different_minimum_lengths(ours, values, tmp_path):
    engine = converted_engine(ours, tmp_path / "export")
    asked = [replace(sentence, min_length=index % 4) for index, sentence in enumerate(sentences(ours))]
    together = engine.translate(asked, SearchConfig(**values, min_length=1))
    for sentence, found in zip(asked, together, strict=True):
        alone = SearchConfig(**values, min_length=max(sentence.min_length, 1))
        assert_alike(engine.translate([replace(sentence, min_length=0)], alone), [found])
    assert all(len(one.ids) >= each.min_length for each, found in zip(asked, together, strict=True) for one in found)


def test_neighbours_and_order_change_nothing(ours, tmp_path):
    engine, asked = converted_engine(ours, tmp_path / "export"), sentences(ours)
    search = SearchConfig(beam_size=4, n_best=2, early_stopping=True)
    together = engine.translate(asked, search)
    assert_alike(engine.translate(asked[::-1], search)[::-1], together)
    assert_alike([engine.translate([sentence], search)[0] for sentence in asked], together)


def test_the_first_of_the_n_best_is_the_one_best(ours, tmp_path):
    engine = converted_engine(ours, tmp_path / "export", threads=2)
    asked = many_sentences(ours, 300)
    tight = dict(max_length_ratio=1.0, max_length_offset=2, beam_size=4)
    alone = engine.translate(asked, SearchConfig(**tight))
    several = engine.translate(asked, SearchConfig(**tight, n_best=4))
    assert_alike([one[:1] for one in several], alone)
    assert all(len({h.ids for h in one}) == 4 for one in several)


def many_sentences(model, count, most_words=16):
    """Sentences of very mixed lengths, short ones more often, and each text many times."""
    draw = random.Random(4)
    words = " ".join(SOURCE).split()
    texts = [" ".join(draw.choices(words, k=int(draw.triangular(1, most_words, 2)))) for _ in range(count // 8)]
    known = [Sentence(tuple(ids)) for ids in model.tokenizers.source.encode_all(texts)]
    return [draw.choice(known) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["float32", "int8"])
@pytest.mark.parametrize("values", [dict(beam_size=1), dict(beam_size=4, n_best=3)], ids=["greedy", "beam"])
def test_each_of_thousands_of_sentences_is_translated_as_if_alone(long_winded, values, quantization, tmp_path):
    """2,000 sentences of a plain folder, whose limits are so tight that many end after their own; 1,000 in int8."""
    search = SearchConfig(max_length_ratio=0.7, max_length_offset=2, min_length=1, batch_tokens=2000, **values)
    engine = converted_engine(long_winded, tmp_path / "export", quantization=quantization)
    asked = many_sentences(long_winded, 2_000 if quantization == "float32" else 1_000)
    together = engine.translate(asked, search)
    for sentence, hypotheses in zip(asked, together, strict=True):
        assert len(hypotheses) == search.n_best
        assert all(one.ids and math.isfinite(one.score) for one in hypotheses)
        assert all(len(one.ids) + one.finished <= int(0.7 * len(sentence.source_ids)) + 2 for one in hypotheses)
    cut_off = sum(not hypotheses[0].finished for hypotheses in together)
    assert cut_off < len(together) / 2
    assert cut_off or search.beam_size > 1  # a beam finds an end in time
    if quantization == "int8":
        return  # of 8 bits no more is asked than an answer
    alone = {sentence: engine.translate([sentence], search)[0] for sentence in set(asked)}
    assert_alike(together, [alone[sentence] for sentence in asked])


@pytest.mark.parametrize("values", [dict(beam_size=1), dict(beam_size=4, n_best=4)], ids=["greedy", "beam"])
@pytest.mark.parametrize("prefixed", [False, True], ids=["free", "prefixed"])
def test_neighbours_change_nothing_where_limits_are_tight(long_winded, values, prefixed, tmp_path):
    engine = converted_engine(long_winded, tmp_path / "export")
    search = SearchConfig(max_length_ratio=1.0, max_length_offset=2, min_length=1, **values)
    asked, draw = many_sentences(long_winded, 300), random.Random(5)
    prefixes = [[draw.randrange(4, 90) for _ in range(draw.choice([0, 1, 3, 20]) * prefixed)] for _ in asked]
    asked = [replace(sentence, prefix=prefix) for sentence, prefix in zip(asked, prefixes, strict=True)]
    together = engine.translate(asked, search)
    alone = [engine.translate([sentence], search)[0] for sentence in asked]
    assert_alike(together, alone)
    assert all(one[0].ids for one in together)


@pytest.mark.parametrize(("beam_size", "fewest"), [(1, 1), (4, 2)], ids=["greedy", "beam"])
def test_only_a_beam_search_groups_by_limits(ours, tmp_path, beam_size, fewest):
    """Small groups are slow; rows that do not depend on each other may be cut afterwards."""
    engine = converted_engine(ours, tmp_path / "export")
    short, longer = ([Sentence(tuple([5] * length))] * 4 for length in (2, 20))
    limits = [12] * 4 + [50] * 4
    groups = list(engine._groups([*short, *longer], range(8), limits, SearchConfig(beam_size=beam_size)))
    assert len(groups) == fewest
    assert sorted(index for group in groups for index in group) == list(range(8))


@pytest.mark.slow
def test_no_caption_is_lost(real_data, tmp_path):
    """250 captions, greedy and with a beam, through the folder alone of a model that knows them."""
    model = Path(real_data).parent / "models" / "marian-multi30k-small"
    if not model.is_dir():
        pytest.skip(f"needs {model.name} beside the data")
    export_ctranslate2(model, tmp_path / "int8", "int8", Probe())
    lines = list(itertools.islice(read_lines(real_data / "multi30k" / "train.en.gz"), 250))
    for search in (dict(beam_size=1), dict(beam_size=2)):
        found = Translator.load(tmp_path / "int8", **search).translate(lines)
        assert all(one.text and math.isfinite(one.score) for one in found)
        assert not any("empty" in one.flags for one in found)


def test_torch_keeps_its_threads(ours):
    with same_threads():
        torch.set_num_threads(3)
        Translator.load(ours.folder, engine="ctranslate2").translate(["a word"])
        assert torch.get_num_threads() == 3


@pytest.mark.parametrize("search", [dict(beam_size=1), dict(beam_size=3), dict(sample=True)], ids=str)
def test_searches_end_before_the_positions_do(tmp_path, search):
    model = make_ours(tmp_path / "ours", max_length=41)
    engine = converted_engine(model, tmp_path / "export")
    config = SearchConfig(**search, max_length_ratio=2.0)
    long = [Sentence(tuple([5] * length)) for length in (3, 15, 39, 40)]
    for found in engine.translate(long, config):
        assert len(found[0].ids) + found[0].finished <= 40


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_prefix_that_repeats_itself_is_continued(ours, tmp_path, beam_size):
    engine, words = converted_engine(ours, tmp_path / "export"), ours.tokenizers.target.encode("a word")[:1]
    (found,) = engine.translate([Sentence((5, 6), tuple(words * 20))], SearchConfig(beam_size=beam_size))
    assert found[0].ids[:20] == tuple(words * 20)
    assert found[0].finished or len(found[0].ids) > 20


def test_no_sentence_is_no_work(ours, tmp_path):
    assert converted_engine(ours, tmp_path / "export").translate([], SearchConfig()) == []


def test_special_ids_never_come_out_of_a_bare_translate_batch(tmp_path):
    model = make_ours(tmp_path / "ours", output_bias=True)
    with torch.no_grad():
        model.model.output.bias[model.tokenizers.target.pad_id] = 50.0  # or nothing else would
    (tmp_path / "export").mkdir()
    export.write_ctranslate2(tmp_path / "export", model.model, model.description, model.tokenizers, "float32")
    runner = ctranslate2.Translator(str(tmp_path / "export"), intra_threads=1)
    target = model.tokenizers.target
    done = runner.translate_batch(
        [model.tokenizers.source.pieces(sentence.source_ids) for sentence in sentences(model, 4)], max_decoding_length=9
    )
    assert not {*target.pieces([target.pad_id, target.start_id])} & {
        piece for one in done for piece in one.hypotheses[0]
    }


def test_the_translator_gives_the_same_lines_with_both_engines(ours):
    lines = [*SOURCE, "", "\u2028", "tab\there", " spaces ", "日本語 😀", "x " * 200]
    found, expected = (
        Translator(loaded.engine, loaded.tokenizers, loaded.search, repair=False).translate(lines)
        for loaded in (load_engine([ours.folder], engine, threads=1, search={"beam_size": 1}) for engine in ENGINES)
    )
    assert [one.text for one in found] == [one.text for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-3)


def test_draws_that_no_seed_repeats_are_warned_about(ours, tmp_path, caplog):
    converted_engine(ours, tmp_path / "export")
    translations = Translator.load(tmp_path / "export", sample=True, n_best=2).translate(SOURCE)
    assert all(len(one.alternatives) == 1 for one in translations)
    assert "draws differ from run to run" in caplog.text


@pytest.mark.parametrize(
    "search", [dict(sample=True, top_k=1), dict(sample=True, top_k=100_000), dict(beam_size=3, min_length=200),
               dict(beam_size=1, n_best=1, min_length=200)], ids=str,
)  # fmt: skip
def test_settings_that_ctranslate2_refuses_give_as_many_translations_as_with_torch(tmp_path, search):
    """A single candidate, more candidates than pieces, and a minimum above the length of the model."""
    model = make_ours(tmp_path / "model", ending=4.0, d_model=32, search=SearchConfig(beam_size=2)).folder
    found = {
        engine: Translator.load(model, engine=engine, device="cpu", threads=1, **{"n_best": 2, **search})
        for engine in ("ctranslate2", "torch")
    }
    counts = [[1 + len(one.alternatives) for one in each.translate(SOURCE[:3])] for each in found.values()]
    assert counts[0] == counts[1]
