"""`s2s bench decode`: how fast a model translates, beside other toolkits that are installed.

Ours is the `Translator` that `s2s translate` uses, with its own settings; everything is from text to text. Every system
translates the same lines with the same weights, greedily and with a beam.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from seq2seq import config_file
from seq2seq import runtime as runtimes
from seq2seq.bench.decoding_peers import PEERS, DecodingSystem, Translated, length_limit, open_decoding_peers
from seq2seq.bench.flops import decoding_flops
from seq2seq.bench.measure import MATMUL_SIZES, Spread, matmul_rate, peak_memory, seconds_of, significant, speed_ratio
from seq2seq.bench.report import Column, LeftOut, Report, machine, rounds_of
from seq2seq.config import SearchConfig
from seq2seq.errors import DataError, ModelError, UserError
from seq2seq.evaluation.text import score_texts
from seq2seq.inference.loading import EngineName, Loaded, load_engine, override_search
from seq2seq.inference.translator import Translator
from seq2seq.lines import read_lines
from seq2seq.runtime import Runtime
from seq2seq.store.model_folder import LoadedModel, load_model

COLUMNS = (
    Column("system", "name"),
    Column("search", "search"),
    Column("sentences/s", "sentences_per_second", "{:,.1f}"),
    Column("tokens/s", "output_tokens_per_second", "{:,.0f}"),
    Column("one sentence, ms", "milliseconds_a_sentence", "{:.1f}"),
    Column("BLEU", "bleu", "{:.2f}"),
    Column("same text", "same_text", "{:.1%}"),
    Column("matmul rate", "matmul_share", "{:.0%}"),
    Column("peak MiB", "peak_memory_bytes", "{:,.0f}", 2**20),
    Column("speed ratio", "speed_ratio", "{:.2f}"),
    Column("ratio for one", "speed_ratio_for_one", "{:.2f}"),
)
NOTES = [
    "sentences/s: text to text, tokenizers included; median of the rounds (lowest-highest); tokens/s: pieces that come "
    "out, ends included",
    "speed ratio: sentences/s of seq2seq, the first system, over those of this one, of rounds that stood side by side; "
    "ratio for one: the same for sentences one at a time",
    "seq2seq searches once more where a translation looks degenerate, and the time for it is counted",
    "one sentence, ms: one at a time, median over the sentences of a round",
    "same text: share of the lines that are translated as seq2seq's first system does in the same search",
    "matmul rate: the share of the measured rate of one large matrix product, in the precision above, that the model's "
    "FLOPs make; products of int8 have another rate",
    "peak MiB: growth of the one process while a system was opened and translated everything for the first time; "
    "ctranslate2 was opened for each way to use the threads, one after the other, of which the faster one is measured",
]


@dataclass(frozen=True)
class Engines:
    """How ours computes: each engine is a system, and ctranslate2 with a quantization another one."""

    engines: tuple[EngineName, ...] = ("torch",)
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
        parts = ("seq2seq", engine if engine != "torch" else "", quantization)
        self.name = " ".join(filter(None, parts))
        computing = (settings.device, settings.precision, settings.threads)
        self._load = partial(load_engine, (folder,), engine, quantization, *computing)
        self._loaded: Loaded | None = None

    def translate(self, lines: Sequence[str], search: SearchConfig) -> Translated:
        """As `DecodingSystem.translate`."""
        self._loaded = self._loaded or self._load()
        translations = Translator(self._loaded.engine, self._loaded.tokenizers, search).translate(lines)
        return Translated([one.text for one in translations], sum(one.tokens for one in translations))

    def close(self) -> None:
        """As `DecodingSystem.close`."""
        self._loaded = None


@dataclass
class Entrant:
    """A system in one search, and what its rounds gave."""

    system: DecodingSystem
    search: SearchConfig
    peak: int | None
    output: Translated
    """The same in every round."""
    seconds: list[float] = field(default_factory=list)
    single_seconds: list[float] = field(default_factory=list)
    """Of one sentence, the median of a round."""

    def rate(self, count: int) -> Spread:
        """How many of `count` things, of which each round has as many, a second."""
        return Spread(tuple(count / seconds for seconds in self.seconds))


def bench_decoding(
    folder: Path,
    lines: Lines | None,
    engines: Engines,
    peers: Sequence[str] = PEERS,
    rounds: Rounds | None = None,
    progress: Callable[[str], object] = lambda what: None,
) -> Report:
    """Translate with every system, by turns.

    Args:
        folder: a model folder, run folder or Marian folder.
        lines: what is translated; blank ones, and those too long for the model in one piece, are left out. None is the
            test set of the phrasebook that comes with the toolkit, for models from English or German.
        engines: how ours computes.
        peers: of `PEERS`; those that are not installed, or cannot run the model, are named in the report.
        rounds: how long.
        progress: told what is about to happen.

    Raises:
        UserError: there is no such model, it does not translate, or nothing is left to be translated.
    """
    rounds = rounds or Rounds()
    model = load_model(folder)
    if model.description.task != "translation":
        raise ModelError(f"{model.folder}: a {model.description.task} model; bench decode measures translation models")
    here = runtimes.start(engines.device, engines.precision, engines.threads)
    threads = torch.get_num_threads()
    own = model.description.search
    searches = [override_search(own, {"beam_size": size, "n_best": 1}) for size in rounds.beam_sizes]
    lines = lines or _phrasebook(model)
    kept = _usable(lines, model, rounds.sentences)
    with tempfile.TemporaryDirectory(prefix="s2s-bench-") as temporary:
        makers, left_out = _makers(model, engines, peers, here, rounds, Path(temporary))
        entrants = list(_enter(makers, left_out, searches, kept, here, threads, progress))
        entrants.sort(key=lambda entrant: entrant.search.beam_size)  # what is compared stands side by side
        rates = []
        for number in range(rounds.rounds):
            torch.set_num_threads(threads)
            rates.append(matmul_rate(here, rounds.matmul_size))
            for entrant in entrants:
                progress(f"round {number + 1} of {rounds.rounds}: {entrant.system.name}, {_named(entrant.search)}")
                _take_round(entrant, kept, rounds, here, threads)
        torch.set_num_threads(threads)
        return _report(model, len(lines.sources), kept, entrants, left_out, Spread(tuple(rates)), rounds, here)


def _phrasebook(model: LoadedModel) -> Lines:
    source, target = model.description.source_language or "", model.description.target_language or ""
    folder = config_file.shipped_folder() / "data" / "phrasebook"
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
        place
        for place, ids in enumerate(model.tokenizers.source.encode_all(texts))
        if ids and len(ids) < most and length_limit(ids, model.description.search) <= most
    ][:count]
    if not usable:
        raise DataError("there is nothing to translate: every line is blank or too long for the model; give --input")
    references = lines.references and tuple(lines.references[place] for place in usable)
    return Lines(tuple(texts[place] for place in usable), references)


Maker = Callable[[], DecodingSystem]


def _makers(
    model: LoadedModel, engines: Engines, peers: Sequence[str], here: Runtime, rounds: Rounds, temporary: Path
) -> tuple[list[tuple[str | None, Maker]], list[LeftOut]]:
    """(name of a peer, or None for ours; maker) of each system."""
    kinds: list[tuple[EngineName, str | None]] = [(engine, None) for engine in engines.engines]
    if engines.quantization:
        kinds += [(engine, engines.quantization) for engine in engines.engines if engine != "torch"]
    makers: list[tuple[str | None, Maker]] = [
        (None, lambda kind=kind: OurDecoding(model.folder, *kind, engines)) for kind in kinds
    ]
    left_out = []
    for peer in peers:
        try:
            makers += open_decoding_peers(peer, model, here, rounds.batch_size, temporary)
        except UserError as error:
            left_out.append(LeftOut(peer, str(error)))
    return makers, left_out


def _enter(
    makers: Sequence[tuple[str | None, Maker]],
    left_out: list[LeftOut],
    searches: Sequence[SearchConfig],
    lines: Lines,
    here: Runtime,
    threads: int,
    progress: Callable[[str], object],
) -> Iterator[Entrant]:
    """Open every system, and let it translate everything once; a peer that cannot goes to `left_out`."""
    for peer, make in makers:
        progress(f"opening {peer or 'seq2seq'}")
        try:
            outputs = []
            with peak_memory(here.device) as peak:
                torch.set_num_threads(threads)  # CTranslate2 changes it for the whole process
                system = make()
                for search in searches:
                    system.translate(lines.sources[:1], search)
                    outputs.append(system.translate(lines.sources, search))
                system.close()
        except UserError as error:
            if peer is None:
                raise
            left_out.append(LeftOut(peer, str(error)))
            continue
        for search, output in zip(searches, outputs, strict=True):
            yield Entrant(system, search, peak.bytes, output)


def _take_round(entrant: Entrant, lines: Lines, rounds: Rounds, here: Runtime, threads: int) -> None:
    def translate(some: Sequence[str]) -> float:
        torch.set_num_threads(threads)
        return seconds_of(lambda: entrant.system.translate(some, entrant.search), here.device)

    translate(lines.sources[:2])  # what was closed opens before it is measured, for each kind of work
    entrant.seconds.append(translate(lines.sources))
    translate(lines.sources[:1])
    singles = [translate([line]) for line in lines.sources[: rounds.single_sentences]]
    entrant.single_seconds.append(statistics.median(singles))
    entrant.system.close()


def _report(
    model: LoadedModel,
    num_given: int,
    lines: Lines,
    entrants: Sequence[Entrant],
    left_out: list[LeftOut],
    matmul: Spread,
    rounds: Rounds,
    here: Runtime,
) -> Report:
    config, search = model.model.config, model.description.search
    described = {
        "model": str(model.folder),
        "sentences": len(lines.sources),
        "lines_left_out": num_given - len(lines.sources),
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "d_model": config.d_model,
        "num_heads": config.num_heads,
        "d_ff": config.d_ff,
        "vocabulary": model.tokenizers.target.vocab_size,
        "length_penalty": search.length_penalty,
        "peers_batch_size": rounds.batch_size,
        "rounds": rounds.rounds,
        "matmul_size": rounds.matmul_size or MATMUL_SIZES[here.device.type],
        "matmul_flops_a_second": matmul.as_dict(),
    }
    systems = []
    for entrant in entrants:
        first = next(one for one in entrants if one.search == entrant.search)
        systems.append(_figures(entrant, first, model, lines, matmul))
    if lines.references is not None:
        for system, (bleu, signature) in zip(systems, _scores(entrants, lines, model), strict=True):
            system["bleu"] = bleu
            described["bleu_signature"] = signature
    packages = [peer for peer in PEERS if any(system["name"].startswith(peer) for system in systems)]
    return Report("decode", machine(here, packages), described, systems, left_out, NOTES, COLUMNS)


def _figures(entrant: Entrant, first: Entrant, model: LoadedModel, lines: Lines, matmul: Spread) -> dict[str, Any]:
    count, tokens = len(lines.sources), entrant.output.tokens
    source_tokens = sum(len(ids) + 1 for ids in model.tokenizers.source.encode_all(lines.sources))
    vocab_size = model.tokenizers.target.vocab_size
    flops = decoding_flops(model.model.config, vocab_size, source_tokens, tokens, entrant.search.beam_size)
    shares = zip(entrant.rate(flops).rounds, matmul.rounds, strict=True)
    milliseconds = Spread(tuple(1000 * seconds for seconds in entrant.single_seconds))
    same = sum(one == other for one, other in zip(entrant.output.texts, first.output.texts, strict=True))
    singles, first_singles = (Spread(tuple(1 / s for s in one.single_seconds)) for one in (entrant, first))
    is_first = entrant is first
    return {
        "name": entrant.system.name,
        "search": _named(entrant.search),
        "sentences_per_second": entrant.rate(count).as_dict(),
        "output_tokens": tokens,
        "output_tokens_per_second": entrant.rate(tokens).as_dict(),
        "milliseconds_a_sentence": milliseconds.as_dict(),
        "same_text": significant(same / count),
        "matmul_share": Spread(tuple(rate / peak for rate, peak in shares)).as_dict(),
        "peak_memory_bytes": entrant.peak,
        "speed_ratio": rounds_of(None if is_first else speed_ratio(first.rate(count), entrant.rate(count))),
        "speed_ratio_for_one": rounds_of(None if is_first else speed_ratio(first_singles, singles)),
    }


def _scores(entrants: Sequence[Entrant], lines: Lines, model: LoadedModel) -> Iterator[tuple[float, str]]:
    for entrant in entrants:
        score = score_texts(
            entrant.output.texts, lines.references, ("bleu",), target_language=model.description.target_language
        )[0]
        yield significant(score.score), score.signature


def _named(search: SearchConfig) -> str:
    return "greedy" if search.beam_size == 1 else f"beam {search.beam_size}"
