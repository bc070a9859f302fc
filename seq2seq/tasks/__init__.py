"""The wiring: a configuration becomes tokenizers, corpora, a model, a trainer and its validation."""
