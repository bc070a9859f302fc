"""Numbers and their bounds, for keys of the configuration and options of the command line alike.

`config` and `cli.options` check values with these, so that both take the same ones and refuse the others in the same
words. An upper bound is far above what makes sense, and below what overflows, exhausts memory or never ends.
"""

from dataclasses import dataclass
from typing import Any

from seq2seq.errors import shown


@dataclass(frozen=True)
class Range:
    """The numbers from `least` to `most`."""

    least: float
    most: float
    whole: bool = True
    without_most: bool = False
    """Whether `most` itself is not one of them."""

    def check(self, value: Any) -> Any:
        """`value`, as an int or a float; 1e4 is a whole number too.

        Raises:
            ValueError: it is no number, or not one of these; the message says which are.
        """
        if self.whole and isinstance(value, float) and value.is_integer():
            value = int(value)
        is_number = isinstance(value, int if self.whole else (int, float)) and not isinstance(value, bool)
        if not is_number or not self.least <= value <= self.most or (self.without_most and value == self.most):
            raise ValueError(f"must be {self}, not {shown(value)}")
        return value if self.whole else float(value)

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.without_most:
            return f"{kind} from {_short(self.least)} to below {_short(self.most)}"
        return f"{kind} from {_short(self.least)} to {_short(self.most)}"


def _short(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


# Of examples, tokens, steps: three times the largest fits 32 bits unsigned, half as much again 32 bits signed.
COUNT, COUNT_OR_NONE = Range(1, 10**9), Range(0, 10**9)
SEED = Range(0, 2**32 - 1)
THREADS, WORKERS = Range(1, 1024), Range(0, 1024)
PROBABILITY = Range(0.0, 1.0, whole=False, without_most=True)
SHARE = Range(0.0, 1.0, whole=False)
LAYERS, WIDTH, HEADS, INNER_WIDTH = Range(1, 1000), Range(1, 2**16), Range(1, 2**12), Range(1, 2**20)
LENGTH = Range(1, 10**6)
# A float32 has no smaller numbers that all devices compute with.
EPSILON = Range(1e-30, 1.0, whole=False)
# Search: scores stay finite for translations of a million pieces.
BEAM_SIZE, N_BEST, TOP_K, PIECES = Range(1, 1000), Range(1, 1000), Range(0, 10**9), Range(0, 10**6)
LENGTH_PENALTY = Range(0.0, 5.0, whole=False)
MAX_LENGTH_RATIO = Range(0.0, 1000.0, whole=False)
TEMPERATURE = Range(0.001, 1000.0, whole=False)
TOP_P = Range(1e-6, 1.0, whole=False)

# A table of positions, the one part of a model whose size its weights do not confirm, has so many numbers: 1 GiB in
# float64. A model has so many parameters: 400 GB in float32.
MOST_POSITION_NUMBERS, MOST_PARAMETERS = 2**27, 10**11

# Number formats of the weights of a CTranslate2 folder.
QUANTIZATIONS = (
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16",
)  # fmt: skip
