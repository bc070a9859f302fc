"""Served models that have languages and nothing else, for the choice among them."""

from types import SimpleNamespace

from seq2seq.serve.served import ServedTranslator


class Listed(ServedTranslator):
    """A model that has languages and nothing else: those of a pair, or a list of many."""

    def __init__(self, name, known):
        self.name, self.unexplained = name, ""
        source, target = known if isinstance(known, tuple) else (None, None)
        self.description = SimpleNamespace(source_language=source, target_language=target)
        self.choices = {} if source else {"source": known, "target": known}
        self.directed = lambda direction: Listed(name, (direction.source, direction.target))
