"""Writes the corpus that ships with the project: `python data/generate.py [FOLDER]`, the same bytes every time.

The phrasebook comes from templates.py and the lexicon, the reviews from review_templates.py; both take in all the pairs
and texts of their handwritten.tsv. Without FOLDER the committed files beside this one are written anew.
"""

import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from grammar import fill, polish_english, polish_german, slot_names
from review_templates import draw_review
from templates import TEMPLATES
from vocabulary import draw_slots, entries

HERE = Path(__file__).resolve().parent
SEED = 2024
PAIR_COUNTS = {"train": 16000, "valid": 500, "test": 500}
REVIEW_COUNTS = {"train": 3000, "valid": 300, "test": 300}
HANDWRITTEN_SHARE = 0.05  # of the held-out sentences; every other handwritten one goes to train

Row = tuple[str, str]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    write_phrasebook(folder / "phrasebook")
    write_reviews(folder / "reviews")


def write_phrasebook(folder: Path) -> None:
    """`train.en`, `train.de` and so on: one sentence (or two that belong together) per line, aligned by line."""
    rng = random.Random(SEED)
    patterns = sentence_patterns()
    # The more slots a pattern has, the more sentences it can make.
    weights = [1 + len(slot_names(english)) for english, _ in patterns]
    handwritten = read_rows(HERE / "phrasebook" / "handwritten.tsv")
    count = sum(PAIR_COUNTS.values()) - len(handwritten)
    generated = distinct_rows(partial(draw_pair, patterns, weights, rng), count, taken=handwritten, columns=(0, 1))
    for split, rows in split_rows(handwritten, generated, PAIR_COUNTS, rng).items():
        write_lines(folder / f"{split}.en", (english for english, _ in rows))
        write_lines(folder / f"{split}.de", (german for _, german in rows))


def write_reviews(folder: Path) -> None:
    """`train.tsv` and so on: a header, then a text and its label (0 negative, 1 positive) with a tab between."""
    rng = random.Random(SEED)
    handwritten = read_rows(HERE / "reviews" / "handwritten.tsv")
    rows_of: dict[str, list[Row]] = {split: [] for split in REVIEW_COUNTS}
    for label in ("0", "1"):
        written = [row for row in handwritten if row[1] == label]
        counts = {split: count // 2 for split, count in REVIEW_COUNTS.items()}
        draw = partial(draw_labelled_review, label, rng)
        generated = distinct_rows(draw, sum(counts.values()) - len(written), taken=written, columns=(0,))
        for split, rows in split_rows(written, generated, counts, rng).items():
            rows_of[split] += rows
    for split, rows in rows_of.items():
        rng.shuffle(rows)
        write_lines(folder / f"{split}.tsv", ["sentence\tlabel", *("\t".join(row) for row in rows)])


def sentence_patterns() -> list[Row]:
    """Every English pattern with its German one, from the tables of templates.py."""
    return [pattern for table in TEMPLATES.values() for pattern in entries(table, parted_by=" | ")]


def draw_pair(patterns: Sequence[Row], weights: Sequence[int], rng: random.Random) -> Row:
    """One English sentence of the grammar and its German."""
    english, german = rng.choices(patterns, weights)[0]
    slots = draw_slots(slot_names(english + german), rng)
    return polish_english(fill(english, slots, "english")), polish_german(fill(german, slots, "german"))


def draw_labelled_review(label: str, rng: random.Random) -> Row:
    """One review of the grammar and its label."""
    return polish_english(draw_review(rng, positive=label == "1")), label


def distinct_rows(draw: Callable[[], Row], count: int, taken: Iterable[Row], columns: Sequence[int]) -> list[Row]:
    """`count` rows from `draw` in which no text of one of `columns` comes twice or is `taken` already."""
    seen = {(column, row[column]) for row in taken for column in columns}
    rows: list[Row] = []
    while len(rows) < count:
        row = draw()
        keys = {(column, row[column]) for column in columns}
        if seen.isdisjoint(keys):
            seen |= keys
            rows.append(row)
    return rows


def split_rows(
    handwritten: Sequence[Row], generated: Sequence[Row], counts: Mapping[str, int], rng: random.Random
) -> dict[str, list[Row]]:
    """The rows by split, at random; valid and test get their share of handwritten ones, train all the others."""
    handwritten, generated = rng.sample(handwritten, len(handwritten)), list(generated)
    splits = {}
    for split in ("test", "valid"):
        written = round(counts[split] * HANDWRITTEN_SHARE)
        rows = [handwritten.pop() for _ in range(written)]
        rows += [generated.pop() for _ in range(counts[split] - written)]
        splits[split] = rng.sample(rows, len(rows))
    return {"train": rng.sample(handwritten + generated, counts["train"]), **splits}


def read_rows(path: Path) -> list[Row]:
    """The rows of a file of two columns, without its header."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines[1:]]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
