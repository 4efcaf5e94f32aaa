"""Line plots as SVG: a line for each series with its name at its end, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from fastload.cli.report.document import LinePlot, Series, figure

# The sizes of a plot in pixels; the right margin has the names of the series.
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 66, 280, 34, 52
_LINE = 20  # between two names
_LEAST_HEIGHT = 220


def line_plot(plot: LinePlot) -> Iterator[str]:
    """Yield the drawing."""
    values = [value for one in plot.series for value in one.values]
    ticks = _ticks(min(values), max(values))
    height = max(_LEAST_HEIGHT, _LINE * len(plot.series)) + _TOP + _BOTTOM
    bottom, right = height - _BOTTOM, _WIDTH - _RIGHT
    low, high = math.log(ticks[0]), math.log(ticks[-1])

    def y_of(value: float) -> float:
        return bottom - (math.log(value) - low) / (high - low) * (bottom - _TOP)

    last = max(1, len(plot.x_values) - 1)
    places = [_LEFT + 20 + (right - _LEFT - 40) * place / last for place in range(len(plot.x_values))]
    label = escape(f"{plot.title}: {plot.y_name} by {plot.x_name}")
    yield f'<svg class="plot" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {height}">'
    for tick in ticks:
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y_of(tick):.1f}" y2="{y_of(tick):.1f}"/>'
        yield _text(_LEFT - 8, y_of(tick) + 5, "end", figure(tick))
    for x, text in zip(places, plot.x_values, strict=True):
        yield _text(x, bottom + 20, "middle", text)
    yield _text(0, 16, "start", plot.y_name)
    yield _text(right, height - 6, "end", plot.x_name)
    for one, y in _spread(plot.series, [y_of(one.values[-1]) for one in plot.series], bottom):
        points = " ".join(f"{x:.1f},{y_of(value):.1f}" for x, value in zip(places, one.values, strict=True))
        yield f'<polyline class="{one.tone}" points="{points}"/>'
        yield f'<line x1="{places[-1]:.1f}" x2="{right + 4}" y1="{y_of(one.values[-1]):.1f}" y2="{y:.1f}"/>'
        yield _text(right + 8, y + 5, "start", one.name)
    yield "</svg>"


def _ticks(least: float, most: float) -> list[float]:
    """Return the numbers of the form 1, 2 or 5 × 10ⁿ from below the least value to above the largest."""
    exponents = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    steps = [factor * 10.0**exponent for exponent in exponents for factor in (1, 2, 5)]
    first = max(step for step in steps if step <= least)
    last = min(step for step in steps if step >= most and step > first)
    return [step for step in steps if first <= step <= last]


def _spread(series: tuple[Series, ...], ys: list[float], bottom: float) -> list[tuple[Series, float]]:
    """Return the series with the heights of their names: near their ends, and not one on the other."""
    order = sorted(range(len(ys)), key=lambda place: ys[place])
    heights: list[float] = []
    for place in order:
        heights.append(max(ys[place], heights[-1] + _LINE) if heights else ys[place])
    limit = bottom
    for number in reversed(range(len(heights))):
        heights[number] = min(heights[number], limit)
        limit = heights[number] - _LINE
    return [(series[place], height) for place, height in zip(order, heights, strict=True)]


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
