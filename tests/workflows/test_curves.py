"""The learning curves of `s2s compare`: which figures share an axis, and how many tokens were trained until each."""

import itertools
import json
import time

import numpy as np
import pytest
from support import toy_run
from support.compared import REFERENCE
from support.run_folders import make_run

from seq2seq.cli import main
from seq2seq.workflows.comparable import scored_differently
from seq2seq.workflows.compare.comparison import TestLines as Lines
from seq2seq.workflows.compare.comparison import compare
from seq2seq.workflows.compare.curves import curves
from seq2seq.workflows.compare.page import page
from seq2seq.workflows.compare.systems import System
from seq2seq.workflows.runs import find_runs, run_of

one_thread = pytest.fixture(autouse=True)(toy_run.one_thread)
STEPS, LOG_EVERY = 24, 4


def drawn(folder, figure="valid_loss"):
    """The points of a run: step, hours, million tokens and the figure."""
    return curves([System("run", [], run=run_of(folder))]).points[figure]["run"]


# -- tokens ------------------------------------------------------------------------------------------------------------


def slow_validation(module):
    """A validation that takes longer than all steps together."""
    time.sleep(0.03)
    return toy_run.toy_validation(module)


def tokens_of(folder) -> dict[float, float]:
    return {step: tokens for step, _, tokens, _ in drawn(folder)}


def trained(folder, **values) -> dict[float, float]:
    toy_run.train(folder, max_steps=STEPS, log_every=LOG_EVERY, **values)
    return tokens_of(folder)


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[float, float]:
    """The tokens until each step, from the batches themselves."""
    config = toy_run.TrainingConfig(**{**toy_run.DEFAULTS, "max_steps": STEPS})
    stream = toy_run.make_stream(config)
    counts = [batch.num_tokens / 1e6 for batch in itertools.islice(stream, STEPS)]
    stream.close()
    return dict(enumerate(itertools.accumulate(counts), start=1))


@pytest.mark.parametrize("every", [2, LOG_EVERY, 5, 12, STEPS])
def test_tokens_are_those_of_the_batches_however_often_a_run_validates(tmp_path, expected, every):
    found = trained(tmp_path, validate=slow_validation, validate_every=every, checkpoint_every=STEPS)
    logged = [step for step in found if step % LOG_EVERY == 0]
    assert STEPS in logged
    assert [found[step] for step in logged] == pytest.approx([expected[step] for step in logged])


@pytest.mark.parametrize("stops", [[7], [8], [3, 10, 18]])
def test_a_run_that_continues_has_the_tokens_of_one_that_does_not(tmp_path, expected, stops):
    """`max_steps` ends it between two log lines, too; that line has the steps of the next one."""
    for stop in stops:
        toy_run.train(tmp_path, max_steps=stop, log_every=LOG_EVERY, validate_every=5, validate=slow_validation)
    found = trained(tmp_path, validate_every=5, validate=slow_validation)
    assert found[STEPS] == pytest.approx(expected[STEPS], rel=0.02)


def logged_by_an_earlier_version(rates, every, seconds_of_validation, is_first_validated=False):
    """Records with tokens a second and no tokens a step, of lines of 50 steps, and the tokens until each of them."""
    draw, now, tokens = np.random.default_rng(1), 0.0, [0.0]
    records = [{"step": 0, "valid_loss": 9.0}] * is_first_validated
    now += seconds_of_validation * is_first_validated
    for line, rate in enumerate(rates, start=1):
        seconds = draw.uniform(5, 15)
        now += seconds
        tokens.append(tokens[-1] + 50 * rate)
        records.append({"step": 50 * line, "seconds": round(now, 2), "tokens_per_second": 50 * rate / seconds})
        if 50 * line % every == 0:
            records.append({"step": 50 * line, "valid_loss": 1.0 / line})
            now += seconds_of_validation
    return records, tokens[1:]


