"""A translation model with a smaller vocabulary, and the measurement of what that changes.

`s2s vocabulary trim` uses it. Rows of the embeddings and of the output layer are cut; all other weights are the same.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, product
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.data.collate import collate_translation
from seq2seq.data.encoding import stored_ids
from seq2seq.errors import DataError, ModelError, UserError, counted, some_of
from seq2seq.inference.engine import ONE_BEST, override_search
from seq2seq.inference.groups import BATCH_TOKENS, token_groups
from seq2seq.inference.steps import TransformerSteps, float32_logits
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.inspection.line_languages import other_language
from seq2seq.languages import direction_name, language_name
from seq2seq.lines import read_lines
from seq2seq.runtime import start
from seq2seq.store.direction import one_direction
from seq2seq.store.finding import check_new, name_in_run
from seq2seq.store.model_card import short_card
from seq2seq.store.model_folder import LoadedModel, load_model, save_model
from seq2seq.store.vocabulary import refitted
from seq2seq.text.direction import MOST_LISTED, UNNAMED, Direction, find_language
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.text.trimming import LEAST_KNOWN, distinct_readers, known_share, may_read, necessary

logger = logging.getLogger(__name__)

SAMPLE_LINES = 100
LINES_AT_ONCE = 10_000
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Size:
    """The size of a model: pieces of its vocabularies, and parameters."""

    source_pieces: int
    target_pieces: int
    parameters: int

    @property
    def megabytes(self) -> float:
        """The size of the weights in float32, in 10^6 bytes."""
        return self.parameters * FLOAT32_BYTES / 1e6

    @classmethod
    def of(cls, loaded: LoadedModel) -> "Size":
        """Return the size of a model."""
        numbers = sum(tensor.numel() for tensor in loaded.weights.values())
        return cls(loaded.tokenizers.source.vocab_size, loaded.tokenizers.target.vocab_size, numbers)


@dataclass(frozen=True)
class Trimming:
    """The sizes of a model before and after trimming, and the measured change of its translations."""

    shared: bool
    """Whether both sides have one vocabulary."""
    before: Size
    after: Size
    lines: int
    """Lines of the sample, which are greedy translations of the first lines of the first corpus."""
    removed_share: float
    """Mean probability of all removed pieces, over the tokens of the sample."""
    different: int
    """Translations of the sample that the smaller model gives differently."""

    def lines_of_report(self) -> list[str]:
        """Return the figures as lines of text."""
        names = [("vocabulary", "source_pieces")] if self.shared else []
        names = names or [("source vocabulary", "source_pieces"), ("target vocabulary", "target_pieces")]
        rows = [
            f"{name}: {getattr(self.after, key):,} of {getattr(self.before, key):,} pieces kept" for name, key in names
        ]
        parameters = [
            f"{size.parameters:,} ({size.megabytes:,.1f} MB in float32)" for size in (self.before, self.after)
        ]
        sample = counted(self.lines, "line")
        return [
            *rows,
            f"parameters: {' -> '.join(parameters)}",
            f"removed pieces had {self.removed_share:.3%} of the probability in greedy translations of {sample}",
            f"different translations: {self.different:,} of {sample}",
        ]


@dataclass
class _Corpus:
    """A file of text: its first lines, and the pieces by which each tokenizer spells it."""

    path: Path
    head: list[str] = field(default_factory=list)
    used: list[set[str]] = field(default_factory=list)
    is_of: list[bool] = field(default_factory=list)
    """Whether it may be of the side of each tokenizer (`text.trimming.may_read`)."""


def trim(
    model: Path, corpora: Sequence[Path], output: Path, languages: Sequence[str] = (), frequent: int = 0
) -> Trimming:
    """Write a model with only the pieces that `corpora` need into the model folder `output`, and measure the change.

    Args:
        model: a translation model, as of `load_model`.
        corpora: text of the source, first, and of the target. With two tokenizers, a corpus counts for the side whose
            tokenizer knows its characters and spells it in fewer pieces, or for both (`text.trimming.may_read`).
        output: a new or empty folder.
        languages: languages whose tags are kept; required for a model that needs a direction, the source first.
        frequent: the number of the most frequent pieces of each tokenizer that are kept too.

    Raises:
        UserError: a language is missing or unknown, or there is nothing to trim.
        DataError: a corpus cannot be read, is empty, is in another language, or is missing for a side.
        ModelError: the model cannot be read or is no translation model, or `output` exists and is not an empty folder.
        RunError: `output` cannot be written.
    """
    check_new(output)
    loaded = load_model(model)
    if loaded.description.task != "translation":
        raise ModelError(f"{model}: a {loaded.description.task} model; only translation models can be trimmed")
    names = _languages(model, loaded, languages)
    readers = distinct_readers(loaded.tokenizers)
    read = [_read(path, readers) for path in corpora]
    _warn_of_languages(read, _kept_languages(loaded, names))
    used = [_used(read, number, side) for number, side in zip(range(len(readers)), ("source", "target"), strict=False)]
    if loaded.tokenizers.shared:
        kept = [necessary(readers, set[str]().union(*used), names, frequent)]
    else:
        kept = [necessary([reader], pieces, names, frequent) for reader, pieces in zip(readers, used, strict=True)]
    if all(len(pieces) == reader.vocab_size for pieces, reader in zip(kept, readers, strict=False)):
        raise UserError(f"{model}: nothing to trim: the corpora need every piece; name smaller ones, or keep the model")
    sources = next(corpus.head for corpus in read if corpus.is_of[0])
    direction = one_direction(loaded.description, loaded.tokenizers, names) if names else UNNAMED
    _write(output, loaded, (kept[0], kept[-1]))
    return _measured(loaded, output, sources, kept[-1], direction)


def _languages(model: Path, loaded: LoadedModel, given: Sequence[str]) -> list[str] | None:
    """Return the model's names of the languages to keep, or None for all.

    Raises:
        UserError: the model does not have a language, or has to be told which.
    """
    tags, described = loaded.tokenizers.source.tags, loaded.description
    if given and not tags:
        raise UserError(f"--languages: {model} has no tags of languages; leave the option out")
    names = list(dict.fromkeys(find_language(name, tags, "--languages") for name in given))
    if not loaded.tokenizers.needs_direction:
        default = described.target_language
        if names and default in tags and default not in names:
            raise UserError(f"--languages: {model} is for {default} by default; name that too")
        return names or None
    if len(names) < 2:
        raise UserError(f"--languages: name the source and the target; {model} has {some_of(list(tags), MOST_LISTED)}")
    for language in filter(None, described.languages):
        if language not in names:
            raise UserError(f"--languages: {model} is for {language} by default; name that too")
    for side, choices in loaded.tokenizers.choices.items():
        if not set(names).intersection(choices):
            raise UserError(f"--languages: {', '.join(names)}: add a {side} of {some_of(list(choices), MOST_LISTED)}")
    return names


def _kept_languages(loaded: LoadedModel, names: Sequence[str] | None) -> list[str | None]:
    """Return the languages of the smaller model, with None for one that is not known."""
    tokenizers, described = loaded.tokenizers, loaded.description
    if tokenizers.needs_direction:
        return list(names or tokenizers.source.tags)
    targets = names or tokenizers.source.tags or [described.target_language]
    return list(dict.fromkeys([described.source_language, *targets]))


def _warn_of_languages(read: Sequence[_Corpus], languages: Sequence[str | None]) -> None:
    """Warn of each corpus that is in none of the languages of the smaller model, judged by its first lines."""
    for corpus in read:
        if found := other_language(corpus.head, *languages):
            kept = some_of([language_name(language or "") for language in languages], MOST_LISTED)
            logger.warning(
                "%s: %.0f %% of the sampled lines with a clear language are %s, but the new model is for %s; give text "
                "in one of these languages", corpus.path, 100 * found[1], language_name(found[0]), kept,
            )  # fmt: skip


def _used(read: Sequence[_Corpus], number: int, side: str) -> set[str]:
    """Return the pieces of the corpora that a tokenizer spells."""
    own = [corpus.used[number] for corpus in read if corpus.is_of[number]]
    if not own:
        raise DataError(f"--corpus: no file is text of the {side}, which has its own tokenizer; give one")
    return set[str]().union(*own)


def _read(path: Path, readers: Sequence[Tokenizer]) -> _Corpus:
    """Return which pieces a file needs, as text of a source and of a target."""
    corpus = _Corpus(path, used=[set() for _ in readers])
    lines = (line for line in read_lines(path) if line.strip())
    while block := list(islice(lines, LINES_AT_ONCE)):
        if not corpus.head:
            corpus.head, corpus.is_of = block[:SAMPLE_LINES], may_read(readers, block)
        for number, reader in enumerate(readers):
            read, written = (stored_ids(reader, block, is_source) for is_source in (True, False))
            corpus.used[number].update(reader.pieces(set(chain.from_iterable((*read, *written)))))
    if not corpus.head:
        raise DataError(f"{path}: there is no text; name another file")
    share = max(known_share(reader, corpus.head) for reader in readers)
    if share < LEAST_KNOWN:
        problem = f"the model knows {share:.0%} of its characters"
        raise DataError(f"{path}: {problem}; it is not in a language of the model")
    return corpus


def _write(output: Path, loaded: LoadedModel, kept: tuple[set[str], set[str]]) -> None:
    source, target = loaded.tokenizers.source, loaded.tokenizers.target
    smaller = loaded.tokenizers.without(source.vocabulary.keys() - kept[0], target.vocabulary.keys() - kept[1])
    choices = smaller.choices.values()
    left = {direction_name(sides) for sides in product(*choices)} if len(choices) == 2 else set()
    directions = tuple(name for name in loaded.description.directions if name in left)
    description = loaded.description.model_copy(update={"metrics": {}, "directions": directions})
    origin = f"`{name_in_run(loaded.folder)}` with {smaller.target.vocab_size:,} of {target.vocab_size:,} pieces."
    card = short_card(description, output.name, [origin], smaller.needed)
    save_model(output, refitted(loaded, smaller), description, smaller, card)


def _measured(
    loaded: LoadedModel, output: Path, lines: Sequence[str], kept: set[str], direction: Direction
) -> Trimming:
    """Return the change, measured on translations of `lines`."""
    original, smaller = loaded.directed(direction), load_model(output).directed(direction)
    texts, changed = (_greedy(model, lines) for model in (original, smaller))
    target = original.tokenizers.target
    removed = torch.tensor([id_ for piece, id_ in target.vocabulary.items() if piece not in kept], dtype=torch.long)
    return Trimming(
        loaded.tokenizers.shared,
        Size.of(original),
        Size.of(smaller),
        len(lines),
        _share(original.model, original.tokenizers, list(zip(lines, texts, strict=True)), removed),
        sum(text != other for text, other in zip(texts, changed, strict=True)),
    )


def _greedy(loaded: LoadedModel, lines: Sequence[str]) -> list[str]:
    """Return greedy translations in float32 on the CPU, as the search finds them."""
    steps = TransformerSteps(loaded.model, loaded.tokenizers, start("cpu", None, None).device)
    config = override_search(loaded.description.search, {"beam_size": 1, **ONE_BEST})
    translator = Translator(TorchEngine(steps), loaded.tokenizers, config, repair=False, description=loaded.description)
    return [translation.text for translation in translator.translate(lines)]


@torch.inference_mode()
def _share(
    model: torch.nn.Module, tokenizers: TokenizerPair, pairs: Sequence[tuple[str, str]], removed: Tensor
) -> float:
    """Return the mean probability of the `removed` ids over the tokens of given translations."""
    sources = tokenizers.source.read_all([source for source, _ in pairs])
    targets = tokenizers.target.encode_all([target for _, target in pairs])
    room = model.config.max_length - 2  # the end, and a tag
    shares = []
    for group in token_groups([max(map(len, ids)) + 2 for ids in zip(sources, targets, strict=True)], BATCH_TOKENS):
        rows = [sources[row][:room] for row in group], [targets[row][:room] for row in group]
        batch = collate_translation(*rows, tokenizers, range(len(group)))
        hidden = model(batch.source_ids, batch.source_mask, batch.target_input)[batch.target_mask]  # (N, D)
        shares += [float32_logits(model, part).softmax(-1)[:, removed].sum(-1) for part in hidden.split(1024)]
    return torch.cat(shares).mean().item()
