"""The runtime of a process: its device, precision, rank, and random state.

Only `start` reads the machine and the environment of torchrun; other code receives the `Runtime`.
"""

import contextlib
import ctypes
import importlib
import os
import platform
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from seq2seq import atomic
from seq2seq.arguments import checked_computing
from seq2seq.errors import UserError, did_you_mean

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WAIT_LIMIT = timedelta(minutes=30)  # of a rank for the others, in a collective


@dataclass(frozen=True)
class Runtime:
    """Device, precision and rank of one process of a run."""

    device: torch.device
    precision: torch.dtype
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this rank writes files and logs."""
        return self.rank == 0

    def autocast(self) -> contextlib.AbstractContextManager:
        """Run matrix products in `precision`; norms, softmax and losses stay in float32."""
        if self.precision == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)

    def all_reduce(self, values: list[float]) -> list[float]:
        """Return the sums of `values` over all ranks."""
        if self.world_size == 1:
            return values
        summed = torch.tensor(values, dtype=torch.float64)  # on the CPU, so that no GPU synchronisation is needed
        dist.all_reduce(summed)
        return summed.tolist()

    def gather(self, value: object) -> list[object]:
        """Return `value` of every rank, in rank order, on every rank."""
        if self.world_size == 1:
            return [value]
        values: list[object] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for every rank."""
        if self.world_size > 1:
            dist.barrier()

    @contextlib.contextmanager
    def main_first(self, folder: Path) -> Iterator[None]:
        """Run the block on the main rank, then on the others, which wait for a lock file in `folder`.

        They wait without a time limit, while a collective fails after `WAIT_LIMIT`. Ranks of other hosts wait in this
        way only if the folder and its locks are shared.
        """
        if self.world_size == 1:
            yield
            return
        with contextlib.ExitStack() as stack:
            lock = folder / f"ranks-{os.getpid()}-{os.urandom(4).hex()}.lock"
            if self.is_main:
                stack.enter_context(atomic.locked(lock))
            lock = Path(str(self.gather(str(lock))[0]))  # the main rank has it
            if not self.is_main:
                stack.enter_context(atomic.locked(lock))
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # the folder may be read-only
                    lock.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()


def start(device: str = "auto", precision: str | None = "auto", threads: int | None = None) -> Runtime:
    """Choose device and precision and, under torchrun, join the process group.

    `precision` None means float32 on a CPU and `auto` on a GPU. `auto` is bfloat16 if the device multiplies it
    natively, else float32.

    Raises:
        UserError: the device does not exist on this machine, or cannot compute in this precision.
    """
    device, precision, threads = checked_computing(device, precision, threads)
    keep_large_blocks()
    if threads is not None:
        torch.set_num_threads(threads)
    rank, local_rank = int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0))
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    chosen = _choose_device(device, local_rank)
    runtime = Runtime(chosen, _choose_precision(precision, chosen), rank, local_rank, world_size)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
        # cuDNN plans anew for every shape of a batch, which takes 20 to 900 ms; other attention kernels need no plan.
        torch.backends.cuda.enable_cudnn_sdp(False)
    if world_size > 1 and not dist.is_initialized():
        _join(chosen)
    return runtime


