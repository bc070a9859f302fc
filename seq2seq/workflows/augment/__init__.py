"""Pairs from text in one language: back-translation, self-training and distillation."""
