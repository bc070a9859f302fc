"""Pictures: learning curves, attention maps, and speed against score.

`learning_curves` draws the records of `metrics.jsonl`, at the end of training and for `s2s plot`; `attention_map` draws
what `inference.attention` collected; `trade_off` what `workflows.distill.figures` read. matplotlib is imported when
something is drawn.
"""

import contextlib
import io
import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq import atomic
from seq2seq.errors import DataError, quiet
from seq2seq.lines import shown_name

# Panels of the curves: title, and the keys of a record that belong in it. A panel without values is left out.
PANELS = (
    ("loss", {"loss": "training", "valid_loss": "validation"}),
    ("score", {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}),
    ("share", {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "macro F1"}),
    ("learning rate", {"learning_rate": "learning rate"}),
)
# Fonts for characters that DejaVu Sans lacks; fonts that are not installed are skipped.
FALLBACK_FONTS = ("Noto Sans CJK JP", "Noto Sans JP", "IPAexGothic", "Hiragino Sans", "Yu Gothic", "Arial Unicode MS")
# Formats of pictures that need no other program.
PICTURES = {"png", "pdf", "svg", "svgz", "jpg", "jpeg", "webp", "eps", "ps", "tif", "tiff"}
MAX_PIECES_SHOWN = 120


def learning_curves(records: Iterable[Mapping[str, Any]], path: Path, title: str = "") -> Path:
    """Draw loss, validation scores and learning rate over the steps, and return `path`.

    A dotted line marks each step at which a stage of training begins. Values that are missing or not finite are left
    out. If a step was logged twice, after a resume, the later record counts.

    Raises:
        DataError: no record has a value to draw.
    """
    records = list(records)
    panels = [(name, curves) for name, keys in PANELS if (curves := _curves(records, keys))]
    if not panels:
        raise DataError(f"{path}: nothing to draw; the metrics have no values yet")
    borders = [record["step"] for record in records if "stage" in record and isinstance(record.get("step"), int)]
    width, height = 4.6 * len(panels), 3.6
    # fixed margins, because a computed layout takes half of the time of a short run's end
    with _canvas(1, len(panels), (width, height), path, layout=None) as (figure, axes):
        for axis, (name, curves) in zip(axes.flat, panels, strict=True):
            for label, points in curves.items():
                axis.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 60 else None)
            for step in borders:
                axis.axvline(step, color="0.4", linestyle=":", linewidth=1)
            axis.set(title=name, xlabel="step")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.ticklabel_format(axis="y", scilimits=(-3, 4))  # short labels, for which there is room
            axis.grid(alpha=0.3)
            if set(curves) != {name}:
                axis.legend()
        above = 0.35 + 0.2 * _set_title(figure, title)  # inches, as the other margins
        sides = dict(left=0.7 / width, right=1 - 0.15 / width, bottom=0.5 / height, top=1 - above / height)
        figure.subplots_adjust(**sides, wspace=0.2)
    return path


def attention_map(
    weights: np.ndarray,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    path: Path,
    title: str = "",
    axes_names: tuple[str, str] = ("source", "target"),
) -> Path:
    """Draw attention weights, and return `path`.

    Args:
        weights: (T, S), or (H, T, S), for which the mean over the heads is drawn first, then each head.
        source_pieces: S labels of the columns.
        target_pieces: T labels of the rows.
        path: the picture; the suffix determines its format.
        title: heading of the picture.
        axes_names: titles of the two axes, columns first.

    Raises:
        DataError: a side has more than 120 pieces, which a picture cannot show.
    """
    weights = np.asarray(weights, dtype=np.float64)
    assert weights.shape[-2:] == (len(target_pieces), len(source_pieces)), "weights do not belong to the pieces"
    if max(weights.shape[-2:]) > MAX_PIECES_SHOWN:
        raise DataError(f"{max(weights.shape[-2:])} pieces are too many for one picture; take a shorter sentence")
    maps = {"": weights}
    if weights.ndim == 3:
        maps = {"mean": weights.mean(axis=0)} | {f"head {number}": head for number, head in enumerate(weights, start=1)}
    columns = min(3, len(maps))
    rows = math.ceil(len(maps) / columns)
    width, height = 1.5 + 0.26 * len(source_pieces), 1.5 + 0.26 * len(target_pieces)
    with _canvas(rows, columns, (columns * max(3.0, width), rows * max(2.5, height)), path) as (figure, axes):
        for axis in axes.flat[len(maps) :]:
            axis.set_visible(False)
        for axis, (name, values) in zip(axes.flat, maps.items(), strict=False):
            image = axis.imshow(values, cmap="Greys", vmin=0.0, vmax=1.0, aspect="auto")
            axis.set_xticks(range(len(source_pieces)), source_pieces, rotation=90, parse_math=False)
            axis.set_yticks(range(len(target_pieces)), target_pieces, parse_math=False)
            axis.set(title=name, xlabel=axes_names[0], ylabel=axes_names[1])
        figure.colorbar(image, ax=axes, label="attention", shrink=0.8)
        _set_title(figure, title)
    return path


