"""The corpora of a run, as the configuration names them.

`config` holds them as its section `data`; the part of the toolkit that reads corpora receives that section alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_serializer, model_serializer, model_validator

from seq2seq.config import ranges
from seq2seq.config.ranges import Range
from seq2seq.config.values import (
    Column,
    Dataset,
    ExistingFile,
    FileOrParts,
    LabelNames,
    NewFolder,
    Positive,
    Section,
    SourceName,
    TestSetName,
    check_one_folder,
    one_or_more,
    with_text_keys,
)

Set = TypeVar("Set")


class NoiseConfig(Section):
    """Perturbations of a source; each key is the share of examples that are changed, drawn anew for each line."""

    kinds: ClassVar[tuple[str, ...]] = (
        "upper", "title", "lost_punctuation", "repeated_punctuation", "typos", "copies",
    )  # fmt: skip
    upper: Annotated[float, ranges.SHARE] = 0.0
    """All capitals, on both sides."""
    title: Annotated[float, ranges.SHARE] = 0.0
    """Each Word With A Capital, on both sides."""
    lost_punctuation: Annotated[float, ranges.SHARE] = 0.0
    """Final punctuation mark removed, on both sides."""
    repeated_punctuation: Annotated[float, ranges.SHARE] = 0.0
    """Final punctuation mark of the source repeated two to four times."""
    typos: Annotated[float, ranges.SHARE] = 0.0
    """Typos in about every tenth word of the source."""
    copies: Annotated[float, ranges.SHARE] = 0.0
    """An emoji, an invented name or a number appended to both sides, so that the model learns to copy."""
    seed: Annotated[int, ranges.SEED] = 1
    """Seed of the noise; use different seeds for two noisy copies of one corpus."""

    @property
    def changes_case(self) -> bool:
        """Whether a kind of noise changes case, by the rules of a language."""
        return bool(self.upper or self.title)


FILES = ("source", "target", "tsv", "jsonl", "tmx")  # the keys of a source that are paths


class SourceConfig(Section):
    """The source of examples: exactly one of `source` + `target`, `tsv`, `jsonl`, `tmx` or `hub`."""

    name: SourceName | None = None
    """Name in the weights of `data.stages`; several sources may share one."""
    source: ExistingFile | None = None
    """Text file, one sentence per line; may be compressed with gzip."""
    target: ExistingFile | None = None
    """Its translations, line by line."""
    tsv: ExistingFile | None = None
    """Tab-separated file, or a CSV (comma or semicolon) whose name ends in .csv; one record per line."""
    jsonl: FileOrParts | None = None
    """One JSON object per line, flat or `{"translation": {"en": ..., "de": ...}}`; or a folder of `s2s augment` or
    `s2s filter`."""
    tmx: ExistingFile | None = None
    """Translation memory (TMX), gzip allowed; units with both languages are read."""
    hub: Dataset | None = None
    """Dataset of the Hugging Face hub by name, or a local dataset folder."""
    subset: str | None = None
    """Configuration name of a hub dataset (`de-en` of `wmt14`)."""
    split: str = "train"
    """Split of a hub dataset."""
    streaming: bool = False
    """Read a hub dataset as a stream, shard after shard, instead of downloading it first."""
    source_column: Column = None
    """Column of the source text: a name, or an index for a TSV without header; default: the language or 0."""
    target_column: Column = None
    """Column of the target text; default: the language or 1."""
    text_column: Column = None
    """Classification: column of the text; default `sentence` or `text`."""
    label_column: Column = None
    """Classification: column of the label, or in `jsonl` and `hub` of an object with the probability of each label
    (distillation); default `probabilities` if that is such an object, else `label`."""
    from_: str | None = Field(default=None, alias="from")
    """With `languages`: language of the source."""
    to: str | None = None
    """With `languages`: language of the target."""
    both_ways: bool = False
    """With `languages`: train the reverse direction on the same pairs too."""
    from_column: str | None = None
    """With `languages` and jsonl: key of the language of the source, if each line has its own direction."""
    to_column: str | None = None
    """Key of the language of the target."""
    noise: NoiseConfig | None = None
    """Perturb the examples as they are read; typically set on a second copy of the source, with a small weight."""
    weight: Annotated[float, Range(1e-6, 1000.0)] = 1.0
    """Number of times that each example is seen per epoch; with 2.5, each is seen twice, and half of them once more.
    With `data.stages`, the weights of the stages take its place."""

    @model_validator(mode="wrap")
    @classmethod
    def _of_one_folder(
        cls, given: Any, validate: Callable[[Any], "SourceConfig"], info: ValidationInfo
    ) -> "SourceConfig":
        found = validate(given)
        if isinstance(given, Mapping) and None not in (found.source, found.target):
            check_one_folder(given["source"], given["target"], info.context)
        return found

    @model_validator(mode="after")
    def _one_kind(self) -> "SourceConfig":
        for side, other in (("source", "target"), ("target", "source")):
            if getattr(self, side) is not None and getattr(self, other) is None:
                raise ValueError(f"has {side} but no {other}; two text files need both")
        kinds = [kind for kind in ("source", "tsv", "jsonl", "tmx", "hub") if getattr(self, kind) is not None]
        if len(kinds) != 1:
            given = " and ".join(kinds) or "none"
            raise ValueError(f"needs exactly one of source + target, tsv, jsonl, tmx, hub; {given} given")
        if (self.from_column is None) != (self.to_column is None):
            raise ValueError("from_column and to_column belong together; give both")
        if self.from_column is not None and (self.jsonl is None or self.from_ is not None or self.to is not None):
            raise ValueError("from_column and to_column are for jsonl without from and to")
        return self

    @model_serializer(mode="wrap")
    def _without_unset(self, serialize: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        values = {"from" if key == "from_" else key: value for key, value in serialize(self).items()}
        return {key: value for key, value in values.items() if value is not None and (key != "both_ways" or value)}

    @property
    def dataset(self) -> str | None:
        """The name of `hub`; of a local folder without the folders that it is in."""
        return Path(self.hub).name if self.hub and Path(self.hub).is_absolute() else self.hub

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield (key, path) of every local file that this source names."""
        for key in FILES:
            if (path := getattr(self, key)) is not None:
                yield key, path


