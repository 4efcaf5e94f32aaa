"""Document and JSON of `fastload bench decode`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fastload.bench.results import (
    LEAST_RATIO,
    LEAST_WINS,
    MEAN_LEVELS_OF_CLOSE,
    MOST_LEVELS_OF_EQUAL,
    REFERENCE,
    Comparison,
    DecodeBench,
    Difference,
    ImageSet,
    Likeness,
    Standing,
    standings,
    verdict,
)
from fastload.cli.report._conditions import conditions_line, warning
from fastload.cli.report.document import Document, ReportColumn, Section, Table, TableRow, Tone, figure
from fastload.system.units import format_count, format_size

_SIGNS: dict[Likeness, str] = {"equal": "=", "close": "≈", "other": "≠"}
_TONES: dict[str, Tone] = {"PIL": "reference", "OpenCV": "contender", "fastload": "own"}

_LEGEND = (
    "differs by: the mean, then the largest difference from PIL's pixels, in levels of 255. "
    f"= equal: at most {MOST_LEVELS_OF_EQUAL} levels anywhere. "
    f"≈ close: at most {MEAN_LEVELS_OF_CLOSE:g} level on average. ≠ visibly different."
)
_OVERVIEW_COLUMNS = (
    ReportColumn("operation"),
    ReportColumn("PIL, images/s", "number"),
    ReportColumn("OpenCV, images/s", "number"),
    ReportColumn("OpenCV ÷ PIL", "number"),
    ReportColumn("differs by", "number"),
    ReportColumn("faster"),
)
_COLUMNS = (
    ReportColumn("library"),
    ReportColumn("call"),
    ReportColumn("median run", "bars"),
    ReportColumn("images/s", "number"),
    ReportColumn("slowest–fastest", "number"),
    ReportColumn("× PIL", "number"),
    ReportColumn("differs by", "number"),
)
_LIBRARY_COLUMNS = (ReportColumn("library"), ReportColumn("version"), ReportColumn("JPEG"))


def decoding_document(bench: DecodeBench) -> Document:
    """Return the complete result for reading."""
    groups = itertools.groupby(bench.comparisons, key=lambda comparison: comparison.group)
    overview = Table("", _OVERVIEW_COLUMNS, tuple(map(_overview_row, standings(bench))), (_LEGEND,))
    libraries = (TableRow((each.name, each.version or each.reason, each.jpeg)) for each in bench.libraries)
    conditions = (images_line(bench.images), *bench.images.notes, conditions_line(bench.conditions))
    return Document(
        title="PIL or OpenCV?",
        answer=(*warning(bench.conditions), *verdict(bench)),
        sections=(
            Section("Overview", tables=(overview,)),
            *(Section(name, tables=tuple(map(_comparison_table, found))) for name, found in groups),
            Section(
                "Images, machine and libraries",
                conditions,
                (Table("Libraries", _LIBRARY_COLUMNS, tuple(libraries)),),
            ),
        ),
        footer=tuple(_method_lines(bench)),
    )


def _overview_row(standing: Standing) -> TableRow:
    return TableRow(
        (
            standing.comparison.title,
            figure(standing.pil.images_per_s),
            figure(standing.opencv.images_per_s),
            f"{standing.ratio:.2f} ×",
            difference_text(standing.opencv.difference),
            standing.winner,
        )
    )


def _comparison_table(comparison: Comparison) -> Table:
    reference = comparison.row_of(REFERENCE)
    rows = (
        TableRow(
            (
                row.library,
                row.call,
                row.images_per_s,
                figure(row.images_per_s),
                f"{figure(1 / max(row.seconds))}–{figure(1 / min(row.seconds))}",
                "" if reference is None else f"{row.images_per_s / reference.images_per_s:.2f}",
                "" if row.library == REFERENCE else difference_text(row.difference),
            ),
            _TONES.get(row.library, "other"),
        )
        for row in comparison.rows
    )
    notes = tuple(f"missing: {call}" for call in comparison.missing)
    return Table(comparison.title, _COLUMNS, tuple(rows), notes)


def difference_text(difference: Difference) -> str:
    """Return a difference from PIL with a sign for its meaning: `= 0.06, 1`."""
    return f"{_SIGNS[difference.likeness]} {difference.mean:.2f}, {difference.most:.0f}"


def images_line(images: ImageSet) -> str:
    """Return a sentence on the images."""
    kind = "generated images" if images.available is None else f"of {images.available:,} images"
    formats = ", ".join(f"{count:,} {name}" for name, count in images.formats.items())
    return (
        f"{images.count:,} {kind} ({formats}), {format_size(images.mean_bytes)} and "
        f"{images.mean_width:.0f} × {images.mean_height:.0f} pixels on average."
    )


def _method_lines(bench: DecodeBench) -> Iterator[str]:
    yield (
        f"images/s: the median of {bench.runs} runs, in which all calls take turns. Operations run on one "
        "core and start from pixels in the library's own kind of image; files are in the page cache."
    )
    if bench.workers:
        workers = format_count(bench.workers, "worker process", "worker processes")
        yield (
            f"In a DataLoader: {workers} each; their start is not counted. PIL and OpenCV run in torch's. "
            "Differences are those measured on one core."
        )
    yield (
        f"A library is called faster if its median leads by {LEAST_RATIO - 1:.0%} and it is faster in "
        f"{LEAST_WINS:.0%} of the runs. Of OpenCV's calls, the one most similar to PIL counts."
    )


def decoding_json(bench: DecodeBench) -> str:
    """Return the complete result with the figures of each run and the verdict."""
    content: dict[str, Any] = asdict(bench)
    for comparison, described in zip(bench.comparisons, content["comparisons"], strict=True):
        for row, values in zip(comparison.rows, described["rows"], strict=True):
            values["images_per_s"] = row.images_per_s
            values["likeness"] = row.difference.likeness
    content["verdict"] = verdict(bench)
    content["winners"] = {standing.comparison.key: standing.winner for standing in standings(bench)}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
