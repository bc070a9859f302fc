"""Training: losses, the optimiser, the trainer that both tasks share, and what it tells of a run."""
