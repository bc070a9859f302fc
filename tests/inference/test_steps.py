"""A Transformer as a step model: what search sees is what teacher forcing computes, alone or in an ensemble."""

import types

import pytest
import torch
from support.launches import Launches, as_on_a_gpu

from seq2seq.config.schema import ModelConfig, SearchConfig, TokenizerConfig
from seq2seq.errors import ModelError
from seq2seq.inference.groups import BATCH_TOKENS, GPU_TOKENS, SEARCH_TOKENS, token_budget
from seq2seq.inference.steps import EnsembleSteps, TransformerSteps, float32_logits
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.model.transformer import Transformer
from seq2seq.search.base import Sentence
from seq2seq.search.search import search
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

CPU = torch.device("cpu")
SEARCHES = [
    dict(beam_size=1),
    dict(beam_size=4, n_best=4),
    dict(beam_size=3, no_repeat_ngram=2),
    dict(sample=True, n_best=2),
]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    texts = [
        "a man rides a red bicycle",
        "two dogs play in the snow",
        "eine frau liest ein buch",
        "der hund schläft",
    ] * 5
    tokenizer = Tokenizer.train(texts, TokenizerConfig(vocab_size=320), seed=1)
    return TokenizerPair(tokenizer, tokenizer)


def make_steps(tokenizers: TokenizerPair, seed: int = 0, **shape) -> TransformerSteps:
    torch.manual_seed(seed)
    config = ModelConfig(preset="tiny", d_model=32, d_ff=64, max_length=64, **shape)
    model = Transformer(config, tokenizers.source.vocab_size, tokenizers.target.vocab_size).eval()
    with torch.no_grad():
        model.output.weight.mul_(3)  # an untrained model is nearly indifferent: its choices would be coin tosses
    return TransformerSteps(model, tokenizers, CPU)


def sources(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    lengths = torch.randint(1, 12, (count,), generator=generator).tolist()
    return [torch.randint(4, 260, (length,), generator=generator).tolist() for length in lengths]


def sentences(count: int) -> list[Sentence]:
    return [Sentence(ids, key=key) for key, ids in enumerate(sources(count))]


def config(**values) -> SearchConfig:
    return SearchConfig(**{"max_length_ratio": 1.0, "max_length_offset": 6, **values})


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_log_probs_are_those_of_teacher_forcing(tokenizers, positions):
    steps = make_steps(tokenizers, positions=positions)
    tokenizer, model = tokenizers.target, steps._model
    asked = sentences(6)
    for sentence, hypotheses in zip(asked, search(steps, asked, config(beam_size=4, n_best=4)), strict=True):
        source_ids = torch.tensor([[*sentence.source_ids, tokenizer.eos_id]])
        for hypothesis in hypotheses:
            ids = [*hypothesis.ids, tokenizer.eos_id][: len(hypothesis.ids) + hypothesis.finished]
            target_input = torch.tensor([[tokenizer.start_id, *ids[:-1]]])
            with torch.no_grad():
                hidden = model(source_ids, torch.ones_like(source_ids, dtype=torch.bool), target_input)
                log_probs = model.project(hidden).log_softmax(-1)[0]  # (T, V)
            expected = log_probs[torch.arange(len(ids)), torch.tensor(ids)].sum().item()
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("how", [*SEARCHES[:2], *(pytest.param(how, marks=pytest.mark.slow) for how in SEARCHES[2:])])
def test_batch_changes_no_translation(tokenizers, how):
    steps, asked = make_steps(tokenizers), [*sentences(30), Sentence([5, 90, 170, 30] * 12, key=30)]
    together = search(steps, asked * 3, config(**how))  # a CPU encodes 64 at a time
    for index in range(0, len(asked), 2):
        (alone,) = search(steps, [asked[index]], config(**how))
        for expected in together[index :: len(asked)]:
            assert [hypothesis.ids for hypothesis in alone] == [hypothesis.ids for hypothesis in expected]
            for one, other in zip(alone, expected, strict=True):
                assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)


