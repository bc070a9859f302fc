"""Train, run and score encoder-decoder Transformers for translation and text classification.

The names in `__all__` are the public interface; every other module may change. They are imported on first use, so that
`import seq2seq` and `s2s --help` stay instant.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.errors import UserError
    from seq2seq.evaluation.text import Score, compare_systems, score_sentences, score_texts
    from seq2seq.inference.aligner import Aligner
    from seq2seq.inference.classifier import Classification, Classifier
    from seq2seq.inference.pipeline import Pipeline
    from seq2seq.inference.scorer import PairScore, Scorer
    from seq2seq.inference.translation import Translation
    from seq2seq.inference.translator import Translator
    from seq2seq.text.direction import Direction
    from seq2seq.text.glossary import Glossary
    from seq2seq.workflows.train import Run, train

__version__ = "0.1.0"
__all__ = [
    "Aligner", "Classification", "Classifier", "Direction", "Glossary", "PairScore", "Pipeline", "Run", "Score",
    "Scorer", "Translation", "Translator", "UserError", "__version__", "compare_systems", "score_sentences",
    "score_texts", "train",
]  # fmt: skip

_HOMES = {
    "seq2seq.errors": ("UserError",),
    "seq2seq.evaluation.text": ("Score", "compare_systems", "score_sentences", "score_texts"),
    "seq2seq.inference.aligner": ("Aligner",),
    "seq2seq.inference.classifier": ("Classification", "Classifier"),
    "seq2seq.inference.pipeline": ("Pipeline",),
    "seq2seq.inference.scorer": ("PairScore", "Scorer"),
    "seq2seq.inference.translation": ("Translation",),
    "seq2seq.inference.translator": ("Translator",),
    "seq2seq.text.direction": ("Direction",),
    "seq2seq.text.glossary": ("Glossary",),
    "seq2seq.workflows.train": ("Run", "train"),
}

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others

    def __getattr__(name: str):
        for home, names in _HOMES.items():
            if name in names:
                return getattr(importlib.import_module(home), name)
        raise AttributeError(f"module 'seq2seq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
