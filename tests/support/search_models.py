"""Small Transformers with random weights whose translations end at different lengths, as step models; tests of recorded
searches import the maker."""

import functools

import torch

from seq2seq.config.schema import ModelConfig, TokenizerConfig
from seq2seq.inference.steps import TransformerSteps
from seq2seq.model.transformer import Transformer
from seq2seq.search.base import Sentence
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

TEXTS = ["a man rides a red bicycle", "two dogs play in the snow", "eine frau liest ein buch", "der hund schläft"]


@functools.cache
def tokenizers() -> TokenizerPair:
    tokenizer = Tokenizer.train(TEXTS * 5, TokenizerConfig(vocab_size=290), seed=1)
    return TokenizerPair(tokenizer, tokenizer)


def make_steps(seed=0, ending=9.0, **shape) -> TransformerSteps:
    """With a larger `ending`, translations are shorter."""
    torch.manual_seed(seed)
    sizes = dict(preset="tiny", d_model=32, d_ff=64, max_length=64, num_encoder_layers=1, num_decoder_layers=2)
    size = tokenizers().target.vocab_size
    model = Transformer(ModelConfig(**sizes | shape, output_bias=True), size, size).eval()
    with torch.no_grad():
        model.output.weight.mul_(3)  # an untrained model is nearly indifferent: its choices would be coin tosses
        model.output.bias[tokenizers().target.eos_id] = ending
    return TransformerSteps(model, tokenizers(), torch.device("cpu"))


def sentences(count, longest=11, seed=7, **given) -> list[Sentence]:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=draw).tolist()
    sources = [torch.randint(4, 260, (length,), generator=draw).tolist() for length in lengths]
    return [Sentence(source, key=key, **given) for key, source in enumerate(sources)]
