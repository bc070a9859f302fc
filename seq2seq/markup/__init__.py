"""Text with markup: cut into skeleton and segments, translated, and put together again. Nothing here knows a model."""
