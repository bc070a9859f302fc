"""The vocabulary of an initial model, changed for the training corpus before fine-tuning (`training.vocabulary`).

`tasks.inputs` calls `fitted`. The tokenizers are a function of the initial model, the corpus and the settings; they are
kept in the cache, so that a run that continues does not read its corpus for them again.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from logging import getLogger
from pathlib import Path

from seq2seq import atomic
from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.encoding import stored_ids
from seq2seq.data.examples import Source
from seq2seq.files import json_text, read_object
from seq2seq.store.model_folder import LoadedModel, new_module
from seq2seq.store.vocabulary import refitted
from seq2seq.tensors import Uninitialized, load_tied
from seq2seq.text.extending import TABLE, extended, first_of_each
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tokenizer import TokenizerPair
from seq2seq.text.trimming import distinct_readers, necessary
from seq2seq.training.progress import waiting_for

logger = getLogger(__name__)

COUNTS = "counts.json"
PAIRS_AT_ONCE = 10_000
# Pairs that new pieces are learned from.
MOST_PAIRS = 1_000_000


def fitted(
    initial: LoadedModel, settings: VocabularyConfig, train: Sequence[Source], cache: Path, languages: Sequence[str]
) -> tuple[LoadedModel, Path]:
    """Return a translation model with another vocabulary, and the file that lists its new pieces.

    Args:
        initial: the model, for all directions.
        settings: the section of the configuration.
        train: the training corpora.
        cache: the folder in which the tokenizers are kept.
        languages: the languages whose tags stay, as the model names them; without names all stay.
    """
    tokenizers = initial.tokenizers.undirected
    known = [initial.files, tokenizers.fingerprint, [source.fingerprint for source in train], settings.model_dump()]
    identity = json.dumps([*known, list(languages)], sort_keys=True)
    folder = cache / f"vocabulary-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
    with atomic.locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            with waiting_for("changing the vocabulary"):
                _make(folder, tokenizers, settings, train, languages)
    changed = load_tokenizers(folder)
    with Uninitialized():
        model = new_module(initial.description, changed)
    load_tied(model, refitted(initial, changed, read_object(folder / COUNTS)))
    return replace(initial, model=model.eval(), tokenizers=changed), folder / TABLE


def _make(
    folder: Path,
    tokenizers: TokenizerPair,
    settings: VocabularyConfig,
    train: Sequence[Source],
    languages: Sequence[str],
) -> None:
    """Write the changed tokenizers, the table of new pieces, and counts of pieces in the targets."""
    changed, counts, table = tokenizers, {}, ""
    if settings.extend:
        pairs = [pair.texts for pair in chain.from_iterable(first_of_each(train, MOST_PAIRS))]
        sides = [list(side) for side in zip(*pairs, strict=True)]
        texts = sides if len(distinct_readers(tokenizers)) == 2 else [[*chain.from_iterable(sides)]]
        larger = extended(tokenizers, texts, settings.extend)
        changed, counts, table = larger.tokenizers, dict(larger.counts), larger.table()
        for line in larger.lines_of_report() if larger.is_larger else ["training.vocabulary.extend: nothing to add"]:
            logger.info("%s", line)
    if settings.trim:
        changed = _trimmed(changed, train, languages)
        sizes = [f"{pair.target.vocab_size:,}" for pair in (tokenizers, changed)]
        logger.info("training.vocabulary.trim: %s pieces of the target, before %s", sizes[1], sizes[0])
    with atomic.new_folder(folder) as temporary:
        changed.save(temporary)
        (temporary / TABLE).write_text(table, encoding="utf-8")
        (temporary / COUNTS).write_text(json_text(counts), encoding="utf-8")


def _trimmed(tokenizers: TokenizerPair, train: Sequence[Source], languages: Sequence[str]) -> TokenizerPair:
    """Return the tokenizers with the pieces that the corpora need."""
    sides = (tokenizers.source, tokenizers.target)
    used: list[set[int]] = [set(), set()]
    examples = chain.from_iterable(train)
    while pairs := list(islice(examples, PAIRS_AT_ONCE)):
        for number, reader in enumerate(sides):
            rows: Iterable[list[int]] = stored_ids(reader, [pair.texts[number] for pair in pairs], number == 0)
            used[number].update(chain.from_iterable(rows))
    pieces = [set(reader.pieces(ids)) for reader, ids in zip(sides, used, strict=True)]
    names = languages or None
    if tokenizers.shared:
        kept = [necessary(distinct_readers(tokenizers), pieces[0] | pieces[1], names)] * 2
    else:
        kept = [necessary([reader], own, names) for reader, own in zip(sides, pieces, strict=True)]
    removed = (reader.vocabulary.keys() - own for reader, own in zip(sides, kept, strict=True))
    return tokenizers.without(*removed)
