"""`s2s bench decode`: how fast a model translates, beside other toolkits that are installed.

Ours is the `Translator` that `s2s translate` uses, with its own settings; everything is from text to text. Every system
translates the same lines with the same weights, greedily and with a beam.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from seq2seq import runtime as runtimes
from seq2seq.bench.decoding_peers import PEERS, DecodingSystem, Translated, length_limit, open_decoding_peers
from seq2seq.bench.measure import (
    MATMUL_SIZES,
    Entrant,
    Progress,
    figures,
    forward_flops,
    peak_memory,
    run_rounds,
    seconds_of,
    significant,
    sizes,
    spread,
)
from seq2seq.bench.report import Column, Report, machine
from seq2seq.config import SearchConfig
from seq2seq.errors import DataError, ModelError, UserError
from seq2seq.evaluation.text import score_texts
from seq2seq.files import shipped_folder
from seq2seq.inference.loading import EngineName, load_engine, override_search
from seq2seq.inference.translator import Translator
from seq2seq.lines import read_lines
from seq2seq.store.model_folder import LoadedModel, load_model

COLUMNS = (
    Column("system", "name"),
    Column("search", "work"),
    Column("sentences/s", "sentences_per_second", "{:,.1f}"),
    Column("tokens/s", "output_tokens_per_second", "{:,.0f}"),
    Column("one at a time/s", "single_sentences_per_second", "{:.1f}"),
    Column("BLEU", "bleu", "{:.2f}"),
    Column("same text", "same_text", "{:.1%}"),
    Column("matmul rate", "matmul_share", "{:.0%}"),
    Column("peak MiB", "peak_memory_bytes", "{:,.0f}", 2**20),
    Column("speed ratio", "sentences_per_second_ratio", "{:.2f}"),
    Column("ratio for one", "single_sentences_per_second_ratio", "{:.2f}"),
)
NOTES = [
    "sentences/s: text to text, tokenizers included; median of the rounds (lowest-highest); tokens/s: output pieces, "
    "ends included; one at a time/s: from the median time of the sentences of a round",
    "speed ratio: sentences/s of the first system over those of this one, of adjacent rounds; ratio for one: the same "
    "for sentences one at a time",
    "seq2seq searches a second time where a translation looks degenerate, and the time for it is counted",
    "same text: share of the lines that are translated as the first system does in the same search",
    "matmul rate: the share of the measured rate of one large matrix product that the products with weights make",
    "peak MiB: growth of the one process while a system was opened and translated everything for the first time",
    "ctranslate2 alone: one worker for each thread; one worker of all threads for sentences one at a time",
]


@dataclass(frozen=True)
class Engines:
    """How ours computes: each engine is a system, and with a quantization another one."""

    engines: tuple[EngineName, ...] = ("auto",)
    quantization: str | None = None
    device: str = "auto"
    precision: str | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Lines:
    """What is translated, and if they are known, the right translations."""

    sources: tuple[str, ...]
    references: tuple[str, ...] | None = None

    @classmethod
    def read(cls, sources: Path, references: Path | None) -> "Lines":
        """Two files, line by line.

        Raises:
            DataError: a file cannot be read, or they have not equally many lines.
        """
        lines = tuple(read_lines(sources))
        gold = None if references is None else tuple(read_lines(references))
        if gold is not None and len(gold) != len(lines):
            raise DataError(f"{sources} has {len(lines):,} lines and {references} {len(gold):,}; they must be equal")
        return cls(lines, gold)


@dataclass(frozen=True)
class Rounds:
    """How long is measured."""

    rounds: int = 3
    sentences: int = 1000
    """The first so many are translated."""
    beam_sizes: tuple[int, ...] = (1, 5)
    single_sentences: int = 50
    """How many are translated one at a time."""
    batch_size: int = 64
    """Sentences in a batch of the peers; ours has batches of its own."""
    matmul_size: int | None = None


class OurDecoding:
    """`Translator`, over one engine."""

    def __init__(self, folder: Path, engine: EngineName, quantization: str | None, settings: Engines):
        self.name = " ".join(filter(None, ("seq2seq", engine if engine != "auto" else "", quantization)))
        computing = (settings.device, settings.precision, settings.threads)
        self._load = partial(load_engine, (folder,), engine, quantization, *computing)
        self.close()

    def translate(self, lines: Sequence[str], search: SearchConfig) -> Translated:
        """As `DecodingSystem.translate`."""
        self._loaded = self._loaded or self._load()
        translations = Translator(self._loaded.engine, self._loaded.tokenizers, search).translate(lines)
        return Translated([one.text for one in translations], sum(one.tokens for one in translations))

    def close(self) -> None:
        """As `DecodingSystem.close`."""
        self._loaded = None


def bench_decoding(
    folder: Path,
    lines: Lines | None,
    engines: Engines,
    peers: Sequence[str] = PEERS,
    rounds: Rounds | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Translate with every system, in alternating rounds.

    Args:
        folder: a model folder, run folder or Marian folder.
        lines: what is translated; blank ones, and those too long for the model in one piece, are left out. None is the
            test set of the phrasebook that comes with the toolkit, for models from English or German.
        engines: how ours computes.
        peers: of `PEERS`; those that are not installed, or cannot run the model, are named in the report.
        rounds: how long.
        progress: called with what is about to happen.

    Raises:
        UserError: there is no such model, it does not translate, or nothing is left to be translated.
    """
    rounds = rounds or Rounds()
    model = load_model(folder)
    if model.description.task != "translation":
        raise ModelError(f"{model.folder}: a {model.description.task} model; bench decode measures translation models")
    here = runtimes.start(engines.device, engines.precision, engines.threads)
    own = model.description.search
    searches = [override_search(own, {"beam_size": size, "n_best": 1}) for size in rounds.beam_sizes]
    lines = lines or _phrasebook(model)
    bench = _Bench(model, _usable(lines, model, rounds.sentences), rounds, here)
    entrants: list[Entrant] = []
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="s2s-bench-") as temporary:
        for name, make in _makers(model, engines, peers, here, rounds, Path(temporary)):
            progress(f"opening {name}")
            try:
                entrants += bench.entrants(make, searches)
            except UserError as error:
                if name not in peers:
                    raise
                left_out[name] = str(error)
        entrants.sort(key=lambda entrant: entrant.work != "greedy")  # what is compared is adjacent
        peaks = run_rounds(entrants, rounds.rounds, here, rounds.matmul_size, progress)
    torch.set_num_threads(bench.threads)
    systems = list(figures(entrants, peaks))
    packages = [peer for peer in PEERS if any(system["name"].startswith(peer) for system in systems)]
    work = bench.described(len(lines.sources)) | {"matmul_flops_a_second": spread(peaks)}
    return Report("decode", machine(here, packages), work, systems, left_out, NOTES, COLUMNS)


