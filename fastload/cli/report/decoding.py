"""What `fastload bench decode` found, as a document and as JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from fastload.bench.result import (
    MEAN_LEVELS_OF_CLOSE,
    MOST_LEVELS_OF_EQUAL,
    Comparison,
    DecodeBench,
    Difference,
    Library,
    Likeness,
    Pictures,
)
from fastload.bench.result import Row as Measured
from fastload.bench.verdict import (
    LEAST_RATIO,
    LEAST_WINS,
    REFERENCE,
    Standing,
    fastest_equal,
    most_alike,
    standings,
    verdict,
)
from fastload.cli.report.document import Bar, Cell, Column, Document, Row, Section, Table, Tone, figure
from fastload.system.units import size

TITLE = "PIL or OpenCV?"

SIGNS: dict[Likeness, str] = {"equal": "=", "close": "≈", "other": "≠"}
"""What stands before a difference."""

_TONES: dict[str, Tone] = {"PIL": "reference", "OpenCV": "contender", "fastload": "own"}

_COLUMNS = (
    Column("library"),
    Column("how"),
    Column("median run, slowest to fastest", "bars"),
    Column("images/s", "number"),
    Column("slowest–fastest", "number", is_minor=True),
    Column("× PIL", "number"),
    Column("differs by", "number"),
)


def decoding_document(bench: DecodeBench) -> Document:
    """Everything that was found, for reading."""
    groups = itertools.groupby(bench.comparisons, key=lambda comparison: comparison.group)
    details = (
        Section(name, tables=tuple(comparison_table(comparison) for comparison in found))
        for name, found in groups
    )
    return Document(
        title=TITLE,
        answer=tuple(verdict(bench)),
        sections=(
            Section("At a glance", tables=(overview_table(bench),)),
            *details,
            Section(
                "What was measured, on what", tuple(setting_lines(bench)), (library_table(bench.libraries),)
            ),
        ),
        footer=tuple(method_lines(bench)),
    )


def overview_table(bench: DecodeBench) -> Table:
    """One line for each operation that both PIL and OpenCV do."""
    columns = (
        Column("operation"),
        Column("PIL, images/s", "number", is_minor=True),
        Column("OpenCV, images/s", "number", is_minor=True),
        Column("← PIL faster · OpenCV faster →", "ratios"),
        Column("OpenCV ÷ PIL", "number"),
        Column("differs by", "number"),
        Column("faster", is_minor=True),
        Column("fastest with PIL's picture", is_minor=True),
    )
    return Table("", columns, tuple(_overview_row(standing) for standing in standings(bench)), _signs())


def _overview_row(standing: Standing) -> Row:
    reference, contender, comparison = standing.reference, standing.contender, standing.comparison
    best = fastest_equal(comparison)
    tone: Tone = {"PIL": "reference", "OpenCV": "contender"}.get(standing.winner, "other")  # type: ignore[assignment]
    return Row(
        (
            _titled(comparison),
            figure(reference.images_per_s),
            figure(contender.images_per_s),
            Bar(standing.ratio, tone=tone),
            f"{standing.ratio:.2f} ×",
            difference_text(contender.difference),
            standing.winner,
            "" if best is None else f"{best.library}, {best.images_per_s / reference.images_per_s:.1f} ×",
        )
    )


def _titled(comparison: Comparison) -> str:
    is_loaded = "DataLoader" in comparison.group
    return f"{comparison.title}, in a DataLoader" if is_loaded else comparison.title


def comparison_table(comparison: Comparison) -> Table:
    """An operation: a line for each way, PIL's first."""
    reference = most_alike(comparison, REFERENCE)
    rows = tuple(Row(tuple(_cells(row, reference)), tone_of(row.library)) for row in comparison.rows)
    notes = tuple(f"{m.library}, {m.call}, is missing: {m.reason}" for m in comparison.missing)
    return Table(comparison.title, _COLUMNS, rows, notes)


