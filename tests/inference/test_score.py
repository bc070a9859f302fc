"""`s2s score` and `Scorer`: every pair gets the model's own log-probability, whatever stands beside it."""

import logging
from pathlib import Path

import pytest
import torch
from support.nasty_lines import NASTY
from support.our_models import make_tiny

from seq2seq.cli import main
from seq2seq.config.schema import SearchConfig
from seq2seq.data.examples import Pair
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.search.base import Sentence
from seq2seq.store.model_folder import load_model
from seq2seq.text.normalization import normalized

TEXTS = ["A man rides a red bicycle.", "Two dogs play in the snow!", "Der Hund schläft, und die Katze sieht zu."]
PAIRS = [
    ("A man rides a red bicycle.", "Ein Mann fährt ein rotes Fahrrad."), ("", "Nur ein Ziel."), ("Only a source.", ""),
    ("", ""), ("  two  spaces ", " und am Rand "), ("😀 日本語", "\u200f\u2028a\u0085b\x0cc\x00d"),
    ("x", "ab " * 12), ("ab " * 12, "y"),
]  # fmt: skip
MAX_LENGTH = 48


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    words = sorted({word for text in TEXTS for word in text.split()})
    texts = [" ".join(words[i:] + words[:i]) for i in range(len(words))]

    def prefer_words(transformer, tokenizer):
        for piece_id, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
            # Whole words, so that the text of a translation has the same pieces again, and an end now and then.
            transformer.output.bias[piece_id] = 4.0 if piece.startswith("\u2581") and len(piece) > 2 else -3.0
        transformer.output.bias[tokenizer.eos_id] = 4.5

    search = SearchConfig(max_length_ratio=0.1, max_length_offset=2)
    folder = tmp_path_factory.mktemp("models") / "best"
    return make_tiny(
        folder, texts * 5, 330, search, prefer_words, max_length=MAX_LENGTH, output_bias=True, tied_embeddings="none"
    )


@pytest.fixture(scope="module")
def scorer(model) -> Scorer:
    return Scorer.load(model, device="cpu")


def stepped_log_prob(model: Path, source_ids: list[int], target_ids: list[int]) -> float:
    """The oracle: one token after the other through the decoder's cache, as search goes."""
    loaded = load_model(model)
    steps = TransformerSteps(loaded.model, loaded.tokenizers, torch.device("cpu"))
    state = steps.start([source_ids], 1, len(target_ids) + 1)
    total, last = 0.0, steps.start_id
    for wanted in target_ids:
        total += steps.step(torch.tensor([last]), state).double().log_softmax(-1)[0, wanted].item()
        last = wanted
    return total


@pytest.mark.parametrize("pair", PAIRS, ids=range(len(PAIRS)))
def test_score_is_the_sum_of_single_steps(model, scorer, pair):
    tokenizers = load_model(model).tokenizers
    source, target = tokenizers.source.encode(pair[0].strip()), tokenizers.target.encode(normalized(pair[1]).strip())
    (score,) = scorer.score([Pair(*pair)])
    assert score.tokens == len(target) + 1
    expected = stepped_log_prob(model, source, [*target, tokenizers.target.eos_id])
    assert score.log_prob == pytest.approx(expected, abs=1e-3)
    assert score.parts == 1


def test_what_stands_beside_a_pair_changes_nothing(model, scorer):
    alone = [scorer.score([pair])[0] for pair in PAIRS]
    for batch_tokens in (1, 20, 4096):
        together = Scorer.load(model, device="cpu", batch_tokens=batch_tokens).score(PAIRS)
        assert [score.tokens for score in together] == [score.tokens for score in alone]
        assert [s.log_prob for s in together] == pytest.approx([s.log_prob for s in alone], abs=1e-4)


def test_equals_the_log_prob_of_the_beam_that_found_the_translation(model, scorer):
    loaded = load_model(model)
    tokenizers = loaded.tokenizers
    engine = TorchEngine(TransformerSteps(loaded.model, tokenizers, torch.device("cpu")))
    sources = [" ".join(TEXTS[i % 3].split()[: 1 + i % 5]) + str(i) for i in range(30)]
    config = SearchConfig(beam_size=8, n_best=8, max_length_ratio=0.5)
    found = engine.translate([Sentence(tokenizers.source.encode(source)) for source in sources], config)
    compared = {}
    for source, hypotheses in zip(sources, found, strict=True):
        for hypothesis in hypotheses:
            text = tokenizers.target.decode(hypothesis.ids)
            # Other pieces for the same text have another probability, and so has a text without its end.
            if hypothesis.finished and tokenizers.target.encode(text) == list(hypothesis.ids):
                compared[source, text] = hypothesis
    assert len(compared) >= 50
    assert max(len(hypothesis.ids) for hypothesis in compared.values()) >= 3
    scores = scorer.score(list(compared))
    assert [s.log_prob for s in scores] == pytest.approx([h.log_prob for h in compared.values()], abs=1e-4)
    assert [s.tokens for s in scores] == [len(h.ids) + 1 for h in compared.values()]


