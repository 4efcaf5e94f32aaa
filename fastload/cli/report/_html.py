"""Documents as one HTML file each: style and plots inline, no script, light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from fastload.cli.report._plots import render_plot
from fastload.cli.report._style import STYLE
from fastload.cli.report.document import Bar, Cell, Document, ReportColumn, Row, Section, Table, figure

_HEIGHT, _THICKNESS = 18, 10  # of a bar's drawing and of the bar, in pixels
_CAP = 6  # height of a whisker's end, in pixels


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
        yield from render_plot(plot)
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    scales = [_scale(table.rows, place, column) for place, column in enumerate(table.columns)]
    classes = [f"{column.kind} minor" if column.is_minor else column.kind for column in table.columns]
    yield "<figure>"
    if table.title:
        yield f"<h3>{escape(table.title)}</h3>"
    yield "<table><thead><tr>"
    for column, name in zip(table.columns, classes, strict=True):
        yield f'<th scope="col" class="{name}">{escape(column.name)}</th>'
    yield "</tr></thead><tbody>"
    for row in table.rows:
        yield f'<tr class="{row.tone}">' if row.tone else "<tr>"
        for cell, column, scale, name in zip(row.cells, table.columns, scales, classes, strict=True):
            label = f' data-name="{escape(column.name)}"' if column.kind == "number" and cell else ""
            yield f'<td class="{name}"{label}>{_cell(cell, column, scale)}</td>'
        yield "</tr>"
    yield "</tbody></table>"
    if table.notes:
        yield f"<figcaption>{'<br>'.join(map(escape, table.notes))}</figcaption>"
    yield "</figure>"


def _scale(rows: Sequence[Row], place: int, column: ReportColumn) -> float:
    """Return the value of a column's full width; of half of it for ratios."""
    bars = [cell for row in rows if isinstance(cell := row.cells[place], Bar)]
    if column.kind == "ratios":
        return max((abs(math.log(bar.value)) for bar in bars), default=0.0) or 1.0
    return max((max(bar.value, bar.high or 0.0) for bar in bars), default=0.0) or 1.0


def _cell(cell: Cell, column: ReportColumn, scale: float) -> str:
    if not isinstance(cell, Bar):
        return escape(cell or "")
    if column.kind == "ratios":
        share = 50 * math.log(cell.value) / scale
        shapes = [_rectangle(min(50, 50 + share), abs(share), cell), _line(50, 50, 0, _HEIGHT)]
        return _svg(f"{cell.value:.2f} ×", shapes)
    shapes = [_rectangle(0, 100 * cell.value / scale, cell)]
    if cell.low is not None and cell.high is not None:
        low, high = 100 * cell.low / scale, 100 * cell.high / scale
        middle, top, bottom = _HEIGHT / 2, (_HEIGHT - _CAP) / 2, (_HEIGHT + _CAP) / 2
        shapes += [
            _line(low, high, middle, middle),
            _line(low, low, top, bottom),
            _line(high, high, top, bottom),
        ]
    return _svg(figure(cell.value), shapes)


def _svg(label: str, shapes: Sequence[str]) -> str:
    opening = f'<svg role="img" aria-label="{escape(label)}" width="100%" height="{_HEIGHT}">'
    return f"{opening}{''.join(shapes)}</svg>"


def _rectangle(left: float, width: float, bar: Bar) -> str:
    top = (_HEIGHT - _THICKNESS) / 2
    return (
        f'<rect class="{bar.tone}" x="{left:.2f}%" y="{top:g}" width="{width:.2f}%" '
        f'height="{_THICKNESS}" rx="2"/>'
    )


def _line(x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line x1="{x1:.2f}%" x2="{x2:.2f}%" y1="{y1:g}" y2="{y2:g}"/>'
