"""The benchmark `s2s bench decode`: the speed of translation, next to other installed toolkits.

Our system is the `Translator` of `s2s translate`, with the settings of the model. All systems translate the same lines
with the same weights, from text to text, greedily and with a beam.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from seq2seq import runtime as runtimes
from seq2seq.bench.decoding_peers import PEERS, DecodingSystem, length_limit, open_decoding_peers
from seq2seq.bench.measure import (
    OURS,
    Entrant,
    Progress,
    compare,
    forward_flops,
    peak_memory,
    seconds_of,
    significant,
    sizes,
)
from seq2seq.bench.report import Report, machine
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import DataError, ModelError
from seq2seq.evaluation.probe import Probe
from seq2seq.evaluation.text import score_texts
from seq2seq.files import shipped_folder
from seq2seq.inference.engine import ONE_BEST, EngineName, override_search
from seq2seq.inference.loading import load_engine
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.languages import language_code
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.text.direction import UNNAMED, Direction

REMARKS = (
    "seq2seq decodes degenerate translations again; the time includes this",
    "ctranslate2 alone: one worker per thread; for sentences one at a time, one worker with all threads",
)
# The values of `search.record` as they are typed.
TYPED = {True: "on", False: "off"}
# The most expensive input: it is cut into many parts, and models answer each with repetitions.
JUNK = (
    "," * 900,
    "a" * 2000,
    "https://example.org/" + "x/" * 400,
    " ".join(str(number**5 % 1_000_003) for number in range(300)),
    " ".join(chr(65 + number % 6) + str(number**3 % 977) for number in range(300)),
    "the " * 500,
    "WARNING! " * 100,
    "é中😀" * 300,
)


@dataclass(frozen=True)
class Engines:
    """The engines of our system, each of which is an entrant, and with `quantization` one more (except torch)."""

    engines: tuple[EngineName, ...] = ("auto",)
    quantization: str | None = None
    device: str = "auto"
    precision: str | None = None
    threads: int | None = None
    direction: Direction = UNNAMED
    """The languages, for a model of many languages."""
    record: tuple[bool | str, ...] = ()
    """Values of `search.record`, each of which is an entrant (except ctranslate2); none means that of the model."""


@dataclass(frozen=True)
class DecodingRounds:
    """The number of rounds, and the work of each round."""

    rounds: int = 3
    sentences: int = 1000
    """The number of lines, from the first line."""
    beam_sizes: tuple[int, ...] = (1, 5)
    single_sentences: int = 50
    """The number of lines that are also translated one at a time."""
    batch_size: int = 64
    """Sentences per batch of the peers; our system chooses its batches."""
    matmul_size: int | None = None


class OurDecoding(DecodingSystem):
    """Our `Translator` with one engine."""

    def __init__(
        self,
        folder: Path,
        engine: EngineName,
        quantization: str | None,
        settings: Engines,
        record: bool | str | None = None,
    ):
        said = "" if record is None else f"record={TYPED.get(record, record)}"
        self.name = " ".join(filter(None, (OURS, engine if engine != "auto" else "", quantization, said)))
        computing = (settings.device, settings.precision, settings.threads)
        search = {} if record is None else {"record": record}
        self._load = partial(load_engine, (folder,), engine, quantization, *computing, search, settings.direction)
        loaded = self._load()  # a model of another form is converted once, to the cache
        self.uses_torch = isinstance(loaded.engine, TorchEngine)
        self.close()

    def translate(self, lines: Sequence[str], search: SearchConfig) -> tuple[list[str], int]:
        self._loaded = self._loaded or self._load()
        translations = Translator(self._loaded.engine, self._loaded.tokenizers, search).translate(lines)
        return [each.text for each in translations], sum(each.tokens for each in translations)

    def close(self) -> None:
        self._loaded = None


def bench_decoding(
    folder: Path,
    probe: Probe,
    engines: Engines,
    peers: Sequence[str] = PEERS,
    rounds: DecodingRounds | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Translate with every system, in alternating rounds.

    Args:
        folder: a model folder, run folder or Marian folder.
        probe: lines to translate; blank lines and lines too long for the model are left out. The built-in probe is the
            test set of the phrasebook of the toolkit, for models from English or German.
        engines: engines of our system.
        peers: names from `PEERS`; the report names those that are not installed or cannot run the model.
        rounds: number of rounds, and the work of each.
        progress: function that is called with a description of the next step.

    Raises:
        UserError: there is no such model, it is not a translation model or needs languages that are not named, or there
            is nothing to translate.
    """
    rounds = rounds or DecodingRounds()
    model = load_model(folder)
    if model.description.task != "translation":
        raise ModelError(f"{model.folder}: a {model.description.task} model; bench decode measures translation models")
    model = model.directed(engines.direction)
    here = runtimes.start(engines.device, engines.precision, engines.threads)
    given = probe if probe.lines is not None else phrasebook(model.folder, model.description)
    usable = _usable(given, model, rounds.sentences)
    bench = _DecodingBench(model, usable, rounds, here)
    with tempfile.TemporaryDirectory(prefix="s2s-bench-") as temporary:
        makers = _makers(model, engines, peers, here, rounds.batch_size, Path(temporary))
        openings = ((name, partial(bench.entrants, make)) for name, make in makers)
        systems, left_out, rounds_taken = compare(openings, rounds.rounds, here, rounds.matmul_size, progress)
    torch.set_num_threads(bench.threads)
    work = {
        "model": str(model.folder),
        "sentences": len(usable.lines),
        "lines_left_out": len(given.lines) - len(usable.lines),
        **sizes(model.model.config),
        "vocabulary": model.tokenizers.target.vocab_size,
        "length_penalty": model.description.search.length_penalty,
        "peers_batch_size": rounds.batch_size,
        "bleu_signature": bench.signature,
        **rounds_taken,
    }
    return Report("decode", machine(here, systems), work, systems, left_out, REMARKS)


