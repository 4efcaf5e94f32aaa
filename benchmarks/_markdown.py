"""Markdown of a benchmark's JSON: its tables, and below them the conditions of the measurement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastload.system.units import format_figure

_DASH = "–"


def markdown(content: Mapping[str, Any]) -> str:
    """Return the tables of a report's JSON, and below them the conditions of the measurement."""
    if content.get("side_by_side"):
        units = dict.fromkeys(table["unit"] for table in content["tables"])
        parts = [_side_by_side(content, unit) for unit in units]
    else:
        parts = [_table(content, table) for table in content["tables"]]
    if content.get("comparisons"):
        parts.append(_comparisons(content))
    if "summary" in content:
        parts.append(content["summary"])
    parts += [_grid(grid) for grid in content.get("grids", ())]
    return "\n\n".join([*parts, _circumstances(content)]) + "\n"


def _side_by_side(content: Mapping[str, Any], unit: str) -> str:
    """Return all comparisons of one unit, one per line with all rates and the ratio."""
    tables = [table for table in content["tables"] if table["unit"] == unit]
    titles = {table["title"] for table in tables}
    names = list(dict.fromkeys(row["row"] for row in content["rows"] if row["table"] in titles))
    lines = [f"| {unit}/s | {' | '.join(names)} | ratio |", "|---|" + "--:|" * (len(names) + 1)]
    for table in tables:
        rows = {row["row"]: row for row in content["rows"] if row["table"] == table["title"]}
        cells = [_rate(table["count"], rows[name]) for name in names]
        ratio = rows[names[0]]["median_s"] / rows[names[-1]]["median_s"]
        lines.append(f"| {table['title']} | {' | '.join(cells)} | {ratio:.2f} × |")
    return "\n".join(lines)


def _table(content: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """Return one comparison without columns that are empty in all rows."""
    title, unit, count = table["title"], table["unit"], table["count"]
    rows = [row for row in content["rows"] if row["table"] == title]
    columns: dict[str, list[str]] = {
        "median, s": [format_figure(row["median_s"]) for row in rows],
        "range, s": [f"{format_figure(row['min_s'])}–{format_figure(row['max_s'])}" for row in rows],
        f"{unit}/s": [format_figure(count / row["median_s"]) for row in rows],
        "relative time": [f"{row['median_s'] / rows[0]['median_s']:.2f} ×" for row in rows],
        "CPU, s": [_or_dash(row["cpu_s"]) for row in rows],
        "stored, MB": [_or_dash(row["stored_bytes"], 1e6) for row in rows],
        # Files of earlier releases of these programs have none of these.
        "written in, s": [_or_dash(row.get("write_s")) for row in rows],
        "first batch, s": [_first_batch(row) for row in rows],
        "memory, MB": [_or_dash(row.get("memory_bytes"), 1e6) for row in rows],
        "fetched, MB": [_or_dash(row.get("fetched_bytes"), 1e6) for row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if set(cells) != {_DASH}}
    lines = [f"| {title} | {' | '.join(shown)} |", "|---|" + "--:|" * len(shown)]
    for number, row in enumerate(rows):
        lines.append(f"| {row['row']} | {' | '.join(cells[number] for cells in shown.values())} |")
    # Below the table: a message of another library would make its first column too wide to read the others.
    missing = [each for each in content["missing"] if each["table"] == title]
    lines += ["", "Not measured:", "", *(f"- {each['row']}: {each['reason']}" for each in missing)] * bool(
        missing
    )
    return "\n".join(lines)


def _comparisons(content: Mapping[str, Any]) -> str:
    """Return a line for each comparison with the ratio of the rates."""
    costs = {"cpu": "CPU time", "stored": "stored"}
    if any(pair.get("fetched") for pair in content["comparisons"]):
        costs |= {"first_batch": "first batch", "fetched": "fetched"}
    heads = ("compared with", "times as fast", "in single runs", *costs.values())
    lines = [f"| | {' | '.join(heads)} |", "|---|---|" + "--:|" * (2 + len(costs))]
    for pair in content["comparisons"]:
        beside = pair["beside"] if pair["times"] == 1 else f"{pair['times']} × {pair['beside']}"
        cells = (
            f"{pair['table']}: {pair['row']}",
            beside,
            f"{pair['ratio']:.2f} ×",
            f"{pair['min']:.2f}–{pair['max']:.2f}",
            *(_DASH if pair[name] is None else f"{pair[name]:.2f} ×" for name in costs),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _grid(grid: Mapping[str, Any]) -> str:
    """Return a table of finished cells, for results other than times."""
    lines = [f"| {' | '.join(grid['heads'])} |", "|---|" + "--:|" * (len(grid["heads"]) - 1)]
    return "\n".join(lines + [f"| {' | '.join(cells)} |" for cells in grid["rows"]])


def _circumstances(content: Mapping[str, Any]) -> str:
    machine = content["machine"]
    setting = "; ".join(f"{name}: {value}" for name, value in content["setting"].items())
    setting = re.sub(r"\b[0-9]{4,}\b", lambda number: f"{int(number[0]):,}", setting)
    versions = ", ".join(f"{name} {value}" for name, value in content["versions"].items())
    memory = machine["memory_bytes"]
    return (
        f"{content['date']}, commit {content['commit']}. {setting}. "
        f"{machine['processor']}, {machine['usable_cpus']} usable CPUs, "
        + (f"{memory / 2**30:.0f} GiB, " if memory else "")
        + f"{machine['system']}, load {machine['load_before']} at the start. {versions}."
    )


def _first_batch(row: Mapping[str, Any]) -> str:
    """Return the time to the first batch, with its spread if it was measured in each turn."""
    times = set(row.get("first_batches_s", ()))
    spread = f" ({format_figure(min(times))}–{format_figure(max(times))})" if len(times) > 1 else ""
    return _or_dash(row.get("first_batch_s")) + spread


def _rate(count: float, row: Mapping[str, Any]) -> str:
    """Return the median rate, and half of the range of the rates as a share of it."""
    half = (count / row["min_s"] - count / row["max_s"]) / 2 / (count / row["median_s"])
    return f"{format_figure(count / row['median_s'])} ± {half:.0%}"


def _or_dash(value: float | None, divisor: float = 1) -> str:
    return _DASH if value is None else format_figure(value / divisor)
