"""Other ways to train a model of the same sizes: modules that return logits, in a plain training loop.

`training` opens them by name. Each gets the batches that ours gets, the same precision, label smoothing, dropout,
clipping and fused AdamW, and is built from the same configuration.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.config import ModelConfig, TrainingConfig
from seq2seq.data.collate import TranslationBatch
from seq2seq.errors import MissingDependency, UserError
from seq2seq.interop.marian_settings import SpecialIds, model_values
from seq2seq.model.positions import sinusoids
from seq2seq.runtime import Runtime
from seq2seq.text.tokenizer import TokenizerPair
from seq2seq.training.optim import learning_rate
from seq2seq.training.step import is_compiled

# By the names of --peer.
PEERS = {"transformers": "transformers MarianMTModel", "torch": "torch.nn.Transformer"}
IGNORED = -100


def open_training_peer(
    name: str, config: ModelConfig, tokenizers: TokenizerPair, training: TrainingConfig, runtime: Runtime
) -> "HandLoop":
    """The peer of that name.

    Raises:
        UserError: it is not installed, or cannot have these sizes; the message says which.
    """
    if config.head_width * config.num_heads != config.d_model or config.activation == "swiglu":
        raise UserError("it has neither swiglu nor a head_dim other than d_model / num_heads")
    module = MarianLogits(config, tokenizers) if name == "transformers" else TorchLogits(config, tokenizers)
    return HandLoop(module, training, runtime)


class TrainingSystem(ABC):
    """A module in training, at the learning rates of the schedule."""

    def __init__(self, module: nn.Module, config: TrainingConfig, runtime: Runtime):
        self.module = module.to(runtime.device).train()
        self._config, self._runtime, self._count = config, runtime, 0

    def update(self, batches: Sequence[TranslationBatch], progress: float = 0.0) -> None:
        """One optimiser step over batches on the CPU; `progress` is the share of training that is done."""
        self._count += 1
        self._update(batches, learning_rate(self._count, progress, self._config))

    @abstractmethod
    def _update(self, batches: Sequence[TranslationBatch], rate: float) -> None: ...


class HandLoop(TrainingSystem):
    """A training loop over a module from (source_ids, source_mask, target_input) to logits (B, T, V)."""

    def __init__(self, module: nn.Module, config: TrainingConfig, runtime: Runtime):
        super().__init__(module, config, runtime)
        if is_compiled(config, runtime.device):
            self.module.compile(dynamic=True)
        self._optimizer = torch.optim.AdamW(
            self.module.parameters(), betas=config.betas, eps=config.epsilon, weight_decay=config.weight_decay,
            fused=True,
        )  # fmt: skip
        self._scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.precision == torch.float16)

    def _update(self, batches: Sequence[TranslationBatch], rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad(set_to_none=True)
        for batch in batches:
            batch = batch.to(self._runtime.device, non_blocking=True)
            with self._runtime.autocast():
                loss = self._loss(batch) / len(batches)
            self._scaler.scale(loss).backward()
        self._scaler.unscale_(self._optimizer)
        if self._config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.module.parameters(), self._config.clip_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def _loss(self, batch: TranslationBatch) -> Tensor:
        logits = self.module(batch.source_ids, batch.source_mask, batch.target_input)  # (B, T, V)
        labels = batch.target_output.masked_fill(~batch.target_mask, IGNORED)
        return functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=self._config.label_smoothing
        )


class MarianLogits(nn.Module):
    """MarianMTModel of transformers."""

    def __init__(self, config: ModelConfig, tokenizers: TokenizerPair):
        super().__init__()
        package = transformers_package()
        target = tokenizers.target
        values = model_values(
            config, tokenizers.source.vocab_size, target.vocab_size,
            SpecialIds(target.pad_id, target.eos_id, target.start_id),
        )  # fmt: skip
        self.model = package.MarianMTModel(package.MarianConfig(**values))

    def forward(self, source_ids: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        return self.model(
            input_ids=source_ids, attention_mask=source_mask, decoder_input_ids=target_input, use_cache=False
        ).logits


class TorchLogits(nn.Module):
    """torch.nn.Transformer, with the embeddings, positions and output layer that it leaves to its users."""

    def __init__(self, config: ModelConfig, tokenizers: TokenizerPair):
        super().__init__()
        width = config.d_model
        self.layers = nn.Transformer(
            width, config.num_heads, config.num_encoder_layers, config.num_decoder_layers, config.d_ff, config.dropout,
            activation=getattr(functional, config.activation), batch_first=True,
            norm_first=config.norm_position == "pre",
        )  # fmt: skip
        for layer in self.layers.modules():  # nn.Transformer has one dropout rate
            if isinstance(layer, nn.MultiheadAttention):
                layer.dropout = config.attention_dropout
            elif isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                layer.dropout.p = config.activation_dropout
        self.target = nn.Embedding(tokenizers.target.vocab_size, width)
        self.source = (
            self.target if config.tied_embeddings == "all" else nn.Embedding(tokenizers.source.vocab_size, width)
        )
        for embedding in (self.source, self.target):
            nn.init.normal_(embedding.weight, std=width**-0.5)
        self.output = nn.Linear(width, tokenizers.target.vocab_size, bias=config.output_bias)
        if config.tied_embeddings != "none":
            self.output.weight = self.target.weight
        self.dropout = nn.Dropout(config.dropout)
        self.scale = width**0.5
        self.register_buffer("positions", sinusoids(config.max_length, width), persistent=False)

    def forward(self, source_ids: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        length = target_input.size(1)
        future = torch.ones(length, length, dtype=torch.bool, device=target_input.device).triu(1)  # (T, T)
        hidden = self.layers(
            self._embed(self.source, source_ids), self._embed(self.target, target_input),
            tgt_mask=future, tgt_is_causal=True,
            src_key_padding_mask=~source_mask, memory_key_padding_mask=~source_mask,
        )  # fmt: skip
        return self.output(hidden)

    def _embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(embedding(ids) * self.scale + self.positions[: ids.size(1)])


def transformers_package() -> Any:
    """The package transformers, without warnings and progress bars.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingDependency("transformers", "bench", "this comparison") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers
