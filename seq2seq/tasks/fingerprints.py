"""The fingerprints of the inputs of a run, as its folder notes them.

Earlier versions gave local datasets other fingerprints (`Source.former`), which the notes of their runs have.
"""

from collections.abc import Mapping
from typing import Any

from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.run_folder import RunFolder, read_note
from seq2seq.tasks.scored import scored_tests


def noted_identity(folder: RunFolder, inputs: Inputs) -> dict[str, str]:
    """Return `Inputs.identity`, with former fingerprints where the identity in the folder has them."""
    return _as_noted(inputs, inputs.identity(), read_note(folder.identity))


def noted_tests(folder: RunFolder, inputs: Inputs) -> dict[str, str]:
    """Return `Inputs.test_fingerprints`, with former ones where the test scores in the folder have them."""
    return _as_noted(inputs, inputs.test_fingerprints, scored_tests(folder))


def _as_noted(inputs: Inputs, now: Mapping[str, str], noted: Mapping[str, Any]) -> dict[str, str]:
    former = {source.fingerprint: source.former for source in (*inputs.train, *inputs.held_out.values())}
    found = {key: "-".join(former.get(part, part) for part in value.split("-")) for key, value in now.items()}
    return {key: found[key] if noted.get(key) == found[key] else value for key, value in now.items()}
