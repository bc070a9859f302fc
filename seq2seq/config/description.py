"""Description of a model: all that it is besides its weights and tokenizers.

`tasks` derives it from the configuration of a run; `store` and `interop` read and write it next to the weights, in
folders of every format.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_serializer, model_validator

from seq2seq.config.schema import ClassifierConfig, Config, ModelConfig, SearchConfig
from seq2seq.config.values import Label, Section, displayed_labels

# Keys that change neither the weights nor what they compute, except `max_length` with learned positions.
FREE_MODEL_KEYS = frozenset(
    {"preset", "dropout", "attention_dropout", "activation_dropout", "word_dropout", "max_length", "initialization"}
)


class ModelDescription(Section):
    """Task, languages, settings, labels and metrics of one model; frozen. Unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore")

    task: Literal["translation", "classification"] = "translation"
    source_language: str | None = None
    target_language: str | None = None
    model: ModelConfig
    classifier: ClassifierConfig = ClassifierConfig()
    search: SearchConfig = SearchConfig()
    """Default search settings."""
    labels: Annotated[tuple[Label, ...], Field(strict=False)] = ()
    """Labels of a classifier, as in its training data, in the order of its outputs."""
    label_names: dict[str, Label] = Field(default={})
    """Names that output uses for labels, by the labels of the data."""
    license: str | None = None
    """Licences of the models that this one was made from, as model hubs write them, separated by commas."""
    directions: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Directions that a model of many was trained in, such as en-de."""
    metrics: dict[str, Any] = Field(default={})
    """Metrics of the validation at which the weights were saved."""

    @model_serializer(mode="wrap")
    def _without_unset(self, serialize: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in serialize(self).items() if key != "directions" or value}

    @model_validator(mode="after")
    def _labels_differ(self) -> "ModelDescription":
        displayed_labels(self.labels, self.label_names)
        return self

    @classmethod
    def of(cls, config: Config, labels: tuple[str, ...] = (), metrics: dict[str, Any] | None = None):
        """Return the description of the model that a run with this configuration trains."""
        return cls(
            task=config.task,
            source_language=config.single_languages[0],
            target_language=config.single_languages[1],
            model=config.model,
            classifier=config.classifier,
            search=config.search,
            labels=labels,
            label_names=config.data.label_names,
            metrics=metrics or {},
        )

    @property
    def languages(self) -> list[str]:
        """Source and target language, as far as they are known."""
        return [language for language in (self.source_language, self.target_language) if language]

    @property
    def licences(self) -> list[str]:
        """The licences as a list."""
        return _licences(self.license)

    @property
    def displayed_labels(self) -> tuple[str, ...]:
        """The labels under the names that output uses."""
        return displayed_labels(self.labels, self.label_names)


def joined_licences(*given: str | None) -> str | None:
    """Return the given licences without repeats, separated by commas; None if there are none."""
    return ", ".join(dict.fromkeys(name for each in given for name in _licences(each))) or None


def _licences(text: str | None) -> list[str]:
    return text.split(", ") if text else []
