"""Shortlists: what alignment finds, and a search that computes no other pieces and is otherwise the whole model's."""

import numpy as np
import pytest
import torch
from foreign_models import SOURCE, TARGET
from our_models import make_ours, our_tokenizers

from seq2seq import shortlist as shortlists
from seq2seq.cli import main
from seq2seq.config import SearchConfig
from seq2seq.errors import ModelError
from seq2seq.inference.engines import TorchEngine
from seq2seq.inference.steps import STAND_INS, EnsembleSteps, TransformerSteps
from seq2seq.model.int8 import quantize
from seq2seq.search.rules import Rules
from seq2seq.shortlist import Shortlist, learn_shortlist

CPU = torch.device("cpu")
SEARCHES = [
    dict(beam_size=1, min_length=4),
    dict(beam_size=4, n_best=3),
    dict(beam_size=3, no_repeat_ngram=2, min_length=3),
    dict(sample=True, n_best=2),
]
LINES = [line for line in SOURCE if line.strip()]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_ours(tmp_path_factory.mktemp("ours") / "model", shared=False, ending=4.0)


@pytest.fixture(scope="module")
def tokenizers():
    return our_tokenizers(False)


@pytest.fixture(scope="module")
def learned(model):
    """From the model's own greedy translations, which are what it needs most."""
    source_ids = model.tokenizers.source.encode_all(LINES)
    found = TorchEngine(steps_of(model)).translate(source_ids, SearchConfig(beam_size=1, min_length=4))
    pairs = [(ids, hypotheses[0].ids) for ids, hypotheses in zip(source_ids, found, strict=True)]
    return learn_shortlist(pairs, model.tokenizers)


def steps_of(model) -> TransformerSteps:
    return TransformerSteps(model.model, model.tokenizers, CPU)


def random_pairs(tokenizers, count: int, seed: int = 0):
    """Sentences over a vocabulary where source piece s is translated to piece (7 s + 5) mod 200, in another order."""
    draw = np.random.default_rng(seed)
    for _ in range(count):
        source = draw.integers(4, 200, size=draw.integers(2, 12))
        yield source.tolist(), draw.permutation((7 * source + 5) % 200).tolist()


# -- what is learned -------------------------------------------------------------------------------


def test_alignment_finds_the_dictionary(tokenizers, monkeypatch):
    monkeypatch.setattr(shortlists, "ALWAYS", 0)
    shortlist = learn_shortlist(random_pairs(tokenizers, 2000), tokenizers, candidates=1)
    alike = {text: id_ for id_, text in enumerate(tokenizers.target.pieces(range(tokenizers.target.vocab_size)))}
    for piece in range(4, 200):
        spelled = alike.get(tokenizers.source.pieces([piece])[0])
        assert set(shortlist.candidates([[piece]]).tolist()) == {(7 * piece + 5) % 200, spelled} - {None}


def test_more_candidates_hold_fewer(tokenizers, monkeypatch):
    monkeypatch.setattr(shortlists, "ALWAYS", 0)
    pairs = list(random_pairs(tokenizers, 200))
    few, many = (learn_shortlist(pairs, tokenizers, candidates=count) for count in (2, 20))
    for sentence, _ in pairs:
        assert set(few.candidates([sentence])) < set(many.candidates([sentence]))
    together = few.candidates([pairs[0][0], pairs[1][0]])
    assert set(together) == set(few.candidates([pairs[0][0]])) | set(few.candidates([pairs[1][0]]))
    assert (np.diff(together) > 0).all()


