"""Every setting of a run: typed, documented, strict.

Each class is one section of the YAML file that `file` reads; the part of the toolkit that a section describes
receives that section alone. The text under a field is its documentation.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from seq2seq.config import ranges
from seq2seq.config.corpora import DataConfig, SourceConfig
from seq2seq.config.directions import LanguagesConfig, Sides
from seq2seq.config.presets import PRESETS, TRAINING_PRESETS
from seq2seq.config.ranges import Range
from seq2seq.config.values import (
    ModelPath,
    NonNegative,
    Piece,
    Positive,
    PresetSection,
    Probability,
    Section,
    check_size,
    one_or_more,
    without,
)


class TokenizerConfig(Section):
    """The SentencePiece model that is trained on the training text."""

    init_from: ModelPath | None = None
    """Model or run folder whose tokenizers are used, such as the teacher of a student; by default new ones are
    trained."""
    kind: Literal["unigram", "bpe"] = "unigram"
    """Algorithm (Kudo 2018; Sennrich et al. 2016)."""
    vocab_size: Annotated[int, Range(64, 10**6)] = 8000
    """Pieces, with special ids and bytes; reduced with a warning when the corpus is too small."""
    shared: bool = True
    """One vocabulary for both languages."""
    byte_fallback: bool = True
    """Encode unknown characters as bytes, so that decoding gives back any text."""
    character_coverage: Annotated[float, Range(0.98, 1.0)] = 0.9995
    """Share of the characters of the training text that the pieces cover."""
    normalization: Literal["identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf"] = "identity"
    """SentencePiece's rule; with anything but identity decoding may change the text."""
    extra_pieces: Annotated[tuple[Piece, ...], Field(strict=False)] = ()
    """Pieces that are kept whole wherever they occur, such as the tag of `s2s augment --tag`."""
    sample_lines: Positive = 2_000_000
    """Lines, sampled evenly from the corpus, that the tokenizer is trained on."""
    sampling: Probability = 0.0
    """Share of training sentences that are segmented at random (subword regularization, Kudo 2018)."""
    sampling_nbest: Annotated[int, Range(2, 512)] = 16
    """Number of best segmentations from which one is drawn. With a unigram model, up to 16 are stored with the corpus
    (1.3 kB for a pair of captions); more are listed for each batch, which is slow."""
    sampling_alpha: Annotated[float, Range(1e-6, 1000.0)] = 0.2
    """Unigram: inverse temperature of the draw, near 0 uniform; bpe: probability of skipping a merge."""


