"""Writes the corpus that ships with the project: `python data/make/generate.py [FOLDER]`, the same bytes every time.

The phrasebook comes from templates.py and the lexicon, the reviews from review_templates.py; both contain all the pairs
and texts of their handwritten.tsv. The splits share nothing: no pair, source or target, and no near-duplicate. Without
FOLDER the committed files are replaced.
"""

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from grammar import fill, polish_english, polish_german, slot_names
from review_templates import draw_review
from templates import TEMPLATES
from vocabulary import draw_slots, entries

DATA = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(DATA.parent))  # the package, installed or not

from seq2seq.data.examples import Example, LabelledText, Pair  # noqa: E402
from seq2seq.inspection.near_duplicates import NearDuplicates  # noqa: E402
from seq2seq.inspection.overlap import HeldOut, normalise  # noqa: E402

SEED = 2024
PAIR_COUNTS = {"train": 16000, "valid": 500, "test": 500}
REVIEW_COUNTS = {"train": 3000, "valid": 300, "test": 300}
HANDWRITTEN_SHARE = 0.05  # of the held-out sentences; every other handwritten one goes to train

Row = tuple[str, str]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    write_phrasebook(folder / "phrasebook")
    write_reviews(folder / "reviews")


def write_phrasebook(folder: Path) -> None:
    """`train.en`, `train.de` and so on: one sentence (or two that belong together) per line, aligned by line."""
    rng = random.Random(SEED)
    patterns = sentence_patterns()
    # The more slots a pattern has, the more sentences it can make.
    weights = [1 + len(slot_names(english)) for english, _ in patterns]
    handwritten = read_rows(DATA / "phrasebook" / "handwritten.tsv")
    draws = distinct_rows(partial(draw_pair, patterns, weights, rng), taken=handwritten, columns=(0, 1))
    for split, rows in split_rows([(handwritten, draws)], PAIR_COUNTS, rng, Pair).items():
        write_lines(folder / f"{split}.en", (english for english, _ in rows))
        write_lines(folder / f"{split}.de", (german for _, german in rows))


def write_reviews(folder: Path) -> None:
    """`train.tsv` and so on: a header, then a text and its label (0 negative, 1 positive) with a tab between."""
    rng = random.Random(SEED)
    handwritten = read_rows(DATA / "reviews" / "handwritten.tsv")
    groups = [
        (
            [row for row in handwritten if row[1] == label],
            distinct_rows(partial(draw_labelled_review, label, rng), taken=handwritten, columns=(0,)),
        )
        for label in ("0", "1")
    ]
    for split, rows in split_rows(groups, REVIEW_COUNTS, rng, LabelledText).items():
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


def distinct_rows(draw: Callable[[], Row], taken: Iterable[Row], columns: Sequence[int]) -> Iterator[Row]:
    """Rows from `draw` in which no text of one of `columns` comes twice or is `taken` already."""
    seen = {(column, row[column]) for row in taken for column in columns}
    while True:
        row = draw()
        keys = {(column, row[column]) for column in columns}
        if seen.isdisjoint(keys):
            seen |= keys
            yield row


def split_rows(
    groups: Sequence[tuple[Sequence[Row], Iterator[Row]]],
    counts: Mapping[str, int],
    rng: random.Random,
    kind: type[Example],
) -> dict[str, list[Row]]:
    """The rows by split, in random order, equally many of each group of handwritten rows and drawn ones.

    Valid and test get their share of handwritten rows, train all the others. No split overlaps with another.
    """
    handwritten = [row for rows, _ in groups for row in rows]
    left = [row for row, alike in overlaps(handwritten, handwritten, kind) if alike <= {row}]
    splits: dict[str, list[Row]] = {}
    for split in ("test", "valid"):
        others = [*handwritten, *splits.get("test", ())]
        splits[split] = []
        for written, draws in groups:
            size = counts[split] // len(groups)
            rows = rng.sample([row for row in left if row in written], round(size * HANDWRITTEN_SHARE))
            left = [row for row in left if row not in rows]
            splits[split] += [*rows, *islice(unlike_rows(draws, others, kind), size - len(rows))]
    held_out = [*splits["test"], *splits["valid"]]
    splits["train"] = []
    for written, draws in groups:
        rows = [row for row in written if row not in held_out]
        drawn = islice(unlike_rows(draws, held_out, kind), counts["train"] // len(groups) - len(rows))
        splits["train"] += [*rows, *drawn]
    return {split: rng.sample(rows, len(rows)) for split, rows in splits.items()}


def unlike_rows(rows: Iterable[Row], others: Sequence[Row], kind: type[Example]) -> Iterator[Row]:
    """The rows that overlap with none of `others`."""
    return (row for row, alike in overlaps(rows, others, kind) if not alike)


def overlaps(rows: Iterable[Row], others: Sequence[Row], kind: type[Example]) -> Iterator[tuple[Row, set[Row]]]:
    """Rows, and those of `others` that each overlaps with, as `s2s check` defines it."""
    held_out = HeldOut({"others": [kind(*row) for row in others]})
    near_duplicates = NearDuplicates(held_out, sample=[])
    for row in rows:
        texts = kind(*row).texts
        arguments = 1, texts, tuple(map(normalise, texts))
        matches = [match for index in (held_out, near_duplicates) for _, match in index.matches(*arguments)]
        yield row, {others[match.held_out_number - 1] for match in matches}


def read_rows(path: Path) -> list[Row]:
    """The rows of a file of two columns, without its header."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines[1:]]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
