"""Argos Translate packages (.argosmodel), which LibreTranslate serves: a zip of one folder with a CTranslate2 model.

`conversion` writes them. The folder holds `metadata.json`, `sentencepiece.model`, `README.md` and `model/`; sentences
are found by what Argos Translate brings along, since no model for that is packed.
"""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seq2seq.errors import ModelError
from seq2seq.text.marian_tokenizer import MarianTokenizer
from seq2seq.text.tokenizer import TokenizerPair

SUFFIX = ".argosmodel"
# Argos Translate adds what its own sentence splitting needs from this version on.
ARGOS_VERSION = "1.10"
# A package is named by what its users choose from.
LANGUAGE_NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian", "id": "Indonesian",
    "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "nb": "Norwegian",
    "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


@dataclass(frozen=True)
class ArgosLanguages:
    """From which language to which, by their two-letter codes."""

    source: str
    target: str

    @property
    def folder(self) -> str:
        """Of the package within the archive."""
        return f"translate-{self.source}_{self.target}-1_0"


def argos_obstacles(tokenizers: TokenizerPair) -> list[str]:
    """Each reason why an Argos package cannot hold a model; none where it can.

    Argos Translate encodes and decodes with one SentencePiece model, so the target's pieces have to be such that the
    source's model puts them together rightly: all but bytes that only the target knows.
    """
    source, target = tokenizers.source, tokenizers.target
    if source.model_bytes == target.model_bytes or isinstance(source, MarianTokenizer):
        return []
    known = set(source.pieces(range(source.vocab_size)))
    bytes_alone = [
        piece for piece in target.pieces(range(target.vocab_size)) if piece.startswith("<0x") and piece not in known
    ]
    return ["the target's vocabulary has bytes that the source's has not"] if bytes_alone else []


def write_argos(
    file: BinaryIO, converted: Path, tokenizers: TokenizerPair, languages: ArgosLanguages, files: tuple[str, ...]
) -> None:
    """Pack a CTranslate2 folder.

    Args:
        file: the .argosmodel file, open for writing.
        converted: a folder that `write_ctranslate2` wrote.
        tokenizers: of the model.
        languages: of the model.
        files: the files of `converted` that CTranslate2 itself reads.

    Raises:
        ModelError: the model does not fit the format; the message names each obstacle.
    """
    if obstacles := argos_obstacles(tokenizers):
        raise ModelError(f"an Argos package cannot hold this model: {'; '.join(obstacles)}")
    metadata = {
        "package_version": "1.0",
        "argos_version": ARGOS_VERSION,
        "from_code": languages.source,
        "from_name": LANGUAGE_NAMES.get(languages.source, languages.source),
        "to_code": languages.target,
        "to_name": LANGUAGE_NAMES.get(languages.target, languages.target),
        "type": "translate",
    }
    readme = f"# {metadata['from_name']} to {metadata['to_name']}\n\nA translation package for Argos Translate.\n"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{languages.folder}/metadata.json", json.dumps(metadata, indent=2, ensure_ascii=False))
        archive.writestr(f"{languages.folder}/README.md", readme)
        archive.writestr(f"{languages.folder}/sentencepiece.model", tokenizers.source.model_bytes)
        for name in files:
            archive.write(converted / name, f"{languages.folder}/model/{name}")