class _Bench:
    """What is the same for all systems: model, lines, threads."""

    def __init__(self, model: LoadedModel, lines: Lines, rounds: Rounds, here: runtimes.Runtime):
        self.threads = torch.get_num_threads()
        self._model, self._lines, self._rounds, self._here = model, lines, rounds, here
        self._source_tokens = sum(len(ids) + 1 for ids in model.tokenizers.source.encode_all(lines.sources))
        self._first_texts: dict[str, list[str]] = {}
        self._signature: str | None = None

    def entrants(self, make: Callable[[], DecodingSystem], searches: Sequence[SearchConfig]) -> Iterator[Entrant]:
        """Open a system, and let it translate everything once with each search."""
        outputs = []
        with peak_memory(self._here.device) as peak:
            torch.set_num_threads(self.threads)
            system = make()
            for search in searches:
                system.translate(self._lines.sources[:1], search)
                outputs.append(system.translate(self._lines.sources, search))
            system.close()
        for search, output in zip(searches, outputs, strict=True):
            work = "greedy" if search.beam_size == 1 else f"beam {search.beam_size}"
            facts = self._facts(work, output) | {"peak_memory_bytes": next(iter(peak), None)}
            yield Entrant(system.name, work, partial(self._take_round, system, search, output.tokens), facts)

    def _facts(self, work: str, output: Translated) -> dict[str, Any]:
        lines, language = self._lines, self._model.description.target_language
        same = map(str.__eq__, output.texts, self._first_texts.setdefault(work, output.texts))
        facts = {"output_tokens": output.tokens, "same_text": significant(sum(same) / len(lines.sources))}
        if lines.references is not None:
            score = score_texts(output.texts, lines.references, ("bleu",), target_language=language)[0]
            facts["bleu"], self._signature = significant(score.score), score.signature
        return facts

    def _take_round(self, system: DecodingSystem, search: SearchConfig, tokens: int) -> dict[str, float]:
        def seconds(texts: Sequence[str]) -> float:
            torch.set_num_threads(self.threads)  # CTranslate2 changes it for the whole process
            return seconds_of(lambda: system.translate(texts, search), self._here.device)

        sources = self._lines.sources
        seconds(sources[:2])  # opens what was closed, for each kind of work
        whole = seconds(sources)
        seconds(sources[:1])
        singles = [seconds([line]) for line in sources[: self._rounds.single_sentences]]
        system.close()
        flops = forward_flops(self._model.model, self._source_tokens, tokens * search.beam_size)
        return {
            "sentences_per_second": len(sources) / whole,
            "output_tokens_per_second": tokens / whole,
            "single_sentences_per_second": 1 / statistics.median(singles),
            "flops_per_second": flops / whole,
        }

    def described(self, num_given: int) -> dict[str, Any]:
        """The work of all systems, for the report."""
        model, rounds = self._model, self._rounds
        return {
            "model": str(model.folder),
            "sentences": len(self._lines.sources),
            "lines_left_out": num_given - len(self._lines.sources),
            **sizes(model.model.config),
            "vocabulary": model.tokenizers.target.vocab_size,
            "length_penalty": model.description.search.length_penalty,
            "peers_batch_size": rounds.batch_size,
            "rounds": rounds.rounds,
            "matmul_size": rounds.matmul_size or MATMUL_SIZES[self._here.device.type],
            "bleu_signature": self._signature,
        }


