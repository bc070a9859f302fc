"""An environment for the tests that is the same whatever the user has in theirs; `conftest` imports it first, which is
what makes it so. Temporary folders are in memory where there is room.

What is left: where programs and caches are, and what names devices, threads and folders of test data.
"""

import os
import sys
import warnings

REAL_DATA = "S2S_REAL_DATA"  # what the user's S2S_DATA named, which commands under test do not see
NAMES = {
    "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR",
    "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE", "LANG", "LANGUAGE", "TZ", "TERM", "MPLBACKEND", "MPLCONFIGDIR",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "PYTHONWARNINGS", "PYTHONIOENCODING", "PYTHONUTF8",
    "PYTHONCOERCECLOCALE", "PYTHONINSPECT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
    "MASTER_ADDR", "MASTER_PORT", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "LRU_CACHE_CAPACITY",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "_S2S_COMPLETE",
}  # fmt: skip
PREFIXES = ("HF_HUB_", "HF_DATASETS_", "TRANSFORMERS_", "LC_", "TQDM_", "TORCHELASTIC_")
MEMORY, ROOM = "/dev/shm", 4 * 2**30  # the folders of all tests together have about 0.4 GiB
# The hub's caches stay where they are: models that are there need no network.
KEPT = frozenset({"HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE"})


def neutralise() -> None:
    """Take out of the environment what changes how the toolkit or its libraries answer."""
    for name in list(os.environ):
        if (name.upper() in NAMES or name.startswith(PREFIXES)) and name not in KEPT:
            del os.environ[name]
    if "S2S_DATA" in os.environ:
        os.environ[REAL_DATA] = os.environ.pop("S2S_DATA")
    if sys.warnoptions:
        sys.warnoptions.clear()
        warnings.resetwarnings()


def keep_folders_in_memory() -> None:
    """Let pytest make its temporary folders in memory where there is room: on a disk, the many small files of toy runs,
    each brought to it, take a fifth of the time of the tests."""
    if os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK):
        facts = os.statvfs(MEMORY)
        if facts.f_bavail * facts.f_frsize >= ROOM and not facts.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


neutralise()
keep_folders_in_memory()
