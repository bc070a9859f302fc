"""Small translators for laws of `Translator`: an engine that echoes the source, and untrained models."""

import torch

from seq2seq.config.schema import ModelConfig, SearchConfig, TokenizerConfig
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.model.transformer import Transformer
from seq2seq.search.base import Hypothesis
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

TEXTS = [
    "A man rides a red bicycle.",
    "Two dogs play in the snow!",
    "Eine Frau liest ein Buch.",
    "Der Hund schläft, und die Katze sieht zu.",
    "Where is the station?",
]


def tokenizers_of_texts() -> TokenizerPair:
    tokenizer = Tokenizer.train(TEXTS * 10, TokenizerConfig(vocab_size=330), seed=1)
    return TokenizerPair(tokenizer, tokenizer)


class EchoEngine:
    """Answers with the source, or with what `answer` makes of it."""

    leaves_cpus_idle = False

    def __init__(self, max_length: int = 64, answer=lambda ids, config: [Hypothesis(tuple(ids), -1.0, -0.1, True)]):
        self.max_length, self.answer = max_length, answer
        self.seen: list[tuple[int, ...]] = []
        self.min_lengths: list[int] = []
        self.configs: list[SearchConfig] = []

    def translate(self, sentences, config):
        assert all(0 < len(sentence.source_ids) < self.max_length for sentence in sentences)
        self.seen += [tuple(sentence.source_ids) for sentence in sentences]
        self.min_lengths += [sentence.min_length for sentence in sentences]
        self.configs.append(config)
        return [self.answer(sentence.source_ids, config) for sentence in sentences]


def make_transformer(tokenizers: TokenizerPair, seed: int = 0, **shape) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(**{"preset": "tiny", "d_model": 32, "d_ff": 64, "max_length": 64, **shape})
    model = Transformer(config, tokenizers.source.vocab_size, tokenizers.target.vocab_size).eval()
    with torch.no_grad():
        model.output.weight.mul_(3)  # an untrained model is nearly indifferent: its choices would be coin tosses
    return model


def make_translator(model: Transformer, tokenizers: TokenizerPair, **search) -> Translator:
    search = {"beam_size": 3, "max_length_ratio": 1.0, "max_length_offset": 3, **search}
    steps = TransformerSteps(model, tokenizers, torch.device("cpu"))
    return Translator(TorchEngine(steps), tokenizers, SearchConfig(**search))


def echo(tokenizers: TokenizerPair, engine: EchoEngine | None = None, **search) -> Translator:
    return Translator(engine or EchoEngine(), tokenizers, SearchConfig(**search))
