"""`s2s check`: one report on the corpora of a run before anything is trained.

`check_corpora` reads each corpus once, looks at its blocks in all worker processes, and adds up a
`CheckReport`, which the command prints. Memory: about 43 bytes a training pair, and the held-out sets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import Any

from seq2seq.config.corpora import FilterConfig, SourceConfig
from seq2seq.config.schema import TokenizerConfig, TrainingConfig
from seq2seq.data.examples import Example
from seq2seq.data.filters import PairFilter
from seq2seq.errors import UserError, quiet
from seq2seq.inspection.advice import Advice, Problem, advise, judge
from seq2seq.inspection.agreement import Expected
from seq2seq.inspection.blocks import Block, CorpusReader
from seq2seq.inspection.examiner import CorpusTally, Examiner
from seq2seq.inspection.near_duplicates import NearDuplicates
from seq2seq.inspection.overlap import HeldOut, Matches, Overlap
from seq2seq.inspection.report import CorpusReport, report_on
from seq2seq.inspection.swapped_sides import sides_are_swapped
from seq2seq.inspection.word_pairs import WordPairs
from seq2seq.processes import in_processes
from seq2seq.text.tokenizer import Tokenizer

SAMPLE_BLOCKS, SAMPLE_LINES = 16, 20_000
SAMPLE_VOCABULARY = 8000
# Processes take a second to start, as long as this many blocks.
BLOCKS_ALONE = 4
NEAR_SAMPLE = 16_000


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
    label_names: Mapping[str, str] = field(default_factory=dict)
    """In classification, what answers call the labels."""


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


@quiet("seq2seq")  # the report says more than warnings of reading, and those of the tokenizer are about a sample
def check_corpora(
    corpora: Corpora, num_workers: int = 0, progress: Callable[[int], None] = lambda _: None
) -> CheckReport:
    """Check the training corpora and the sets that they are judged by.

    Args:
        corpora: what to check.
        num_workers: processes; 0 is one per CPU.
        progress: called with the number of further examples that are done.
    """
    kind = corpora.languages, corpora.label_names
    train = [
        CorpusReader(f"train.{index}" if len(corpora.train) > 1 else "train", source, *kind)
        for index, source in enumerate(corpora.train)
    ]
    held_out = [CorpusReader(name, source, *kind) for name, source in corpora.held_out.items()]
    held_out_blocks = {reader.name: list(reader.blocks()) for reader in held_out}
    sample = [list(islice(reader.blocks(), SAMPLE_BLOCKS + 1)) for reader in train]
    is_whole = bool(sample) and all(len(part) <= SAMPLE_BLOCKS for part in sample)
    is_exact = is_whole and corpora.tokenizer.vocab_size <= SAMPLE_VOCABULARY
    difference = sum(reader.line_counts[-1] - reader.line_counts[0] for reader in train)
    blocks = list(chain.from_iterable(sample)) or list(chain.from_iterable(held_out_blocks.values()))
    examiner = _examiner(corpora, blocks, held_out_blocks, difference, is_exact)
    expected = Expected(corpora.languages or (), examiner.word_pairs, _words_deny(blocks, examiner.word_pairs))
    total = CorpusTally()
    reports, overlaps = [], {}
    for reader in train:
        tally = CorpusTally()
        for found in in_processes(examiner, reader.blocks(), num_workers, BLOCKS_ALONE):
            tally.add(found)
            progress(found.examples)
        reports.append(report_on(tally, reader, corpora.filters, None, expected))
        total.add(tally)
    if held_out:
        overlaps["train"] = Matches(total.matches).overlaps(examiner.held_out)
    for reader in held_out:
        tally = CorpusTally()
        for block in held_out_blocks[reader.name]:
            tally.add(examiner(block, skip=reader.name))
        compared = total if train else None
        reports.append(report_on(tally, reader, corpora.filters, compared, expected))
        shared = list(Matches(tally.matches).overlaps(examiner.held_out).items())
        if later := shared[held_out.index(reader) + 1 :]:
            overlaps[reader.name] = dict(later)
    advice = advise(total, corpora.tokenizer, corpora.preset, corpora.training) if total.examples else None
    problems = [
        Problem("error", name, "source and target look swapped against train")
        for name, first in held_out_blocks.items()
        if train and blocks and first and corpora.languages and sides_are_swapped(blocks[0].columns, first[0].columns)
    ]
    problems += judge(reports[: len(train)], reports[len(train) :], overlaps)
    return CheckReport(reports, overlaps, advice, problems, is_exact)


def _words_deny(sample: Sequence[Block], word_pairs: WordPairs | None) -> bool:
    if word_pairs is not None or not sample or len(sample[0].columns) != 2:
        return False
    columns = ([line for block in sample for line in block.columns[side]] for side in (0, 1))
    return WordPairs.deny(*columns)


def _examiner(
    corpora: Corpora, sample: Sequence[Block], held_out: dict[str, Sequence[Block]], difference: int, is_exact: bool
) -> Examiner:
    num_sides = 2 if corpora.languages else 1
    examples = [example for block in sample for example in block.examples()]
    columns = [[line for block in sample for line in block.columns[side]] for side in range(num_sides)]
    sets = HeldOut({name: [e for block in blocks for e in block.examples()] for name, blocks in held_out.items()})
    words: list[set[str]] = [set() for _ in range(num_sides)]
    for texts in chain.from_iterable(sets.sets.values()):
        for of_side, text in zip(words, texts, strict=True):
            of_side.update(text.split())
    return Examiner(
        filters=corpora.filters,
        tokenizers=_tokenizers(examples, num_sides, corpora, is_exact),
        held_out=sets,
        near_duplicates=NearDuplicates(sets, examples[:NEAR_SAMPLE]),
        held_out_words=words,
        word_pairs=WordPairs.learn(*columns, difference) if num_sides == 2 else None,
    )


def _tokenizers(
    examples: Sequence[Example], num_sides: int, corpora: Corpora, is_exact: bool
) -> list[Tokenizer | None]:
    """Of each side: if `is_exact` those that training will make of these examples, else smaller ones."""
    config, rules = corpora.tokenizer, PairFilter(corpora.filters)
    if not is_exact:
        size = min(config.vocab_size, SAMPLE_VOCABULARY)
        config = config.model_copy(update={"vocab_size": size, "sample_lines": SAMPLE_LINES})
    kept = [example.texts for example in examples if rules.rejects_text(example) is None]
    sides = [[texts[side] for texts in kept] for side in range(num_sides)]
    if config.shared:
        return [_tokenizer(chain(*sides), config, corpora.seed)] * num_sides
    return [_tokenizer(side, config, corpora.seed) for side in sides]


def _tokenizer(lines: Iterable[str], config: TokenizerConfig, seed: int) -> Tokenizer | None:
    """None where there is too little text."""
    try:
        return Tokenizer.train(lines, config, seed)
    except UserError:
        return None
