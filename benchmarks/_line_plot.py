"""Line plots as SVG on a logarithmic axis; a number at the end of each line refers to the key beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from _document import Drawing, Series
from _html import escape, svg_text

from fastload.system.units import format_figure

# The sizes of a plot in pixels: as wide as a narrow screen, because text must not shrink there.
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 340, 66, 44, 34, 54
_LINE = 20  # between two numbers
_CHARACTER = 10  # width, at least
_LEAST_HEIGHT = 220
_DASHES = ("none", "7 3", "2 3", "10 3 2 3")
_SIDE_BY_SIDE = "display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: center"
_KEY = "flex: 1 1 16rem; margin: 0; padding-left: 1.6rem; font-size: .9rem; color: var(--soft)"
# The colours between which the lines of a tone lie, most of them the page's.
_COLOURS = {
    "own": ("var(--own)", "var(--contender)"),
    "other": ("var(--other)", "light-dark(#a3479a, #d98ad0)"),
    "reference": ("var(--reference)", "var(--reference)"),
}


@dataclass(frozen=True, slots=True)
class LinePlot:
    """A line for each series, with a value at each of the numbers `x_values`."""

    title: str
    x_name: str
    x_values: tuple[str, ...]
    y_name: str
    series: tuple[Series, ...]


def drawing(plot: LinePlot) -> Drawing:
    """Return a plot as a part of a page."""
    return Drawing(plot.title, tuple(_lines(plot)))


def _lines(plot: LinePlot) -> Iterator[str]:
    """Yield the drawing and its key, whose order is that of the ends of the lines."""
    values = [value for one in plot.series for value in one.values]
    ticks = _ticks(min(values), max(values))
    right, last = _WIDTH - _RIGHT, max(1, len(plot.x_values) - 1)
    rows = 2 if max(map(len, plot.x_values)) * _CHARACTER * last > right - _LEFT - 40 else 1
    bottom = _TOP + max(_LEAST_HEIGHT, _LINE * len(plot.series))
    height = bottom + _BOTTOM + _LINE * (rows - 1)
    low, high = math.log(ticks[0]), math.log(ticks[-1])

    def y_of(value: float) -> float:
        return bottom - (math.log(value) - low) / (high - low) * (bottom - _TOP)

    xs = [_LEFT + 20 + (right - _LEFT - 40) * index / last for index in range(len(plot.x_values))]
    label = escape(f"{plot.title}: {plot.y_name} by {plot.x_name}")
    yield f'<div style="{_SIDE_BY_SIDE}"><svg class="plot" role="img" aria-label="{label}" '
    yield f'style="width: {_WIDTH}px" viewBox="0 0 {_WIDTH} {height}">'
    for tick in ticks:
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y_of(tick):.1f}" y2="{y_of(tick):.1f}"/>'
        yield svg_text(_LEFT - 8, y_of(tick) + 5, "end", format_figure(tick))
    for index, (x, text) in enumerate(zip(xs, plot.x_values, strict=True)):
        yield svg_text(x, bottom + 20 + _LINE * (index % rows), "middle", text)
    yield svg_text(0, 16, "start", f"{plot.y_name}, logarithmic axis")
    yield svg_text(right, height - 6, "end", plot.x_name)
    keys = []
    spread = _spread(plot.series, [y_of(one.values[-1]) for one in plot.series], bottom)
    for number, (one, y) in enumerate(spread, start=1):
        look = _look(one, plot.series)
        points = [f"{x:.1f},{y_of(value):.1f}" for x, value in zip(xs, one.values, strict=True)]
        yield f'<polyline {look} points="{" ".join(points)}"/>'
        yield f'<path {look} stroke-opacity=".7" d="M{points[-1]} L{right + 10},{y:.1f}"/>'
        yield svg_text(right + 14, y + 5, "start", str(number))
        keys.append(
            f'<li><svg width="36" height="12"><line {look} x1="0" x2="36" y1="6" y2="6"/></svg> '
            f"{escape(one.name)}</li>"
        )
    yield f'</svg><ol style="{_KEY}">{"".join(keys)}</ol></div>'


def _look(one: Series, series: tuple[Series, ...]) -> str:
    """Return the attributes of a line: within a tone, each has another hue and other dashes."""
    family = [each for each in series if each.tone == one.tone]
    index = family.index(one)
    share = index / max(1, len(family) - 1)
    first, last = _COLOURS[one.tone]
    return (
        f'style="fill: none; stroke: color-mix(in oklab, {last} {share:.0%}, {first}); stroke-width: 2" '
        f'stroke-dasharray="{_DASHES[index % len(_DASHES)]}"'
    )


def _ticks(least: float, most: float) -> list[float]:
    """Return the numbers of the form 1, 2 or 5 × 10ⁿ from below the least value to above the largest."""
    exponents = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    steps = [factor * 10.0**exponent for exponent in exponents for factor in (1, 2, 5)]
    first = max(step for step in steps if step <= least)
    last = min(step for step in steps if step >= most and step > first)
    return [step for step in steps if first <= step <= last]


def _spread(series: tuple[Series, ...], ys: list[float], bottom: float) -> list[tuple[Series, float]]:
    """Return the series with the heights of their numbers: near their ends, and not one on the other."""
    order = sorted(range(len(ys)), key=lambda index: ys[index])
    found: list[tuple[Series, float]] = []
    least = -math.inf
    for left, index in zip(reversed(range(len(order))), order, strict=True):
        y = min(max(ys[index], least), bottom - left * _LINE)
        found.append((series[index], y))
        least = y + _LINE
    return found
