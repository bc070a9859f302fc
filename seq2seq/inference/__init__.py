"""Trained models at work on lines of text: translation, classification, and what they share."""
