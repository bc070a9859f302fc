"""Search: from a `StepModel` to hypotheses, best first."""
