"""From corpora to batches: sources, filters, the corpus on disk, the order of an epoch, and the tensors of a step."""