def trade_off(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, str]]]], path: Path, axes_names: tuple[str, str]
) -> Path:
    """Draw labelled points, such as the speeds and scores of models, and return `path`.

    Args:
        panels: points (x, y, label) by panel and curve; those of a curve are connected in their order.
        path: the picture; the suffix determines its format.
        axes_names: titles of the two axes, that of x first. The scale of x is logarithmic.
    """
    from matplotlib.ticker import LogLocator

    with _canvas(1, len(panels), (6.4 * len(panels), 4.6), path) as (_, axes):
        for axis, (name, curves) in zip(axes.flat, panels.items(), strict=True):
            for curve, points in curves.items():
                axis.plot([x for x, _, _ in points], [y for _, y, _ in points], marker="o", label=curve)
            for x, y, label in chain.from_iterable(curves.values()):
                placed = dict(xytext=(5, 5), textcoords="offset points", fontsize=8, parse_math=False)
                axis.annotate(shown_name(label), (x, y), **placed)
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()
            axis.margins(x=0.3, y=0.15)
            axis.set_title(name, parse_math=False)
            axis.set(xlabel=axes_names[0], ylabel=axes_names[1])
            axis.grid(alpha=0.3)
            axis.legend()
    return path


def _set_title(figure: Any, title: str) -> int:
    """Write the heading of a picture, and return the number of its lines."""
    width = max(30, int(10 * figure.get_figwidth()))
    lines = list(chain.from_iterable(textwrap.wrap(line, width) for line in shown_name(title).splitlines()))
    if lines:
        figure.suptitle("\n".join(lines), parse_math=False, weight="bold")
    return len(lines)


def _curves(records: Sequence[Mapping[str, Any]], keys: Mapping[str, str]) -> dict[str, list[tuple[float, float]]]:
    """Return, by label, the (step, value) points of each key that has any."""
    curves, names = {}, dict.fromkeys(name for record in records for name in record)
    of_directions = {
        name: f"{keys[name.partition('.')[0]]} {name.partition('.')[2]}"
        for name in names
        if name.partition(".")[0] in keys and "." in name and not name.endswith(".worst")
        if not (name.endswith("_se") and name.removesuffix("_se") in names)  # a standard error
    }
    for key, label in {**keys, **of_directions}.items():
        points = {record["step"]: record[key] for record in records if _is_point(record, key)}
        if points:
            curves[label] = sorted(points.items())
    return curves


def _is_point(record: Mapping[str, Any], key: str) -> bool:
    """Whether a record has a step and a finite value of a key."""
    try:
        return all(math.isfinite(record[name]) for name in ("step", key))
    except (KeyError, TypeError, OverflowError):
        return False


@contextlib.contextmanager
def _canvas(
    rows: int, columns: int, size: tuple[float, float], path: Path, layout: str | None = "constrained"
) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes, and write the picture to `path` as a whole at the end of the block."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    kind = path.suffix.removeprefix(".").lower() or "png"
    if kind not in PICTURES:
        raise DataError(f"{path}: pictures have no format {kind!r}; use .png, .pdf or .svg")
    installed = {font.name for font in fontManager.ttflist}  # each text looks for the others again
    fonts = ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)]
    with (
        quiet("matplotlib"),
        warnings.catch_warnings(),
        matplotlib.rc_context({"font.family": fonts, "axes.unicode_minus": False}),
    ):
        # a character that no font has is drawn as a box
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=size, layout=layout)
        FigureCanvasAgg(figure)  # draws into memory: no window, no display
        yield figure, figure.subplots(rows, columns, squeeze=False)
        picture = io.BytesIO()
        figure.savefig(picture, format=kind, dpi=120)
        atomic.write_file(path, picture.getvalue())
