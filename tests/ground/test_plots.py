"""Pictures are drawn without a display, whole or not at all, and say what they were given."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from seq2seq.cli import main
from seq2seq.config.schema import ModelConfig
from seq2seq.errors import DataError
from seq2seq.model.attention import capture_attention
from seq2seq.model.transformer import Transformer
from seq2seq.plots import PICTURES, _curves, attention_map, learning_curves, trade_off
from seq2seq.workflows.runs import read_run

PNG = b"\x89PNG\r\n\x1a\n"


def records(steps=200, every=10):
    for step in range(every, steps + 1, every):
        yield {"step": step, "loss": 9 / step, "learning_rate": 1e-3 / step, "tokens_per_second": 1e4, "grad_norm": 1.0}
        if step % 100 == 0:
            yield {"step": step, "valid_loss": 8 / step, "bleu": step / 10, "chrf": step / 5}


def pixels(path: Path) -> np.ndarray:
    from matplotlib import image

    return image.imread(path)


def test_curves_are_drawn_for_what_there_is(tmp_path):
    full = learning_curves(records(), tmp_path / "curves.png")
    loss_only = learning_curves(({"step": s, "loss": 1 / s} for s in range(1, 9)), tmp_path / "loss.png")
    assert full.read_bytes().startswith(PNG)
    assert pixels(full).shape[1] > 2 * pixels(loss_only).shape[1]  # three panels beside one


def test_classification_curves(tmp_path):
    path = learning_curves([{"step": 5, "loss": 1.0}, {"step": 5, "accuracy": 0.7, "f1": 0.6}], tmp_path / "curves.png")
    assert path.read_bytes().startswith(PNG)


def test_values_that_are_not_finite_or_logged_twice_do_not_spoil_a_curve():
    rows = [
        {"step": 1, "loss": 3.0}, {"step": 2, "loss": math.nan}, {"step": 3, "loss": None}, {"step": 4, "loss": "x"},
        {"loss": 1.0}, {"step": 6, "loss": math.inf}, {"step": None, "loss": 1.0}, {"step": [1], "loss": 1.0},
        {"step": "x", "loss": 1.0}, {"step": 7, "loss": 10**400}, {"step": 10**400, "loss": 1.0},
        {"step": 5, "loss": 2.0}, {"step": 1, "loss": 2.5},
    ]  # fmt: skip
    assert _curves(rows, {"loss": "training", "bleu": "BLEU"}) == {"training": [(1, 2.5), (5, 2.0)]}


def test_a_panel_for_each_test_set_and_labels_that_are_not_formulas(tmp_path):
    curves = {"$x_1": [(1.0, 40.0, "$a_b$, 10 MB")], "students": [(3.0, 39.0, "a"), (9.0, 38.5, "b")]}
    one = trade_off({"news": curves}, tmp_path / "one.png", ("times", "BLEU"))
    two = trade_off({"news": curves, "$talks_": curves}, tmp_path / "two.png", ("times", "BLEU"))
    assert pixels(two).shape[1] > 1.5 * pixels(one).shape[1]


@pytest.mark.parametrize("rows", [[], [{"step": 1}], [{"step": 1, "loss": math.nan}]])
def test_nothing_to_draw_is_said_and_leaves_the_old_picture(tmp_path, rows):
    path = tmp_path / "curves.png"
    path.write_bytes(b"the old picture")
    with pytest.raises(DataError, match="nothing to draw"):
        learning_curves(rows, path)
    assert path.read_bytes() == b"the old picture"


def test_a_picture_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path):
    for _ in range(2):
        learning_curves(records(), tmp_path / "curves.png")
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_the_ending_decides_the_format(tmp_path):
    assert learning_curves(records(), tmp_path / "c.svg").read_bytes().lstrip().startswith(b"<?xml")
    assert learning_curves(records(), tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    for ending in ("mp3", "pgf"):  # pgf needs TeX
        with pytest.raises(DataError, match=f"'{ending}'"):
            learning_curves(records(), tmp_path / f"c.{ending}")


@pytest.mark.parametrize("ending", sorted(PICTURES))
def test_every_format_is_written_without_another_program(ending, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert learning_curves(records(), tmp_path / f"c.{ending}").stat().st_size > 1000


def test_every_script_and_sign_is_drawn_without_a_warning(tmp_path, caplog):
    source = ["▁Grüße", "$", "x^2$", "日本", "한", "🙂", "\u202b", "<0x0A>", "</s>"]
    weights = np.full((2, len(source)), 1 / len(source))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = attention_map(weights, source, ["$a$", "名"], tmp_path / "attention.png", title="$100$ 日本")
    assert path.read_bytes().startswith(PNG)
    assert not caplog.records


def test_the_map_shows_the_weights_it_was_given(tmp_path):
    pieces = list("abcd")
    diagonal = pixels(attention_map(np.eye(4), pieces, pieces, tmp_path / "a.png"))
    flipped = pixels(attention_map(np.eye(4)[::-1], pieces, pieces, tmp_path / "b.png"))
    nothing = pixels(attention_map(np.zeros((4, 4)), pieces, pieces, tmp_path / "c.png"))
    assert diagonal.shape == flipped.shape == nothing.shape
    assert (diagonal != flipped).any()
    assert diagonal.mean() < nothing.mean()  # a higher weight is darker


def test_heads_are_drawn_beside_their_mean(tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(4, 3))
    one = pixels(attention_map(weights[0], list("abcde"), list("xyz"), tmp_path / "one.png"))
    heads = pixels(attention_map(weights, list("abcde"), list("xyz"), tmp_path / "heads.png"))
    assert heads.shape[0] > 1.5 * one.shape[0]  # five maps, three in a row
    assert heads.shape[1] > 2.5 * one.shape[1]


def test_a_sentence_too_long_for_a_picture_is_refused(tmp_path):
    with pytest.raises(DataError, match="500 pieces"):
        attention_map(np.zeros((2, 500)), ["x"] * 500, ["y"] * 2, tmp_path / "a.png")


def test_a_real_models_attention_fits_the_map(tmp_path):
    model = Transformer(ModelConfig(d_model=16, num_heads=2, d_ff=16), 20, 20).eval()
    source, target = torch.tensor([[4, 5, 6, 2]]), torch.tensor([[1, 7, 8]])
    with torch.inference_mode(), capture_attention(model) as captured:
        model(source, torch.ones_like(source, dtype=torch.bool), target)
    weights = captured["decoder.layers.2.cross_attention"][0]
    assert weights.shape == (2, 3, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3))
    attention_map(weights.numpy(), list("abcd"), list("xyz"), tmp_path / "a.png")


# -- s2s plot --------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path)


def write_run(place: Path) -> Path:
    folder = place / "runs" / "demo"
    folder.mkdir(parents=True)
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as stream:
        for record in records():
            stream.write(json.dumps(record) + "\n")
    return folder


def test_plot_draws_the_run_anew_and_names_the_picture(run, capsys):
    assert main(["plot", str(run)]) == 0
    assert capsys.readouterr() == (f"{run / 'curves.png'}\n", "")
    assert (run / "curves.png").read_bytes().startswith(PNG)


@pytest.mark.slow
def test_plot_takes_the_best_folder_and_the_newest_run(run, capsys, monkeypatch):
    (run / "best").mkdir()
    assert main(["plot", str(run / "best"), "-o", str(run / "mine.svg")]) == 0
    assert (run / "mine.svg").exists()
    monkeypatch.chdir(run.parent.parent)
    (run.parent / "latest").symlink_to("demo")
    assert main(["plot"]) == 0
    captured = capsys.readouterr()
    assert "demo" in captured.err  # which run it took is said
    assert captured.out.endswith("curves.png\n")


@pytest.mark.parametrize("name", ["bset", "checkpoints"])
def test_plot_takes_no_other_path_in_a_run_for_it(run, capsys, name):
    (run / "checkpoints").mkdir()
    assert main(["plot", str(run / name)]) == 2
    assert f"{name}: not a run folder" in capsys.readouterr().err
    assert not (run / "curves.png").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    """The picture of the run."""
    run = write_run(tmp_path_factory.mktemp("whole"))
    assert main(["plot", str(run), "-o", str(run / "whole.png")]) == 0
    return (run / "whole.png").read_bytes()


@pytest.mark.parametrize(
    ("places", "broken"),
    [([2], "[1]"), ([1, 3], "half a li"), ([-1], '{"step": 210, "lo'), ([2], ""), ([-1], "[1]")],
    ids=str,
)
def test_broken_lines_are_named_and_the_others_are_drawn(places, broken, run, whole, capsys):
    """The last may have been cut off by a crash; `s2s runs` counts the same lines."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines()
    numbers = [place if place > 0 else len(lines) + 1 for place in places]
    for number in numbers:
        lines.insert(number - 1, broken)
    path.write_text("".join(f"{line}\n" for line in lines))
    assert main(["plot", str(run), "-o", str(run / "rest.png")]) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    count = "1 broken line" if len(places) == 1 else "2 broken lines"
    named = ", ".join(f"line {number}" for number in numbers)
    assert warning == f"s2s: warning: {path}: {count} left out ({named})"
    assert (run / "rest.png").read_bytes() == whole
    assert read_run(run).broken_lines == len(places)


@pytest.mark.parametrize("arguments", [["nowhere"], ["--target", "x"], ["--layer", "2"], ["--attention", " "]])
def test_wrong_use_is_one_line(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["plot", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
