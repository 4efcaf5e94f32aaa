"""A document as Markdown: GitHub's tables; bars are left out, since their figures stand beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fastload.cli.report.document import Document, Row, Section, Table

_SPECIAL = re.compile(r"([\\`*<>\[\]|])")


def to_markdown(document: Document) -> str:
    """Renders a document."""
    parts = [f"# {_escaped(document.title)}", *_first_bold(document.answer)]
    for section in document.sections:
        parts += _section(section)
    parts += [_escaped(line) for line in document.footer]
    return "\n\n".join(parts) + "\n"


def _first_bold(answer: Sequence[str]) -> Iterator[str]:
    for place, sentence in enumerate(answer):
        yield f"**{_escaped(sentence)}**" if place == 0 else _escaped(sentence)


def _section(section: Section) -> Iterator[str]:
    yield f"## {_escaped(section.title)}"
    yield from (_escaped(paragraph) for paragraph in section.text)
    for table in section.tables:
        if table.title:
            yield f"### {_escaped(table.title)}"
        yield _table(table)
        yield from (_escaped(note) for note in table.notes)


def _table(table: Table) -> str:
    shown = [place for place, column in enumerate(table.columns) if column.kind in ("text", "number")]
    names = (_escaped(table.columns[place].name) for place in shown)
    rules = ("--:" if table.columns[place].kind == "number" else "---" for place in shown)
    lines = [f"| {' | '.join(names)} |", f"|{'|'.join(rules)}|"]
    return "\n".join([*lines, *(_row(row, shown) for row in table.rows)])


def _row(row: Row, shown: Sequence[int]) -> str:
    cells = (row.cells[place] for place in shown)
    return f"| {' | '.join(_escaped(cell) if isinstance(cell, str) else '' for cell in cells)} |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
