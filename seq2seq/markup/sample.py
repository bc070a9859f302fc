"""The first words of a document that are translated, by which `serve` identifies its language."""

from seq2seq.markup import html, markdown, plain, xml
from seq2seq.markup.document import OBJECT
from seq2seq.markup.translation import FORMATS

_BEGINNINGS = {"html": html.beginning, "xml": xml.beginning, "markdown": markdown.beginning, "plain": plain.beginning}
# The number of characters with markup that are read first, for each character of text.
DENSITY = 8


def sample(text: str, form: str, length: int) -> str:
    """Return the first `length` characters of the text of a document, without code and what else is copied.

    No more of a document is parsed than that needs, because parsing a long one takes seconds.

    Raises:
        DataError: the document is not in the format.
    """
    size = DENSITY * length
    while True:
        read = _BEGINNINGS[form](text, size)
        found = " ".join(segment.text for segment in FORMATS[form](read).segments).replace(OBJECT, " ")
        if len(found) >= length or size >= len(text):
            return found[:length]
        size = 4 * len(read)
