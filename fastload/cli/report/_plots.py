"""Plots as inline SVG: lines and stacked columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from fastload.cli.report.document import Plot, figure

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 12, 52
_TICKS = 4
_MOST_LABELS = 8


def render_plot(plot: Plot) -> Iterator[str]:
    """Render a plot as a figure with its legend."""
    label = escape(f"{plot.title}: {plot.y_name} by {plot.x_name}")
    yield f"<figure><h3>{escape(plot.title)}</h3>"
    if len(plot.series) > 1:
        keys = (f'<span><i class="{one.tone}"></i>{escape(one.name)}</span>' for one in plot.series)
        yield f'<div class="key">{"".join(keys)}</div>'
    yield f'<svg class="plot" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    yield from _drawing(plot)
    yield "</svg></figure>"


def _drawing(plot: Plot) -> Iterator[str]:
    heights: dict[float, float] = {}
    for x, y in (point for one in plot.series for point in one.points):
        heights[x] = heights.get(x, 0.0) + y if plot.is_stacked else max(y, heights.get(x, y))
    xs = sorted(heights) or [0.0, 1.0]
    margin = 0.5 if plot.is_stacked else 0.0
    low = xs[0] - margin
    high = max(xs[-1] + margin, low + 1e-9)
    highest = max(heights.values(), default=1.0)
    step = _nice(highest / _TICKS if highest > 0 else 0.25)
    ticks = math.ceil(max(highest, step) / step - 1e-9)

    def across(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / (step * ticks) * (_HEIGHT - _TOP - _BOTTOM)

    for tick in range(ticks + 1):
        y = down(tick * step)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(_LEFT - 8, y + 4, "end", figure(tick * step))
    for x in xs[:: max(1, math.ceil(len(xs) / _MOST_LABELS))]:
        yield _text(across(x), _HEIGHT - _BOTTOM + 20, "middle", figure(x))
    yield _text(_WIDTH - _RIGHT, _HEIGHT - 6, "end", f"{plot.y_name}, by {plot.x_name}")

    # A gap between columns, unless they are too narrow for one.
    width = (_WIDTH - _LEFT - _RIGHT) / len(xs) * (0.8 if len(xs) < 150 else 1.0)
    below = dict.fromkeys(xs, 0.0)
    for one in plot.series:
        if not plot.is_stacked and one.points:
            path = " L".join(f"{across(x):.1f},{down(y):.1f}" for x, y in one.points)
            yield f'<path class="{one.tone}" d="M{path}"/>'
            continue
        for x, y in one.points:
            top, bottom = down(below[x] + y), down(below[x])
            below[x] += y
            yield (
                f'<rect class="{one.tone}" x="{across(x) - width / 2:.1f}" y="{top:.1f}" '
                f'width="{width:.1f}" height="{bottom - top:.1f}"/>'
            )


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _nice(step: float) -> float:
    """Return the next larger number of the form 1, 2 or 5 × 10ⁿ."""
    power = math.pow(10, math.floor(math.log10(step)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))
