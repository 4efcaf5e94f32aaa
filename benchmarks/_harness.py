"""What every benchmark shares: options, turns, and a record of what was measured, on what.

A benchmark makes *sides*, functions that do the work once and return what it took, by table and
row. `take_turns` calls them in rotation, and a `Report` holds the outcome: as JSON for the record,
as Markdown for reading. Nothing else in this folder times, averages or formats.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from _circumstances import commit, machine, versions

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
_DASH = "–"


class Key(NamedTuple):
    """Where a figure stands."""

    table: str
    row: str


class Reading(NamedTuple):
    """What one turn took, and what of the processors and the disk where that is of interest."""

    seconds: float
    cpu_s: float | None = None
    stored_bytes: int | None = None


Side = Callable[[], Mapping[Key, Reading]]


@dataclass(frozen=True, slots=True)
class Table:
    """A comparison: its rows did the same work.

    Attributes:
        title: What was done.
        unit: Of the work: photos, records.
        count: How many of them a turn was.
    """

    title: str
    unit: str
    count: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A row that could not be measured, and why: it is shown, not dropped."""

    table: str
    row: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one benchmark.

    Attributes:
        name: Of the result's file.
        question: What was asked.
        setting: What it was asked of: sizes, workers, the state of the caches.
        tables: The comparisons, in order; the first row of each is what others are set against.
        readings: Every turn of every row.
        missing: What could not be measured.
        versions: Of what was measured besides this environment's packages.
        is_side_by_side: Whether the comparisons, many and all of the same rows, are shown as one table
            for each unit, with a line for each comparison.
    """

    name: str
    question: str
    setting: Mapping[str, Any]
    tables: Sequence[Table]
    readings: Mapping[Key, Sequence[Reading]]
    missing: Sequence[Missing]
    versions: Mapping[str, str]
    is_side_by_side: bool = False

    def to_json(self) -> dict[str, Any]:
        """Everything, the circumstances included."""
        return {
            "benchmark": self.name,
            "question": self.question,
            "date": datetime.date.today().isoformat(),
            "commit": commit(ROOT),
            "machine": machine(),
            "versions": {**versions(), **self.versions},
            "setting": dict(self.setting),
            "tables": [asdict(table) for table in self.tables],
            "rows": [
                {"table": key.table, "row": key.row, **_summary(readings)}
                for key, readings in self.readings.items()
            ],
            "missing": [asdict(missing) for missing in self.missing],
            "side_by_side": self.is_side_by_side,
        }


def options_of(description: str | None, **extra: Mapping[str, Any]) -> argparse.Namespace:
    """Parses the command line.

    Args:
        description: The benchmark's docstring.
        extra: Options of its own, by name, as `add_argument` takes them.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, metavar="N", help="turns of each side (5)")
    parser.add_argument("--smoke", action="store_true", help="tiny, to see that it runs at all")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where the result's JSON goes (benchmarks/results; with --smoke, nowhere)",
    )
    parser.add_argument(
        "--workdir", type=Path, metavar="FOLDER", help="on the disk to use (the temporary folder)"
    )
    for name, arguments in extra.items():
        parser.add_argument("--" + name.replace("_", "-"), **arguments)
    options = parser.parse_args()
    if options.runs is None:
        options.runs = 1 if options.smoke else 5
    if options.out is None and not options.smoke:
        options.out = RESULTS
    return options


