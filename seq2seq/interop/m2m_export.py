"""M2M-100 folders, which transformers loads with AutoTokenizer and M2M100ForConditionalGeneration; written by our code.

`workflows.convert` writes one. The tokenizer of transformers numbers its languages by a fixed list, after the pieces of
text, so all languages of that list get rows.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import ModelConfig
from seq2seq.errors import ModelError, some_of
from seq2seq.files import write_object
from seq2seq.interop.foreign_weights import WEIGHTS
from seq2seq.interop.m2m import ABSENT, SEGMENTER
from seq2seq.interop.m2m_settings import LANGUAGE_CODES, M2M, TOKENIZERS
from seq2seq.interop.m2m_weights import tensor_table
from seq2seq.interop.marian import CONFIG, GENERATION, TOKENIZER
from seq2seq.interop.marian_settings import SpecialIds, family_obstacles, generation_values, model_values
from seq2seq.interop.marian_weights import OUR_SOURCE, SHARED
from seq2seq.tensors import write_tensors
from seq2seq.text.marian_tokenizer import EOS, PAD, UNK, VOCABULARY_FILE
from seq2seq.text.multilingual_tokenizer import BOS, MultilingualTokenizer, MultilingualTokenizerPair
from seq2seq.text.tokenizer import TokenizerPair

NAME = "M2M100Tokenizer"
FIRST = (BOS, PAD, EOS, UNK)


def m2m_obstacles(config: ModelConfig, tokenizers: TokenizerPair) -> list[str]:
    """Return each reason why a model cannot be written as an M2M-100 folder; the list is empty if it can."""
    fixed = {**M2M.fixed, "tied_embeddings": "all", "output_bias": False}
    obstacles = list(family_obstacles(config, fixed, "M2M-100"))
    if not isinstance(tokenizers, MultilingualTokenizerPair):
        return [*obstacles, "a tokenizer without the language tags of M2M-100"]
    kind, tagging = TOKENIZERS[NAME], tokenizers.source.tagging
    if not all(kind.pattern.fullmatch(piece) for piece in tagging.pieces.values()):
        obstacles.append("the tokenizer of NLLB or mBART, which needs a tokenizer.json that is not written")
    elif (tagging.source, tagging.target) != (kind.source, kind.target):
        obstacles.append("tags in other places")
    elif others := [name for name in tagging.pieces if name not in _codes(tokenizers.source)]:
        obstacles.append(f"languages that {NAME} of transformers does not have: {some_of(others)}")
    return obstacles


def write_m2m(
    folder: Path, description: ModelDescription, tokenizers: TokenizerPair, weights: Mapping[str, Tensor]
) -> None:
    """Write an M2M-100 folder into `folder`, which must exist.

    `read_m2m` returns the weights of the model. Languages that it lacks have copies of the row of one that it has, and
    are listed in config.json (`ABSENT`). The copies take part in the softmax of transformers.

    Raises:
        ModelError: M2M-100 cannot express the model; the message names each obstacle.
    """
    config = description.model
    if obstacles := m2m_obstacles(config, tokenizers):
        raise ModelError(f"an M2M-100 folder cannot hold this model: {'; '.join(obstacles)}")
    assert isinstance(tokenizers, MultilingualTokenizerPair)
    reader = tokenizers.source
    text, tags = [*FIRST, *reader.generated_pieces()], _tags(reader)
    rows = _rows(reader, text, tags)
    ids = SpecialIds(pad=text.index(PAD), eos=text.index(EOS), start=text.index(EOS))
    values = model_values(config, len(rows), len(rows), ids)
    named = {"architectures": ["M2M100ForConditionalGeneration"], "model_type": "m2m_100", "bos_token_id": 0}
    if absent := absent_languages(reader):
        named[ABSENT] = absent
    write_object(
        folder / CONFIG, {key: value for key, value in {**values, **named}.items() if key != "decoder_vocab_size"}
    )
    generation = generation_values(config, description.search, ids)
    generation["min_length"] += bool(generation["min_length"])  # transformers counts the tag
    if (target := description.target_language) in reader.tags:
        generation["forced_bos_token_id"] = len(text) + tags.index(reader.tags[target])
    write_object(folder / GENERATION, generation)
    of_tokenizer = {
        "tokenizer_class": NAME,
        "language_codes": _list_of(reader),
        "extra_special_tokens": tags,
        "num_madeup_words": len(rows) - len(text) - len(tags),
        "src_lang": description.source_language,
        "tgt_lang": target,
        "model_max_length": config.max_length,
    }
    write_object(folder / TOKENIZER, of_tokenizer)
    theirs = {SHARED: weights[OUR_SOURCE][torch.tensor(rows)]}
    for our_name, names in tensor_table(config):
        theirs.update(zip(names, weights[our_name].chunk(len(names)), strict=True))
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in theirs.items()}
    write_tensors(folder / WEIGHTS, copies, metadata={"format": "pt"})
    (folder / SEGMENTER).write_bytes(reader.model_bytes)
    write_object(folder / VOCABULARY_FILE, {piece: id_ for id_, piece in enumerate(text)})


def absent_languages(reader: MultilingualTokenizer) -> list[str]:
    """Return the languages that transformers numbers, but the model lacks."""
    return [code for code in _codes(reader) if code not in reader.tags]


def _list_of(reader: MultilingualTokenizer) -> str:
    """Return the name of the shortest list of languages that has all of the tokenizer's, or of the longest."""
    names = sorted(LANGUAGE_CODES, key=lambda name: len(LANGUAGE_CODES[name]))
    return next((name for name in names if reader.tags.keys() <= set(LANGUAGE_CODES[name].split())), names[-1])


def _codes(reader: MultilingualTokenizer) -> list[str]:
    return LANGUAGE_CODES[_list_of(reader)].split()


def _tags(reader: MultilingualTokenizer) -> list[str]:
    return [TOKENIZERS[NAME].piece.format(code) for code in _codes(reader)]


def _rows(reader: MultilingualTokenizer, text: list[str], tags: list[str]) -> list[int]:
    """Return the id of the row for each of their ids."""
    known = reader.vocabulary
    any_tag = known[next(iter(reader.tags.values()))]
    unnamed = sorted({*known.values()} - {known[piece] for piece in [*text, *reader.tags.values()]})
    return [*(known[piece] for piece in text), *(known.get(tag, any_tag) for tag in tags), *unnamed]
