"""When a beam search ends: not before nothing that is live can win, over tables of probabilities."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_model import EOS, START, TableModel, config, sentences

from seq2seq.search.base import normalized_score
from seq2seq.search.beam import beam_search


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(3, 9),
    beam_size=st.integers(2, 5),
    length_penalty=st.floats(0.0, 3.0),
    spread=st.sampled_from([0.1, 1.0, 4.0]),
    offset=st.integers(1, 12),
)
def test_a_search_ends_when_nothing_that_is_live_can_win(seed, vocab_size, beam_size, length_penalty, spread, offset):
    """What is found in the end is what the same beams find that are followed to the length limit."""
    model, asked = TableModel(seed, vocab_size, spread), sentences(2, seed)
    for n_best in (1, beam_size):
        chosen = config(
            beam_size=beam_size, n_best=n_best, length_penalty=length_penalty, max_length_offset=offset,
            max_extra_steps=10**6,
        )  # fmt: skip
        found = beam_search(model, asked, chosen)
        for sentence, hypotheses in zip(asked, found, strict=True):
            ended = followed_to_the_limit(model, sentence, chosen)
            scores = [one.score for one in hypotheses if one.finished]
            assert scores == pytest.approx(ended[: len(scores)], abs=1e-4)
            assert len(scores) == min(n_best, len(ended))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    beam_size=st.integers(2, 5),
    length_penalty=st.floats(0.0, 3.0),
    spread=st.sampled_from([0.1, 1.0, 4.0]),
)
def test_more_extra_steps_never_find_less(seed, beam_size, length_penalty, spread):
    model, asked = TableModel(seed, 7, spread), sentences(4, seed)
    values = dict(beam_size=beam_size, length_penalty=length_penalty, max_length_offset=20)
    found = [beam_search(model, asked, config(**values, max_extra_steps=steps)) for steps in (0, 2, 5, 10**6)]
    for fewer, more in itertools.pairwise(found):
        for one, other in zip(fewer, more, strict=True):
            assert other[0].finished >= one[0].finished
            assert not one[0].finished or other[0].score >= one[0].score


def followed_to_the_limit(model, sentence, chosen):
    """The scores of all that ends within the beams of one sentence, best first."""
    beams, ended = [((), 0.0)], []
    for length in range(1, len(sentence.source_ids) + chosen.max_length_offset + 1):
        longer = [
            ((*ids, id_), model.log_prob(sentence.source_ids, (*ids, id_)))
            for ids, _ in beams
            for id_ in range(model.vocab_size)
            if id_ != START
        ]
        best = sorted(longer, key=lambda one: -one[1])[: 2 * chosen.beam_size]
        ended += [
            normalized_score(log_prob, length, chosen.length_penalty)
            for ids, log_prob in best[: chosen.beam_size]
            if ids[-1] == EOS
        ]
        beams = [one for one in best if one[0][-1] != EOS][: chosen.beam_size]
    return sorted(ended, reverse=True)
