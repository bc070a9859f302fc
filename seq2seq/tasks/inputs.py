"""The inputs of a run: its completed configuration, its initial model, and its corpora.

`tasks.run` opens them first. Settings of architecture, dropout, tokenizer, search and classification head that the
configuration does not contain are those of the initial model (`training.init_from`).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.description import FREE_MODEL_KEYS
from seq2seq.config.directions import LanguagesConfig, Sides
from seq2seq.config.presets import PRESETS
from seq2seq.config.problems import describe
from seq2seq.config.schema import Config, ModelConfig, SearchConfig, TokenizerConfig, VocabularyConfig
from seq2seq.data.directions import open_set, open_training
from seq2seq.data.examples import Source
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import ConfigError, DataError, shown
from seq2seq.languages import direction_name, languages_named
from seq2seq.store.direction import KEYS
from seq2seq.store.finding import find_model
from seq2seq.store.model_folder import LoadedModel, load_model, load_outline
from seq2seq.tasks.lengths import with_fitting_filters
from seq2seq.text.direction import Direction, find_language
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tagged_tokenizer import TaggedTokenizerPair
from seq2seq.text.tokenizer import SOURCE_FILE, TokenizerPair
from seq2seq.text.trained_with import trained_with

Settings = TypeVar("Settings", SearchConfig, ModelConfig)

# The keys of `tokenizer` that are always those of the run, also with the tokenizers of another model.
OWN_KEYS = frozenset({"init_from", "sampling", "sampling_nbest", "sampling_alpha"})
# Keys of a decoder, which a classifier ignores.
DECODER_KEYS = frozenset({"num_decoder_layers", "tied_embeddings", "output_bias"})
# The keys of `search` that are taken from the initial model; the numbers of returned and sampled translations are not.
SEARCH_KEYS = frozenset(
    {"beam_size", "length_penalty", "early_stopping", "max_extra_steps", "max_length_ratio", "max_length_offset",
     "min_length", "no_repeat_ngram", "renormalize"}
)  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """The opened inputs of a run: the fingerprints of the corpora are known, and their content is not in memory."""

    config: Config
    """The configuration, completed by `complete`."""
    initial: LoadedModel | None
    cache: Path
    """The folder of tokenised corpora and of facts about large files."""
    train: tuple[Source, ...]
    """Training corpora; of a model of many directions, one for each direction of each corpus."""
    origins: tuple[int, ...]
    """For each of `train`, the index of its corpus in `data.train`."""
    valid: Mapping[str, Source]
    """Validation sets by name, as `data.valid_sets`."""
    tests: Mapping[str, Source]
    added_pieces: Path | None = None
    """The table of the pieces that `training.vocabulary` added."""
    given_tokenizers: TokenizerPair | None = None
    """The tokenizers of `tokenizer.init_from`."""

    @classmethod
    def open(cls, config: Config, cache: Path) -> "Inputs":
        """Open the initial model and the corpora of a configuration.

        Raises:
            ModelError: the initial model is missing or damaged.
            ConfigError: a written key differs from the initial model, or the initial model has no decoder.
            DataError: a corpus cannot be read in the configured format.
        """

        def opened(source: SourceConfig, name: str = "") -> Source:
            if config.task == "classification":
                return open_labelled(source, cache, config.data.label_names)
            if config.languages is not None:
                return open_set(source, config.languages, name, cache)
            return open_pairs(source, config.source_language or "", config.target_language or "", cache)

        def training(source: SourceConfig) -> list[Source]:
            return [opened(source)] if config.languages is None else open_training(source, config.languages, cache)

        given = given_tokenizers(config)
        initial = load_model(config.training.init_from) if config.training.init_from else None
        train = [(index, one) for index, source in enumerate(config.data.train) for one in training(source)]
        origins, sources = zip(*train, strict=True) if train else ((), ())
        table = None
        if initial is not None and config.task == "translation":
            if config.training.vocabulary != VocabularyConfig():
                from seq2seq.tasks.vocabulary import fitted

                languages = _only_languages(config, initial)
                initial, table = fitted(initial, config.training.vocabulary, sources, cache, languages)
            initial = _directed(config, initial)
        tokenizers = given if initial is None else initial.tokenizers
        config = complete(config, initial, given)
        check_tags(config, sources, tokenizers)
        valid, tests = (
            {name: opened(source, name) for name, source in sets.items()}
            for sets in (config.data.valid_sets, config.data.test)
        )
        return cls(config, initial, cache, sources, origins, valid, tests, table, given)

    @property
    def valid_by_key(self) -> dict[str, Source]:
        """The validation sets by configuration key."""
        is_one = isinstance(self.config.data.valid, SourceConfig)
        return {"data.valid" if is_one else f"data.valid.{name}": source for name, source in self.valid.items()}

    @property
    def held_out(self) -> dict[str, Source]:
        """The validation and test sets by configuration key."""
        return self.valid_by_key | {f"data.test.{name}": source for name, source in self.tests.items()}

    @property
    def test_fingerprints(self) -> dict[str, str]:
        """The fingerprints of the test sets by name, which are stored with scores."""
        return {name: source.fingerprint for name, source in self.tests.items()}

    @property
    def trained(self) -> tuple[Sides, ...]:
        """The directions that are trained; none if there is only one."""
        return tuple(dict.fromkeys(source.direction for source in self.train if source.direction))

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the directions that the model learns, or that the initial model has learned."""
        before = self.initial.description.directions if self.initial is not None and self.trained else ()
        return tuple(dict.fromkeys([*before, *map(direction_name, self.trained)]))

    @property
    def tagged_languages(self) -> dict[str, str]:
        """The languages of a run of one direction, under the names of their tags, as a change of the description.

        It has the target alone if users may type the tags (OPUS-MT), and is empty for a model without tags.
        """
        initial = self.initial
        if self.config.task != "translation" or self.config.languages is not None or initial is None:
            return {}
        tokenizers, typed = initial.tokenizers, ["target"] if initial.tokenizers.source.tag_ids else []
        sides = list(tokenizers.choices) if tokenizers.needs_direction else typed
        names = {key: getattr(initial.description, key) for side, key in KEYS.items() if side in sides}
        return {key: name for key, name in names.items() if name}

    def identity(self) -> dict[str, str]:
        """Return the fingerprints of training and validation data and of the initial model, by configuration key."""
        keys, fingerprints = list(self.config.data.train_sources), {}
        for index, source in zip(self.origins, self.train, strict=True):
            key = keys[index]
            fingerprints[key] = "-".join(filter(None, [fingerprints.get(key), source.fingerprint]))
        fingerprints |= {key: source.fingerprint for key, source in self.valid_by_key.items()}
        if self.initial is not None:
            tokenizers = self.initial.tokenizers
            if isinstance(tokenizers, TaggedTokenizerPair):  # runs began with the fingerprint for all directions
                tokenizers = tokenizers.undirected
            content = json.dumps([self.initial.files, tokenizers.fingerprint], sort_keys=True)
            fingerprints["training.init_from"] = hashlib.sha256(content.encode()).hexdigest()
        if self.given_tokenizers is not None:
            fingerprints["tokenizer.init_from"] = self.given_tokenizers.fingerprint
        return fingerprints


