"""Folders of M2M-100, NLLB-200 (dense) and mBART, as transformers keeps them, read into our terms.

`model_folder.load_model` reads one wherever a model folder of ours is taken. These are pre-norm models with tied
embeddings that translate between many languages: a tag of the source language is in the source, and a tag of the target
language is what the decoder reads first.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2seq.config.description import ModelDescription
from seq2seq.errors import ModelError, shown
from seq2seq.files import DamagedFile, read_object
from seq2seq.interop.added_tokens import FAST_TOKENIZER, added_tokens, misplaced, unread
from seq2seq.interop.foreign_weights import open_weights
from seq2seq.interop.m2m_settings import LANGUAGE_CODES, M2M, MBART, TOKENIZERS, TokenizerKind
from seq2seq.interop.m2m_weights import fill
from seq2seq.interop.marian import CONFIG, GENERATION, MOST_TENSORS_NAMED, TOKENIZER, filled_vocabulary
from seq2seq.interop.marian_settings import own_search, read_model_config, read_search_config, special_ids
from seq2seq.interop.marian_weights import BIAS, TIED
from seq2seq.interop.model_licence import read_licence
from seq2seq.model.transformer import Transformer
from seq2seq.tensors import HeldTensors, SelectedRows, Uninitialized
from seq2seq.text.marian_tokenizer import EOS, PAD, UNK, VOCABULARY_FILE, read_vocabulary
from seq2seq.text.multilingual_tokenizer import BOS, MultilingualTokenizerPair, Tagging, pair_of
from seq2seq.text.tokenizer import Tokenizer

FAMILIES = {"m2m_100": M2M, "mbart": MBART}
# By `model_type`, what `s2s convert --from` calls a folder.
KINDS = {"m2m_100": "m2m100", "mbart": "mbart"}
# A key of ours in config.json: languages that transformers numbers, but whose rows are copies (`m2m_export`).
ABSENT = "absent_languages"
SEGMENTER = "sentencepiece.bpe.model"
MASK = "<mask>"
REMEDY = f"copy {FAST_TOKENIZER}, or a {TOKENIZER} with added_tokens_decoder, from the original model"


def read_m2m(
    folder: Path, torch_file: bool = False, with_weights: bool = True
) -> tuple[ModelDescription, MultilingualTokenizerPair, Transformer]:
    """Read a folder of one of these families in our terms; the model is float32.

    Args:
        folder: with config.json, model.safetensors, sentencepiece.bpe.model, of M2M-100 vocab.json, and where they are
            there generation_config.json, tokenizer_config.json, tokenizer.json and README.md.
        torch_file: as of `read_marian`.
        with_weights: whether to read the weights; without them the model is on the meta device.

    Raises:
        ModelError: a file is missing or damaged; or settings are not supported, all of which one message names.
    """
    problems: list[str] = []
    try:
        given = read_object(folder / CONFIG)
        generation = read_object(folder / GENERATION) if (folder / GENERATION).exists() else given
        named = read_object(folder / TOKENIZER) if (folder / TOKENIZER).exists() else {}
        stored = open_weights(folder, torch_file, KINDS[given["model_type"]])
        family = FAMILIES[given["model_type"]]
        tokenizers, rows = _tokenizers(folder, {**family.defaults, **given}, named, stored, problems)
        if given.get(ABSENT):
            stored = SelectedRows(stored, TIED, rows)
        config = read_model_config(given, BIAS in stored.shapes, problems, family)
        search = read_search_config(
            _without_tag(generation, tokenizers, rows, problems), special_ids(given, family), problems
        )
        if config and config.num_encoder_layers + config.num_decoder_layers > len(stored.shapes):
            problems.append(f"{CONFIG} describes a model far larger than the weights")
        if not problems and config and search and tokenizers:
            with Uninitialized("cpu" if with_weights else "meta"):
                model = Transformer(config, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
            of_tensors: list[str] = []
            if with_weights:
                fill(model, stored, of_tensors)
            problems += of_tensors[:MOST_TENSORS_NAMED]
            if len(of_tensors) > MOST_TENSORS_NAMED:
                problems.append(f"and {len(of_tensors) - MOST_TENSORS_NAMED} more tensors")
            if not problems:
                licence = read_licence(folder, given)
                return ModelDescription(model=config, search=search, license=licence), tokenizers, model
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}; copy the folder again") from error
    raise ModelError(f"{folder}: not a model that can be read: {'; '.join(problems)}")


def _tokenizers(
    folder: Path, given: Mapping[str, Any], named: Mapping[str, Any], stored: HeldTensors, problems: list[str]
) -> tuple[MultilingualTokenizerPair | None, list[int]]:
    """Return the tokenizers, and the rows of the weights for their ids: all but those of languages without a row of
    their own (`ABSENT`)."""
    kind = _kind(folder, given, named, problems)
    if not (folder / SEGMENTER).exists():
        problems.append(
            f"{SEGMENTER} is missing; copy it from the original model, because {FAST_TOKENIZER} is not read"
        )
    if kind is TOKENIZERS["M2M100Tokenizer"] and not (folder / VOCABULARY_FILE).exists():
        problems.append(
            f"{VOCABULARY_FILE} is missing; copy it from the original model, because it numbers the pieces of M2M-100"
        )
    if kind is None or problems:
        return None, []
    segmenter = Tokenizer.load(folder / SEGMENTER)
    pieces = _numbered(folder, segmenter)
    most_rows = max((shape[0] for shape in stored.shapes.values() if shape), default=0)
    added = added_tokens(folder, named, is_fast=kind is not TOKENIZERS["M2M100Tokenizer"])
    languages, is_listed = _add_languages(pieces, added, kind, named, problems)
    problems += unread(added, {BOS, PAD, EOS, UNK, MASK, *languages.values()}, "tags of languages")
    tags = {piece: id_ for piece, id_ in added.items() if piece in (*languages.values(), MASK)}
    problems += misplaced(tags, pieces, most_rows)
    absent = given.get(ABSENT, [])
    if not isinstance(absent, list) or not {*map(str, absent)} < languages.keys():
        problems.append(f"{ABSENT}: {shown(absent)} is not a list of some of the languages")
    if problems:
        return None, []
    pieces |= tags
    vocabulary = filled_vocabulary(pieces, given["vocab_size"], most_rows)
    without = {languages.pop(code) for code in dict.fromkeys(absent)}
    rows, left = [], sorted((id_, piece) for piece, id_ in vocabulary.items() if piece not in without)
    rows, vocabulary = [id_ for id_, _ in left], {piece: id_ for id_, (_, piece) in enumerate(left)}
    place = "last" if named.get("legacy_behaviour") is True else kind.source
    tagging = Tagging(languages, place, kind.target, (MASK, *sorted(vocabulary.keys() - pieces.keys())))
    try:
        pair = pair_of(segmenter.model_bytes, vocabulary, tagging)
    except ModelError as error:
        problems.append(str(error))
        return None, []
    hint = "" if is_listed else f" with the {len(languages)} usual languages, because the folder lists none; {REMEDY}"
    if (size := given["vocab_size"]) != (count := pair.source.vocab_size + len(without)):
        problems.append(f"vocab_size: {shown(size)}, but the vocabulary has {count} pieces{hint}")
    for key, id_ in (("pad_token_id", pair.source.pad_id), ("eos_token_id", pair.source.eos_id)):
        if given[key] not in (id_, [id_]):
            problems.append(f"{key}: {shown(given[key])} is not {id_}")
    tags = {rows[pair.target.vocabulary[piece]] for piece in languages.values()}
    start, starts = given["decoder_start_token_id"], [pair.target.eos_id] if kind.target == "second" else [None, *tags]
    if start not in starts:
        problems.append(f"decoder_start_token_id: {shown(start)} is not what this tokenizer has")
    return pair, rows


def _kind(
    folder: Path, given: Mapping[str, Any], named: Mapping[str, Any], problems: list[str]
) -> TokenizerKind | None:
    """Return the kind of tokenizer, by the name of its class, or else by what the folder holds."""
    name = named.get("tokenizer_class") or given.get("tokenizer_class")
    if name is None:
        is_first = given["decoder_start_token_id"] not in (2, [2])
        guessed = {"m2m_100": "NllbTokenizer", "mbart": "MBartTokenizer" if is_first else "MBart50Tokenizer"}
        name = "M2M100Tokenizer" if (folder / VOCABULARY_FILE).exists() else guessed[given["model_type"]]
    kind = TOKENIZERS.get(str(name).removesuffix("Fast"))
    fitting = [key for key in TOKENIZERS if key.startswith("MBart") == (given["model_type"] == "mbart")]
    if kind is None or str(name).removesuffix("Fast") not in fitting:
        problems.append(f"tokenizer_class: {shown(name)} (possible: {', '.join(fitting)})")
        return None
    return kind


def _numbered(folder: Path, segmenter: Tokenizer) -> dict[str, int]:
    """Return the ids of the pieces of text: those of `vocab.json`, or of SentencePiece shifted by one (fairseq)."""
    if (folder / VOCABULARY_FILE).exists():
        return read_vocabulary(folder / VOCABULARY_FILE)
    own = segmenter.pieces(range(segmenter.vocab_size))
    return {piece: id_ for id_, piece in enumerate([BOS, PAD, EOS, UNK, *own[3:]])}


def _add_languages(
    pieces: dict[str, int],
    added: Mapping[str, int],
    kind: TokenizerKind,
    named: Mapping[str, Any],
    problems: list[str],
) -> tuple[dict[str, str], bool]:
    """Return the tags by language, and whether the folder lists them all; else number the usual ones in `pieces`.

    Added tags are all of the languages if a usual one is among them. Otherwise they come in addition to the usual ones,
    which transformers numbers after the pieces of text.
    """
    listed = {found[1]: piece for piece in added if (found := kind.pattern.fullmatch(piece))}
    of_codes: list[str] = []
    usual = _usual(kind, named, of_codes)
    if listed and (of_codes or listed.keys() & usual.keys()):
        return listed, True
    problems += of_codes
    last = () if kind is TOKENIZERS["M2M100Tokenizer"] else (MASK,)
    pieces |= {piece: len(pieces) + place for place, piece in enumerate([*usual.values(), *last])}
    return {**usual, **listed}, False


def _usual(kind: TokenizerKind, named: Mapping[str, Any], problems: list[str]) -> dict[str, str]:
    """Return the tags of the usual languages of a kind, by language."""
    codes, name = kind.codes, named.get("language_codes")
    if codes in LANGUAGE_CODES.values() and name is not None:
        codes = LANGUAGE_CODES.get(str(name), "")
        if not codes:
            problems.append(f"language_codes: {shown(name)} is none of {', '.join(LANGUAGE_CODES)}; {REMEDY}")
    return {code: kind.piece.format(code) for code in codes.split()}


def _without_tag(
    generation: Mapping[str, Any],
    tokenizers: MultilingualTokenizerPair | None,
    rows: Sequence[int],
    problems: list[str],
) -> Mapping[str, Any]:
    """Return the settings of generation without the forced tag, which the direction of a translation decides.

    Settings have ids of the file (`rows`). Minimum lengths are one lower, because transformers counts the forced tag.
    """
    forced = generation.get("forced_bos_token_id")
    others = {key: value for key, value in generation.items() if key != "forced_bos_token_id"}
    if tokenizers is None:
        return others
    target = tokenizers.target
    if forced is not None and forced not in [rows[target.vocabulary[piece]] for piece in target.tags.values()]:
        problems.append(f"forced_bos_token_id: {shown(forced)} is not the tag of a language")
    if target.tagging.target == "first" or own_search(others) is not None:  # exports of earlier versions
        return others
    lengths = {key: value for key in ("min_length", "min_new_tokens") if type(value := others.get(key)) is int}
    return {**others, **{key: max(0, value - 1) for key, value in lengths.items()}}