@pytest.mark.parametrize("spread", [0.0, 0.05])
@pytest.mark.parametrize("is_first_validated", [False, True])
@pytest.mark.parametrize("every", [100, 250, 500])
def test_lines_of_an_earlier_version_with_a_validation_have_the_tokens_of_the_others(
    tmp_path, every, is_first_validated, spread
):
    rates = 3000 * np.random.default_rng(2).uniform(1 - spread, 1 + spread, 20)
    records, tokens = logged_by_an_earlier_version(rates, every, 30.0, is_first_validated)
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    found = tokens_of(run)
    assert max(found) == 1000
    for step in found:
        wanted = tokens[int(step) // 50 - 1] / 1e6 if step else 0.0
        assert found[step] == pytest.approx(wanted, rel=0.001 + spread / 2)


# -- figures that cannot be compared -----------------------------------------------------------------------------------


def test_losses_of_different_tokenizers_are_not_on_one_axis(tmp_path):
    systems = []
    for name in ("one", "two"):
        path = make_run(tmp_path / name, lines=['{"step": 41, "valid_loss": 2.0, "bleu": 3.0}'])
        (path / "identity.json").write_text(json.dumps({"tokenizer": name}))
        systems.append(System(name, REFERENCE, None, run_of(path)))
    found = compare(systems, Lines("set", [REFERENCE]), ["chrf"], apart=True)
    assert set(found.curves.points) == {"bleu"}
    assert "different tokenizers" in page(found)
    (tmp_path / "two" / "identity.json").write_text(json.dumps({"tokenizer": "one"}))
    systems[1] = System("two", REFERENCE, None, run_of(tmp_path / "two"))
    found = compare(systems, Lines("set", [REFERENCE]), ["chrf"], apart=True)
    assert set(found.curves.points) == {"bleu", "valid_loss"}


ONE_TARGET = "{tokenize: %s}\ntarget_language: %s\n"
MANY_TARGETS = "{tokenize: %s}\nlanguages: {source: [en], target: %s}\n"
CHAR = ONE_TARGET % ("char", "de")


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        (CHAR, CHAR, False),
        (CHAR, ONE_TARGET % ("null", "de"), True),
        (CHAR, ONE_TARGET % ("intl", "de"), True),
        (CHAR, "{}\n", False),  # of a version that did not record it
        (CHAR, ONE_TARGET % ("char", "zh"), False),
        (CHAR, ONE_TARGET % ("null", "th"), False),
        (ONE_TARGET % ("null", "de"), ONE_TARGET % ("13a", "de"), False),
        (ONE_TARGET % ("null", "de"), ONE_TARGET % ("null", "German"), False),
        (ONE_TARGET % ("null", "de"), ONE_TARGET % ("null", "zh"), True),
        (ONE_TARGET % ("null", "zho_Hans"), ONE_TARGET % ("zh", "null"), False),
        (ONE_TARGET % ("null", "ja"), ONE_TARGET % ("ja-mecab", "ja"), False),
        (MANY_TARGETS % ("null", "[de, fr]"), MANY_TARGETS % ("13a", "[de, fr]"), False),
        (MANY_TARGETS % ("null", "[de, zh]"), MANY_TARGETS % ("13a", "[de, zh]"), True),
        (MANY_TARGETS % ("null", "[de, zh]"), MANY_TARGETS % ("null", "[zh, de]"), False),
        (CHAR, "{tokenize: [1]}\ntarget_language: {a: 1}\nlanguages: {target: [2, null]}\n", True),  # damaged
    ],
)
def test_bleu_of_different_tokenizers_is_neither_compared_nor_drawn(tmp_path, capsys, first, second, differ):
    """The loss and chrF do not depend on them. Different settings may mean the same tokenizer."""
    for name, evaluation in (("one", first), ("two", second)):
        figures = json.dumps({"step": 40, "bleu": 20.0, "chrf": 50.0, "valid_loss": 3.0})
        run = make_run(tmp_path / name, 20.0, lines=[figures], config=f"evaluation: {evaluation}")
        (run / "identity.json").write_text(json.dumps({"data.valid": "x", "tokenizer": "t"}))
    assert main(["runs", str(tmp_path), "--sort", "bleu"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert ["bleu: the runs have different tokenizers of BLEU, so" in line for line in said] == [True] * differ
    found = curves([System(run.name, [], run=run) for run in find_runs(tmp_path)])
    assert set(found.points) == {"valid_loss", "chrf", *["bleu"] * (not differ)}
    assert ("BLEU" in found.note) == differ


@pytest.mark.parametrize("valid", ["x", "y"])
@pytest.mark.parametrize("pieces", ["t", "u"])
@pytest.mark.parametrize("tokenize", ["13a", "char"])
def test_what_the_table_warns_of_is_what_the_page_leaves_out(tmp_path, capsys, valid, pieces, tokenize):
    """Every figure has its own conditions; each note names all figures that it is about."""
    for name, identity, bleu in (("one", ("x", "t"), "13a"), ("two", (valid, pieces), tokenize)):
        figures = json.dumps({"step": 40, "bleu": 20.0, "valid_loss": 3.0})
        run = make_run(tmp_path / name, 20.0, lines=[figures], config=f"evaluation: {{tokenize: {bleu}}}\n")
        (run / "identity.json").write_text(json.dumps(dict(zip(("data.valid", "tokenizer"), identity, strict=True))))
    runs = find_runs(tmp_path)
    found = curves([System(run.name, [], run=run) for run in runs])
    warned = {column for columns in scored_differently(runs).values() for column in columns}
    assert {"bleu", "valid_loss"} - set(found.points) == warned & {"bleu", "valid_loss"}
    expected = {"bleu": valid == "y" or tokenize == "char", "valid_loss": valid == "y" or pieces == "u"}
    assert warned == {figure for figure, differs in expected.items() if differs}
    assert [title in found.note for title in ("validation loss", "BLEU")] == [
        figure in warned for figure in ("valid_loss", "bleu")
    ]
