"""A diagnosis as a document and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from fastload.cli.report.document import Bar, Column, Document, Plot, Row, Section, Series, Table, figure
from fastload.loader.diagnosis.data import DataMeasurements
from fastload.loader.diagnosis.findings import Diagnosis
from fastload.loader.diagnosis.measurements import Decoding, Measurements, Store

_MOST_COLUMNS = 120


def diagnosis_document(
    title: str,
    parts: Sequence[tuple[str, Diagnosis, Measurements | DataMeasurements]],
    footer: Sequence[str] = (),
) -> Document:
    """Everything that was found, for reading.

    Args:
        title: What was examined.
        parts: For each loader, or each split: its name, the diagnosis, the measurements. The first one's
            verdict is the document's.
        footer: How it came about.
    """
    if not parts:
        return Document(title, ("No loader gave a batch, so there is nothing to say.",), (), tuple(footer))
    sections: list[Section] = []
    for place, (name, diagnosis, measured) in enumerate(parts):
        prefix = "" if len(parts) == 1 else f"{name}: "
        if place:
            sections.append(Section(name, (diagnosis.headline,)))
        sections += _sections(prefix, diagnosis, measured)
    return Document(title, (parts[0][1].headline, *_first_fix(parts[0][1])), tuple(sections), tuple(footer))


def _first_fix(diagnosis: Diagnosis) -> Iterator[str]:
    for fix in diagnosis.fixes[:1]:
        yield f"First: {fix.action}. Predicted gain: {fix.gain_text}."


def _sections(
    prefix: str, diagnosis: Diagnosis, measured: Measurements | DataMeasurements
) -> Iterator[Section]:
    yield Section(f"{prefix}What to do, first things first", tables=(_fix_table(diagnosis),))
    if isinstance(measured, Measurements):
        plots = tuple(_training_plots(measured))
        tables = (_share_table(diagnosis, "Where the time of a sample goes"),)
        yield Section(f"{prefix}Time per step", plots=plots, tables=tables)
    else:
        tables = (_share_table(diagnosis, "What a sample takes, without workers"),)
        yield Section(f"{prefix}Time per sample", tables=tables)
    if len(diagnosis.forecast) > 1:
        yield Section(f"{prefix}Throughput by workers", plots=(_forecast_plot(diagnosis, measured),))
    if measured.store is not None and measured.store.random_per_s > 0:
        yield Section(f"{prefix}The disk", tables=(_disk_table(measured.store),))
    if measured.decoding is not None:
        yield Section(f"{prefix}Decoding", tables=(_decoding_table(measured.decoding),))
    yield Section(f"{prefix}Evidence", diagnosis.evidence)
    limits = diagnosis.limits or ("None that is in the way.",)
    yield Section(f"{prefix}Limits of this machine", limits)


def _fix_table(diagnosis: Diagnosis) -> Table:
    columns = (
        Column("", "number"),
        Column("what to do"),
        Column("gain", "number"),
        Column("why", is_minor=False),
    )
    rows = tuple(
        Row((str(place), fix.action, fix.gain_text, fix.why), "own" if place == 1 else None)
        for place, fix in enumerate(diagnosis.fixes, 1)
    )
    notes = () if rows else ("Nothing that would gain 5%.",)
    return Table("", columns, rows, notes)


def _share_table(diagnosis: Diagnosis, title: str) -> Table:
    columns = (
        Column("part"),
        Column("share", "bars"),
        Column("a sample", "number"),
        Column("of all", "number"),
    )
    all_s = sum(share.seconds for share in diagnosis.shares) or 1.0
    rows = tuple(
        Row(
            (
                share.name,
                Bar(share.seconds, tone="reference" if share.is_waiting else "contender"),
                f"{figure(1e3 * share.seconds)} ms",
                f"{share.seconds / all_s:.0%}",
            )
        )
        for share in diagnosis.shares
    )
    return Table(title, columns, rows)


def _training_plots(measured: Measurements) -> Iterator[Plot]:
    times = measured.times
    count = min(len(times.waits_s), len(times.steps_s))
    if count > 1:
        waits, steps = _thinned(times.waits_s[:count]), _thinned(times.steps_s[:count])
        yield Plot(
            "Each step: waiting for data, then computing",
            "step",
            "ms",
            (Series("waiting", waits, "reference"), Series("computing", steps, "contender")),
            is_stacked=True,
        )
    if len(measured.gpu_busy) > 1:
        points = tuple((0.25 * place, 100 * busy) for place, busy in enumerate(measured.gpu_busy))
        yield Plot("GPU utilisation", "seconds", "%", (Series("GPU", points, "own"),))


def _thinned(seconds: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Milliseconds by step; where there are many, the mean of each few."""
    each = max(1, -(-len(seconds) // _MOST_COLUMNS))
    groups = (seconds[begin : begin + each] for begin in range(0, len(seconds), each))
    return tuple((1.0 + place * each, 1e3 * sum(group) / len(group)) for place, group in enumerate(groups))


def _forecast_plot(diagnosis: Diagnosis, measured: Measurements | DataMeasurements) -> Plot:
    points = tuple((float(one.num_workers), one.samples_per_s) for one in diagnosis.forecast)
    series = [Series("predicted", points, "own")]
    marked = None
    if isinstance(measured, Measurements):
        marked = float(measured.times.num_workers)
        if measured.times.stepping_s > 0:
            most = measured.times.samples / measured.times.stepping_s
            # Far beyond what any number of workers gives, it would flatten everything else.
            if most <= 3 * max(y for _, y in points):
                level = tuple((x, most) for x, _ in points)
                series.append(Series("without waiting", level, "contender"))
    title = "Throughput" if marked is None else "Throughput, the dot being the present"
    return Plot(title, "workers", "samples/s", tuple(series), marked_x=marked)


def _disk_table(store: Store) -> Table:
    columns = (Column("reading"), Column("", "bars"), Column("samples/s", "number"), Column("MB/s", "number"))
    each = store.size_bytes / max(1, store.samples)
    speeds = [
        ("cold, one by one", store.random_per_s),
        ("cold, several at once", store.parallel_per_s),
        ("cold, in order", store.sequential_bytes_per_s / max(1.0, each)),
        ("out of the page cache", store.warm_per_s),
    ]
    if not store.is_cold:
        speeds = [(name.replace("cold, ", ""), speed) for name, speed in speeds]
    rows = tuple(
        Row((name, Bar(speed, tone="contender"), figure(speed), figure(speed * each / 1e6)))
        for name, speed in speeds
        if speed > 0
    )
    notes = (f"{store.kind}.", store.note) if store.note else (f"{store.kind}.",)
    return Table("", columns, rows, notes)


def _decoding_table(decoding: Decoding) -> Table:
    columns = (Column("way"), Column("", "bars"), Column("images/s a core", "number"), Column("KB", "number"))
    rows = tuple(
        Row(
            (
                name,
                Bar(1 / seconds, tone="own" if name in decoding.stored_bytes else "contender"),
                figure(1 / seconds),
                figure(decoding.stored_bytes[name] / 1e3) if name in decoding.stored_bytes else "",
            )
        )
        for name, seconds in decoding.seconds.items()
        if seconds > 0
    )
    return Table("Your own images, whole, on one core", columns, rows)


def diagnosis_json(
    title: str, parts: Sequence[tuple[str, Diagnosis, Measurements | DataMeasurements]]
) -> str:
    """Everything that was found and measured."""
    content: dict[str, Any] = {
        "examined": title,
        "verdict": parts[0][1].verdict if parts else None,
        "parts": [],
    }
    for name, diagnosis, measured in parts:
        content["parts"].append({"name": name, **asdict(diagnosis), "measurements": asdict(measured)})
    return json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n"
