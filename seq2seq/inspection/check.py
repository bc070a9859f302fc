"""`s2s check`: one report on the corpora of a run before anything is trained.

`check_corpora` reads each corpus once, looks at its blocks in as many processes as there are, and adds up a
`CheckReport`, which the command prints. Memory: about 60 bytes a training pair, and the held-out sets.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from seq2seq.config import FilterConfig, SourceConfig, TokenizerConfig, TrainingConfig
from seq2seq.data.examples import LabelledText, Pair
from seq2seq.data.filters import PairFilter
from seq2seq.errors import UserError, some_of
from seq2seq.inspection.advice import Advice, Problem, advise, judge_corpus, judge_overlap, judge_sides
from seq2seq.inspection.blocks import CorpusReader
from seq2seq.inspection.near_duplicates import NearDuplicates
from seq2seq.inspection.overlap import HeldOut, Matches, Overlap
from seq2seq.inspection.quality import Block, Examiner, PieceLengths, word_hashes
from seq2seq.inspection.report import CorpusReport, Tally
from seq2seq.inspection.word_pairs import SWAP_LINES, WordPairs, sides_are_swapped
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
    """All there is to say."""

    corpora: list[CorpusReport]
    overlaps: dict[str, dict[str, Overlap]]
    """What train, and then each held-out set, shares with the held-out sets after it."""
    advice: Advice | None
    problems: list[Problem]
    lengths_are_exact: bool
    """Whether the filters looked at lengths by the tokenizer of training, or at estimates by one of a sample."""

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
    """Check the training corpora and what they are judged by.

    Args:
        corpora: what to check.
        num_workers: processes; 0 is one per CPU.
        progress: is told how many examples more are done.
    """
    several = len(corpora.train) > 1
    train = [
        CorpusReader(f"train.{place}" if several else "train", source, corpora.languages)
        for place, source in enumerate(corpora.train)
    ]
    held_out = [CorpusReader(name, source, corpora.languages) for name, source in corpora.held_out.items()]
    held_out_blocks = [list(reader.blocks()) for reader in held_out]
    sample = [list(islice(reader.blocks(), SAMPLE_BLOCKS + 1)) for reader in train]
    examiner = _examiner(corpora, sample, [reader.name for reader in held_out], held_out_blocks)
    found = Matches()
    train_tally = Tally()
    reports = []
    for reader in train:
        tally = Tally()
        for findings in in_processes(examiner, reader.blocks(), num_workers, BLOCKS_ALONE):
            tally.add(findings)
            found.add(findings.overlap)
            progress(len(findings.rules))
        reports.append(tally.report(reader, corpora.filters, None, examiner.word_pairs))
        train_tally.merge(tally)
    overlaps = {"train": found.overlaps(examiner.held_out)} if held_out else {}
    for reader, blocks in zip(held_out, held_out_blocks, strict=True):
        tally, shared = Tally(), Matches()
        for block in blocks:
            findings = examiner(block, skip=reader.name)
            tally.add(findings)
            shared.add(findings.overlap)
        reports.append(tally.report(reader, corpora.filters, train_tally if train else None, examiner.word_pairs))
        later = list(corpora.held_out)[list(corpora.held_out).index(reader.name) + 1 :]
        if later:
            overlaps[reader.name] = {
                name: overlap for name, overlap in shared.overlaps(examiner.held_out).items() if name in later
            }
    advice = None
    if train_tally.examples:
        advice = advise(train_tally, corpora.tokenizer, corpora.preset, corpora.training)
    problems = _swapped(sample, dict(zip(corpora.held_out, held_out_blocks, strict=True)))
    problems += _problems(reports, overlaps, len(train))
    return CheckReport(reports, overlaps, advice, problems, examiner.lengths[0].is_exact)


def _swapped(train: Sequence[Sequence[Block]], held_out: dict[str, Sequence[Block]]) -> list[Problem]:
    usual = _some_pairs([block for blocks in train for block in blocks])
    return [
        Problem("error", name, "source and target look swapped against train")
        for name, blocks in held_out.items()
        if (others := _some_pairs(blocks)) and usual and sides_are_swapped(usual, others)
    ]


def _some_pairs(blocks: Sequence[Block]) -> tuple[list[str], list[str]] | None:
    if not blocks or len(blocks[0].columns) != 2:
        return None
    source, target = blocks[0].columns
    return source[:SWAP_LINES], target[:SWAP_LINES]


def _problems(
    reports: Sequence[CorpusReport], overlaps: dict[str, dict[str, Overlap]], num_train: int
) -> list[Problem]:
    problems = [problem for place, report in enumerate(reports) for problem in judge_corpus(report, place < num_train)]
    if num_train:
        problems += [problem for report in reports[1:] for problem in judge_sides(reports[0], report)]
        labels = {label for report in reports[:num_train] for label in report.labels}
        for report in reports[num_train:]:
            if unknown := sorted(set(report.labels) - labels):
                never = f"{len(unknown):,} labels never occur" if len(unknown) > 1 else "a label never occurs"
                problems.append(Problem("error", report.name, f"{never} in training: {some_of(unknown)}"))
    for name, others in overlaps.items():
        problems += [problem for other, overlap in others.items() for problem in judge_overlap(name, other, overlap)]
    return problems


def _examiner(
    corpora: Corpora, sample: Sequence[Sequence[Block]], names: Sequence[str], held_out: Sequence[Sequence[Block]]
) -> Examiner:
    num_sides = 2 if corpora.languages else 1
    blocks = [block for some in sample for block in some] or [block for some in held_out for block in some]
    columns = [[line for block in blocks for line in block.columns[side]] for side in range(num_sides)]
    is_whole = bool(corpora.train) and all(len(some) <= SAMPLE_BLOCKS for some in sample)
    lengths = _piece_lengths(columns, corpora, is_whole)
    sets = HeldOut(
        {name: [e for block in some for e in block.examples()] for name, some in zip(names, held_out, strict=True)}
    )
    near = NearDuplicates(sets, [e for block in blocks[:2] for e in block.examples()])
    words = tuple(
        word_hashes([line for some in held_out for block in some for line in block.columns[side]])
        for side in range(num_sides)
    )
    word_pairs = WordPairs.learn(*columns) if num_sides == 2 else None
    return Examiner(corpora.filters, lengths, sets, near, words, word_pairs)


def _piece_lengths(columns: Sequence[Sequence[str]], corpora: Corpora, is_whole: bool) -> tuple[PieceLengths, ...]:
    """Tokenizers of the configured kind: of a corpus that `columns` are the whole of, those that training will make;
    else trained on a sample, near enough to them."""
    config = corpora.tokenizer
    is_exact = is_whole and config.vocab_size <= SAMPLE_VOCABULARY
    if is_exact:
        kept = [row for row in zip(*columns, strict=True) if _is_trained_on(row, corpora.filters)]
        lines, chosen = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in columns], config
    else:
        lines = [column[:: max(1, len(column) // SAMPLE_LINES)] for column in columns]
        size = min(config.vocab_size, SAMPLE_VOCABULARY)
        chosen = config.model_copy(update={"vocab_size": size, "sample_lines": SAMPLE_LINES})
    together = [[line for column in lines for line in column]] * len(lines)
    tokenizers: list[Tokenizer | None] = []
    for column in together if config.shared else lines:
        if config.shared and tokenizers:
            tokenizers.append(tokenizers[0])
        else:
            tokenizers.append(_quiet_tokenizer(column, chosen, corpora.seed))
    rates = []
    for tokenizer, column in zip(tokenizers, lines, strict=True):
        some = column[:: max(1, len(column) // 2000)]
        characters = sum(map(len, some))
        pieces = sum(map(len, tokenizer.encode_all(some))) if tokenizer and characters else 0
        rates.append(pieces / characters if pieces else PIECES_PER_CHARACTER)
    return tuple(PieceLengths(*measure, is_exact) for measure in zip(tokenizers, rates, strict=True))


def _is_trained_on(row: tuple[str, ...], filters: FilterConfig) -> bool:
    example = Pair(*row) if len(row) == 2 else LabelledText(*row, "")
    return PairFilter(filters).rejects_text(example) is None


def _quiet_tokenizer(lines: Sequence[str], config: TokenizerConfig, seed: int) -> Tokenizer | None:
    """Trained without its warnings, which may speak of the sample; None where there is too little text."""
    logger = logging.getLogger("seq2seq.text.tokenizer")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        return Tokenizer.train(lines, config, seed)
    except UserError:
        return None
    finally:
        logger.setLevel(level)
