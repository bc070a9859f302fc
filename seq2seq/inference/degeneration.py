"""The symptoms of degenerate translations, and the search settings with which `Translator` decodes them again, once.

The thresholds are chosen so that good translations of ordinary text have no symptom.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from seq2seq.config.schema import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence
from seq2seq.text.words import words_of

LOOP, LONG, EMPTY, SHORT, COPY = "loop", "long", "empty", "short", "copy"
SYMPTOMS = {LOOP, LONG, EMPTY, SHORT, COPY}
# Other flags, next to VERBATIM: a second search removed the symptoms; the line was translated in parts; words or
# characters that the vocabulary lacks are missing; the translation is in another language than the target.
REPAIRED, SPLIT, LOST, LANGUAGE = "repaired", "split", "lost", "language"

LONGEST_PERIOD = 8
MIN_REPETITIONS = 4
MIN_LOOP_PIECES = 10
MIN_JUDGED_PIECES = 12
SHORT_SHARE = 0.2
MIN_COPIED_WORDS = 4
REMEDY_NGRAM = 3
_RUN = re.compile(r"([^\s\d]{1,8}?)\1{3}")
LONG_SOURCE, REMEDY_RATIO = 50, 1.25  # source pieces; target pieces per source piece


def symptoms(source: str, source_ids: Sequence[int], target: str, hypothesis: Hypothesis) -> tuple[str, ...]:
    """Return the symptoms of a degenerate translation of a text that is not blank.

    - `empty`: the translation is blank.
    - `short`: it has fewer than a fifth of the pieces of a source with at least 12 pieces.
    - `long`: it was cut off at the length limit.
    - `loop`: words, letters or pieces repeat at least 4 times in a row (`repeats`, `has_loop`), and those of the source
      do not.
    - `copy`: it equals a source of at least 4 words.
    """
    if not target.strip():
        return (EMPTY,)
    judged, words = len(source_ids) >= MIN_JUDGED_PIECES, source.split()
    present = {
        SHORT: judged and len(hypothesis.ids) < SHORT_SHARE * len(source_ids),
        LONG: not hypothesis.finished,
        LOOP: (has_loop(hypothesis.ids) or repeats(target)) and not (has_loop(source_ids) or repeats(source)),
        COPY: len(words) >= MIN_COPIED_WORDS and target.split() == words,
    }
    return tuple(symptom for symptom, is_present in present.items() if is_present)


def remedy(found: Sequence[str], sentence: Sentence, config: SearchConfig) -> tuple[Sentence, SearchConfig] | None:
    """Return a sentence and settings for a second search against these symptoms; None if it would not help.

    Against loops and translations without an end, no n-gram of 3 pieces may repeat, and the length limit is lower for a
    long source. Against empty and short translations, at least a third of the number of source pieces is required. A
    copy may be right (names, numbers, code), and samples are kept unchanged. There are few different settings, so that
    most second searches of a call share their batches.
    """
    if config.sample:
        return None
    source_length = len(sentence.source_ids)
    changes: dict[str, float] = {}
    least = max(source_length // 3, 1) if EMPTY in found or SHORT in found else 0
    if (LOOP in found or LONG in found) and not 1 <= config.no_repeat_ngram <= REMEDY_NGRAM:
        changes["no_repeat_ngram"] = REMEDY_NGRAM
        if source_length >= LONG_SOURCE:  # longer searches are slow and rarely useful
            changes["max_length_ratio"] = min(config.max_length_ratio, REMEDY_RATIO)
    if not changes and not least:
        return None
    return replace(sentence, min_length=least), config.model_copy(update=changes)


def line_flags(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the flags of a line from those of its parts: `text_flags`, and `split` if there are several."""
    return (*text_flags(parts), *[SPLIT] * (len(parts) > 1))


def text_flags(lines: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the flags of a text from those of its lines: `repaired` only if each line that had a symptom is."""
    flags = dict.fromkeys(chain.from_iterable(lines))
    if any(SYMPTOMS.intersection(line) and REPAIRED not in line for line in lines):
        flags.pop(REPAIRED, None)
    return tuple(flags)


def symptom_counts(flags: Iterable[Sequence[str]]) -> tuple[int, dict[str, int]]:
    """Return how many translations still have a symptom, and how many have each, the most frequent symptom first."""
    remaining = [sorted(SYMPTOMS.intersection(names)) for names in flags if REPAIRED not in names]
    return sum(map(bool, remaining)), dict(Counter(chain.from_iterable(remaining)).most_common())


def off_target(flags: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the number (`lines`) and rate of translations in another language than the target."""
    count = sum(LANGUAGE in names for names in flags)
    return {"lines": count, "rate": count / max(len(flags), 1)}


def summary(flags: Counter[tuple[str, ...]], unit: str = "line") -> str:
    """Return a sentence on the degenerate and repaired lines, from the number of lines by their flags."""
    total = flags.total()
    degenerate = [names for names in flags.elements() if SYMPTOMS.intersection(names)]
    count, repaired = len(degenerate), sum(REPAIRED in names for names in degenerate)
    text = f"{count:,} of {total:,} {unit}{'s' * (total != 1)} came out degenerate"
    if not count:
        return text
    kinds = Counter(kind for names in degenerate for kind in sorted(SYMPTOMS.intersection(names)))
    named = ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common())
    return f"{text} ({named}); a second search repaired {repaired:,}, so {count - repaired:,} remain degenerate"


def repeats(text: str) -> bool:
    """Whether up to 8 words with a letter or digit, or up to 8 characters with a letter, come 4 times in a row."""
    if any(map(str.isalpha, chain.from_iterable(run.group() for run in _RUN.finditer(text)))):
        return True
    words = words_of(text.casefold())
    if max(Counter(words).values(), default=0) < MIN_REPETITIONS:  # nearly always; the loop below is slow
        return False
    for period in range(1, min(LONGEST_PERIOD, len(words) // MIN_REPETITIONS) + 1):
        run = 0
        for place, (word, later) in enumerate(zip(words, words[period:], strict=False)):
            run = run + 1 if word == later else 0
            if run >= (MIN_REPETITIONS - 1) * period and any(map(str.isalnum, "".join(words[place : place + period]))):
                return True
    return False


def has_loop(ids: Sequence[int]) -> bool:
    """Whether a run of at least 10 ids repeats a period of at most 8 ids at least 4 times."""
    for period in range(1, min(LONGEST_PERIOD, len(ids) // MIN_REPETITIONS) + 1):
        wanted = max(MIN_REPETITIONS * period, MIN_LOOP_PIECES) - period
        run = 0
        for id_, later in zip(ids, ids[period:], strict=False):
            run = run + 1 if id_ == later else 0
            if run >= wanted:
                return True
    return False
