"""Figures of teachers and students: read from `distill.json`, and collected from several students for a picture.

`measured` measures them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from seq2seq.errors import ModelError, UserError
from seq2seq.files import DamagedFile, read_object

RESULT = "distill.json"  # the facts of a distillation, with the figures of its last step
METRICS = ("bleu", "chrf")
TEACHER, STUDENT = "teacher", "student"  # the names of systems begin with one of them
BASE = f"{TEACHER}, float32"
Point = tuple[float, float, str]


@dataclass(frozen=True)
class Figures:
    """The figures of one system on one test set."""

    scores: Mapping[str, float]
    """By metric."""
    lines_per_second: float


@dataclass(frozen=True)
class MeasuredSystem:
    """A system: its engine, its size, and its figures by test set."""

    engine: str
    megabytes: float
    """Size of the weights, in 10^6 bytes."""
    figures: Mapping[str, Figures]


@dataclass
class MeasuredSystems:
    """The figures of all systems, by name."""

    lines: dict[str, int]
    """The number of lines of each test set."""
    systems: dict[str, MeasuredSystem] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    """By metric, in sacreBLEU's form."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the figures of `as_json`."""
        systems = {
            name: MeasuredSystem(
                each["engine"], each["megabytes"], {test: Figures(**own) for test, own in each["figures"].items()}
            )
            for name, each in values["systems"].items()
        }
        return cls(values["lines"], systems, values["signatures"])

    @property
    def titles(self) -> list[str]:
        """The titles of the columns of `rows`."""
        return ["system", "BLEU", "chrF", "sentences/s", "MB"]

    def rows(self, name: str) -> list[list[str]]:
        """Return the figures on a test set, for people."""
        shown = []
        for system, measured in self.systems.items():
            figures = measured.figures[name]
            scores = [f"{figures.scores[metric]:.2f}" for metric in METRICS]
            shown.append([system, *scores, f"{figures.lines_per_second:,.1f}", f"{measured.megabytes:.3g}"])
        return shown


@dataclass(frozen=True)
class _Student:
    folder: Path
    conditions: Mapping[str, Any]
    """The conditions that must be equal in students that are compared, by their names in messages."""
    measured: MeasuredSystems


def is_student(folder: Path) -> bool:
    """Whether a folder was made by `s2s distill`."""
    return (folder / RESULT).is_file()


def speeds_and_scores(folders: Sequence[Path], metric: str) -> dict[str, dict[str, list[Point]]]:
    """Return the points (speed, score, label) by test set and system, in the order of speed.

    Speeds are relative to the teacher in float32. The teacher is measured again with each student, so that students
    measured at different times can be compared. The teacher's points are those of the first folder.

    Raises:
        ModelError: a folder has no finished distillation.
        UserError: the students have different teachers, search options of the teacher, languages or test sets.
    """
    students = [_read(folder) for folder in folders]
    first, *others = students
    for other in others:
        for name, value in other.conditions.items():
            if value != first.conditions[name]:
                remedy = f"name students with the same {name}"
                raise UserError(f"{other.folder}: its {name} differ from those of {first.folder}; {remedy}")
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = list(map(str, folders))
    return {test: _points(students, names, test, metric) for test in first.measured.lines}


def _points(students: Sequence[_Student], names: Sequence[str], test: str, metric: str) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for student, own_name in zip(students, names, strict=True):
        systems = student.measured.systems
        of_teacher = systems[BASE].figures[test].lines_per_second
        for name, system in systems.items():
            is_teacher = name.startswith(TEACHER)
            if is_teacher and student is not students[0]:
                continue
            size, figures = f"{system.megabytes:.3g} MB", system.figures[test]
            label = size if is_teacher else f"{own_name}, {size}"
            point = figures.lines_per_second / of_teacher, figures.scores[metric], label
            found.setdefault(name if is_teacher else name.replace(STUDENT, "students"), []).append(point)
    return {name: sorted(points) for name, points in found.items()}


def _read(folder: Path) -> _Student:
    if not is_student(folder):
        remedy = "name only folders of s2s distill, or one RUN"
        raise ModelError(f"{folder}: not a folder of s2s distill ({RESULT} is missing); {remedy}")
    try:
        description: Mapping[str, Any] = read_object(folder / RESULT)
        measured = MeasuredSystems.from_json(description["steps"]["measure"])
        assert BASE in measured.systems
        data = description["data"]
        conditions = {
            "teachers": description["teachers"],
            "search options": {key: value for key, value in description["options"].items() if key != "interpolate"},
            "languages": [description["config"][side] for side in ("source_language", "target_language")],
            "test sets": [measured.lines, measured.signatures, data["test"] or data["valid"]],
        }
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}; distil the student again") from error
    except (KeyError, TypeError, AttributeError, AssertionError) as error:
        raise ModelError(f"{folder}: not finished; run the same s2s distill command again") from error
    return _Student(folder, conditions, measured)
