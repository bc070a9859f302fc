"""Another system that trains a model of the same sizes: MarianMTModel of transformers, in a plain training loop.

`training` opens it. It is built from the same configuration, and has the same batches, precision, label smoothing,
dropout, clipping and fused AdamW as our system.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.config.schema import ModelConfig, TrainingConfig
from seq2seq.data.collate import TranslationBatch
from seq2seq.errors import MissingDependency, UserError
from seq2seq.interop.marian_settings import SpecialIds, model_values
from seq2seq.runtime import Runtime
from seq2seq.text.tokenizer import TokenizerPair
from seq2seq.training.optim import learning_rate

PEERS = ("transformers",)
IGNORED = -100


def open_training_peer(
    config: ModelConfig, tokenizers: TokenizerPair, training: TrainingConfig, runtime: Runtime
) -> Callable[[], "HandLoop"]:
    """Return a function that makes MarianMTModel in a training loop; the package is imported before.

    Raises:
        UserError: transformers is not installed, or the model cannot have these sizes.
    """
    if config.head_width * config.num_heads != config.d_model or config.activation == "swiglu":
        raise UserError("it has neither swiglu nor a head_dim other than d_model / num_heads")
    _ = transformers_package().MarianMTModel  # imports it
    return lambda: HandLoop(MarianLogits(config, tokenizers), training, runtime)


class TrainingSystem(ABC):
    """A module in training, with the learning rates of the schedule."""

    def __init__(self, module: nn.Module, config: TrainingConfig, runtime: Runtime):
        self.module = module.to(runtime.device).train()
        self._config, self._runtime, self._count = config, runtime, 0

    def update(self, batches: Sequence[TranslationBatch], progress: float = 0.0) -> None:
        """Make one optimiser step over batches on the CPU; `progress` is the share of training that is done."""
        self._count += 1
        self._update(batches, learning_rate(self._count, progress, self._config))

    @abstractmethod
    def _update(self, batches: Sequence[TranslationBatch], rate: float) -> None: ...


class HandLoop(TrainingSystem):
    """A training loop of a module that maps (source_ids, source_mask, target_input) to logits (B, T, V)."""

    def __init__(self, module: nn.Module, config: TrainingConfig, runtime: Runtime):
        super().__init__(module, config, runtime)
        if config.compile is True:
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
    """The MarianMTModel of transformers, as a module that returns logits (B, T, V)."""

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


def transformers_package() -> Any:
    """Return the package transformers, with warnings and progress bars turned off.

    Raises:
        MissingDependency: the package is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingDependency("transformers", "bench", "this comparison") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers
