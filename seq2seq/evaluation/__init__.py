"""Evaluation: scores of translations against references, and of predicted labels against gold labels."""
