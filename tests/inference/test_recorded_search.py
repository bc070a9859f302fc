"""Laws of recorded searches: they find what `search` finds, follow every change, and give way to ordinary searches.

The recorder is a `Tape`, which repeats the calls of the first time with its Python numbers, as a CUDA graph does.
"""

import dataclasses
import logging

import pytest
import torch
from support.launches import Launches, as_on_a_gpu
from support.search_models import make_steps, sentences
from support.tape import Tapes
from support.toy_run import one_thread

from seq2seq.cli.bleu import command as bleu
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import UserError
from seq2seq.inference.engine import override_search
from seq2seq.inference.loading import _choose_recording, check_recording
from seq2seq.inference.steps import EnsembleSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.search import recorded
from seq2seq.search.base import Opening, Sentence
from seq2seq.search.recorded import RecordedSearch, num_sentences_for
from seq2seq.search.search import search

SEARCHES = [
    dict(beam_size=1),
    dict(beam_size=5),
    dict(beam_size=4, n_best=4, max_extra_steps=0),
    dict(beam_size=3, early_stopping=True, length_penalty=0.4),
    dict(beam_size=2, n_best=2, length_penalty=2.0, max_extra_steps=1000),
    dict(beam_size=3, min_length=5, renormalize=True, n_best=2),
]
NAMES = ["greedy", "beam 5", "n-best", "early stopping", "long", "rules"]


@pytest.fixture(autouse=True)
def _one_thread():
    yield from one_thread()


def config(**values) -> SearchConfig:
    return SearchConfig(**{"max_length_ratio": 1.0, "max_length_offset": 14, **values})


