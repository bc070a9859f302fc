"""Problems of the languages of a configuration and its corpora; `file` reports them."""

from collections.abc import Iterator, Mapping

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.directions import BEST_OF, Sides
from seq2seq.config.schema import Config
from seq2seq.errors import did_you_mean
from seq2seq.languages import direction_name, is_same_language


def direction_problems(config: Config) -> list[str]:
    """Return a line for each problem of the languages of a configuration and its corpora."""
    languages, data = config.languages, config.data
    singly = isinstance(data.valid, SourceConfig)
    train = data.train_sources
    valid = {f"data.valid{'' if singly else f'.{name}'}": (name, one) for name, one in data.valid_sets.items()}
    tests = {f"data.test.{name}": (name, one) for name, one in data.test.items()}
    if languages is None:
        return list(_of_one_direction(config, {**train, **{key: one for key, (_, one) in {**valid, **tests}.items()}}))
    problems = [
        f"{key}: replaced by languages; leave it out"
        for key in ("source_language", "target_language")
        if getattr(config, key) is not None
    ]
    # An initial model may have learned directions that are validated, but not trained further.
    is_known = config.training.init_from is None and all(source.from_column is None for source in train.values())
    trained: dict[Sides, None] = {}
    validated: list[str] = []
    for key, (name, source) in {**{key: ("", one) for key, one in train.items()}, **valid, **tests}.items():
        try:
            sides = languages.sides_of(source, name)
        except ValueError as error:
            problems.append(f"{key}: {error}")
            is_known = is_known and key not in train
            continue
        if key in valid and sides:
            validated.append(direction_name(sides))
        if key in train and sides:
            trained |= dict.fromkeys([sides, *[sides[::-1]] * source.both_ways])
            if source.both_ways and (problem := languages.problem_of_reverse(sides[::-1])):
                problems.append(f"{key}.{problem}")
        elif source.both_ways and key not in train:
            problems.append(f"{key}.both_ways: only for data.train; leave it out")
        elif key in valid and sides and sides not in trained and is_known:
            remedy = "move it to data.test, or add it to data.train"
            problems.append(f"{key}: {direction_name(sides)} is not trained; {remedy}")
    best_of, known = config.training.best_of, (*BEST_OF, *dict.fromkeys(validated))
    if best_of not in known and not any(one.from_column for _, one in valid.values()):
        problems.append(f"training.best_of: {best_of} is not one of {', '.join(known)}{did_you_mean(best_of, known)}")
    return problems


def _of_one_direction(config: Config, sources: Mapping[str, SourceConfig]) -> Iterator[str]:
    if not isinstance(config.data.valid, SourceConfig):
        yield "data.valid: several sets need languages; name one set, or the languages"
    if config.training.best_of != "mean":
        yield f"training.best_of: {config.training.best_of} needs languages"
    for key, source in sources.items():
        keys = {"both_ways": source.both_ways, "from_column": source.from_column, "to_column": source.to_column}
        if given := [name for name, value in keys.items() if value]:
            need = "need" if len(given) > 1 else "needs"
            yield f"{key}: {' and '.join(given)} {need} several directions; name the languages of both in languages"
        for name, given, own in (
            ("from", source.from_, config.source_language),
            ("to", source.to, config.target_language),
        ):
            if given is not None and not is_same_language(given, own or ""):
                yield f"{key}.{name}: {given} is not the language of this config ({own}); for several, set languages"
