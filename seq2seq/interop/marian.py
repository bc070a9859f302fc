"""Marian folders, the form in which transformers stores OPUS-MT models: read and written by our own code.

`model_folder.load_model` reads one wherever a model folder of ours is taken; `workflows.convert` writes one. A Marian
model is post-norm with sinusoidal positions, and its decoder starts from padding.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import ModelConfig
from seq2seq.errors import ModelError, shown
from seq2seq.files import DamagedFile, read_object, write_object
from seq2seq.interop.added_tokens import added_tokens, misplaced, unread
from seq2seq.interop.foreign_weights import WEIGHTS, stored_weights
from seq2seq.interop.marian_settings import (
    DEFAULTS,
    SpecialIds,
    generation_values,
    model_obstacles,
    model_values,
    read_model_config,
    read_search_config,
    special_ids,
)
from seq2seq.interop.marian_weights import BIAS, from_marian, to_marian
from seq2seq.interop.model_licence import read_licence
from seq2seq.lines import UNWRITABLE
from seq2seq.model.transformer import Transformer
from seq2seq.tensors import as_weights, misfit, write_tensors
from seq2seq.text.marian_tokenizer import (
    EOS,
    PAD,
    TAG,
    TARGET_VOCABULARY_FILE,
    UNK,
    UNUSED,
    VOCABULARY_FILE,
    MarianTokenizer,
    MarianTokenizerPair,
    read_vocabulary,
)
from seq2seq.text.tokenizer import SOURCE_FILE, TARGET_FILE, Tokenizer, TokenizerPair

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
# Maximum number of tensors named in a message, because they resemble each other; unsupported settings are all named.
MOST_TENSORS_NAMED = 5


def read_marian(folder: Path, torch_file: bool = False) -> tuple[ModelDescription, TokenizerPair, dict[str, Tensor]]:
    """Read a Marian folder; the weights are float32, under our names, and tied ones occur once.

    Args:
        folder: a folder with config.json, model.safetensors, source.spm, target.spm, vocab.json, and optionally
            target_vocab.json, generation_config.json, tokenizer_config.json and README.md.
        torch_file: read `pytorch_model.bin` if there are no safetensors, with torch's `weights_only` reader, which
            runs no code.

    Raises:
        ModelError: a file is missing or damaged, or settings are not supported; one message names all of them.
    """
    try:
        given = read_object(folder / CONFIG)
        generation = read_object(folder / GENERATION) if (folder / GENERATION).exists() else given
        named = read_object(folder / TOKENIZER) if (folder / TOKENIZER).exists() else {}
        added = added_tokens(folder, named, is_fast=False)
        stored = as_weights(stored_weights(folder, torch_file))
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}; copy the folder again") from error
    problems: list[str] = []
    ids = special_ids(given)
    most_rows = max((len(tensor) for tensor in stored.values() if tensor.dim()), default=0)
    tokenizers = _tokenizers(folder, {**DEFAULTS, **given}, named, added, most_rows, problems)
    config = read_model_config(given, BIAS in stored, problems)
    search = read_search_config(generation, ids, problems)
    weights: dict[str, Tensor] = {}
    if config and config.num_encoder_layers + config.num_decoder_layers > len(stored):
        problems.append(f"{CONFIG} describes a model far larger than the weights")
    elif config:
        of_tensors: list[str] = []
        weights = from_marian(stored, config, of_tensors)
        problems += of_tensors[:MOST_TENSORS_NAMED]
        if len(of_tensors) > MOST_TENSORS_NAMED:
            problems.append(f"and {len(of_tensors) - MOST_TENSORS_NAMED} more tensors")
    if config and tokenizers and not problems:
        sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
        if config.tied_embeddings == "all" and sizes[0] != sizes[1]:
            problems.append("share_encoder_decoder_embeddings with two vocabularies of different size")
        elif problem := misfit(lambda: Transformer(config, *sizes), weights):
            problems.append(problem)
    if problems or config is None or search is None or tokenizers is None:
        raise ModelError(f"{folder}: not a Marian model that can be read: {'; '.join(problems)}")
    source, target = (_text(named.get(key)) for key in ("source_lang", "target_lang"))
    description = ModelDescription(
        source_language=source,
        target_language=target,
        model=config,
        search=search,
        license=read_licence(folder, given),
    )
    return description, tokenizers, weights


def marian_obstacles(config: ModelConfig, tokenizers: TokenizerPair) -> list[str]:
    """Return each reason why a model cannot be written as a Marian folder; the list is empty if it can."""
    obstacles = list(model_obstacles(config))
    if config.tied_embeddings == "all" and not tokenizers.shared:
        obstacles.append("tied_embeddings all with two vocabularies")
    if tokenizers.num_tags != (0, 0):
        obstacles.append("tags of languages; export it with --to ctranslate2")
    if tokenizers.target.pad_id >= tokenizers.source.vocab_size:
        obstacles.append("the source vocabulary is so small that it does not contain the target's padding id")
    sides = (tokenizers.source, tokenizers.target)
    if any(side.pieces([side.eos_id, side.unk_id, side.pad_id]) != [EOS, UNK, PAD] for side in sides):
        obstacles.append(f"special pieces that are not {EOS}, {UNK} and {PAD}")
    return obstacles


def write_marian(
    folder: Path, description: ModelDescription, tokenizers: TokenizerPair, weights: Mapping[str, Tensor]
) -> None:
    """Write a Marian folder into `folder`, which must exist; transformers loads it with AutoTokenizer and
    MarianMTModel.

    `read_marian` returns what was written, with one exception: Marian has no interleaved sinusoids, so the dimensions
    of the states of such models are in another order, which computes the same.

    Raises:
        ModelError: Marian cannot express the model; the message names each obstacle.
    """
    config, source, target = description.model, tokenizers.source, tokenizers.target
    if obstacles := marian_obstacles(config, tokenizers):
        raise ModelError(f"a Marian folder cannot hold this model: {'; '.join(obstacles)}")
    ids = _ids_of(target)
    write_object(folder / CONFIG, model_values(config, source.vocab_size, target.vocab_size, ids))
    write_object(folder / GENERATION, generation_values(config, description.search, ids))
    of_tokenizers = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": description.source_language,
        "target_lang": description.target_language,
        "unk_token": UNK,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": config.max_length,
        "separate_vocabs": not tokenizers.shared,
    }
    write_object(folder / TOKENIZER, of_tokenizers)
    write_tensors(folder / WEIGHTS, to_marian(weights, config), metadata={"format": "pt"})
    (folder / SOURCE_FILE).write_bytes(source.model_bytes)
    (folder / TARGET_FILE).write_bytes(target.model_bytes)
    write_object(folder / VOCABULARY_FILE, source.vocabulary)
    if not tokenizers.shared:
        write_object(folder / TARGET_VOCABULARY_FILE, target.vocabulary)


def _tokenizers(
    folder: Path,
    given: Mapping[str, Any],
    named: Mapping[str, Any],
    added: Mapping[str, int],
    most_rows: int,
    problems: list[str],
) -> TokenizerPair | None:
    """Return the tokenizers, with as many ids as the weights have rows; plain ones if the ids are SentencePiece's
    own."""
    ids = special_ids(given)
    sizes = given["vocab_size"], given.get("decoder_vocab_size") or given["vocab_size"]
    separate = bool(named.get("separate_vocabs", (folder / TARGET_VOCABULARY_FILE).exists()))
    plain = [Tokenizer.load(folder / name) for name in (SOURCE_FILE, TARGET_FILE)]
    source = read_vocabulary(folder / VOCABULARY_FILE)
    tags = {piece: id_ for piece, id_ in added.items() if TAG.fullmatch(piece)}
    problems += unread(added, {EOS, UNK, PAD, *tags}, "tags such as >>deu<<") or misplaced(tags, source, most_rows)
    source |= tags
    vocabularies = [source, read_vocabulary(folder / TARGET_VOCABULARY_FILE) if separate else source]
    if [side.vocabulary for side in plain] == vocabularies and ids == _ids_of(plain[1]):
        return TokenizerPair(plain[0], plain[0] if plain[0].model_bytes == plain[1].model_bytes else plain[1])
    try:
        pair = MarianTokenizerPair(
            *(
                MarianTokenizer(side.model_bytes, filled_vocabulary(vocabulary, size, most_rows))
                for side, vocabulary, size in zip(plain, vocabularies, sizes, strict=True)
            )
        )
    except ModelError as error:
        problems.append(str(error))
        return None
    named_sizes = zip(("vocab_size", "decoder_vocab_size"), sizes, (pair.source, pair.target), strict=True)
    problems += [
        f"{key}: {shown(size)}, but the vocabulary has {side.vocab_size} pieces"
        for key, size, side in named_sizes
        if size != side.vocab_size
    ]
    named_ids = (("pad_token_id", PAD, "pad"), ("eos_token_id", EOS, "eos"), ("decoder_start_token_id", PAD, "start"))
    expected = _ids_of(pair.target)
    problems += [
        f"{key}: {getattr(ids, name)} is not {piece}, which is {getattr(expected, name)}"
        for key, piece, name in named_ids
        if getattr(ids, name) != getattr(expected, name)
    ]
    return pair


def _ids_of(target: Tokenizer | MarianTokenizer) -> SpecialIds:
    return SpecialIds(target.pad_id, target.eos_id, target.start_id)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value and not UNWRITABLE.search(value) else None


def filled_vocabulary(vocabulary: Mapping[str, int], size: Any, most_rows: int) -> dict[str, int]:
    """Return a vocabulary with a name for each row of the weights, whose number may be padded to a round number."""
    named = set(vocabulary.values())
    ids = range(size) if isinstance(size, int) and size <= most_rows else ()
    return {**vocabulary, **{UNUSED.format(id_): id_ for id_ in ids if id_ not in named}}
