"""Settings of a Marian folder, in `config.json` and `generation_config.json`, converted to ours and back.

The tables serve both directions. Every setting is honoured or reported as a problem; `interop.marian`, and with the
tables of another `Family` `interop.m2m`, collect all problems before they raise an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from seq2seq.config.problems import describe
from seq2seq.config.ranges import PIECES
from seq2seq.config.schema import ModelConfig, SearchConfig
from seq2seq.errors import shown

# Keys of config.json by our keys of `model`.
MODEL_KEYS = {
    "d_model": "d_model", "num_heads": "encoder_attention_heads", "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers", "d_ff": "encoder_ffn_dim", "dropout": "dropout",
    "attention_dropout": "attention_dropout", "activation_dropout": "activation_dropout",
    "max_length": "max_position_embeddings", "scale_embedding": "scale_embedding",
}  # fmt: skip
# What Marian models have and config.json has no key for.
FIXED = {
    "norm_position": "post", "norm": "layer", "norm_epsilon": 1e-5, "positions": "sinusoidal",
    "position_formula": "paper", "position_offset": 0, "embedding_norm": False,
}  # fmt: skip
ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
SIDES_AGREE = ("ffn_dim", "attention_heads")

# Defaults of MarianConfig of transformers for missing keys.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 58101, "d_model": 1024, "max_position_embeddings": 1024, "activation_function": "gelu",
    "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
    "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
    "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "scale_embedding": False, "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
    "pad_token_id": 58100, "eos_token_id": 0, "decoder_start_token_id": 58100, "forced_eos_token_id": 0,
}  # fmt: skip

# Keys of old and new folders of which this toolkit supports one value.
ONLY = {
    "is_encoder_decoder": True, "is_decoder": False, "static_position_embeddings": True, "normalize_before": False,
    "normalize_embedding": False, "add_final_layer_norm": False, "add_bias_logits": False,
    "encoder_layerdrop": 0, "decoder_layerdrop": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """The tables of one architecture of transformers."""

    defaults: Mapping[str, Any]
    """Values that its configuration takes if a key is missing."""
    fixed: Mapping[str, Any]
    """Our keys that its config.json has no key for."""
    only: Mapping[str, Any]
    """Its keys for which there is one answer that this toolkit computes."""


MARIAN = Family(DEFAULTS, {**FIXED, "position_layout": "halves"}, ONLY)

# Keys of generation_config.json by our keys of `search`.
SEARCH_KEYS = {
    "beam_size": "num_beams", "n_best": "num_return_sequences", "length_penalty": "length_penalty",
    "no_repeat_ngram": "no_repeat_ngram_size", "early_stopping": "early_stopping", "renormalize": "renormalize_logits",
}  # fmt: skip

NEVER = "never"  # a value of early_stopping

# Settings of generation that change the output, and the value at which they do not.
NEUTRAL: dict[str, Any] = {
    "do_sample": False, "num_beam_groups": 1, "diversity_penalty": 0.0, "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "forced_bos_token_id": None,
    "suppress_tokens": None, "begin_suppress_tokens": None, "sequence_bias": None, "force_words_ids": None,
    "constraints": None, "penalty_alpha": None, "exponential_decay_length_penalty": None, "guidance_scale": None,
    "dola_layers": None, "token_healing": False, "stop_strings": None, "watermarking_config": None, "max_time": None,
}  # fmt: skip

# Key under which an export stores the search settings that generation_config.json cannot express.
OWN_SEARCH = "seq2seq_search"


@dataclass(frozen=True)
class SpecialIds:
    """The special ids of the target, which a folder's settings refer to."""

    pad: int
    eos: int
    start: int


def special_ids(given: Mapping[str, Any], family: Family = MARIAN) -> SpecialIds:
    """Return the ids that `config.json` names; a value that is not an integer becomes -1, which no vocabulary has."""
    values = {**family.defaults, **given}
    names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    return SpecialIds(*(id_ if type(id_ := _only_one(values[name])) is int else -1 for name in names))


