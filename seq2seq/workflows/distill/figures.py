"""The figures of a teacher and its student, as `distill.json` has them; and those of several students, for a picture.

`measured` makes them.
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
    teachers: Any
    measured: MeasuredSystems


def is_student(folder: Path) -> bool:
    """Whether a folder is one of `s2s distill`."""
    return (folder / RESULT).is_file()


def speeds_and_scores(folders: Sequence[Path], metric: str) -> dict[str, dict[str, list[Point]]]:
    """Return the points of each system, by test set: speed, score and label, in the order of speed.

    The speed is a multiple of that of the teacher in float32, which is measured with each student: the speeds of
    students that were measured at different times can be compared.

    Raises:
        ModelError: a folder has no finished distillation.
        UserError: the students have different teachers or test sets.
    """
    students = [_read(folder) for folder in folders]
    first, *others = students
    for other in others:
        if other.teachers != first.teachers:
            raise UserError(f"{other.folder}: its teachers are not those of {first.folder}; name students of the same")
        if (other.measured.lines, other.measured.signatures) != (first.measured.lines, first.measured.signatures):
            raise UserError(f"{other.folder}: its test sets are not those of {first.folder}; name students of the same")
    return {test: _points(students, test, metric) for test in first.measured.lines}


def _points(students: Sequence[_Student], test: str, metric: str) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for student in students:
        systems = student.measured.systems
        of_teacher = systems[BASE].figures[test].lines_per_second
        for name, system in systems.items():
            is_teacher = name.startswith(TEACHER)
            if is_teacher and student is not students[0]:
                continue
            size, figures = f"{system.megabytes:.3g} MB", system.figures[test]
            label = size if is_teacher else f"{student.folder.name}, {size}"
            point = figures.lines_per_second / of_teacher, figures.scores[metric], label
            found.setdefault(name if is_teacher else name.replace(STUDENT, "students"), []).append(point)
    return {name: sorted(points) for name, points in found.items()}


def _read(folder: Path) -> _Student:
    try:
        description: Mapping[str, Any] = read_object(folder / RESULT)
        measured = MeasuredSystems.from_json(description["steps"]["measure"])
        assert BASE in measured.systems
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}") from error
    except (KeyError, TypeError, AttributeError, AssertionError) as error:
        raise ModelError(f"{folder}: not finished; run the same s2s distill command again") from error
    return _Student(folder, description.get("teachers"), measured)
