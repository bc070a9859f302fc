"""BLEU, chrF, chrF++ and TER of translations, computed by sacrebleu, each with its signature.

Only this module makes a `Score`. Validation in training and `s2s bleu` call `score_texts`, so their figures agree with
each other and, to the last digit, with those of the command `sacrebleu`.
"""

import functools
import logging
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import combining

import numpy as np
import regex

from seq2seq.arguments import checked_names
from seq2seq.errors import DataError, UserError, counted
from seq2seq.evaluation.significance import SAMPLES, Resampled, paired_p_value, resample, seed
from seq2seq.evaluation.uncertainty import Measured, of_sums
from seq2seq.languages import language_code
from seq2seq.lines import checked_texts
from seq2seq.text.normalization import normalized
from seq2seq.text.scripts import may_lack_spaces

if TYPE_CHECKING:
    import sacrebleu.metrics.base
    from sacrebleu.significance import Result

logger = logging.getLogger(__name__)

METRICS = ("bleu", "chrf", "chrf++", "ter")
DOWNLOAD_SECONDS = 20.0  # timeout of one network operation

# BLEU counts words; these languages are written with few or no spaces between words. The last row is Shan, Mon,
# Northern Thai, Lü, Tai Nüa, S'gaw and Pa'o Karen, and Yi.
_TOKENIZER_OF_LANGUAGE = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"} | dict.fromkeys(
    ("th", "lo", "km", "my", "bo", "dz", "shn", "mnw", "nod", "khb", "tdd", "ksw", "blk", "ii"), "char"
)  # fmt: skip
# Codes of scripts (ISO 15924), as in jav_Java or zho_Latn, take precedence over the language.
_TOKENIZER_OF_SCRIPT = {"latn": "13a"} | dict.fromkeys(
    ("thai", "laoo", "khmr", "mymr", "tibt", "java", "bali", "lana", "tale", "talu", "tavt", "yiii"), "char"
)
_WORD_TOKENIZERS = ("13a", "intl", "none")
# Tokenizers by letters; the first whose letters are more than a tenth of a text is suggested.
_TOKENIZER_OF_LETTERS = {
    "ja-mecab": regex.compile(r"[\p{Hiragana}\p{Katakana}]"),
    "ko-mecab": regex.compile(r"\p{Hangul}"),
    "zh": regex.compile(r"\p{Han}"),
}
LINES_LOOKED_AT = 1000


@dataclass(frozen=True)
class Score:
    """One metric of one set of translations."""

    metric: str
    """One of `METRICS`."""
    result: "sacrebleu.metrics.base.Score"
    signature: str
    """sacrebleu's signature: everything that the score depends on."""
    scorer: Any = field(default=None, repr=False, compare=False)
    statistics: Sequence[Sequence[float]] = field(default=(), repr=False, compare=False)
    """The statistics of each line, from which the score is computed."""

    @property
    def score(self) -> float:
        """The score, from 0 to 100; TER may exceed 100, and lower is better."""
        return self.result.score

    @property
    def measured(self) -> Measured:
        """The score with what each line contributes to it."""
        return of_sums(self.score, self.table, self.compute)

    @property
    def table(self) -> np.ndarray:
        """The statistics of each line (N, K)."""
        return np.array(self.statistics)

    def of_lines(self, indices: Sequence[int]) -> float:
        """Return the score of some of the lines, at least one."""
        return self.compute(self.table[list(indices)].sum(axis=0))

    def compute(self, sums: Sequence[float]) -> float:
        """Return the score of some lines from the sums (K,) of their statistics."""
        return self.scorer._compute_score_from_stats(sums).score

    @property
    def paired_signature(self) -> str:
        """The signature of the score in a paired bootstrap test, as sacrebleu writes it."""
        signature = self.scorer.get_signature()
        signature.update("seed", str(seed()).lower())
        signature.update("bs", SAMPLES)
        return signature.format()

    def format(self, width: int = 1, is_json: bool = False) -> str:
        """Return the line or JSON object that the command `sacrebleu` prints, with `width` decimals."""
        return self.result.format(width, False, self.signature, is_json)