def test_large_corpora_are_thinned_out_evenly(tokenizers, monkeypatch):
    pairs = list(random_pairs(tokenizers, 300))
    cells = sum(len(set(source)) * len(set(target)) for source, target in pairs)
    monkeypatch.setattr(shortlists, "MOST_CELLS", cells // 3 + 1)
    thinned = learn_shortlist(pairs, tokenizers)
    monkeypatch.undo()
    expected = learn_shortlist(pairs[::3], tokenizers)
    assert np.array_equal(thinned.ids, expected.ids)
    assert np.array_equal(thinned.always, expected.always)


def test_it_is_kept_in_a_file(tokenizers, tmp_path):
    shortlist = learn_shortlist(random_pairs(tokenizers, 50), tokenizers)
    shortlist.save(tmp_path / "a")
    loaded = Shortlist.load(tmp_path / "a", tokenizers)
    for name in ("starts", "ids", "always"):
        assert np.array_equal(getattr(loaded, name), getattr(shortlist, name))
    with pytest.raises(ModelError, match="another model"):
        Shortlist.load(tmp_path / "a", our_tokenizers(True))


@pytest.mark.parametrize(
    "change",
    [
        dict(ids=lambda ids: ids + 300),
        dict(ids=lambda ids: -1 - ids),
        dict(ids=lambda ids: ids[:-1]),
        dict(ids=lambda ids: ids.astype(np.float32)),
        dict(starts=lambda starts: starts[:-1]),
        dict(starts=lambda starts: starts[::-1].copy()),
        dict(always=lambda always: always[:, None]),
    ],
)
def test_a_damaged_file_is_refused(tokenizers, tmp_path, change):
    shortlist = learn_shortlist(random_pairs(tokenizers, 50), tokenizers)
    columns = {name: getattr(shortlist, name) for name in ("starts", "ids", "always")}
    changed = {name: change.get(name, lambda column: column)(column) for name, column in columns.items()}
    Shortlist(**changed, fingerprint=tokenizers.fingerprint).save(tmp_path / "a")
    with pytest.raises(ModelError, match="make it again"):
        Shortlist.load(tmp_path / "a", tokenizers)


# -- what is searched ------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("kind", ["float32", "int8", "ensemble"])
def test_logits_are_those_of_the_whole_model(model, kind, tmp_path):
    folder = tmp_path / "model"
    copy = make_ours(folder, shared=False, ending=4.0)
    whole = TransformerSteps(quantize(copy.model) if kind == "int8" else copy.model, copy.tokenizers, CPU)
    if kind == "ensemble":
        whole = EnsembleSteps([whole, steps_of(make_ours(tmp_path / "other", shared=False, seed=5))])
    ids = torch.tensor(sorted({whole.start_id, whole.eos_id, *range(7, 300, 3)}))
    narrow = whole.narrowed(ids)
    sources = copy.tokenizers.source.encode_all(LINES[:4])
    last = [torch.full((4,), whole.start_id), torch.tensor([10, 13, 16, 10])]
    states = [steps.start(sources, 1, 5) for steps in (whole, narrow)]
    for token_ids in last:
        expected = whole.step(token_ids, states[0]).log_softmax(-1)
        found = narrow.step(torch.searchsorted(ids, token_ids), states[1]).log_softmax(-1)
        # so few ids are left out that each stands for itself
        torch.testing.assert_close(found[:, : len(ids)], expected[:, ids], atol=2e-4, rtol=2e-4)
    assert narrow.vocab_size == found.shape[1]
    known = [*ids.tolist(), *(id_ for id_ in whole.suppressed if id_ not in ids)]
    assert {known[place] for place in narrow.suppressed} == set(whole.suppressed)
    assert narrow.stand_ins == tuple(range(len(known), narrow.vocab_size))


@torch.inference_mode()
@pytest.mark.parametrize("renormalize", [False, True])
def test_some_ids_stand_for_all_that_are_left_out(model, monkeypatch, renormalize):
    monkeypatch.setattr("seq2seq.inference.steps.STAND_INS", 20)
    whole = steps_of(model)
    ids = torch.tensor(sorted({whole.start_id, whole.eos_id, *range(20, 60)}))
    narrow = whole.narrowed(ids)
    sources = model.tokenizers.source.encode_all(LINES)
    config, history = SearchConfig(renormalize=renormalize), torch.zeros(len(sources), 0, dtype=torch.long)

    def log_probs(steps):
        start = torch.full((len(sources),), steps.start_id)
        return Rules(steps, config, None, 1).apply(steps.step(start, steps.start(sources, 1, 5)), history)

    expected, found = log_probs(whole)[:, ids], log_probs(narrow)
    assert (found[:, len(ids) :] == -torch.inf).all()
    monkeypatch.setattr(narrow, "stand_ins", ())
    monkeypatch.setattr(narrow, "suppressed", tuple(range(len(ids), narrow.vocab_size)))
    alone = log_probs(narrow) if renormalize else found[:, : len(ids)].log_softmax(-1)
    possible = expected > -torch.inf
    error, error_alone = ((some[:, : len(ids)] - expected)[possible].abs().mean() for some in (found, alone))
    assert narrow.vocab_size < len(ids) + 2 * 20 + 3
    assert error < 0.25 * error_alone


@pytest.mark.parametrize("how", SEARCHES)
def test_nothing_else_comes_out_and_prefixes_do(model, how):
    few = Shortlist(
        starts=np.arange(model.tokenizers.source.vocab_size + 1, dtype=np.int32) // 2,
        ids=np.full(model.tokenizers.source.vocab_size // 2, 40, np.int32),
        always=np.arange(50, 90, 2, dtype=np.int32),
        fingerprint=model.tokenizers.fingerprint,
    )
    sources = model.tokenizers.source.encode_all(LINES)
    prefixes = [[131, 7] if place % 2 else [] for place in range(len(sources))]
    config = SearchConfig(**{"n_best": 1, **how}, max_length_offset=5)
    found = TorchEngine(steps_of(model), shortlist=few).translate(sources, config, prefixes)
    allowed = {40, *range(50, 90, 2), 131, 7}
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert set(hypothesis.ids) <= allowed
            assert list(hypothesis.ids[: len(prefix)]) == prefix


@pytest.mark.parametrize("how", SEARCHES[:1] + SEARCHES[2:3])
def test_what_is_on_the_shortlist_is_found_as_without_it(model, how):
    sources = model.tokenizers.source.encode_all(LINES)
    config = SearchConfig(**how)
    expected = TorchEngine(steps_of(model)).translate(sources, config)
    needed = np.unique([id_ for found in expected for id_ in found[0].ids]).astype(np.int32)
    everything = np.arange(model.tokenizers.target.vocab_size, dtype=np.int32)
    assert 4 < len(needed) < len(everything) < 2 * STAND_INS  # each stands for itself: probabilities are the same
    for always in (needed, everything) if how["beam_size"] == 1 else (everything,):
        shortlist = Shortlist(
            starts=np.zeros(model.tokenizers.source.vocab_size + 1, np.int32),
            ids=np.zeros(0, np.int32),
            always=always,
            fingerprint=model.tokenizers.fingerprint,
        )
        found = TorchEngine(steps_of(model), shortlist=shortlist).translate(sources, config)
        for one, other in zip(found, expected, strict=True):
            assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]
            assert one[0].log_prob == pytest.approx(other[0].log_prob, abs=1e-3)


def test_batches_with_a_shortlist_are_searched_by_several_workers(model, learned):
    sources = model.tokenizers.source.encode_all(LINES)
    answers = []
    for workers, batch_tokens in ((1, 10**6), (3, 30)):
        engine = TorchEngine(steps_of(model), workers, learned)
        found = engine.translate(sources, SearchConfig(beam_size=1, min_length=4, batch_tokens=batch_tokens))
        answers.append([hypotheses[0].ids for hypotheses in found])
    assert answers[0] == answers[1]


# -- the commands ----------------------------------------------------------------------------------


def test_learned_by_one_command_and_used_by_another(model, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").write_text("\n".join(SOURCE) + "\n")
    (tmp_path / "target").write_text("\n".join(TARGET) + "\n")
    assert main(["shortlist", str(model.folder), "source", "target", "-o", "short", "--candidates", "3"]) == 0
    assert capfd.readouterr().out == "short\n"
    for more in ([], ["--quantization", "int8"], ["--engine", "auto"]):
        assert main(["translate", str(model.folder), "-i", "source", "--shortlist", "short", *more]) == 0
        out = capfd.readouterr().out
        assert len(out.splitlines()) == len(SOURCE)
    refused = ["translate", str(model.folder), "-i", "source", "--shortlist", "short", "--engine", "ctranslate2"]
    assert main(refused) == 2
    assert "--shortlist" in capfd.readouterr().err
