"""Argos Translate packages (.argosmodel), which LibreTranslate serves: a zip file of one folder with a CTranslate2
model.

`workflows.convert` writes them. The folder contains `metadata.json`, `sentencepiece.model`, `README.md` and `model/`,
but no sentence splitter, so that Argos Translate uses its own.
"""

import json
import zipfile
from pathlib import Path
from typing import BinaryIO

from seq2seq.errors import ModelError
from seq2seq.interop.ctranslate2 import DESCRIPTION
from seq2seq.languages import ENGLISH_NAMES
from seq2seq.text.marian_tokenizer import MarianTokenizer
from seq2seq.text.tokenizer import SOURCE_FILE, TARGET_FILE, TARGET_VOCABULARY_FILE, VOCABULARY_FILE, TokenizerPair

SUFFIX = ".argosmodel"
# The first version of Argos Translate that splits sentences without a packed model.
ARGOS_VERSION = "1.10"
# Files that `write_ctranslate2` adds to those that CTranslate2 reads.
OURS = {DESCRIPTION, SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE, TARGET_VOCABULARY_FILE}


def argos_obstacles(tokenizers: TokenizerPair) -> list[str]:
    """Return each reason why an Argos package cannot hold a model; the list is empty if it can.

    Argos Translate encodes and decodes with one SentencePiece model, so the source's model must also join the
    target's pieces. It can do so, except for byte pieces that it lacks.
    """
    source, target = tokenizers.source, tokenizers.target
    if tokenizers.choices:  # also where users type the tag, as for groups of languages of OPUS-MT
        return ["Argos Translate has no tags of languages, which this model needs; export it with --to ctranslate2"]
    if source.model_bytes == target.model_bytes or isinstance(source, MarianTokenizer):
        return []
    if any(piece.startswith("<0x") for piece in target.vocabulary.keys() - source.vocabulary.keys()):
        return ["the target's vocabulary has bytes that the source's lacks"]
    return []


def write_argos(
    file: BinaryIO,
    converted: Path,
    tokenizers: TokenizerPair,
    languages: tuple[str, str],
    licence: str | None = None,
) -> None:
    """Pack a CTranslate2 folder into an Argos package.

    Args:
        file: the .argosmodel file, open for writing.
        converted: a folder that `write_ctranslate2` wrote.
        tokenizers: the tokenizers of the model.
        languages: language codes of source and target.
        licence: the licence of the model, for the README.md of the package.

    Raises:
        ModelError: the model does not fit the format; the message names each obstacle.
    """
    if obstacles := argos_obstacles(tokenizers):
        raise ModelError(f"an Argos package cannot hold this model: {'; '.join(obstacles)}")
    source, target = languages
    metadata = {
        "package_version": "1.0",
        "argos_version": ARGOS_VERSION,
        "from_code": source,
        "from_name": ENGLISH_NAMES.get(source, source),
        "to_code": target,
        "to_name": ENGLISH_NAMES.get(target, target),
        "type": "translate",
    }
    readme = f"# {metadata['from_name']} to {metadata['to_name']}\n\nA translation package for Argos Translate.\n"
    if licence:
        readme += f"\nLicence: {licence}.\n"
    root = f"translate-{source}_{target}-1_0"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{root}/metadata.json", json.dumps(metadata, indent=2, ensure_ascii=False))
        archive.writestr(f"{root}/README.md", readme)
        archive.writestr(f"{root}/sentencepiece.model", tokenizers.source.model_bytes)
        for path in sorted(converted.iterdir()):
            if path.name not in OURS:
                archive.write(path, f"{root}/model/{path.name}")
