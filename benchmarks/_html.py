"""Documents as one HTML file each: style and plots inline, no script, light and dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator

from _document import Document, Section, Table
from _style import STYLE

from fastload.errors import printable
from fastload.system.units import format_figure


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
        yield from plot.lines
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
                width = f"width:{cell / longest:.1%}"
                text = f'<div role="img" aria-label="{format_figure(cell)}" style="{width}"></div>'
            else:
                text = escape(cell)
            yield f'<td class="{column.kind}" data-column="{escape(column.name)}">{text}</td>'
        yield "</tr>"
    yield "</tbody></table>"
    if table.notes:
        yield f"<figcaption>{'<br>'.join(map(escape, table.notes))}</figcaption>"
    yield "</figure>"


def escape(text: str) -> str:
    """Return a text as HTML shows it, as on a terminal: with what is not printable escaped."""
    return html.escape(printable(text))


def svg_text(x: float, y: float, anchor: str, text: str) -> str:
    """Return an SVG element with a text at (x, y)."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
