"""The engine that runs a model in CTranslate2, with the results of the engine that runs it in torch.

`Translator.load` makes one where `--engine` asks for it, from a folder that `s2s convert --to ctranslate2` wrote, or
from a model folder, whose conversion is kept in the user's cache.
"""

import hashlib
import itertools
import json
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq import atomic
from seq2seq.config import SearchConfig
from seq2seq.errors import ModelError, RunError, UserError
from seq2seq.inference.batching import Engine, token_groups
from seq2seq.interop import ctranslate2
from seq2seq.lines import shown_name
from seq2seq.runtime import same_threads
from seq2seq.search.base import Hypothesis, Sentence, length_limits, normalized_score, rows_per_sentence
from seq2seq.store.model_folder import LoadedModel
from seq2seq.text.tokenizer import TokenizerPair

# Groups that wait in the engine's queue while others are searched.
GROUPS_AHEAD = 4


def differs(config: SearchConfig) -> str | None:
    """The first setting of a search with which CTranslate2 gives something else than torch, or None.

    It draws samples by one generator for all sentences, and it spreads the probability of what a rule forbids over the
    rest, where our search leaves probabilities as the model gave them.
    """
    if config.sample:
        return "sample"
    if config.min_length:
        return "min_length"
    return "no_repeat_ngram" if config.no_repeat_ngram else None


def cached_folder(model: LoadedModel, quantization: str) -> Path:
    """The CTranslate2 folder of a model, made at the first call and found at the next.

    Raises:
        ModelError: CTranslate2 cannot run the model.
        MissingDependency: ctranslate2 is not installed.
        RunError: the cache cannot be written, or there is no place for it.
    """
    root = _cache() / "seq2seq" / "ctranslate2"
    known_by = [
        model.files,
        model.description.model.model_dump(mode="json"),
        model.tokenizers.fingerprint,
        quantization,
    ]
    known_by.append(ctranslate2.package().__version__)
    folder = root / hashlib.sha256(json.dumps(known_by, sort_keys=True).encode()).hexdigest()[:24]
    if not _is_whole(folder):
        try:
            root.mkdir(parents=True, exist_ok=True)
            atomic.remove_leftovers(root)
            with atomic.locked(folder.with_suffix(".lock")):
                if not _is_whole(folder):  # another process may have been faster
                    with atomic.new_folder(folder) as temporary:
                        ctranslate2.write_ctranslate2(
                            temporary, model.model, model.description, model.tokenizers, quantization
                        )
        except OSError as error:
            reason = error.strerror or error
            raise RunError(f"{root}: cannot be written ({reason}); set XDG_CACHE_HOME to another place") from error
    return folder


def _cache() -> Path:
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named)
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        raise RunError("there is no home folder for the cache of converted models; set XDG_CACHE_HOME") from error


@dataclass(frozen=True)
class _Request:
    """One sentence and its index in the call."""

    index: int
    sentence: Sentence


@dataclass(frozen=True)
class _Group:
    """Sentences that are searched together."""

    requests: Sequence[_Request]
    limits: Sequence[int]
    """Most tokens of each translation, end included."""


