"""Models of the Hugging Face hub, by name: a MODEL that is no folder here may be `owner/name` there.

`model_folder` fetches them; `config_file` asks whether a name could be one. What was fetched once is taken from the
hub's own cache, also without a network.
"""

import os
import re
from pathlib import Path

from seq2seq.errors import ModelError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
PATTERNS = ("*.json", "*.safetensors", "*.spm", "README.md")
TORCH_FILE = "pytorch_model.bin"
REASONS = {
    "RepositoryNotFoundError": "there is none of this name, or it is not public",
    "GatedRepoError": "it asks for a login; run `hf auth login`",
    **dict.fromkeys(("LocalEntryNotFoundError", "ConnectError", "ConnectionError", "ConnectTimeout"), "no network?"),
}


def is_hub_name(name: str | Path) -> bool:
    """Whether a path that does not exist can be meant as `owner/name`: its first part is no folder here."""
    text = Path(name).as_posix()
    return bool(NAME.fullmatch(text)) and not Path(text).exists() and not Path(text.split("/")[0]).is_dir()


def fetch_model(name: str | Path, torch_file: bool = False) -> Path:
    """The folder of a model of the hub, fetched or from the cache; with `torch_file` `pytorch_model.bin` too.

    Raises:
        ModelError: there is no network, or no such model; one line.
    """
    import huggingface_hub

    name = Path(name).as_posix()
    try:
        patterns = [*PATTERNS, TORCH_FILE] if torch_file else list(PATTERNS)
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # a dozen kinds, from the network, the server and the cache
        raise ModelError(
            f"{name}: no such folder, and it could not be downloaded from the Hugging Face hub ({_reason(error)})"
        ) from error


def _reason(error: Exception) -> str:
    if os.environ.get("HF_HUB_OFFLINE"):
        return "HF_HUB_OFFLINE is set; unset it to download"
    kind = type(error).__name__
    return REASONS.get(kind, f"{kind}; try again later")
