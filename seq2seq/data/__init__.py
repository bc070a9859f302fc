"""The data path, from corpora to batches: sources, filters, the corpus on disk, the order of an epoch, and batches."""
