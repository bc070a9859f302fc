"""A translation model with a larger vocabulary, or with another one: new rows are made of old ones.

`s2s vocabulary extend` and `transplant` use it; `text.extending` finds the pieces, `store.vocabulary` makes the rows.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch import Tensor

from seq2seq.errors import DataError, ModelError, UserError, counted
from seq2seq.languages import languages_named
from seq2seq.lines import read_lines
from seq2seq.store.finding import check_new, name_in_run
from seq2seq.store.model_card import short_card
from seq2seq.store.model_folder import LoadedModel, load_model, save_model
from seq2seq.store.vocabulary import refitted
from seq2seq.text.direction import find_language
from seq2seq.text.extending import TABLE, Extended, extended, first_of_each
from seq2seq.text.marian_tokenizer import EOS, PAD, UNK, MarianTokenizer, MarianTokenizerPair
from seq2seq.text.multilingual_tokenizer import BOS, MultilingualTokenizerPair, pair_of
from seq2seq.text.tagged_tokenizer import TaggedTokenizerPair
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.text.trimming import distinct_readers, may_read
from seq2seq.workflows.vocabulary import Size

# Lines of all corpora that pieces are learned from and counted in.
MOST_LINES = 1_000_000
_TAG = re.compile(r"[A-Za-z]{2,8}(?:[_-][A-Za-z0-9]{2,8}){0,2}")
Side = Literal["source", "target"]


@dataclass(frozen=True)
class Extension:
    """The additions to a model, and its sizes before and after."""

    before: Size
    after: Size
    tag: str | None
    """The piece of a new language."""
    vocabulary: Extended

    def lines_of_report(self) -> list[str]:
        """Return the figures and the most frequent new pieces as lines of text."""
        tag = [f"added: the tag {self.tag}"] if self.tag else []
        return [*tag, *self.vocabulary.lines_of_report(), *_sizes(self.before, self.after)]

    def as_json(self) -> dict[str, object]:
        """Return the figures and all new pieces for JSON."""
        known = self.vocabulary
        values = {"tag": self.tag, "unknown": known.unknown, "tokens": known.tokens}
        return {
            "before": vars(self.before), "after": vars(self.after), **values, "pieces": [*map(vars, known.pieces)],
        }  # fmt: skip


@dataclass(frozen=True)
class Transplant:
    """The sizes of a model before and after another tokenizer, and what it kept."""

    before: Size
    after: Size
    kept: int
    """Pieces of the target that both vocabularies have."""

    def lines_of_report(self) -> list[str]:
        """Return the figures as lines of text."""
        made = self.after.target_pieces - self.kept
        return [f"pieces: {self.kept:,} kept, {made:,} made of old ones", *_sizes(self.before, self.after)]

    def as_json(self) -> dict[str, object]:
        """Return the figures for JSON."""
        return {"before": vars(self.before), "after": vars(self.after), "kept": self.kept}


def extend(
    model: Path,
    corpora: Sequence[Path],
    output: Path,
    pieces: int = 2000,
    side: Side | None = None,
    tag: tuple[str, str] | None = None,
) -> Extension:
    """Write a model with the characters that `corpora` need, and pieces learned on them, into the folder `output`.

    Args:
        model: a translation model, as of `load_model`.
        corpora: texts; with two tokenizers, a corpus counts for the side whose tokenizer knows its characters and
            spells it in fewer pieces, or for both (`text.trimming.may_read`).
        output: a new or empty folder.
        pieces: the largest number of learned pieces of each tokenizer.
        side: with two tokenizers, the only one to extend.
        tag: a new language, and the language whose tag its tag begins as.

    Raises:
        UserError: a language is wrong, or there is nothing to add.
        DataError: a corpus cannot be read or is empty.
        ModelError: the model cannot be read or is no translation model, or `output` exists and is not an empty folder.
        RunError: `output` cannot be written.
    """
    check_new(output)
    loaded = _load(model, "extended")
    tagged, like = _with_tag(model, loaded.tokenizers, tag)
    if side is not None and len(distinct_readers(tagged)) == 1:
        raise UserError(f"--side: {model} has one tokenizer for both sides; leave the option out")
    larger = extended(tagged, _texts_by_reader(corpora, distinct_readers(tagged), side), pieces)
    if not larger.is_larger and not like:
        more = ", and no sequence of pieces is frequent enough" if pieces else ""
        problem = f"the vocabulary has every character of the corpora{more}"
        raise UserError(f"{model}: nothing to add: {problem}; keep the model, or give more text")
    weights = refitted(loaded, larger.tokenizers, larger.counts, like)
    note = f"`{name_in_run(loaded.folder)}` with {counted(len(larger.pieces), 'more piece')}, listed in `{TABLE}`."
    sizes = _save(output, loaded, larger.tokenizers, weights, note, {TABLE: larger.table()})
    return Extension(*sizes, next(iter(like), None), larger)


def transplant(model: Path, tokenizer: Path, output: Path) -> Transplant:
    """Write a model with another tokenizer into the folder `output`.

    A piece that the model has keeps its rows; those of another piece are made of the old pieces that spell it.

    Args:
        model: a translation model, as of `load_model`.
        tokenizer: a .spm file, or a model whose tokenizers are taken.
        output: a new or empty folder.

    Raises:
        UserError: `tokenizer` has the vocabulary of the model.
        ModelError: a model or tokenizer cannot be read, or does not fit; or as `extend`.
        RunError: `output` cannot be written.
    """
    check_new(output)
    loaded = _load(model, "changed")
    old, new = loaded.tokenizers.undirected, _tokenizers_of(tokenizer, loaded)
    if new.fingerprint == old.fingerprint:
        raise UserError(f"{tokenizer}: nothing to do: {model} has these tokenizers already")
    if loaded.description.model.tied_embeddings == "all" and not new.shared:
        raise ModelError(f"{tokenizer}: two vocabularies, but {model} has one matrix of embeddings for both sides")
    kept = len(old.target.vocabulary.keys() & new.target.vocabulary.keys())
    note = f"`{name_in_run(loaded.folder)}` with the tokenizer `{tokenizer.name}`."
    return Transplant(*_save(output, loaded, new, refitted(loaded, new), note), kept)


def _load(model: Path, verb: str) -> LoadedModel:
    loaded = load_model(model)
    if loaded.description.task != "translation":
        raise ModelError(f"{model}: a {loaded.description.task} model; only translation models can be {verb}")
    return loaded


def _save(
    output: Path,
    loaded: LoadedModel,
    tokenizers: TokenizerPair,
    weights: Mapping[str, Tensor],
    origin: str,
    others: Mapping[str, str] | None = None,
) -> tuple[Size, Size]:
    """Write the changed model, and return the sizes before and after."""
    description = loaded.description.model_copy(update={"metrics": {}})
    card = short_card(description, output.name, [origin], tokenizers.needed)
    save_model(output, weights, description, tokenizers, card, others)
    numbers = sum(tensor.numel() for tensor in weights.values())
    return Size.of(loaded), Size(tokenizers.source.vocab_size, tokenizers.target.vocab_size, numbers)


def _sizes(before: Size, after: Size) -> list[str]:
    vocabularies = [
        f"{size.source_pieces:,}" + (f" + {size.target_pieces:,}" if size.target_pieces != size.source_pieces else "")
        for size in (before, after)
    ]
    parameters = [f"{size.parameters:,} ({size.megabytes:,.1f} MB in float32)" for size in (before, after)]
    return [f"vocabulary: {' -> '.join(vocabularies)} pieces", f"parameters: {' -> '.join(parameters)}"]


def _with_tag(
    model: Path, tokenizers: TokenizerPair, tag: tuple[str, str] | None
) -> tuple[TokenizerPair, dict[str, str]]:
    """Return the tokenizers with a new language, and by its piece the one that it begins as."""
    if tag is None:
        return tokenizers, {}
    tags, (name, given) = tokenizers.source.tags, tag
    if isinstance(tokenizers, TaggedTokenizerPair):
        raise UserError(f"--tag: {model} was trained with `languages`; only models of other toolkits get more tags")
    if not isinstance(tokenizers, MarianTokenizerPair) or not tags:
        raise UserError(f"--tag: {model} has no tags of languages; leave the option out")
    like = find_language(given, tags, "--like")
    if not _TAG.fullmatch(name):
        raise UserError(f"--tag {name}: not a name such as {like}: letters, perhaps with '_' and a script or region")
    if same := languages_named(name, list(tags)):
        raise UserError(f"--tag {name}: the model has this language already ({same[0]}); leave the option out")
    tagged = tokenizers.with_tag(name, like)
    # a segmenter may spell a piece that the vocabulary does not number
    known = ({*reader.vocabulary, *Tokenizer(reader.model_bytes).vocabulary} for reader in distinct_readers(tokenizers))
    if any(tagged.source.tags[name] in pieces for pieces in known):
        problem = "the model spells text with a piece of this name"
        raise UserError(f"--tag {name}: {problem}; give the language another one, such as {name}_Latn")
    return tagged, {tagged.source.tags[name]: tags[like]}


def _texts_by_reader(corpora: Sequence[Path], readers: Sequence[Tokenizer], side: Side | None) -> list[list[str]]:
    """Return the lines of the corpora from which each tokenizer learns."""
    texts: list[list[str]] = [[] for _ in readers]
    every = ((line for line in read_lines(path) if line.strip()) for path in corpora)
    for path, lines in zip(corpora, first_of_each(every, MOST_LINES), strict=True):
        if not lines:
            raise DataError(f"{path}: there is no text; name another file")
        chosen = [name == side for name in ("source", "target")] if side else may_read(readers, lines)
        for own, is_chosen in zip(texts, chosen, strict=True):
            own += lines if is_chosen else []
    return texts


def _tokenizers_of(given: Path, loaded: LoadedModel) -> TokenizerPair:
    """Return the tokenizers of a .spm file or a model, with the tags of the languages of `loaded`."""
    own, pair = loaded.tokenizers.undirected, None
    if isinstance(own, TaggedTokenizerPair):
        problem = "was trained with `languages`, whose tags are pieces of its tokenizer; it cannot have another one"
        raise ModelError(f"{loaded.folder}: {problem}")
    if given.is_file():
        plain = Tokenizer.load(given)
        readers = [plain]
        if min(plain.pad_id, plain.start_id, plain.eos_id) >= 0:
            pair = TokenizerPair(plain, plain)
    else:
        pair = _load(given, "used here").tokenizers.undirected
        readers = [Tokenizer(reader.model_bytes) for reader in distinct_readers(pair)]
    tags = own.source.tags
    if pair is not None and not tags and not pair.source.tags:
        return pair
    if isinstance(own, MultilingualTokenizerPair):
        if len(readers) > 1:
            raise ModelError(f"{given}: a tokenizer for each side, but {loaded.folder} has one for all languages")
        tagging = replace(own.source.tagging, silent=())
        return pair_of(readers[0].model_bytes, _numbered([BOS, PAD, EOS, UNK], readers, tags.values()), tagging)
    groups = [readers] * len(readers) if pair is None or pair.shared else [[reader] for reader in readers]
    tables = [_numbered([EOS, UNK, *tags.values()], group, [PAD]) for group in groups]
    sides = [MarianTokenizer(reader.model_bytes, table) for reader, table in zip(readers, tables, strict=True)]
    return MarianTokenizerPair(sides[0], sides[-1])


def _numbered(first: Sequence[str], readers: Sequence[Tokenizer], last: Iterable[str]) -> dict[str, int]:
    """Return the ids of one vocabulary with the pieces of all these tokenizers."""
    named, pieces = dict.fromkeys([*first, *last]), dict.fromkeys(first)
    for reader in readers:
        # marks of sequences, and tags of a model with many languages
        control = set(reader.pieces(filter(reader.processor.is_control, range(reader.vocab_size)))) - named.keys()
        pieces |= dict.fromkeys(piece for piece in reader.pieces(range(reader.vocab_size)) if piece not in control)
    return {piece: id_ for id_, piece in enumerate(dict.fromkeys([*pieces, *last]))}
