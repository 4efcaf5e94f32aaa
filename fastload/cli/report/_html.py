"""Documents as one HTML file each: style and plots inline, no script, light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator

from fastload.cli.report._style import STYLE
from fastload.cli.report.document import Document, Drawing, Plot, Section, Table, figure
from fastload.errors import printable

# The size and margins of a plot, in pixels.
_WIDTH, _HEIGHT = 720, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 34, 52
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
        yield f"<figure><h3>{escape(plot.title)}</h3>"
        yield from plot.lines if isinstance(plot, Drawing) else _plot(plot)
        yield "</figure>"
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
            yield f'<td class="{column.kind}" data-column="{escape(column.name)}">{text}</td>'
        yield "</tr>"
    yield "</tbody></table>"
    if table.notes:
        yield f"<figcaption>{'<br>'.join(map(escape, table.notes))}</figcaption>"
    yield "</figure>"


def _plot(plot: Plot) -> Iterator[str]:
    label = escape(f"{plot.title}: {plot.y_name} by {plot.x_name}")
    keys = (f'<span><i class="{one.tone}"></i>{escape(one.name)}</span>' for one in plot.series)
    yield f'<div class="key">{"".join(keys)}</div>'
    yield f'<svg class="plot" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    yield from _drawing(plot)
    yield "</svg>"


def _drawing(plot: Plot) -> Iterator[str]:
    totals = [sum(values) for values in zip(*(one.values for one in plot.series), strict=True)]
    step = _nice(max(*totals, 1e-9) / _TICKS)
    ticks = max(1, math.ceil(max(totals) / step - 1e-9))
    bottom, width = _HEIGHT - _BOTTOM, (_WIDTH - _LEFT - _RIGHT) / len(totals)
    scale = (bottom - _TOP) / (step * ticks)
    for tick in range(ticks + 1):
        y = bottom - tick * step * scale
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield svg_text(_LEFT - 8, y + 5, "end", figure(tick * step))
    for index in range(0, len(totals), math.ceil(len(totals) / _MOST_LABELS)):
        x = _LEFT + (index + 0.5) * width
        yield svg_text(x, bottom + 20, "middle", figure(1 + index * plot.x_step))
    yield svg_text(0, 16, "start", plot.y_name)
    yield svg_text(_WIDTH - _RIGHT, _HEIGHT - 6, "end", plot.x_name)
    tops = [0.0] * len(totals)
    for one in plot.series:
        for index, value in enumerate(one.values):
            tops[index] += value
            x, y = _LEFT + (index + 0.1) * width, bottom - tops[index] * scale
            yield (
                f'<rect class="{one.tone}" x="{x:.1f}" y="{y:.1f}" width="{0.8 * width:.1f}" '
                f'height="{value * scale:.1f}"/>'
            )


def _nice(step: float) -> float:
    """Return the next larger number of the form 1, 2 or 5 × 10ⁿ."""
    power = math.pow(10, math.floor(math.log10(step)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))


def escape(text: str) -> str:
    """Return a text as HTML shows it, as on a terminal: with what is not printable escaped."""
    return html.escape(printable(text))


def svg_text(x: float, y: float, anchor: str, text: str) -> str:
    """Return an SVG element with a text at (x, y)."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
