"""Model folders of ours with random weights, in any architecture; tests of conversions import the maker."""

import functools
from pathlib import Path

import torch
from support.foreign_models import SOURCE, TARGET

from seq2seq.config.description import ModelDescription
from seq2seq.config.directions import LanguagesConfig
from seq2seq.config.schema import ClassifierConfig, ModelConfig, SearchConfig, TokenizerConfig
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import LoadedModel, load_model, save_model
from seq2seq.text.tagged_tokenizer import Languages, tagged_pair
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

SIZES = dict(
    preset=None, d_model=16, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, d_ff=24, max_length=80,
)  # fmt: skip


@functools.cache
def our_tokenizers(shared: bool) -> TokenizerPair:
    texts = [SOURCE + TARGET] * 2 if shared else [SOURCE, TARGET]
    sides = [Tokenizer.train(text * 5, TokenizerConfig(vocab_size=300), 1) for text in texts]
    return TokenizerPair(sides[0], sides[0] if shared else sides[1])


def make_ours(folder, shared=True, ending=0.0, seed=3, search=None, **settings) -> LoadedModel:
    """Write a model folder with random weights, and load it.

    With `ending` the model has an output bias that makes it end, and never pad or start.
    """
    tokenizers = our_tokenizers(shared)
    if ending:
        settings |= {"output_bias": True}
    model_config = ModelConfig(**{**SIZES, **settings})
    torch.manual_seed(seed)
    model = Transformer(model_config, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
        if ending:
            model.output.bias[tokenizers.target.eos_id] = ending
            model.output.bias[[tokenizers.target.pad_id, tokenizers.target.start_id]] = -1e4
    description = ModelDescription(
        source_language="en", target_language="de", model=model_config,
        search=search or SearchConfig(beam_size=3, length_penalty=0.7, max_length_ratio=1.5, min_length=2),
    )  # fmt: skip
    save_model(folder, model.state_dict(keep_vars=True), description, tokenizers)
    return load_model(folder)


def make_tiny(folder, texts, vocab_size, search, change, **settings) -> Path:
    """Write a model folder smaller than the preset `tiny`, with a tokenizer of `texts`; `change` takes both."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(texts, TokenizerConfig(vocab_size=vocab_size), seed=1)
    shape = ModelConfig(preset="tiny", d_model=32, d_ff=64, **settings)
    model = Transformer(shape, tokenizer.vocab_size, tokenizer.vocab_size)
    with torch.no_grad():
        change(model, tokenizer)
    description = ModelDescription(source_language="en", target_language="de", model=shape, search=search)
    return save_model(folder, model.state_dict(), description, TokenizerPair(tokenizer, tokenizer))


def make_classifier(folder, labels, seed=3, vocab_size=300, label_names=None, pooling="mean", **settings):
    """Write the folder of a classifier with random weights, and a tokenizer of its own."""
    tokenizer = Tokenizer.train(SOURCE * 5, TokenizerConfig(vocab_size=vocab_size), seed)
    model_config = ModelConfig(**{**SIZES, **settings})
    torch.manual_seed(seed)
    head = ClassifierConfig(pooling=pooling)
    model = EncoderClassifier(model_config, head, tokenizer.vocab_size, len(labels))
    torch.nn.init.normal_(model.output.weight, std=2.0)
    description = ModelDescription(
        task="classification", model=model_config, classifier=head, labels=tuple(labels), label_names=label_names or {}
    )
    return save_model(folder, model.state_dict(), description, TokenizerPair(tokenizer, tokenizer))


def make_many(folder, source, target, tags, seed=1) -> Path:
    """A model of many languages with random weights, as a run with `languages` writes it."""
    languages = LanguagesConfig(source=source, target=target, tags=tags)
    trained = Tokenizer.train(
        (SOURCE + TARGET) * 5, TokenizerConfig(vocab_size=330), 1, list(languages.pieces.values())
    )
    known = Languages(languages.pieces, tuple(source), tuple(target), tags)
    pair = tagged_pair(trained.model_bytes, trained.model_bytes, known)
    shape = ModelConfig(**SIZES, tied_embeddings="all", output_bias=True)
    torch.manual_seed(seed)
    model = Transformer(shape, pair.source.vocab_size, pair.target.vocab_size)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
        model.output.bias[pair.target.eos_id] = 1.0
    sides = {"source_language": source, "target_language": target}
    only = {key: names[0] for key, names in sides.items() if len(names) == 1}
    names = tuple(f"{one}-{other}" for one in source for other in target if one != other)
    description = ModelDescription(model=shape, search=SearchConfig(beam_size=1), directions=names, **only)
    return save_model(folder, model.state_dict(keep_vars=True), description, pair)
