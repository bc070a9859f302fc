"""Which model is kept as the best: the latest that is not worse beyond chance; and how large chance is."""

import json
import math

import numpy as np
import pytest
from support import toy_run
from support.toy_run import Killed, make_trainer, outcome, poisoned, records, toy_loss, toy_validation, train

from seq2seq.evaluation.classification import classification_report
from seq2seq.evaluation.text import score_texts
from seq2seq.evaluation.uncertainty import of_macro_scores, of_ratio
from seq2seq.training.judged import Judged, standard_error
from seq2seq.training.state import METRIC_KEYS, RunState, Sample, Validation, deciding_metric

_one_thread = pytest.fixture(toy_run.one_thread, autouse=True)


# -- standard errors ---------------------------------------------------------------------------------------------------

WORDS = ["a", "man", "woman", "dog", "rides", "walks", "the", "red", "old", "street", "in", "on", "slowly"]


def sentences(draw, count):
    return [" ".join(draw.choice(WORDS, draw.integers(4, 14))) for _ in range(count)]


def noisy(draw, lines, share):
    return [" ".join(w if draw.random() > share else draw.choice(WORDS) for w in line.split()) for line in lines]


def resampled(draw, count, compute, rounds=300):
    """The standard deviation of a score over bootstrap resamples of `count` examples."""
    return float(np.std([compute(draw.integers(0, count, count)) for _ in range(rounds)]))


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_the_error_of_a_score_and_of_a_difference_are_those_of_resampling(metric):
    draw = np.random.default_rng(1)
    references = sentences(draw, 120)
    answers = [noisy(draw, references, 0.3)]
    answers.append(noisy(draw, answers[0], 0.1))  # a second model, like the first

    found = [score_texts(texts, references, (metric,))[0] for texts in answers]

    def score(which, rows):
        one = found[which]
        return one.scorer._aggregate_and_compute([one.statistics[row] for row in rows]).score

    one, other = (score.measured for score in found)
    assert one.contributions.mean() == pytest.approx(one.value, rel=0.02)
    brute = resampled(draw, 120, lambda rows: score(0, rows))
    assert standard_error(one.contributions) == pytest.approx(brute, rel=0.25)
    brute = resampled(draw, 120, lambda rows: score(0, rows) - score(1, rows))
    difference = standard_error(one.contributions - other.contributions)
    assert difference == pytest.approx(brute, rel=0.25)
    assert difference < 0.7 * standard_error(one.contributions)


def test_the_error_of_an_accuracy_is_the_formula_of_the_books():
    draw = np.random.default_rng(2)
    gold, predicted = draw.integers(0, 3, (2, 872)).tolist()
    accuracy = of_macro_scores(gold, predicted)["accuracy"]
    expected = math.sqrt(accuracy.value * (1 - accuracy.value) / 872)
    assert standard_error(accuracy.contributions) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("labels", [["a", "b"], ["a", "b", "c", "rare"]])
def test_macro_scores_are_those_of_the_report_and_their_errors_those_of_resampling(labels):
    draw = np.random.default_rng(3)
    shares = [0.95 / (len(labels) - 1)] * (len(labels) - 1) + [0.05]
    gold = draw.choice(labels, 400, p=shares)
    predicted = np.where(draw.random(400) < 0.7, gold, draw.choice(labels, 400, p=shares))
    predicted[::40] = ""  # blank texts
    found = of_macro_scores(gold.tolist(), predicted.tolist())
    report = classification_report(gold.tolist(), predicted.tolist())
    for name in ("accuracy", "precision", "recall", "f1"):
        assert found[name].value == pytest.approx(getattr(report, name), abs=1e-12)

        def again(rows, name=name):
            return getattr(classification_report(gold[rows].tolist(), predicted[rows].tolist()), name)

        brute = resampled(draw, 400, again, 120)
        assert standard_error(found[name].contributions) == pytest.approx(brute, rel=0.25), name


