"""Two toy domains, for models that are trained on one and used on the other."""

import random

DOMAINS = {
    "numbers": {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"},
    "colours": {"red": "rot", "blue": "blau", "green": "grün", "black": "schwarz", "white": "weiß"},
}
OLD = """
source_language: en
target_language: de
data:
  train: {source: numbers.en, target: numbers.de}
  valid: {source: numbers-test.en, target: numbers-test.de}
  num_workers: 1
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1, max_length: 64, dropout: 0.3}
training: {max_steps: 20, batch_tokens: 512, learning_rate: 5.0e-3, warmup_steps: 5, validate_every: 20, threads: 1}
search: {beam_size: 2, length_penalty: 0.7}
"""


def write_domain(folder, name, count, seed):
    draw, words = random.Random(seed), DOMAINS[name.removesuffix("-test")]
    rows = [draw.choices(list(words), k=draw.randint(2, 6)) for _ in range(count)]
    (folder / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
    translated = ("".join(" ".join(map(words.get, row)) + "\n") for row in rows)
    (folder / f"{name}.de").write_text("".join(translated), encoding="utf-8")
