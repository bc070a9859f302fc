"""Foreign model folders: Marian (transformers) in and out, CTranslate2 and Argos Translate out."""
