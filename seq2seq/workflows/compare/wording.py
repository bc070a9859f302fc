"""The words and figures of a comparison, the same in the table and on the page."""

from collections.abc import Sequence

from seq2seq.errors import counted
from seq2seq.workflows.compare.comparison import Figure, PairTest, SystemComparison
from seq2seq.workflows.compare.sentences import PairSentences
from seq2seq.workflows.compare.views import LINES

LARGEST_SCORE = 100.0


def cell(figure: Figure) -> str:
    """Return text such as `32.41 ± 1.20 ab`, with the standard deviation over seeds."""
    seeds = "" if figure.sd is None else f" (sd {figure.sd:.2f})"
    return f"{figure.score:.2f} ± {figure.half_width:.2f} {figure.letters}{seeds}"


def shown_p(p_value: float) -> str:
    """Return a p-value with four decimals."""
    return "< 0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def p_of(pair: PairTest) -> str:
    """Return the p-value of a pair, with the numbers of seeds if a row has several, else with its source."""
    source = f"{pair.seeds[0]} and {pair.seeds[1]} seeds" if pair.is_over_seeds else "sacreBLEU"
    return f"{shown_p(pair.p_value)} ({source})"


def meaning_of_p(pairs: Sequence[PairTest]) -> list[str]:
    """Return the sentences that explain the p-values of these pairs."""
    found = []
    if not all(pair.is_over_seeds for pair in pairs):
        found.append("The p of sacreBLEU is that of --paired-bs, another test, and cannot be below 0.001.")
    if any(pair.is_over_seeds for pair in pairs):
        found.append("A p with numbers of seeds is two-sided, over lines and seeds, and not corrected.")
    return [*found, "The corrected p is two-sided, with Holm's correction, and decides."]


def shown_value(value: float, unit: str) -> str:
    """Return a value of a view; numbers of lines are whole, except means over seeds."""
    return f"{value:.0f}" if unit == LINES and value == int(value) else f"{value:.1f}"


def verdict(pair: PairTest) -> str:
    """Whether a difference was found, and how large it would have had to be."""
    if pair.is_different:
        return "different"
    if pair.detectable is None:
        return "no difference found" if pair.difference else "no difference"
    if pair.is_over_seeds and pair.detectable > LARGEST_SCORE:
        return "no difference found; too few seeds to show one"
    return f"no difference found; {pair.detectable:.2f} or more would have shown"


def first_seed_note(compared: SystemComparison) -> str:
    """Return a note on the lines and texts of rows of several seeds; empty without such rows."""
    is_needed = any(len(seeds) > 1 for seeds in compared.seeds.values())
    return "For rows of several seeds, lines and texts are those of the first seed." if is_needed else ""


def described(pair: PairSentences) -> str:
    """How many lines two systems translate differently, and the numbers of the most different ones."""
    if not pair.num_different:
        return ""
    lines = [f"{sentence.line:,}" for sentence in (*pair.won[:3], *pair.lost[:3])]
    noun = counted(pair.num_different, "line")
    differ = "differs" if pair.num_different == 1 else "differ"
    which = "line" if len(lines) == 1 else "most strongly lines"
    return f"{pair.first} - {pair.second}: {noun} {differ}: {which} {', '.join(lines)}"
