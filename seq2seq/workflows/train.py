"""Training by one function call, and the `Run` that it returns: `seq2seq.train` for library users.

`s2s train` uses the same `resolve` to choose configuration and run folder. Errors of the configuration are found
before torch is imported.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.arguments import checked_choice
from seq2seq.config import file as config_file
from seq2seq.config.schema import Config
from seq2seq.config.values import Section
from seq2seq.config.yaml_text import as_yaml
from seq2seq.errors import UserError
from seq2seq.files import shipped_folder

if TYPE_CHECKING:
    from seq2seq.inference.classifier import Classifier
    from seq2seq.inference.translator import Translator
    from seq2seq.training.state import TrainingResult

# The keys of a configuration that are sections, which changes of some of their keys do not replace as a whole.
SECTIONS = {
    name
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


@dataclass(frozen=True)
class Run:
    """A run folder, and the result of the call that trained in it."""

    folder: Path
    """The run folder; `best/` in it is the model folder."""
    result: "TrainingResult | None"
    """The result of training; None on ranks other than the main one."""

    def translator(self, **options: Any) -> "Translator":
        """Load the best model of a translation run; the options are those of `Translator.load`."""
        from seq2seq.inference.translator import Translator

        return Translator.load(self.folder, **options)

    def classifier(self, **options: Any) -> "Classifier":
        """Load the best model of a classification run; the options are those of `Classifier.load`."""
        from seq2seq.inference.classifier import Classifier

        return Classifier.load(self.folder, **options)


def train(
    config: str | Path | None = None,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    changes: Mapping[str, Any] | None = None,
    **training: Any,
) -> Run:
    """Train a model, or continue a run, as `s2s train` does.

    A signal that stops training is sent again after the checkpoint is saved: Ctrl-C raises KeyboardInterrupt, and
    SIGTERM ends the process, unless the program handles it. The same call continues the run.

    Args:
        config: a configuration file; None is the demonstration.
        run_dir: the run folder; None is `runs/` followed by the name of the configuration.
        overwrite: delete the run in the folder first.
        changes: values that replace those of the configuration, by key: `{"model.dropout": 0.2}`. For a section,
            `{"model": {"dropout": 0.2}}` is the same.
        training: values for keys of its section `training`: `max_minutes=5`.

    Raises:
        UserError: the configuration, the data or the folder is not valid; or a key is given twice.
        RunError: training itself failed; the message names the last good checkpoint.
        KeyboardInterrupt: Ctrl-C stopped the training.
    """
    overwrite = checked_choice(overwrite, "overwrite")
    overrides = [f"{key}={as_yaml(value)}" for key, value in _by_key(changes, training).items()]
    path, settings, folder = resolve(config, overrides, run_dir)
    from seq2seq.tasks import run
    from seq2seq.training.signals import deliver

    given = {"run_dir": run_dir, "changes": None if changes is None else dict(changes)}
    given = {key: value for key, value in given.items() if value is not None} | training
    written = json.loads(as_yaml(given))  # paths become text, as in the configuration
    shown = [repr(str(config))] * (config is not None) + [f"{key}={value!r}" for key, value in written.items()]
    with config_file.naming(path):
        result = run.train(settings, folder, f"seq2seq.train({', '.join(shown)})", overwrite)
    if result is not None and result.status == "stopped":
        deliver(result.reason)
    return Run(folder.resolve(), result)


def _by_key(changes: Mapping[str, Any] | None, training: Mapping[str, Any]) -> dict[str, Any]:
    """Return all changes of a configuration by their dotted keys, those of a section by its keys.

    Raises:
        UserError: `changes` is not a mapping, or a key is given twice.
    """
    if not isinstance(changes, Mapping | None):
        raise UserError("changes: must be values by key, such as model.dropout")
    found: dict[str, Any] = {}
    for section, value in (*(changes or {}).items(), ("training", training)):
        has_keys = section in SECTIONS and isinstance(value, Mapping)
        own = {f"{section}.{key}": item for key, item in value.items()} if has_keys else {section: value}
        if twice := own.keys() & found.keys():
            raise UserError(f"{min(twice)}: given twice; keep one")
        found |= own
    return found


def resolve(
    config: str | Path | None, overrides: Sequence[str], run_dir: str | Path | None
) -> tuple[Path, Config, Path]:
    """Return a configuration file, or that of the demonstration, what it says, and the run folder."""
    path = shipped_folder() / "configs" / "demo.yaml" if config is None else Path(config)
    settings = config_file.load(path, overrides)
    from seq2seq.tasks.run_folder import LATEST, RUNS, RunFolder

    if run_dir is None and path.stem == LATEST:
        raise UserError(f"{path}: name a run folder (--run-dir); {RUNS / LATEST} is the link to the newest run")
    return path, settings, RunFolder.at(Path(run_dir) if run_dir is not None else RUNS / path.stem).path
