"""The architectures of transformers that are read, by `marian` and `m2m`."""

from collections.abc import Mapping
from typing import Any

# Their names, by `model_type` of config.json.
FOREIGN = {"marian": "Marian (OPUS-MT)", "m2m_100": "M2M-100 or NLLB", "mbart": "mBART"}
# By what `s2s convert --from` calls them.
KINDS = {"marian": "marian", "m2m100": "m2m_100", "nllb": "m2m_100", "mbart": "mbart"}


def is_foreign(info: Mapping[str, Any]) -> bool:
    """Whether the content of a config.json is that of a model of transformers that is read."""
    return info.get("model_type") in list(FOREIGN)