def read_model_config(
    given: Mapping[str, Any], has_bias: bool, problems: list[str], family: Family = MARIAN
) -> ModelConfig | None:
    """Return the architecture that `config.json` describes, or None if there are problems.

    Args:
        given: the content of config.json.
        has_bias: whether the weights hold `final_logits_bias`.
        problems: list to which problems are appended.
        family: tables of the architecture.
    """
    values = {**family.defaults, **given}
    before = len(problems)
    problems += _other_than(family.only, given)
    for what in SIDES_AGREE:
        encoder, decoder = values[f"encoder_{what}"], values[f"decoder_{what}"]
        if encoder != decoder:
            problems.append(f"encoder_{what} {shown(encoder)} and decoder_{what} {shown(decoder)} differ")
    activation, end = values["activation_function"], _only_one(values["forced_eos_token_id"])
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        problems.append(f"activation_function: {shown(activation)} (possible: {', '.join(sorted(ACTIVATIONS))})")
    if end not in (None, _only_one(values["eos_token_id"])):
        problems.append(f"forced_eos_token_id: {shown(end)} is not eos_token_id")
    if len(problems) > before:
        return None
    tied = "all" if values["share_encoder_decoder_embeddings"] else "decoder"
    ours = {
        **family.fixed,
        **{our_key: values[key] for our_key, key in MODEL_KEYS.items()},
        "preset": None,
        "activation": ACTIVATIONS[activation],
        "tied_embeddings": tied if values["tie_word_embeddings"] else "none",
        "output_bias": has_bias,
    }
    try:
        return ModelConfig.model_validate(ours)
    except ValidationError as error:
        problems += [_described(problem, MODEL_KEYS).replace("config:", "model:", 1) for problem in error.errors()]
        return None


def read_search_config(given: Mapping[str, Any], ids: SpecialIds, problems: list[str]) -> SearchConfig | None:
    """Return the default search settings of a folder, or None if there are problems.

    The length limit is ours, proportional to the source and within the positions of the model, because `max_length`
    would only truncate translations. Without `early_stopping`, our search runs `max_extra_steps` steps longer than that
    of transformers; `never` sets no limit on these steps.

    Args:
        given: generation_config.json, or config.json if an old folder has no such file.
        ids: the special ids of the target.
        problems: list to which problems are appended.
    """
    if (own := own_search(given)) is not None:
        return own
    before = len(problems)
    problems += _other_than(NEUTRAL, {key: value for key, value in given.items() if value not in ([], {})})
    unwanted = given.get("bad_words_ids") or []
    if not isinstance(unwanted, list) or any(words not in ([ids.pad], [ids.start]) for words in unwanted):
        problems.append(f"bad_words_ids: {shown(unwanted)} (only padding and the start can be suppressed)")
    least = [0 if given.get(key) is None else given[key] for key in ("min_length", "min_new_tokens")]
    if not all(type(number) is int for number in least):
        problems.append("min_length or min_new_tokens is not an integer")
    if len(problems) > before:
        return None
    found = {our_key: given[key] for our_key, key in SEARCH_KEYS.items() if given.get(key) is not None}
    ours = {
        "beam_size": 1,
        "length_penalty": 1.0,
        **found,
        **{key: found.get(key) is True for key in ("early_stopping", "renormalize")},
        "min_length": max(least[0] - 1, least[1], 0),
    }
    if (stopping := given.get("early_stopping")) == NEVER:
        ours["max_extra_steps"] = PIECES.most
    elif not isinstance(stopping, bool | None):
        problems.append(f"early_stopping: {shown(stopping)} (only true, false and {NEVER} are possible)")
        return None
    try:
        return SearchConfig.model_validate(ours)
    except ValidationError as error:
        problems += [_described(problem, SEARCH_KEYS) for problem in error.errors()]
        return None


