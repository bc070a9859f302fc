"""The filter of parallel corpora: cheap rules, and cross-entropies of models of both directions."""