def held_out_names(valid: Mapping[str, Set], tests: Mapping[str, Set]) -> dict[str, Set]:
    """Return the validation and test sets by name.

    A test set is called `test NAME` if its name is `train` or that of another set.
    """
    sets = dict(valid)
    for name, each in tests.items():
        while name in sets or name == "train":
            name = f"test {name}"
        sets[name] = each
    return sets


def also_clean(corpora: Iterable[SourceConfig]) -> Iterator[SourceConfig]:
    """Yield each corpus, and each with noise without it too: what is held out with noise is held out without it."""
    for corpus in corpora:
        yield corpus
        if corpus.noise is not None:
            yield corpus.model_copy(update={"noise": None})


class StageConfig(Section):
    """A stage of training, with weights of its own for the sources of `data.train`."""

    until_epoch: Positive | None = None
    """Number of epochs, counted from the start of training, after which the next stage begins; of every stage but the
    last."""
    weights: Annotated[dict[str, Annotated[float, Range(0.0, 1000.0)]], with_text_keys]
    """The `weight` of the sources in this stage, by name; a source without one is not seen."""
    restart: bool = False
    """Start the schedule of the learning rate again, with its warm-up, for this stage and those up to the next
    restart."""

    @model_validator(mode="after")
    def _sees_something(self) -> "StageConfig":
        if not any(self.weights.values()):
            raise ValueError("no source has a weight above 0; raise one, such as weights: {genuine: 1}")
        return self


class FilterConfig(Section):
    """Rules for pairs that are left out of training; dropped pairs are counted for each rule."""

    max_length: Positive = 200
    """Longest side kept, in pieces."""
    min_length: Positive = 1
    """Shortest side kept, in pieces."""
    max_ratio: Annotated[float, Range(1.0, 1e6)] = 3.0
    """Largest ratio of the two lengths in pieces, for pairs whose longer side has more than 10."""
    drop_duplicates: bool = True
    """Deduplicate: leave out pairs that equal an earlier one."""
    drop_copies: bool = False
    """Leave out pairs whose target is the source."""


def _is_one_set(given: Any) -> str:
    """Return the kind of a value of `data.valid`: one source, or sources by name."""
    names = given.keys() if isinstance(given, Mapping) else ()
    values = given.values() if isinstance(given, Mapping) else ()
    keys = {field.alias or name for name, field in SourceConfig.model_fields.items()}
    are_named = all(isinstance(value, Mapping | SourceConfig) for value in values) and not keys.intersection(names)
    return NAMED if names and are_named else ONE


# Kinds of `data.valid`, which pydantic adds to the path of a key.
ONE, NAMED = "[one]", "[named]"


class DataConfig(Section):
    """The corpora of a run."""

    train: Annotated[tuple[SourceConfig, ...], one_or_more]
    """One source, or a list of sources mixed by weight."""
    stages: Annotated[tuple[StageConfig, ...], Field(strict=False)] = ()
    """Stages of training, in order, each with its own weights of the sources; by default there is one."""
    temperature: Annotated[float, Range(1.0, 1000.0)] = 1.0
    """With `languages`: the share of a direction is proportional to size^(1/temperature); `weight` multiplies it."""
    valid: Annotated[
        Annotated[SourceConfig, Tag(ONE)] | Annotated[dict[TestSetName, SourceConfig], Tag(NAMED)],
        Discriminator(_is_one_set),
    ]
    """The set that decides which checkpoint is best; with `languages`, several by name, such as `en-de`."""
    test: Annotated[dict[TestSetName, SourceConfig], with_text_keys] = Field(default_factory=dict)
    """Test sets by name, scored when training ends and by `s2s bleu --model`."""
    filters: FilterConfig = FilterConfig()
    """Filters of the training data; validation and test sets are never filtered."""
    cache_dir: NewFolder | None = None
    """Folder of the tokenised corpora; default: `cache` next to the run folder."""
    num_workers: Annotated[int, ranges.WORKERS] = 0
    """Number of tokenising processes; 0 is one per CPU."""
    label_names: LabelNames = Field(default_factory=dict)
    """Classification: names shown in place of the labels in the data, such as {"0": negative}."""

    @property
    def train_sources(self) -> dict[str, SourceConfig]:
        """The sources of `train` by key; a single one has the key `data.train`, several `data.train.0` and so on."""
        if len(self.train) == 1:
            return {"data.train": self.train[0]}
        return {f"data.train.{index}": source for index, source in enumerate(self.train)}

    @property
    def valid_sets(self) -> dict[str, SourceConfig]:
        """The validation sets by name; a single one has the name `valid`."""
        return {"valid": self.valid} if isinstance(self.valid, SourceConfig) else self.valid

    @property
    def held_out(self) -> dict[str, SourceConfig]:
        """The validation and test sets, by names that `held_out_names` gives."""
        return held_out_names(self.valid_sets, self.test)

    @field_serializer("train")
    def _as_written(self, train: tuple[SourceConfig, ...]) -> Any:
        return train[0] if len(train) == 1 else train
