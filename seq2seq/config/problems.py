"""pydantic's errors as lines for the user.

`file`, `store` and `interop` import it after a validation failed, of a configuration or of stored settings.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import Config
from seq2seq.config.values import Section
from seq2seq.errors import did_you_mean, shown

LONGEST_KEY = 120
# Similarity of names that differ in a letter, such as weight and weights; the same name in another section is less
# likely.
ALMOST = 0.9
# What a value must be, by the type of pydantic's error.
KINDS = {
    "string_type": "text", "bool_type": "true or false", "tuple_type": "a list, such as [a, b]",
    "dict_type": "keys with values, such as {key: value}", "model_type": "keys with values, such as {key: value}",
}  # fmt: skip

# Names of keys in other toolkits (fairseq, Marian, OpenNMT, JoeyNMT, Sockeye, transformers), by the key here.
SYNONYMS = {
    "training.learning_rate": "lr learn_rate peak_lr max_lr initial_learning_rate base_lr",
    "training.warmup_steps": "warmup warmup_updates lr_warmup num_warmup_steps learning_rate_warmup warmup_ratio",
    "training.schedule": "lr_scheduler lr_scheduler_type scheduler scheduling decay_method learning_rate_scheduler",
    "training.max_steps": "steps train_steps max_update max_updates updates num_steps total_steps after_batches",
    "training.max_epochs": "epochs num_epochs max_epoch num_train_epochs max_num_epochs after_epochs",
    "training.max_minutes": "minutes max_time max_hours stop_time_hours",
    "training.batch_tokens": "batch_size max_tokens tokens_per_batch mini_batch_words batch_type",
    "training.batch_sentences": "mini_batch sentences_per_batch per_device_train_batch_size train_batch_size",
    "training.accumulate": "accum_count update_freq gradient_accumulation_steps grad_accum batch_multiplier",
    "training.clip_norm": "clip grad_clip gradient_clip max_grad_norm clip_gradient gradient_clipping_threshold",
    "training.optimizer": "optim optimiser",
    "training.betas": "adam_betas beta1 beta2 adam_beta1 adam_beta2 optimizer_params",
    "training.epsilon": "eps adam_eps adam_epsilon",
    "training.weight_decay": "decay l2 wd",
    "training.label_smoothing": "smoothing label_smooth label_smoothing_factor",
    "training.precision": "fp16 bf16 amp half mixed_precision dtype model_dtype",
    "training.ema": "exponential_smoothing average_decay moving_average ema_decay",
    "training.best_metric": "metric_for_best_model early_stopping_metric best_checkpoint_metric optimized_metric",
    "training.patience": "early_stopping_patience max_num_checkpoint_not_improved",
    "training.validate_every": "valid_freq validation_freq eval_every eval_steps valid_steps eval_interval",
    "training.checkpoint_every": "save_every save_steps save_freq save_interval save_checkpoint_steps",
    "training.keep_last": "keep_checkpoint save_total_limit keep_last_ckpts keep_last_epochs",
    "training.log_every": "log_interval logging_steps logging_freq report_every disp_freq print_every",
    "training.trackers": "report_to loggers logger tensorboard tensorboard_dir wandb wandb_project mlflow use_wandb",
    "training.init_from": "train_from restore_file pretrained pretrained_model load_model finetune_from warm_start",
    "training.device": "gpu gpus use_cuda cuda cpu use_cpu gpu_ranks",
    "training.threads": "num_threads cpu_threads",
    "data.num_workers": "workers dataloader_num_workers",
    "seed": "random_seed manual_seed rng_seed",
    "source_language": "src_lang source_lang src_language from_lang",
    "target_language": "tgt_lang target_lang trg_lang tgt_language to_lang",
    "data.train": "train_data train_file train_sets train_path training_data",
    "data.valid": "dev validation valid_data val_data valid_sets dev_path val eval_data",
    "data.train.source": "src path_src train_src",
    "data.train.target": "tgt trg path_tgt train_tgt reference",
    "model.d_model": "hidden_size hidden_dim embed_dim embedding_dim dim_emb emb_dim model_dim rnn_size width",
    "model.num_heads": "heads nhead n_heads attention_heads transformer_heads num_attention_heads",
    "model.d_ff": "ffn ff_size ffn_dim dim_feedforward transformer_ff feed_forward transformer_dim_ffn",
    "model.num_encoder_layers": "enc_layers encoder_layers enc_depth num_layers layers n_layers",
    "model.num_decoder_layers": "dec_layers decoder_layers dec_depth",
    "model.dropout": "drop dropout_rate hidden_dropout transformer_dropout",
    "model.attention_dropout": "attn_dropout attention_probs_dropout_prob transformer_dropout_attention",
    "model.activation_dropout": "relu_dropout transformer_dropout_ffn",
    "model.tied_embeddings": "tie_embeddings tie_weights share_decoder_embeddings share_embeddings tied_embeddings_all",
    "model.max_length": "max_position_embeddings max_positions max_seq_len max_sequence_length",
    "model.norm_position": "pre_norm layer_norm norm_first encoder_normalize_before normalize_before",
    "tokenizer.vocab_size": "vocab vocabulary bpe_size num_merges dim_vocabs num_words voc_limit src_vocab_size",
    "tokenizer.shared": "joined_dictionary share_vocab joint_vocab shared_vocab",
    "tokenizer.kind": "model_type algorithm bpe",
    "search.beam_size": "beam num_beams beam_width",
    "search.length_penalty": "lenpen alpha beam_alpha normalize length_penalty_alpha",
    "search.n_best": "nbest num_return_sequences",
    "search.no_repeat_ngram": "no_repeat_ngram_size block_ngram_repeat",
    "search.max_length_ratio": "max_len_a max_output_length max_new_tokens max_length_factor",
}  # fmt: skip
# What a command does and no key, by the names that such keys have in other toolkits.
COMMANDS = {
    "s2s average writes the mean of checkpoints, s2s tune -o chooses the best mean": (
        "average average_count average_checkpoints avg_checkpoints num_average_checkpoints checkpoint_average_count"
    ),
}
_KEYS_OF = {name: key for key, names in SYNONYMS.items() for name in names.split()}
_COMMANDS_OF = {name: command for command, names in COMMANDS.items() for name in names.split()}


def describe(problem: Mapping[str, Any]) -> str:
    """Return one line for a pydantic problem: the path of the key, what is wrong, and what is expected."""
    location = problem["loc"]
    if location[-1:] == ("[key]",) and problem["type"] != "extra_forbidden":  # pydantic's word for a key that is wrong
        location = location[:-1]
    key = _cut(".".join(part if isinstance(part, str) else shown(part) for part in location)) or "config"
    value = problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            return f"{key}: unknown key{_meant(str(location[-1]), location[:-1])}"
        case "missing" if isinstance(location[-1], int):
            return f"{key.rpartition('.')[0]}: has too few values"
        case "missing" if key == "data.valid":
            return f"{key}: missing; take lines out of train (head -n 500 FILE for it, tail -n +501 FILE for train)"
        case "missing" if key.startswith("data.stages."):
            return f"{key}: missing; name the sources that the stage sees, such as {{genuine: 1}}"
        case "missing":
            return f"{key}: missing; this key has no default"
        case "literal_error":
            expected = problem["ctx"]["expected"].replace(" or ", ", ").replace("'", "").lower()
            hint = did_you_mean(str(value)[:LONGEST_KEY], expected.split(", "))
            return f"{key}: {shown(value)} is not one of {expected}{hint}"
        case "value_error":
            return f"{key}: {problem['ctx']['error']}"
        case "model_type" if problem["ctx"]["class_name"] == SourceConfig.__name__:
            a_list = ", or a list" * (key == "data.train")
            return f"{key}: must be a source, such as {{tsv: FILE}}{a_list}, not {shown(value)}"
        case "too_long":
            return f"{key}: has too many values"
        case kind if kind == "invalid_key" or location != problem["loc"]:
            section = _cut(".".join(map(str, location[:-1]))) or "config"
            return f"{section}: the key {shown(value)} must be text; put it in quotes"
        case "string_type" if isinstance(value, int | float):
            return f"{key}: must be text, not {shown(value)}; put it in quotes"
        case kind:
            return f"{key}: must be {KINDS.get(kind, 'of another kind')}, not {shown(value)}"


def _cut(key: str) -> str:
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}..."


def _meant(name: str, location: Sequence[Any]) -> str:
    """Return a suggestion for the unknown key `name` of the section at `location`, to append to a message."""
    here: type[Section] = Config
    for part in location:
        if field := here.model_fields.get(part):
            here = next(_sections(field.annotation), here)
    if ":" in name and name.partition(":")[0] in here.model_fields:
        return "; a space after the colon is missing"
    if command := _COMMANDS_OF.get(name):
        return f"; {command}"
    keys = [path for path in _all_keys(Config) if path.rpartition(".")[2] == name]
    if key := _KEYS_OF.get(name.lower().replace("-", "_")):
        section, _, own = key.rpartition(".")
        keys = [own] if section == ".".join(map(str, location)) else [key, *keys]
    elif almost := did_you_mean(name, _names(here), ALMOST):
        return almost
    elsewhere = [f"'{key}'" for key in keys]
    return f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else did_you_mean(name, _names(here))


def _all_keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in zip(_names(section), section.model_fields.values(), strict=True):
        yield f"{prefix}{name}"
        if get_origin(field.annotation) not in (tuple, dict) and (section := next(_sections(field.annotation), None)):
            yield from _all_keys(section, f"{prefix}{name}.")


def _names(section: type[Section]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _sections(annotation: Any) -> Iterator[type[Section]]:
    """Yield the sections in an annotation, such as that of a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)
