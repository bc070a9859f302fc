"""Learning curves as SVG inside the page of a comparison; colours come from its style sheet."""

from collections.abc import Mapping, Sequence

from seq2seq.workflows.compare.curves import AXES, FIGURES

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 320, 200, 44, 8, 10, 34
COLOURS = 8
DASHES = ("", "6 3", "2 3", "8 3 2 3")  # for the systems after the first eight


def figure(key: str, axis: int, lines: Mapping[str, Sequence[tuple[float, ...]]], names: Sequence[str]) -> str:
    """Return one picture: a figure of `FIGURES` over one of `AXES`; `names` give each system its colour."""
    xs = [point[axis] for points in lines.values() for point in points]
    ys = [point[-1] for points in lines.values() for point in points]
    across, up = _scale(xs, LEFT, WIDTH - RIGHT), _scale(ys, HEIGHT - BOTTOM, TOP)
    drawn = []
    for name, points in lines.items():
        places = " ".join(f"{across(point[axis]):.1f},{up(point[-1]):.1f}" for point in points)
        drawn.append(f'<polyline {_look(names.index(name))} points="{places}"/>')
        if len(points) == 1:
            drawn[-1] = (
                f'<circle {_look(names.index(name))} cx="{places.split(",")[0]}" cy="{places.split(",")[1]}" r="3"/>'
            )
    title = f"{FIGURES[key]} over {AXES[axis]}"
    low, high = HEIGHT - BOTTOM, WIDTH - RIGHT
    labels = (
        f'<text x="{LEFT}" y="{low + 14}">{min(xs):.4g}</text>'
        f'<text x="{high}" y="{low + 14}" text-anchor="end">{max(xs):.4g}</text>'
        f'<text x="{(LEFT + high) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{AXES[axis]}</text>'
        f'<text x="{LEFT - 4}" y="{low}" text-anchor="end">{min(ys):.3g}</text>'
        f'<text x="{LEFT - 4}" y="{TOP + 8}" text-anchor="end">{max(ys):.3g}</text>'
    )
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
        f'<path class="axis" d="M{LEFT} {TOP}V{low}H{high}"/>{labels}{"".join(drawn)}</svg>'
        f"<figcaption>{title}</figcaption></figure>"
    )


def legend(names: Sequence[str]) -> str:
    """Return the colour of each system; `names` are escaped."""
    items = "".join(
        f'<li><svg viewBox="0 0 32 10" aria-hidden="true"><path {_look(number)} d="M0 5H32"/></svg> {name}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _look(number: int) -> str:
    dash = DASHES[number // COLOURS % len(DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'class="curve k{number % COLOURS}"{dashes}'


def _scale(values: Sequence[float], first: float, last: float):
    """Return a function from values to places between `first` and `last`."""
    low, high = min(values), max(values)
    return lambda value: first + (last - first) * ((value - low) / (high - low) if high > low else 0.5)
