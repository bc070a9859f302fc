"""Text with markup: split into skeleton and segments, translated, and joined again. Nothing here depends on a model."""
