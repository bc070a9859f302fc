"""The five steps of `s2s distill`: pairs by the teachers, training, tuning, conversion to int8, and figures.

Each step that is done has an entry in `distill.json`, and is not repeated. An interrupted step continues, or begins
again, with the same result.
"""

import functools
import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

from seq2seq import atomic
from seq2seq.config import file as config_file
from seq2seq.config.corpora import SourceConfig, also_clean
from seq2seq.config.schema import Config
from seq2seq.config.values import PARTS_FILE
from seq2seq.config.yaml_text import as_yaml
from seq2seq.data.parts import part_path
from seq2seq.data.sources import open_pairs
from seq2seq.errors import ModelError, UserError
from seq2seq.evaluation.probe import Probe
from seq2seq.files import json_text, read_object, record
from seq2seq.languages import are_other, check_direction
from seq2seq.store.direction import KEYS, OPTIONS, choices, zero_shot
from seq2seq.store.finding import BEST, CONFIG, find_model
from seq2seq.store.model_folder import LoadedModel, load_outline, update_search
from seq2seq.store.tuning import VALIDATION
from seq2seq.tasks.run_folder import WITHOUT_EFFECT, read_note
from seq2seq.text.direction import Direction
from seq2seq.workflows.augment.checks import check_language, check_lines
from seq2seq.workflows.augment.job import Recipe, default_search, models_stay_open
from seq2seq.workflows.augment.request import Prepared, Request, augment, prepare, texts_of_runs
from seq2seq.workflows.augment.shards import Shard, TextFacts, plan
from seq2seq.workflows.distill.figures import RESULT
from seq2seq.workflows.distill.measured import measure, page
from seq2seq.workflows.distill.request import Distillation
from seq2seq.workflows.distill.texts import sources, write_lines
from seq2seq.workflows.distill.tokenizers import OF_TRAINING, check_tags, plain_tokenizers
from seq2seq.workflows.parts import (
    NOT_IDENTITY,
    differences,
    find_parts,
    folder_record,
    open_parts,
    other_lines,
    other_model,
)
from seq2seq.workflows.tune import Scoring, Tuner, score_changes

logger = logging.getLogger(__name__)

REPORT = "report.html"
QUANTIZATION = "int8"
MOST_PROBED = 500  # lines of the validation set
# Keys of `training` that do not change the student.
NO_EFFECT = {key.removeprefix("training.") for key in WITHOUT_EFFECT if key.startswith("training.")}


