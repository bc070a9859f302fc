"""Languages of the lines of a corpus: swapped pairs, and sides in another language than the rest or than the named one.

The examiner counts `directions` in a sample of each block; `report` makes findings of their sum.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from seq2seq.inspection.blocks import Block, Finding
from seq2seq.languages import known_language
from seq2seq.text.identification import identified, is_identifiable

MOST_IDENTIFIED = 512  # lines of a block
UNCLEAR = "?"
# Lines of clear language from which on a side has a usual language, and the share that it has of them. Lines of a
# language that cannot be identified are given several others.
FEWEST_CLEAR, LEAST_SHARE = 20, 0.4
# Share of the clear lines that may be scattered over further languages than the most frequent two.
MOST_SCATTERED = 0.03
# Share of the clear lines from which on the language of a side is that which is named.
LEAST_NAMED = 0.05


def directions(block: Block) -> dict[str, Finding]:
    """Count the lines of a sample of the block by the languages of their sides, such as `en>de` or `en>?`."""
    size = len(block.numbers)
    sample = (
        range(size) if size <= MOST_IDENTIFIED else sorted(random.Random(size).sample(range(size), MOST_IDENTIFIED))
    )
    found: dict[str, list[int]] = {}
    for index in sample:
        codes = [identified(column[index]) or UNCLEAR for column in block.columns]
        found.setdefault(">".join(codes), []).append(index)
    return {key: block.finding(indices, *block.columns) for key, indices in found.items()}


def usual_languages(counted: Mapping[str, Finding], names: Sequence[str | None]) -> list[str | None]:
    """Return the language of each side from which other lines differ; None where that is unclear.

    It is the one that is named, if the side has it at all, and otherwise that of the most frequent pair of languages:
    where half of the pairs are swapped, both sides have both.
    """
    pairs = {key: finding.count for key, finding in counted.items() if UNCLEAR not in key.split(">")}
    most = max(pairs, key=lambda key: pairs[key], default="").split(">")
    return [
        _usual_language(_clear(counted, side), named, most[side] if len(most) == len(names) else None)
        for side, named in enumerate(names)
    ]


def _usual_language(clear: Counter[str], named: str | None, in_most_pairs: str | None) -> str | None:
    total = clear.total()
    if total < FEWEST_CLEAR:
        return None
    if (code := known_language(named)) and clear[code] >= LEAST_NAMED * total:
        return code
    scattered = total - sum(count for _, count in clear.most_common(2))
    chosen = in_most_pairs or clear.most_common(1)[0][0]
    return chosen if clear[chosen] >= LEAST_SHARE * total and scattered <= MOST_SCATTERED * total else None


def language_findings(counted: Mapping[str, Finding], usual: Sequence[str | None]) -> dict[str, Finding]:
    """Find the pairs that are `swapped`, and those with a side in `other_language`; the counts are of the sample."""
    found = {"swapped": Finding(), "other_language": Finding()}
    for key, finding in counted.items():
        codes = key.split(">")
        if None not in usual and len(usual) == 2 and usual[0] != usual[1] and codes == [usual[1], usual[0]]:
            found["swapped"].add(finding)
        elif any(expected and code not in (UNCLEAR, expected) for code, expected in zip(codes, usual, strict=True)):
            found["other_language"].add(finding)
    return found


def unexpected_languages(
    counted: Mapping[str, Finding], names: Sequence[str | None]
) -> Iterator[tuple[int, str, float]]:
    """Yield (side, language that most lines have, its share) where that is not the language that is named."""
    for side, name in enumerate(names):
        clear, code = _clear(counted, side), known_language(name)
        if code is None or not is_identifiable(code) or clear.total() < FEWEST_CLEAR:
            continue
        most, count = clear.most_common(1)[0]
        if clear[code] < LEAST_NAMED * clear.total() and count >= LEAST_SHARE * clear.total():
            yield side, most, count / clear.total()


def _clear(counted: Mapping[str, Finding], side: int) -> Counter[str]:
    """Count the sampled lines of a side by language, without those that are unclear."""
    clear: Counter[str] = Counter()
    for key, finding in counted.items():
        if (code := key.split(">")[side]) != UNCLEAR:
            clear[code] += finding.count
    return clear