def test_the_error_of_a_loss_per_token_is_that_of_resampling_sentences():
    draw = np.random.default_rng(4)
    counts = draw.integers(3, 40, 300).astype(float)
    losses = counts * draw.gamma(2.0, 1.0, 300)
    loss = of_ratio(losses, counts)
    brute = resampled(draw, 300, lambda rows: losses[rows].sum() / counts[rows].sum(), 1000)
    assert loss.value == losses.sum() / counts.sum()
    assert standard_error(loss.contributions) == pytest.approx(brute, rel=0.15)


def test_sets_that_show_nothing_have_no_error():
    assert standard_error(np.array([3.0])) == 0
    assert standard_error(of_ratio(np.array([5.0]), np.array([2.0])).contributions) == 0
    assert standard_error(of_macro_scores(["a"], ["a"])["f1"].contributions) == 0


# -- the rule ----------------------------------------------------------------------------------------------------------


def noted(state, step, row, loss=None, metric="accuracy"):
    """Record a validation with these contributions, and losses of sentences or their mean; whether it is the best."""
    state.step = step
    contributions = {METRIC_KEYS[metric]: row} | ({} if loss is None else {"valid_loss": np.atleast_1d(loss)})
    metrics = {name: float(np.mean(parts)) for name, parts in contributions.items()}
    return state.note_validation(metric, Judged.of(step, METRIC_KEYS[metric], metrics, contributions))


def followed(rows, losses=None, metric="accuracy"):
    """The state after validations with these contributions, and these losses."""
    state = RunState()
    for number, row in enumerate(rows, start=1):
        noted(state, number, row, None if losses is None else losses[number - 1], metric)
    return state


def runs(draw, chances, count=872, agreement=0.9):
    """Models of these true accuracies, most of whose answers are those of the model before."""
    answers = draw.random(count)
    for chance in chances:
        answers = np.where(draw.random(count) < agreement, answers, draw.random(count))
        yield (answers < chance).astype(float)


def test_among_equally_good_models_the_last_is_chosen_and_not_the_luckiest():
    draw = np.random.default_rng(5)
    chosen = [followed(runs(draw, [0.8] * 9)).best_step for _ in range(100)]
    highest = [max(range(9), key=lambda i, rows=rows: rows[i].mean()) + 1 for rows in
               (list(runs(draw, [0.8] * 9)) for _ in range(100))]  # fmt: skip
    assert np.mean(np.equal(chosen, 9)) > 0.75
    assert np.mean(np.equal(highest, 9)) < 0.3
    assert np.mean(chosen) > 8.3


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_an_earlier_model_that_is_really_better_is_kept(metric):
    draw = np.random.default_rng(6)
    sign = -1 if metric == "loss" else 1
    for _ in range(50):
        rows = [sign * row for row in runs(draw, [0.6, 0.75, 0.85, 0.78, 0.75, 0.7, 0.7])]
        assert followed(rows, metric=metric).best_step == 3


def test_a_model_that_is_better_beyond_chance_wins_whatever_its_loss():
    """As where the loss of a model that is too sure of itself rises, and its answers still get better."""
    draw = np.random.default_rng(10)
    for _ in range(50):
        rows = list(runs(draw, [0.6, 0.7, 0.8, 0.9]))
        assert followed(rows, [1.0, 1.1, 1.3, 1.6]).best_step == 4
        assert followed(rows[::-1], [1.6, 1.3, 1.1, 1.0]).best_step == 1


def test_small_losses_of_quality_do_not_add_up():
    """Each model is worse than the one before by less than chance; the bound holds against the highest."""
    draw = np.random.default_rng(7)
    for _ in range(20):
        rows = list(runs(draw, [0.85 - 0.006 * step for step in range(30)], agreement=0.97))
        state = followed(rows)
        difference = rows[state.best_step - 1] - max(rows, key=np.mean)
        assert difference.mean() >= -2 * standard_error(difference) - 1e-12
        assert state.best_step < 20


