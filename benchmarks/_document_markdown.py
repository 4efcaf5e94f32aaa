"""Documents as Markdown, readable as plain text too; bars and plots are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from _document import Document, Section, Table

from fastload.errors import printable

_SPECIAL = re.compile(r"([\\`*<>\[\]|])")


def to_markdown(document: Document) -> str:
    """Render a document; its tables are GitHub's, with aligned columns."""
    answer = [_escape(sentence) for sentence in document.answer]
    answer[:1] = [f"**{sentence}**" for sentence in answer[:1]]
    parts = [f"# {_escape(document.title)}", *answer]
    for section in document.sections:
        parts += _section(section)
    parts += map(_escape, document.footer)
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield f"## {_escape(section.title)}"
    yield from map(_escape, section.text)
    for table in section.tables:
        if table.title:
            yield f"### {_escape(table.title)}"
        yield _table(table)
        yield from map(_escape, table.notes)


def _table(table: Table) -> str:
    columns = []
    for index, column in enumerate(table.columns):
        if column.kind == "bars":
            continue
        cells = [_escape(column.name), *(_escape(str(row.cells[index])) for row in table.rows)]
        width = max(3, *map(len, cells))
        if column.kind == "number":
            columns.append([cell.rjust(width) for cell in cells])
            columns[-1].insert(1, f"{'-' * (width - 1)}:")
        else:
            columns.append([cell.ljust(width) for cell in cells])
            columns[-1].insert(1, "-" * width)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True))


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(" ".join(text.split())))
