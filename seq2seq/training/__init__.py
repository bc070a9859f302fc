"""Training: losses, the optimiser, the trainer that both tasks share, and its reports."""
