"""Classification: corpora, model, loss and validation of a configuration with `task: classification`.

`tasks.run` calls `build`. The encoder may come from a translation model (`training.init_from`).
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seq2seq.config import Config
from seq2seq.config_values import displayed_labels
from seq2seq.data.collate import ClassificationBatch
from seq2seq.data.corpus import TokenCorpus, prepare_labelled_corpus
from seq2seq.data.examples import LabelledText, Source
from seq2seq.data.filters import PairFilter
from seq2seq.data.stream import ClassificationBatches, validation_batches
from seq2seq.errors import ConfigError, DataError, some_of
from seq2seq.evaluation.classification import classification_report
from seq2seq.inference.classifier import Classifier
from seq2seq.memory import in_parts
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.runtime import Runtime
from seq2seq.store.model_card import ScoreRecord
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.tasks.identity import Sources
from seq2seq.tasks.task import Work, data_record, max_pieces, overlap_notes, prepare_tokenizers
from seq2seq.text.tokenizer import TokenizerPair
from seq2seq.training.loss import classification_loss
from seq2seq.training.state import Sample, Validation

MEASURES = ("accuracy", "precision", "recall", "f1")


def build(
    config: Config,
    initial: LoadedModel | None,
    sources: Sources,
    tokenizer_folder: Path | None,
    cache: Path,
    runtime: Runtime,
) -> Work:
    """Tokenizer, corpora and model of a run.

    Raises:
        DataError: a corpus cannot be read, or nothing is left of it.
        ConfigError: the tokenizer or the labels are not as the configuration says.
    """
    train, valid, tests = sources.train, sources.valid, sources.tests
    texts = functools.partial(_clean_texts, train, config)
    tokenizers = prepare_tokenizers(config, tokenizer_folder, initial, texts, runtime)
    workers = config.data.num_workers
    corpus = prepare_labelled_corpus(train, tokenizers.source, config.data.filters, cache, workers)
    _check_labels(config, corpus.labels)
    held_out = prepare_labelled_corpus([valid], tokenizers.source, None, cache, workers, corpus.labels)
    model = EncoderClassifier(config.model, config.classifier, tokenizers.source.vocab_size, len(corpus.labels))
    is_complete = initial is not None and _load_initial(model, initial, corpus.labels)
    notes = overlap_notes(train, {"valid": valid, **tests}, cache, runtime)
    validation = ClassificationValidation(config, held_out, list(valid), corpus.labels, tokenizers, runtime)
    records = [
        data_record("train", source_config, source, stop - start)
        for source_config, source, (start, stop, _) in zip(config.data.train_sources, train, corpus.parts, strict=True)
    ]
    return Work(
        model=model,
        tokenizers=tokenizers,
        labels=corpus.labels,
        corpus=corpus,
        make_batch=ClassificationBatches(corpus, tokenizers.source, config.tokenizer, config.seed),
        compute_loss=functools.partial(classification_loss, smoothing=config.training.label_smoothing),
        validate=validation,
        data=(*records, data_record("valid", config.data.valid, valid, len(held_out))),
        notes=(f"Training texts: {corpus.counts}.", *notes),
        score_records=functools.partial(_score_records, "valid"),
        score_test_sets=functools.partial(score_test_sets, tests, runtime),
        can_start=is_complete,
    )


def score_test_sets(tests: Mapping[str, Source], runtime: Runtime, folder: Path) -> list[ScoreRecord]:
    """The scores on each test set of the classifier in `folder`, in float32: the figures of `s2s classify --gold`.

    Raises:
        DataError: a test set has a label that the model does not know.
    """
    classifier = Classifier(load_model(folder), replace(runtime, precision=torch.float32))
    records = []
    for name, source in tests.items():
        texts = list(source)
        gold = [classifier.name_of(text.label) for text in texts]
        if unknown := sorted(set(gold) - set(classifier.labels)):
            known, first = some_of(classifier.labels), some_of(unknown[:1])
            raise DataError(f"data.test.{name}: the model has no label {first!r}; its labels are {known}")
        found = [answer.label for answer in classifier.classify([text.text for text in texts])]
        records += _score_records(name, vars(classification_report(gold, found, classifier.labels)))
    return records


class ClassificationValidation:
    """Loss, accuracy, and macro precision, recall and F1 over the validation texts, dealt out to the ranks."""

    def __init__(
        self,
        config: Config,
        corpus: TokenCorpus,
        texts: Sequence[LabelledText],
        labels: Sequence[str],
        tokenizers: TokenizerPair,
        runtime: Runtime,
    ):
        self._config, self._corpus, self._texts, self._labels = config, corpus, texts, labels
        self._runtime = runtime
        self._make_batch = ClassificationBatches(corpus, tokenizers.source, max_pieces=max_pieces(config))

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> Validation:
        """Measure `model`, which is in evaluation mode."""
        loss, predicted = 0.0, {}
        rank, size = self._runtime.rank, self._runtime.world_size
        budget = min(self._config.training.batch_tokens, 8192)

        def measure(batch: ClassificationBatch) -> tuple[float, dict[int, int]]:
            batch = batch.to(self._runtime.device)
            with self._runtime.autocast():
                logits = model(batch.source_ids, batch.source_mask).float()
            total = float(nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
            return total, dict(zip(batch.indices.tolist(), logits.argmax(dim=1).tolist(), strict=True))

        for batch in validation_batches(self._corpus, budget, self._make_batch, rank, size):
            for total, labels in in_parts(measure, batch):
                loss, predicted = loss + total, predicted | labels
        (loss,) = self._runtime.all_reduce([loss])
        everyone = {index: label for part in self._runtime.gather(predicted) for index, label in part.items()}
        names = [self._labels[everyone[index]] for index in range(len(self._texts))]
        report = classification_report([text.label for text in self._texts], names, self._labels)
        metrics = {"valid_loss": loss / len(names)} | {name: getattr(report, name) for name in MEASURES}
        shown = zip(self._texts[: self._config.training.num_samples], names, strict=False)
        return Validation(metrics, [Sample(text.text, text.label, name) for text, name in shown])


def _score_records(dataset: str, metrics: Mapping[str, Any]) -> list[ScoreRecord]:
    return [ScoreRecord(dataset, name, 100 * metrics[name], "percent") for name in MEASURES if name in metrics]


def _check_labels(config: Config, labels: Sequence[str]) -> None:
    problems = []
    if len(labels) < 2:
        problems.append(f"data.train: all texts have the label {labels[0]!r}; a classifier needs two or more")
    unknown = [label for label in config.data.label_names if label not in labels]
    problems += [f"data.label_names.{label}: no text has this label (there are {some_of(labels)})" for label in unknown]
    try:
        displayed_labels(labels, config.data.label_names)
    except ValueError as error:
        problems.append(f"data.label_names: {error}")
    if problems:
        raise ConfigError("config", problems)


def _load_initial(model: EncoderClassifier, initial: LoadedModel, labels: Sequence[str]) -> bool:
    """Take over the encoder, and the head too where it knows the same labels; whether it does."""
    model.encoder.load_state_dict(initial.model.encoder.state_dict())
    head = {name: tensor for name, tensor in initial.model.state_dict().items() if not name.startswith("encoder.")}
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("encoder.")}
    shapes, own_shapes = ({name: tensor.shape for name, tensor in part.items()} for part in (head, own))
    described = initial.description
    if described.task != "classification" or described.labels != tuple(labels) or shapes != own_shapes:
        return False
    model.load_state_dict(head, strict=False)
    return True


def _clean_texts(sources: Sequence[Source], config: Config) -> tuple[Iterable[str], Iterable[str]]:
    rules = PairFilter(config.data.filters)

    def texts() -> Iterator[str]:
        for source in sources:
            yield from (example.text for example in source if rules.rejects_text(example) is None)

    return texts(), ()