def completed(config: Config) -> tuple[Config, TokenizerPair | None]:
    """Return a configuration, completed by `complete`, and the tokenizers that the run begins with, if it does not
    train new ones. Corpora and weights are not read, and `training.vocabulary` is not applied; errors are those of
    `Inputs.open`.
    """
    given = given_tokenizers(config)
    if config.training.init_from is None:
        return complete(config, None, given), given
    initial = load_outline(config.training.init_from)
    if config.training.vocabulary != VocabularyConfig():  # written keys may be those of the changed vocabulary
        own = config.tokenizer.model_dump(include=OWN_KEYS)
        config = config.model_copy(update={"tokenizer": TokenizerConfig.model_validate(own)})
    if config.task == "translation":
        initial = _directed(config, initial)
    return complete(config, initial), initial.tokenizers


def _directed(config: Config, initial: LoadedModel) -> LoadedModel:
    """Return an initial translation model in the directions of the run, or with the tag of its target language."""
    if initial.tokenizers.needs_direction:
        return _in_directions_of(config, initial)
    return _with_tag_of_target(config, initial)


def _in_directions_of(config: Config, initial: LoadedModel) -> LoadedModel:
    """Return a model of many languages in the direction of a run, or in all if the run has many.

    Raises:
        ConfigError: the run has many directions, and the model has other languages.
        UserError: as `LoadedModel.directed`.
    """
    if config.languages is None:
        return initial.directed(Direction(config.source_language, config.target_language), KEYS)
    own = getattr(initial.tokenizers, "languages", None)
    if own is None:
        _check_names(config.languages, initial.tokenizers)
        return initial
    wanted = config.languages  # earlier versions gave some languages other tags, which the model keeps
    if (own.source, own.target, own.tags) != (wanted.source, wanted.target, wanted.tags):
        sides = f"source: [{', '.join(own.source)}], target: [{', '.join(own.target)}], tags: {own.tags}"
        ways = "write them so, or train one direction with source_language and target_language"
        raise ConfigError("config", [f"languages: the model of training.init_from has {{{sides}}}; {ways}"])
    return initial


