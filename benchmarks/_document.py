"""Contents of a report: sections, tables, plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone = Literal["reference", "contender", "own", "other"]
"""Colour of a row and its bar: the baseline, its competitor, fastload, all others."""

Cell: TypeAlias = "str | float"


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a table: texts, or numbers as text, or floats that are drawn as bars on one scale."""

    name: str
    kind: Literal["text", "number", "bars"] = "text"


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table with one cell for each column."""

    cells: tuple[Cell, ...]
    tone: Tone | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table with notes below it."""

    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a plot."""

    name: str
    values: tuple[float, ...]
    tone: Tone = "other"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plot that is drawn already: lines of HTML with every text escaped; left out of plain text."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document: paragraphs, then plots, then tables."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Drawing, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A report; the most important sentence of `answer` comes first, `footer` describes the method."""

    title: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]
    footer: tuple[str, ...] = ()
