"""How good the output is: translations against references, predicted labels against gold ones."""