def test_patience_counts_validations_without_an_improvement_that_the_set_can_show():
    draw = np.random.default_rng(8)
    rising = [followed(runs(draw, [0.5 + 0.05 * step for step in range(8)])) for _ in range(30)]
    flat = [followed(runs(draw, [0.8] * 12)) for _ in range(30)]
    slow = [followed(runs(draw, [0.5 + 0.01 * step for step in range(40)], agreement=0.98)) for _ in range(30)]
    assert max(state.validations_since_best for state in rising) == 0
    assert np.mean([state.validations_since_best for state in flat]) > 6  # luck begins no new count
    assert max(state.validations_since_best for state in slow) < 8  # small gains add up


def test_patience_also_sees_a_loss_that_falls_beyond_chance():
    draw = np.random.default_rng(12)
    rows, losses = [*runs(draw, [0.8])] * 12, draw.gamma(2.0, 1.0, (12, 872))
    assert followed(rows, losses).validations_since_best > 5
    falling = [losses[0] * 0.97**step for step in range(12)]
    assert followed(rows, falling).validations_since_best == 0
    assert followed(rows, falling[::-1]).validations_since_best == 11


def test_the_model_that_training_starts_from_is_kept_until_a_higher_score():
    state = RunState()
    assert noted(state, 0, [1, 1, 1, 1, 0], 1.0)
    assert not noted(state, 1, [1, 1, 1, 0, 1], 0.5)
    assert noted(state, 2, [1, 1, 1, 1, 1], 0.5)
    assert noted(state, 3, [1, 1, 1, 1, 0], 0.4)  # no more than chance
    assert noted(state, 4, [1, 1, 1, 1, 1], 0.41)


@pytest.mark.parametrize(
    ("metrics", "before", "expected"),
    [
        ({"bleu": 30.0, "chrf": 50.0}, None, "bleu"),
        ({"bleu": 0.0, "chrf": 80.0}, None, "chrf"),
        ({"bleu": 0.9, "chrf": 80.0, "valid_loss": 1.0}, "chrf", "chrf"),
        ({"bleu": 0.0, "valid_loss": 1.0}, None, "loss"),
        ({"bleu": math.nan, "chrf": 10.0}, None, "chrf"),
        ({"bleu": 1.5, "chrf": 20.0}, "chrf", "bleu"),
        ({"bleu": 0.1, "chrf": 5.0}, "bleu", "bleu"),  # a collapse is no reason to forget better models
        ({"bleu": 0.0}, None, "bleu"),
        ({"accuracy": 0.0, "f1": 0.5}, None, "accuracy"),
    ],
)
def test_auto_does_not_go_by_a_bleu_of_about_zero(metrics, before, expected):
    assert deciding_metric("auto", metrics, before)[0] == expected
    if "bleu" in metrics:
        assert deciding_metric("bleu", metrics, before)[0] == "bleu"


# -- in a run ----------------------------------------------------------------------------------------------------------