def _with_tag_of_target(config: Config, initial: LoadedModel) -> LoadedModel:
    """Return a model whose sources need no tag, with the tag of the target language of the run if it is one of several
    (OPUS-MT); texts that begin with another tag keep that.

    Raises:
        ConfigError: the run has many directions.
    """
    if config.languages is not None:
        ways = "name a model of many languages, such as NLLB, or train one direction with source_language and "
        problem = f"languages: the model of training.init_from has no tags for them; {ways}target_language"
        raise ConfigError("config", [problem])
    same = languages_named(config.target_language or "", initial.tokenizers.choices.get("target", ()))
    return initial.directed(Direction(target=same[0]), KEYS) if len(same) == 1 else initial


def _check_names(languages: LanguagesConfig, tokenizers: TokenizerPair) -> None:
    """Refuse languages of a run that are not those of its initial model, which comes from another toolkit.

    Raises:
        ConfigError: the model has its tags at other places.
        UserError: it does not have a language, or names it in another way.
    """
    if languages.tags != "decoder":
        problem = (
            f"languages.tags: {languages.tags} is not what the model of training.init_from has; write tags: decoder"
        )
        raise ConfigError("config", [problem])
    if not tokenizers.tags_come_first:
        ways = "train one direction with source_language and target_language"
        raise ConfigError("config", [f"languages: the model of training.init_from has tags at the end; {ways}"])
    for side in ("source", "target"):
        for name in getattr(languages, side):
            if (known := find_language(name, tokenizers.choices[side], f"languages.{side}:")) != name:
                raise ConfigError("config", [f"languages.{side}: the model of training.init_from names {name} {known}"])


def _only_languages(config: Config, initial: LoadedModel) -> list[str]:
    """Return the languages whose tags a trimmed vocabulary keeps: those of the run, or none if all stay, as those of a
    model that was trained here in many directions.

    Raises:
        UserError: as `LoadedModel.directed`.
    """
    if not initial.tokenizers.needs_direction:
        return []
    found = _in_directions_of(config, initial)
    if config.languages is None:
        return list(filter(None, found.description.languages))
    return [] if hasattr(initial.tokenizers, "languages") else list(config.languages.pieces)


def complete(config: Config, initial: LoadedModel | None, given: TokenizerPair | None = None) -> Config:
    """Return the configuration, with the unwritten settings of the initial model, or of the `given` tokenizers.

    `data.filters.max_length` is lowered by `with_fitting_filters`.

    Raises:
        ConfigError: a written key differs from the initial model, the initial model has no decoder, or the model does
            not fit the given tokenizers.
    """
    if initial is not None:
        if config.task == "translation" and initial.description.task != "translation":
            raise ConfigError("config", ["training.init_from: a classifier has no decoder; name a translation model"])
        changes = {
            "model": _model(config, initial.description.model),
            "tokenizer": _tokenizer(config, initial.tokenizers, "training.init_from"),
        }
        if config.task == "translation":
            unwritten = SEARCH_KEYS - config.search.model_fields_set
            taken = initial.description.search.model_dump(include=unwritten)
            changes["search"] = _with_those_of(SearchConfig, {**dict(config.search), **taken}, "search")
        elif initial.description.task == "classification":
            written = {key: getattr(config.classifier, key) for key in config.classifier.model_fields_set}
            changes["classifier"] = initial.description.classifier.model_copy(update=written)
        config = config.model_copy(update=changes)
    elif given is not None:
        config = config.model_copy(update={"tokenizer": _tokenizer(config, given, "tokenizer.init_from")})
        if config.task == "translation" and config.model.tied_embeddings == "all" and not config.tokenizer.shared:
            problem = "all, but the tokenizers of tokenizer.init_from have two vocabularies; set it to decoder"
            raise ConfigError("config", [f"model.tied_embeddings: {problem}"])
    return with_fitting_filters(config, given if initial is None else initial.tokenizers)


