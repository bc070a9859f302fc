"""Corpora and models for tests of `s2s filter`, and what a folder of it holds."""

import gzip
import json
import random
from pathlib import Path

from support.toy_reversal import reversed_pairs

from seq2seq.store.model_folder import load_model, save_model

SPOILED = 5  # of the pairs, one in so many


def spoiled_pairs(count: int, seed: int) -> tuple[list[tuple[str, str]], set[int]]:
    """Pairs that a model of reversed number words knows, a fifth with the target of another one; and their numbers."""
    pairs = reversed_pairs(count, seed)
    spoiled = sorted(random.Random(seed).sample(range(count), count // SPOILED))
    moved = dict(zip(spoiled, spoiled[1:] + spoiled[:1], strict=True))
    found = [(source, pairs[moved.get(number, number)][1]) for number, (source, _) in enumerate(pairs)]
    return found, {number + 1 for number in spoiled if found[number][1] != pairs[number][1]}


def write_sides(place: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    """Write `NAME.en` and `NAME.de`."""
    for side, suffix in enumerate(("en", "de")):
        (place / f"{name}.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


def make_opposite(model: Path, folder: Path) -> None:
    """Write a copy of a model that names its languages the other way round."""
    loaded = load_model(model)
    about = loaded.description
    names = {"source_language": about.target_language, "target_language": about.source_language}
    save_model(folder, loaded.model.state_dict(keep_vars=True), about.model_copy(update=names), loaded.tokenizers)


def records(folder: Path) -> list[dict]:
    """The objects of all parts of a folder, in order."""
    return [json.loads(line) for path in sorted(folder.glob("part-*.gz")) for line in gzip.open(path, "rt")]


def numbers(folder: Path) -> list[int]:
    """The numbers of the lines that were kept."""
    return [record["origin"][1] for record in records(folder)]


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, with those of the folders in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
