"""The training of a SentencePiece model, for `Tokenizer.train`."""

import io
import logging
import random
import re
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from seq2seq.config.schema import TokenizerConfig
from seq2seq.errors import ConfigError, DataError
from seq2seq.text.normalization import normalized

logger = logging.getLogger(__name__)

# SentencePiece skips training lines above a limit in bytes; ours are split before they reach it.
LONGEST_TRAINING_TEXT = 2_000
# The result of EM depends on the split of the corpus among threads, so their number must not depend on the machine.
TRAINER_THREADS = 16


def train_model(texts: Iterable[str], config: TokenizerConfig, seed: int, tags: Sequence[str] = ()) -> bytes:
    """Return the content of a .spm file (see `Tokenizer.train`); `texts` have no lone surrogates."""
    lines = [normalized(line) for line in _draw_evenly(texts, config.sample_lines, random.Random(seed))]
    # A space at the end of a line would become part of the last word, and words with it are too rare to become
    # pieces. (A tab, which the trainer reserves, would cost the whole line; normalised text has none.)
    lines = [part.strip() for line in lines for part in _cut(line) if part.strip()]
    if not lines:
        raise DataError("no text to train a tokenizer on")
    try:
        return _train_model(lines, config, config.vocab_size, tags)
    except RuntimeError as error:
        return _train_model(lines, config, _possible_size(error, config), tags)


def _draw_evenly(texts: Iterable[str], count: int, draw: random.Random) -> list[str]:
    """Return a sample of `count` texts by reservoir sampling: every text is kept with the same probability."""
    kept: list[str] = []
    for index, text in enumerate(texts):
        if index < count:
            kept.append(text)
        elif (replaced := int(draw.random() * (index + 1))) < count:
            kept[replaced] = text
    return kept


def _cut(line: str) -> Iterator[str]:
    """Yield `line` in parts that the trainer accepts, split at spaces if possible."""
    while len(line) > LONGEST_TRAINING_TEXT:
        end = line.rfind(" ", 1, LONGEST_TRAINING_TEXT)
        end = LONGEST_TRAINING_TEXT if end < 0 else end
        yield line[:end]
        line = line[end:]
    yield line


def _train_model(lines: Sequence[str], config: TokenizerConfig, vocab_size: int, tags: Sequence[str]) -> bytes:
    written = io.BytesIO()
    # without pieces, the option is left out, so that the bytes are those of earlier versions
    given = {"user_defined_symbols": config.extra_pieces, "control_symbols": tags}
    extra = {option: list(pieces) for option, pieces in given.items() if pieces}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        model_type=config.kind,
        vocab_size=vocab_size,
        character_coverage=config.character_coverage,
        byte_fallback=config.byte_fallback,
        normalization_rule_name=config.normalization,
        remove_extra_whitespaces=False,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=3,
        max_sentence_length=4 * LONGEST_TRAINING_TEXT + 1,
        num_threads=TRAINER_THREADS,
        minloglevel=2,
        **extra,
    )
    return written.getvalue()


def _possible_size(error: RuntimeError, config: TokenizerConfig) -> int:
    """Return the largest possible vocabulary according to the trainer's error; raise ConfigError for other failures."""
    message = " ".join(str(error).split())
    if found := re.search(r"set it to a value <= (\d+)", message):
        size = f"{config.vocab_size:,}", f"{int(found[1]):,}"
        logger.warning("tokenizer.vocab_size: the corpus is too small for %s pieces; using %s", *size)
        return int(found[1])
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        kinds = "bytes and characters" if config.byte_fallback else "characters"
        way = "use tokenizer.byte_fallback: false" if config.byte_fallback else "lower tokenizer.character_coverage"
        problem = f"{config.vocab_size} is too small for the {kinds} alone; raise it to more than {found[1]}, or {way}"
        raise ConfigError("tokenizer.vocab_size", [problem]) from error
    raise ConfigError("tokenizer", [f"SentencePiece cannot train on this text ({message})"]) from error
