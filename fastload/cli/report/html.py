"""A document as one HTML file: its style and its plots within it, no script, light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from fastload.cli.report.document import Bar, Cell, Column, Document, Row, Section, Table, figure
from fastload.cli.report.plots import plotted
from fastload.cli.report.style import STYLE

_HEIGHT, _THICKNESS = 18, 10  # of a bar's picture and of the bar, in pixels
_CAP = 6  # a whisker's end


def to_html(document: Document) -> str:
    """Renders a document."""
    title = _escaped(document.title)
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head>",
        f"<body><main><header><h1>{title}</h1>",
        *_answer(document.answer),
        "</header>",
    ]
    for section in document.sections:
        lines += _section(section)
    lines += ["</main><footer>", *_paragraphs(document.footer), "</footer></body></html>"]
    return "\n".join(lines) + "\n"


def _answer(answer: Sequence[str]) -> Iterator[str]:
    for place, sentence in enumerate(answer):
        yield f'<p class="answer">{_escaped(sentence)}</p>' if place == 0 else f"<p>{_escaped(sentence)}</p>"


def _paragraphs(texts: Sequence[str]) -> Iterator[str]:
    return (f"<p>{_escaped(text)}</p>" for text in texts)


def _section(section: Section) -> Iterator[str]:
    yield f"<section><h2>{_escaped(section.title)}</h2>"
    yield from _paragraphs(section.text)
    for plot in section.plots:
        yield from plotted(plot)
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    scales = [_scale(table.rows, place, column) for place, column in enumerate(table.columns)]
    yield "<figure>"
    if table.title:
        yield f"<h3>{_escaped(table.title)}</h3>"
    yield "<table><thead><tr>"
    yield from (
        f'<th scope="col" class="{_kind(column)}">{_escaped(column.name)}</th>' for column in table.columns
    )
    yield "</tr></thead><tbody>"
    for row in table.rows:
        yield f'<tr class="{row.tone}">' if row.tone else "<tr>"
        for cell, column, scale in zip(row.cells, table.columns, scales, strict=True):
            name = f' data-name="{_escaped(column.name)}"' if column.kind == "number" and cell else ""
            yield f'<td class="{_kind(column)}"{name}>{_cell(cell, column, scale)}</td>'
        yield "</tr>"
    yield "</tbody></table>"
    if table.notes:
        yield f"<figcaption>{'<br>'.join(_escaped(note) for note in table.notes)}</figcaption>"
    yield "</figure>"


def _kind(column: Column) -> str:
    return f"{column.kind} minor" if column.is_minor else column.kind


def _scale(rows: Sequence[Row], place: int, column: Column) -> float:
    """What the whole width stands for; half of it where bars go both ways."""
    bars = [cell for row in rows if isinstance(cell := row.cells[place], Bar)]
    if column.kind == "ratios":
        return max((abs(math.log(bar.value)) for bar in bars), default=0.0) or 1.0
    return max((max(bar.value, bar.high or 0.0) for bar in bars), default=0.0) or 1.0


def _cell(cell: Cell, column: Column, scale: float) -> str:
    if isinstance(cell, Bar):
        return _ratio(cell, scale) if column.kind == "ratios" else _bar(cell, scale)
    return _escaped(cell or "")


def _bar(bar: Bar, scale: float) -> str:
    shapes = [_rectangle(0, 100 * bar.value / scale, bar)]
    if bar.low is not None and bar.high is not None:
        low, high = 100 * bar.low / scale, 100 * bar.high / scale
        middle, top, bottom = _HEIGHT / 2, (_HEIGHT - _CAP) / 2, (_HEIGHT + _CAP) / 2
        shapes += [
            _line(low, high, middle, middle),
            _line(low, low, top, bottom),
            _line(high, high, top, bottom),
        ]
    return _picture(figure(bar.value), shapes)


def _ratio(bar: Bar, scale: float) -> str:
    share = 50 * math.log(bar.value) / scale
    shapes = [_rectangle(min(50, 50 + share), abs(share), bar), _line(50, 50, 0, _HEIGHT)]
    return _picture(f"{bar.value:.2f} ×", shapes)


def _picture(label: str, shapes: Sequence[str]) -> str:
    opening = f'<svg role="img" aria-label="{_escaped(label)}" width="100%" height="{_HEIGHT}">'
    return f"{opening}{''.join(shapes)}</svg>"


def _rectangle(left: float, width: float, bar: Bar) -> str:
    top = (_HEIGHT - _THICKNESS) / 2
    return (
        f'<rect class="{bar.tone}" x="{left:.2f}%" y="{top:g}" width="{width:.2f}%" '
        f'height="{_THICKNESS}" rx="2"/>'
    )


def _line(x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line x1="{x1:.2f}%" x2="{x2:.2f}%" y1="{y1:g}" y2="{y2:g}"/>'


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
