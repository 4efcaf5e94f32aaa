"""What every benchmark shares: options, turns, and a record of what was measured, on what.

A benchmark makes *sides*, functions that do the work once and return what it took, by table and
row. `take_turns` calls them in rotation, and a `Report` holds the outcome: as JSON for the record,
as Markdown (_markdown.py) for reading. Nothing else in this folder times or averages.
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
from _markdown import markdown

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


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
class Comparison:
    """A row set against another one, of the same table or not.

    Attributes:
        row: What is asked about.
        beside: What it is set against.
        times: How many times the other's rate counts: that of one core, by the cores used.
    """

    row: Key
    beside: Key
    times: int = 1


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
        comparisons: Rows whose rates are divided by each other's; those that were not measured are left out.
    """

    name: str
    question: str
    setting: Mapping[str, Any]
    tables: Sequence[Table]
    readings: Mapping[Key, Sequence[Reading]]
    missing: Sequence[Missing]
    versions: Mapping[str, str]
    is_side_by_side: bool = False
    comparisons: Sequence[Comparison] = ()

    def to_json(self) -> dict[str, Any]:
        """Everything, the circumstances included."""
        return {
            **identified(self.name, self.question, self.setting, self.versions),
            "tables": [asdict(table) for table in self.tables],
            "rows": [
                {"table": key.table, "row": key.row, **_summary(readings)}
                for key, readings in self.readings.items()
            ],
            "missing": [asdict(missing) for missing in self.missing],
            "side_by_side": self.is_side_by_side,
            "comparisons": [
                self._compared(comparison)
                for comparison in self.comparisons
                if comparison.row in self.readings and comparison.beside in self.readings
            ],
        }

    def _compared(self, comparison: Comparison) -> dict[str, Any]:
        """The ratio of the medians' rates, the range of those of single runs, and CPU time and bytes."""
        counts = {table.title: table.count for table in self.tables}
        scale = counts[comparison.row.table] / counts[comparison.beside.table]
        pair = [self.readings[key] for key in (comparison.row, comparison.beside)]
        row, beside = (_summary(readings) for readings in pair)
        ratios = [scale * b.seconds / a.seconds / comparison.times for a, b in zip(*pair, strict=True)]
        return {
            "table": comparison.row.table,
            "row": comparison.row.row,
            "beside": comparison.beside.row,
            "times": comparison.times,
            "ratio": round(scale * beside["median_s"] / row["median_s"] / comparison.times, 4),
            "min": round(min(ratios), 4),
            "max": round(max(ratios), 4),
            "cpu": _divided(row["cpu_s"], beside["cpu_s"], scale),
            "stored": _divided(row["stored_bytes"], beside["stored_bytes"]),
        }


def identified(
    name: str, question: str, setting: Mapping[str, Any], more_versions: Mapping[str, str]
) -> dict[str, Any]:
    """What begins every result: what was asked, when, of what, and on what machine."""
    return {
        "benchmark": name,
        "question": question,
        "date": datetime.date.today().isoformat(),
        "commit": commit(ROOT),
        "machine": machine(),
        "versions": {**versions(), **more_versions},
        "setting": dict(setting),
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
    publish_json(report.to_json(), options)


def publish_json(content: Mapping[str, Any], options: argparse.Namespace) -> None:
    """The same for a report that is JSON already."""
    write_json(content, options)
    print(markdown(content))


def write_json(content: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Writes a result where the options say."""
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"{content['benchmark']}.json"
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


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


def _divided(row: float | None, beside: float | None, scale: float = 1) -> float | None:
    """How many times the other's; None where one is not known, or too small to be measured."""
    return round(row / beside / scale, 4) if row and beside else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 6) if known else None