def assert_same(found, expected):
    """The same hypotheses, but for ties: then both have the same score."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3) or one.ids != other.ids
            assert one.finished == other.finished or one.ids != other.ids
    different = sum(one[0].ids != other[0].ids for one, other in zip(found, expected, strict=True))
    assert different <= len(expected) / 200


@pytest.mark.parametrize("how", SEARCHES, ids=NAMES)
def test_recorded_searches_find_what_searches_find(how):
    tapes, steps, asked = Tapes(), make_steps(), sentences(40)
    expected = search(steps, asked, config(**how))
    if "min_length" not in how:
        assert any(hypotheses[0].finished for hypotheses in expected)
    assert_same(RecordedSearch(tapes)(steps, asked, config(**how)), expected)
    assert [tape.replays >= 4 for tape in tapes.made] == [True]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "ending"), [(SEARCHES[0], 9.0), (SEARCHES[1], 7.0)], ids=NAMES[:2])
def test_hundreds_of_sentences_have_the_same_translations(how, ending):
    """Through the engine: batches of many lengths, which become smaller."""
    steps, asked = make_steps(ending=ending), sentences(400, longest=20)
    given = config(**how, batch_tokens=1000)
    expected, tapes = TorchEngine(steps, workers=1).translate(asked, given), Tapes()
    assert_same(TorchEngine(steps, recorder=tapes).translate(asked, given), expected)
    assert len({hypotheses[0].finished for hypotheses in expected}) == 2
    assert len(tapes.made) >= 3


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_every_kind_of_position_is_read_from_the_device(monkeypatch, positions):
    as_on_a_gpu(monkeypatch)
    steps, asked, tapes = make_steps(positions=positions), sentences(9), Tapes()
    expected = search(steps, asked, config(beam_size=3))
    assert_same(RecordedSearch(tapes)(steps, asked, config(beam_size=3)), expected)
    assert tapes.made


def test_a_recording_follows_every_change():
    """One recording serves other sentences, lengths, penalties and rules: none of these numbers is in it."""
    tapes, steps = Tapes(), make_steps()
    find = RecordedSearch(tapes)
    changes = [
        {}, dict(length_penalty=0.2, max_extra_steps=0), dict(n_best=3, min_length=6), dict(early_stopping=True),
        dict(max_length_ratio=0.5, max_length_offset=3),
    ]  # fmt: skip
    for number, change in enumerate(changes):
        asked = sentences(11 + number % 2, seed=number)
        given = config(beam_size=3, **change)
        assert_same(find(steps, asked, given), search(steps, asked, given))
    steps.suppressed = (*steps.suppressed, steps.eos_id)
    assert_same(find(steps, asked, given), search(steps, asked, given))
    asked = [dataclasses.replace(sentence, min_length=sentence.key, start=(7,)) for sentence in asked]
    assert_same(find(make_steps(), asked, given), search(make_steps(), asked, given))
    assert len(tapes.made) == 2  # of the step and of the encoder


def test_sentences_that_are_over_leave_a_large_batch():
    steps, given, tapes = make_steps(ending=30.0), config(beam_size=2, max_length_offset=30), Tapes()
    short = [dataclasses.replace(sentence, source_ids=sentence.source_ids[:1]) for sentence in sentences(60)]
    asked = [dataclasses.replace(each, min_length=25 if each.key % 4 == 0 else 0) for each in short]
    find = RecordedSearch(tapes)
    for _ in range(2):
        assert_same(find(steps, asked, given), search(steps, asked, given))
    sizes = [shape.num_sentences for shape in find._known]
    assert max(sizes) == 64
    assert min(sizes) <= 16
    assert tapes.made[0].replays > 10


def test_the_shapes_that_were_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(recorded, "MOST_SHAPES", 2)
    find, steps = RecordedSearch(Tapes()), make_steps()
    for count in (1, 2, 1, 3):
        find(steps, sentences(count), config(beam_size=1))
    assert [shape.num_sentences for shape in find._known] == [1, 3]


def test_the_table_of_batch_sizes():
    sizes = sorted({num_sentences_for(count) for count in range(1, 200)})
    assert sizes == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
    assert all(num_sentences_for(count) == min(size for size in sizes if size >= count) for count in range(1, 200))


# -- counts ------------------------------------------------------------------------------------------------------------

# Kernels of a step of 6+6 layers: an ordinary one, which a GPU launches one by one, and a recorded one, which it
# launches together. They may only be lowered.
ORDINARY, RECORDED = {1: 114, 5: 146}, {1: 201, 5: 202}
MOST_OF_A_SEARCH = 50  # launches of a recorded search of 19 steps


@pytest.mark.parametrize("beam_size", ORDINARY)
def test_a_replay_is_one_launch_and_two_steps_are_one_read(monkeypatch, beam_size):
    as_on_a_gpu(monkeypatch)
    steps, asked, reads = make_steps(ending=-50.0, num_decoder_layers=6), sentences(3, longest=1), []
    for name in ("numpy", "tolist", "item", "__bool__", "__int__", "__float__"):
        method = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *a, _f=method, _n=name: reads.append(_n) or _f(*a))
    tapes = Tapes()
    find = RecordedSearch(tapes)

    def of_a_step(searching):
        """Launches, reads and replays of a step: what 8 more of them add."""
        found = []
        for length in (15, 23):
            reads.clear()
            before = sum(tape.replays for tape in tapes.made)
            with Launches() as launches:
                searching(steps, asked, config(beam_size=beam_size, max_length_offset=length))
            assert not launches.reads
            replays = sum(tape.replays for tape in tapes.made) - before
            found.append((launches.calls.total(), len(reads), replays))
        return tuple((more - fewer) / 8 for fewer, more in zip(*found, strict=True))

    for _ in range(2):
        find(steps, asked, config(beam_size=beam_size, max_length_offset=20))
    assert len(tapes.made) == 2
    launches, num_reads, _ = of_a_step(search)
    assert launches <= ORDINARY[beam_size]
    assert num_reads == 1
    launches, num_reads, replays = of_a_step(find)
    assert (launches, num_reads, replays) == (0.5, 0.5, 1)
    (recorded_steps,) = find._known.values()
    with torch.inference_mode():
        recorded_steps.begin(tapes, steps, asked, [10] * 3, config(beam_size=beam_size))
        with Launches() as kernels:
            recorded_steps.beams.step()
    assert kernels.calls.total() <= RECORDED[beam_size], kernels.calls


@pytest.mark.parametrize("beam_size", [1, 5])
def test_the_launches_of_a_search_do_not_grow_with_the_layers_of_the_encoder(monkeypatch, beam_size):
    """Only copies of numbers to the device are left; an ordinary encoder adds 10 launches a layer."""
    as_on_a_gpu(monkeypatch)
    counts, asked = [], sentences(3, longest=5)
    for layers in (1, 6):
        steps, find = make_steps(ending=-50.0, num_encoder_layers=layers), RecordedSearch(Tapes())
        for _ in range(2):
            find(steps, asked, config(beam_size=beam_size))
        with Launches() as launches:
            find(steps, asked, config(beam_size=beam_size))
        assert not launches.reads
        counts.append(launches.calls.total())
    assert counts[0] == counts[1] <= MOST_OF_A_SEARCH


def test_a_recorded_encoder_follows_the_sources():
    """Any number of sources up to that of the shape, of any length; positions of the model may be fewer than S."""
    steps, tapes = make_steps(max_length=50), Tapes()
    find = RecordedSearch(tapes)
    for seed in range(4):
        asked = [*sentences(3 + seed % 2, longest=45, seed=seed), Sentence(tuple(range(5, 50)), key=9)]
        given = config(beam_size=2, max_length_ratio=0.2, max_length_offset=20)
        assert_same(find(steps, asked, given), search(steps, asked, given))
    assert len({shape.source_length for shape in find._known}) == 1
    assert len(tapes.made) >= 2


# -- what is not recorded ----------------------------------------------------------------------------------------------


class Wrong(Tapes):
    """Recordings whose log-probabilities are wrong, or none."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error

    def record(self, function):
        tape = super().record(function)
        if self.error is not None:
            raise self.error
        replay = tape.replay

        def wrong():
            replay()
            tape.outputs[0][-1].mul_(1.1)

        tape.replay = wrong
        return tape


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "log-probabilities of a recorded step differ from those of an ordinary step"),
        (RuntimeError("operation not permitted\nwhen stream is capturing"), "not permitted when stream is capturing"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out of memory"),
    ],
)
def test_a_recording_that_is_wrong_or_fails_leaves_ordinary_searches(caplog, error, reason):
    wrong, steps, asked = Wrong(error), make_steps(), sentences(12)
    engine, given = TorchEngine(steps, recorder=wrong), config(beam_size=3)
    expected = TorchEngine(steps).translate(asked, given)
    for _ in range(2):
        assert engine.translate(asked, given) == expected
    (line,) = [record.message for record in caplog.records]
    assert reason in line
    assert "ordinary ones continue" in line
    assert len(wrong.made) == 1


