"""Power as pictures: sparklines in the terminal, a plot in a file. Gaps stay gaps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Literal, NamedTuple

import click

from strata.core.extras import needs
from strata.core.printable import clean

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = "·"
WIDTH, HEIGHT = 960, 360
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 36, 40
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f")
LETTER = 7
"""Room that a letter needs, at most as a rule."""
NAME_AT_MOST = 32
LINES = len(COLOURS)
"""Nodes that one plot shows by themselves."""

Values = Sequence["float | None"]


class Line(NamedTuple):
    """One curve: what it is called and its values."""

    name: str
    values: Values


def sparkline(values: Values, width: int = 60, *, low: float | None = None, high: float | None = None) -> str:
    """``values`` as at most ``width`` blocks, each the mean of its share; ``·`` where nothing is known."""
    means = shrunk(values, width)
    known = [value for value in means if value is not None]
    if not known:
        return GAP * len(means)
    least, most = (min(known) if low is None else low), (max(known) if high is None else high)
    scale = (len(BLOCKS) - 1) / (most - least) if most > least else 0.0
    top = len(BLOCKS) - 1
    return "".join(
        GAP if value is None else BLOCKS[min(top, max(0, round((value - least) * scale)))] for value in means
    )


def shrunk(values: Values, width: int) -> list[float | None]:
    """At most ``width`` values, each the mean of what is known in its share."""
    if len(values) <= width:
        return list(values)
    found: list[float | None] = []
    for place in range(width):
        part = values[place * len(values) // width : max((place + 1) * len(values) // width, 1)]
        known = [value for value in part if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def rises(counter: Values) -> list[float | None]:
    """By how much a counter rose in each step: nothing in the first, beside a gap, and where it was reset."""
    found: list[float | None] = [None] * min(len(counter), 1)
    for before, after in itertools.pairwise(counter):
        known = before is not None and after is not None and after >= before
        found.append(after - before if known else None)  # type: ignore[operator]
    return found


class Stroke(NamedTuple):
    """A line from point to point."""

    points: Sequence[tuple[float, float]]
    colour: str
    width: float = 1.0


class Text(NamedTuple):
    """A piece of text; ``y`` is where it stands on."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    colour: str = "#000"
    large: bool = False


class Scene(NamedTuple):
    """All that a plot is made of."""

    width: int
    height: int
    strokes: Sequence[Stroke]
    texts: Sequence[Text]


def write_plot(path: Path, title: str, unit: str, times: Sequence[float], lines: Sequence[Line]) -> None:
    """Draw curves into ``path``: ``.svg``, or ``.png`` where matplotlib is installed."""
    kind = path.suffix.lower()
    if kind == ".svg":
        path.write_text(svg(title, unit, times, lines), encoding="utf-8")
    elif kind == ".png":
        _write_png(path, scene(title, unit, times, lines))
    else:
        raise click.UsageError(f"--plot writes .svg or .png, not {path.suffix or path.name!r}")


