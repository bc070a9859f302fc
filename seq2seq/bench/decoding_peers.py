"""Other systems that translate with the same model: CTranslate2 alone, and MarianMTModel of transformers.

`decoding` opens them by name. Both use the tokenizers of the model, sort by length, and search with the same beam,
length penalty and, in each batch, the limit of its longest line.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from seq2seq.bench.training_peers import transformers_package
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import UserError
from seq2seq.interop import ctranslate2
from seq2seq.interop.ctranslate2_export import write_ctranslate2
from seq2seq.interop.marian import write_marian
from seq2seq.runtime import Runtime
from seq2seq.store.model_folder import LoadedModel

PEERS = ("ctranslate2", "transformers")


class DecodingSystem(ABC):
    """A translation system that is measured. It opens its model when it first translates; what is done once for all
    times, such as a conversion, is done when it is made."""

    name: str
    uses_torch = True
    """Whether the memory that it takes on a GPU is that of torch, which can be measured."""

    @abstractmethod
    def translate(self, lines: Sequence[str], search: SearchConfig) -> tuple[list[str], int]:
        """Return the translation of each line, and the number of all output pieces, ends included.

        No line is blank or too long for the model.
        """

    def close(self) -> None:  # noqa: B027
        """Release the threads until `translate` is called again.

        All systems share OpenMP, whose threads busy-wait only if a process has no more threads than there are CPUs.
        """


def open_decoding_peers(
    name: str, model: LoadedModel, runtime: Runtime, batch_size: int, folder: Path
) -> Iterator[Callable[[], DecodingSystem]]:
    """Yield a function for each number format of a peer, which writes to `folder` and returns the system.

    The function raises:
        UserError: the peer is not installed, or cannot run this model.
    """
    if name == "transformers":
        yield partial(MarianGenerate, model, runtime, batch_size, folder)
        return
    for kind in dict.fromkeys((_short(runtime.precision), "float32", "int8")):
        yield partial(BareCTranslate2, model, kind, runtime, batch_size, folder / f"ctranslate2-{kind}")


class BareCTranslate2(DecodingSystem):
    """The method `ctranslate2.Translator.translate_batch`, with one worker per thread.

    A single sentence is translated by one worker with all threads.
    """

    uses_torch = False

    def __init__(self, model: LoadedModel, quantization: str, runtime: Runtime, batch_size: int, folder: Path):
        package = ctranslate2.package()
        self.name = f"ctranslate2 {quantization}"
        self._tokenizers, self._batch_size = model.tokenizers, batch_size
        target = model.tokenizers.target
        self._ids = {piece: id_ for id_, piece in enumerate(target.pieces(range(target.vocab_size)))}
        device, self._threads = runtime.device, torch.get_num_threads() if runtime.device.type == "cpu" else 1
        if quantization not in package.get_supported_compute_types(device.type):
            raise UserError(f"{quantization}: not supported on this {device.type}")
        folder.mkdir()
        write_ctranslate2(folder, model.model, model.description, model.tokenizers, quantization)
        self._open = partial(
            package.Translator, str(folder), device=device.type, device_index=device.index or 0,
            compute_type=quantization,
        )  # fmt: skip
        self._opened: dict[int, Any] = {}  # by number of workers

    def translate(self, lines: Sequence[str], search: SearchConfig) -> tuple[list[str], int]:
        workers, threads = (1, self._threads) if len(lines) == 1 else (self._threads, 1)
        if workers not in self._opened:
            self._opened = {workers: self._open(inter_threads=workers, intra_threads=threads)}
        source, target = self._tokenizers.source, self._tokenizers.target
        ids, end = source.encode_all(lines), ctranslate2.source_end(self._tokenizers)
        tags = target.pieces(target.start_ids[ctranslate2.num_own_starts(self._tokenizers) :])
        limits = [length_limit(row, search) + len(target.start_ids) - 1 for row in ids]
        answers: dict[int, Any] = {}
        for batch in batches_by_length(ids, self._batch_size):
            found = self._opened[workers].translate_batch(
                [[*source.pieces(ids[index]), *end] for index in batch],
                [tags] * len(batch) if tags else None,
                beam_size=search.beam_size,
                length_penalty=search.length_penalty,
                no_repeat_ngram_size=search.no_repeat_ngram,
                min_decoding_length=search.min_length,
                max_decoding_length=max(limits[index] for index in batch),
                return_end_token=True,
                asynchronous=True,  # each worker takes the next batch
            )
            answers |= zip(batch, found, strict=True)
        hypotheses = [answers[index].result().hypotheses[0] for index in range(len(ids))]
        outputs = [[self._ids[piece] for piece in hypothesis[len(tags) :]] for hypothesis in hypotheses]
        return [target.decode(row) for row in outputs], sum(map(len, outputs))

    def close(self) -> None:
        self._opened = {}


class MarianGenerate(DecodingSystem):
    """The method `MarianMTModel.generate` of transformers, on sorted batches."""

    def __init__(self, model: LoadedModel, runtime: Runtime, batch_size: int, folder: Path):
        self.name = f"transformers {_short(runtime.precision)}"
        self._tokenizers, self._device, self._batch_size = model.tokenizers, runtime.device, batch_size
        folder = folder / "marian"
        folder.mkdir()
        write_marian(folder, model.description, model.tokenizers, model.weights)
        package, to = transformers_package().MarianMTModel, (runtime.device, runtime.precision)
        self._open = lambda: package.from_pretrained(folder, local_files_only=True).to(*to).eval()
        self._model: Any = None

    def translate(self, lines: Sequence[str], search: SearchConfig) -> tuple[list[str], int]:
        self._model = self._model or self._open()
        ids = self._tokenizers.source.encode_all(lines)
        texts, tokens = [""] * len(ids), 0
        for batch in batches_by_length(ids, self._batch_size):
            for index, output in zip(batch, self._generate([ids[index] for index in batch], search), strict=True):
                texts[index] = self._tokenizers.target.decode(output)
                tokens += len(output)
        return texts, tokens

    @torch.inference_mode()
    def _generate(self, rows: Sequence[Sequence[int]], search: SearchConfig) -> list[list[int]]:
        """Return the output ids of one batch, ends included."""
        source, target = self._tokenizers.source, self._tokenizers.target
        tensors = [torch.tensor([*row, source.eos_id], device=self._device) for row in rows]
        ids = pad_sequence(tensors, batch_first=True, padding_value=source.pad_id)  # (B, S)
        mask = pad_sequence([torch.ones_like(row) for row in tensors], batch_first=True)  # (B, S)
        outputs = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max(length_limit(row, search) for row in rows),
            num_beams=search.beam_size,
            num_return_sequences=1,
            do_sample=False,
            length_penalty=search.length_penalty,
            early_stopping=search.early_stopping if search.beam_size > 1 else False,
        )
        return [[id_ for id_ in row[1:] if id_ != target.pad_id] for row in outputs.tolist()]


def batches_by_length(rows: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Yield the indices of rows in batches, the longest first."""
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def length_limit(ids: Sequence[int], search: SearchConfig) -> int:
    """Return the length limit of our search for the translation of these ids, in pieces."""
    return int(search.max_length_ratio * len(ids)) + search.max_length_offset


def _short(precision: torch.dtype) -> str:
    return str(precision).removeprefix("torch.")
