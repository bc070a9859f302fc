"""What does not fit in memory is computed in parts, with the same results; here the system itself refuses the memory.

Each kind of work is done by a process of its own, which a fresh one forks (this file is its program), first with little
more memory than the process began with, then with all of it.
"""

import functools
import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from support.wrong_files import save

from seq2seq import memory, runtime
from seq2seq.config.corpora import DataConfig, SourceConfig
from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.data.collate import collate_translation
from seq2seq.inference.classifier import Classifier
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.translator import Translator
from seq2seq.store.model_folder import load_model
from seq2seq.tasks.classification import ClassificationTask
from seq2seq.tasks.inputs import Inputs
from seq2seq.training import step
from seq2seq.training.loss import translation_loss
from seq2seq.training.weights import Weights

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")]

WORDS = ["a", "man", "rides", "red", "bicycle", "two", "dogs", "play", "in", "the", "snow"]
# All of them different: equal ones are computed once.
LINES = [
    " ".join([WORDS[number % 11], WORDS[number // 11 % 11], WORDS[number // 121], *WORDS[: number % 7]])
    for number in range(160)
]
# Bytes: the widest layer takes several times as much for all lines at once, and oneDNN finds no room for its code.
ROOM = 16 * 2**20
CPU = runtime.Runtime(torch.device("cpu"), torch.float32)

# Does the work on some lines and returns what must not depend on memory.
Work = Callable[[Sequence[str]], list[float]]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for task in ("translation", "classification"):
        save(folder / task, task=task, d_ff=4096, activation="relu")
    return folder


def classification(models: Path) -> Work:
    classifier = Classifier.load(models / "classification", device="cpu", threads=1, batch_tokens=10**6)
    return lambda lines: [share for answer in classifier.classify(lines) for share in answer.probabilities.values()]


def validation(models: Path) -> Work:
    """Of a classifier."""
    loaded = load_model(models / "classification")

    def prepared(lines: Sequence[str]) -> ClassificationTask:
        path = models / f"{len(lines)}.tsv"
        path.write_text("sentence\tlabel\n" + "".join(f"{line}\t{len(line) % 2}\n" for line in lines))
        source = SourceConfig(tsv=path)
        both = models / "both.tsv"
        both.write_text("sentence\tlabel\na man\t0\ntwo dogs\t1\n")
        data = DataConfig(train=SourceConfig(tsv=both), valid=source, num_workers=1)
        config = Config(task="classification", data=data)
        return ClassificationTask(Inputs.open(config, models / "cache"), loaded.tokenizers, CPU)

    # before memory is short, which no library is prepared for that starts a thread
    tasks = {len(lines): prepared(lines) for lines in (LINES[:2], LINES)}
    return lambda lines: list(tasks[len(lines)].validate(loaded.model).metrics.values())


def scoring(models: Path) -> Work:
    scorer = Scorer.load(models / "translation", device="cpu", threads=1, batch_tokens=10**6)
    return lambda lines: [score.log_prob for score in scorer.score([(line, line) for line in lines])]


def translation(models: Path) -> Work:
    # a processor encodes some sentences at a time: the rows of their beams are what does not fit
    search = dict(beam_size=32, max_length_ratio=0.01, max_length_offset=2, batch_tokens=10**6)
    translator = Translator.load(models / "translation", engine="torch", device="cpu", threads=1, **search)
    return lambda lines: [
        value
        for answer in translator.translate(lines)
        for value in (answer.log_prob, answer.tokens, *answer.text.encode())
    ]


def training(models: Path) -> Work:
    """The loss and the gradient of one step."""
    loaded = load_model(models / "translation")
    loss = functools.partial(translation_loss, smoothing=0.1)
    weights = Weights(loaded.model, CPU)

    def work(lines: Sequence[str]) -> list[float]:
        ids = loaded.tokenizers.source.encode_all(lines)
        batch = collate_translation(ids, ids, loaded.tokenizers, range(len(ids)))
        total, _ = step.GradientStep(weights, loss, TrainingConfig()).compute_gradient([batch], batch.num_targets)
        gradients = [weight.grad for weight in loaded.model.parameters() if weight.grad is not None]
        return [total.item(), *(gradient.norm().item() for gradient in gradients)]

    return work


KINDS = {kind.__name__: kind for kind in (classification, validation, scoring, translation, training)}


@pytest.fixture(scope="module")
def failures(models) -> dict[str, str]:
    """The error of each kind of work, or nothing."""
    root = f"{Path(__file__).parents[2]}:{Path(__file__).parents[1]}"
    done = subprocess.run(
        [sys.executable, __file__, str(models)],
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_done_in_parts_with_the_same_results(failures, kind):
    assert failures[kind] == ""


def test_shapes_of_products_that_are_gone_hold_no_memory():
    """Searches multiply ever other numbers of rows. Where oneDNN has no 16-bit products, this shows nothing."""
    program = """
import os, torch
from seq2seq import runtime
torch.set_num_threads(1)
weight = torch.randn(256, 256).bfloat16()
def used(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def held(keep):
    keep()
    with torch.inference_mode():
        torch.nn.functional.linear(weight[:1], weight)
        before = used()
        for rows in range(2, 250):
            torch.nn.functional.linear(torch.empty(rows, 256, dtype=torch.bfloat16), weight)
    return used() - before
for keep in (lambda: None, runtime.keep_few_kernels, runtime.keep_many_kernels):
    if os.fork() == 0:  # the limit is read before the first product
        print(held(keep), flush=True)
        os._exit(0)
    os.wait()
"""
    # A training of another test in this process has set limits of its own.
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_CACHE_CAPACITY")}
    project = Path(__file__).parents[2]
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=True)
    unbounded, few, many = map(int, done.stdout.split())
    if unbounded > 75 * 2**20:
        assert few < unbounded / 2 < many


def main(models: Path) -> None:
    torch.set_num_threads(1)
    for kind in KINDS:
        if os.fork() == 0:
            error = ""
            try:
                check(kind, models)
            except BaseException:
                error = traceback.format_exc()
            (models / f"error-{kind}").write_text(error)
            os._exit(0)
        os.wait()
    print(json.dumps({kind: (models / f"error-{kind}").read_text() for kind in KINDS}))


def check(kind: str, models: Path) -> None:
    refused = []
    memory.release = step.release = lambda: refused.append(True)
    work = KINDS[kind](models)
    work(LINES[:2])  # what is loaded when it is first used is loaded now
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
    found = work(LINES)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert refused, "everything fitted: this shows nothing"
    refused.clear()
    assert found == pytest.approx(work(LINES), rel=1e-4, abs=1e-6)
    assert not refused


if __name__ == "__main__":
    main(Path(sys.argv[1]))
