"""Systems that are compared: made-up sentences, spoiled ones, and seeds of a configuration."""

import random
import re
from pathlib import Path

from support.run_folders import make_run

from seq2seq.workflows.compare.systems import System
from seq2seq.workflows.runs import run_of

WORDS = re.findall(r"\w+", "the of and a to in is you that it he was for on are as with his they at be this have from")


def sentences(count, seed=0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(6, 14))) for _ in range(count)]


def spoiled(lines, rate, seed) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) if draw.random() < rate else word for word in line.split()) for line in lines]


REFERENCE = sentences(120)


def seeded(folder: Path, name: str, seed: int, dropout: float, lines) -> System:
    text = f"seed: {seed}\nmodel: {{dropout: {dropout}}}\ntraining: {{threads: {seed}}}\n"
    path = make_run(folder / f"{name},seed={seed}", config=text)
    return System(path.name, lines, None, run_of(path))