class CTranslate2Engine:
    """Searches with CTranslate2 in batches of about equal lengths.

    Args:
        folder: a CTranslate2 folder.
        tokenizers: whose pieces the folder's vocabularies are.
        max_length: most positions of a source or a target, special ids included.
        device: cpu, cuda or cuda:1.
        threads: groups that are searched at the same time, each on one processor thread.
        fallback: makes the engine for the few sentences on which CTranslate2 searches otherwise than torch: those that
            reach their length limit, where it ranks hypotheses that have not ended among those that have, those with a
            prefix under a beam, and all under a setting that `differs` names. None leaves them to CTranslate2.

    Raises:
        UserError: the device is not one of CTranslate2's.
    """

    def __init__(
        self,
        folder: Path,
        tokenizers: TokenizerPair,
        max_length: int,
        device: str = "cpu",
        threads: int = 1,
        fallback: Callable[[], Engine] | None = None,
    ):
        self.max_length = max_length
        self._source_pieces = tokenizers.source.pieces(range(tokenizers.source.vocab_size))
        self._target_pieces = tokenizers.target.pieces(range(tokenizers.target.vocab_size))
        self._target_ids = {piece: id_ for id_, piece in enumerate(self._target_pieces)}
        self._end = self._target_pieces[tokenizers.target.eos_id]
        self._fallback = fallback
        self._translator = _open(folder, device, threads)

    @property
    def compute_type(self) -> str:
        """The number format that it computes in: of those that the device has, the one nearest to the folder's."""
        return self._translator.compute_type

    def translate(self, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """As `Engine.translate`; without a fallback, random draws depend on the sentences beside them.

        Raises:
            RunError: there is no memory for a group of sentences.
        """
        requests = [_Request(index, sentence) for index, sentence in enumerate(sentences)]
        results: list[list[Hypothesis]] = [[] for _ in requests]
        self._translate_into(results, requests, config)
        return results

    def _translate_into(
        self, results: list[list[Hypothesis]], requests: Sequence[_Request], config: SearchConfig
    ) -> None:
        """Put the hypotheses of each sentence into its place."""
        if self._fallback is not None and differs(config):
            self._fall_back(results, requests, config)
            return
        if self._fallback is None:
            self._translate_alone(results, requests, config)
            return
        # Behind a prefix, CTranslate2's beam never ends at once.
        unsure = [request for request in requests if request.sentence.prefix and config.beam_size > 1]
        others = [request for request in requests if not request.sentence.prefix] if unsure else requests
        for group, answers in self._search_all(_groups(others, config), config):
            for request, limit, found in zip(group.requests, group.limits, answers, strict=True):
                ended = [one for one in found if one.finished and len(one.ids) < limit]
                results[request.index] = _best(ended, config)
                # Only what ended in time is known to rank as in our search.
                if len(ended) < config.n_best:
                    unsure.append(request)
        if unsure:
            self._fall_back(results, unsure, config)

    def _translate_alone(
        self, results: list[list[Hypothesis]], requests: Sequence[_Request], config: SearchConfig
    ) -> None:
        """As CTranslate2 searches, each sentence as if it were alone.

        CTranslate2 has one length limit for a group. Where a sentence had not ended before its own, the longer one of
        its neighbours may have changed its search: it is searched again, beside sentences of the same limit.
        """
        late: defaultdict[int, list[_Request]] = defaultdict(list)
        for group, answers in self._search_all(_groups(requests, config), config):
            for request, limit, found in zip(group.requests, group.limits, answers, strict=True):
                results[request.index] = _best(found, config)
                if limit < max(group.limits) and any(len(one.ids) + 1 >= limit for one in found):
                    late[limit].append(request)
        again = itertools.chain.from_iterable(_groups(alike, config) for alike in late.values())
        for group, answers in self._search_all(again, config):
            for request, found in zip(group.requests, answers, strict=True):
                results[request.index] = _best(found, config)

    def _fall_back(self, results: list[list[Hypothesis]], requests: Sequence[_Request], config: SearchConfig) -> None:
        found = self._fallback().translate([request.sentence for request in requests], config)
        for request, hypotheses in zip(requests, found, strict=True):
            results[request.index] = hypotheses

    def _search_all(
        self, groups: Iterable[Sequence[_Request]], config: SearchConfig
    ) -> Iterator[tuple[_Group, list[list[Hypothesis]]]]:
        """Groups and the hypotheses of their sentences, as many as the beam is wide; some groups run ahead."""
        options = _options(config)
        running: deque[tuple[_Group, list[Any]]] = deque()
        for members in groups:
            sentences = [member.sentence for member in members]
            group = _Group(members, length_limits(sentences, config, self.max_length))
            running.append((group, self._submit(group, options)))
            if len(running) > GROUPS_AHEAD * self._translator.num_translators:
                group, answers = running.popleft()
                yield group, self._collect(group, answers, config)
        while running:
            group, answers = running.popleft()
            yield group, self._collect(group, answers, config)

    def _submit(self, group: _Group, options: dict[str, Any]) -> list[Any]:
        begun = None
        if any(request.sentence.prefix for request in group.requests):
            begun = [_to_pieces(request.sentence.prefix, self._target_pieces) or None for request in group.requests]
        return self._translator.translate_batch(
            [_to_pieces(request.sentence.source_ids, self._source_pieces) for request in group.requests],
            begun,
            max_decoding_length=max(group.limits),
            asynchronous=True,
            **options,
        )

    def _collect(self, group: _Group, answers: Sequence[Any], config: SearchConfig) -> list[list[Hypothesis]]:
        try:
            found = [answer.result() for answer in answers]
        except RuntimeError as error:
            if "out of memory" in str(error):
                raise RunError("out of memory; use a smaller batch_tokens or beam_size") from error
            raise
        return [
            [
                self._hypothesis(pieces, score, before, config)
                for pieces, score in zip(answer.hypotheses, answer.scores, strict=True)
            ]
            for answer, before in zip(found, self._prefix_log_probs(group.requests), strict=True)
        ]

    def _hypothesis(self, pieces: Sequence[str], score: float, before: float, config: SearchConfig) -> Hypothesis:
        """A hypothesis in our terms; `before` is the log-probability of its prefix, which CTranslate2 leaves out."""
        length = len(pieces)
        finished = bool(pieces) and pieces[-1] == self._end
        ids = tuple(self._target_ids[piece] for piece in (pieces[:-1] if finished else pieces))
        log_prob = before + score * max(length, 1) ** _length_penalty(config)
        return Hypothesis(ids, log_prob, normalized_score(log_prob, length, config.length_penalty), finished)

    def _prefix_log_probs(self, requests: Sequence[_Request]) -> list[float]:
        begun = [request for request in requests if request.sentence.prefix]
        if not begun:
            return [0.0] * len(requests)
        scored = self._translator.score_batch(
            [_to_pieces(request.sentence.source_ids, self._source_pieces) for request in begun],
            [_to_pieces(request.sentence.prefix, self._target_pieces) for request in begun],
            max_input_length=0,
        )
        totals = {
            request.index: sum(result.log_probs[: len(request.sentence.prefix)])
            for request, result in zip(begun, scored, strict=True)
        }
        return [totals.get(request.index, 0.0) for request in requests]


def _groups(requests: Sequence[_Request], config: SearchConfig) -> Iterator[list[_Request]]:
    lengths = [(len(request.sentence.source_ids) + 1) * rows_per_sentence(config) for request in requests]
    for indices in token_groups(lengths, config.batch_tokens):
        yield [requests[index] for index in indices]


def _is_whole(folder: Path) -> bool:
    try:
        ctranslate2.read_description(folder)
    except ModelError:
        return False
    return True


def _open(folder: Path, device: str, threads: int) -> Any:
    package = ctranslate2.package()
    kind, _, index = device.partition(":")
    if shown_name(str(folder)) != str(folder):
        raise UserError(f"{folder}: CTranslate2 opens no folder whose name is not UTF-8; rename it")
    try:
        with same_threads():  # it sets OpenMP's for the whole process
            return package.Translator(
                str(folder),
                device=kind,
                device_index=int(index or 0),
                inter_threads=threads if kind == "cpu" else 1,
                intra_threads=1 if kind == "cpu" else 0,
            )
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{folder}: ctranslate2 on {device}: {' '.join(str(error).split())}") from error


def _options(config: SearchConfig) -> dict[str, Any]:
    # CTranslate2 stops once beam_size hypotheses have ended, which is our rule with `early_stopping`; without it, 4 of
    # 300 captions come out otherwise. Its patience does not help: from 1.6 on it finds, for as many others, what our
    # exact rule stops before, and takes 13 to 90 % more time.
    options: dict[str, Any] = dict(
        beam_size=config.beam_size,
        num_hypotheses=config.beam_size,  # all of them, to rank them as our search does
        length_penalty=_length_penalty(config),
        min_decoding_length=config.min_length,
        no_repeat_ngram_size=config.no_repeat_ngram,
        return_scores=True,
        return_end_token=True,
        max_input_length=0,
    )
    if config.sample:
        options |= dict(
            beam_size=1,
            num_hypotheses=config.n_best,
            sampling_topk=config.top_k,
            sampling_topp=config.top_p,
            sampling_temperature=config.temperature,
        )
    return options


def _length_penalty(config: SearchConfig) -> float:
    # At 0 CTranslate2 goes on until its best hypothesis ends; any number makes it stop as our search does.
    return config.length_penalty or 1e-9


def _to_pieces(ids: Sequence[int], pieces: Sequence[str]) -> list[str]:
    return [pieces[id_] for id_ in ids]


def _best(found: Sequence[Hypothesis], config: SearchConfig) -> list[Hypothesis]:
    """The n best: those that ended come before those that the length limit cut off, as in our search."""
    return sorted(found, key=lambda one: (not one.finished, -one.score))[: config.n_best]
