"""The languages that a model translates between, out of those that it knows.

`inference` and `tasks` call `directed` on a loaded model before they encode a text.
"""

from pathlib import Path

from seq2seq.config.description import ModelDescription
from seq2seq.errors import UserError, some_of
from seq2seq.languages import language_code
from seq2seq.text.direction import MOST_LISTED, UNNAMED, Direction, find_language
from seq2seq.text.tokenizer import TokenizerPair


def choices(description: ModelDescription, tokenizers: TokenizerPair) -> dict[str, list[str]]:
    """Return the languages that a translation can be given, by side (`source`, `target`).

    A model with both sides needs both. With the target alone (OPUS-MT), texts may begin with a tag instead. It is empty
    for a model with one direction, such as M2M-100 after fine-tuning for one.
    """
    tags = list(tokenizers.source.tags)
    if tokenizers.needs_direction:
        return {} if description.source_language and description.target_language else {"source": tags, "target": tags}
    return {"target": tags} if tags else {}


def directed(
    model: str | Path, description: ModelDescription, tokenizers: TokenizerPair, direction: Direction | None
) -> tuple[ModelDescription, TokenizerPair]:
    """Return the description and the tokenizers of a model for one direction.

    A model that was fine-tuned for one direction has that where none is named. A model whose sources may begin with a
    tag that users type (OPUS-MT) needs no target language. A model with one direction takes the names of that alone.

    Args:
        model: its name, for messages.
        description: of the model.
        tokenizers: of the model.
        direction: the languages that the user names. With None, a model that has `choices` is returned unchanged.

    Raises:
        UserError: the model does not have a language, or needs languages that are not named.
    """
    if direction is None:
        if choices(description, tokenizers):
            return description, tokenizers
        direction = UNNAMED
    known = {"source": description.source_language, "target": description.target_language}
    named = {side: language for side, language in vars(direction).items() if language}
    tagged = {"source", "target"} if tokenizers.needs_direction else {"target"} if tokenizers.source.tags else set()
    if tokenizers.needs_direction:
        named = {**{side: language for side, language in known.items() if language}, **named}
        if len(named) < 2:
            listed = some_of(list(tokenizers.source.tags), MOST_LISTED)
            raise UserError(f"{model}: name the languages with --from and --to; it has {listed}")
    for side, language in named.items():
        option = {"source": "--from", "target": "--to"}[side]
        if side in tagged:
            named[side] = find_language(language, tokenizers.source.tags, option)
        elif known[side] and language_code(known[side]) != language_code(language):
            raise UserError(f"{option} {language}: {model} has {known[side]} alone; name another model")
    changes = {f"{side}_language": language for side, language in named.items()}
    tags = Direction(**{side: language for side, language in named.items() if side in tagged})
    return description.model_copy(update=changes), tokenizers.directed(tags)
