"""Base of `ClassifierModel` and `Scorer`: load one model folder, and refuse a model of the other task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from seq2seq.errors import ModelError
from seq2seq.inference.batching import BATCH_TOKENS, token_budget
from seq2seq.runtime import Runtime, keep_few_kernels, start
from seq2seq.store.finding import find_model
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.text.direction import Direction

# Options of `Translator.load` that choose where a second model of the same folder runs, and its languages.
COMPUTING = ("device", "precision", "threads", "source_language", "target_language")


def computing(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `Translator.load` that choose device, precision and threads, for a second model."""
    return {key: options[key] for key in COMPUTING if key in options}


class OneModel:
    """A model of one task on its device."""

    task: ClassVar[str]
    other_command: ClassVar[str]  # for the error about a model of the other task

    def __init__(self, loaded: LoadedModel, runtime: Runtime, batch_tokens: int | None = None):
        if loaded.description.task != self.task:
            raise ModelError(f"{loaded.folder}: a {loaded.description.task} model; {self.other_command}")
        self.batch_tokens = token_budget(batch_tokens, BATCH_TOKENS, runtime.device.type)
        self.description = loaded.description
        self._runtime = runtime
        self._model = loaded.model.to(runtime.device).eval()

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        device: str = "auto",
        precision: str | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> Self:
        """Load a model folder or a run folder (then its best model); None is the newest run of the task.

        `precision` None is float32 on a CPU and `auto` on a GPU; `batch_tokens` bounds the tokens of either side of a
        batch with padding; None is 4,096 on a CPU and 65,536 on a GPU. `source_language` and
        `target_language` are for models of several languages.

        Raises:
            ModelError: there is no model, it is damaged, or it is one of another task.
            UserError: a device or precision that does not exist here, or languages that the model does not have.
        """
        keep_few_kernels()
        loaded = load_model(find_model(path, cls.task)).directed(Direction(source_language, target_language))
        return cls(loaded, start(device, precision, threads), batch_tokens)
