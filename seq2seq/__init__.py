"""Train, run and score encoder-decoder Transformers for translation and text classification.

`Translator` and `Classifier` are imported on first use, so that `import seq2seq` and `s2s --help` stay instant.
"""

import importlib

__version__ = "0.1.0"
__all__ = ["Classifier", "Translator", "__version__"]

_HOMES = {"Translator": "seq2seq.inference.translator", "Classifier": "seq2seq.inference.classifier"}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'seq2seq' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
