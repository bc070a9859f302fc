"""The engine that searches in CTranslate2: on a CPU the usual one.

`inference.loading` opens it over a folder that `s2s convert --to ctranslate2` wrote, or over the cached conversion of a
model folder.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from seq2seq.config.schema import SearchConfig
from seq2seq.errors import RunError, UserError
from seq2seq.inference.batching import SEARCH_TOKENS, token_groups
from seq2seq.inference.degeneration import has_loop
from seq2seq.interop import ctranslate2
from seq2seq.lines import shown_name
from seq2seq.search.base import Hypothesis, Sentence, length_limits, normalized_score, rows_per_sentence
from seq2seq.text.tokenizer import TokenizerPair

Item = TypeVar("Item")

# With these settings CTranslate2 finds something else than our own search: it draws samples with one generator for all
# sentences, and it divides the probability of what a rule forbids among the other tokens.
DIFFERENT = ("sample", "min_length", "no_repeat_ngram")
# Source tokens of a group on a CPU: of smaller groups the products are slower, and larger ones do not fit its caches.
# Each worker gets several groups, so that all are busy to the end.
LARGEST_GROUP, SMALLEST_GROUP, GROUPS_PER_WORKER = 1024, 256, 4
# Searches end at multiples of this; nearly all translations have at most FIRST_RATIO pieces for each source piece.
LIMIT_STEP, FIRST_RATIO = 16, 1.25
# Hypotheses beyond beam_size that must finish before a search ends without `early_stopping`.
MORE_ENDED = 7
# Groups of each worker that wait in CTranslate2's queue, which is finished before the program ends.
GROUPS_AHEAD = 3


class CTranslate2Engine:
    """Searches with CTranslate2 in groups of sentences of similar lengths.

    Its beam search ends once a number of hypotheses have: `beam_size` with `early_stopping`, as ours; else `MORE_ENDED`
    more. It does not tell what is still live, so that a better translation may rarely be missed, and `max_extra_steps`
    has no effect. Without a length penalty it ends when the best candidate of a step ends, as ours.

    Args:
        folder: a CTranslate2 folder.
        tokenizers: whose pieces the folder's vocabularies are.
        max_length: most positions of a source or a target, special ids included.
        device: cpu, cuda or cuda:1.
        threads: groups that are searched at the same time, each on one CPU thread.

    Raises:
        UserError: CTranslate2 cannot open the folder, or not on this device.
    """

    def __init__(self, folder: Path, tokenizers: TokenizerPair, max_length: int, device: str = "cpu", threads: int = 1):
        self.max_length = max_length
        self._source_pieces = tokenizers.source.pieces(range(tokenizers.source.vocab_size))
        self._target_pieces = tokenizers.target.pieces(range(tokenizers.target.vocab_size))
        self._target_ids = {piece: id_ for id_, piece in enumerate(self._target_pieces)}
        self._end = self._target_pieces[tokenizers.target.eos_id]
        # What CTranslate2 does not put in itself.
        end_ids = tokenizers.source.end_ids if tokenizers.needs_direction else ()
        self._source_end = [self._source_pieces[id_] for id_ in end_ids]
        self._num_own_starts = 0 if ctranslate2.starts_with_tag(tokenizers) else 1
        self._translator = _open(folder, device, threads)

    @property
    def compute_type(self) -> str:
        """The number format that it computes in: of those that the device has, the one nearest to the folder's."""
        return self._translator.compute_type

    def translate(self, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """As `Engine.translate`; but random draws depend on the other sentences.

        A group has one length limit, so its sentences are searched to the same one, a multiple of `LIMIT_STEP`. In
        greedy search and samples, whose rows are independent, a translation is cut at its own limit. A beam search is
        first a short one; a sentence whose hypotheses did not all end in it is searched again with its own limit,
        unless it repeats itself by then: that goes on to any limit, and the translation is cut where it was seen.

        Raises:
            RunError: there is no memory for a group of sentences.
        """
        if any(sentence.opening for sentence in sentences):
            return self._translate_opened(sentences, config)
        limits = length_limits(sentences, config, self.max_length - 1)  # `_scored` needs a position for the end
        if config.sample or config.beam_size == 1:
            shared = [min(_rounded_up(limit), self.max_length - 1) for limit in limits]
            results = self._search(sentences, range(len(sentences)), shared, config)
            cut = {index for index, found in results.items() if any(len(one.ids) >= limits[index] for one in found)}
            results |= {index: [_cut(one, limits[index]) for one in results[index]] for index in cut}
        else:
            first = [_first_limit(*pair, config) for pair in zip(sentences, limits, strict=True)]
            results = self._search(sentences, range(len(sentences)), first, config)
            late = [
                index
                for index, found in results.items()
                if first[index] < limits[index]
                and _may_improve(found, limits[index], config)
                and not has_loop(max(found, key=lambda one: one.score).ids[len(sentences[index].prefix) :])
            ]
            results |= self._search(sentences, late, limits, config)
            cut = set()
        ruled = difference(vars(config))  # its scores are not the model's
        unscored = [
            index
            for index, sentence in enumerate(sentences)
            if ruled or sentence.prefix or sentence.forbidden or index in cut
        ]
        for index, found in zip(unscored, self._scored(sentences, results, unscored, config), strict=True):
            results[index] = found
        return [
            sorted(results[index], key=lambda one: (not one.finished, -one.score))[: config.n_best]
            for index in range(len(sentences))
        ]

    def _translate_opened(self, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """Translate sentences with openings, which CTranslate2 has no option for.

        A search without the opening often finds what begins with it. Elsewhere the likeliest ways to spell the opening
        are found step by step, each of them is a prefix of one search, and the best hypotheses of all are taken.
        """
        free = self.translate([replace(one, opening=None) for one in sentences], config)
        for index, (sentence, found) in enumerate(zip(sentences, free, strict=True)):
            free[index] = [one for one in found if self._keeps_opening(sentence, one)]
        missing = [index for index, found in enumerate(free) if len(found) < config.n_best]
        spelled = [
            (index, ids) for index in missing for ids in self._spell(sentences[index], rows_per_sentence(config))
        ]
        begun = [
            replace(sentences[index], prefix=(*sentences[index].prefix, *ids), opening=None) for index, ids in spelled
        ]
        for index in missing:
            free[index] = []
        for (index, _), found in zip(spelled, self.translate(begun, config) if begun else (), strict=True):
            free[index] += found
        return [sorted(found, key=lambda one: (not one.finished, -one.score))[: config.n_best] for found in free]

    def _keeps_opening(self, sentence: Sentence, one: Hypothesis) -> bool:
        if sentence.opening is None:
            return True
        ends = [self._target_ids[self._end]] if one.finished else []
        return sentence.opening.state([*one.ids[len(sentence.prefix) :], *ends]) == len(sentence.opening.steps)

    def _spell(self, sentence: Sentence, most: int) -> list[tuple[int, ...]]:
        """Return the `most` likeliest ways to spell the opening of a sentence, by a beam search of that width."""
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
            spelled = [one for one in best if opening.allowed(one[1]) is None]
            beams = [one for one in best if opening.allowed(one[1]) is not None]
        return [ids for _, ids in spelled]

    def _search(
        self, sentences: Sequence[Sentence], indices: Sequence[int], limits: Sequence[int], config: SearchConfig
    ) -> dict[int, list[Hypothesis]]:
        """Search sentences of these indices, with their limits; what was found, by index."""
        options = _options(config)
        submitted = (
            (group, self._submit([sentences[index] for index in group], limits[group[0]], options))
            for group in self._groups(sentences, indices, limits, config)
        )
        results = {}
        for group, answers in _delayed(submitted, GROUPS_AHEAD * self._translator.num_translators):
            try:
                num_tags = _num_tags(sentences[group[0]])
                found = [self._hypotheses(answer.result(), num_tags, config) for answer in answers]
            except RuntimeError as error:
                if "out of memory" in str(error):
                    raise RunError("out of memory; use a smaller batch_tokens or beam_size") from error
                raise
            results |= zip(group, found, strict=True)
        return results

    def _groups(
        self, sentences: Sequence[Sentence], indices: Sequence[int], limits: Sequence[int], config: SearchConfig
    ) -> Iterator[list[int]]:
        """Groups of indices, each of one limit, one length of starts, the same forbidden sequences and similar lengths,
        the longest first."""
        budget = (config.batch_tokens or SEARCH_TOKENS) // rows_per_sentence(config)
        if self._translator.device == "cpu":
            num_tokens = sum(len(sentences[index].source_ids) + 1 for index in indices)
            share = num_tokens // (self._translator.num_translators * GROUPS_PER_WORKER)
            budget = min(budget, max(share, SMALLEST_GROUP), LARGEST_GROUP)

        def kind(index: int) -> tuple[int, int, tuple[tuple[int, ...], ...]]:
            return -limits[index], len(sentences[index].start), sentences[index].forbidden

        for _, members in groupby(sorted(indices, key=kind), key=kind):
            same = list(members)
            for group in token_groups([len(sentences[index].source_ids) + 1 for index in same], budget):
                yield [same[number] for number in group]

    def _submit(self, sentences: Sequence[Sentence], limit: int, options: dict[str, Any]) -> list[Any]:
        tags = [self._tags(sentence) for sentence in sentences]
        prefixes = [self._to_target((*tag, *one.prefix)) or None for tag, one in zip(tags, sentences, strict=True)]
        return self._translator.translate_batch(
            [self._to_source(sentence) for sentence in sentences],
            prefixes if any(prefixes) else None,
            max_decoding_length=limit + _num_tags(sentences[0]),
            suppress_sequences=[self._to_target(ids) for ids in sentences[0].forbidden] or None,
            asynchronous=True,
            **options,
        )

    def _hypotheses(self, answer: Any, num_tags: int, config: SearchConfig) -> list[Hypothesis]:
        found = []
        for whole, score in zip(answer.hypotheses, answer.scores, strict=True):
            pieces = whole[num_tags:]
            finished = bool(pieces) and pieces[-1] == self._end
            ids = tuple([self._target_ids[piece] for piece in (pieces[:-1] if finished else pieces)])
            log_prob = score * max(len(whole), 1) ** _length_penalty(config)
            found.append(_hypothesis(ids, finished, log_prob, config))
        return found

    def _scored(
        self,
        sentences: Sequence[Sentence],
        results: Mapping[int, Sequence[Hypothesis]],
        indices: Sequence[int],
        config: SearchConfig,
    ) -> Iterator[list[Hypothesis]]:
        """The hypotheses of these sentences, with the log-probabilities that the model gives them."""
        pairs = [(sentences[index], one) for index in indices for one in results[index]]
        scored = iter(
            self._translator.score_batch(
                [self._to_source(sentence) for sentence, _ in pairs],
                [self._to_target((*self._tags(sentence), *one.ids)) for sentence, one in pairs],
                max_batch_size=SMALLEST_GROUP,
                batch_type="tokens",
                max_input_length=0,
            )
        )
        for index in indices:
            first = _num_tags(sentences[index])
            yield [
                _hypothesis(
                    one.ids, one.finished, sum(next(scored).log_probs[first:][: len(one.ids) + one.finished]), config
                )
                for one in results[index]
            ]

    def _tags(self, sentence: Sentence) -> tuple[int, ...]:
        """Return what the decoder reads first and CTranslate2 has to be given."""
        return sentence.start[self._num_own_starts :]

    def _to_source(self, sentence: Sentence) -> list[str]:
        return [*(self._source_pieces[id_] for id_ in sentence.source_ids), *self._source_end]

    def _to_target(self, ids: Sequence[int]) -> list[str]:
        return [self._target_pieces[id_] for id_ in ids]


def _num_tags(sentence: Sentence) -> int:
    """The number of tags that CTranslate2 counts as a part of the translation."""
    return max(len(sentence.start) - 1, 0)


def _rounded_up(limit: float) -> int:
    return LIMIT_STEP * math.ceil(limit / LIMIT_STEP)


def _first_limit(sentence: Sentence, limit: int, config: SearchConfig) -> int:
    """Where the first beam search of a sentence ends."""
    usual = max(FIRST_RATIO * len(sentence.source_ids), len(sentence.prefix), config.min_length)
    return min(limit, _rounded_up(usual + config.max_length_offset))


def _may_improve(found: Sequence[Hypothesis], limit: int, config: SearchConfig) -> bool:
    """Whether a hypothesis that a length limit cut off could still beat an n best finished one (bound of `beam`)."""
    live = max((one.log_prob for one in found if not one.finished), default=-math.inf)
    ended = sorted((one.score for one in found if one.finished), reverse=True)[: config.n_best]
    return live > -math.inf and (len(ended) < config.n_best or ended[-1] < live / limit**config.length_penalty)


def _cut(one: Hypothesis, limit: int) -> Hypothesis:
    return replace(one, ids=one.ids[:limit], finished=len(one.ids) < limit and one.finished)


def difference(settings: Mapping[str, Any]) -> str:
    """The first setting with which CTranslate2 finds something else, or nothing."""
    return next((f"search.{name}" for name in DIFFERENT if settings.get(name)), "")


def _delayed(items: Iterable[Item], count: int) -> Iterator[Item]:
    """The items, each when `count` more have been made."""
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
        raise UserError(f"{folder}: CTranslate2 opens no folder whose name is not UTF-8; rename it")
    try:
        # It sets OpenMP's number of threads for the thread that opens it; that of torch's stays.
        with ThreadPoolExecutor(1) as other:
            return other.submit(
                ctranslate2.package().Translator,
                str(folder),
                device=kind,
                device_index=int(index or 0),
                inter_threads=threads if kind == "cpu" else 1,
                intra_threads=1 if kind == "cpu" else 0,
            ).result()
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{folder}: ctranslate2 on {device}: {' '.join(str(error).split())}") from error


def _options(config: SearchConfig) -> dict[str, Any]:
    # With a length penalty, CTranslate2 stops once enough hypotheses have ended, however unlikely they are. Without one
    # it also waits until the best candidate of a step has ended. The ranking is ours in either case.
    penalty = _length_penalty(config)
    enough = config.beam_size + (MORE_ENDED if penalty and not config.early_stopping else 0)
    options: dict[str, Any] = dict(
        beam_size=config.beam_size,
        patience=enough / config.beam_size,
        num_hypotheses=enough,  # all of them: those that ended come before those that a limit cut off
        length_penalty=penalty,
        min_decoding_length=config.min_length,
        no_repeat_ngram_size=config.no_repeat_ngram,
        return_scores=True,
        return_end_token=True,
        max_input_length=0,
    )
    if config.sample:
        options |= dict(
            beam_size=1,
            patience=1,
            num_hypotheses=config.n_best,
            sampling_topk=config.top_k,
            sampling_topp=config.top_p,
            sampling_temperature=config.temperature,
        )
    return options


def _length_penalty(config: SearchConfig) -> float:
    return config.length_penalty or (1e-9 if config.early_stopping else 0.0)
