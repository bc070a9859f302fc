"""The origin of a run: its code, packages and machine, in `made_with.json` of its folder.

`tasks.run` writes the file at each start; `s2s runs` shows it and compares two of them. The file contains no time, so
it stays the same if a run continues on the same machine.
"""

import contextlib
import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from seq2seq import __version__
from seq2seq.runtime import Runtime

PACKAGES = ("torch", "ctranslate2", "sentencepiece", "safetensors", "sacrebleu", "numpy", "pydantic")
JOB = "SLURM_JOB_ID"


def made_with(here: Runtime) -> dict[str, Any]:
    """Return code, packages and machine of this process, as plain values."""
    packages = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    is_cuda = here.device.type == "cuda"
    machine = {
        "host": platform.node(),
        "device": torch.cuda.get_device_name(here.device) if is_cuda else here.device.type,
        "cpus": os.cpu_count(),
        "ranks": here.world_size,
    }
    if job := os.environ.get(JOB):
        machine["job"] = job
    code = {"version": __version__, "sources": _digest_of_sources(), "python": platform.python_version()}
    return {"code": code, "packages": packages, "machine": machine}


def _digest_of_sources() -> str:
    """Return the shortened SHA-256 of this package's modules: runs of one version may differ in their code."""
    folder = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