def scene(title: str, unit: str, times: Sequence[float], lines: Sequence[Line]) -> Scene:
    """The plot: a grid with its labels, and the curves on it."""
    from strata.core.units import show_watts

    known = [value for line in lines for value in line.values if value is not None]
    ticks = _ticks(min([0.0, *known]), max([1.0, *known]))
    low, high = ticks[0], ticks[-1]
    first, last = (times[0], max(times[-1], times[0] + 1)) if times else (0.0, 1.0)
    names = [_short(clean(line.name)) for line in lines] if len(lines) > 1 else []
    # The names stand beside the curves: on them, one would hide the other.
    edge = WIDTH - RIGHT - (8 + LETTER * max(map(len, names)) if names else 0)

    def x(time: float) -> float:
        return LEFT + (time - first) / (last - first) * (edge - LEFT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    strokes = [Stroke([(LEFT, y(tick)), (edge, y(tick))], "#ddd") for tick in ticks]
    texts = [Text(LEFT, 22, clean(title)[:200], large=True)]
    for tick in ticks:
        label = show_watts(tick) if unit == "W" else f"{tick:.6g} {unit}"
        texts.append(Text(LEFT - 6, y(tick) + 4, clean(label)[:200], "end"))
    anchors: Sequence[Literal["start", "middle", "end"]] = ("start", "middle", "middle", "middle", "end")
    for place, anchor in enumerate(anchors):
        time = first + (last - first) * place / 4
        texts.append(Text(x(time), HEIGHT - BOTTOM + 18, _clock(time, last - first), anchor))
    for number, line in enumerate(lines):
        colour = COLOURS[number % LINES]
        strokes += [Stroke(points, colour, 1.5) for points in _parts(times, line.values, x, y)]
        if names:
            texts.append(Text(edge + 8, TOP + 8 + 14 * number, names[number], "start", colour))
    return Scene(WIDTH, HEIGHT, strokes, texts)


def _short(name: str) -> str:
    return name if len(name) <= NAME_AT_MOST else name[: NAME_AT_MOST - 2] + ".."


def svg(title: str, unit: str, times: Sequence[float], lines: Sequence[Line]) -> str:
    """The plot as SVG."""
    drawn = scene(title, unit, times, lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for colour, group in itertools.groupby(drawn.strokes, key=lambda stroke: (stroke.colour, stroke.width)):
        path = "".join(_path(stroke.points) for stroke in group)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour[0]}" stroke-width="{colour[1]:g}"/>')
    for text in drawn.texts:
        size = ' font-size="15"' if text.large else ""
        parts.append(
            f'<text x="{text.x:.1f}" y="{text.y:.1f}" text-anchor="{text.anchor}" fill="{text.colour}"{size}>'
            f"{escape(text.text)}</text>"
        )
    return "\n".join([*parts, "</svg>\n"])


def _write_png(path: Path, drawn: Scene) -> None:
    """The plot as PNG, at twice the size: one unit of the scene is two dots."""
    with needs("matplotlib", "plot", "a plot as PNG"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(drawn.width / 100, drawn.height / 100), dpi=200)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, drawn.width), ylim=(drawn.height, 0))
    axes.set_axis_off()
    to_points = 72 / 100
    for stroke in drawn.strokes:
        xs, ys = zip(*stroke.points, strict=True)
        dot = "." if len(stroke.points) == 1 else ""
        axes.plot(xs, ys, color=stroke.colour, linewidth=stroke.width * to_points, marker=dot)
    aligned = {"start": "left", "middle": "center", "end": "right"}
    for text in drawn.texts:
        said = axes.text(text.x, text.y, text.text, color=text.colour, ha=aligned[text.anchor], parse_math=False)
        said.set_fontsize((15 if text.large else 12) * to_points)
    figure.savefig(path, format="png")


def _parts(
    times: Sequence[float], values: Values, x: Callable[[float], float], y: Callable[[float], float]
) -> list[list[tuple[float, float]]]:
    """A curve, interrupted where nothing is known."""
    found: list[list[tuple[float, float]]] = []
    drawing = False
    for time, value in zip(times, values, strict=False):
        if value is not None:
            if not drawing:
                found.append([])
            found[-1].append((x(time), y(value)))
        drawing = value is not None
    return found


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A single point is a short line, so that it is seen."""
    (x, y), *more = points
    return f"M{x:.1f} {y:.1f}h0.1" + "".join(f"L{x:.1f} {y:.1f}" for x, y in more)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most ``low`` to at least ``high``."""
    rough = max(high - low, 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [place * step for place in range(first, last + 1)]


def _clock(time: float, length: float) -> str:
    form = "%H:%M:%S" if length < 3600 else "%H:%M" if length < 86_400 else "%Y-%m-%d %H:%M"
    try:
        return datetime.fromtimestamp(time).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"@{time:.0f}"