def check_tags(
    config: Config,
    sources: Iterable[Source],
    tokenizers: TokenizerPair | None,
    remedy: str = "make the folder again without --tag",
) -> None:
    """Refuse corpora whose tag is not a piece of the source tokenizer; a new one gets `tokenizer.extra_pieces`.

    Raises:
        DataError: a tag is not a piece. The message ends with the `remedy`, if the tokenizers are not new.
    """
    pieces = set(config.tokenizer.extra_pieces if tokenizers is None else tokenizers.source.text_pieces())
    for source in sources:
        if source.tag is not None and source.tag not in pieces:
            said = f"add {source.tag} to tokenizer.extra_pieces" if tokenizers is None else remedy
            raise DataError(
                f"{source.name}: its sources begin with {source.tag}, which is not a piece of the tokenizer; {said}"
            )


def given_tokenizers(config: Config) -> TokenizerPair | None:
    """Return the tokenizers of `tokenizer.init_from`, unless there is an initial model, whose tokenizers are used.

    Raises:
        ConfigError: their texts need tags of languages, or those of the run do.
        ModelError: the model is missing or damaged.
    """
    if config.tokenizer.init_from is None or config.training.init_from is not None:
        return None
    if config.languages is not None:
        raise ConfigError("config", ["tokenizer.init_from: not with languages, whose tags are pieces; leave it out"])
    folder = find_model(config.tokenizer.init_from)
    is_plain = (folder / SOURCE_FILE).is_file()  # else a folder of transformers
    tokenizers = load_tokenizers(folder) if is_plain else load_model(folder).tokenizers
    if tokenizers.needs_direction:
        raise ConfigError("config", ["tokenizer.init_from: a model of many languages; name it in training.init_from"])
    return tokenizers


def _tokenizer(config: Config, initial: TokenizerPair, origin: str) -> TokenizerConfig:
    """Return the settings of the tokenizers of `origin`, a key, with the settings that are always those of the run.

    Raises:
        ConfigError: a written key differs from these tokenizers.
    """
    written = {key: getattr(config.tokenizer, key) for key in config.tokenizer.model_fields_set - OWN_KEYS}
    shared = initial.source.vocabulary == initial.target.vocabulary
    held = {"vocab_size": initial.source.vocab_size, "shared": shared, **trained_with(initial.source.model_bytes)}
    holds = TokenizerConfig.model_construct(**{**dict(TokenizerConfig()), **held})
    problems = [
        f"tokenizer.{key}: {shown(value)}, but the tokenizers of {origin} have {shown(getattr(holds, key))}; "
        "leave the key out"
        for key, value in sorted(written.items())
        if value != getattr(holds, key)
    ]
    if problems:
        raise ConfigError("config", problems)
    own = {key: getattr(config.tokenizer, key) for key in OWN_KEYS}
    known = {key: value for key, value in held.items() if _is_possible(key, value)}
    return TokenizerConfig.model_validate({**known, **own})


def _is_possible(key: str, value: Any) -> bool:
    """Whether a key of `TokenizerConfig` may have this value, which the tokenizer of another toolkit may not."""
    try:
        TokenizerConfig.model_validate({key: value})
    except ValidationError:
        return False
    return True


def _model(config: Config, initial: ModelConfig) -> ModelConfig:
    given = config.model.model_fields_set
    preset = config.model.preset if "preset" in given else None
    written = {key: getattr(config.model, key) for key in given | PRESETS.get(preset or "", {}).keys()}
    free = FREE_MODEL_KEYS - ({"max_length"} if initial.positions == "learned" else set())
    fixed = written.keys() - free - (DECODER_KEYS if config.task == "classification" else set())
    problems = []
    for key in sorted(fixed):
        if written[key] != (value := getattr(initial, key)):
            ours = shown(written[key])
            named = f"{key}: {ours}" if key in given else f"preset: {preset} has {key} {ours}"
            problems.append(f"model.{named}, but the model of training.init_from has {shown(value)}; leave the key out")
    if problems:
        raise ConfigError("config", problems)
    return _with_those_of(ModelConfig, {**dict(initial), **written, "preset": None}, "model")


def _with_those_of(kind: type[Settings], values: Mapping[str, Any], section: str) -> Settings:
    """Return the settings of a section, of which those that are not written are those of the initial model.

    Raises:
        ConfigError: they do not fit together.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        found = [describe({**each, "loc": (section, *each["loc"])}) for each in error.errors()]
        others = f"{section}: keys that are not written have the values of the model of training.init_from"
        raise ConfigError("config", [*found, others]) from error
