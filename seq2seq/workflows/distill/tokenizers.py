"""The tokenizers of a student: those of its first teacher, unless the configuration has settings of its own."""

from pathlib import Path

from seq2seq.config.schema import Config
from seq2seq.data.sources import open_pairs
from seq2seq.tasks import inputs
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tokenizer import SOURCE_FILE, TokenizerPair

# Keys of `tokenizer` that a student may set and still have the teacher's tokenizers.
OF_TRAINING = frozenset({"sampling", "sampling_nbest", "sampling_alpha"})


def plain_tokenizers(config: Config, teacher: Path) -> TokenizerPair | None:
    """Return the tokenizers of a teacher; None if the configuration has settings of its own, or if a new model cannot
    use them, as those with tags."""
    if config.tokenizer.model_fields_set - OF_TRAINING:
        return None
    tokenizers = load_tokenizers(teacher) if (teacher / SOURCE_FILE).is_file() else None
    return None if tokenizers is None or tokenizers.choices else tokenizers


def check_tags(config: Config, teacher: Path) -> None:
    """Refuse training corpora with a tag that the student's tokenizer lacks, before the teachers translate.

    Raises:
        DataError: a tag is not a piece.
    """
    languages = config.source_language or "", config.target_language or ""
    opened = [open_pairs(source, *languages) for source in config.data.train]
    if taken := plain_tokenizers(config, teacher):
        remedy = "name it in tokenizer.extra_pieces, for a new tokenizer, or make the folder again without --tag"
        inputs.check_tags(config, opened, taken, remedy)
    else:
        inputs.check_tags(config, opened, inputs.given_tokenizers(config))