def lucky(seed=0, chances=(0.8,) * 4):
    """Validations of 500 texts at steps 10, 20, 30 and 40."""
    rows = list(runs(np.random.default_rng(seed), chances, 500))

    def validate(module):
        row = rows[lucky.trainer.state.step // 10 - 1]
        return Validation(
            {"valid_loss": 1.0, "accuracy": float(row.mean())}, [Sample("a", "b", "c")], {"accuracy": row}
        )

    return rows, validate


def trained(folder, validate, **settings):
    lucky.trainer = make_trainer(folder, validate=validate, **settings)
    return lucky.trainer.run()


def test_best_of_a_run_is_the_last_that_chance_explains_and_the_log_says_how_large_chance_is(tmp_path, caplog):
    caplog.set_level("INFO")

    def is_by_chance(rows):
        """Whether the first has the highest accuracy, and chance explains it."""
        return np.argmax([*map(np.mean, rows)]) == 0 and (rows[0] - rows[3]).mean() < standard_error(rows[0] - rows[3])

    rows, validate = lucky(next(seed for seed in range(99) if is_by_chance(lucky(seed)[0])))
    result = trained(tmp_path / "a", validate)
    assert (result.best_step, result.best_value) == (40, rows[3].mean())
    kept = json.loads((tmp_path / "a" / "best" / "metrics.json").read_text())
    assert kept["step"] == 40
    noted = [record for record in records(tmp_path / "a") if "accuracy" in record]
    assert [record["accuracy_se"] for record in noted] == [standard_error(row) for row in rows]
    assert any(f"accuracy {rows[0].mean():.4g} ± {standard_error(rows[0]):.2g}" in line for line in caplog.messages)
    _, validate = lucky(1, (0.5, 0.9, 0.6, 0.5))
    assert trained(tmp_path / "b", validate).best_step == 20


def test_a_run_that_continues_chooses_as_one_that_was_not_interrupted(tmp_path):
    for seed, chances in enumerate([(0.8,) * 4, (0.9, 0.85, 0.9, 0.9), (0.6, 0.9, 0.7, 0.7)]):
        _, validate = lucky(seed, chances)
        trained(tmp_path / f"whole{seed}", validate)
        for limit in (12, 31):
            folder, count = tmp_path / f"{seed}-{limit}", iter(range(limit))

            def failing(module, batch, count=count):
                if next(count, None) is None:
                    raise Killed
                return toy_loss(module, batch)

            with pytest.raises(Killed):
                trained(folder, validate, compute_loss=failing)
            trained(folder, validate)
            assert outcome(folder) == outcome(tmp_path / f"whole{seed}")


def test_a_roll_back_takes_back_the_choice_too(tmp_path):
    """The steps after the checkpoint are made again; the choice is that of a run in which nothing went wrong."""
    rows, validate = lucky(3, (0.8, 0.8, 0.8, 0.6))
    result = trained(tmp_path / "a", validate, compute_loss=poisoned(range(23, 27)), max_bad_steps=3)
    assert lucky.trainer.state.rollbacks == 1
    whole = trained(tmp_path / "b", validate)
    assert (result.best_step, result.best_value) == (whole.best_step, whole.best_value) == (30, rows[2].mean())


@pytest.mark.parametrize("keep_best", [0, 1])
def test_a_roll_back_lets_no_worse_model_replace_the_best(tmp_path, keep_best):
    values = iter([0.5, 0.6, 0.9, 0.7, 0.7, 0.7, 0.7])

    def validate(_):
        return Validation({"valid_loss": 1.0, "accuracy": next(values)})

    settings = {"checkpoint_every": 25, "max_steps": 50, "max_bad_steps": 3, "validate_every": 10}
    loss = poisoned(range(32, 36))
    trainer, result = train(tmp_path, validate=validate, compute_loss=loss, keep_best=keep_best, **settings)
    assert trainer.state.rollbacks == 1
    assert (result.best_step, result.best_value) == (30, 0.9)
    assert json.loads((tmp_path / "best/metrics.json").read_text())["accuracy"] == 0.9


@pytest.mark.parametrize("bad", [(), range(2, 6)], ids=["without", "with a roll-back"])
def test_a_roll_back_keeps_the_figures_of_a_new_measure(tmp_path, bad):
    """A run goes on with another search, whose figures are half as high, and diverges before its next checkpoint."""

    def halved(module):
        found = toy_validation(module)
        hits = found.contributions["accuracy"] / 2
        return Validation({**found.metrics, "accuracy": hits.mean()}, (), {"accuracy": hits})

    train(tmp_path, measure="beam 5")
    changes = {"max_steps": 120, "checkpoint_every": 25, "max_bad_steps": 3}
    trainer, result = train(tmp_path, measure="beam 1", validate=halved, compute_loss=poisoned(bad), **changes)
    assert trainer.state.rollbacks == bool(bad)
    assert result.best_step > 40
    assert max(value for _, value in trainer.state.validations) <= 0.5
    newest = max((tmp_path / "checkpoints").glob("step_*"))
    others = [path for path in (tmp_path / "checkpoints").glob("step_*") if path != newest]
    assert all(json.loads((path / "state.json").read_text())["run"]["finished"] is None for path in others)
