"""How text is cut into pieces and joined again."""
