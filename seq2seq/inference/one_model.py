"""The base class of `ClassifierModel` and `Scorer`, which loads a model folder and refuses a model of another task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from seq2seq.arguments import checked_count
from seq2seq.errors import ModelError
from seq2seq.inference.groups import BATCH_TOKENS, token_budget
from seq2seq.runtime import Runtime, keep_few_kernels, start
from seq2seq.store.finding import find_model
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.text.direction import Direction

# Options of `Translator.load` for the device and languages of a second model of the same folder.
COMPUTING = ("device", "precision", "threads", "source_language", "target_language")


def computing(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `Translator.load` that apply to a second model: device, precision, threads, languages."""
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

        Args:
            path: the model folder or run folder.
            device: auto, cpu, cuda, cuda:1 or mps.
            precision: number format of matrix products; None means float32 on a CPU, and `auto` on a GPU.
            threads: CPU threads; None means all.
            batch_tokens: maximum tokens of one side of a batch, padding included; None means 4,096 on a CPU and 65,536
                on a GPU.
            source_language: language of the source, for a multilingual model.
            target_language: language of the target, for a multilingual model.

        Raises:
            ModelError: there is no model, it is damaged, or it belongs to another task.
            UserError: the device or precision does not exist on this machine, the model does not have the languages, or
                a number or name is not possible.
        """
        keep_few_kernels()
        batch_tokens = checked_count(batch_tokens, "batch_tokens")
        loaded = load_model(find_model(path, cls.task)).directed(Direction(source_language, target_language))
        return cls(loaded, start(device, precision, threads), batch_tokens)