class ModelConfig(PresetSection):
    """The Transformer: a preset, and every size of it."""

    presets = PRESETS
    preset: Literal["tiny", "small", "student", "base", "big", "marian"] | None = "small"
    """Sizes to start from; written keys win."""
    d_model: Annotated[int, ranges.WIDTH] = 256
    num_heads: Annotated[int, ranges.HEADS] = 4
    head_dim: Annotated[int, ranges.WIDTH] | None = None
    """Width of a head; default d_model / num_heads."""
    num_encoder_layers: Annotated[int, ranges.LAYERS] = 3
    num_decoder_layers: Annotated[int, ranges.LAYERS] = 3
    d_ff: Annotated[int, ranges.INNER_WIDTH] = 1024
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    dropout: Probability = 0.1
    """On embeddings and on the output of every sub-layer."""
    attention_dropout: Probability = 0.0
    """On attention weights."""
    activation_dropout: Probability = 0.0
    """Inside the feed-forward layer."""
    word_dropout: Probability = 0.0
    """Share of token embeddings set to zero in training, on both sides."""
    norm: Literal["layer", "rms"] = "layer"
    norm_position: Literal["pre", "post"] = "pre"
    norm_epsilon: Annotated[float, ranges.EPSILON] = 1e-5
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    position_layout: Literal["interleaved", "halves"] = "interleaved"
    """Sinusoids: sines and cosines alternate (the paper), or all sines precede all cosines (Marian)."""
    position_formula: Literal["paper", "fairseq"] = "paper"
    """Sinusoids: frequency i is 10000^(-2i / d_model) (the paper), or 10000^(-i / (d_model/2 - 1)) (M2M-100, NLLB)."""
    position_offset: Annotated[int, Range(0, 1024)] = 0
    """Sinusoids: number of the first position; 2 in M2M-100 and NLLB."""
    max_length: Annotated[int, ranges.LENGTH] = 1024
    """Maximum length of a sequence, special ids included."""
    tied_embeddings: Literal["none", "decoder", "all"] = "all"
    """Share the decoder's embedding with the output layer, or with the encoder too (Press and Wolf 2017)."""
    scale_embedding: bool = True
    """Multiply embeddings by sqrt(d_model)."""
    embedding_norm: bool = False
    """Normalise the sum of embeddings and positions, as mBART does."""
    output_bias: bool = False
    """Add a bias to the logits."""
    initialization: Literal["glorot", "mimetic"] = "glorot"
    """Random weights, or attention weights that imitate those of trained models, which learn sooner."""

    @classmethod
    def without_retired(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Section.without_retired`: a record has every size that its retired preset had."""
        is_record = given.get("preset") in ("classic", "deep-encoder") and "d_model" in given
        return {**given, "preset": None} if is_record else given

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        if self.head_dim is None and self.d_model % self.num_heads:
            sizes = f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}"
            raise ValueError(f"{sizes}; change one or set head_dim")
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(f"rotary positions need an even head_dim, not {self.head_width}")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")
        if self.position_formula == "fairseq" and self.d_model < 4:
            raise ValueError(f"position_formula fairseq needs d_model 4 or more, not {self.d_model}")
        check_size(self)
        return self

    @property
    def head_width(self) -> int:
        """K, the width of one head."""
        return self.head_dim or self.d_model // self.num_heads


class ClassifierConfig(Section):
    """The classification head."""

    pooling: Literal["first", "mean", "mean_max"] = "mean"
    """Vector of a text: that of its first token, the mean over its tokens, or the mean and the maximum concatenated."""
    dropout: Probability = 0.1
    """On the pooled vector."""

    @classmethod
    def without_retired(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Section.without_retired`."""
        return without(given, {"hidden": 0})


class VocabularyConfig(Section):
    """Changes of the initial model's vocabulary before fine-tuning."""

    trim: bool = False
    """Remove the pieces that the training corpus does not need. Models that need a language tag lose the tags of other
    languages."""
    extend: NonNegative = 0
    """Add the characters of the training corpus that the model lacks, and up to this number of pieces learned on it; 0
    adds nothing."""


class TrainingConfig(PresetSection):
    """Settings of training."""

    presets = TRAINING_PRESETS
    preset: Literal["scratch", "finetune"] | None = None
    """Values to start from; written keys win. Default: finetune with `init_from`, else scratch."""
    max_steps: Positive | None = None
    """Optimiser steps; without max_steps, max_epochs and max_minutes it is 20,000."""
    max_epochs: Annotated[float, Range(1e-6, 1e9)] | None = None
    """Passes over the training corpus."""
    max_minutes: Annotated[float, Range(1e-6, 1e9)] | None = None
    """Training time, validation included; the schedule follows it."""
    batch_tokens: Positive = 4096
    """Target tokens per batch and rank, padding included (source tokens in classification)."""
    batch_sentences: Positive | None = None
    """Maximum number of sentences in a batch."""
    accumulate: Annotated[int, Range(1, 1000)] = 1
    """Batches per step; the sum of their gradients is that of one large batch."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """muon orthogonalises the updates of matrices: fewer but slightly slower steps to the same loss."""
    learning_rate: Annotated[float, Range(1e-12, 1000.0)] = 1e-3
    warmup_steps: NonNegative = 1000
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    """Decay after warm-up; cosine and linear end at `final_learning_rate`."""
    final_learning_rate: Annotated[float, ranges.SHARE] = 0.0
    """Last value of cosine and linear, as a share of learning_rate."""
    betas: Annotated[tuple[Probability, Probability], Field(strict=False)] = (0.9, 0.98)
    epsilon: Annotated[float, ranges.EPSILON] = 1e-9
    weight_decay: Annotated[float, Range(0.0, 1000.0)] = 0.0
    """Decoupled (AdamW), on matrices only."""
    clip_norm: Annotated[float, Range(1e-9, 1e9)] | None = 1.0
    """Maximum norm of the gradient; null for no clipping."""
    label_smoothing: Probability = 0.1
    dropout_epochs: Annotated[float, Range(0.0, 1e6)] = 0.0
    """Dropout of every kind rises from 0 over this many epochs (Morerio et al. 2017, "Curriculum dropout"): a run that
    ends before sees each example only a few times, and needs less of it."""
    r_drop: Annotated[float, Range(0.0, 1000.0)] = 0.0
    """Weight of R-Drop (Liang et al. 2021): each batch runs twice with different dropout, and the two
    output distributions are drawn together."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto is bfloat16 on devices with native support, else float32."""
    compile: Literal["auto", True, False] = "auto"
    """Compile the layers with torch.compile, once for all shapes of batches. auto: on CUDA, if batch_tokens is at least
    16,384 and training takes 20 minutes or more by the number of operations. A CPU is slower with it."""
    recompute: bool = False
    """Keep only the inputs of layers, and compute the rest again in the backward pass: the same gradients in less
    memory, for a third more work."""
    freeze: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of weights, or of the modules that hold them, that training does not change; `*` matches any text:
    `[encoder.embedding, decoder.layers.*.feed_forward]`."""
    record: Literal["auto", True, False] = "auto"
    """Record the steps of each shape of a batch as CUDA graphs and replay them, for small batches on a GPU; batches are
    then padded to at most 48 shapes. auto: on CUDA, if batch_tokens is below 16,384. Steps are not recorded in
    classification, on several ranks, in float16, or with r_drop, recompute, compile: true or model.output_bias."""
    ema: Probability | None = None
    """Decay of an exponential moving average of the weights; it is validated and saved as the model."""
    best_metric: Literal["auto", "loss", "bleu", "chrf", "chrf++", "accuracy", "f1"] = "auto"
    """Metric for `best/` and patience; auto is bleu (while it is below 1, chrf), or accuracy in classification. Among
    models that are equal within chance, the latest is chosen."""
    best_of: str = "mean"
    """With `languages`: the best model has the best mean of all directions, the best `worst` one, or the best score of
    a direction such as `en-de`."""
    patience: Positive | None = None
    """Validations without an improvement beyond chance, of best_metric or the loss, before training stops."""
    validate_every: Positive = 500
    checkpoint_every: Positive = 500
    keep_last: Positive = 3
    keep_best: NonNegative = 1
    """Checkpoints kept beyond the last ones, by best_metric."""
    log_every: Positive = 50
    num_samples: NonNegative = 5
    """Validation sentences whose translations are written to samples.txt."""
    trackers: Annotated[tuple[Literal["tensorboard", "mlflow", "wandb"], ...], Field(strict=False)] | None = None
    """Trackers that get the figures of metrics.jsonl; default: tensorboard, if it is installed. `[]` is none."""
    track_samples: bool = False
    """Send the translations of samples.txt to the trackers too."""
    max_bad_steps: Positive = 10
    """Consecutive steps with a non-finite gradient before the run returns to its last checkpoint."""
    max_rollbacks: NonNegative = 3
    """How often a diverged run returns to its last checkpoint with half the learning rate; then it ends."""
    init_from: ModelPath | None = None
    """Model or run folder whose weights and tokenizers training starts from."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """Changes of that model's vocabulary."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    threads: Annotated[int, ranges.THREADS] | None = None
    """CPU threads of one rank."""
    shard: bool = False
    """Under torchrun, shard weights and moments over the ranks (FSDP2), for models larger than one device."""

    @classmethod
    def without_retired(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Section.without_retired`."""
        kept = without(given, {"average": "none"})
        return without(kept, {"average_count": 5}) if "average" not in kept else kept

    @model_validator(mode="after")
    def _can_shard(self) -> "TrainingConfig":
        others = {"ema": self.ema, "optimizer": self.optimizer != "adamw"}
        keys = [key for key, is_set in others.items() if is_set]
        if self.shard and keys:
            raise ValueError(f"shard: not together with {' and '.join(keys)}; leave one of them out")
        return self

    @classmethod
    def preset_of(cls, given: Mapping[str, Any]) -> str | None:
        """Return the name of the preset for these written keys; null selects the default."""
        if (preset := given.get("preset")) is not None:
            return preset
        return "finetune" if given.get("init_from") else "scratch"


class SearchConfig(Section):
    """Settings of the search for a translation."""

    beam_size: Annotated[int, ranges.BEAM_SIZE] = 5
    """Hypotheses kept per sentence; 1 is greedy."""
    length_penalty: Annotated[float, ranges.LENGTH_PENALTY] = 1.0
    """a in score = log-probability / length^a."""
    early_stopping: bool = False
    """Finish a sentence once beam_size hypotheses have ended (like CTranslate2), even if another could score better."""
    max_extra_steps: Annotated[int, ranges.PIECES] = 8
    """Steps for which a search continues after the best beam_size finished hypotheses outscore all live ones."""
    max_length_ratio: Annotated[float, ranges.MAX_LENGTH_RATIO] = 2.0
    """A translation has at most max_length_ratio * source pieces + max_length_offset pieces."""
    max_length_offset: Annotated[int, ranges.PIECES] = 10
    min_length: Annotated[int, ranges.PIECES] = 0
    """Minimum number of pieces of a translation."""
    no_repeat_ngram: Annotated[int, ranges.PIECES] = 0
    """No n pieces occur twice in a translation; 0 is off."""
    renormalize: bool = False
    """Normalise probabilities over the allowed pieces, which exclude padding, start and whatever a rule forbids."""
    n_best: Annotated[int, ranges.N_BEST] = 1
    """Translations returned per sentence."""
    sample: bool = False
    """Draw translations at random instead of searching for the best."""
    temperature: Annotated[float, ranges.TEMPERATURE] = 1.0
    top_k: Annotated[int, ranges.TOP_K] = 0
    """Draw from the k most likely pieces; 0 is all."""
    top_p: Annotated[float, ranges.TOP_P] = 1.0
    """Draw from the smallest set of pieces with this probability (Holtzman et al. 2020)."""
    seed: Annotated[int, ranges.SEED] = 1
    """Seed of the random draws."""
    batch_tokens: Positive | None = None
    """Source tokens decoded together, padding and beams included; default: 8,192, and 65,536 on a GPU."""
    record: Literal["auto", True, False] = "auto"
    """auto: on CUDA, record the steps of greedy and beam searches in PyTorch as CUDA graphs, and replay them.
    true: also read and write other lines while a GPU searches."""

    @model_validator(mode="after")
    def _possible(self) -> "SearchConfig":
        if not self.sample and self.n_best > self.beam_size:
            raise ValueError(f"n_best {self.n_best} is more than beam_size {self.beam_size}; raise beam_size")
        if not self.sample and (self.top_k or self.top_p < 1.0 or self.temperature != 1.0):
            raise ValueError("temperature, top_k and top_p need sample: true")
        return self


class EvaluationConfig(Section):
    """Settings of scoring."""

    metrics: Annotated[tuple[Literal["bleu", "chrf", "chrf++", "ter"], ...], one_or_more] = ("bleu", "chrf")
    tokenize: str | None = None
    """sacrebleu's BLEU tokenizer; default: by the target language (zh, ja-mecab, ko-mecab, else 13a)."""


class Config(Section):
    """All settings of one run."""

    task: Literal["translation", "classification"] = "translation"
    source_language: str | None = None
    target_language: str | None = None
    languages: LanguagesConfig | None = None
    """Languages of a model of several directions."""
    seed: Annotated[int, ranges.SEED] = 1
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    classifier: ClassifierConfig = ClassifierConfig()
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _of_one_direction(cls, given: Any) -> Any:
        """Return a configuration whose `languages` are one of each as one with a source and a target language."""
        languages = given.get("languages") if isinstance(given, Mapping) else None
        if not isinstance(languages, Mapping) or {"source_language", "target_language"} & given.keys():
            return given
        sides = [languages.get(side) for side in ("source", "target")]
        single = [side[0] if isinstance(side, list | tuple) and len(side) == 1 else side for side in sides]
        if not all(isinstance(side, str) for side in single) or languages.keys() - {"source", "target", "tags"}:
            return given
        others = {key: value for key, value in given.items() if key != "languages"}
        data, training, names = others.get("data"), others.get("training"), {"-".join(map(str, single))}
        valid = data.get("valid") if isinstance(data, Mapping) else None
        if isinstance(valid, Mapping) and len(valid) == 1 and isinstance(only := next(iter(valid.values())), Mapping):
            names |= valid.keys()
            others["data"] = {**data, "valid": only}
        best = training.get("best_of") if isinstance(training, Mapping) else None
        if isinstance(best, str) and best in names:  # the mean of one
            others["training"] = {key: value for key, value in training.items() if key != "best_of"}
        return {**others, "source_language": single[0], "target_language": single[1]}

    def sides_of(self, source: SourceConfig, name: str = "") -> Sides | None:
        """Return the source and the target language of a corpus; None if each line has its own."""
        if self.languages is not None:
            return self.languages.sides_of(source, name)
        return self.source_language or "", self.target_language or ""

    @property
    def first_direction(self) -> Sides | None:
        """The first trained direction of a model of many, or a possible one if each line has its own languages; else
        None."""
        if self.languages is None:
            return None
        trained = (self.languages.sides_of(source) for source in self.data.train)
        source = self.languages.source[0]
        other = next((name for name in self.languages.target if name != source), source)
        return next(filter(None, trained), (source, other))

    @property
    def single_languages(self) -> tuple[str | None, str | None]:
        """The source and the target language, each if there is only one."""
        if self.languages is None:
            return self.source_language, self.target_language
        sides = self.languages.source, self.languages.target
        source, target = (side[0] if len(side) == 1 else None for side in sides)
        return source, target
