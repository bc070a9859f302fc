"""The machine of a run: the process as training needs it, and whether an initial model fits into memory."""

from logging import getLogger

from seq2seq import runtime
from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.runtime import Runtime
from seq2seq.store.finding import find_model
from seq2seq.store.footprint import check_training, footprint, shown_bytes
from seq2seq.training.compiling import check_compile
from seq2seq.training.recorded import check_record

logger = getLogger(__name__)


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
