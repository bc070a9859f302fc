"""Models of the Hugging Face hub: a MODEL that is not a local folder may be `owner/name` on the hub.

`store.finding` fetches them, the second time from the hub's own cache; `config.values` checks whether a name can be
one.
"""

import os
import re
from pathlib import Path

from seq2seq.errors import ModelError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
PATTERNS = ("*.json", "*.safetensors", "*.spm", "sentencepiece.bpe.model", "README.md")
TORCH_FILES = ("pytorch_model.bin", "pytorch_model-*.bin")  # whole, or in parts with a JSON index
REASONS = {
    "RepositoryNotFoundError": "no model has this name, or it is not public",
    "GatedRepoError": "it requires a login; run `hf auth login`",
    **dict.fromkeys(("LocalEntryNotFoundError", "ConnectError", "ConnectionError", "ConnectTimeout"), "no network?"),
}


def is_hub_name(name: str | Path) -> bool:
    """Whether a path can mean `owner/name`: it does not exist, and its first part is not a local folder."""
    text = Path(name).as_posix()
    return bool(NAME.fullmatch(text)) and not Path(text).exists() and not Path(text.split("/")[0]).is_dir()


def fetch_model(name: str | Path, torch_file: bool = False) -> Path:
    """Download a model of the hub, or find it in the cache, and return its folder; with `torch_file`, include
    `pytorch_model.bin` or its parts.

    Raises:
        ModelError: the model does not exist, is not accessible, or cannot be downloaded.
    """
    import huggingface_hub

    name = Path(name).as_posix()
    try:
        patterns = [*PATTERNS, *TORCH_FILES] if torch_file else list(PATTERNS)
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # a dozen kinds, from the network, the server and the cache
        reason = REASONS.get(type(error).__name__, "the download failed; try again later")
        if os.environ.get("HF_HUB_OFFLINE"):
            reason = "HF_HUB_OFFLINE is set; unset it to download"
        raise ModelError(
            f"{name}: no such folder, and it could not be downloaded from the Hugging Face hub ({reason})"
        ) from error