def current_device(device: torch.device) -> contextlib.AbstractContextManager:
    """Return a context in which new streams and events of this thread are those of `device`.

    `start` chooses the device of its thread only. Another one, such as the worker of a server, has the first GPU.
    """
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _join(device: torch.device) -> None:
    """Join the process group described by torchrun's environment."""
    # Its functions have the group as a default value if it exists when the module is imported. `close` could then not
    # end the threads of gloo, and one that works while the interpreter ends aborts the process.
    importlib.import_module("torch.distributed.nn.functional")
    store, rank, world_size = next(dist.rendezvous("env://", timeout=WAIT_LIMIT))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps its store when it restarts ranks, which would find the addresses of dead ranks. On several
        # machines the numbers of restarts may differ; there, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 makes torchrun start
        # a new store.
        store = dist.PrefixStore(f"restart {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    backend, own = ("cpu:gloo,cuda:nccl", device) if device.type == "cuda" else ("gloo", None)
    dist.init_process_group(backend, timeout=WAIT_LIMIT, store=store, rank=rank, world_size=world_size, device_id=own)


def on_cpu(tensor: torch.Tensor) -> bool:
    """Whether to use the CPU-specific path for this tensor: on a CPU, outside compiled graphs.

    Code with two paths decides only by this function, so that tests can run the GPU path on a CPU.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def product_type(tensor: torch.Tensor) -> torch.dtype:
    """Return the data type of matrix products with this tensor: autocast's, or the tensor's own."""
    kind = tensor.device.type
    is_mixed = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_mixed else tensor.dtype


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed Python, NumPy and torch with `seed + rank`, so that ranks draw different dropout."""
    random.seed(seed + rank)
    np.random.seed((seed + rank) % 2**32)
    torch.manual_seed(seed + rank)


def random_state() -> dict[str, torch.Tensor]:
    """Return the state of torch's generators, the only ones in a training step; data order has its own generators."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # a query would allocate memory on an unused GPU
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, torch.Tensor]) -> None:
    """Restore what `random_state` returned."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(state["cuda"])


@contextlib.contextmanager
def same_threads() -> Iterator[None]:
    """Restore torch's number of threads at the end of the block, because other libraries may change it."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_few_kernels() -> None:
    """Limit the compiled products that oneDNN caches to 32; call it before the first product.

    The number of rows differs at every step of a search. For each number oneDNN compiles a product of 16-bit numbers,
    up to 700 kB. By default oneDNN and ideep, torch's layer over it, each keep 1,024 of them, ideep in every thread.
    Limits that the user set are kept.
    """
    _keep_kernels(32)


def keep_many_kernels() -> None:
    """Let oneDNN cache the compiled products of a whole epoch; call it before the first product.

    Batches of the same shapes return each epoch. By default their code has been evicted by then and is compiled again,
    which takes up to a sixth of a training step. The cache takes at most a quarter of the machine's memory.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    _keep_kernels(max(32, min(8192, memory // 4 // 2**19)))


def _keep_kernels(products: int) -> None:
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(products))
    os.environ.setdefault("LRU_CACHE_CAPACITY", "32")


def keep_large_blocks(up_to: int = 2**30) -> None:
    """Make glibc keep the memory of freed tensors, up to `up_to` bytes each, instead of returning it to the system.

    A training step frees and allocates the same large tensors repeatedly, and returned pages are zeroed and mapped
    again each time. A value that the user set (`MALLOC_MMAP_THRESHOLD_`) is kept.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ or platform.libc_ver()[0] != "glibc":
        return
    trim_threshold, mmap_threshold = -1, -3
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_threshold, up_to)
    libc.mallopt(trim_threshold, 2**31 - 1)


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies matrices in bfloat16 natively; emulation is slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        cpuinfo = Path("/proc/cpuinfo")
        flags = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
        return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})
    return False


def _choose_device(name: str | None, local_rank: int) -> torch.device:
    if name in (None, "auto"):
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind = name.partition(":")[0]
    if kind not in ("cpu", "cuda", "mps"):
        raise UserError(
            f"device {name!r}: not one of auto, cpu, cuda, cuda:N, mps{did_you_mean(kind, ('cpu', 'cuda'))}"
        )
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"device {name!r}: not a device name; write cuda or cuda:1") from error
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device {name!r}: torch sees no CUDA device here; use cpu")
        index, count = local_rank if device.index is None else device.index, torch.cuda.device_count()
        if device.index is not None and int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise UserError(f"device {name!r}: under torchrun each rank uses its own device; write cuda")
        if device.index is None and index >= count:
            raise UserError(
                f"this machine has {count} CUDA devices; start at most that many ranks (torchrun --nproc_per_node)"
            )
        if index >= count:
            raise UserError(f"device {name!r}: this machine has {count} CUDA devices, counted from 0")
        return torch.device("cuda", index)
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device {name!r}: torch sees no Apple GPU here; use cpu")
    return device


def _choose_precision(name: str | None, device: torch.device) -> torch.dtype:
    if name == "auto" or (name is None and device.type == "cuda"):
        return torch.bfloat16 if multiplies_bfloat16(device) else torch.float32
    if name is None:
        return torch.float32
    if name not in PRECISIONS:
        raise UserError(f"precision {name!r}: not one of auto, {', '.join(PRECISIONS)}{did_you_mean(name, PRECISIONS)}")
    if name == "float16" and device.type == "cpu":
        raise UserError("precision float16: a CPU trains and decodes in float32 or bfloat16; choose one of them")
    return PRECISIONS[name]
