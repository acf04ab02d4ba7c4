"""Power as pictures: sparklines in the terminal, a plot in a file. Gaps stay gaps."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

import click

from strata.cli.output import clean

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = "·"
WIDTH, HEIGHT = 960, 360
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 36, 40
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f")
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


def write_plot(path: Path, title: str, unit: str, times: Sequence[float], lines: Sequence[Line]) -> None:
    """Draw curves into ``path``: ``.svg``, or ``.png`` where CairoSVG is installed."""
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise click.UsageError(f"--plot writes .svg or .png, not {path.suffix or path.name!r}")
    text = svg(title, unit, times, lines)
    if kind == ".svg":
        path.write_text(text, encoding="utf-8")
        return
    try:
        cairosvg = importlib.import_module("cairosvg")
    except ImportError:
        raise click.ClickException(
            "PNG needs CairoSVG: pip install cairosvg; a plot as .svg needs nothing more"
        ) from None
    cairosvg.svg2png(bytestring=text.encode(), write_to=str(path))


def svg(title: str, unit: str, times: Sequence[float], lines: Sequence[Line]) -> str:
    """The plot as SVG."""
    from strata.power.units import show_watts

    known = [value for line in lines for value in line.values if value is not None]
    ticks = _ticks(min([0.0, *known]), max([1.0, *known]))
    low, high = ticks[0], ticks[-1]
    first, last = (times[0], max(times[-1], times[0] + 1)) if times else (0.0, 1.0)

    def x(time: float) -> float:
        return LEFT + (time - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{_safe(title)}</text>',
    ]
    for tick in ticks:
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        label = show_watts(tick) if unit == "W" else f"{tick:.6g} {unit}"
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_safe(label)}</text>')
    for place in range(5):
        time = first + (last - first) * place / 4
        anchor = ("start", "middle", "middle", "middle", "end")[place]
        parts.append(
            f'<text x="{x(time):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="{anchor}">{_clock(time, last - first)}'
            "</text>"
        )
    for number, line in enumerate(lines):
        colour = COLOURS[number % LINES]
        parts.append(f'<path d="{_path(times, line.values, x, y)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if len(lines) > 1:
            parts.append(
                f'<text x="{WIDTH - RIGHT}" y="{TOP + 14 * number}" text-anchor="end" fill="{colour}">'
                f"{_safe(line.name)}</text>"
            )
    return "\n".join([*parts, "</svg>\n"])


def _path(times: Sequence[float], values: Values, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """A curve that is interrupted where nothing is known."""
    found, drawing = [], False
    for time, value in zip(times, values, strict=False):
        if value is not None:
            found.append(f"{'L' if drawing else 'M'}{x(time):.1f} {y(value):.1f}")
            if not drawing:
                found.append("h0.1")  # so that a single value is seen
        drawing = value is not None
    return "".join(found)


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


def _safe(text: str) -> str:
    return escape(clean(text)[:200])
