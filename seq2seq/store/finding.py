"""Resolution of MODEL to a folder; nothing here imports torch."""

import contextlib
import math
from pathlib import Path

from seq2seq import atomic
from seq2seq.errors import ModelError, UserError, did_you_mean, shown
from seq2seq.files import LATEST, RUNS, DamagedFile, read_object, verify, verify_size

CONFIG, GENERATION, EXPORTED = "config.json", "generation_config.json", "seq2seq.json"
BEST, RUN_CONFIG, RUN_METRICS = "best", "config.yaml", "metrics.jsonl"


def check_new(output: Path) -> None:
    """Refuse an output folder that exists and is not empty, or that training would delete, before the work begins.

    Raises:
        ModelError: it exists, or is in a folder that training replaces as a whole: `best`, or one of `checkpoints`.
    """
    for parent in output.resolve().parents:
        if (parent.name == BEST or parent.parent.name == "checkpoints") and (parent / "model.safetensors").is_file():
            raise ModelError(f"{output}: in {parent}, which training replaces as a whole; name another folder")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ModelError(f"{output}: exists already; name a new folder with -o")


def find_model(path: str | Path | None, task: str | None = None) -> Path:
    """Return the model folder of MODEL.

    The result is the folder itself, or `best` of a run folder. If `path` is None, it is `best` of the newest run (of
    `task`, if given). If there is no such folder, the name is looked up on the Hugging Face hub.

    Raises:
        ModelError: there is no such model, or it has a format that is not supported.
        UserError: `path` is something else than a path.
    """
    if path is None:
        return find_model(newest_run(task))
    if not isinstance(path, str | Path):
        raise UserError(f"model {shown(path)}: must be text or a path; give several models one by one")
    folder = atomic.standing(Path(path))
    for found in (folder, atomic.standing(folder / BEST)):
        if _is_ours(found):
            return found
    from seq2seq.store.foreign import foreign_form

    if folder.exists() and (form := foreign_form(folder)):
        raise ModelError(f"{path}: {form}")
    if folder.is_file():
        raise ModelError(f"{path}: a file; name the folder of a model (a text to translate is named with --input)")
    if not folder.is_dir():
        from seq2seq import hub

        if hub.is_hub_name(path):
            fetched = hub.fetch_model(path)
            if form := foreign_form(fetched):
                raise ModelError(f"{path}: {form}")
            return fetched
        siblings = [entry.name for entry in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise ModelError(
            f"{path}: no such folder{did_you_mean(folder.name, siblings) or '; name a model or run folder'}"
        )
    if (folder / CONFIG).is_file():
        return folder
    best = atomic.standing(folder / BEST)
    if best.is_dir():
        return best
    if (folder / RUN_CONFIG).is_file() or (folder / "checkpoints").is_dir():
        raise ModelError(f"{path}: this run has no best model yet; it comes with {_first_validation(folder)}")
    raise ModelError(f"{path}: not a model folder ({CONFIG} is missing) nor a run folder (best/ is missing)")


def run_of_model(folder: Path) -> Path | None:
    """Return the run folder whose best model this is; None for other models."""
    folder = folder.resolve()
    is_best = folder == atomic.standing(folder.parent / BEST)
    return folder.parent if is_best and (folder.parent / RUN_CONFIG).is_file() else None


def _is_ours(folder: Path) -> bool:
    """Whether a folder is one that this toolkit wrote: a model folder, or a CTranslate2 folder with a description."""
    try:
        return "format" in read_object(folder / CONFIG) or (folder / EXPORTED).is_file()
    except DamagedFile:
        return False


def listed_files(folder: Path) -> set[str] | None:
    """Return the names of the files of a model folder that this toolkit wrote: those it lists, the list, and the search
    settings; None for a folder of another toolkit, which has no list."""
    for name in (EXPORTED, CONFIG):
        with contextlib.suppress(DamagedFile):
            if isinstance(files := read_object(folder / name).get("files"), dict):
                return {*files, EXPORTED, CONFIG, GENERATION}
    return None


def damage(folder: Path, has_contents: bool = False) -> str:
    """Return what is wrong with the files of a model folder that this toolkit wrote; empty if nothing is found.

    Args:
        folder: model folder.
        has_contents: whether the contents of all files are checked, not only their sizes.
    """
    check = verify if has_contents else verify_size
    try:
        files = read_object(folder / CONFIG).get("files")
        read_object(folder / GENERATION)
        if not isinstance(files, dict) or not files:
            return f"{CONFIG} does not list the files of the model"
        for name, recorded in files.items():
            check(folder / name, recorded)
    except DamagedFile as error:
        return str(error)
    except (KeyError, TypeError):
        return f"{CONFIG} lists files without their size and sha256"
    return ""


def newest_run(task: str | None = None) -> Path:
    """Return the run that `runs/latest` names, or, if that has another task or is gone, the newest run of this task.

    Raises:
        ModelError: there is no such run.
    """
    latest = (RUNS / LATEST).resolve() if (RUNS / LATEST).exists() else None
    if latest is not None and task in (None, _task_of_run(latest)):
        return latest
    names = [run for run in RUNS.iterdir() if run.name != LATEST] if RUNS.is_dir() else []
    runs = [run for run in names if (run / BEST / CONFIG).is_file()]
    runs.sort(key=lambda run: (run / BEST / CONFIG).stat().st_mtime, reverse=True)
    if fitting := [run for run in runs if task in (None, task_of(run / BEST))]:
        return fitting[0].resolve()
    if latest is None and not runs:
        raise ModelError("no model was named and there is no run under runs/; train one (s2s train) or name a MODEL")
    latest = latest or runs[0]
    raise ModelError(
        f"no model was named, and no run under runs/ is a {task} model ({latest.name} is the newest); name a MODEL"
    )


def _task_of_run(run: Path) -> str:
    """Return the task of a run, from its best model or else from its configuration."""
    from seq2seq.config import file as config_file

    if not (run / BEST / CONFIG).is_file() and (run / RUN_CONFIG).is_file():
        with contextlib.suppress(UserError):
            return config_file.load(run / RUN_CONFIG, check_files=False).task
    return task_of(run / BEST)


def task_of(folder: Path) -> str:
    """Return `translation` or `classification`, from the config.json of a model folder; the default is `translation`.

    Problems of the file are reported when the model is loaded.
    """
    try:
        task = read_object(folder / CONFIG).get("task")
    except DamagedFile:
        task = None
    return "classification" if task == "classification" else "translation"


def _first_validation(run: Path) -> str:
    from seq2seq.config import file as config_file

    try:
        training = config_file.load(run / RUN_CONFIG, check_files=False).training
    except UserError:
        return "the first validation"
    if training.init_from:
        return "the first validation, at the start of training"
    return f"the first validation, at step {min(training.validate_every, training.max_steps or math.inf):,}"


def name_in_run(folder: Path) -> str:
    """Return the name of a model folder, with the run that it is in."""
    folder = folder.resolve()
    if folder.parent.name == "checkpoints":
        return "/".join(folder.parts[-3:])
    return "/".join(folder.parts[-2:]) if folder.name == BEST else folder.name
