"""Loading of the tokenizers of a model folder, of any kind; foreign kinds are imported only if a folder has them."""

from collections.abc import Collection
from pathlib import Path

from seq2seq.text.tokenizer import (
    LANGUAGES_FILE,
    SOURCE_FILE,
    TARGET_FILE,
    TARGET_VOCABULARY_FILE,
    VOCABULARY_FILE,
    Tokenizer,
    TokenizerPair,
)


def load_tokenizers(folder: Path, files: Collection[str] | None = None) -> TokenizerPair:
    """Load the tokenizers of a model folder that holds `files`, which determine their kind and number.

    Raises:
        ModelError: a file is missing or damaged.
    """
    files = [path.name for path in folder.iterdir()] if files is None else files
    names = [SOURCE_FILE, TARGET_FILE] if TARGET_FILE in files else [SOURCE_FILE]
    sides = [Tokenizer.load(folder / name) for name in names]
    if VOCABULARY_FILE not in files and LANGUAGES_FILE in files:
        from seq2seq.text.tagged_tokenizer import read_languages, tagged_pair

        languages = read_languages(folder / LANGUAGES_FILE)
        return tagged_pair(sides[0].model_bytes, sides[-1].model_bytes, languages)
    if VOCABULARY_FILE not in files:
        return TokenizerPair(sides[0], sides[0] if sides[-1].model_bytes == sides[0].model_bytes else sides[-1])
    from seq2seq.text.marian_tokenizer import MarianTokenizer, MarianTokenizerPair, read_vocabulary

    if LANGUAGES_FILE in files:
        from seq2seq.text.multilingual_tokenizer import pair_of, read_tagging

        tagging = read_tagging(folder / LANGUAGES_FILE)
        return pair_of(sides[0].model_bytes, read_vocabulary(folder / VOCABULARY_FILE), tagging)
    own = TARGET_VOCABULARY_FILE if TARGET_VOCABULARY_FILE in files else VOCABULARY_FILE
    vocabularies = [read_vocabulary(folder / name) for name in (VOCABULARY_FILE, own)]
    source, *target = (MarianTokenizer(side.model_bytes, vocabularies[number]) for number, side in enumerate(sides))
    return MarianTokenizerPair(source, *(target or [source]))
