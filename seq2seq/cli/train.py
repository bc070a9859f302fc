"""`s2s train`."""

import json
import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seq2seq.cli.options import EXISTING, FOLDER
from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.config import Config
    from seq2seq.training.state import TrainingResult

logger = logging.getLogger("seq2seq.cli")


@click.command(epilog="Example: s2s train configs/multi30k-en-de.yaml --set training.max_minutes=13")
@click.argument("config", type=EXISTING, required=False)
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override one key; repeatable.")
@click.option("--run-dir", type=FOLDER, metavar="DIR", help="Run folder [default: runs/NAME OF CONFIG].")
@click.option("--overwrite", is_flag=True, help="Start over: delete the run in the folder first.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the configuration, figures and an estimate of the time; prepares the corpora, trains nothing.",
)
@click.option(
    "--verify-resume", is_flag=True, help="Show in a few steps, outside the run, that an interruption changes nothing."
)
def command(
    config: Path | None,
    overrides: tuple[str, ...],
    run_dir: Path | None,
    overwrite: bool,
    dry_run: bool,
    verify_resume: bool,
) -> None:
    """Train a model, or continue a run.

    Without CONFIG, the demonstration on the phrasebook that comes with the toolkit. The same command again continues
    where it stopped. Under torchrun it trains on several devices.
    """
    from seq2seq import config_file

    config = config or config_file.shipped_folder() / "configs" / "demo.yaml"
    settings = config_file.load(config, overrides)
    from seq2seq.tasks.run_folder import LATEST, RunFolder

    if run_dir is None and config.stem == LATEST:
        raise UserError(f"{config}: name a --run-dir; runs/{LATEST} is the link to the newest run")
    folder = RunFolder.at(run_dir or Path("runs") / config.stem).path
    if verify_resume:
        if dry_run or overwrite:
            raise click.UsageError("--verify-resume touches no run; leave out --dry-run and --overwrite")
        from seq2seq.tasks import verify

        click.echo(verify.verify_resume(settings, folder))
        return
    from seq2seq.tasks import run

    if dry_run:
        click.echo(run.describe(settings, folder))
        return
    typed = shlex.join(["s2s", *sys.argv[1:]])
    result = run.train(settings, folder, typed, overwrite, on_validation=lambda: _draw(folder))
    if result is not None:
        _draw(folder)
        _tell(result, folder, settings)


def _draw(folder: Path) -> None:
    """Bring curves.png up to date; a run does not fail for a picture."""
    from seq2seq.plots import learning_curves

    metrics = folder / "metrics.jsonl"
    if not metrics.exists():
        return
    try:
        records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        learning_curves(records, folder / "curves.png", title=folder.name)
    except UserError:
        return  # nothing was measured yet
    except (OSError, ValueError) as error:
        logger.warning("%s: not drawn (%s)", folder / "curves.png", error)


def _tell(result: "TrainingResult", folder: Path, config: "Config") -> None:
    if result.status == "stopped":
        done = f"Saved at step {result.step:,} and stopped" if result.step else "Stopped before the first step"
        logger.info("%s (%s). Run the same command to continue.", done, result.reason)
        return
    best = ""
    if result.best_value is not None:
        best = f"; best {result.metric} {result.best_value:.4g} at step {result.best_step:,}"
    if result.best_step == 0:
        best += ", the initial model: training has not improved on it"
    logger.info("%s at step %s: %s%s", result.status, f"{result.step:,}", result.reason, best)
    if config.task == "translation":
        logger.info("try: echo 'Your text.' | s2s translate %s", folder)
        if config.data.test:
            logger.info("and: s2s bleu --model %s", folder)
    else:
        logger.info("try: echo 'Your text.' | s2s classify %s", folder)
