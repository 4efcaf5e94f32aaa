"""Documents as Markdown: bars and plots are left out, their figures stand in the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fastload.cli.report.document import Document, Section, Table

_SPECIAL = re.compile(r"([\\`*<>\[\]|])")


def to_markdown(document: Document) -> str:
    """Render a document; its tables are GitHub's."""
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
    shown = [place for place, column in enumerate(table.columns) if column.kind in ("text", "number")]
    columns = [table.columns[place] for place in shown]
    rules = ("--:" if column.kind == "number" else "---" for column in columns)
    lines = [f"| {' | '.join(_escape(column.name) for column in columns)} |", f"|{'|'.join(rules)}|"]
    for row in table.rows:
        cells = (row.cells[place] for place in shown)
        lines.append(f"| {' | '.join(_escape(cell) if isinstance(cell, str) else '' for cell in cells)} |")
    return "\n".join(lines)


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