def sentence_chrf(hypothesis: str, reference: str) -> float:
    """Return the chrF of one sentence, 0 to 100."""
    from sacrebleu.metrics import CHRF

    return CHRF().sentence_score(hypothesis, [reference]).score


def form_hint(hypotheses: Iterable[str], references: Iterable[str]) -> str | None:
    """Return a warning if both sides contain words that look equal but differ in encoding (NFC and NFD, soft hyphens,
    zero-width spaces), because metrics count them as different; None if there are no such words."""
    sides = [{word for text in side for word in text.split()} for side in (hypotheses, references)]
    found = []
    for own, other in (sides, sides[::-1]):
        odd = {word for word in own - other if not word.isascii() and normalized(word) != word}
        plain = {normalized(word) for word in other} if odd else set()
        found += sorted(word for word in odd if normalized(word) in plain)
    if not found:
        return None
    words = f"{len(found):,} {'word is' if len(found) == 1 else 'words are'}"
    example = " ".join(f"U+{ord(char):04X}" for char in found[0] if normalized(char) != char or combining(char))
    remedy = "bring both sides to one Unicode form (uconv -x nfc)"
    return f"{words} encoded differently in hypotheses and references ({example}) and count as errors; {remedy}"


def score_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: str | Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    target_language: str | None = None,
    confidence: bool = False,
    lowercase: bool = False,
    other_references: Sequence[Sequence[str]] = (),
) -> list[Score]:
    """Score detokenised translations, each line against its references, in the order of `METRICS`.

    `other_references` are further references of the same lines; the signature contains the number of references.
    `tokenize` is sacrebleu's name of BLEU's tokenizer; None chooses by `target_language` (see `default_tokenizer`).
    `confidence` adds a 95 % interval from 1,000 bootstrap resamples (Koehn 2004). `lowercase` makes BLEU and chrF
    case-insensitive; TER always is.

    Raises:
        DataError: the numbers of lines differ, or there are none.
        UserError: a metric does not exist, or a tokenizer does not exist or is not installed.
        TypeError: translations or references are not a list of texts.
    """
    metrics = check_settings(metrics, tokenize)
    lines, all_references = _checked(hypotheses, [references, *other_references])
    scores = []
    for metric, scorer in _scorers(metrics, tokenize, target_language, lowercase, all_references).items():
        statistics = scorer._extract_corpus_statistics(lines, None)
        result = scorer._aggregate_and_compute(statistics)
        if confidence:
            _add_interval(result, scorer, statistics)
        scores.append(Score(metric, result, scorer.get_signature().format(), scorer, statistics))
    return scores


def _add_interval(result: Any, scorer: Any, statistics: Sequence[Sequence[float]]) -> None:
    """Add the interval to a score, as the method `corpus_score` of sacrebleu does.

    That one fails if only some of the resamples have a score of 0 or of no words, which are numbers of another type.
    """
    from sacrebleu.significance import _bootstrap_resample

    scorer.n_bootstrap = SAMPLES
    scorer.seed, samples = _bootstrap_resample(statistics, scorer, SAMPLES)
    if len({type(sample.score) for sample in samples}) > 1:
        for sample in samples:
            sample.score = float(sample.score)
    result.estimate_ci(samples)