@pytest.mark.parametrize(("before", "after"), [("", ""), ("  ", " \t"), ("\xa0", "\u2003")])
def test_equals_the_score_of_the_translator(model, scorer, before, after):
    """White space at the ends of a line is in its translation, and in no score."""
    tokenizers = load_model(model).tokenizers
    translator = Translator.load(model, engine="torch", beam_size=8, n_best=8, max_length_ratio=0.5)
    found = {
        (translation.source, answer.text): answer
        for translation in translator.translate([f"{before}A man rides {i}{after}" for i in range(30)])
        for answer in (translation, *translation.alternatives)
        if len(tokenizers.target.encode(answer.text.strip())) + 1 == answer.tokens  # the same pieces, and an end
    }
    assert len(found) >= 30
    assert all(text == before + text.strip() + after for _, text in found)
    scores = scorer.score(list(found))
    assert [s.log_prob for s in scores] == pytest.approx([answer.log_prob for answer in found.values()], abs=1e-4)


@pytest.mark.parametrize(("source", "target"), [("a", "dog " * 60), ("dog " * 60, "a"), ("dog " * 60, "snow " * 90)])
def test_a_pair_longer_than_the_model_is_scored_in_full_in_equal_parts(model, scorer, source, target):
    tokenizers = load_model(model).tokenizers
    source_ids, target_ids = tokenizers.source.encode(source.strip()), tokenizers.target.encode(target.strip())
    (score,) = scorer.score([(source, target)])
    count = score.parts
    assert count == -(-max(len(source_ids), len(target_ids)) // (MAX_LENGTH - 1)) > 1
    assert score.tokens == len(target_ids) + 1
    expected = 0.0
    for part in range(count):
        sides = [ids[len(ids) * part // count : len(ids) * (part + 1) // count] for ids in (source_ids, target_ids)]
        end = [tokenizers.target.eos_id] if part == count - 1 else []
        expected += stepped_log_prob(model, sides[0], sides[1] + end)
    assert score.log_prob == pytest.approx(expected, abs=1e-2)


def test_each_part_of_a_long_source_begins_with_its_language(model, scorer):
    tokenizer = load_model(model).tokenizers.source
    tag, target = ">>deu<<", "snow " * 90
    rest, target_ids = tokenizer.encode("dog " * 59 + "dog"), tokenizer.encode(target.strip())
    (score,) = scorer.score([(f"{tag}{'dog ' * 60}", target)])
    assert score.parts > 1
    expected = 0.0
    for part in range(score.parts):
        sides = [
            ids[len(ids) * part // score.parts : len(ids) * (part + 1) // score.parts] for ids in (rest, target_ids)
        ]
        end = [tokenizer.eos_id] if part == score.parts - 1 else []
        expected += stepped_log_prob(model, tokenizer.encode(tag) + sides[0], sides[1] + end)
    assert score.log_prob == pytest.approx(expected, abs=1e-2)


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    paths = tmp_path / "a.en", tmp_path / "a.de"
    for side, path in enumerate(paths):
        path.write_bytes(
            "".join(f"{pair[side]}\n" for pair in PAIRS).encode() + b"broken \xff\xfe\n\n" + b"word " * 200
        )
    return paths


def test_one_line_a_pair_in_order(model, files, capfd):
    assert main(["score", str(model), *map(str, files), "--device", "cpu"]) == 0
    out, err = capfd.readouterr()
    lines = out.split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(PAIRS) + 3
    scores = Scorer.load(model, device="cpu").score(PAIRS)
    for line, score in zip(lines, scores, strict=False):
        log_prob, tokens = line.split("\t")
        assert float(log_prob) == pytest.approx(score.log_prob, abs=1e-3)
        assert int(tokens) == score.tokens
    assert f"line {len(PAIRS) + 3} is too long" in err
    assert err.count("not UTF-8") == 2


def test_no_line_whatever_it_holds_is_skipped(model, tmp_path, capfdbinary):
    for name, content in (("source", NASTY), ("target", NASTY[::-1])):
        (tmp_path / name).write_bytes(b"".join(line + b"\n" for line in content))
    assert main(["score", str(model), str(tmp_path / "source"), str(tmp_path / "target"), "--device", "cpu"]) == 0
    rows = [line.split(b"\t") for line in capfdbinary.readouterr().out.split(b"\n")[:-1]]
    assert len(rows) == len(NASTY)
    assert all(float(log_prob) <= 0 and int(tokens) >= 1 for log_prob, tokens in rows)


def test_unequal_counts_print_nothing_but_both_counts(model, files, capfd):
    files[1].write_bytes(b"one\ntwo\n")
    assert main(["score", str(model), *map(str, files), "--device", "cpu"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert f"{len(PAIRS) + 3} lines" in err
    assert " 2;" in err


def test_wrong_use_is_one_line_and_exit_2(model, files, tmp_path, capfd):
    before = files[0].read_bytes()
    for arguments in (
        [tmp_path / "none", *files], [model, tmp_path / "none", files[1]], [model, files[0]],
        [model, *files, "-o", files[0]], [model, *files, "--device", "cuda:99"],
    ):  # fmt: skip
        assert main(["score", *map(str, arguments)]) == 2, arguments
        out, err = capfd.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1, err
    assert files[0].read_bytes() == before
    logging.getLogger("seq2seq").setLevel(logging.NOTSET)