class Student:
    """The work of a `Distillation` in its folder; `make` does the steps that are left."""

    def __init__(self, request: Distillation):
        self.request, self.folder = request, request.output.resolve()
        self.loading = dict(request.loading)  # `make` adds the direction
        self.defaults: dict[str, Any] = {}  # `make` adds the search settings of the teachers
        self.licences: dict[str, str] = {}  # of the teachers
        self.source_language: str | None = None  # that of the config, or of the first teacher that names it
        self.teachers = [find_model(teacher, "translation").resolve() for teacher in request.teachers]
        if len(set(self.teachers)) < len(self.teachers):
            raise UserError("a TEACHER is given twice; name each once")
        self.config = config_file.load(request.config, request.overrides)
        if self.config.task != "translation":
            raise UserError(f"{request.config}: a classifier is not a student of a translation model")
        if self.config.languages is not None:
            raise UserError(f"{request.config}: languages: a student has one direction; write source_language and "
                            "target_language")  # fmt: skip
        if self.config.training.init_from is not None:
            raise UserError(f"{request.config}: training.init_from: a student begins with new weights; leave it out")
        if self.config.data.stages:
            raise UserError(
                f"{request.config}: data.stages: a student learns from all pairs in one stage; leave it out"
            )
        self.pairs = (request.pairs or self.folder / "pairs").resolve()
        self.run = self.folder / "run"
        self.model, self.exported = self.folder / "model", self.folder / QUANTIZATION

    def make(self, report: Callable[[int, Mapping[str, Any]], None] = lambda number, facts: None) -> dict[str, Any]:
        """Do all steps that are left, and return what `distill.json` contains.

        Without its last step, the training was stopped by a signal, and the same request continues.

        Args:
            report: called with the number and the facts of each part of the pairs.

        Raises:
            DataError: a text cannot be read, or is in another language or form.
            UserError: the models or the configuration do not fit, or the folder has something else.
            RunError: a step failed; the steps before it are kept.
        """
        given, noted = self.request.pairs, read_note(self.folder / RESULT).get("steps", {})
        if given is not None and not (given / PARTS_FILE).is_file() and self._is_left(noted)["augment"]:
            remedy = "name that of another student, such as models/other/pairs"
            raise UserError(f"--pairs {given}: not a folder of pairs ({PARTS_FILE} is missing); {remedy}")
        self.loading |= self._direction()
        if not self.request.is_forced:
            remedy = "give text in this language, or --force"
            check_lines(self.request.texts)
            check_language(self._planned_texts[1], self.source_language, "the student", remedy)
        work = self.folder, self._identity(), self._told(), RESULT, self.defaults
        with models_stay_open():
            # What the first step refuses is refused here, because a folder with other data or options cannot continue.
            is_new = find_parts(*work) is None
            if is_new and self.request.has_genuine:
                check_tags(self.config, self.teachers[0])
            texts = self._checked_texts() if is_new else {}
            with open_parts(*work) as description:
                for name, content in texts.items():
                    atomic.write_file(self.folder / name, content)
                self._take_steps(description, report)
        return description

    def _take_steps(self, description: dict[str, Any], report: Callable[[int, Mapping[str, Any]], None]) -> None:
        """Take the steps that are left, and note each in `distill.json`, whose content is `description`."""
        done = description.setdefault("steps", {})
        steps: dict[str, Callable[[], dict[str, Any] | None]] = {
            "augment": lambda: self._augment(report),
            "train": self._train,
            "tune": self._tune,
            "convert": self._convert,
            "measure": lambda: self._measure(done),
        }

        def note() -> None:
            atomic.write_file(self.folder / RESULT, json_text(description).encode())

        left = {name for name, is_left in self._is_left(done).items() if is_left}
        if again := {name: done.pop(name) for name in left & done.keys()}:
            note()  # a step that is stopped when it is done again is not taken for done
        for number, (name, step) in enumerate(steps.items(), start=1):
            if name not in left:
                logger.info("step %d of %d, %s: done", number, len(steps), name)
                continue
            reason = " again, because its result is missing or has changed" if name in again else ""
            logger.info("step %d of %d, %s%s", number, len(steps), name, reason)
            if (result := step()) is None:
                break
            if again.get(name, result) != result:  # as with another version of this toolkit
                left |= (later := set(list(steps)[number:]))
                again |= {each: done.pop(each) for each in later & done.keys()}
            done[name] = result
            note()

    def _is_left(self, done: Mapping[str, Any]) -> dict[str, bool]:
        """Return by step whether it is to be done; `done` contains the results of those that were.

        A user may delete what no later step reads (pairs, run), but not what the command is for.
        """
        kept = {"tune": self.model, "convert": self.exported, "measure": self.folder / REPORT}
        left = {name: name not in done or not path.exists() for name, path in kept.items()}
        left["train"] = "train" not in done or (left["tune"] and not (self.run / BEST).is_dir())
        left["convert"] |= left["train"] or "tune" not in done  # another training may end in other weights
        left["measure"] |= left["train"] or not {"tune", "convert"} <= done.keys()
        left["augment"] = "augment" not in done or (left["train"] and not self._has_pairs(done["augment"]))
        return left

    def _has_pairs(self, made: Mapping[str, Any]) -> bool:
        """Whether the pairs that a step made are there; their folder may have been moved."""
        file = self.pairs / PARTS_FILE
        if not file.is_file() or record(file)["sha256"] != made.get("description"):
            return False
        return all(part_path(self.pairs, number).exists() for number in range(read_object(file)["counts"]["parts"]))

    @functools.cached_property
    def _planned_texts(self) -> tuple[list[TextFacts], list[Shard]]:
        """The facts and shards of the further text."""
        return plan(self.request.texts, self.request.shard_lines) if self.request.texts else ([], [])

    def _identity(self) -> dict[str, Any]:
        """Return what determines the student; contents stand for paths."""
        config, request, data = self.config, self.request, self.config.data
        tokenizer = config.tokenizer.init_from
        languages = config.source_language or "", config.target_language or ""

        def fingerprint(source: SourceConfig) -> str:
            return open_pairs(source, *languages).fingerprint

        without = {"data": True, "training": NO_EFFECT, "tokenizer": {"init_from"}}
        options = {key: value for key, value in sorted(request.loading.items()) if key not in NOT_IDENTITY}
        return {
            "teachers": [folder_record(teacher) for teacher in self.teachers],
            "options": {**options, "interpolate": request.has_genuine},
            "texts": [{"lines": each.lines, "sha256": each.sha256} for each in self._planned_texts[0]],
            "tokenizer": tokenizer and folder_record(find_model(tokenizer)),
            "data": {
                "train": [[fingerprint(source), source.weight] for source in data.train],
                "valid": fingerprint(data.valid),
                "test": {name: fingerprint(source) for name, source in data.test.items()},
                "filters": data.filters.model_dump(mode="json"),
            },
            "config": config.model_dump(mode="json", exclude=without),
            "pairs": "of another student" if request.pairs else None,
        }

    def _told(self) -> dict[str, str]:
        """Return the phrases of `open_parts`."""
        data, teachers = self.config.data, self.request.teachers
        sets = ["valid", *(f"test.{name}" for name in data.test), *(f"train.{i}.0" for i in range(len(data.train)))]
        return {
            **{f"teachers.{index}": other_model(teacher) for index, teacher in enumerate(teachers)},
            **{f"texts.{i}.sha256": other_lines(each.name) for i, each in enumerate(self._planned_texts[0])},
            **{f"data.{name}": other_lines(f"data.{name.removesuffix('.0')}") for name in sets},
        }

    def _direction(self) -> dict[str, str]:
        """Return the options that give teachers of many languages the direction of the student.

        Raises:
            ModelError: a teacher does not have this direction, or is not a translation model.
        """
        found: dict[str, str] = {}
        for teacher, name in zip(self.teachers, self.request.teachers, strict=True):
            loaded = load_outline(teacher)
            if loaded.description.task != "translation":
                raise ModelError(f"{name}: a {loaded.description.task} model; name a translation model")
            found |= self._languages_of(loaded, name)
            self.defaults = self.defaults or default_search(loaded.description.search)  # an ensemble has the first's
            if licence := loaded.description.license:
                self.licences[str(name)] = licence
                logger.warning(
                    "%s has the licence %s; check whether it restricts the use of the student", name, licence
                )
        return found

    def _languages_of(self, loaded: LoadedModel, name: Path) -> dict[str, str]:
        given, ours = self.request.loading, (self.config.source_language, self.config.target_language)
        many = {
            key: language
            for (side, key), language in zip(KEYS.items(), ours, strict=True)
            if side in choices(loaded.description, loaded.tokenizers) and language and key not in given
        }
        named = {side: given.get(key, many.get(key)) for side, key in KEYS.items()}
        named_with = {side: OPTIONS[side] if key in given else key for side, key in KEYS.items()}
        trained = loaded.description.directions
        try:
            about = loaded.directed(Direction(**named), named_with).description
        except UserError as error:
            directions = f"; its directions are {', '.join(trained)}" if trained else ""
            raise ModelError(f"{name}: {str(error).removeprefix(f'{loaded.folder}: ')}{directions}") from error
        # A language that is not known may be a group, such as mul in opus-mt-mul-en.
        theirs = about.source_language, about.target_language
        self.source_language = self.source_language or ours[0] or theirs[0]
        if are_other(theirs, ours, only_recognised=True):
            check_direction(name, theirs, "the student", ours, "name another teacher or config")
        if warning := zero_shot(about, loaded.tokenizers):
            logger.warning("%s: %s", name, warning)
        return many

    # -- steps ----------------------------------------------------------------------------------------

    def _augment(self, report: Callable[[int, Mapping[str, Any]], None]) -> dict[str, Any]:
        """Let the teachers translate the source side of the training data, and the further text."""
        with models_stay_open():
            counts = augment(self._prepared(self.folder), self.request.executor, self.request.workers, report)
        if not counts.pairs:
            raise UserError(f"{self.pairs}: the teachers gave no pairs; lines left out: {counts.reasons}")
        return {**asdict(counts), "description": record(self.pairs / PARTS_FILE)["sha256"]}

    def _checked_texts(self) -> dict[str, bytes]:
        """Check the request for the pairs, without writing into the folder, and return the texts for it by name."""
        with tempfile.TemporaryDirectory(prefix="s2s-") as temporary:
            self._prepared(Path(temporary))
            return {path.name: path.read_bytes() for path in Path(temporary).iterdir()}

    def _prepared(self, place: Path) -> Prepared:
        """Return the checked request for the pairs, whose texts are in the folder `place` then.

        Raises:
            DataError, ModelError, UserError: as in `augment.request.prepare`, or the given pairs are not those of the
                request.
        """
        prepared, given = prepare(self._wanted_pairs(place)), self.request.pairs
        of_data = dict.fromkeys(("texts.0.lines", "texts.0.sha256"), other_lines("data.train"))
        prepared = replace(prepared, told={**prepared.told, **of_data})
        made = read_note(self.pairs / PARTS_FILE)
        if given and made and (named := differences(made, prepared.identity, prepared.told, prepared.defaults)):
            raise UserError(
                f"--pairs {given}: was made by another command: {named}; name the pairs of a student with the same "
                "teachers, data and options, or leave out --pairs"
            )
        return prepared

    def _wanted_pairs(self, place: Path | None = None) -> Request:
        """Return the request for the pairs, whose texts are in `place` then, the student's folder by default."""
        request, data, place = self.request, self.config.data, place or self.folder
        source, held_out = place / "source.txt.gz", place / "held_out.txt.gz"
        write_lines(source, sources(self.config, data.train))
        own_sets = sources(self.config, also_clean([data.valid, *data.test.values()]))
        remedy = "put the files back, or the student may learn from these lines"
        write_lines(held_out, chain(own_sets, texts_of_runs(self.teachers, remedy)))
        return Request(
            tuple(self.teachers),
            (source, *(text.resolve() for text in request.texts)),
            self.pairs,
            Recipe("forward"),
            self.loading,
            held_out=(held_out,),
            has_sets_of_runs=False,  # they are in the file, and a teacher may be moved out of its run
            shard_lines=request.shard_lines,
            base=place,
            is_forced=True,  # `make` has checked the languages of the texts
        )

    def student_config(self) -> Config:
        """Return the configuration of the student's training, whose data are the pairs."""
        written = self.config
        train: list[Any] = [{"jsonl": str(self.pairs)}]
        if self.request.has_genuine:
            train = [*(source.model_dump(mode="json") for source in written.data.train), *train]
        changes = [f"data.train={as_yaml(train)}"]
        if "model" not in written.model_fields_set:
            changes.append("model.preset=student")
        if taken := plain_tokenizers(self.config, self.teachers[0]):
            changes.append(f"tokenizer.init_from={as_yaml(str(self.teachers[0]))}")
            is_written = "tied_embeddings" in written.model.model_fields_set
            if not taken.shared and not is_written:
                changes.append("model.tied_embeddings=decoder")
        return config_file.load(self.request.config, [*self.request.overrides, *changes])

    def _train(self) -> dict[str, Any] | None:
        from seq2seq.tasks import run

        config = self.student_config()
        if config.model.preset is not None and "model" not in self.config.model_fields_set:
            logger.info("model.preset: student, because the config has no section model")
        if not config.tokenizer.model_fields_set - OF_TRAINING:
            logger.info("tokenizer: a new one, because that of %s has tags of languages", self.request.teachers[0])
        result = run.train(config, self.run, self.request.command)
        if result is None or result.status == "stopped":
            return None
        return {"steps": result.step, "best_step": result.best_step, result.metric or "metric": result.best_value}

    def _tune(self) -> dict[str, Any]:
        """Choose beam size and length penalty on the validation set, and write the student with them."""
        config, best = self.config, find_model(self.run)
        languages = config.source_language or "", config.target_language or ""
        metric = next((name for name in config.evaluation.metrics if name != "ter"), "chrf")
        scoring = Scoring(metric, config.evaluation.tokenize, config.target_language)
        tuner = Tuner(list(open_pairs(config.data.valid, *languages)), scoring, {})
        start, chosen = tuner.tune({"the student": best})
        found = {"metric": metric, **chosen.search, "before": dict(start.scores), "after": dict(chosen.scores)}
        with atomic.new_folder(self.model) as temporary:
            atomic.copy_folder(best, temporary)
            scores = {VALIDATION: score_changes(start.scores, chosen.scores)}
            update_search(temporary, chosen.search, {**found, "scores": scores})
            tuner.check_unchanged()
        return found

    def _convert(self) -> dict[str, Any]:
        """Write the student for CTranslate2 in int8, if its translations of validation sentences are similar enough."""
        from seq2seq.workflows.convert import export_ctranslate2

        config = self.config
        languages = config.source_language or "", config.target_language or ""
        pairs = list(open_pairs(config.data.valid, *languages))[:MOST_PROBED]
        probe = Probe(tuple(pair.source for pair in pairs), tuple(pair.target for pair in pairs))
        if (self.exported / CONFIG).exists():  # written, but its entry was not
            atomic.remove_folder(self.exported)
        compared = export_ctranslate2(self.model, self.exported, QUANTIZATION, probe, self.request.is_forced)
        return {"identical": compared.identical, "lines": compared.lines, "bleu_change": compared.bleu_change}

    def _measure(self, done: Mapping[str, Any]) -> dict[str, Any]:
        measured = measure(self.config, self.teachers, self.loading, self.model, self.exported)
        names = ", ".join(map(str, self.request.teachers))
        is_one = len(self.teachers) == 1
        which = "Teacher" if is_one else "Teachers, an ensemble, which only PyTorch runs, in float32"
        who = "It" if is_one else "They"
        pairs, tuned = done["augment"], done["tune"]
        notes = [
            f"{which}: {names}. {who} gave {pairs['pairs']:,} pairs of {pairs['lines']:,} lines.",
            f"Student: beam {tuned['beam_size']}, length penalty {tuned['length_penalty']:g}.",
            *(f"Licence of {name}: {licence}." for name, licence in self.licences.items()),
        ]
        title = f"Student in {self.request.output}"
        atomic.write_file(self.folder / REPORT, page(title, measured, notes).encode("utf-8", "replace"))
        return measured.as_json()