def _makers(
    model: LoadedModel, engines: Engines, peers: Sequence[str], here: runtimes.Runtime, rounds: Rounds, temporary: Path
) -> Iterator[tuple[str, Callable[[], DecodingSystem]]]:
    """(name, maker) of each system; those of a peer have its name."""
    kinds: list[tuple[EngineName, str | None]] = [(engine, None) for engine in engines.engines]
    if engines.quantization:
        kinds += [(engine, engines.quantization) for engine in engines.engines if engine != "torch"]
    for kind in kinds:
        yield "seq2seq", partial(OurDecoding, model.folder, *kind, engines)
    for peer in peers:
        for make in open_decoding_peers(peer, model, here, rounds.batch_size, temporary):
            yield peer, make


def _phrasebook(model: LoadedModel) -> Lines:
    source, target = model.description.source_language or "", model.description.target_language or ""
    folder = shipped_folder() / "data" / "phrasebook"
    files = {language: folder / f"test.{language}" for language in ("en", "de")}
    if source not in files:
        known = f"translates from {source!r}" if source else "does not say what it translates from"
        raise DataError(f"{model.folder}: {known}; give sentences with --input FILE")
    return Lines.read(files[source], files.get(target) if target != source else None)


def _usable(lines: Lines, model: LoadedModel, count: int) -> Lines:
    """The first lines that every system can translate in one piece."""
    texts = [line.strip() for line in lines.sources]
    most = model.model.config.max_length
    usable = [
        index
        for index, ids in enumerate(model.tokenizers.source.encode_all(texts))
        if ids and len(ids) < most and length_limit(ids, model.description.search) <= most
    ][:count]
    if not usable:
        raise DataError("there is nothing to translate: every line is blank or too long for the model; give --input")
    references = lines.references and tuple(lines.references[index] for index in usable)
    return Lines(tuple(texts[index] for index in usable), references)
