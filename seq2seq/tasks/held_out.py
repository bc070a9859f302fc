"""A check of the validation and test sets of a run, before the first step: whether scores on them can mean anything."""

from collections.abc import Sequence
from itertools import chain, zip_longest

from seq2seq.data.building import unknown_label
from seq2seq.data.examples import LabelledText, Source
from seq2seq.errors import DataError
from seq2seq.tasks.inputs import Inputs


def check_held_out(inputs: Inputs, labels: Sequence[str]) -> None:
    """Refuse validation and test sets that cannot be scored; `labels` are those of the training corpus, if it has any.

    Raises:
        DataError: a set has no examples; all its sources, or all its targets, are blank; or it has another label.
    """
    for key, source in inputs.held_out.items():
        _check(key, source, labels)


def _check(key: str, source: Source, labels: Sequence[str]) -> None:
    has_text: list[bool] = []
    for number, example in chain.from_iterable(chunk.numbered() for chunk in source.chunks()):
        texts = map(str.strip, example.without(source.tag).texts)
        has_text = [known or bool(text) for known, text in zip_longest(has_text, texts)]
        if not isinstance(example, LabelledText):
            if all(has_text):
                return
        elif example.text.strip() and example.label not in labels:
            raise unknown_label(example.label, labels, f"{key}: {source.name}: line {number}")
    if not has_text:
        raise DataError(f"{key}: {source.name}: no examples; name another file")
    if not all(has_text):
        side = "text" if len(has_text) == 1 else ("source", "target")[has_text.index(False)]
        raise DataError(f"{key}: {source.name}: the {side} of every example is blank; name another file")
