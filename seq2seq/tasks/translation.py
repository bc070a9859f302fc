"""Translation: corpora, model, loss and validation of a configuration with `task: translation`.

`tasks.run` calls `build`.
"""

import functools
import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from seq2seq.config import Config
from seq2seq.data.collate import TranslationBatch
from seq2seq.data.corpus import TokenCorpus, prepare_corpus
from seq2seq.data.examples import Pair, Source
from seq2seq.data.filters import PairFilter
from seq2seq.data.stream import TranslationBatches, validation_batches
from seq2seq.evaluation.text import Score, score_texts
from seq2seq.inference.engines import TorchEngine
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.translator import Translator
from seq2seq.inspection.word_pairs import SWAP_LINES, sides_are_swapped
from seq2seq.memory import in_parts
from seq2seq.model.transformer import Transformer
from seq2seq.runtime import Runtime
from seq2seq.store.model_card import ScoreRecord
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.tasks.identity import Sources
from seq2seq.tasks.task import Work, data_record, max_pieces, overlap_notes, prepare_tokenizers
from seq2seq.text.tokenizer import TokenizerPair
from seq2seq.training.loss import LossSum, translation_loss
from seq2seq.training.state import Sample, Validation

logger = logging.getLogger(__name__)


def build(
    config: Config,
    initial: LoadedModel | None,
    sources: Sources,
    tokenizer_folder: Path | None,
    cache: Path,
    runtime: Runtime,
) -> Work:
    """Tokenizers, corpora and model of a run.

    Raises:
        DataError: a corpus cannot be read, or nothing is left of it.
        ConfigError: the tokenizer cannot be trained as the configuration says.
    """
    train, valid, tests = sources.train, sources.valid, sources.tests
    texts = functools.partial(_clean_sides, train, config)
    tokenizers = prepare_tokenizers(config, tokenizer_folder, initial, texts, runtime)
    corpus = prepare_corpus(train, tokenizers, config.data.filters, cache, config.data.num_workers)
    held_out = prepare_corpus([valid], tokenizers, None, cache, config.data.num_workers)
    model = Transformer(config.model, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    if initial is not None:
        model.load_state_dict(initial.model.state_dict())
    if runtime.is_main:
        _warn_swapped(train, {"data.valid": valid, **{f"data.test.{name}": test for name, test in tests.items()}})
    notes = overlap_notes(train, {"valid": valid, **tests}, cache, runtime)
    validation = TranslationValidation(config, held_out, list(valid), tokenizers, runtime)
    records = [
        data_record("train", source_config, source, stop - start)
        for source_config, source, (start, stop, _) in zip(config.data.train_sources, train, corpus.parts, strict=True)
    ]
    return Work(
        model=model,
        tokenizers=tokenizers,
        labels=(),
        corpus=corpus,
        make_batch=TranslationBatches(corpus, tokenizers, config.tokenizer, config.seed),
        compute_loss=functools.partial(translation_loss, smoothing=config.training.label_smoothing),
        validate=validation,
        data=(*records, data_record("valid", config.data.valid, valid, len(held_out))),
        notes=(f"Training pairs: {corpus.counts}.", *notes),
        score_records=validation.score_records,
        score_test_sets=functools.partial(score_test_sets, config, tests, runtime.device),
        measure=measure(config),
        can_start=initial is not None and initial.description.task == "translation",
    )


def measure(config: Config) -> str:
    """What decides the scores of a model: how it searches, and how its translations are scored.

    How many sentences are searched at once, and how many translations are returned, decides nothing.
    """
    search = config.search.model_dump(mode="json", exclude={"batch_tokens", "n_best"})
    return json.dumps({"search": search, "evaluation": config.evaluation.model_dump(mode="json")})


def score_test_sets(
    config: Config, tests: Mapping[str, Source], device: torch.device, folder: Path
) -> list[ScoreRecord]:
    """The scores on each test set of the model in `folder`, in float32: the figures of `s2s bleu --model`."""
    loaded = load_model(folder)
    steps = TransformerSteps(loaded.model.to(device), loaded.tokenizers, device)
    translator = Translator(TorchEngine(steps), loaded.tokenizers, config.search)
    records = []
    for name, source in tests.items():
        pairs = list(source)
        texts = [translation.text for translation in translator.translate([pair.source for pair in pairs])]
        scores = _score(texts, [pair.target for pair in pairs], config)
        records += [ScoreRecord(name, score.metric, score.score, score.signature) for score in scores]
    return records


def _warn_swapped(train: Sequence[Source], held_out: Mapping[str, Source]) -> None:
    """Say where the sides of a corpus look swapped against those of the first training corpus."""
    usual, *others = map(_some_sides, train)
    others = {source.name: sides for source, sides in zip(train[1:], others, strict=True)}
    for name, sides in (others | {name: _some_sides(source) for name, source in held_out.items()}).items():
        if sides_are_swapped(usual, sides):
            logger.warning("%s: source and target look swapped against data.train; s2s check tells more", name)


def _some_sides(source: Source) -> tuple[list[str], list[str]]:
    pairs = list(itertools.islice(source, SWAP_LINES))
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


class TranslationValidation:
    """Loss over the validation pairs, and the scores of their translations by the translator that users get.

    The sentences are dealt out to the ranks; every rank returns the figures of all of them.
    """

    def __init__(
        self, config: Config, corpus: TokenCorpus, pairs: Sequence[Pair], tokenizers: TokenizerPair, runtime: Runtime
    ):
        self._config, self._corpus, self._pairs = config, corpus, pairs
        self._tokenizers, self._runtime = tokenizers, runtime
        self._make_batch = TranslationBatches(corpus, tokenizers, max_pieces=max_pieces(config))
        # They depend on the settings alone: a run that goes on may end before its next validation.
        self._signatures = {score.metric: score.signature for score in _score(["."], ["."], config)}

    def __call__(self, model: nn.Module) -> Validation:
        """Measure `model`, which is in evaluation mode."""
        metrics = self._losses(model)
        translations = self._translate(model)
        scores = _score(translations, [pair.target for pair in self._pairs], self._config)
        metrics |= {score.metric: score.score for score in scores}
        shown = zip(self._pairs[: self._config.training.num_samples], translations, strict=False)
        return Validation(metrics, [Sample(pair.source, pair.target, output) for pair, output in shown])

    def score_records(self, metrics: Mapping[str, float]) -> list[ScoreRecord]:
        """The scores of a validation, for the model card."""
        return [
            ScoreRecord("valid", metric, metrics[metric], signature)
            for metric, signature in self._signatures.items()
            if metric in metrics
        ]

    @torch.no_grad()
    def _losses(self, model: nn.Module) -> dict[str, float]:
        loss = correct = count = 0.0
        rank, size = self._runtime.rank, self._runtime.world_size

        def measure(batch: TranslationBatch) -> LossSum:
            with self._runtime.autocast():
                return translation_loss(model, batch.to(self._runtime.device), smoothing=0.0)

        for batch in validation_batches(self._corpus, self._config.training.batch_tokens, self._make_batch, rank, size):
            for sums in in_parts(measure, batch):
                loss, correct, count = loss + float(sums.total), correct + float(sums.correct), count + sums.count
        loss, correct, count = self._runtime.all_reduce([loss, correct, count])
        return {"valid_loss": loss / count, "valid_accuracy": correct / count}

    def _translate(self, model: nn.Module) -> list[str]:
        steps = TransformerSteps(model, self._tokenizers, self._runtime.device)
        translator = Translator(TorchEngine(steps), self._tokenizers, self._config.search)
        lines = [pair.source for pair in self._pairs]
        rank, size = self._runtime.rank, self._runtime.world_size
        own = [translation.text for translation in translator.translate(lines[rank::size])]
        texts = [""] * len(lines)
        for place, part in enumerate(self._runtime.gather(own)):
            texts[place::size] = part
        return texts


def _score(texts: Sequence[str], references: Sequence[str], config: Config) -> list[Score]:
    evaluation = config.evaluation
    return score_texts(texts, references, evaluation.metrics, evaluation.tokenize, config.target_language)


def _clean_sides(sources: Sequence[Source], config: Config) -> tuple[Iterable[str], Iterable[str]]:
    """The source side and the target side of the pairs that the text filters keep."""
    rules = PairFilter(config.data.filters)

    def pairs() -> Iterator[Pair]:
        for source in sources:
            yield from (pair for pair in source if rules.rejects_text(pair) is None)

    return (pair.source for pair in pairs()), (pair.target for pair in pairs())
