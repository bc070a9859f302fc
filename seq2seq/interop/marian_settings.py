"""What `config.json` and `generation_config.json` of a Marian folder say, in our settings, and the other way round.

Every setting is honoured, or named in the list of problems; `interop.marian` collects all of them before it refuses.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from seq2seq.config import ModelConfig, SearchConfig
from seq2seq.config_problems import describe
from seq2seq.errors import shown

ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
NORM_EPSILON = 1e-5  # MarianConfig has no key for it

# What MarianConfig of transformers takes where a key is missing.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 58101, "d_model": 1024, "max_position_embeddings": 1024, "activation_function": "gelu",
    "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
    "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
    "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "scale_embedding": False, "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
    "pad_token_id": 58100, "eos_token_id": 0, "decoder_start_token_id": 58100, "forced_eos_token_id": 0,
}  # fmt: skip

# Keys of old and new folders for which there is one answer that this toolkit computes.
ONLY = {
    "is_encoder_decoder": True, "is_decoder": False, "static_position_embeddings": True, "normalize_before": False,
    "normalize_embedding": False, "add_final_layer_norm": False, "add_bias_logits": False,
    "encoder_layerdrop": 0, "decoder_layerdrop": 0,
}  # fmt: skip

# Settings of generation that change what comes out, and the value at which they do not.
NEUTRAL: dict[str, Any] = {
    "do_sample": False, "num_beam_groups": 1, "diversity_penalty": 0.0, "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "forced_bos_token_id": None,
    "suppress_tokens": None, "begin_suppress_tokens": None, "sequence_bias": None, "force_words_ids": None,
    "constraints": None, "penalty_alpha": None, "exponential_decay_length_penalty": None, "guidance_scale": None,
    "dola_layers": None, "token_healing": False, "stop_strings": None, "watermarking_config": None, "max_time": None,
}  # fmt: skip

# Where an export keeps the search settings that generation_config.json has no words for.
OWN_SEARCH = "seq2seq_search"


@dataclass(frozen=True)
class SpecialIds:
    """The target's special ids, by which a folder's settings name them."""

    pad: int
    eos: int
    start: int


def special_ids(given: Mapping[str, Any]) -> SpecialIds:
    """The ids that `config.json` names; one that is no whole number is -1, which no vocabulary has."""
    values = {**DEFAULTS, **given}
    names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    return SpecialIds(*(id_ if type(id_ := _only_one(values[name])) is int else -1 for name in names))


def read_model_config(given: Mapping[str, Any], has_bias: bool, problems: list[str]) -> ModelConfig | None:
    """The architecture that `config.json` describes; what is not possible is added to `problems`.

    Args:
        given: the content of config.json.
        has_bias: whether the weights hold `final_logits_bias`.
        problems: where problems go; None is returned when they leave no architecture to speak of.
    """
    values = {**DEFAULTS, **given}
    before = len(problems)
    problems += [
        f"{key}: {shown(given[key])} (only {value!r} is possible)"
        for key, value in ONLY.items()
        if given.get(key, value) is not None and given.get(key, value) != value
    ]
    for what in ("ffn_dim", "attention_heads"):
        encoder, decoder = values[f"encoder_{what}"], values[f"decoder_{what}"]
        if encoder != decoder:
            problems.append(f"encoder_{what} {shown(encoder)} and decoder_{what} {shown(decoder)} differ")
    if not isinstance(values["activation_function"], str) or values["activation_function"] not in ACTIVATIONS:
        possible = ", ".join(sorted(ACTIVATIONS))
        problems.append(f"activation_function: {shown(values['activation_function'])} (possible: {possible})")
    if _only_one(values["forced_eos_token_id"]) not in (None, _only_one(values["eos_token_id"])):
        problems.append(f"forced_eos_token_id: {shown(values['forced_eos_token_id'])} is not eos_token_id")
    try:
        return ModelConfig.model_validate(_model_values(values, has_bias)) if len(problems) == before else None
    except ValidationError as error:
        for problem in error.errors():
            problems.append(describe(problem).replace("config:", "model:", 1))
        return None


def _model_values(values: Mapping[str, Any], has_bias: bool) -> dict[str, Any]:
    tied = values["tie_word_embeddings"]
    return {
        "preset": None,
        "d_model": values["d_model"],
        "num_heads": values["encoder_attention_heads"],
        "num_encoder_layers": values["encoder_layers"],
        "num_decoder_layers": values["decoder_layers"],
        "d_ff": values["encoder_ffn_dim"],
        "activation": ACTIVATIONS[values["activation_function"]],
        "dropout": values["dropout"],
        "attention_dropout": values["attention_dropout"],
        "activation_dropout": values["activation_dropout"],
        "norm": "layer",
        "norm_position": "post",
        "norm_epsilon": NORM_EPSILON,
        "positions": "sinusoidal",
        "position_layout": "halves",
        "max_length": values["max_position_embeddings"],
        "tied_embeddings": "none" if not tied else "all" if values["share_encoder_decoder_embeddings"] else "decoder",
        "scale_embedding": values["scale_embedding"],
        "output_bias": has_bias,
    }


def read_search_config(given: Mapping[str, Any], ids: SpecialIds, problems: list[str]) -> SearchConfig | None:
    """The search that a folder asks for by default.

    The length limit is ours, in proportion to the source and within the positions of the model; `max_length` would only
    cut texts off. Without `early_stopping` our search ends a sentence a little earlier than that of transformers.

    Args:
        given: generation_config.json, or config.json where an old folder has no such file.
        ids: of the target.
        problems: where problems go.
    """
    stored = given.get(OWN_SEARCH)
    if isinstance(stored, Mapping):
        try:
            own = SearchConfig.model_validate(stored)
        except ValidationError:
            own = None
        if own is not None and all(given.get(key) == value for key, value in search_values(own).items()):
            return own
    before = len(problems)
    problems += [
        f"{key}: {shown(given[key])} (only {value!r} is possible)"
        for key, value in NEUTRAL.items()
        if given.get(key) is not None and given[key] != value
    ]
    allowed = ([ids.pad], [ids.start])
    unwanted = given.get("bad_words_ids") or []
    if bad := [words for words in unwanted if words not in allowed] if isinstance(unwanted, list) else unwanted:
        problems.append(f"bad_words_ids: {shown(bad)} (only padding and the start are kept from coming out)")
    if len(problems) > before:
        return None
    least = [_number(given, key, 0) for key in ("min_length", "min_new_tokens")]
    if not all(type(number) is int for number in least):
        problems.append("min_length or min_new_tokens is not a whole number")
        return None
    shortest = max(least[0] - 1, least[1], 0)
    try:
        return SearchConfig(
            beam_size=_number(given, "num_beams", 1),
            n_best=_number(given, "num_return_sequences", 1),
            length_penalty=_number(given, "length_penalty", 1.0),
            early_stopping=given.get("early_stopping") is True,
            no_repeat_ngram=_number(given, "no_repeat_ngram_size", 0),
            min_length=shortest,
            renormalize=given.get("renormalize_logits") is True,
        )
    except ValidationError as error:
        problems += [describe(problem) for problem in error.errors()]
        return None


def model_obstacles(config: ModelConfig) -> Iterator[str]:
    """Each reason why a Marian folder cannot hold a model."""
    if config.norm_position != "post":
        yield f"norm_position {config.norm_position} (Marian: post)"
    if config.norm != "layer":
        yield f"norm {config.norm} (Marian: layer)"
    if config.norm_epsilon != NORM_EPSILON:
        yield f"norm_epsilon {config.norm_epsilon} (Marian: {NORM_EPSILON})"
    if config.positions != "sinusoidal":
        yield f"positions {config.positions} (Marian: sinusoidal)"
    if config.activation not in ACTIVATIONS.values():
        yield f"activation {config.activation} (Marian: relu, gelu, silu)"
    if config.head_width * config.num_heads != config.d_model:
        yield f"head_dim {config.head_dim} (Marian: d_model / num_heads)"


def model_values(config: ModelConfig, source_size: int, target_size: int, ids: SpecialIds) -> dict[str, Any]:
    """`config.json` of a Marian folder for an architecture without obstacles."""
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": source_size,
        "decoder_vocab_size": target_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "activation_function": {"silu": "swish"}.get(config.activation, config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "max_position_embeddings": config.max_length,
        "scale_embedding": config.scale_embedding,
        "share_encoder_decoder_embeddings": config.tied_embeddings == "all",
        "tie_word_embeddings": config.tied_embeddings != "none",
        "static_position_embeddings": True,
        "is_encoder_decoder": True,
        "bos_token_id": None,
        "pad_token_id": ids.pad,
        "eos_token_id": ids.eos,
        "decoder_start_token_id": ids.start,
        "forced_eos_token_id": ids.eos,
        "dtype": "float32",
    }


def search_values(search: SearchConfig) -> dict[str, Any]:
    """The search settings that generation_config.json has words for."""
    values: dict[str, Any] = {
        "num_beams": 1 if search.sample else search.beam_size,
        "num_return_sequences": search.n_best,
        "length_penalty": search.length_penalty,
        "no_repeat_ngram_size": search.no_repeat_ngram,
        "min_length": search.min_length + 1 if search.min_length else 0,
        "renormalize_logits": search.renormalize,
        "do_sample": search.sample,
    }
    if search.sample:
        values |= {"temperature": search.temperature, "top_k": search.top_k, "top_p": search.top_p}
    else:
        values["early_stopping"] = search.early_stopping
    return values


def generation_values(config: ModelConfig, search: SearchConfig, ids: SpecialIds) -> dict[str, Any]:
    """`generation_config.json` of a Marian folder."""
    never = [[id_] for id_ in dict.fromkeys((ids.pad, ids.start)) if id_ != ids.eos]
    return {
        "bad_words_ids": never,
        "decoder_start_token_id": ids.start,
        "eos_token_id": ids.eos,
        "forced_eos_token_id": ids.eos,
        "pad_token_id": ids.pad,
        "max_length": config.max_length,
        **search_values(search),
        OWN_SEARCH: search.model_dump(mode="json"),
    }


def _only_one(value: Any) -> Any:
    """Some keys take an id or a list of ids."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _number(given: Mapping[str, Any], key: str, default: float) -> Any:
    return default if given.get(key) is None else given[key]
