"""Document and JSON of compare_loaders.py."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from _conditions import conditions_line, warning
from _document import (
    Document,
    ReportColumn,
    Section,
    Series,
    Table,
    TableRow,
    Tone,
)
from _line_plot import LinePlot, drawing
from _loading_results import PAGE_CACHE, LoadBench, SettingResult, SideResult
from _sides import FILES, PIL, SYNTHETIC

from fastload.system.units import format_count, format_figure, format_size

_COLUMNS = (
    ReportColumn("loader"),
    ReportColumn("median turn", "bars"),
    ReportColumn("images/s", "number"),
    ReportColumn("slowest–fastest", "number"),
    ReportColumn("× the first", "number"),
    ReportColumn("opened in", "number"),
    ReportColumn("first batch", "number"),
    ReportColumn("CPU s per 1000", "number"),
    ReportColumn("memory", "number"),
    ReportColumn("stored", "number"),
    ReportColumn("written in", "number"),
)
_WAIT = ReportColumn("device waits", "number")


def loading_document(bench: LoadBench) -> Document:
    """Return the complete result for reading."""
    feeds = bench.device is not None
    title = "How long does the device wait?" if feeds else "How many images a second reach the training loop?"
    plots = tuple(_plots(bench))
    # States of the page cache are not numbers: a line between them would mean nothing.
    drawn = tuple(drawing(plot) for plot in plots if plot.x_name != PAGE_CACHE)
    sections = [Section("Scaling", tables=tuple(map(_plot_table, plots)), plots=drawn)] if plots else []
    sections += [
        Section(_setting_title(bench, result), tables=(_table(bench, result),)) for result in bench.settings
    ]
    answer = (*warning(bench.conditions), *_answer(bench))
    return Document(title, answer, tuple(sections), tuple(_method_lines(bench)))


def waiting_share(result: SettingResult, side: SideResult) -> float | None:
    """Return the share of the time that the device waited for a loader; None if that is not known."""
    alone = result.side(SYNTHETIC)
    return None if alone is None else max(0.0, 1 - side.images_per_s / alone.images_per_s)


def _answer(bench: LoadBench) -> Iterator[str]:
    """Yield the results of the first setting in sentences, fastload's losses among them."""
    result = bench.settings[0]
    loaders = sorted(
        (side for side in result.sides if side.name != SYNTHETIC), key=lambda side: -side.images_per_s
    )
    if not loaders:
        yield "No loader could be measured here."
        return
    best, reference, from_files = loaders[0], result.side(PIL), result.side(FILES)
    ratio = "" if reference is None or reference is best else f", {_ratio(best, reference)} × {PIL}"
    yield f"The fastest here is {best.name}: {format_figure(best.images_per_s)} images/s{ratio}."
    if from_files is not None:
        faster = [
            f"{side.name} ({_ratio(side, from_files)} ×)"
            for side in loaders
            if "fastload" not in side.name and side.images_per_s > from_files.images_per_s
        ]
        yield f"Faster than {FILES}: {'; '.join(faster) or 'no other library'}."
    share = waiting_share(result, best)
    if share is not None:
        yield f"Fed by {best.name}, the device waits {share:.0%} of the time."


def _ratio(side: SideResult, other: SideResult) -> str:
    return f"{side.images_per_s / other.images_per_s:.2f}"


def _table(bench: LoadBench, result: SettingResult) -> Table:
    rows = tuple(TableRow(tuple(_cells(bench, result, side)), _tone(side.name)) for side in result.sides)
    columns = _COLUMNS if bench.device is None else (*_COLUMNS[:3], _WAIT, *_COLUMNS[3:])
    notes = [f"missing: {missing.name}: {missing.reason}" for missing in result.missing]
    cached = {
        side.name: max(turn.cached or 0.0 for turn in side.turns)
        for side in result.sides
        if any(turn.cached is not None for turn in side.turns)
    }
    if cached:
        shares = "; ".join(f"{name} {share:.0%}" for name, share in cached.items())
        notes.append(f"Stored bytes that were still in the page cache when a turn began, at most: {shares}.")
    return Table("", columns, rows, tuple(notes))


