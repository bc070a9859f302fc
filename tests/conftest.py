"""What several test files share: a neutral environment, deterministic torch, a run that was trained once, and where the
optional real corpora are."""

import gc
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from support.environment import REAL_DATA

if "PYTEST_XDIST_WORKER" in os.environ:  # the processes share the CPUs; what torch reads when it is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from filelock import FileLock  # torch brings it
from tqdm import tqdm

from seq2seq.processes import usable_cpus
from seq2seq.tasks.run import _Run

DRAW_CURVES = _Run.draw_curves

# tqdm's lock is shared with forked processes: one that is killed while it holds it would make this one wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: tqdm.set_lock(threading.RLock()))

# A shell starts what it puts in the background with this signal ignored, and the processes that tests interrupt would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):  # nohup has it ignored
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_xdist_auto_num_workers():
    """One process more than there are CPUs, as many tests wait for other processes."""
    return usable_cpus() + 1


def pytest_collection_finish():
    """Objects of modules and of collected tests live as long as the process, so that looking for garbage among them
    takes time and finds none. What the tests make is looked at less often than by default, which halves that time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def _seeded():
    # Without a GPU in use, `torch.manual_seed` formats the stack for each kind of accelerator: 2 ms for each test.
    (torch if torch.cuda.is_initialized() else torch.default_generator).manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Converted models go to a cache of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _few_pictures():
    """Toy runs draw no curves, which takes a quarter of their time; with `curves`, and as commands, they do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Run, "draw_curves", lambda run: None)
        yield


@pytest.fixture
def curves(monkeypatch):
    """A run draws its learning curves."""
    monkeypatch.setattr(_Run, "draw_curves", DRAW_CURVES)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora that S2S_DATA names; tests that measure on them skip without it."""
    folder = Path(os.environ.get(REAL_DATA, Path(__file__).parent.parent.parent / "shared" / "data"))
    if not (folder / "multi30k" / "train.en.gz").exists():
        pytest.skip("needs Multi30k under $S2S_DATA/multi30k")
    return folder


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A function of a name and of what fills a folder; it returns the folder, which one process fills for all."""
    base = tmp_path_factory.getbasetemp()
    place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, fill: Callable[[Path], object]) -> Path:
        folder, part = place / f"shared-{name}", place / f"part-{name}"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                fill(part)
                part.rename(folder)
        return folder

    return made


@pytest.fixture(scope="session")
def trained_in_reverse(made_once) -> Path:
    """The folder of a run that has learned to translate words in reverse order."""
    from support.toy_reversal import train

    return made_once("reversed", train)


@pytest.fixture(scope="session")
def trained_marian(made_once) -> Path:
    """A Marian folder that transformers trained to translate `foreign_models.SOURCE` by heart; not to be changed."""
    pytest.importorskip("transformers")
    from support.foreign_models import train_marian

    return made_once("marian", train_marian)


@pytest.fixture(scope="session")
def trained_nllb(made_once) -> Path:
    """A folder of NLLB that transformers trained to translate `foreign_models.SOURCE` by heart; not to be changed."""
    pytest.importorskip("transformers")
    from support.multilingual_models import train_nllb

    return made_once("nllb", train_nllb)


@pytest.fixture(scope="module")
def reversed_run(trained_in_reverse, tmp_path_factory) -> Path:
    """A copy of it for the tests of one file, which may change it."""
    return Path(shutil.copytree(trained_in_reverse, tmp_path_factory.mktemp("reversed") / "copy", symlinks=True))