def score_sentences(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: str | Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    target_language: str | None = None,
    lowercase: bool = False,
    other_references: Sequence[Sequence[str]] = (),
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Score each line alone, as `sacrebleu --sentence-level` does: BLEU counts only the orders that a line has.

    Returns:
        Two dictionaries by sacrebleu's name of the metric, in the order of `METRICS`: the score of each line, and the
        signature.

    Raises:
        DataError, UserError, TypeError: for the reasons that `score_texts` lists.
    """
    metrics = check_settings(metrics, tokenize)
    lines, all_references = _checked(hypotheses, [references, *other_references])
    scorers = _scorers(metrics, tokenize, target_language, lowercase)
    if "bleu" in scorers:
        scorers["bleu"].effective_order = True
    rows = list(zip(lines, zip(*all_references, strict=True), strict=True))
    scores, signatures = {}, {}
    for scorer in scorers.values():
        results = [scorer.sentence_score(line, list(own)) for line, own in rows]
        scores[results[0].name] = [result.score for result in results]
        signatures[results[0].name] = scorer.get_signature().format()
    return scores, signatures


def compare_systems(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    metrics: str | Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    target_language: str | None = None,
    lowercase: bool = False,
    other_references: Sequence[Sequence[str]] = (),
) -> "tuple[dict[str, list[Result]], dict[str, str]]":
    """Score several systems and test each against the first by paired bootstrap resampling (Koehn 2004).

    The figures are those of `sacrebleu --paired-bs`, with one exception: a system that does not differ at all from the
    first has the p-value 1. sacrebleu's formula gives 1/1001, as if the two differed significantly.

    Returns:
        Two dictionaries by sacrebleu's name of the metric: the result of each system, and the signature. The p-value of
        the first system is None.

    Raises:
        DataError, UserError, TypeError: as `score_texts`; the message about a wrong number of lines names the system.
        UserError: there is no system.
    """
    from sacrebleu.significance import Result

    if not isinstance(systems, Mapping) or not systems:
        raise UserError("compare_systems takes the translations of each system by its name; name at least one system")
    metrics = check_settings(metrics, tokenize)
    given = [checked_texts(lines, "scoring") for lines in (references, *other_references)]
    named = {name: _checked(hypotheses, given, name)[0] for name, hypotheses in systems.items()}
    scores = [
        score_texts(lines, given[0], metrics, tokenize, target_language, False, lowercase, given[1:])
        for lines in named.values()
    ]
    results: dict[str, list[Result]] = {}
    for (baseline, *others), own in zip(zip(*resampled(scores), strict=True), scores[0], strict=True):
        column = results[own.result.name] = [Result(baseline.score, None, baseline.mean, baseline.half_width)]
        for other in others:
            p_value = paired_p_value(baseline, other)
            column.append(Result(other.score, p_value, other.mean, other.half_width))
    return results, {score.result.name: score.paired_signature for score in scores[0]}


def resampled(systems: Sequence[Sequence[Score]]) -> list[list[Resampled]]:
    """Return the bootstrap resamples of the scores of systems on the same lines, in the order of their metrics."""
    flat = [score for scores in systems for score in scores]
    values = iter(resample([score.table for score in flat], [score.compute for score in flat]))
    return [[Resampled(score.score, next(values), len(score.table)) for score in scores] for scores in systems]


def check_settings(metrics: str | Iterable[str], tokenize: str | None) -> tuple[str, ...]:
    """Return the metrics, after a check that they and the tokenizer can be used on this machine, before any work.

    The model of a tokenizer (spm, flores101, flores200, spBLEU-1K) is downloaded if it is missing.

    Raises:
        UserError: the metric or tokenizer is not available; the message has the remedy.
    """
    from sacrebleu.metrics import BLEU

    names = checked_names(metrics, METRICS, "metric")
    if not names:
        raise UserError(f"metrics: none is named; name at least one of {', '.join(METRICS)}")
    if tokenize is None:
        return names
    checked_names((tokenize,), BLEU.TOKENIZERS, "tokenizer")
    _try_tokenizer(tokenize)
    return names


@functools.lru_cache  # a training run warns once, not at every validation
def default_tokenizer(target_language: str | None) -> str:
    """Return BLEU's tokenizer for a language: zh, ja-mecab, ko-mecab, char for others without spaces, otherwise 13a.

    If the package that ja-mecab or ko-mecab needs is not installed, the result is char, with a warning, because 13a
    would count a Japanese sentence as one word. The signature of the score contains the tokenizer.
    """
    tokenizer = tokenizer_of_language(target_language)
    if tokenizer == "char":
        logger.info("BLEU is counted over characters (tok:char): %s has no spaces between words", target_language)
    if _is_installed(tokenizer):
        return tokenizer
    remedy = f"pip install 'sacrebleu[{language_code(target_language)}]'"
    logger.warning("BLEU is counted over characters (tok:char): %s is not installed (%s)", tokenizer, remedy)
    return "char"


def tokenizer_of_language(target_language: str | None) -> str:
    """Return BLEU's tokenizer for a language, whether it is installed or not."""
    scripts = re.split("[-_]", (target_language or "").lower())[1:]
    tokenizer = _TOKENIZER_OF_LANGUAGE.get(language_code(target_language), "13a")
    return next((_TOKENIZER_OF_SCRIPT[name] for name in scripts if name in _TOKENIZER_OF_SCRIPT), tokenizer)


def tokenizer_hint(
    references: Iterable[str], tokenize: str | None = None, target_language: str | None = None
) -> str | None:
    """Return a warning if BLEU would count words in references without spaces between words; None otherwise."""
    used = tokenize or default_tokenizer(target_language)
    text = "".join("".join(islice(references, LINES_LOOKED_AT)).split())
    if used not in _WORD_TOKENIZERS or not may_lack_spaces(text):
        return None
    better = next(
        (name for name, few in _TOKENIZER_OF_LETTERS.items() if len(few.findall(text)) > len(text) / 10), "char"
    )
    better = better if _is_installed(better) else "char"
    return (
        f"tok:{used} counts text between two spaces as one word, and this text has few spaces; add --tokenize {better}"
    )


def _is_installed(tokenizer: str) -> bool:
    try:
        _try_tokenizer(tokenizer)
    except UserError:
        return False
    return True


@functools.lru_cache  # caches success only; after an error it tries again
def _try_tokenizer(name: str) -> None:
    """Create a tokenizer once, which downloads its model if it is missing.

    Raises:
        UserError: it needs a package that is not installed, or its model cannot be fetched or read.
    """
    from sacrebleu.metrics.bleu import _get_tokenizer
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    waited = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_SECONDS)  # sacrebleu sets none
    try:
        _get_tokenizer(name)()
    except (Exception, SystemExit) as error:  # errors of urllib, ssl, MeCab, SentencePiece and the file system
        if name.endswith("-mecab"):
            remedy = f"not installed; pip install 'sacrebleu[{name.removesuffix('-mecab')}]', or use char"
        elif name in SPM_MODELS:
            url = SPM_MODELS[name]["url"]
            path = Path(SACREBLEU_DIR) / "models" / Path(url).name  # where sacrebleu keeps it
            if path.exists():
                remedy = f"{path} is not its model; remove the file, or use char"
            else:
                remedy = f"its model could not be downloaded; put {url} at {path}, or use char"
        else:
            raise
        raise UserError(f"tokenizer {name!r}: {remedy}") from error
    finally:
        socket.setdefaulttimeout(waited)