def _cells(bench: LoadBench, result: SettingResult, side: SideResult) -> Iterator[str | float]:
    yield side.name
    yield side.images_per_s
    yield format_figure(side.images_per_s)
    if bench.device is not None:
        share = waiting_share(result, side)
        yield "" if share is None else f"{share:.0%}"
    yield f"{format_figure(min(side.rates))}–{format_figure(max(side.rates))}"
    yield _ratio(side, result.sides[0])
    yield f"{format_figure(side.open_s)} s"
    yield f"{format_figure(side.first_batch_s)} s"
    yield format_figure(side.cpu_s_per_1000)
    yield format_size(side.memory_bytes)
    yield format_size(side.stored_bytes)
    yield "" if side.write_s is None else f"{format_figure(side.write_s)} s"


def _tone(name: str) -> Tone:
    if name in (PIL, SYNTHETIC):
        return "reference"
    return "own" if name.startswith("fastload") else "other"


def _axes(bench: LoadBench) -> list[str]:
    """Return the conditions that have several values."""
    settings = [result.setting.values() for result in bench.settings]
    return [name for name in settings[0] if len({values[name] for values in settings}) > 1]


def _setting_title(bench: LoadBench, result: SettingResult) -> str:
    setting = result.setting
    side = "" if setting.shorter_side is None else f" of {setting.shorter_side} pixels"
    return (
        f"{setting.images:,} images{side}, {format_size(result.image_bytes)} each, "
        f"{format_count(setting.workers, 'worker')}, {setting.cache} page cache"
    )


def _plots(bench: LoadBench) -> Iterator[LinePlot]:
    """Yield a plot for each axis, with the other conditions as in the first setting."""
    first = bench.settings[0].setting.values()
    for axis in _axes(bench):
        along = [
            result
            for result in bench.settings
            if all(value == first[name] for name, value in result.setting.values().items() if name != axis)
        ]
        names = [side.name for side in along[0].sides if all(result.side(side.name) for result in along)]
        series = tuple(
            Series(
                name, tuple(side.images_per_s for result in along if (side := result.side(name))), _tone(name)
            )
            for name in names
        )
        values = tuple(_axis_text(result.setting.values()[axis]) for result in along)
        if series:
            yield LinePlot(f"Images per second by {axis}", axis, values, "images/s", series)


def _plot_table(plot: LinePlot) -> Table:
    """Return the figures of a plot."""
    columns = ReportColumn("loader"), *(ReportColumn(value, "number") for value in plot.x_values)
    rows = (TableRow((one.name, *map(format_figure, one.values)), one.tone) for one in plot.series)
    return Table(plot.title, columns, tuple(rows))


def _axis_text(value: Any) -> str:
    if value is None:
        return "unchanged"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _method_lines(bench: LoadBench) -> Iterator[str]:
    work = "random crop to 224 × 224 pixels, flip, uint8"
    if bench.device is not None:
        work += f"; a training step of ResNet-18 on {bench.device} with each batch"
    yield (
        f"Each image: {work}; batches of {bench.batch_size}. Each loader has its own processes and takes "
        f"{format_count(bench.runs, 'turn')} of at least {format_figure(bench.min_s)} s: complete epochs, or "
        "the beginning of a long one; the others are idle meanwhile. Figures are medians."
    )
    yield (
        "Warm: before its first turn, a loader has loaded an epoch and three turns. Cold: its processes "
        "are new for each turn and have loaded one batch, and its files are dropped from the page cache."
    )
    kinds = " and ".join(sorted({side.memory_kind for result in bench.settings for side in result.sides}))
    yield (
        "Opened in: listing the files or opening the dataset, and making the loader, with imports. First "
        "batch: from the beginning of the first epoch, when workers start and libraries compile. "
        f"Memory: the most of all processes of a loader together ({kinds}), in one more turn. Written in: "
        "packing, once."
    )
    if bench.device is not None:
        yield "The device waits: 1 − the loader's rate ÷ the rate of batches that are on the device already."
    yield conditions_line(bench.conditions)


def loading_json(bench: LoadBench) -> str:
    """Return the complete result with the figures of each turn."""
    content: dict[str, Any] = asdict(bench)
    for result, described in zip(bench.settings, content["settings"], strict=True):
        for side, values in zip(result.sides, described["sides"], strict=True):
            values["images_per_s"] = side.images_per_s
            values["slowest"], values["fastest"] = min(side.rates), max(side.rates)
            values["deviation"] = statistics.pstdev(side.rates)
            values["cpu_s_per_1000"] = side.cpu_s_per_1000
            if bench.device is not None:
                values["device_waits"] = waiting_share(result, side)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
