"""`s2s check`: one report on the corpora of a run before anything is trained.

`check_corpora` reads each corpus once, looks at its blocks in as many processes as there are, and adds up a
`CheckReport`, which the command prints. Memory: about 60 bytes a training pair, and the held-out sets.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from seq2seq.config import FilterConfig, SourceConfig, TokenizerConfig, TrainingConfig
from seq2seq.data.examples import LabelledText, Pair
from seq2seq.data.filters import PairFilter
from seq2seq.errors import UserError, quiet
from seq2seq.inspection.advice import Advice, Problem, advise, judge
from seq2seq.inspection.blocks import Block, CorpusReader
from seq2seq.inspection.examiner import Examiner, PieceLengths, Tally
from seq2seq.inspection.near_duplicates import NearDuplicates
from seq2seq.inspection.overlap import HeldOut, Matches, Overlap
from seq2seq.inspection.report import CorpusReport, report_on
from seq2seq.inspection.swapped_sides import LINES, sides_are_swapped
from seq2seq.inspection.word_pairs import WordPairs
from seq2seq.processes import in_processes
from seq2seq.text.tokenizer import Tokenizer

SAMPLE_BLOCKS, SAMPLE_LINES = 4, 20_000
SAMPLE_VOCABULARY = 8000
# Processes take a second to start, as long as this many blocks.
BLOCKS_ALONE = 4
PIECES_PER_CHARACTER = 0.3


@dataclass(frozen=True)
class Corpora:
    """What is checked: corpora of one task, with how they are filtered and tokenised."""

    train: Sequence[SourceConfig]
    held_out: dict[str, SourceConfig]
    languages: tuple[str, str] | None
    """Of the two sides; None in classification."""
    filters: FilterConfig = field(default_factory=FilterConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    preset: str | None = None
    training: TrainingConfig | None = None
    seed: int = 1


@dataclass(frozen=True)
class CheckReport:
    """All corpora."""

    corpora: list[CorpusReport]
    overlaps: dict[str, dict[str, Overlap]]
    """What train, and then each held-out set, shares with the held-out sets after it."""
    advice: Advice | None
    problems: list[Problem]
    lengths_are_exact: bool
    """Whether the filters saw lengths by the tokenizer of training, or estimates by one of a sample."""

    @property
    def ok(self) -> bool:
        """Whether nothing would spoil a result."""
        return all(problem.level != "error" for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok, **asdict(self)}


def check_corpora(
    corpora: Corpora, num_workers: int = 0, progress: Callable[[int], None] = lambda _: None
) -> CheckReport:
    """Check the training corpora and the sets that they are judged by.

    Args:
        corpora: what to check.
        num_workers: processes; 0 is one per CPU.
        progress: called with the number of further examples that are done.
    """
    train = [
        CorpusReader(f"train.{index}" if len(corpora.train) > 1 else "train", source, corpora.languages)
        for index, source in enumerate(corpora.train)
    ]
    held_out = [CorpusReader(name, source, corpora.languages) for name, source in corpora.held_out.items()]
    held_out_blocks = {reader.name: list(reader.blocks()) for reader in held_out}
    sample = [list(islice(reader.blocks(), SAMPLE_BLOCKS + 1)) for reader in train]
    examiner = _examiner(corpora, sample, held_out_blocks)
    total = Tally()
    reports, overlaps = [], {}
    for reader in train:
        tally = Tally()
        for found in in_processes(examiner, reader.blocks(), num_workers, BLOCKS_ALONE):
            tally.add(found)
            progress(found.examples)
        reports.append(report_on(tally, reader, corpora.filters, None, examiner.word_pairs))
        total.add(tally)
    if held_out:
        overlaps["train"] = Matches(total.matches).overlaps(examiner.held_out)
    for reader in held_out:
        tally = Tally()
        for block in held_out_blocks[reader.name]:
            tally.add(examiner(block, skip=reader.name))
        reports.append(report_on(tally, reader, corpora.filters, total if train else None, examiner.word_pairs))
        shared = Matches(tally.matches).overlaps(examiner.held_out)
        names = list(held_out_blocks)
        if later := names[names.index(reader.name) + 1 :]:
            overlaps[reader.name] = {name: shared[name] for name in later}
    advice = advise(total, corpora.tokenizer, corpora.preset, corpora.training) if total.examples else None
    problems = _swapped([block for blocks in sample for block in blocks], held_out_blocks)
    problems += judge(reports[: len(train)], reports[len(train) :], overlaps)
    return CheckReport(reports, overlaps, advice, problems, examiner.lengths.is_exact)


def _swapped(train: Sequence[Block], held_out: dict[str, Sequence[Block]]) -> list[Problem]:
    pairs = {
        name: [column[:LINES] for column in blocks[0].columns]
        for name, blocks in {"": train, **held_out}.items()
        if blocks and blocks[0].labels is None
    }
    usual = pairs.pop("", None)
    return [
        Problem("error", name, "source and target look swapped against train")
        for name, sides in pairs.items()
        if usual and sides_are_swapped(usual, sides)
    ]


def _examiner(corpora: Corpora, sample: Sequence[Sequence[Block]], held_out: dict[str, Sequence[Block]]) -> Examiner:
    num_sides = 2 if corpora.languages else 1
    blocks = [block for part in [*sample, *([] if sample else held_out.values())] for block in part]
    columns = [[line for block in blocks for line in block.columns[side]] for side in range(num_sides)]
    is_whole = bool(sample) and all(len(part) <= SAMPLE_BLOCKS for part in sample)
    sets = HeldOut({name: [e for block in part for e in block.examples()] for name, part in held_out.items()})
    words = tuple(
        {word for part in held_out.values() for block in part for line in block.columns[side] for word in line.split()}
        for side in range(num_sides)
    )
    return Examiner(
        filters=corpora.filters,
        lengths=_piece_lengths(columns, corpora, is_whole),
        held_out=sets,
        near_duplicates=NearDuplicates(sets, [e for block in blocks[:2] for e in block.examples()]),
        held_out_words=words,
        word_pairs=WordPairs.learn(*columns) if num_sides == 2 else None,
    )


def _piece_lengths(columns: Sequence[Sequence[str]], corpora: Corpora, is_whole: bool) -> PieceLengths:
    """By the tokenizers that training will make, if `columns` are its whole corpus and small; else by similar ones."""
    config = corpora.tokenizer
    is_exact = is_whole and config.vocab_size <= SAMPLE_VOCABULARY
    if is_exact:
        kept = [row for row in zip(*columns, strict=True) if _is_trained_on(row, corpora.filters)]
        lines = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in columns]
    else:
        lines = [column[:: max(1, len(column) // SAMPLE_LINES)] for column in columns]
        size = min(config.vocab_size, SAMPLE_VOCABULARY)
        config = config.model_copy(update={"vocab_size": size, "sample_lines": SAMPLE_LINES})
    if config.shared:
        together = _tokenizer([line for column in lines for line in column], config, corpora.seed)
        tokenizers = [together for _ in lines]
    else:
        tokenizers = [_tokenizer(column, config, corpora.seed) for column in lines]
    rates = []
    for tokenizer, column in zip(tokenizers, lines, strict=True):
        part = column[:: max(1, len(column) // 2000)]
        pieces = sum(map(len, tokenizer.encode_all(part))) if tokenizer else 0
        rates.append(pieces / max(sum(map(len, part)), 1) or PIECES_PER_CHARACTER)
    return PieceLengths(tokenizers, rates, is_exact)


def _is_trained_on(row: tuple[str, ...], filters: FilterConfig) -> bool:
    example = Pair(*row) if len(row) == 2 else LabelledText(*row, "")
    return PairFilter(filters).rejects_text(example) is None


def _tokenizer(lines: Sequence[str], config: TokenizerConfig, seed: int) -> Tokenizer | None:
    """None where there is too little text."""
    with quiet("seq2seq.text.tokenizer"):  # its warnings may be about the sample
        try:
            return Tokenizer.train(lines, config, seed)
        except UserError:
            return None
