"""Laws of search, over tables of probabilities whose best translations can be counted out."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.launches import as_on_a_gpu
from support.table_model import EOS, NUM_STATES, START, TableModel, config, sentences, sources, texts

from seq2seq.config.schema import SearchConfig
from seq2seq.search import rules
from seq2seq.search.base import Opening, Sentence, normalized_score
from seq2seq.search.beam import beam_search
from seq2seq.search.candidates import largest_candidates
from seq2seq.search.greedy import draw_ids, greedy_search, sample_search
from seq2seq.search.rules import Rules, forbid_repeated_ngrams, on_device
from seq2seq.search.search import search


@pytest.mark.parametrize("seed", range(10))
def test_beam_of_one_is_greedy(seed):
    model = TableModel(seed)
    beam = beam_search(model, sentences(9), config(beam_size=1))
    greedy = greedy_search(model, sentences(9), config(beam_size=1))
    assert texts(beam) == texts(greedy)
    for one, other in zip(itertools.chain(*beam), itertools.chain(*greedy), strict=True):
        assert one.finished == other.finished
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_wide_beam_finds_what_counting_out_finds(seed, length_penalty):
    model, limit = TableModel(seed, vocab_size=5), 5
    every = [
        ids
        for length in range(limit)
        for ids in itertools.product((2, 3, 4), repeat=length)  # neither start nor end
    ]
    for source in sources(3, seed):
        ranked = sorted(
            every,
            key=lambda ids: -normalized_score(model.log_prob(source, (*ids, EOS)), len(ids) + 1, length_penalty),
        )
        wide = config(
            beam_size=300, n_best=20, length_penalty=length_penalty, max_length_ratio=1e-9, max_length_offset=limit
        )
        found = beam_search(model, [Sentence(source)], wide)[0]
        assert [hypothesis.ids for hypothesis in found] == ranked[:20]
        for hypothesis in found:
            log_prob = model.log_prob(source, (*hypothesis.ids, EOS))
            assert hypothesis.finished
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-4)
            expected = normalized_score(log_prob, len(hypothesis.ids) + 1, length_penalty)
            assert hypothesis.score == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "how",
    [
        dict(beam_size=1),
        dict(beam_size=4, n_best=4),
        dict(beam_size=3, no_repeat_ngram=2, min_length=3),
        dict(sample=True, n_best=3, temperature=1.3),
    ],
)
def test_batch_size_and_order_change_nothing(how):
    model, asked = TableModel(3), sentences(40)
    whole = search(model, asked, config(**how))
    alone = [search(model, [sentence], config(**how))[0] for sentence in asked]
    backwards = search(model, asked[::-1], config(**how))[::-1]
    assert whole == alone == backwards


@pytest.mark.parametrize("how", [dict(beam_size=1), dict(beam_size=4, n_best=2)])
def test_a_batch_has_sentences_of_different_minimum_lengths(how):
    """The minimum of a sentence is the larger of its own and that of the settings."""
    model = TableModel(3)
    asked = [replace(sentence, min_length=index % 7) for index, sentence in enumerate(sentences(40))]
    together = search(model, asked, config(**how, min_length=2))
    for sentence, found in zip(asked, together, strict=True):
        least = max(sentence.min_length, 2)
        assert all(len(one.ids) >= least for one in found)
        assert search(model, [replace(sentence, min_length=0)], config(**how, min_length=least)) == [found]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(3, 9),
    beam_size=st.integers(2, 5),
    length_penalty=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
    spread=st.sampled_from([0.1, 1.0, 4.0]),
    offset=st.integers(1, 12),
)
def test_stopping_early_never_changes_the_best(seed, vocab_size, beam_size, length_penalty, spread, offset):
    model = TableModel(seed, vocab_size, spread)
    asked = sentences(6, seed)
    values = dict(beam_size=beam_size, length_penalty=length_penalty, max_length_offset=offset)
    every = [beam_search(model, asked, config(**values, n_best=n_best)) for n_best in range(1, beam_size + 1)]
    for n_best, results in enumerate(every, start=1):
        for best, most in zip(results, every[-1], strict=True):
            assert best == most[:n_best]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), beam_size=st.integers(1, 6), offset=st.integers(1, 9))
def test_n_best_is_sorted_distinct_and_true(seed, beam_size, offset):
    model, asked = TableModel(seed), sentences(4, seed)
    chosen = config(beam_size=beam_size, n_best=beam_size, max_length_offset=offset)
    for sentence, hypotheses in zip(asked, beam_search(model, asked, chosen), strict=True):
        assert 1 <= len(hypotheses) <= beam_size
        assert len({hypothesis.ids for hypothesis in hypotheses}) == len(hypotheses)
        order = [(not hypothesis.finished, -hypothesis.score) for hypothesis in hypotheses]
        assert order == sorted(order)
        for hypothesis in hypotheses:
            tokens = (*hypothesis.ids, EOS) if hypothesis.finished else hypothesis.ids
            assert EOS not in hypothesis.ids
            assert len(tokens) <= len(sentence.source_ids) + offset
            assert hypothesis.log_prob == pytest.approx(model.log_prob(sentence.source_ids, tokens), abs=1e-3)


def test_best_live_hypothesis_is_returned_where_none_ends():
    model = TableModel(0)
    model.table[:, EOS] = -1e9
    for how in (dict(beam_size=1), dict(beam_size=3, n_best=3), dict(sample=True, n_best=2)):
        for source, hypotheses in zip(sources(3), search(model, sentences(3), config(**how)), strict=True):
            assert len(hypotheses) == config(**how).n_best
            assert all(not hypothesis.finished for hypothesis in hypotheses)
            assert all(len(hypothesis.ids) == len(source) + 8 for hypothesis in hypotheses)


@pytest.mark.parametrize("how", [dict(beam_size=1), dict(beam_size=4, n_best=4), dict(sample=True, n_best=4)])
def test_forced_prefix_is_a_prefix_and_counts(how):
    model = TableModel(5)
    # a suppressed id, a repeated n-gram, and a prefix longer than the length limit are forced all the same
    prefixes = [[], [3], [START, 2], [2, 2, 2, 2], [4] * 20]
    asked = [replace(sentence, prefix=prefix) for sentence, prefix in zip(sentences(5), prefixes, strict=True)]
    results = search(model, asked, config(**how, no_repeat_ngram=1))
    for sentence, prefix, hypotheses in zip(asked, prefixes, results, strict=True):
        for hypothesis in hypotheses:
            tokens = (*hypothesis.ids, EOS) if hypothesis.finished else hypothesis.ids
            assert hypothesis.ids[: len(prefix)] == tuple(prefix)
            assert hypothesis.log_prob == pytest.approx(model.log_prob(sentence.source_ids, tokens), abs=1e-3)
    free = search(model, asked[:1], config(**how, no_repeat_ngram=1))
    assert texts(free) == texts(results[:1])


@pytest.mark.parametrize("how", [dict(beam_size=1), dict(beam_size=4, n_best=4), dict(sample=True, n_best=4)])
@pytest.mark.parametrize("rules", [{}, dict(no_repeat_ngram=1), dict(renormalize=True)], ids=str)
def test_an_opening_is_followed_by_every_hypothesis(how, rules):
    """Ids 2 2 2, or 2 3, or 4 must follow the prefix, each sentence has its own; then everything may."""
    model = TableModel(5)
    opening = Opening(({2: 1, 4: 3}, {2: 2, 3: 3}, {2: 3}))
    asked = [
        replace(sentence, prefix=prefix, opening=opening if index % 3 else None)
        for index, (sentence, prefix) in enumerate(zip(sentences(9), [[], [3], [2, 2]] * 3, strict=True))
    ]
    results = search(model, asked, config(**how, **rules))
    for sentence, hypotheses in zip(asked, results, strict=True):
        for one in hypotheses:
            assert one.log_prob > -math.inf
            begin = len(sentence.prefix)
            assert one.ids[:begin] == tuple(sentence.prefix)
            if sentence.opening:
                ways = ((2, 2, 2), (2, 3), (4,))
                assert any(one.ids[begin : begin + len(way)] == way for way in ways)
    assert [search(model, [one], config(**how, **rules))[0] for one in asked] == results
    free = search(model, [replace(one, opening=None) for one in asked], config(**how, **rules))
    assert texts(free)[::3] == texts(results)[::3]


@pytest.mark.parametrize("how", [dict(beam_size=1), dict(beam_size=4, n_best=4), dict(sample=True, n_best=4)])
def test_minimum_length_holds_even_beyond_the_limit(how):
    results = search(TableModel(5, vocab_size=30), sentences(5), config(**how, min_length=20))
    assert all(len(hypothesis.ids) >= 20 for hypotheses in results for hypothesis in hypotheses)


@pytest.mark.parametrize("how", [dict(beam_size=1), dict(beam_size=4, n_best=4), dict(sample=True, n_best=4)])
def test_forbidden_sequences_are_those_of_each_sentence(how):
    model = TableModel(3, vocab_size=12, spread=0.5)
    free = search(model, sentences(6), config(**how))
    # Of every second sentence a pair of ids that its best translation has, and one that stands alone.
    found = [hypotheses[0].ids for hypotheses in free]
    never = [(ids[:2], ids[-1:]) if index % 2 and len(ids) > 2 else () for index, ids in enumerate(found)]
    assert sum(map(bool, never)) > 1
    asked = [replace(one, forbidden=own) for one, own in zip(sentences(6), never, strict=True)]
    results = search(model, asked, config(**how))
    for own, before, hypotheses in zip(never, free, results, strict=True):
        if not own:
            assert texts([hypotheses]) == texts([before])
        for hypothesis in hypotheses:
            for sequence in own:
                runs = zip(*(hypothesis.ids[start:] for start in range(len(sequence))), strict=False)
                assert sequence not in set(runs)
    for one, hypotheses in zip(asked, results, strict=True):
        assert texts(search(model, [one], config(**how))) == texts([hypotheses])


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("how", [dict(beam_size=1), dict(beam_size=4, n_best=4), dict(sample=True, n_best=4)])
def test_no_ngram_repeats(how, size):
    model = TableModel(2, vocab_size=12, spread=0.5)
    results = search(model, sentences(5), config(**how, no_repeat_ngram=size, min_length=8))
    for hypothesis in itertools.chain(*results):
        ngrams = list(zip(*(hypothesis.ids[start:] for start in range(size)), strict=False))
        assert len(set(ngrams)) == len(ngrams)


def test_ngram_rule_forbids_exactly_what_repeats():
    history = torch.tensor([[5, 6, 5, 7, 5], [5, 6, 7, 8, 9]])
    logits = torch.zeros(2, 10)
    forbid_repeated_ngrams(2, logits, history)
    assert (logits == -math.inf).nonzero().tolist() == [[0, 6], [0, 7]]


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize(
    ("how", "count"),
    [(dict(beam_size=2), 1), (dict(beam_size=1), 1), (dict(sample=True, n_best=2), 2), (dict(sample=True, top_k=2), 1)],
)
def test_rules_that_leave_nothing_give_an_empty_hypothesis(how, count, renormalize):
    model = TableModel(0, vocab_size=4, suppressed=(START, 2, 3))
    asked = config(**how, min_length=3, renormalize=renormalize)
    (hypotheses,) = search(model, [Sentence([5])], asked)
    assert [hypothesis.ids for hypothesis in hypotheses] == [()] * count
    assert not any(hypothesis.finished for hypothesis in hypotheses)


@pytest.mark.parametrize("how", [dict(beam_size=1), dict(sample=True)])
def test_rules_that_leave_nothing_after_some_ids_do_so_in_each_search(how):
    """Two ids may be generated, each of them once, and the end comes after three at the earliest."""
    model, once = TableModel(0, vocab_size=4, suppressed=(START,)), dict(no_repeat_ngram=1, min_length=3)
    (expected,) = beam_search(model, [Sentence([5])], config(beam_size=1, **once))
    assert search(model, [Sentence([5])], config(**how, **once)) == [expected]


def test_suppressed_ids_are_put_on_the_device_once(monkeypatch):
    """On a GPU, each copy costs a search a wait."""
    made, model = [], TableModel(1, suppressed=(START, 5, 4))
    rules.kept_on_device.cache_clear()
    monkeypatch.setattr(rules, "on_device", lambda values, *others: made.append(values) or on_device(values, *others))
    for _ in range(2):
        search(model, sentences(3), config(beam_size=2))
    assert made.count(model.suppressed) == 1


def test_suppressed_ids_never_come_out():
    model = TableModel(1, suppressed=(START, 4))
    model.table[:, 4] = 9.0
    for how in (dict(beam_size=1), dict(beam_size=4, n_best=4), dict(sample=True, n_best=4)):
        for hypothesis in itertools.chain(*search(model, sentences(8), config(**how))):
            assert not {START, 4} & set(hypothesis.ids)


def test_finished_sentences_leave_the_batch():
    model = TableModel(4)
    results = beam_search(model, sentences(60), config(beam_size=3, max_extra_steps=0))
    steps = max(len(hypotheses[0].ids) + 1 for hypotheses in results)
    assert model.rows_computed < 0.8 * steps * 60 * 3


@pytest.mark.parametrize("how", [dict(beam_size=1), dict(beam_size=4, n_best=4), dict(sample=True, n_best=3)])
def test_results_that_are_read_late_are_the_same(how, monkeypatch):
    """As on a GPU: the end of a sentence is seen when the next step is computed, also that of the last sentence."""
    model, asked = TableModel(3), sentences(40)
    for limit in (1, 8):
        expected = search(model, asked, config(**how, max_length_offset=limit))
        computed, model.rows_computed = model.rows_computed, 0
        with monkeypatch.context() as patch:
            as_on_a_gpu(patch)
            assert search(model, asked, config(**how, max_length_offset=limit)) == expected
        assert model.rows_computed > computed
        model.rows_computed = 0


def test_no_sentences_are_no_results():
    for how in (dict(beam_size=1), dict(beam_size=4), dict(sample=True)):
        assert search(TableModel(0), [], config(**how)) == []


def test_model_limit_caps_every_length():
    model = TableModel(0, max_length=4)
    model.table[:, EOS] = -1e9
    assert len(beam_search(model, [Sentence([2] * 9)], config(beam_size=2))[0][0].ids) == 4


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_sentences=st.integers(1, 4),
    num_rows=st.integers(1, 5),
    vocab_size=st.one_of(st.integers(1, 40), st.integers(900, 1100)),
    levels=st.sampled_from([3, 10**6]),
)
def test_largest_candidates_are_the_largest(seed, num_sentences, num_rows, vocab_size, levels):
    generator = torch.Generator().manual_seed(seed)
    shape = (num_sentences * num_rows, vocab_size)
    logits = torch.randint(levels, shape, generator=generator).float()  # few levels: many ties
    offsets = torch.randint(levels, shape[:1], generator=generator).float()
    offsets[torch.rand(shape[0], generator=generator) < 0.3] = -torch.inf
    count = min(2 * num_rows, num_rows * vocab_size)
    values, places = largest_candidates(logits, offsets.view(-1, num_rows), count)
    assert (places < num_rows * vocab_size).all()  # even where nothing is possible
    every = (logits + offsets[:, None]).view(num_sentences, -1)  # (B, N * V)
    assert torch.equal(values, every.sort(descending=True).values[:, :count])
    possible = values > -torch.inf
    assert torch.equal(every.gather(1, places)[possible], values[possible])
    for sentence in range(num_sentences):
        chosen = places[sentence][possible[sentence]].tolist()
        assert len(set(chosen)) == len(chosen)


@pytest.mark.parametrize("renormalize", [False, True])
def test_rules_change_choices_and_not_probabilities_unless_asked_to(renormalize):
    model = TableModel(0, vocab_size=4, suppressed=(3,))
    asked = [Sentence([2], prefix) for prefix in ([1], [], [3])] + [Sentence([2], opening=Opening(({3: 1},)))]
    rules = Rules(model, asked, SearchConfig(beam_size=1, renormalize=renormalize), 1)
    logits = torch.tensor([
        [500.0, 501.0, 499.0, 502.0], [-900.0, -900.0, -900.0, -898.0], [-1.0, 2.0, 3.0, 9.0], [-1.0, 2.0, 3.0, 8.0],
    ])  # fmt: skip
    expected = logits.log_softmax(-1)
    if renormalize:
        expected[:2] = logits[:2] - logits[:2, :3].logsumexp(1, keepdim=True)  # without id 3
    expected[1, 3] = -torch.inf  # never comes out
    expected[0, [0, 2, 3]] = expected[2:, :3] = -torch.inf  # a prefix is forced, even one that never comes out
    found = rules.apply(logits.log_softmax(-1), torch.zeros(4, 0, dtype=torch.long))
    assert torch.allclose(found, expected, atol=1e-4)


def test_samples_follow_the_distribution():
    torch.manual_seed(1)
    logits = torch.tensor([2.0, 1.0, 0.0, -torch.inf, -1.0])
    draws = (torch.arange(20_000) + 0.5) / 20_000

    def shares(**values):
        ids = draw_ids(logits.expand(len(draws), -1), draws, config(sample=True, **values))
        return torch.bincount(ids, minlength=5) / len(draws)

    assert torch.allclose(shares(), logits.softmax(0), atol=1e-3)
    assert torch.allclose(shares(temperature=0.5), (logits / 0.5).softmax(0), atol=1e-3)
    assert torch.allclose(shares(top_k=2), torch.tensor([0.7311, 0.2689, 0, 0, 0]), atol=1e-3)
    # the first two ids hold 0.86 of the probability; top_p takes ids until it is reached
    assert shares(top_p=0.8).nonzero().flatten().tolist() == [0, 1]
    assert shares(top_p=0.9).nonzero().flatten().tolist() == [0, 1, 2]
    assert shares(top_p=1e-6).nonzero().flatten().tolist() == [0]


def test_a_draw_next_to_one_stays_possible():
    logits = torch.tensor([[1.0, 0.5, -torch.inf]])
    draws = torch.tensor([1.0 - 2**-24])
    for values in ({}, dict(top_k=3), dict(top_p=0.9), dict(temperature=1e-3)):
        assert draw_ids(logits, draws, config(sample=True, **values)).item() in (0, 1)


def test_samples_depend_on_seed_and_key_alone():
    model, asked = TableModel(6), [Sentence([7, 8], key=key) for key in range(30)]
    one = sample_search(model, asked, config(sample=True, seed=1))
    assert one == sample_search(model, asked, config(sample=True, seed=1))
    assert one != sample_search(model, asked, config(sample=True, seed=2))
    assert len(set(itertools.chain(*texts(one)))) > 5  # equal sentences with different keys draw differently
    assert sample_search(model, asked[3:4] * 30, config(sample=True, seed=1)) == [one[3]] * 30


def test_nearly_no_temperature_is_greedy():
    model, asked = TableModel(6), sentences(10)
    cold = sample_search(model, asked, config(sample=True, temperature=1e-3))
    assert texts(cold) == texts(greedy_search(model, asked, config(beam_size=1)))


def test_many_unlikely_ends_do_not_stop_a_search_before_the_likely_one():
    """Where the model is sure, all that is beside the best continuation is noise, early ends among it."""
    model = TableModel(3, vocab_size=6, spread=0.1)
    ids = (2, 3, 4, 5, 2)
    key = hash((7,)) % NUM_STATES
    for last, token in zip((START, *ids), (*ids, EOS), strict=True):
        key = (key * 31 + last * 7 + 1) % NUM_STATES
        model.table[key, token] += 12.0
        model.table[key, EOS] += 6.0  # far behind, but before everything else
    for beam_size in (1, 2, 3, 5):
        (hypotheses,) = beam_search(model, [Sentence([7])], config(beam_size=beam_size, max_length_offset=20))
        assert hypotheses[0].ids == ids
