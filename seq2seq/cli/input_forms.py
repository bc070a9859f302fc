"""The detection of structured text, such as JSON or HTML, that `s2s translate` would read as plain text.

It checks the beginning of files and the first lines of streams.
"""

import logging
from collections.abc import Iterator
from typing import BinaryIO

from seq2seq.cli.streaming import head_ahead
from seq2seq.errors import DataError
from seq2seq.text.forms import HEAD_BYTES, Form, form_of

logger = logging.getLogger("seq2seq.cli")

FORCED = "--force translates it line by line"


def refuse_structured(stream: BinaryIO, name: object) -> None:
    """Refuse a file that is structured text; pipes and terminals are not read ahead.

    Raises:
        DataError: the file is structured text; the message contains its form and the remedy.
    """
    if (head := head_ahead(stream, HEAD_BYTES)) and (form := form_of(head)):
        raise _refusal(name, form)


def watched(batches: Iterator[list[str]], name: object, is_typed: bool) -> Iterator[list[str]]:
    """Yield the batches of a stream, after a check of the first.

    A form that a single line shows is refused, unless lines are typed. A form that only several lines show causes a
    warning.

    Raises:
        DataError: the stream is structured text; the message contains its form and the remedy.
    """
    for batch in batches:
        if form := form_of("\n".join(batch)[:HEAD_BYTES]):
            if form_of(batch[0]) and not is_typed:
                raise _refusal(name, form)
            logger.warning("%s: this looks like %s", name, form)
        yield batch
        break
    yield from batches


def _refusal(name: object, form: Form) -> DataError:
    return DataError(f"{name}: this looks like {form}; {FORCED}")
