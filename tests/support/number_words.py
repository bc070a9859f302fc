"""A toy corpus of number words and their translations, and a small configuration for it."""

import random

WORDS = dict(
    zip(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
        ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"],
        strict=True,
    )
)
CONFIG = """
source_language: en
target_language: de
data:
  train: {source: train.en, target: train.de}
  valid: {source: valid.en, target: valid.de}
  test: {held out: {source: valid.en, target: valid.de}}
  num_workers: 1
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1, max_length: 64}
training: {max_steps: 12, batch_tokens: 256, warmup_steps: 5, validate_every: 6, checkpoint_every: 4, log_every: 3,
  threads: 1}
search: {beam_size: 1}
"""


def sentences(count: int, seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [[draw.choice(list(WORDS)) for _ in range(draw.randint(2, 6))] for _ in range(count)]
