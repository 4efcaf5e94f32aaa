"""Plots as inline SVG: lines and stacked columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from fastload.cli.report.document import Plot, Series, figure

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 12, 52
_TICKS = 4
_MOST_LABELS = 8
_DOT_RADIUS = 4.5


def render_plot(plot: Plot) -> Iterator[str]:
    """Render a plot as a figure with its legend."""
    axes = _Axes(plot)
    label = escape(f"{plot.title}: {plot.y_name} by {plot.x_name}")
    yield f"<figure><h3>{escape(plot.title)}</h3>"
    if len(plot.series) > 1:
        keys = (f'<span><i class="{one.tone}"></i>{escape(one.name)}</span>' for one in plot.series)
        yield f'<div class="key">{"".join(keys)}</div>'
    yield f'<svg class="plot" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    yield from axes.render()
    if plot.is_stacked:
        yield from _columns(plot, axes)
    else:
        for place, one in enumerate(plot.series):
            yield from _line(one, None if place else plot.marked_x, axes)
    yield "</svg></figure>"


class _Axes:
    """Scales of a plot, from values to coordinates of its drawing."""

    def __init__(self, plot: Plot) -> None:
        heights: dict[float, float] = {}
        for x, y in (point for one in plot.series for point in one.points):
            heights[x] = heights.get(x, 0.0) + y if plot.is_stacked else max(y, heights.get(x, y))
        self._plot = plot
        self._xs = sorted(heights) or [0.0, 1.0]
        margin = 0.5 if plot.is_stacked else 0.0
        self._low = self._xs[0] - margin
        self._high = max(self._xs[-1] + margin, self._low + 1e-9)
        highest = max(heights.values(), default=1.0)
        self._step = _nice(highest / _TICKS if highest > 0 else 0.25)
        self._top = self._step * math.ceil(max(highest, self._step) / self._step - 1e-9)

    def x(self, value: float) -> float:
        return _LEFT + (value - self._low) / (self._high - self._low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self._top * (_HEIGHT - _TOP - _BOTTOM)

    def render(self) -> Iterator[str]:
        for tick in range(round(self._top / self._step) + 1):
            y = self.y(tick * self._step)
            yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield _text(_LEFT - 8, y + 4, "end", figure(tick * self._step))
        for x in self._xs[:: max(1, math.ceil(len(self._xs) / _MOST_LABELS))]:
            yield _text(self.x(x), _HEIGHT - _BOTTOM + 20, "middle", figure(x))
        yield _text(_WIDTH - _RIGHT, _HEIGHT - 6, "end", f"{self._plot.y_name}, by {self._plot.x_name}")


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(series: Series, marked_x: float | None, axes: _Axes) -> Iterator[str]:
    points = [(axes.x(x), axes.y(y)) for x, y in series.points]
    if not points:
        return
    path = " ".join(f"{'L' if place else 'M'}{x:.1f},{y:.1f}" for place, (x, y) in enumerate(points))
    yield f'<path class="{series.tone}" d="{path}"/>'
    for (x, y), (value, _) in zip(points, series.points, strict=True):
        if value == marked_x:
            yield f'<circle class="{series.tone}" cx="{x:.1f}" cy="{y:.1f}" r="{_DOT_RADIUS}"/>'


def _columns(plot: Plot, axes: _Axes) -> Iterator[str]:
    count = max((len(one.points) for one in plot.series), default=1)
    # A gap between columns, unless they are too narrow for one.
    width = (_WIDTH - _LEFT - _RIGHT) / max(1, count) * (0.8 if count < 150 else 1.0)
    below: dict[float, float] = {}
    for one in plot.series:
        for x, y in one.points:
            base = below.get(x, 0.0)
            below[x] = base + y
            top = axes.y(base + y)
            yield (
                f'<rect class="{one.tone}" x="{axes.x(x) - width / 2:.1f}" y="{top:.1f}" '
                f'width="{width:.1f}" height="{axes.y(base) - top:.1f}"/>'
            )


def _nice(step: float) -> float:
    """Return the next larger number of the form 1, 2 or 5 × 10ⁿ."""
    power = math.pow(10, math.floor(math.log10(step)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))
