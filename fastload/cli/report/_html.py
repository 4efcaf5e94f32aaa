"""Documents as one HTML file each: style and plots inline, no script, light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape

from fastload.cli.report._style import STYLE
from fastload.cli.report.document import Document, Plot, Section, Table, figure

# The size and margins of a plot, in pixels.
_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 12, 52
_TICKS = 4
_MOST_LABELS = 8


def to_html(document: Document) -> str:
    """Render a document."""
    title = escape(document.title)
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head>",
        f"<body><main><header><h1>{title}</h1>",
        *(f'<p class="answer">{escape(sentence)}</p>' for sentence in document.answer[:1]),
        *_paragraphs(document.answer[1:]),
        "</header>",
    ]
    for section in document.sections:
        lines += _section(section)
    lines += ["</main><footer>", *_paragraphs(document.footer), "</footer></body></html>"]
    return "\n".join(lines) + "\n"


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    return (f"<p>{escape(text)}</p>" for text in texts)


def _section(section: Section) -> Iterator[str]:
    yield f"<section><h2>{escape(section.title)}</h2>"
    yield from _paragraphs(section.text)
    for plot in section.plots:
        yield from _plot(plot)
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    cells = [cell for row in table.rows for cell in row.cells if isinstance(cell, float)]
    longest = max(cells, default=1.0)
    yield "<figure>"
    if table.title:
        yield f"<h3>{escape(table.title)}</h3>"
    yield "<table><thead><tr>"
    for column in table.columns:
        yield f'<th scope="col" class="{column.kind}">{escape(column.name)}</th>'
    yield "</tr></thead><tbody>"
    for row in table.rows:
        yield f'<tr class="{row.tone}">' if row.tone else "<tr>"
        for cell, column in zip(row.cells, table.columns, strict=True):
            if isinstance(cell, float):
                text = (
                    f'<div role="img" aria-label="{figure(cell)}" style="width:{cell / longest:.1%}"></div>'
                )
            else:
                text = escape(cell)
            yield f'<td class="{column.kind}">{text}</td>'
        yield "</tr>"
    yield "</tbody></table>"
    if table.notes:
        yield f"<figcaption>{'<br>'.join(map(escape, table.notes))}</figcaption>"
    yield "</figure>"


def _plot(plot: Plot) -> Iterator[str]:
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
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
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
