"""The languages that a model translates between, out of those that it knows.

`inference` and `tasks` call `directed` on a loaded model before they encode a text.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from seq2seq.config.description import ModelDescription
from seq2seq.errors import UserError, some_of
from seq2seq.languages import direction_name, is_same_language, language_code, languages_named
from seq2seq.text.direction import MOST_LISTED, UNNAMED, Direction, find_language
from seq2seq.text.tokenizer import TokenizerPair

# The option or key that names the language of each side, for messages.
OPTIONS = {"source": "--from", "target": "--to"}
KEYS = {"source": "source_language", "target": "target_language"}


def choices(description: ModelDescription, tokenizers: TokenizerPair) -> dict[str, list[str]]:
    """Return the languages that a translation can be given, by side (`source`, `target`).

    A model with both sides needs both. With the target alone (OPUS-MT), texts may begin with a tag instead. It is empty
    for a model with one direction, such as M2M-100 or OPUS-MT of several targets after fine-tuning for one.
    """
    has_both = description.source_language and description.target_language
    is_one = tokenizers.needs_direction or has_tag(description, tokenizers)
    return {} if has_both and is_one else dict(tokenizers.choices)


def has_tag(description: ModelDescription, tokenizers: TokenizerPair) -> bool:
    """Whether the target language is the name of a tag; that of a published OPUS-MT model is a group of languages."""
    return description.target_language in tokenizers.choices.get("target", ())


def may_know_others(tokenizers: TokenizerPair) -> bool:
    """Whether a model may have been trained in directions that its description does not name: M2M-100, NLLB and mBART,
    whose published models name none."""
    return tokenizers.needs_direction and not hasattr(tokenizers, "languages")


def zero_shot(description: ModelDescription, tokenizers: TokenizerPair) -> str | None:
    """Return a warning if a model was not trained in its direction; None if it was, or if this is not known."""
    source, target, trained = description.source_language, description.target_language, description.directions
    if not trained or source is None or target is None or direction_name((source, target)) in trained:
        return None
    if may_know_others(tokenizers):
        return None
    steps = [name.removeprefix(f"{source}-") for name in trained if name.startswith(f"{source}-")]
    between = [language for language in steps if direction_name((language, target)) in trained]
    remedy = f"; to use trained directions: s2s translate --pivot {between[0]}" if between else ""
    return (
        f"the model was trained in {', '.join(trained)}, not in {source}-{target} (zero-shot); translations may be "
        f"poor or in another language{remedy}"
    )


def single_languages(description: ModelDescription, tokenizers: TokenizerPair) -> tuple[str | None, str | None]:
    """Return the source and the target language of a directed model.

    A side is None if its language is unknown, or if each text chooses it (groups of languages of OPUS-MT).
    """
    names = tokenizers.choices
    sides = {"source": description.source_language, "target": description.target_language}
    known = {side: name for side, name in sides.items() if side not in names or name in names[side]}
    return known.get("source"), known.get("target")


def one_direction(description: ModelDescription, tokenizers: TokenizerPair, names: Sequence[str] = ()) -> Direction:
    """Return a direction that a model with tags has, to compare it with a changed one.

    The languages of the description come first (but no group of languages, such as `gmw`), then a direction that the
    model was trained in, then the first languages of `names` that it can be given. Without `names`, all of its
    languages count, English before the others.
    """
    known = tokenizers.choices
    usual = names or sorted(chain.from_iterable(known.values()), key=lambda name: language_code(name) != "en")
    sources, targets = ([name for name in usual if name in known.get(side, ())] for side in OPTIONS)
    own = languages_named(description.target_language or "", targets)
    if not tokenizers.needs_direction:
        return Direction(None, [*own, *targets][0])
    sources = [description.source_language] if description.source_language else sources
    pairs = [(source, target) for source in sources for target in own or targets]
    trained = [pair for pair in pairs if direction_name(pair) in description.directions]
    return Direction(*next(chain(trained, (pair for pair in pairs if pair[0] != pair[1]), pairs)))


def directed(
    model: str | Path,
    description: ModelDescription,
    tokenizers: TokenizerPair,
    direction: Direction | None,
    named_with: Mapping[str, str] = OPTIONS,
) -> tuple[ModelDescription, TokenizerPair]:
    """Return the description and the tokenizers of a model for one direction.

    A classifier has no direction, and is returned unchanged. A model that was fine-tuned for one direction has that
    where none is named. A model whose sources may begin with a tag that users type (OPUS-MT) needs no target language.
    A model with one direction takes the names of that alone.

    Args:
        model: its name, for messages.
        description: of the model.
        tokenizers: of the model.
        direction: the languages that the user names. With None, a model that has `choices` is returned unchanged.
        named_with: the option or the key of each side, for messages.

    Raises:
        UserError: the model does not have a language, or needs languages that are not named.
    """
    if description.task != "translation":
        return description, tokenizers
    if direction is None:
        if choices(description, tokenizers):
            return description, tokenizers
        direction = UNNAMED
    known = {"source": description.source_language, "target": description.target_language}
    named = {side: language for side, language in vars(direction).items() if language}
    tagged = tokenizers.choices
    if tokenizers.needs_direction:
        only = {side: names[0] for side, names in tagged.items() if len(names) == 1}
        named = {**only, **{side: language for side, language in known.items() if language}, **named}
        if missing := [side for side in tokenizers.needed if side not in named]:
            wanted = tokenizers.needed if len(missing) < len(tokenizers.needed) == 2 else missing
            listed = some_of(list(dict.fromkeys(chain.from_iterable(tagged[side] for side in wanted))), MOST_LISTED)
            names = f"language{'s' * (len(wanted) > 1)} with {' and '.join(named_with[side] for side in wanted)}"
            raise UserError(f"{model}: name the {names}; it has {listed}")
    elif known["source"] and known["target"] and has_tag(description, tokenizers):
        named = {"target": known["target"], **named}
    for side, language in named.items():
        option = named_with[side]
        if side in tagged:
            named[side] = find_language(language, tagged[side], option)
        elif known[side] and not is_same_language(language, known[side]):
            raise UserError(f"{option} {language}: {model} has {known[side]} alone; name another model")
    changes = {f"{side}_language": language for side, language in named.items()}
    tags = Direction(**{side: language for side, language in named.items() if side in tagged})
    return description.model_copy(update=changes), tokenizers.directed(tags)