@pytest.mark.parametrize("does_nothing", [False, True])
def test_an_encoder_that_is_wrong_leaves_ordinary_searches(caplog, does_nothing):
    class WrongEncoder(Tapes):
        def record(self, function):
            tape = super().record(function)
            replay = tape.replay
            if not tape.outputs:

                def wrong():
                    replay()
                    cache = function.args[0]
                    cache.cross.mul_(1.1)

                tape.replay = (lambda: None) if does_nothing else wrong
            return tape

    wrong, steps, asked, given = WrongEncoder(), make_steps(), sentences(12), config(beam_size=3)
    find, expected = RecordedSearch(wrong), search(steps, asked, given)
    for _ in range(3):
        assert_same(find(steps, asked, given), expected)
    (line,) = [record.message for record in caplog.records]
    assert "keys and values of a recorded encoder differ from those of an ordinary one" in line
    assert "ordinary ones continue" in line
    assert len(wrong.made) == 2


def test_where_memory_is_too_small_for_two_shapes_the_latest_is_recorded(caplog):
    class Small(Tapes):
        def record(self, function):
            if len(find._known) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
            return super().record(function)

    small, steps, given = Small(), make_steps(), config(beam_size=3)
    find = RecordedSearch(small)
    for count in (12, 12, 3, 3, 12):
        asked = sentences(count)
        assert_same(find(steps, asked, given), search(steps, asked, given))
        assert find._recorder is small
    assert [shape.num_sentences for shape in find._known] == [12]
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.parametrize("record", ["auto", True])
def test_what_cannot_be_recorded_is_searched_in_the_ordinary_way(record, caplog):
    """The log names each obstacle once if `search.record` is true, and none with auto."""
    caplog.set_level(logging.INFO)
    tapes, steps, asked = Tapes(), make_steps(), sentences(5)
    find, ensemble = RecordedSearch(tapes), EnsembleSteps([make_steps(), make_steps(1)])
    opening = Opening(({5: 1},))
    cases = {
        "sampling": (steps, {}, dict(sample=True)),
        "search.no_repeat_ngram": (steps, {}, dict(no_repeat_ngram=2)),
        "an ensemble": (ensemble, {}, {}),
        "prefixes": (steps, dict(prefix=(5, 6)), {}),
        "forbidden words": (steps, dict(forbidden=((5,),)), {}),
        "several first ids": (steps, dict(start=(5, 6)), {}),
    }
    cases["prefixes "] = (steps, dict(opening=opening), {})
    for model, of_sentences, settings in cases.values():
        given = config(**{"beam_size": 2, "record": record, **settings})
        changed = [dataclasses.replace(sentence, **of_sentences) for sentence in asked]
        for _ in range(2):
            assert find(model, changed, given) == search(model, changed, given)
    assert find(steps, [], config()) == []
    assert not tapes.made
    named = list(cases)[:-1] if record is True else []
    assert [line.message for line in caplog.records] == [f"searches with {name} are not recorded" for name in named]


