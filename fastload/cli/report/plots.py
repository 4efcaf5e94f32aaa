"""Plots as inline SVG: lines, and columns that stand on each other."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator

from fastload.cli.report.document import Plot, Series, figure

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 12, 52
_TICKS = 4
_DOT = 4.5


def plotted(plot: Plot) -> Iterator[str]:
    """Renders a plot as a figure with its key."""
    frame = _Frame(plot)
    label = html.escape(f"{plot.title}: {plot.y_name} by {plot.x_name}", quote=True)
    yield f"<figure><h3>{html.escape(plot.title)}</h3>"
    if len(plot.series) > 1:
        keys = "".join(
            f'<span><i class="{one.tone}"></i>{html.escape(one.name)}</span>' for one in plot.series
        )
        yield f'<div class="key">{keys}</div>'
    yield f'<svg class="plot" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    yield from frame.axes()
    if plot.is_stacked:
        yield from _columns(plot, frame)
    else:
        for place, one in enumerate(plot.series):
            yield from _line(one, None if place else plot.marked_x, frame)
    yield "</svg></figure>"


class _Frame:
    """Where a plot's values lie in its picture."""

    def __init__(self, plot: Plot) -> None:
        xs = [x for one in plot.series for x, _ in one.points] or [0.0, 1.0]
        tops = [y for one in plot.series for _, y in one.points] or [1.0]
        if plot.is_stacked:
            columns: dict[float, float] = {}
            for one in plot.series:
                for x, y in one.points:
                    columns[x] = columns.get(x, 0.0) + y
            tops = list(columns.values()) or [1.0]
        margin = 0.5 if plot.is_stacked else 0.0
        self._plot = plot
        self._low, self._high = min(xs) - margin, max(max(xs) + margin, min(xs) - margin + 1e-9)
        self._step = _nice(max(tops) / _TICKS if max(tops) > 0 else 0.25)
        self._top = self._step * math.ceil(max(*tops, self._step) / self._step - 1e-9)

    def x(self, value: float) -> float:
        """How far to the right, in the picture's units."""
        return _LEFT + (value - self._low) / (self._high - self._low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """How far down."""
        return _HEIGHT - _BOTTOM - value / self._top * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self) -> Iterator[str]:
        """Lines and figures."""
        for tick in range(round(self._top / self._step) + 1):
            value = tick * self._step
            y = self.y(value)
            yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{figure(value)}</text>'
        places = sorted({x for one in self._plot.series for x, _ in one.points})
        for x in _labelled(places):
            yield (
                f'<text x="{self.x(x):.1f}" y="{_HEIGHT - _BOTTOM + 20}" '
                f'text-anchor="middle">{figure(x)}</text>'
            )
        names = html.escape(f"{self._plot.y_name}, by {self._plot.x_name}")
        yield f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{names}</text>'


def _line(series: Series, marked_x: float | None, frame: _Frame) -> Iterator[str]:
    points = [(frame.x(x), frame.y(y)) for x, y in series.points]
    if not points:
        return
    path = " ".join(f"{'L' if place else 'M'}{x:.1f},{y:.1f}" for place, (x, y) in enumerate(points))
    yield f'<path class="{series.tone}" d="{path}"/>'
    for (x, y), (value, _) in zip(points, series.points, strict=True):
        if value == marked_x:
            yield f'<circle class="{series.tone}" cx="{x:.1f}" cy="{y:.1f}" r="{_DOT}"/>'


def _columns(plot: Plot, frame: _Frame) -> Iterator[str]:
    count = max((len(one.points) for one in plot.series), default=1)
    # A gap between columns, until they are too narrow for one.
    width = (_WIDTH - _LEFT - _RIGHT) / max(1, count) * (0.8 if count < 150 else 1.0)
    below: dict[float, float] = {}
    for one in plot.series:
        for x, y in one.points:
            base = below.get(x, 0.0)
            below[x] = base + y
            top = frame.y(base + y)
            yield (
                f'<rect class="{one.tone}" x="{frame.x(x) - width / 2:.1f}" y="{top:.1f}" '
                f'width="{width:.1f}" height="{frame.y(base) - top:.1f}"/>'
            )


def _labelled(places: list[float]) -> list[float]:
    """Those that get a figure: at most eight, evenly spaced."""
    step = max(1, math.ceil(len(places) / 8))
    return places[::step]


def _nice(step: float) -> float:
    """The next larger 1, 2 or 5 with zeros."""
    power = math.pow(10, math.floor(math.log10(step)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))