@contextlib.contextmanager
def work_folder(options: argparse.Namespace) -> Iterator[Path]:
    """A fresh folder, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="fastload-bench-", dir=options.workdir) as folder:
        yield Path(folder)


def take_turns(sides: Sequence[Side], runs: int) -> dict[Key, list[Reading]]:
    """Calls every side once a run, another one first each time.

    So whatever drifts, the machine's clock or its other users, meets all sides alike.
    """
    readings: dict[Key, list[Reading]] = {}
    for run in range(runs):
        for place in range(len(sides)):
            side = (run + place) % len(sides)
            progress(f"run {run + 1} of {runs}, side {place + 1} of {len(sides)}")
            for key, reading in sides[side]().items():
                readings.setdefault(key, []).append(reading)
    return readings


def progress(text: str) -> None:
    """Says on stderr what goes on."""
    print(text, file=sys.stderr, flush=True)


def timed(work: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def timed_command(command: Sequence[str | os.PathLike[str]], **arguments: Any) -> Reading:
    """The seconds that a program takes, from its start to its end, and its processes' CPU time.

    Raises:
        RuntimeError: It failed; says what it printed.
    """
    cpu_before, began = _children_cpu_s(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, env=user_environment(), **arguments)
    reading = Reading(time.perf_counter() - began, _children_cpu_s() - cpu_before)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"{os.fspath(command[0])} ended with {done.returncode}: {said[-2000:]}")
    return reading


def _children_cpu_s() -> float:
    """The CPU time of all processes that this one, or one below it, has started and waited for."""
    times = os.times()
    return times.children_user + times.children_system


def user_environment() -> dict[str, str]:
    """This process's environment without what a developer's may have and users' have not."""
    slower = {"PYTHONDONTWRITEBYTECODE", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME"}
    return {name: value for name, value in os.environ.items() if name not in slower}


def folder_bytes(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def remove(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def publish(report: Report, options: argparse.Namespace) -> None:
    """Prints the report as Markdown; writes its JSON where the options say."""
    content = report.to_json()
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"{report.name}.json"
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(markdown(content))


def markdown(content: Mapping[str, Any]) -> str:
    """The tables of a report's JSON, and under them on what it was measured."""
    if content.get("side_by_side"):
        units = dict.fromkeys(table["unit"] for table in content["tables"])
        parts = [_side_by_side(content, unit) for unit in units]
    else:
        parts = [_table(content, table) for table in content["tables"]]
    return "\n\n".join([*parts, _circumstances(content)]) + "\n"


def _side_by_side(content: Mapping[str, Any], unit: str) -> str:
    """All comparisons of one unit: a line each, the rate of each row, and how it stands to the first."""
    tables = [table for table in content["tables"] if table["unit"] == unit]
    names = list(dict.fromkeys(row["row"] for row in content["rows"]))
    heads = [cell for name in names for cell in (f"{name}, {unit}/s", "slowest–fastest")]
    lines = ["| |" + " | ".join(heads) + " | ratio |", "|---|" + "--:|" * (len(heads) + 1)]
    for table in tables:
        rows = {row["row"]: row for row in content["rows"] if row["table"] == table["title"]}
        cells = []
        for name in names:
            rates = [_digits(table["count"] / rows[name][f"{which}_s"]) for which in ("median", "max", "min")]
            cells += [rates[0], f"{rates[1]}–{rates[2]}"]
        ratio = rows[names[0]]["median_s"] / rows[names[-1]]["median_s"]
        lines.append(f"| {table['title']} | {' | '.join(cells)} | {ratio:.2f} × |")
    return "\n".join(lines)


def _table(content: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """One comparison; columns of which no row says anything are left out."""
    title, unit, count = table["title"], table["unit"], table["count"]
    rows = [row for row in content["rows"] if row["table"] == title]
    columns: dict[str, list[str]] = {
        "median": [f"{_digits(row['median_s'])} s" for row in rows],
        "fastest–slowest": [f"{_digits(row['min_s'])}–{_digits(row['max_s'])} s" for row in rows],
        f"{unit}/s": [_digits(count / row["median_s"]) for row in rows],
        "time": [f"{row['median_s'] / rows[0]['median_s']:.2f} ×" for row in rows],
        "CPU": [_or_dash(row["cpu_s"], "s") for row in rows],
        "stored": [_or_dash(row["stored_bytes"], "MB", 1e6) for row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if set(cells) != {_DASH}}
    lines = [f"| {title} | {' | '.join(shown)} |", "|---|" + "--:|" * len(shown)]
    for place, row in enumerate(rows):
        lines.append(f"| {row['row']} | {' | '.join(cells[place] for cells in shown.values())} |")
    for missing in content["missing"]:
        if missing["table"] == title:
            lines.append(f"| {missing['row']}: {missing['reason']} |" + f" {_DASH} |" * len(shown))
    return "\n".join(lines)


def _circumstances(content: Mapping[str, Any]) -> str:
    machine = content["machine"]
    setting = "; ".join(f"{name}: {value}" for name, value in content["setting"].items())
    versions = ", ".join(f"{name} {value}" for name, value in content["versions"].items())
    memory = machine["memory_bytes"]
    return (
        f"{content['date']}, commit {content['commit']}. {setting}. "
        f"{machine['processor']}, {machine['usable_cpus']} usable CPUs, "
        + (f"{memory / 2**30:.0f} GiB, " if memory else "")
        + f"{machine['system']}, load {machine['load_before']} at the start. {versions}."
    )


def _or_dash(value: float | None, unit: str, divisor: float = 1) -> str:
    return _DASH if value is None else f"{_digits(value / divisor)} {unit}"


def _digits(value: float) -> str:
    """Three digits; thousands set apart."""
    if value < 100:
        return f"{value:.3g}"
    rounded = round(value, 3 - len(str(int(value))))
    return f"{int(rounded):,}".replace(",", " ")


def _summary(readings: Sequence[Reading]) -> dict[str, Any]:
    seconds = [reading.seconds for reading in readings]
    return {
        "seconds": [round(value, 6) for value in seconds],
        "median_s": _median(seconds),
        "min_s": round(min(seconds), 6),
        "max_s": round(max(seconds), 6),
        "cpu_s": _median([reading.cpu_s for reading in readings]),
        "stored_bytes": readings[-1].stored_bytes,
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 6) if known else None
