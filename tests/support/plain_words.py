"""What no message may contain: terms of Python, which tell a user nothing; tests of messages ask `python_words`."""

import re

_WORDS = re.compile(
    r"(?<!!!)\b(NoneType|None|True|False|PosixPath|WindowsPath|dict|tuple|str|int|bytes object|bytearray|codec|kwargs|"
    r"\w+Config\(|[A-Z]\w*(Error|Exception)|sys\.\w+|pydantic|unhashable|subscriptable|Traceback|recursion)\b"
    r"|<class|object at 0x|(?<![\w'\"])b'|\[Errno|\w+\(\*?\w*=",
)


def python_words(message: str) -> list[str]:
    """The terms of Python in a message, which are none."""
    return [found[0] for found in _WORDS.finditer(message)]
