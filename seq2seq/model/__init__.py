"""The Transformer: an encoder, a decoder over it for translation, a head over it for classification."""
