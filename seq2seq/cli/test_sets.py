"""The test sets of `s2s bleu` and `s2s compare`, from files or of a run, with the translations of each system.

The commands open them, let models translate them, and score them.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.outputs import check_output, open_output
from seq2seq.errors import DataError, ModelError, did_you_mean
from seq2seq.evaluation.translated import translations
from seq2seq.languages import check_direction, direction_name
from seq2seq.lines import check_counts, read_lines

if TYPE_CHECKING:
    from seq2seq.config.description import ModelDescription
    from seq2seq.config.schema import Config
    from seq2seq.inference.pipeline import Pipeline
    from seq2seq.text.tokenizer import TokenizerPair

logger = logging.getLogger("seq2seq.cli")

LANGUAGES = ("source_language", "target_language")
ZERO_SHOT = " (zero-shot)"  # the end of the name of a test set whose direction was not trained


@dataclass
class TestSet:
    """A test set: references, and the translations of each system."""

    name: str | None
    """The name in the config, with the direction if there are several; None for files given on the command line."""
    references: list[list[str]]
    """Lists of reference lines, one or several for the same sources."""
    sources: list[str] = field(default_factory=list)
    translations: dict[str, list[str]] = field(default_factory=dict)
    """The translations by system."""
    flags: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    """The flags of each line, by system, for models."""
    direction: tuple[str, str] | None = None
    """The languages, for a run of many directions."""
    degenerate: dict[str, Any] = field(default_factory=dict)
    """The number and rate of degenerate translations of the last model, and the number by symptom."""
    off_target: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The number and rate of translations in another language than the target, by system, for models of several target
    languages."""

    @property
    def choice(self) -> str:
        """The value of `--test-set` that chooses only this test set."""
        return str(self.name).removesuffix(ZERO_SHOT)

    def scoring(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of `score_texts`: those given, with the target language if the test set has a direction."""
        return {**given, "target_language": self.direction[1]} if self.direction is not None else dict(given)


def given_files(references: Sequence[Path], hypotheses: Sequence[Path]) -> TestSet:
    """Return the test set of references and translations from files; without hypotheses, from standard input."""
    if len(set(hypotheses)) < len(hypotheses):
        raise click.UsageError("a system is given twice; name each file once")
    test_set = TestSet(None, given_references(references))
    for path in hypotheses or (None,):
        lines = given_lines(path)
        test_set.translations[str(path)] = lines if path is None else translations(path, lines)
    return test_set


@dataclass(frozen=True)
class TranslatingModels:
    """The models that translate test sets before scoring."""

    folders: Mapping[str, Path]
    """The model folders, by the name that the user gave."""
    config: "Config | None"
    """The configuration of the first run among the models; its test sets and evaluation settings are used."""
    first: Path
    """The folder of that run's model; that of the first model if none belongs to a run."""

    @classmethod
    def find(cls, names: Sequence[Path]) -> "TranslatingModels":
        """Find the folders of MODELs.

        Raises:
            ModelError: there is no model, or it is a classification model.
        """
        from seq2seq.config.file import load
        from seq2seq.store.finding import RUN_CONFIG, find_model, run_of_model, task_of

        folders = {str(name): find_model(name) for name in names}
        if len({folder.resolve() for folder in folders.values()}) < len(names):
            raise click.UsageError("a model is given twice; name each once")
        for name, folder in folders.items():
            if task_of(folder) == "classification":
                raise ModelError(f"{name}: a classification model; s2s classify --gold FILE scores it")
        for folder in folders.values():
            if (run := run_of_model(folder)) is not None:
                return cls(folders, load(run / RUN_CONFIG, check_files=False), folder)
        return cls(folders, None, next(iter(folders.values())))

    @property
    def scoring(self) -> dict[str, Any]:
        """The default options of `score_texts`."""
        if self.config is None:
            return {"target_language": _target_language(self.first)}
        evaluation = self.config.evaluation
        return {
            "metrics": evaluation.metrics,
            "tokenize": evaluation.tokenize,
            "target_language": self.config.single_languages[1],
        }

    def test_sets(self, source: Path | None, references: Sequence[Path], names: Sequence[str]) -> list[TestSet]:
        """Return the test set of the given files, or the test sets of the run with these names (all without names).

        A name may end with a direction of the test set, such as `news en-de`.

        Raises:
            DataError: the files differ in their number of lines, are empty, or the run has no such test set.
        """
        if source is None:
            test_sets = self._of_the_run(names)
        else:
            sources = list(read_lines(source, options.warn_invalid(source)))
            test_sets = [TestSet(None, given_references(references), sources)]
            check_counts(source, len(sources), references[0], len(test_sets[0].references[0]))
        if empty := [test_set.name or references[0] for test_set in test_sets if not test_set.references[0]]:
            raise DataError(f"{empty[0]} has no lines; there is nothing to score")
        return test_sets

    def _of_the_run(self, names: Sequence[str]) -> list[TestSet]:
        from seq2seq.data.directions import open_named

        config, folder = self.config, self.first
        give = "give --source FILE and --reference FILE"
        if config is None:
            raise DataError(f"{folder}: a model without its run has no test sets; {give}")
        if not config.data.test:
            raise DataError(f"{folder}: its config names no test sets (data.test); {give}")
        trained = None if config.languages is None else _trained(folder)
        found: dict[str, TestSet] = {}
        for name, chosen in [_parted(name, config.data.test) for name in names or config.data.test]:
            sides = config.source_language, config.target_language
            try:
                pairs = list(open_named(config.data.test[name], name, config.languages, sides))
            except DataError as error:
                raise DataError(f"{error}; {give}") from error
            directions = dict.fromkeys(pair.direction for pair in pairs) or {None: None}
            named = {direction and direction_name(direction): direction for direction in directions}
            if chosen is not None and chosen not in named:
                directions = ", ".join(filter(None, named))
                known = f"the directions of {name} are {directions}" if directions else f"{name} has no directions"
                raise DataError(f"--test-set {name} {chosen}: {known}")
            for direction in named.values() if chosen is None else [named[chosen]]:
                own = [pair for pair in pairs if pair.direction == direction]
                title = name if len(directions) == 1 else f"{name} {direction_name(direction)}"
                if direction and trained is not None and direction_name(direction) not in trained:
                    title += ZERO_SHOT
                while title in found:  # the name of another set, such as `news en-de`
                    title += " (2)"
                sides = [[pair.target for pair in own]], [pair.source for pair in own]
                found[title] = TestSet(title, *sides, direction=direction)
        return list(found.values())

    def outputs(self, test_sets: Sequence[TestSet], output: Path | None) -> list[Path | None]:
        """Return the file for the translations of each test set: one file, or a file for each."""
        outputs = [output] * len(test_sets)
        if output is not None and len(test_sets) > 1:
            outputs = [output.with_stem(f"{output.stem}.{test_set.name}") for test_set in test_sets]
        inputs = self.config.data.test.items() if self.config is not None else ()
        also = {f"data.test.{name}.{side}": path for name, files in inputs for side, path in files.files()}
        for path in outputs:
            check_output(path, also)
        return outputs

    def translate(
        self, test_sets: Sequence[TestSet], outputs: Sequence[Path | None], loading: Mapping[str, Any]
    ) -> None:
        """Let each model translate all test sets, and write the translations to `outputs`.

        Raises:
            ModelError: a model is damaged, or has another direction than the first one.
            UserError: a model does not have the languages of a test set, or needs languages that are not named.
        """
        from seq2seq.inference.pipeline import Pipeline

        given = {"n_best": 1, **{key: value for key, value in loading.items() if value is not None}}
        if given.keys() & set(LANGUAGES) and any(test_set.direction for test_set in test_sets):
            raise click.UsageError("--from and --to: the test sets of the run have directions; leave these options out")
        if len(self.folders) > 1:  # before the first of them translates for minutes
            self._check_directions(dict.fromkeys(test_set.direction for test_set in test_sets), given)
        for model, folder in self.folders.items():
            pipelines: dict[tuple[str, str] | None, Pipeline] = {}
            for test_set, path in zip(test_sets, outputs, strict=True):
                if test_set.direction not in pipelines:
                    languages = dict(zip(LANGUAGES, test_set.direction or (), strict=False))
                    pipelines[test_set.direction] = Pipeline.load(folder, **given, **languages)
                pipeline = pipelines[test_set.direction]
                if test_set is test_sets[0]:
                    logger.info("%s: engine: %s", folder, pipeline.translator.engine_note)
                self._translate_set(model, pipeline, test_set, path)

    def _check_directions(self, directions: Iterable[tuple[str, str] | None], given: Mapping[str, Any]) -> None:
        """Refuse models that do not have the directions of the test sets, or, if these have none, one direction."""
        from seq2seq.store.direction import directed, single_languages
        from seq2seq.text.direction import Direction

        described = {model: _described(folder) for model, folder in self.folders.items()}
        for direction in directions:
            wanted = Direction(*(direction or map(given.get, LANGUAGES)))
            sides = {model: single_languages(*directed(model, *about, wanted)) for model, about in described.items()}
            first = next(iter(sides))
            for model in sides if direction is None else ():
                check_direction(model, sides[model], first, sides[first], "name models of the same direction")

    def _translate_set(self, model: str, pipeline: "Pipeline", test_set: TestSet, output: Path | None) -> None:
        """Let one model translate one test set, and log the lines that are degenerate or in another language."""
        from seq2seq.inference.degeneration import off_target, summary, symptom_counts

        translations = pipeline.translate(test_set.sources)
        texts = test_set.translations[model] = [translation.text for translation in translations]
        if output is not None:
            with open_output(output) as sink:
                sink.writelines(f"{text}\n".encode("utf-8", errors="replace") for text in texts)
        flags = test_set.flags[model] = [translation.flags for translation in translations]
        num_lines, counts = symptom_counts(flags)
        test_set.degenerate = {"lines": num_lines, "rate": num_lines / len(flags), **counts}
        about = [model] * (len(self.folders) > 1) + [test_set.name] * (test_set.name is not None)
        logger.info("%s", ": ".join([*about, summary(Counter(flags))]))
        if pipeline.translator.has_many_targets:
            found = test_set.off_target[model] = off_target(flags)
            words = "{lines:,} lines ({rate:.1%}) are in another language than the target".format(**found)
            logger.info("%s", ": ".join([*about, words]))


def warn_of_misleading(
    references: Sequence[Sequence[str]],
    systems: Iterable[Sequence[str]],
    metrics: Sequence[str],
    scoring: Mapping[str, Any],
) -> None:
    """Warn of texts on which a metric is misleading."""
    from seq2seq.evaluation.text import form_hint, tokenizer_hint

    hints = []
    if "bleu" in metrics:
        hints.append(tokenizer_hint(references[0], scoring.get("tokenize"), scoring.get("target_language")))
    for lines in systems:
        hints += [form_hint(lines, reference) for reference in references]
    for hint in dict.fromkeys(filter(None, hints)):
        logger.warning("%s", hint)


def named_metrics(text: str) -> list[str]:
    """Return the names of the metrics in the value of `--metrics`."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise click.UsageError("--metrics names none of bleu,chrf,chrf++,ter")
    return names


def check_scoring(metrics: Sequence[str], tokenize: str | None) -> None:
    """Refuse metrics and tokenizers that cannot be used, and options that no metric uses, before any work."""
    from seq2seq.evaluation.text import check_settings

    check_settings(metrics, tokenize)
    if "bleu" not in metrics:
        options.only_for(f"BLEU, but the metrics are {', '.join(metrics)}; name it with --metrics", "tokenize")
    if set(metrics) == {"ter"}:
        options.only_for("BLEU and chrF; TER always ignores case", "lowercase")


def given_references(paths: Sequence[Path]) -> list[list[str]]:
    """Return the lines of reference files, which must be parallel."""
    if len(set(paths)) < len(paths):
        raise click.UsageError("a reference is given twice; name each file once")
    references = [given_lines(path) for path in paths]
    for path, lines in zip(paths, references, strict=True):
        check_counts(paths[0], len(references[0]), path, len(lines))
    return references


def given_lines(path: Path | None) -> list[str]:
    """Return the lines of a file or of standard input, with a byte order mark, which sacrebleu counts as text."""
    if path is None:
        from seq2seq.cli.streaming import open_input, read_idle_batches

        batches = read_idle_batches(open_input(None), on_invalid=options.warn_invalid(None), keeps_bom=True)
        lines = list(chain.from_iterable(batches))
    else:
        lines = list(read_lines(path, options.warn_invalid(path), keeps_bom=True))
    if lines and lines[0].startswith("\ufeff"):
        name = path or "standard input"
        logger.warning("%s: begins with a byte order mark, which sacrebleu counts as text; remove it", name)
    return lines


def _parted(given: str, known: Collection[str]) -> tuple[str, str | None]:
    """Return the test set and the direction in a value of `--test-set`, such as `news` or `news en-de`.

    Raises:
        DataError: the run has no such test set.
    """
    name, _, direction = given.rpartition(" ")
    if given in known:
        return given, None
    if name in known:
        return name, direction
    raise DataError(f"--test-set {given}: the run has {', '.join(known)}{did_you_mean(given, known)}")


def _trained(folder: Path) -> Sequence[str] | None:
    """Return the directions that a model was trained in; None if they are unknown, or if it may know others.

    Problems of config.json are reported when the model is loaded.
    """
    from seq2seq.files import DamagedFile, read_object
    from seq2seq.interop.ctranslate2 import is_ctranslate2
    from seq2seq.store.direction import may_know_others
    from seq2seq.store.finding import CONFIG
    from seq2seq.text.stored import load_tokenizers

    if is_ctranslate2(folder) or may_know_others(load_tokenizers(folder)):
        return None
    try:
        return read_object(folder / CONFIG).get("directions", ())
    except DamagedFile:
        return None


def _target_language(folder: Path) -> str | None:
    return _described(folder)[0].target_language


def _described(folder: Path) -> "tuple[ModelDescription, TokenizerPair]":
    from seq2seq.interop.ctranslate2 import is_ctranslate2, read_description
    from seq2seq.store.model_folder import load_outline

    if is_ctranslate2(folder):
        return read_description(folder)[:2]
    outline = load_outline(folder)
    return outline.description, outline.tokenizers
