"""Inference: trained models translate, classify, score and align lines of text."""