@pytest.mark.parametrize(
    ("record", "device", "is_on", "note"),
    [
        ("auto", "cuda", True, "steps are recorded"),
        (True, "cuda", True, "steps are recorded"),
        (False, "cuda", False, "steps are not recorded"),
        ("auto", "cpu", False, ""),
        (False, "cpu", False, ""),
        (True, "cpu", False, "search.record needs a CUDA device"),
    ],
)
def test_one_setting_decides_and_the_note_says_so(record, device, is_on, note):
    assert _choose_recording(override_search(SearchConfig(), {"record": record}), device, make_steps()) == (is_on, note)


def test_the_note_names_what_prevents_recording():
    ensemble = EnsembleSteps([make_steps(), make_steps(1)])
    assert _choose_recording(SearchConfig(), "cuda", ensemble) == (False, "steps are not recorded: an ensemble")
    sampled = SearchConfig(sample=True)
    assert _choose_recording(sampled, "cuda", make_steps()) == (False, "steps are not recorded: sampling")


@pytest.mark.parametrize(("typed", "value"), [("auto", "auto"), ("on", True), ("off", False)])
def test_the_option_is_the_setting(typed, value):
    given = bleu.make_context("bleu", ["r", "--record", typed]).params["record"]
    assert override_search(SearchConfig(), {"record": given}).record == value
    assert bleu.make_context("bleu", ["r"]).params["record"] is None


def test_recording_is_refused_where_it_has_no_effect():
    check_recording("cuda:1", is_ctranslate2=False)
    for device, is_ctranslate2 in (("cpu", False), ("mps", False), ("cuda", True)):
        with pytest.raises(UserError, match=r"--record on .* leave the option out"):
            check_recording(device, is_ctranslate2)


def test_other_values_of_the_setting_are_refused():
    with pytest.raises(UserError, match=r"search\.record: 'yes' is not one of auto, true, false"):
        override_search(SearchConfig(), {"record": "yes"})