class _DecodingBench:
    """The model, lines and threads, which are the same for all systems."""

    def __init__(self, model: LoadedModel, probe: Probe, rounds: DecodingRounds, here: runtimes.Runtime):
        self.threads = torch.get_num_threads()
        self._model, self._probe, self._rounds, self._here = model, probe, rounds, here
        self._source_tokens = sum(len(ids) + 1 for ids in model.tokenizers.source.encode_all(probe.lines))
        settings = model.description.search
        self._searches = [override_search(settings, {"beam_size": size, **ONE_BEST}) for size in rounds.beam_sizes]
        self._first_texts: dict[str, list[str]] = {}
        self.signature: str | None = None

    def entrants(self, make: Callable[[], DecodingSystem]) -> Iterator[Entrant]:
        """Yield an entrant for each search of a system, after it translated all lines once."""
        outputs = []
        torch.set_num_threads(self.threads)
        system = make()
        with peak_memory(self._here.device) as peak:
            for search in self._searches:
                system.translate(self._probe.lines[:1], search)
                outputs.append(system.translate(self._probe.lines, search))
            system.close()
        on_cpu = self._here.device.type == "cpu"
        for search, (texts, tokens) in zip(self._searches, outputs, strict=True):
            work = "greedy" if search.beam_size == 1 else f"beam {search.beam_size}"
            same = map(str.__eq__, texts, self._first_texts.setdefault(work, texts))
            facts = {
                "output_tokens": tokens,
                "same_text": significant(sum(same) / len(texts)),
                **self._bleu(texts),
                "peak_memory_bytes": next(iter(peak), None) if system.uses_torch or on_cpu else None,
            }
            yield Entrant(system.name, work, partial(self._take_round, system, search, tokens), facts)

    def _bleu(self, texts: Sequence[str]) -> dict[str, float]:
        if self._probe.references is None:
            return {}
        language = self._model.description.target_language
        score = score_texts(texts, self._probe.references, ("bleu",), target_language=language)[0]
        self.signature = score.signature
        return {"bleu": significant(score.score)}

    def _take_round(self, system: DecodingSystem, search: SearchConfig, tokens: int) -> dict[str, float]:
        def seconds(texts: Sequence[str]) -> float:
            torch.set_num_threads(self.threads)  # CTranslate2 changes the number for the whole process
            return seconds_of(lambda: system.translate(texts, search), self._here.device)

        sources = self._probe.lines
        seconds(sources[:2])  # opens the system again
        whole = seconds(sources)
        seconds(sources[:1])
        singles = [seconds([line]) for line in sources[: self._rounds.single_sentences]]
        junk = {}
        if isinstance(system, OurDecoding):
            per_character = seconds(JUNK) / sum(map(len, JUNK))
            junk = {"junk_cost": per_character * sum(map(len, sources)) / whole}
        system.close()
        flops = forward_flops(self._model.model, self._source_tokens, tokens * search.beam_size)
        return {
            "sentences_per_second": len(sources) / whole,
            "output_tokens_per_second": tokens / whole,
            "single_sentences_per_second": 1 / statistics.median(singles),
            "flops_per_second": flops / whole,
            **junk,
        }


def _makers(
    model: LoadedModel,
    engines: Engines,
    peers: Sequence[str],
    here: runtimes.Runtime,
    batch_size: int,
    temporary: Path,
) -> Iterator[tuple[str, Callable[[], DecodingSystem]]]:
    """Yield (name, function that makes it) of each system; the systems of a peer have the peer's name."""
    kinds: list[tuple[EngineName, str | None]] = [(engine, None) for engine in engines.engines]
    if engines.quantization:
        kinds += [(engine, engines.quantization) for engine in engines.engines if engine != "torch"]
    for engine, quantization in kinds:
        can_record = engine != "ctranslate2" and not quantization
        for record in (engines.record or (None,)) if can_record else (None,):
            yield OURS, partial(OurDecoding, model.folder, engine, quantization, engines, record)
    for peer in peers:
        for make in open_decoding_peers(peer, model, here, batch_size, temporary):
            yield peer, make


def phrasebook(model: Path, description: ModelDescription) -> Probe:
    """Return the test set of the toolkit's phrasebook, for models from English or German.

    Raises:
        DataError: the model translates from another language.
    """
    source, target = map(language_code, (description.source_language, description.target_language))
    folder = shipped_folder() / "data" / "phrasebook"
    files = {language: folder / f"test.{language}" for language in ("en", "de")}
    if source not in files:
        raise DataError(f"{model}: translates from {source or 'an unknown language'}; give --input FILE")
    return Probe.read(files[source], files.get(target) if target != source else None)


def _usable(probe: Probe, model: LoadedModel, count: int) -> Probe:
    """Return the first `count` lines that every system can translate without splitting them.

    Raises:
        DataError: there are none.
    """
    texts = [line.strip() for line in probe.lines]
    most = model.model.config.max_length
    usable = [
        index
        for index, ids in enumerate(model.tokenizers.source.encode_all(texts))
        if ids and len(ids) < most and length_limit(ids, model.description.search) <= most
    ][:count]
    if not usable:
        raise DataError("there is nothing to translate: every line is blank or too long for the model; give --input")
    references = probe.references and tuple(probe.references[index] for index in usable)
    return Probe(tuple(texts[index] for index in usable), references)
