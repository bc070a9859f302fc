"""Training runs: tokenizers, corpora, model, trainer and validation, made from a configuration."""
