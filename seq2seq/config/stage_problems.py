"""Problems of the stages of a configuration; `file` reports them."""

from collections.abc import Iterator

from seq2seq.config.schema import Config
from seq2seq.errors import did_you_mean, shown, some_of


def stage_problems(config: Config) -> list[str]:
    """Return a line for each problem of `data.stages` with the sources of a configuration."""
    return [*_of_names(config), *_of_borders(config)] if config.data.stages else []


def _of_names(config: Config) -> Iterator[str]:
    train, stages = config.data.train_sources, config.data.stages
    for key, source in train.items():
        if source.weight != 1:
            yield f"{key}.weight: replaced by the weights of data.stages; write it there"
    if unnamed := [key for key, source in train.items() if source.name is None]:
        for key in unnamed:
            yield f"{key}.name: missing; the weights of data.stages need a name for each source"
        return
    names = list(dict.fromkeys(source.name for source in train.values()))
    if unknown := [(index, name) for index, stage in enumerate(stages) for name in stage.weights if name not in names]:
        for index, name in unknown:
            hint = did_you_mean(name, names) or f"; the names are {some_of(names)}"
            yield f"data.stages.{index}.weights: no source of data.train has the name {shown(name)}{hint}"
        return
    for key, source in train.items():
        if not any(stage.weights.get(source.name) for stage in stages):
            yield f"{key}: no stage sees {source.name}; give it a weight in data.stages, or leave the source out"


def _of_borders(config: Config) -> Iterator[str]:
    stages, before = config.data.stages, 0
    for index, stage in enumerate(stages):
        key = f"data.stages.{index}"
        if index == len(stages) - 1:
            if stage.until_epoch is not None:
                yield f"{key}.until_epoch: the last stage ends with training; leave it out, and set training.max_epochs"
        elif stage.until_epoch is None:
            yield f"{key}.until_epoch: missing; write after which epoch the next stage begins"
            return
        elif stage.until_epoch <= before:
            rule = "epochs are counted from the start of training"
            yield f"{key}.until_epoch: {stage.until_epoch} is not above that of the stage before, {before}; {rule}"
            return
        before = stage.until_epoch or before
