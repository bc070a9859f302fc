"""Tokenizers of every kind, with the tags of two languages where the kind has tags; tests import `pair_of_kind`."""

import functools

from support.foreign_models import SOURCE, TARGET, sentencepiece_model

from seq2seq.config.schema import TokenizerConfig
from seq2seq.text.marian_tokenizer import MarianTokenizer, MarianTokenizerPair
from seq2seq.text.multilingual_tokenizer import Tagging, pair_of
from seq2seq.text.tagged_tokenizer import Languages, tagged_pair
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

TAGS = {"eng": ">>eng<<", "deu": ">>deu<<"}
# The names of the kinds; after them, the places of tags.
KINDS = [
    "plain", *(f"tagged-{place}" for place in ("source", "both", "decoder")), "marian",
    *(f"multilingual-{source}-{target}" for source in ("first", "last") for target in ("second", "first")),
]  # fmt: skip


@functools.cache
def pair_of_kind(kind: str, model: str) -> TokenizerPair:
    """The tokenizers of a kind for all directions, trained on SOURCE and TARGET; `model` is `unigram` or `bpe`."""
    name, *places = kind.split("-")
    if name in ("plain", "tagged"):
        tags = list(TAGS.values()) if name == "tagged" else []
        trained = Tokenizer.train([*SOURCE, *TARGET] * 5, TokenizerConfig(vocab_size=330, kind=model), 1, tags)
        if name == "plain":
            return TokenizerPair(trained, trained)
        return tagged_pair(trained.model_bytes, trained.model_bytes, Languages(TAGS, tuple(TAGS), tuple(TAGS), *places))
    model_bytes = sentencepiece_model((*SOURCE, *TARGET), 110, model)
    pieces = [piece for piece in Tokenizer(model_bytes).vocabulary if piece not in ("<unk>", "<s>", "</s>")]
    vocabulary = {piece: id_ for id_, piece in enumerate(["</s>", "<unk>", "<s>", *TAGS.values(), *pieces, "<pad>"])}
    if name == "marian":
        both = MarianTokenizer(model_bytes, vocabulary)
        return MarianTokenizerPair(both, both)
    return pair_of(model_bytes, vocabulary, Tagging(TAGS, *places))
