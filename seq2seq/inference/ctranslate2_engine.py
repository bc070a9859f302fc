"""The engine that searches with CTranslate2, which is the default on CPUs.

`inference.loading` opens it with a folder that `s2s convert --to ctranslate2` wrote, or with the cached conversion of a
model folder.
"""

import copy
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from seq2seq.config.schema import SearchConfig
from seq2seq.errors import RunError, UserError
from seq2seq.inference.degeneration import has_loop
from seq2seq.inference.groups import SEARCH_TOKENS, token_groups
from seq2seq.interop import ctranslate2
from seq2seq.lines import shown_name
from seq2seq.processes import OfProcess
from seq2seq.search.base import Hypothesis, Sentence, length_limits, min_length, normalized_score, rows_per_sentence
from seq2seq.text.tokenizer import TokenizerPair

Item = TypeVar("Item")

# Settings with which CTranslate2 gives other results than our search: it samples all sentences with one generator, and
# it divides the probability of suppressed tokens among the other tokens.
DIFFERENT = ("sample", "min_length", "no_repeat_ngram")
# Source tokens of a group on a CPU: the products of smaller groups are slower, and larger groups do not fit its caches.
# Each worker gets several groups, so that all workers are busy until the end.
LARGEST_GROUP, SMALLEST_GROUP, GROUPS_PER_WORKER = 1024, 256, 4
# Limits of first beam searches are multiples of LIMIT_STEP; nearly all translations have at most FIRST_RATIO pieces per
# source piece.
LIMIT_STEP, FIRST_RATIO = 16, 1.25
# Hypotheses, in addition to beam_size, that must finish before a search without `early_stopping` ends.
MORE_ENDED = 7
# Groups per worker in CTranslate2's queue, which must be finished before the program can end.
GROUPS_AHEAD = 3


