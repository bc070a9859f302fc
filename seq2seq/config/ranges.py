"""Bounds of the numbers in the configuration and on the command line.

`config` and `cli.options` check numbers with these, so that both accept the same values and report the same
errors. An upper bound is far above every sensible value, and below values that overflow, exhaust memory or never end.
"""

from dataclasses import dataclass
from typing import Any

from seq2seq.errors import shown


@dataclass(frozen=True)
class Range:
    """The numbers from `least` to `most`; only whole numbers if these are integers. It annotates the type of a key."""

    least: float
    most: float

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are allowed."""
        return isinstance(self.least, int)

    def check(self, value: Any) -> Any:
        """Return `value` as an int or a float; 1e4 also counts as a whole number.

        Raises:
            ValueError: it is not a number of this range; the message names the range.
        """
        if self.is_whole and isinstance(value, float) and value.is_integer():
            value = int(value)
        is_number = isinstance(value, int if self.is_whole else int | float) and not isinstance(value, bool)
        if not is_number or not self.least <= value <= self.most:
            raise ValueError(f"must be {self}, not {shown(value)}")
        return value if self.is_whole else float(value)

    def __str__(self) -> str:
        if self.is_whole:
            return f"a whole number from {self.least:,} to {self.most:,}"
        return f"a number from {self.least:g} to {self.most:g}"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.check, handler(source))


# Counts of examples, tokens and steps: three times the largest fits an unsigned 32-bit integer.
COUNT, COUNT_OR_NONE = Range(1, 10**9), Range(0, 10**9)
SEED = Range(0, 2**32 - 1)
THREADS, WORKERS = Range(1, 1024), Range(0, 1024)
PROBABILITY = Range(0.0, 0.999999)
SHARE = Range(0.0, 1.0)
LAYERS, WIDTH, HEADS, INNER_WIDTH = Range(1, 1000), Range(1, 2**16), Range(1, 2**12), Range(1, 2**20)
LENGTH = Range(1, 10**6)
# Not all devices support smaller float32 numbers.
EPSILON = Range(1e-30, 1.0)
# Search: scores stay finite for translations of a million pieces.
BEAM_SIZE, N_BEST, TOP_K, PIECES = Range(1, 1000), Range(1, 1000), Range(0, 10**9), Range(0, 10**6)
LENGTH_PENALTY = Range(0.0, 5.0)
MAX_LENGTH_RATIO = Range(0.0, 1000.0)
TEMPERATURE = Range(0.001, 1000.0)
TOP_P = Range(1e-6, 1.0)

# Maximum size of a model's table of positions (1 GiB in float64), and of its parameters (400 GB in float32).
MOST_POSITION_NUMBERS, MOST_PARAMETERS = 2**27, 10**11

# Number formats of the weights of a CTranslate2 folder.
QUANTIZATIONS = (
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16",
)  # fmt: skip