def model_obstacles(config: ModelConfig) -> Iterator[str]:
    """Yield each reason why a Marian folder cannot hold a model."""
    yield from family_obstacles(config, FIXED, "Marian")


def family_obstacles(config: ModelConfig, fixed: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield each setting of a model that a family, whose `fixed` settings are these, cannot express."""
    for key, value in fixed.items():
        if key.startswith("position_") and config.positions != fixed["positions"]:
            continue  # a detail of the positions that the model does not have
        if getattr(config, key) != value:
            yield f"{key} {getattr(config, key)} ({name}: {value})"
    if config.activation not in ACTIVATIONS.values():
        yield f"activation {config.activation} ({name}: relu, gelu, silu)"
    if config.head_width * config.num_heads != config.d_model:
        yield f"head_dim {config.head_dim} ({name}: d_model / num_heads)"


def model_values(config: ModelConfig, source_size: int, target_size: int, ids: SpecialIds) -> dict[str, Any]:
    """Return `config.json` of a Marian folder, for an architecture without obstacles."""
    values = {key: getattr(config, our_key) for our_key, key in MODEL_KEYS.items()}
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": source_size,
        "decoder_vocab_size": target_size,
        **values,
        **{f"decoder_{what}": values[f"encoder_{what}"] for what in SIDES_AGREE},
        "activation_function": {"silu": "swish"}.get(config.activation, config.activation),
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "share_encoder_decoder_embeddings": config.tied_embeddings == "all",
        "tie_word_embeddings": config.tied_embeddings != "none",
        "static_position_embeddings": True,
        "is_encoder_decoder": True,
        "bos_token_id": None,
        **_id_values(ids),
        "dtype": "float32",
    }


def search_values(search: SearchConfig) -> dict[str, Any]:
    """Return the search settings that generation_config.json can express."""
    values: dict[str, Any] = {key: getattr(search, our_key) for our_key, key in SEARCH_KEYS.items()}
    if search.max_extra_steps == PIECES.most and not search.early_stopping:
        values["early_stopping"] = NEVER
    values |= {"min_length": search.min_length + 1 if search.min_length else 0, "do_sample": search.sample}
    if search.sample:
        del values["early_stopping"]
        sampling = {"temperature": search.temperature, "top_k": search.top_k, "top_p": search.top_p}
        values |= {"num_beams": 1, **sampling}
    return values


def generation_values(config: ModelConfig, search: SearchConfig, ids: SpecialIds) -> dict[str, Any]:
    """Return `generation_config.json` of a Marian folder."""
    return {
        "bad_words_ids": [[id_] for id_ in dict.fromkeys((ids.pad, ids.start)) if id_ != ids.eos],
        **_id_values(ids),
        "max_length": config.max_length,
        **search_values(search),
        OWN_SEARCH: search.model_dump(mode="json"),
    }


def _id_values(ids: SpecialIds) -> dict[str, int]:
    return {
        "pad_token_id": ids.pad,
        "eos_token_id": ids.eos,
        "decoder_start_token_id": ids.start,
        "forced_eos_token_id": ids.eos,
    }


def _described(problem: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    """Return one line for a problem with one of our keys, under the key that the folder has."""
    return describe({**problem, "loc": tuple(keys.get(str(part), part) for part in problem["loc"])})


def own_search(given: Mapping[str, Any]) -> SearchConfig | None:
    """Return the search settings that an export of this toolkit stored, unless the settings next to them were
    changed."""
    stored = given.get(OWN_SEARCH)
    try:
        own = SearchConfig.model_validate(stored) if isinstance(stored, Mapping) else None
    except ValidationError:
        return None
    return own if own and all(given.get(key) == value for key, value in search_values(own).items()) else None


def _other_than(only: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    return [
        f"{key}: {shown(given[key])} (only {shown(value)} is possible)"
        for key, value in only.items()
        if given.get(key) is not None and given[key] != value
    ]


def _only_one(value: Any) -> Any:
    """Return the id of a key that may hold an id or a list of one id; other values are returned unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
