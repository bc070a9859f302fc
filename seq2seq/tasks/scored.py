"""The test sets whose scores a run folder holds (`test_scores.json`).

`tasks.run` deletes scores of other test sets when a run starts; `s2s runs` compares scores only of the same test sets.
"""

from collections.abc import Mapping
from typing import Any

from seq2seq.tasks.run_folder import RunFolder, read_note


def forget_scores(folder: RunFolder, tests: Mapping[str, str]) -> bool:
    """Delete scores of other test sets than `tests`, given by their fingerprints, and return whether there were any."""
    is_stale = folder.test_scores.exists() and scored_tests(folder) != tests
    if is_stale:
        folder.test_scores.unlink()
    return is_stale


def scored_tests(folder: RunFolder) -> Mapping[str, str]:
    """Return the fingerprints of the test sets that were scored, by name."""
    scored = read_note(folder.test_scores).get("scored")
    found = scored.get("tests") if isinstance(scored, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def scores_by(folder: RunFolder, measure: str) -> Mapping[str, Any]:
    """Return the record of the test scores; empty if they were not measured as `measure` says (`Task.measure`)."""
    record = read_note(folder.test_scores)
    scored = record.get("scored")
    return record if isinstance(scored, Mapping) and scored.get("measure") == measure else {}
