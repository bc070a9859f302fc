"""The pieces that a vocabulary needs: those of some texts, and those that keep the segmentation of these unchanged.

`workflows.vocabulary` uses them. Without the other pieces, a text whose pieces are kept is segmented as before: of
a unigram model the best path is still there, and of BPE every merge on the way.
"""

from collections.abc import Collection, Iterable, Sequence

from seq2seq.text.segmenter import Segmenter
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

# Below this share of known characters, a text is not in a language of a tokenizer.
LEAST_KNOWN = 0.5
# A tokenizer that knows less than this share of the characters that another one knows does not read a text.
LEAST_OF_BEST = 0.9
# Nor does one that needs so many times the pieces of another one.
MOST_PIECES = 1.25
COMPARED_LINES = 1_000


def necessary(
    readers: Sequence[Tokenizer], used: Iterable[str], languages: Collection[str] | None = None, frequent: int = 0
) -> set[str]:
    """Return the pieces to keep of a vocabulary, out of those that it has.

    They are the pieces in `used`, special pieces, bytes, single characters and, for a character without a piece of its
    own, a piece that contains it; of BPE also the pieces that these are merged from.

    Args:
        readers: the tokenizers that have this vocabulary.
        used: pieces of texts.
        languages: names of the languages whose tags are kept; None means all.
        frequent: the number of the most frequent pieces that are kept too.
    """
    vocabulary = readers[0].vocabulary
    segmenters = [Segmenter(reader.model_bytes) for reader in readers]
    kept = {*used, *(piece for piece in vocabulary if len(piece) == 1)}
    for reader, segmenter in zip(readers, segmenters, strict=True):
        kept |= {*reader.pieces({*reader.silent_ids, reader.unk_id}), *reader.tags.values()}
        kept |= segmenter.indispensable() | segmenter.best(frequent)
        kept |= _with_each_character(reader, kept)
        if languages is not None:
            kept -= {piece for name, piece in reader.tags.items() if name not in languages}
    for segmenter in segmenters:
        kept |= segmenter.merged_from(kept)
    return kept & vocabulary.keys()


def known_share(tokenizer: Tokenizer, lines: Iterable[str]) -> float:
    """Return the share of the characters that have pieces, out of all but white space; 1 if there are none."""
    normalizer = tokenizer.normalizer
    known = [normalizer.knows(char) for line in lines for char in normalizer(line) if not char.isspace()]
    return sum(known) / len(known) if known else 1.0


def may_read(readers: Sequence[Tokenizer], lines: Sequence[str]) -> list[bool]:
    """Return for the tokenizer of each side whether a text may be of this side.

    The number of pieces can only tell apart tokenizers that know the text: unknown characters in a row are one piece.
    Only the first `COMPARED_LINES` lines are read.
    """
    if len(readers) == 1:
        return [True]
    lines = lines[:COMPARED_LINES]
    shares = [known_share(reader, lines) for reader in readers]
    least = LEAST_OF_BEST * max(shares) if max(shares) >= LEAST_KNOWN else 0.0
    lengths = [sum(map(len, reader.split_all(lines))) for reader in readers]
    most = MOST_PIECES * min(length for length, share in zip(lengths, shares, strict=True) if share >= least)
    return [share >= least and length <= most for share, length in zip(shares, lengths, strict=True)]


def distinct_readers(tokenizers: TokenizerPair) -> list[Tokenizer]:
    """Return the tokenizers of both sides, or one if they are equal."""
    source, target = tokenizers.source, tokenizers.target
    is_one = tokenizers.shared and source.model_bytes == target.model_bytes
    return [source] if is_one else [source, target]


def _with_each_character(reader: Tokenizer, kept: Collection[str]) -> set[str]:
    """Return a piece for each character that no kept piece has; what a reader normalises depends on its characters."""
    known, found = set().union(*(piece for piece in reader.text_pieces() if piece in kept)), set()
    for piece in reader.text_pieces():
        if not known.issuperset(piece):
            known.update(piece)
            found.add(piece)
    return found