def _scorers(
    metrics: Sequence[str],
    tokenize: str | None,
    target_language: str | None,
    lowercase: bool,
    references: Sequence[Sequence[str]] | None = None,
) -> dict[str, Any]:
    from sacrebleu.metrics import BLEU, CHRF, TER

    scorers: dict[str, Any] = {}
    if "bleu" in metrics:
        tokenizer = tokenize or default_tokenizer(target_language)
        scorers["bleu"] = BLEU(lowercase=lowercase, tokenize=tokenizer, references=references)
    if "chrf" in metrics:
        scorers["chrf"] = CHRF(lowercase=lowercase, references=references)
    if "chrf++" in metrics:
        scorers["chrf++"] = CHRF(word_order=2, lowercase=lowercase, references=references)
    if "ter" in metrics:
        scorers["ter"] = TER(references=references)
    return scorers


def _checked(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], name: str | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return all sides without white space at the ends of lines, which the command `sacrebleu` removes too."""
    hypotheses = checked_texts(hypotheses, "scoring")
    references = [checked_texts(lines, "scoring") for lines in references]
    for lines in references:
        if len(hypotheses) != len(lines):
            who = f"{name} has" if name else "there is" if len(hypotheses) == 1 else "there are"
            translations, wanted = counted(len(hypotheses), "translation"), counted(len(lines), "reference")
            raise DataError(f"{who} {translations} for {wanted}; give one line for each")
    if not references[0]:
        raise DataError(f"{name or 'the reference'} has no lines; there is nothing to score")
    return [line.rstrip() for line in hypotheses], [[line.rstrip() for line in lines] for lines in references]