@pytest.mark.parametrize("how", SEARCHES)
def test_engine_answers_in_order_whatever_its_batches(tokenizers, how):
    asked = [Sentence(ids, ids[:2] if key % 3 == 0 else [], key) for key, ids in enumerate(sources(16))]
    answers = []
    for batch_tokens, workers in ((1, 1), (90, 1), (90, 3), (100_000, 1)):
        engine = TorchEngine(make_steps(tokenizers), workers)
        found = engine.translate(asked, config(**how, batch_tokens=batch_tokens))
        answers.append([[hypothesis.ids for hypothesis in hypotheses] for hypotheses in found])
    assert all(answer == answers[0] for answer in answers)
    for sentence, hypotheses in zip(asked, answers[0], strict=True):
        assert all(ids[: len(sentence.prefix)] == tuple(sentence.prefix) for ids in hypotheses)


def test_batches_keep_their_budget(tokenizers):
    steps, sizes = make_steps(tokenizers), []
    start = steps.start

    def watched(source_ids, beam_size, max_length):
        sizes.append((len(source_ids), len(source_ids) * beam_size * (max(map(len, source_ids)) + 1)))
        return start(source_ids, beam_size, max_length)

    steps.start = watched
    TorchEngine(steps).translate(sentences(50), config(beam_size=3, batch_tokens=120))
    assert sum(count for count, _ in sizes) == 50
    assert all(tokens <= 120 or count == 1 for count, tokens in sizes)
    assert max(count for count, _ in sizes) > 5


def test_batch_that_does_not_fit_in_memory_is_halved(tokenizers):
    steps, asked = make_steps(tokenizers), sentences(20)
    expected = TorchEngine(make_steps(tokenizers)).translate(asked, config(beam_size=2))
    start, refused = steps.start, []

    def cramped(source_ids, beam_size, max_length):
        if len(source_ids) > 3:
            refused.append(len(source_ids))
            raise torch.OutOfMemoryError("out of memory")
        return start(source_ids, beam_size, max_length)

    steps.start = cramped
    found = TorchEngine(steps).translate(asked, config(beam_size=2))
    assert refused
    assert [[h.ids for h in hypotheses] for hypotheses in found] == [
        [h.ids for h in hypotheses] for hypotheses in expected
    ]


def test_a_gpu_gets_larger_batches_unless_it_is_told_otherwise():
    def budget(device, **values):
        steps = types.SimpleNamespace(device=torch.device(device), max_length=64)
        return TorchEngine(steps, workers=1)._budget(10**6, SearchConfig(**values))

    assert budget("cpu") == SEARCH_TOKENS < GPU_TOKENS == budget("cuda")
    for given in (1, 100, BATCH_TOKENS, SEARCH_TOKENS, GPU_TOKENS, 10**7):  # the defaults too mean what they are
        assert budget("cpu", batch_tokens=given) == budget("cuda", batch_tokens=given) == given
        assert token_budget(given, BATCH_TOKENS, "cuda") == token_budget(given, BATCH_TOKENS, "cpu") == given


def test_other_failures_are_not_taken_for_lack_of_memory(tokenizers):
    steps = make_steps(tokenizers)
    steps.start = lambda *arguments: (_ for _ in ()).throw(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        TorchEngine(steps).translate(sentences(4), config(beam_size=2))


@pytest.mark.parametrize("how", SEARCHES)
def test_model_ensembled_with_itself_is_the_model(tokenizers, how):
    steps, asked = make_steps(tokenizers), sentences(12)
    ensemble = EnsembleSteps([steps, make_steps(tokenizers)])
    for one, other in zip(search(steps, asked, config(**how)), search(ensemble, asked, config(**how)), strict=True):
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]
        for hypothesis, same in zip(one, other, strict=True):
            assert hypothesis.log_prob == pytest.approx(same.log_prob, abs=1e-3)


def test_ensemble_is_the_mean_of_probabilities(tokenizers):
    members = [make_steps(tokenizers, seed) for seed in range(3)]
    ensemble, lines = EnsembleSteps(members), sources(3)
    first_ids = torch.full((3,), ensemble.start_id)
    log_probs = ensemble.step(first_ids, ensemble.start(lines, 1, 5))
    each = [member.step(first_ids, member.start(lines, 1, 5)).exp() for member in members]
    assert torch.allclose(log_probs.exp(), torch.stack(each).mean(0), atol=1e-6)