def _cells(row: Measured, reference: Measured | None) -> Iterator[Cell]:
    yield row.library
    yield row.call
    yield Bar(row.images_per_s, row.slowest, row.fastest, tone_of(row.library))
    yield figure(row.images_per_s)
    yield f"{figure(row.slowest)}–{figure(row.fastest)}"
    yield "" if reference is None else f"{row.images_per_s / reference.images_per_s:.2f}"
    yield "" if row.library == REFERENCE else difference_text(row.difference)


def tone_of(library: str) -> Tone:
    """The colour of a library."""
    return _TONES.get(library, "other")


def difference_text(difference: Difference | None) -> str:
    """A difference from PIL, with a sign for what it means: `= 0.06, 1`."""
    if difference is None:
        return "?"
    return f"{SIGNS[difference.likeness]} {difference.mean:.2f}, {difference.most:.0f}"


def library_table(libraries: Sequence[Library]) -> Table:
    """Versions, JPEG libraries and vector instructions."""
    columns = (Column("library"), Column("version"), Column("JPEG"), Column("SIMD"))
    rows = (
        Row(
            (library.name, library.version or library.reason, library.jpeg, library.simd),
            tone_of(library.name),
        )
        for library in libraries
    )
    return Table("Libraries", columns, tuple(rows))


def setting_lines(bench: DecodeBench) -> Iterator[str]:
    """The images and the machine."""
    yield pictures_line(bench.pictures)
    yield from bench.pictures.notes
    cpus = "1 usable CPU" if bench.usable_cpus == 1 else f"{bench.usable_cpus} usable CPUs"
    yield f"{bench.processor}, {cpus}, {bench.system}, Python {bench.python}."


def pictures_line(pictures: Pictures) -> str:
    """What was decoded, in one sentence."""
    kind = "made images" if pictures.available is None else f"of {pictures.available:,} images"
    formats = ", ".join(f"{count:,} {name}" for name, count in pictures.formats.items())
    return (
        f"{pictures.count:,} {kind} ({formats}), {size(pictures.mean_bytes)} and "
        f"{pictures.mean_width:.0f} × {pictures.mean_height:.0f} pixels on average; crops of "
        f"{pictures.side} × {pictures.side}."
    )


def method_lines(bench: DecodeBench) -> Iterator[str]:
    """How the figures came about."""
    yield (
        f"images/s: the median of {bench.runs} runs, in which all sides take turns; a whisker goes from the "
        "slowest run to the fastest. Operations run on one core and start from pixels in the library's own "
        "kind of image; files are in the page cache."
    )
    if bench.workers:
        yield (
            f"In a DataLoader: {bench.workers} worker processes and {bench.loader_runs} runs, from files to "
            "batches of normalised floats; the start of the workers is not counted. Differences are those of "
            "one core."
        )
    yield (
        f"Of two libraries one is called faster if its median leads by {LEAST_RATIO - 1:.0%} and it is "
        f"faster in {LEAST_WINS:.0%} of the runs. Of OpenCV's ways the one whose picture is most like PIL's "
        "counts."
    )


def _signs() -> tuple[str, ...]:
    return (
        "differs by: the mean, then the largest difference from PIL's pixels, in levels of 255. "
        f"= equal: at most {MOST_LEVELS_OF_EQUAL} levels anywhere. "
        f"≈ close: at most {MEAN_LEVELS_OF_CLOSE:g} level on average. ≠ another picture.",
    )


def decoding_json(bench: DecodeBench) -> str:
    """Everything that was found, each run's figures and what is derived from them."""
    content: dict[str, Any] = asdict(bench)
    for comparison, told in zip(bench.comparisons, content["comparisons"], strict=True):
        for row, values in zip(comparison.rows, told["rows"], strict=True):
            values["images_per_s"] = row.images_per_s
            values["likeness"] = row.difference.likeness if row.difference else None
    content["verdict"] = verdict(bench)
    content["winners"] = {standing.comparison.key: standing.winner for standing in standings(bench)}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
