"""What a report is made of: sections, tables, and bars in their cells; data only, nothing rendered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone = Literal["reference", "contender", "own", "other"]
"""The colour of a row and its bar: what others are compared with, what is compared, ours, the rest."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that is drawn.

    Attributes:
        value: Its length; in a column of ratios, the ratio.
        low: Where its whisker begins; None for none.
        high: Where it ends.
        tone: Its colour.
    """

    value: float
    low: float | None = None
    high: float | None = None
    tone: Tone = "other"


Cell: TypeAlias = "str | Bar | None"
"""Text, a bar, or nothing."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading.
        kind: `text`; `number`, aligned to the right; `bars`, from 0 to the largest; or `ratios`, bars to the
            left of the middle below 1 and to the right above, on a logarithmic scale.
        is_minor: Whether it is left out where there is little room.
    """

    name: str
    kind: Literal["text", "number", "bars", "ratios"] = "text"
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Attributes:
        cells: One a column.
        tone: Its colour.
    """

    cells: tuple[Cell, ...]
    tone: Tone | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        title: What it shows.
        columns: Its columns.
        rows: Its rows.
        notes: What is said below it.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """What a plot shows of one thing.

    Attributes:
        name: What it is.
        points: (x, y), in the order of x.
        tone: Its colour.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    tone: Tone = "other"


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of numbers; where a document is text alone, it is left out.

    Attributes:
        title: What it shows.
        x_name: What is to the right.
        y_name: What is up, with its unit.
        series: What is drawn, in the order in which it is stacked.
        is_stacked: Whether each series stands on the one before, as columns, one for each x; else they are
        lines.
        marked_x: Where the first line is marked; None for nowhere.
    """

    title: str
    x_name: str
    y_name: str
    series: tuple[Series, ...]
    is_stacked: bool = False
    marked_x: float | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document.

    Attributes:
        title: Its heading.
        text: Its paragraphs.
        tables: Below them.
        plots: Above the tables.
    """

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A report.

    Attributes:
        title: Its heading; a question where it has an answer.
        answer: The answer, the most important sentence first.
        sections: Its parts.
        footer: How it came about.
    """

    title: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]
    footer: tuple[str, ...] = ()


def figure(value: float) -> str:
    """Three digits, thousands set apart: `0.123`, `12.3`, `1,230`, `12,300`."""
    if value < 100:
        return f"{value:.3g}"
    rounded = round(value, 3 - len(str(int(value))))
    return f"{int(rounded):,}"
