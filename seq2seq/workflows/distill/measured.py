"""The figures of teacher and student: score, speed and size, and the page that shows them.

`steps` measures as its last step.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2seq.config.schema import Config
from seq2seq.data.examples import Pair
from seq2seq.data.sources import open_pairs
from seq2seq.errors import UserError, counted
from seq2seq.evaluation.text import score_texts
from seq2seq.inference.conversion_cache import converted
from seq2seq.inference.pipeline import Pipeline
from seq2seq.workflows.distill.figures import BASE, METRICS, STUDENT, TEACHER, Figures, MeasuredSystem, MeasuredSystems
from seq2seq.workflows.pages import document, escaped, table
from seq2seq.workflows.parts import NOT_IDENTITY

logger = logging.getLogger(__name__)

WARM_UP_LINES = 16
WEIGHTS = (".safetensors", ".bin")  # the first that a folder has is loaded


def test_sets(config: Config) -> dict[str, list[Pair]]:
    """Return the pairs of each test set, or of the validation set if there is none."""
    sets = config.data.test or {"validation set": config.data.valid}
    languages = config.source_language or "", config.target_language or ""
    return {name: list(open_pairs(source, *languages)) for name, source in sets.items()}


def measure(
    config: Config, teachers: Sequence[Path], loading: Mapping[str, Any], student: Path, exported: Path
) -> MeasuredSystems:
    """Translate the test sets with teacher and student, in float32 and in int8, and measure.

    All speeds are those of the CPU, where int8 runs, with the same threads and batches, so that they can be compared.
    CTranslate2, which has int8, runs no ensemble, so several teachers are measured in float32 alone.

    Args:
        config: configuration of the student, for its test sets and languages.
        teachers: model folders.
        loading: options with which the teachers made the pairs; their device is not used.
        student: model folder.
        exported: CTranslate2 folder of the student in int8.
    """
    tests = test_sets(config)
    measured = MeasuredSystems({name: len(pairs) for name, pairs in tests.items()})
    where = {key: value for key, value in loading.items() if key in NOT_IDENTITY} | {"device": "cpu", "n_best": 1}
    float32 = {"precision": "float32", **where}
    pipelines: dict[str, tuple[Pipeline, float]] = {
        BASE: (Pipeline.load(*teachers, **{**loading, **float32}), sum(map(_megabytes, teachers)))
    }
    if len(teachers) == 1 and not loading.keys() & {"engine", "quantization", "precision", "sample"}:
        try:
            with converted(teachers[0], "int8") as (folder, *_):
                megabytes = _megabytes(folder)
            int8 = Pipeline.load(*teachers, **{**loading, **where}, quantization="int8")
            pipelines[f"{TEACHER}, int8"] = int8, megabytes
        except UserError as error:  # CTranslate2 has other limits than PyTorch; the other figures remain
            logger.warning("the teacher is not measured in int8: %s", error)
    pipelines[f"{STUDENT}, float32"] = (Pipeline.load(student, **float32), _megabytes(student))
    pipelines[f"{STUDENT}, int8"] = (Pipeline.load(exported, **where), _megabytes(exported))
    for name, (pipeline, megabytes) in pipelines.items():
        figures = {test: _figures(pipeline, pairs, config, measured) for test, pairs in tests.items()}
        measured.systems[name] = MeasuredSystem(pipeline.translator.engine_note, round(megabytes, 2), figures)
    return measured


def _figures(pipeline: Pipeline, pairs: Sequence[Pair], config: Config, measured: MeasuredSystems) -> Figures:
    sources = [pair.source for pair in pairs]
    pipeline.translate(sources[:WARM_UP_LINES])
    began = time.perf_counter()
    texts = [answer.text for answer in pipeline.translate(sources)]
    seconds = time.perf_counter() - began
    references, tokenize = [pair.target for pair in pairs], config.evaluation.tokenize
    scores = score_texts(texts, references, METRICS, tokenize, config.target_language)
    measured.signatures |= {score.metric: f"{score.result.name}|{score.signature}" for score in scores}
    values = {score.metric: round(score.score, 4) for score in scores}
    return Figures(values, round(len(sources) / max(seconds, 1e-9), 2))


def _megabytes(folder: Path) -> float:
    """Return the size of the weights; a folder may have them in a second format, which is not loaded."""
    formats = [[path.stat().st_size for path in folder.iterdir() if path.suffix == suffix] for suffix in WEIGHTS]
    return sum(next(filter(None, formats), [])) / 1e6


def page(title: str, measured: MeasuredSystems, notes: Sequence[str]) -> str:
    """Return the HTML page of a distillation; `title` and `notes` are text."""
    return document(escaped(title), _parts(title, measured, notes))


def _parts(title: str, measured: MeasuredSystems, notes: Sequence[str]) -> Iterator[str]:
    yield f"<h1>{escaped(title)}</h1>"
    yield from (f"<p>{escaped(note)}</p>" for note in notes)
    yield "<h2>Scores, speed and size</h2>"
    for name, count in measured.lines.items():
        yield table(f"{name}: {counted(count, 'line')}", measured.titles, measured.rows(name))
    yield '<p class="soft">Speeds were measured once, on the CPU of the machine and in the state of that moment.</p>'
    yield table("Engines", ["system", "engine"], [[name, each.engine] for name, each in measured.systems.items()])
    yield "<h2>Signatures</h2>"
    yield from (f"<p><code>{escaped(signature)}</code></p>" for signature in measured.signatures.values())
