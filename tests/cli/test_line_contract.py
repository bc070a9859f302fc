"""N lines in, N lines out, in order: whatever the bytes are, through real pipes to the real commands.

One process for each command, format and engine lives as long as the file's tests. Each answers what hypothesis makes
up, line for line, before it is sent anything else.
"""

import contextlib
import json
import queue
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.forked import Piped
from support.nasty_lines import NASTY

from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import save_model
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.workflows.convert import Probe, export_ctranslate2

TEXTS = ["A man rides a red bicycle.", "Two dogs play in the snow!", "Der Hund schläft, und die Katze sieht zu."]
LINE = st.one_of(
    st.sampled_from(NASTY),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass").replace(b"\n", b" ")),
    st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b" ")),
    st.lists(st.sampled_from(NASTY), min_size=2, max_size=4).map(b" ".join),
)
EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
SECONDS = 120
# Processes by command and engine.
KINDS = {
    "translate": ["translate", "translate"],
    "classify": ["classify", "classify"],
    "torch": ["translate", "translate", "--engine", "torch"],
    "export": ["translate", "export"],
}

SLOW = [pytest.mark.slow]
SOME_KINDS = [pytest.param(kind, marks=[] if kind in ("translate", "classify") else SLOW) for kind in KINDS]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    shape = {"preset": "tiny", "d_model": 16, "num_heads": 2, "d_ff": 16, "num_encoder_layers": 1}
    shape |= {"num_decoder_layers": 1, "max_length": 256, "output_bias": True}
    data = {"train": {"tsv": "a"}, "valid": {"tsv": "a"}}
    search = {"beam_size": 1, "max_length_ratio": 0.02, "max_length_offset": 4}
    common = {"data": data, "model": shape, "search": search, "tokenizer": {"vocab_size": 320}}
    config = Config.model_validate({**common, "source_language": "en", "target_language": "de"})
    tokenizer = Tokenizer.train(TEXTS * 10, config.tokenizer, seed=1)
    pair = TokenizerPair(tokenizer, tokenizer)
    folder = tmp_path_factory.mktemp("models")
    transformer = Transformer(config.model, tokenizer.vocab_size, tokenizer.vocab_size)
    transformer.output.bias.data[tokenizer.eos_id] = 6.0  # most translations end before their limit
    save_model(folder / "translate", transformer.state_dict(), ModelDescription.of(config), pair)
    config = Config.model_validate({**common, "task": "classification"})
    classifier = EncoderClassifier(config.model, config.classifier, tokenizer.vocab_size, 3)
    description = ModelDescription.of(config, ("ham", "spam", "eggs"))
    save_model(folder / "classify", classifier.state_dict(), description, pair)
    export_ctranslate2(folder / "translate", folder / "export", "float32", Probe(), force=True)
    return folder


def start(kind: str, models: Path, *options: str) -> Piped:
    verb, model, *engine = KINDS[kind]
    typed = [verb, str(models / model), *engine, *options, "--device", "cpu", "--threads", "1"]
    return Piped(*typed, XDG_CACHE_HOME=str(models / "cache"))


class Conversation:
    """A process that is sent lines and owes one answer for each."""

    def __init__(self, kind: str, form: str, models: Path):
        self.verb, self.form = KINDS[kind][0], form
        self._process = start(kind, models, "--format", form)
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._ended = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, lines: list[bytes]) -> list[bytes]:
        """The answers to these lines, waited for before anything else is sent."""
        self._process.stdin.write(b"".join(line + b"\n" for line in lines))
        self._process.stdin.flush()
        answers = [self._answers.get(timeout=SECONDS) for _ in lines]
        assert self._answers.empty(), "more lines came out than went in"
        return answers

    def end(self, last: bytes) -> bytes:
        """The answer to a last line without its end."""
        self._process.stdin.write(last)
        self._process.stdin.close()
        answer = self._answers.get(timeout=SECONDS)
        assert self._process.wait(SECONDS) == 0
        self._ended.wait(SECONDS)
        assert self._answers.empty()
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._ended.wait(SECONDS)
        self._process.end()

    def _listen(self) -> None:
        for line in self._process.stdout:
            self._answers.put(line)
        self._ended.set()


def text_of(raw: bytes) -> str:
    """What the command reads of a line."""
    return raw.removesuffix(b"\r").decode("utf-8", "replace")


def check(verb: str, form: str, line: bytes, answer: bytes) -> None:
    """One line, of the right kind, to the line that it answers."""
    assert answer.endswith(b"\n")
    assert b"\r" not in answer
    said = answer.decode("utf-8").removesuffix("\n")
    blank = not text_of(line).strip()
    if form == "jsonl":
        record = json.loads(said)
        assert record["source" if verb == "translate" else "text"] == text_of(line)
        if verb == "classify":
            assert bool(record["label"]) is not blank
        elif blank:
            assert record["text"] == ""
            assert record["tokens"] == 0
    elif blank:
        assert said == ""
    elif verb == "classify":
        label, probability = said.split("\t")
        assert label in ("ham", "spam", "eggs")
        assert 0 <= float(probability) <= 1


TALKS = [(kind, form) for kind in ("translate", "classify", "torch") for form in ("text", "jsonl")]
TALKS += [("export", "text")]


QUICK = (("translate", "text"), ("classify", "jsonl"), ("torch", "jsonl"), ("export", "text"))


@pytest.fixture(
    scope="module",
    params=[pytest.param(talk, id="-".join(talk), marks=[] if talk in QUICK else SLOW) for talk in TALKS],
)
def conversation(request, models):
    talk = Conversation(*request.param, models)
    talk.ask([b"The first two bytes say whether the input is packed."])
    yield talk
    talk.kill()


@EXAMPLES
@given(lines=st.lists(LINE, min_size=1, max_size=8))
def test_every_line_is_answered_in_order_before_the_next_is_sent(conversation, lines):
    for line, answer in zip(lines, conversation.ask(lines), strict=True):
        check(conversation.verb, conversation.form, line, answer)


def test_each_nasty_line_alone(conversation):
    for line in NASTY:
        (answer,) = conversation.ask([line])
        check(conversation.verb, conversation.form, line, answer)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [b"A man rides. ", b"x", "日".encode(), b" ", b"\xff"])
def test_a_hundred_thousand_characters_are_a_line(conversation, unit):
    """Without a place to cut at, too; and what comes before and after it stays in its place."""
    length = 100_000 if conversation.form == "jsonl" else 5_000
    lines = [b"before", unit * (length // len(text_of(unit))), b"", b"after"]
    for line, answer in zip(lines, conversation.ask(lines), strict=True):
        check(conversation.verb, conversation.form, line, answer)


LAST = dict(zip(KINDS, [b"no line feed", b" ", b"half \xe2\x80", b"none"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOME_KINDS)
def test_the_last_line_needs_no_line_feed(models, kind):
    last = LAST[kind]
    talk = Conversation(kind, "jsonl", models)
    try:
        check(talk.verb, "jsonl", b"", talk.ask([b""])[0])  # the first line of all, one byte
        check(talk.verb, "jsonl", last, talk.end(last))
    finally:
        talk.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOME_KINDS)
def test_a_reader_that_goes_away_ends_it_quietly(models, kind):
    process = start(kind, models)
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b"two\n" * 500)
        process.stdin.close()
    _, errors = process.communicate(SECONDS)
    assert process.returncode == 0
    assert all("degenerate" in line or "engine: " in line for line in errors.splitlines()), errors
    process.end()
