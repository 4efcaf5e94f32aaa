"""A diagnosis as a document and as JSON."""

from __future__ import annotations

import json
import math
import statistics
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from fastload.cli.report.document import Document, Plot, ReportColumn, Section, Series, Table, TableRow
from fastload.doctor.examine import Examination
from fastload.doctor.findings import Diagnosis, TrainingMeasurements
from fastload.doctor.ranks import RankComparison, rank_rows

Parts = Sequence[Examination]
"""Loaders of a script, or splits of a dataset."""

_MOST_COLUMNS = 120


def diagnosis_document(
    title: str, parts: Parts, footer: Sequence[str] = (), ranks: RankComparison | None = None
) -> Document:
    """Return all findings as a document; `footer` tells how the script ended."""
    if not parts:
        return Document(title, tuple(footer), ())
    sections = [] if ranks is None else [_rank_section(ranks)]
    for index, part in enumerate(parts):
        prefix = "" if len(parts) == 1 else f"{part.name}: "
        if index:
            sections.append(Section(part.name, (part.diagnosis.headline,)))
        sections += _sections(prefix, part.diagnosis, part.measured)
    first = parts[0].diagnosis
    answer = [] if ranks is None else [ranks.headline]
    answer += [first.headline, *(f"First: {fix.action}. Gain: {fix.gain_text}." for fix in first.fixes[:1])]
    return Document(title, tuple(answer), tuple(sections), tuple(footer))


def _sections(prefix: str, diagnosis: Diagnosis, measured: TrainingMeasurements) -> Iterator[Section]:
    yield Section(f"{prefix}What to do, in this order", tables=(_fix_table(diagnosis),))
    count = min(len(measured.waits_s), len(measured.steps_s))
    if count > 1:
        # Averages of several steps, if there are many.
        each = -(-count // _MOST_COLUMNS)
        waits, steps = (
            tuple(1e3 * statistics.mean(seconds[begin : begin + each]) for begin in range(0, count, each))
            for seconds in (measured.waits_s[:count], measured.steps_s[:count])
        )
        series = (Series("waiting", waits, "reference"), Series("training", steps, "contender"))
        plot = Plot("Each step: waiting for data, then training", "step", "ms", series, each)
        yield Section(f"{prefix}Time per step", plots=(plot,))
    for heading, sentences in (("Evidence", diagnosis.evidence), ("Doubts", diagnosis.doubts)):
        if sentences:
            yield Section(f"{prefix}{heading}", sentences)
    yield Section(f"{prefix}Limits of this machine", diagnosis.limits or ("None that matters here.",))


def _rank_section(ranks: RankComparison) -> Section:
    heads, *rows = rank_rows(ranks)
    columns = tuple(ReportColumn(head, "text" if head == "machine" else "number") for head in heads)
    table = Table(
        "",
        columns,
        tuple(TableRow(cells, "own" if cells[0] == str(ranks.slowest) else None) for cells in rows),
        ranks.evidence,
    )
    return Section("Mean step of each rank", tables=(table,))


def _fix_table(diagnosis: Diagnosis) -> Table:
    columns = tuple(map(ReportColumn, ("", "what to do", "gain", "why")))
    rows = tuple(
        TableRow((str(number), fix.action, fix.gain_text, fix.why), "own" if number == 1 else None)
        for number, fix in enumerate(diagnosis.fixes, 1)
    )
    return Table("", columns, rows, () if rows else ("No fix would gain 5%.",))


def diagnosis_json(
    title: str,
    parts: Parts,
    notes: Sequence[str] = (),
    tried: Any = None,
    ranks: RankComparison | None = None,
    error: BaseException | None = None,
    conditions: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return all findings and measurements as JSON, with the conditions and a script's exception."""
    is_failure = error is not None and not isinstance(error, SystemExit)
    content: dict[str, Any] = {
        "examined": title,
        **conditions,
        "error": "".join(traceback.format_exception(error)) if is_failure else None,
        "verdict": parts[0].diagnosis.verdict if parts else None,
        "notes": list(notes),
        "parts": [
            {"name": part.name, **asdict(part.diagnosis), "measurements": asdict(part.measured)}
            for part in parts
        ],
    }
    if ranks is not None:
        content["ranks"] = {**asdict(ranks), "headline": ranks.headline, "evidence": ranks.evidence}
    if tried is not None:
        content["tried"] = tried if isinstance(tried, str) else asdict(tried)
    return json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _finite(content: Any) -> Any:
    """Return the content with null for numbers that JSON does not have."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
