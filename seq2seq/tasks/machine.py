"""The machine of a run: the process as training needs it, whether an initial model fits into memory, and advice on
settings that make training slower than it could be.
"""

from logging import getLogger

from seq2seq import runtime
from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.runtime import Runtime
from seq2seq.store.finding import find_model
from seq2seq.store.footprint import check_training, footprint, shown_bytes
from seq2seq.training.compiling import SMALL_GPU_BATCH, check_compile
from seq2seq.training.recorded import check_record

logger = getLogger(__name__)

FEED_MARGIN = 1.25  # how many times as fast as the steps batches are made if no step waits for them


def started(config: Config) -> Runtime:
    """Return the runtime of this process.

    Raises:
        UserError: the configuration needs a device that this machine does not have.
    """
    runtime.keep_many_kernels()
    here = runtime.start(config.training.device, config.training.precision, config.training.threads)
    if config.training.recompute:  # freed memory that is kept in large blocks would take what recomputing saves
        runtime.keep_large_blocks(up_to=2**20)
    check_record(config.training, here.device)
    check_compile(config.training, here.device)  # raises on a CPU before a folder is created
    return here


def check_memory(training: TrainingConfig, here: Runtime) -> None:
    """Report what the initial model needs, and refuse it, before it is loaded, if a CPU cannot train it."""
    if training.init_from is None:
        return
    found = footprint(find_model(training.init_from))
    if found is None:
        return
    # Weights, gradients, the moments of the optimizer (of Muon usually one) and the moving average.
    needed = found.trained(2 + (1 if training.optimizer == "muon" else 2) + (training.ema is not None))
    if here.device.type == "cpu" and not training.freeze:
        check_training(training.init_from, needed)
    words = "less for frozen ones; " * bool(training.freeze) + "batches come in addition"
    if here.is_main:
        logger.info("memory: %s for weights, gradients and optimizer; %s", shown_bytes(needed), words)


def batch_advice(training: TrainingConfig, here: Runtime, is_recorded: bool) -> list[str]:
    """Return a line of advice if batches are so small that a GPU waits for the CPU, else an empty list."""
    if here.device.type != "cuda" or is_recorded or training.batch_tokens >= SMALL_GPU_BATCH:
        return []
    if training.accumulate > 1:
        remedy = f"raise it and lower training.accumulate ({training.accumulate}): the step stays the same"
    else:
        remedy = "an epoch then has fewer steps; a higher learning rate or more epochs make up for it"
    return [f"a GPU waits for the CPU with training.batch_tokens below about {SMALL_GPU_BATCH:,}: {remedy}"]


def feed_advice(fed: float, trained: float) -> list[str]:
    """Return a line on the speed of the batches, in tokens/s, and a remedy if training could not be much faster."""
    line = f"feeder: batches are made at {fed:,.0f} tokens/s, and training reads {trained:,.0f}"
    if fed > FEED_MARGIN * trained:
        return [line]
    remedy = "set tokenizer.sampling: 0, or tokenizer.sampling_nbest to 16 or less with a unigram tokenizer"
    return [f"{line}: training waits for them; {remedy}"]