class CTranslate2Engine:
    """An `Engine` that searches with CTranslate2, in groups of sentences with similar lengths.

    Its beam search ends after a number of finished hypotheses: `beam_size` with `early_stopping`, as in our search, and
    otherwise `MORE_ENDED` more. It does not report live hypotheses, so a better translation may rarely be missed, and
    `max_extra_steps` has no effect. Without a length penalty it ends when the best candidate of a step is finished, as
    in our search.

    Args:
        folder: CTranslate2 folder.
        tokenizers: tokenizers whose pieces are the vocabularies of the folder.
        max_length: maximum length of a source or a target, special ids included.
        device: cpu, cuda or cuda:1.
        threads: number of groups that are searched at the same time, each on one CPU thread.

    Raises:
        UserError: CTranslate2 cannot open the folder on this device.
    """

    def __init__(self, folder: Path, tokenizers: TokenizerPair, max_length: int, device: str = "cpu", threads: int = 1):
        self.max_length, self.leaves_cpus_idle = max_length, device != "cpu"
        self._source_pieces = tokenizers.source.pieces(range(tokenizers.source.vocab_size))
        self._target_pieces = tokenizers.target.pieces(range(tokenizers.target.vocab_size))
        self._target_ids = {piece: id_ for id_, piece in enumerate(self._target_pieces)}
        self._end = self._target_pieces[tokenizers.target.eos_id]
        self._source_end = ctranslate2.source_end(tokenizers)
        self._num_own_starts = ctranslate2.num_own_starts(tokenizers)
        self._translator = _open(folder, device, threads)
        self._grouped_for = self._translator.num_translators

    def directed(self, tokenizers: TokenizerPair) -> "CTranslate2Engine":
        """Return an engine with the same weights for another direction (see `Engine.directed`)."""
        return self._changed(_source_end=ctranslate2.source_end(tokenizers))

    def grouping_for(self, workers: int) -> "CTranslate2Engine":
        """Return an engine that groups as one with this number of workers (see `Engine.grouping_for`)."""
        return self._changed(_grouped_for=workers)

    def _changed(self, **changes: Any) -> "CTranslate2Engine":
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    @property
    def compute_type(self) -> str:
        """The number format of computation: the one nearest to the folder's among those that the device supports."""
        return self._translator.compute_type

    def translate(self, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """Translate sentences (see `Engine.translate`), except that samples depend on the other sentences.

        The sentences of a group share a length limit. In greedy search and sampling, whose rows are independent, it is
        the largest of their limits, and each translation is then cut at its own. A beam search first has a short limit,
        usually a multiple of `LIMIT_STEP`. A sentence is searched again with its own limit if a hypothesis that was cut
        off could still be the best, unless the best one repeats itself: it would continue to any limit, so the
        translation of the short search is kept.

        Raises:
            RunError: the memory is too small for a group of sentences.
        """
        if any(sentence.opening for sentence in sentences):
            return self._translate_opened(sentences, config)
        limits = length_limits(sentences, config, self.max_length - 1)  # `_scored` needs a position for the end
        if _has_independent_rows(config):
            results = self._search(sentences, range(len(sentences)), limits, config)
            cut = {index for index, found in results.items() if any(len(each.ids) >= limits[index] for each in found)}
            results |= {index: [_cut(each, limits[index]) for each in results[index]] for index in cut}
        else:
            first = [_first_limit(*pair, config) for pair in zip(sentences, limits, strict=True)]
            results = self._search(sentences, range(len(sentences)), first, config)
            late = [
                index
                for index, hypotheses in results.items()
                if first[index] < limits[index]
                and _may_improve(hypotheses, limits[index], config)
                and not has_loop(max(hypotheses, key=attrgetter("score")).ids[len(sentences[index].prefix) :])
            ]
            results |= self._search(sentences, late, limits, config)
            cut = set()
        ruled = difference(vars(config))  # with such settings, scores are not those of the model
        unscored = [
            index
            for index, sentence in enumerate(sentences)
            if ruled or sentence.prefix or sentence.forbidden or sentence.min_length or index in cut
        ]
        for index, hypotheses in zip(unscored, self._scored(sentences, results, unscored, config), strict=True):
            results[index] = hypotheses
        return [_best(results[index], config) for index in range(len(sentences))]

    def _translate_opened(self, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """Translate sentences with openings, for which CTranslate2 has no option.

        A search without the opening often gives hypotheses that begin with it. For the other sentences, the likeliest
        spellings of the opening are determined step by step, each spelling is the prefix of a search, and the best
        hypotheses of all these searches are returned.
        """
        results = self.translate([replace(sentence, opening=None) for sentence in sentences], config)
        for index, (sentence, hypotheses) in enumerate(zip(sentences, results, strict=True)):
            results[index] = [hypothesis for hypothesis in hypotheses if self._keeps_opening(sentence, hypothesis)]
        missing = [index for index, hypotheses in enumerate(results) if len(hypotheses) < config.n_best]
        spelled = [
            (index, ids) for index in missing for ids in self._spell(sentences[index], rows_per_sentence(config))
        ]
        begun = [
            replace(sentences[index], prefix=(*sentences[index].prefix, *ids), opening=None) for index, ids in spelled
        ]
        for index in missing:
            results[index] = []
        for (index, _), hypotheses in zip(spelled, self.translate(begun, config) if begun else (), strict=True):
            results[index] += hypotheses
        return [_best(hypotheses, config) for hypotheses in results]

    def _keeps_opening(self, sentence: Sentence, hypothesis: Hypothesis) -> bool:
        if sentence.opening is None:
            return True
        ends = [self._target_ids[self._end]] if hypothesis.finished else []
        ids = [*hypothesis.ids[len(sentence.prefix) :], *ends]
        return sentence.opening.state(ids) == len(sentence.opening.steps)

    def _spell(self, sentence: Sentence, most: int) -> list[tuple[int, ...]]:
        """Return the `most` likeliest spellings of the opening of a sentence, by a beam search of that width."""
        opening, beams, spelled = sentence.opening, [(0.0, ())], []
        end = self._target_ids[self._end]
        assert opening is not None
        while beams:
            prefixes = [self._to_target((*self._tags(sentence), *sentence.prefix, *ids)) for _, ids in beams]
            answers = self._translator.translate_batch(
                [self._to_source(sentence)] * len(beams),
                prefixes,
                beam_size=1,
                max_decoding_length=len(prefixes[0]) + 1,
                max_input_length=0,
                return_logits_vocab=True,
            )
            longer = []
            for (log_prob, ids), answer in zip(beams, answers, strict=True):
                logits = np.array(answer.logits[0][-1].to_device(ctranslate2.package().Device.cpu), np.float32)
                log_probs = logits - np.logaddexp.reduce(logits)
                allowed = opening.allowed(ids) or {}
                longer += [(log_prob + float(log_probs[id_]), (*ids, id_)) for id_ in allowed if id_ != end]
            best = sorted([*spelled, *longer], reverse=True)[:most]
            spelled = [beam for beam in best if opening.allowed(beam[1]) is None]
            beams = [beam for beam in best if opening.allowed(beam[1]) is not None]
        return [ids for _, ids in spelled]

    def _search(
        self, sentences: Sequence[Sentence], indices: Sequence[int], limits: Sequence[int], config: SearchConfig
    ) -> dict[int, list[Hypothesis]]:
        """Search the sentences with these indices, with their limits; return the hypotheses by index."""
        options = _options(config, len(self._target_pieces))
        submitted = (
            (group, self._submit([sentences[index] for index in group], limit, config, options))
            for group in self._groups(sentences, indices, limits, config)
            for limit in [max(limits[index] for index in group)]
        )
        results = {}
        for group, answers in _delayed(submitted, GROUPS_AHEAD * self._translator.num_translators):
            try:
                num_tags = _num_tags(sentences[group[0]])
                hypotheses = [self._hypotheses(answer.result(), num_tags, config) for answer in answers]
            except RuntimeError as error:
                if "out of memory" in str(error):
                    raise RunError("out of memory; use a smaller batch_tokens or beam_size") from error
                raise
            results |= zip(group, hypotheses, strict=True)
        return results

    def _groups(
        self, sentences: Sequence[Sentence], indices: Sequence[int], limits: Sequence[int], config: SearchConfig
    ) -> Iterator[list[int]]:
        """Yield groups of indices of sentences that CTranslate2 can search together, and that have similar lengths.

        Their minimum lengths, lengths of starts and forbidden sequences are equal, and in a beam search their limits.
        The longest come first.
        """
        budget = (config.batch_tokens or SEARCH_TOKENS) // rows_per_sentence(config)
        if self._translator.device == "cpu":
            num_tokens = sum(len(sentences[index].source_ids) + 1 for index in indices)
            share = num_tokens // (self._grouped_for * GROUPS_PER_WORKER)
            budget = min(budget, max(share, SMALLEST_GROUP), LARGEST_GROUP)

        def kind(index: int) -> tuple[int, int, int, tuple[tuple[int, ...], ...]]:
            sentence = sentences[index]
            limit = 0 if _has_independent_rows(config) else -limits[index]
            return limit, len(sentence.start), sentence.min_length, sentence.forbidden

        for _, members in groupby(sorted(indices, key=kind), key=kind):
            same = list(members)
            for group in token_groups([len(sentences[index].source_ids) + 1 for index in same], budget):
                yield [same[number] for number in group]

    def _submit(
        self, sentences: Sequence[Sentence], limit: int, config: SearchConfig, options: dict[str, Any]
    ) -> list[Any]:
        tags = [self._tags(sentence) for sentence in sentences]
        prefixes = [
            self._to_target((*tag, *sentence.prefix)) or None for tag, sentence in zip(tags, sentences, strict=True)
        ]
        return self._translator.translate_batch(
            [self._to_source(sentence) for sentence in sentences],
            prefixes if any(prefixes) else None,
            max_decoding_length=limit + _num_tags(sentences[0]),
            suppress_sequences=[self._to_target(ids) for ids in sentences[0].forbidden] or None,
            asynchronous=True,
            min_decoding_length=min(min_length(sentences[0], config), limit) + _num_tags(sentences[0]),
            **options,
        )

    def _hypotheses(self, answer: Any, num_tags: int, config: SearchConfig) -> list[Hypothesis]:
        hypotheses = []
        for whole, score in zip(answer.hypotheses, answer.scores, strict=True):
            pieces = whole[num_tags:]
            finished = bool(pieces) and pieces[-1] == self._end
            ids = tuple([self._target_ids[piece] for piece in (pieces[:-1] if finished else pieces)])
            log_prob = score * max(len(whole), 1) ** _length_penalty(config)
            hypotheses.append(_hypothesis(ids, finished, log_prob, config))
        return (hypotheses * config.n_best)[: config.n_best] if config.sample else hypotheses

    def _scored(
        self,
        sentences: Sequence[Sentence],
        results: Mapping[int, Sequence[Hypothesis]],
        indices: Sequence[int],
        config: SearchConfig,
    ) -> Iterator[list[Hypothesis]]:
        """Yield the hypotheses of these sentences, with the log-probabilities of the model."""
        pairs = [(sentences[index], hypothesis) for index in indices for hypothesis in results[index]]
        scored = iter(
            self._translator.score_batch(
                [self._to_source(sentence) for sentence, _ in pairs],
                [self._to_target((*self._tags(sentence), *hypothesis.ids)) for sentence, hypothesis in pairs],
                max_batch_size=SMALLEST_GROUP,
                batch_type="tokens",
                max_input_length=0,
            )
        )
        for index in indices:
            first = _num_tags(sentences[index])
            for_each = ((each, next(scored).log_probs[first:]) for each in results[index])
            yield [
                _hypothesis(each.ids, each.finished, sum(log_probs[: len(each.ids) + each.finished]), config)
                for each, log_probs in for_each
            ]

    def _tags(self, sentence: Sentence) -> tuple[int, ...]:
        """Return the first ids of the decoder that CTranslate2 does not add."""
        return sentence.start[self._num_own_starts :]

    def _to_source(self, sentence: Sentence) -> list[str]:
        return [*(self._source_pieces[id_] for id_ in sentence.source_ids), *self._source_end]

    def _to_target(self, ids: Sequence[int]) -> list[str]:
        return [self._target_pieces[id_] for id_ in ids]


def _has_independent_rows(config: SearchConfig) -> bool:
    """Whether the first pieces of a translation do not depend on the limit of the search."""
    return config.sample or config.beam_size == 1


def _num_tags(sentence: Sentence) -> int:
    """Return the number of tags that CTranslate2 counts as part of the translation."""
    return max(len(sentence.start) - 1, 0)


def _first_limit(sentence: Sentence, limit: int, config: SearchConfig) -> int:
    """Return the length limit of the first beam search of a sentence."""
    usual = max(FIRST_RATIO * len(sentence.source_ids), len(sentence.prefix), min_length(sentence, config))
    return min(limit, LIMIT_STEP * math.ceil((usual + config.max_length_offset) / LIMIT_STEP))


def _may_improve(hypotheses: Sequence[Hypothesis], limit: int, config: SearchConfig) -> bool:
    """Whether a hypothesis that was cut off could still become one of the n best finished ones (bound of `beam`)."""
    live = max((each.log_prob for each in hypotheses if not each.finished), default=-math.inf)
    ended = sorted((each.score for each in hypotheses if each.finished), reverse=True)[: config.n_best]
    return live > -math.inf and (len(ended) < config.n_best or ended[-1] < live / limit**config.length_penalty)


def _best(hypotheses: Sequence[Hypothesis], config: SearchConfig) -> list[Hypothesis]:
    """Return the n best hypotheses, finished ones first."""
    return sorted(hypotheses, key=lambda each: (not each.finished, -each.score))[: config.n_best]


def _cut(hypothesis: Hypothesis, limit: int) -> Hypothesis:
    is_finished = len(hypothesis.ids) < limit and hypothesis.finished
    return replace(hypothesis, ids=hypothesis.ids[:limit], finished=is_finished)


def difference(settings: Mapping[str, Any]) -> str:
    """Return the first setting with which CTranslate2 gives other results than our search, or ""."""
    return next((f"search.{name}" for name in DIFFERENT if settings.get(name)), "")


def _delayed(items: Iterable[Item], count: int) -> Iterator[Item]:
    """Yield the items, each after `count` more have been made."""
    waiting: deque[Item] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


def _hypothesis(ids: tuple[int, ...], finished: bool, log_prob: float, config: SearchConfig) -> Hypothesis:
    return Hypothesis(ids, log_prob, normalized_score(log_prob, len(ids) + finished, config.length_penalty), finished)


def _open(folder: Path, device: str, threads: int) -> Any:
    kind, _, index = device.partition(":")
    if shown_name(str(folder)) != str(folder):
        raise UserError(f"{folder}: CTranslate2 cannot open a folder whose name is not UTF-8; rename it")
    try:
        # CTranslate2 sets OpenMP's number of threads for the thread that opens it, so that torch's stays unchanged.
        with ThreadPoolExecutor(1) as other:
            opened = other.submit(
                ctranslate2.package().Translator,
                str(folder),
                device=kind,
                device_index=int(index or 0),
                inter_threads=threads if kind == "cpu" else 1,
                intra_threads=1 if kind == "cpu" else 0,
            )
            return OfProcess(opened.result(), "a model that CTranslate2 runs")
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{folder}: ctranslate2 on {device}: {' '.join(str(error).split())}") from error


def _options(config: SearchConfig, vocab_size: int) -> dict[str, Any]:
    # With a length penalty, CTranslate2 stops after enough finished hypotheses, however unlikely; without one, it also
    # waits until the best candidate of a step is finished. Our code ranks them. Greedy search has one hypothesis.
    penalty = _length_penalty(config)
    is_greedy = config.beam_size == 1
    enough = config.beam_size + (MORE_ENDED if penalty and not config.early_stopping and not is_greedy else 0)
    options: dict[str, Any] = dict(
        beam_size=config.beam_size,
        patience=enough / config.beam_size,
        num_hypotheses=enough,  # all: finished hypotheses come before those that were cut off
        length_penalty=penalty,
        no_repeat_ngram_size=config.no_repeat_ngram,
        return_scores=True,
        return_end_token=True,
        max_input_length=0,
    )
    if config.sample:
        options |= dict(beam_size=1, patience=1, sampling_topp=config.top_p, sampling_temperature=config.temperature)
        number = 1 if config.top_k == 1 else config.n_best  # all draws of one are the same
        options |= dict(num_hypotheses=number, sampling_topk=min(config.top_k, vocab_size))
    return options


def _length_penalty(config: SearchConfig) -> float:
    return config.length_penalty or (1e-9 if config.early_stopping else 0.0)
