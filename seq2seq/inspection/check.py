"""The report of `s2s check` on the corpora of a run, before training.

`check_corpora` examines the blocks of each corpus in worker processes, and makes a `CheckReport` of their sums, which
the command prints. In addition to the held-out sets, it needs about 50 bytes of memory per pair of the corpus that is
examined, and 8 per pair of those before it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from typing import Any

from seq2seq.config.corpora import FilterConfig, SourceConfig
from seq2seq.config.schema import ModelConfig, TokenizerConfig, TrainingConfig, VocabularyConfig
from seq2seq.data.examples import Example
from seq2seq.data.filters import PairFilter, SeenBefore
from seq2seq.data.tokenizer_text import TokenizerText
from seq2seq.errors import UserError, quiet
from seq2seq.inspection.advice import Advice, Problem, advise, judge
from seq2seq.inspection.agreement import Expected
from seq2seq.inspection.blocks import Block, CorpusReader
from seq2seq.inspection.examiner import Candidates, CorpusTally, Examiner
from seq2seq.inspection.near_duplicates import NearDuplicates
from seq2seq.inspection.overlap import HeldOut, Matches, Overlap, SharedExample
from seq2seq.inspection.report import CorpusReport, report_on
from seq2seq.inspection.swapped_sides import sides_are_swapped
from seq2seq.inspection.word_pairs import WordPairs
from seq2seq.processes import in_processes
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

SAMPLE_BLOCKS, SAMPLE_LINES = 16, 20_000
SAMPLE_VOCABULARY = 8000
# The number of blocks that are examined without worker processes, whose start takes about as long (1 s).
BLOCKS_ALONE = 4
NEAR_SAMPLE = 16_000


@dataclass(frozen=True)
class Corpora:
    """The corpora of one task to check, with the settings of filters, tokenizer and training."""

    train: Sequence[SourceConfig]
    """The training corpora in the order of training, which drops what an earlier one has."""
    held_out: dict[str, SourceConfig]
    languages: tuple[str, str] | None
    """The languages of the two sides; None in classification."""
    filters: FilterConfig = field(default_factory=FilterConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    """Its written keys, apart from `preset`, take precedence over the recommended preset."""
    training: TrainingConfig | None = None
    seed: int = 1
    label_names: Mapping[str, str] = field(default_factory=dict)
    """The displayed names of the labels, in classification."""
    are_all: bool = True
    """Whether these are all corpora of the model; the advice on its sizes needs all."""
    reversed_train: Collection[int] = ()
    """The indices of the corpora in `train` that have the reverse direction with `both_ways`; their sides are
    exchanged."""
    tokenizers: TokenizerPair | None = None
    """The tokenizers of the initial model or of `tokenizer.init_from`; without them, tokenizers are trained."""
    has_languages: bool = False
    """Whether the model has `languages`: its tokenizers are trained on the texts of all directions, and have tags."""

    @property
    def has_initial_model(self) -> bool:
        """Whether training begins with the weights of another model, to which the sizes of `advise` do not apply."""
        return self.training is not None and self.training.init_from is not None

    @property
    def have_noise(self) -> bool:
        """Whether training adds noise, without which the report measures lengths."""
        return any(source.noise is not None for source in self.train)

    @property
    def has_exact_tokenizers(self) -> bool:
        """Whether `tokenizers` are those of training, which `training.vocabulary` may change."""
        changes = self.training is not None and self.training.vocabulary != VocabularyConfig()
        return self.tokenizers is not None and not changes


@dataclass(frozen=True)
class CheckReport:
    """The report on all corpora."""

    corpora: list[CorpusReport]
    overlaps: dict[str, dict[str, Overlap]]
    """The overlap of train, and then of each held-out set, with the held-out sets after it."""
    advice: Advice | None
    problems: list[Problem]
    lengths_are_exact: bool
    """Whether lengths are those of the tokenizer of training; else a tokenizer of a sample estimates them."""

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return all(problem.level != "error" for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {"ok": self.ok, **asdict(self)}


@quiet("seq2seq")  # the report covers warnings of reading, and warnings of the tokenizer concern only a sample
def check_corpora(
    corpora: Corpora, num_workers: int = 0, progress: Callable[[int], None] = lambda _: None
) -> CheckReport:
    """Check the training corpora and the held-out sets.

    Args:
        corpora: corpora and settings.
        num_workers: number of processes; 0 starts one per CPU.
        progress: function that is called with the number of examples done since its last call.
    """
    kind = corpora.languages, corpora.label_names
    names = [f"train.{index}" for index in range(len(corpora.train))] if len(corpora.train) > 1 else ["train"]
    train = [
        CorpusReader(name, source, *kind, is_reversed=index in corpora.reversed_train)
        for index, (name, source) in enumerate(zip(names, corpora.train, strict=False))
    ]
    held_out = [CorpusReader(name, source, *kind) for name, source in corpora.held_out.items()]
    held_out_blocks = {reader.name: list(reader.blocks()) for reader in held_out}
    sample = [list(islice(reader.blocks(), SAMPLE_BLOCKS + 1)) for reader in train]
    is_whole = bool(sample) and all(len(part) <= SAMPLE_BLOCKS for part in sample)
    has_all = is_whole and corpora.tokenizer.vocab_size <= SAMPLE_VOCABULARY and not corpora.has_languages
    is_exact = (has_all if corpora.tokenizers is None else corpora.has_exact_tokenizers) and not corpora.have_noise
    difference = sum(reader.line_counts[-1] - reader.line_counts[0] for reader in train)
    blocks = list(chain.from_iterable(sample)) or list(chain.from_iterable(held_out_blocks.values()))
    tokenizers = _tokenizers(corpora, [_Read(*each) for each in zip(train, sample, strict=True)], blocks, is_exact)
    examiner = _examiner(corpora, blocks, held_out_blocks, difference, tokenizers)
    expected = Expected(corpora.languages or (), examiner.word_pairs, _words_deny(blocks, examiner.word_pairs))
    total, seen = CorpusTally(), SeenBefore()
    reports, overlaps = [], {}
    for reader in train:
        blocks_examined = in_processes(examiner, reader.blocks(), num_workers, BLOCKS_ALONE, remedy="give --workers 1")
        tally = _tally(blocks_examined, seen if corpora.filters.drop_duplicates else None, progress)
        reports.append(report_on(tally, reader, None, expected))
        tally.matches = _matches_of(reader, tally)
        tally.forget_lines()
        total.add(tally)
    if held_out:
        overlaps["train"] = Matches(total.matches).overlaps(examiner.held_out)
    for reader in held_out:
        blocks_examined = (examiner(block, skip=reader.name) for block in held_out_blocks[reader.name])
        tally = _tally(blocks_examined, SeenBefore() if corpora.filters.drop_duplicates else None)
        reports.append(report_on(tally, reader, total if total.examples else None, expected))
        shared = list(Matches(_matches_of(reader, tally)).overlaps(examiner.held_out).items())
        if later := shared[held_out.index(reader) + 1 :]:
            overlaps[reader.name] = dict(later)
    problems = [
        Problem("error", name, "source and target look swapped against train")
        for name, first in held_out_blocks.items()
        if train and blocks and first and corpora.languages and sides_are_swapped(blocks[0].columns, first[0].columns)
    ]
    problems += judge(reports[: len(train)], reports[len(train) :], overlaps)
    lines = {name: list(chain.from_iterable(block.numbers for block in of)) for name, of in held_out_blocks.items()}
    by_line = {
        first: {second: _by_line(overlap, lines[second]) for second, overlap in others.items()}
        for first, others in overlaps.items()
    }
    return CheckReport(reports, by_line, _advice(corpora, total), problems, is_exact)


def _tally(
    examined: Iterable[tuple[CorpusTally, Candidates]],
    seen: SeenBefore | None,
    progress: Callable[[int], None] = lambda _: None,
) -> CorpusTally:
    """Return the sums over the blocks of a corpus; examples that `seen` has are duplicates."""
    tally = CorpusTally()
    for tally_of_block, candidates in examined:
        tally_of_block.keep(candidates, seen)
        tally.add(tally_of_block)
        progress(tally_of_block.examples)
    return tally


def _advice(corpora: Corpora, total: CorpusTally) -> Advice | None:
    """Return the recommended sizes; None for an initial model, which has sizes, and if there are other corpora."""
    if not total.examples or not corpora.are_all or corpora.has_initial_model:
        return None
    is_new = corpora.tokenizers is None
    return advise(total, corpora.tokenizer, corpora.model, corpora.training, has_new_tokenizer=is_new)


def _matches_of(reader: CorpusReader, tally: CorpusTally) -> list[tuple[str, SharedExample]]:
    """Return the matches of a tally with the name of its corpus."""
    return [(name, replace(match, train_corpus=reader.name)) for name, match in tally.matches]


def _by_line(overlap: Overlap, lines: Sequence[int]) -> Overlap:
    """Return an overlap whose held-out examples are numbered by the lines of their file."""
    shown = (replace(match, held_out_number=lines[match.held_out_number - 1]) for match in overlap.examples)
    return replace(overlap, examples=tuple(shown))


def _words_deny(sample: Sequence[Block], word_pairs: WordPairs | None) -> bool:
    if word_pairs is not None or not sample or len(sample[0].columns) != 2:
        return False
    columns = ([line for block in sample for line in block.columns[side]] for side in (0, 1))
    return WordPairs.deny(*columns)


def _examiner(
    corpora: Corpora,
    sample: Sequence[Block],
    held_out: dict[str, Sequence[Block]],
    difference: int,
    tokenizers: list[Tokenizer | None],
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
        tokenizers=tokenizers,
        held_out=sets,
        near_duplicates=NearDuplicates(sets, examples[:NEAR_SAMPLE]),
        held_out_words=words,
        word_pairs=WordPairs.learn(*columns, difference) if num_sides == 2 else None,
    )


@dataclass(frozen=True)
class _Read:
    """The examples of some blocks of a corpus, as training reads them."""

    reader: CorpusReader
    blocks: Sequence[Block]

    @property
    def name(self) -> str:
        return self.reader.name

    @property
    def tag(self) -> str | None:
        return self.blocks[0].tag if self.blocks else None

    def __iter__(self) -> Iterator[Example]:
        for block in self.blocks:
            yield from block.trained()


def _tokenizers(
    corpora: Corpora, read: Sequence[_Read], sample: Sequence[Block], is_exact: bool
) -> list[Tokenizer | None]:
    """Return the tokenizer of each side: the given ones, if `is_exact` those of training, or smaller ones of a
    sample."""
    num_sides, config = 2 if corpora.languages else 1, corpora.tokenizer
    if corpora.tokenizers is not None:
        return [corpora.tokenizers.source, corpora.tokenizers.target][:num_sides]
    sides: list[Iterable[str]]
    if is_exact:
        text = TokenizerText(read, corpora.filters, config, corpora.seed)
        sides = [text.side(side) for side in range(num_sides)]
    else:
        rules, size = PairFilter(corpora.filters), min(config.vocab_size, SAMPLE_VOCABULARY)
        config = config.model_copy(update={"vocab_size": size, "sample_lines": SAMPLE_LINES})
        examples = chain.from_iterable(block.examples() for block in sample)
        kept = [example.texts for example in examples if rules.rejects_text(example) is None]
        sides = [[texts[side] for texts in kept] for side in range(num_sides)]
    if config.shared:
        return [_tokenizer(chain(*sides), config, corpora.seed)] * num_sides
    return [_tokenizer(side, config, corpora.seed) for side in sides]


def _tokenizer(lines: Iterable[str], config: TokenizerConfig, seed: int) -> Tokenizer | None:
    """Return a tokenizer of these lines; None if there is too little text."""
    try:
        return Tokenizer.train(lines, config, seed)
    except UserError:
        return None
