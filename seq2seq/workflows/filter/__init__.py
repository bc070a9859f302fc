"""The filter of parallel corpora: cheap rules, and dual conditional cross-entropy."""
