"""CTranslate2 folders that this toolkit wrote, read without torch; `ctranslate2_export` writes them."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seq2seq.config.description import ModelDescription
from seq2seq.config.values import unwritable
from seq2seq.errors import ModelError, reason
from seq2seq.files import DamagedFile, read_object, verify
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tokenizer import TokenizerPair

WEIGHTS, DESCRIPTION = "model.bin", "seq2seq.json"
FORMAT = "seq2seq ctranslate2"


class Obstacles(ModelError):
    """CTranslate2 cannot run a model."""


def package() -> Any:
    """Import and return CTranslate2, whose name this module shares; its `specs`, which import torch, are imported on
    first access.

    Its log level is set to errors, because its warnings do not follow the format of our logs.
    """
    import ctranslate2

    ctranslate2.set_log_level(logging.ERROR)
    return ctranslate2


def is_ctranslate2(folder: Path) -> bool:
    """Whether a folder is one that `write_ctranslate2` wrote."""
    return (folder / DESCRIPTION).is_file() and (folder / WEIGHTS).is_file()


def source_end(tokenizers: TokenizerPair) -> list[str]:
    """Return the pieces at the end of sources that CTranslate2 does not add."""
    return tokenizers.source.pieces(tokenizers.source.end_ids) if tokenizers.needs_direction else []


def num_own_starts(tokenizers: TokenizerPair) -> int:
    """Return the number of ids at the start of the decoder that CTranslate2 adds; the others are a prefix."""
    return 0 if tokenizers.starts_with_tag else 1


def read_description(folder: Path) -> tuple[ModelDescription, TokenizerPair, str]:
    """Read what `write_ctranslate2` wrote next to CTranslate2's own files, after verifying all files: the description
    of the model, its tokenizers, and the number format of its weights.

    Raises:
        ModelError: a file is missing or damaged.
    """
    try:
        values = read_object(folder / DESCRIPTION)
        if bad := next(unwritable(values), None):
            raise DamagedFile(f"{DESCRIPTION}: {bad}")
        if values.get("format") != FORMAT:
            raise DamagedFile(f"{DESCRIPTION} has no 'format': '{FORMAT}'")
        files = values["files"]
        with ThreadPoolExecutor(1) as pool:  # the checksum of large weights takes as long as loading the tokenizers
            verified = pool.submit(verify, folder / WEIGHTS, files[WEIGHTS])
            for name in (name for name in files if name != WEIGHTS):
                verify(folder / Path(name).name, files[name])
            description, tokenizers = ModelDescription.model_validate(values), load_tokenizers(folder, files)
            verified.result()
        return description, tokenizers, str(values["quantization"])
    except ValidationError as error:
        from seq2seq.config.problems import describe

        problem = describe(error.errors()[0])
        raise ModelError(f"{folder}: damaged CTranslate2 folder ({problem}); convert the model again") from error
    except (DamagedFile, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder}: damaged CTranslate2 folder ({reason(error)}); convert the model again") from error