def test_ensemble_of_two_vocabularies_is_refused(tokenizers):
    other = Tokenizer.train(["something else entirely"] * 20, TokenizerConfig(vocab_size=290), seed=1)
    with pytest.raises(ModelError, match="another vocabulary"):
        EnsembleSteps([make_steps(tokenizers), make_steps(TokenizerPair(other, other))])


def test_padding_and_start_never_come_out(tokenizers):
    steps = make_steps(tokenizers)
    for hypotheses in search(steps, sentences(20), config(sample=True, temperature=5.0, n_best=5)):
        for hypothesis in hypotheses:
            assert not {tokenizers.target.pad_id, tokenizers.target.start_id} & set(hypothesis.ids)


# -- as on a GPU, which waits for no read and is not waited for ------------------------------------


class Watched(TransformerSteps):
    """Counts the launches of each step, the model's and the search's apart, and the reads from the first step on."""

    def __init__(self, steps: TransformerSteps, launches: Launches):
        vars(self).update(vars(steps))
        self.model, self.search, self.reads, self._launches = [], [], [], launches

    def step(self, token_ids, state):
        self._take(self.search)
        log_probs = super().step(token_ids, state)
        self._take(self.model)
        return log_probs

    def _take(self, steps):
        if not self.search:  # what `start` did
            self.reads.clear()
            self._launches.reads.clear()
        steps.append(self._launches.calls.total())
        self._launches.calls.clear()


@pytest.mark.parametrize(("beam_size", "model", "searching"), [(1, 144, 6), (5, 156, 38)])
def test_a_step_reads_nothing_back_and_starts_no_more_kernels_than_now(
    tokenizers, monkeypatch, beam_size, model, searching
):
    """Numbers that may only fall. What was chosen is copied to the host without waiting, once a step."""
    as_on_a_gpu(monkeypatch)
    asked, launches = sentences(12), Launches()
    steps = Watched(make_steps(tokenizers, num_encoder_layers=6, num_decoder_layers=6), launches)
    for name in ("numpy", "tolist", "item", "__bool__", "__int__", "__float__"):
        method = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *a, _f=method, _n=name: steps.reads.append(_n) or _f(*a))
    with launches:
        search(steps, asked, config(beam_size=beam_size))
    num_steps, between = len(steps.model), sorted(steps.search[1:])
    assert num_steps > 10
    assert max(steps.model[1:]) <= model
    assert between[num_steps // 2] <= searching
    assert between[-1] <= searching + 8, "where a sentence leaves"
    assert not launches.reads
    assert steps.reads == ["numpy"] * num_steps


@pytest.mark.parametrize("how", SEARCHES)
def test_the_code_of_gpus_finds_what_that_of_cpus_finds(tokenizers, monkeypatch, how):
    steps, asked = make_steps(tokenizers), sentences(40)
    expected = search(steps, asked, config(**how))
    as_on_a_gpu(monkeypatch)
    for ours, theirs in zip(search(steps, asked, config(**how)), expected, strict=True):
        assert [hypothesis.ids for hypothesis in ours] == [hypothesis.ids for hypothesis in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)


@pytest.mark.parametrize("output_bias", [False, True])
def test_a_gpu_does_not_round_logits_to_sixteen_bits(tokenizers, monkeypatch, output_bias):
    as_on_a_gpu(monkeypatch)
    model = make_steps(tokenizers, output_bias=output_bias)._model.bfloat16()
    hidden = torch.randn(5, 32).bfloat16()
    found = float32_logits(model.to("meta"), hidden.to("meta"))
    assert (found.dtype, found.shape) == (torch.float32, (5, tokenizers.target.vocab_size))
    model = make_steps(tokenizers, output_bias=output_bias)._model.bfloat16()
    exact = model.double().project(hidden.double())
    model.bfloat16()
    monkeypatch.setattr(torch, "mm", lambda one, other, out_dtype: one.to(out_dtype) @ other.to(out_dtype))
    assert torch.allclose(float32_logits(model, hidden).double(), exact, atol=1e-4)
