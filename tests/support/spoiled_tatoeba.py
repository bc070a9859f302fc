"""A corpus with known rubbish, to measure `s2s filter`: `python tests/support/spoiled_tatoeba.py FOLDER [KEPT]`.

Without KEPT, FOLDER gets `train.en` and `train.de`: 40,000 pairs of Tatoeba under `$S2S_DATA`. A tenth of the targets
are those of other pairs, a tenth are copies of the source, and `spoiled.json` has their numbers. The other pairs are
`good.en` and `good.de`. With KEPT, the folder that `s2s filter` wrote, the shares of spoiled and good pairs that it
left out are printed.
"""

import gzip
import json
import os
import random
import sys
from pathlib import Path

PAIRS, SEED = 40_000, 1


def spoil(folder: Path) -> None:
    """Write the corpus."""
    data, draw = Path(os.environ.get("S2S_DATA", "data")) / "tatoeba", random.Random(SEED)
    paths = [data / f"train.{side}.gz" for side in ("en", "de")]
    sides = [gzip.open(path, "rt", encoding="utf-8").read().split("\n")[:-1] for path in paths]
    pairs = draw.sample(list(zip(*sides, strict=True)), PAIRS)
    chosen = draw.sample(range(PAIRS), PAIRS // 5)
    moved, copied = chosen[: PAIRS // 10], chosen[PAIRS // 10 :]
    targets = [target for _, target in pairs]
    for number, other in zip(moved, moved[1:] + moved[:1], strict=True):
        targets[number] = pairs[other][1]
    for number in copied:
        targets[number] = pairs[number][0]
    folder.mkdir(parents=True)
    good = sorted(set(range(PAIRS)) - set(chosen))
    for side, lines in (("en", [source for source, _ in pairs]), ("de", targets)):
        (folder / f"train.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (folder / f"good.{side}").write_text("".join(f"{lines[number]}\n" for number in good), encoding="utf-8")
    spoiled = {"moved": [number + 1 for number in moved], "copied": [number + 1 for number in copied]}
    (folder / "spoiled.json").write_text(json.dumps(spoiled))


def measure(folder: Path, kept: Path) -> None:
    """Print the shares that were left out."""
    parts = [gzip.open(path, "rt", encoding="utf-8") for path in kept.glob("part-*.jsonl.gz")]
    left = set(range(1, PAIRS + 1)) - {json.loads(line)["origin"][1] for part in parts for line in part}
    spoiled = json.loads((folder / "spoiled.json").read_text())
    groups = {name: set(lines) for name, lines in spoiled.items()}
    groups["spoiled"] = groups["moved"] | groups["copied"]
    groups["good"] = set(range(1, PAIRS + 1)) - groups["spoiled"]
    for name, lines in groups.items():
        gone = len(lines & left)
        print(f"{name}: {gone:,} of {len(lines):,} left out ({100 * gone / len(lines):.2f} %)")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    measure(place, Path(sys.argv[2])) if len(sys.argv) > 2 else spoil(place)
