"""The languages of the lines of a corpus: swapped pairs, lines in another language, sides in an unexpected language.

The examiner counts `directions` in a sample of each block; `agreement` makes findings from their sum.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from seq2seq.inspection.blocks import Block, Finding
from seq2seq.languages import known_language
from seq2seq.text.identification import identified, is_identifiable

MOST_IDENTIFIED = 512  # sampled lines of a block
SAMPLED_LINES = 200  # of a text whose language is given
UNCLEAR = "?"
# The least number of lines with a clear language for a usual language of a side, and its least share of them. Lines in
# a language that cannot be identified are assigned to several others.
FEWEST_CLEAR, LEAST_SHARE = 20, 0.4
# The largest share of clear lines in languages other than the most frequent two.
MOST_SCATTERED = 0.03
# The least share of clear lines in the named language for which it counts as the language of the side.
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
    """Return the usual language of each side; None if it is unclear.

    This is the named language, if the side has at least a few lines in it, and otherwise that of the most frequent pair
    of languages. Sides are not judged separately, because with half of the pairs swapped, both have both languages.
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
    """Return the `swapped` pairs and the pairs with a side in `other_language`; the counts are those of the sample."""
    findings = {"swapped": Finding(), "other_language": Finding()}
    for key, finding in counted.items():
        codes = key.split(">")
        if None not in usual and len(usual) == 2 and usual[0] != usual[1] and codes == [usual[1], usual[0]]:
            findings["swapped"].add(finding)
        elif any(expected and code not in (UNCLEAR, expected) for code, expected in zip(codes, usual, strict=True)):
            findings["other_language"].add(finding)
    return findings


def unexpected_languages(
    counted: Mapping[str, Finding], names: Sequence[str | None]
) -> Iterator[tuple[int, str, float]]:
    """Yield (side, language of most lines, its share) for each side that is not in its named language."""
    for side, name in enumerate(names):
        clear, code = _clear(counted, side), known_language(name)
        if code is None or not is_identifiable(code) or clear.total() < FEWEST_CLEAR:
            continue
        most, count = clear.most_common(1)[0]
        if clear[code] < LEAST_NAMED * clear.total() and count >= LEAST_SHARE * clear.total():
            yield side, most, count / clear.total()


def _clear(counted: Mapping[str, Finding], side: int) -> Counter[str]:
    """Return the number of sampled lines of a side by language, without unclear lines."""
    clear: Counter[str] = Counter()
    for key, finding in counted.items():
        if (code := key.split(">")[side]) != UNCLEAR:
            clear[code] += finding.count
    return clear


def other_language(lines: Sequence[str], *languages: str | None) -> tuple[str, float] | None:
    """Return the language that lines are in instead of `languages`, and its share of the clear lines of a sample.

    The result is None if some of the clear lines are in one of `languages`, if too few lines are clear, if no other
    language has a large share, or if one of `languages` is unknown or cannot be identified.
    """
    codes = {known_language(language) for language in languages}
    if not all(code is not None and is_identifiable(code) for code in codes):
        return None
    texts = [line for line in lines if line.strip()]
    clear = Counter(filter(None, map(identified, texts[:: max(len(texts) // SAMPLED_LINES, 1)][:SAMPLED_LINES])))
    own = sum(count for code, count in clear.items() if code in codes)
    if clear.total() < FEWEST_CLEAR or own >= LEAST_NAMED * clear.total():
        return None
    most, count = clear.most_common(1)[0]
    return (most, count / clear.total()) if count >= LEAST_SHARE * clear.total() else None
