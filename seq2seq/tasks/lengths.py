"""The lengths of texts that fit the positions of a model: training and `s2s check` filter by them.

Nothing here needs torch.
"""

import logging

from seq2seq.config.schema import Config
from seq2seq.text.tokenizer import TokenizerPair

logger = logging.getLogger(__name__)


def max_pieces(config: Config, tokenizers: TokenizerPair | None = None) -> int:
    """Return the number of pieces of the longest text that fits the model's positions.

    The end, a classifier's start, and the language tags of a multilingual model's `tokenizers` need positions too.
    """
    if config.task == "classification":
        specials = 2
    else:
        tags = config.languages.num_tags if config.languages else (0, 0)
        ends = (len(tokenizers.source.end_ids), len(tokenizers.target.start_ids)) if tokenizers else (1, 1)
        specials = max(map(sum, zip(ends, tags, strict=True)))
    return max(1, config.model.max_length - specials)


def with_fitting_filters(config: Config, tokenizers: TokenizerPair | None = None) -> Config:
    """Return the configuration with `data.filters.max_length` lowered to `max_pieces`, which a log line then says."""
    filters, most = config.data.filters, max_pieces(config, tokenizers)
    if filters.max_length <= most:
        return config
    why = f"{most} instead of {filters.max_length}, because model.max_length is {config.model.max_length}"
    logger.info("data.filters.max_length: %s", why)
    filters = filters.model_copy(update={"max_length": most})
    return config.model_copy(update={"data": config.data.model_copy(update={"filters": filters})})
