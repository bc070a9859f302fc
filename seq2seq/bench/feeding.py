"""The benchmark `s2s bench feed`: the speed at which batches of a configuration are made, without a model."""

import contextlib
import time
from pathlib import Path

from seq2seq import runtime as runtimes
from seq2seq.bench.measure import OURS, Entrant, Progress, figures, take_rounds
from seq2seq.bench.report import Report, machine
from seq2seq.config.schema import Config
from seq2seq.data.stream import BatchStream, read_for
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.run import build


def bench_feed(
    config: Config, cache: Path, rounds: int = 5, seconds: float = 2.0, progress: Progress = lambda what: None
) -> Report:
    """Measure the stream of batches that `s2s train` reads, in `rounds` of about `seconds` each.

    Args:
        config: configuration of a run.
        cache: folder of its tokenised corpora.
        rounds: number of rounds.
        seconds: duration of a round.
        progress: function that is called with a description of the next step.

    Raises:
        UserError: the configuration or its data have a problem.
    """
    with contextlib.closing(runtimes.start("cpu", "float32", config.training.threads)) as here:
        runtimes.seed_everything(config.seed)
        progress("preparing")
        task = build(Inputs.open(config, cache), None, here)
        with contextlib.closing(BatchStream(task.sampler, task.make_batch)) as stream:
            next(stream)

            def take_round() -> dict[str, float]:
                busy = time.process_time()
                tokens, taken = read_for(stream, seconds)
                busy = time.process_time() - busy
                return {"tokens_per_second": tokens / taken, "tokens_per_cpu_second": tokens / busy}

            ours = Entrant(OURS, "", take_round, {})
            take_rounds([ours], rounds, progress)
    work = {
        "corpus": ", ".join(record.name for record in task.data if record.role == "train"),
        "examples": len(task.corpus),
        "vocabulary": task.tokenizers.source.vocab_size,
        "batch_tokens": config.training.batch_tokens,
        "sampling": config.tokenizer.sampling,
        "seconds_a_round": seconds,
        "rounds": rounds,
    }
    systems = list(figures([ours]))
    return Report("feed", machine(here, systems), work, systems, {})
