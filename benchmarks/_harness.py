"""Options, turns and reports of all benchmarks.

A benchmark has *sides*: functions that do the work once and return its time by table and row. `take_turns`
calls them in rotation, and a `Report` holds the result: as JSON for the record, as Markdown (_markdown.py)
for reading. Nothing else in this folder times or averages.
"""

from __future__ import annotations

import argparse
import contextlib
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

from _conditions import commit
from _markdown import markdown

from fastload.bench import conditions

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PEERS_OPTION = {
    "type": Path,
    "metavar": "FOLDER",
    "default": ROOT / ".peers",
    "help": "where 'make peers' put their environments (.peers)",
}


class Key(NamedTuple):
    """Table and row of a figure."""

    table: str
    row: str


class Reading(NamedTuple):
    """Time of one turn, with CPU time and stored bytes where they matter."""

    seconds: float
    cpu_s: float | None = None
    stored_bytes: int | None = None
    write_s: float | None = None
    first_batch_s: float | None = None
    memory_bytes: int | None = None
    fetched_bytes: int | None = None


Side = Callable[[], Mapping[Key, Reading]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that did the same work: `count` units (photos, records) in a turn."""

    title: str
    unit: str
    count: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A row that could not be measured, shown with the reason."""

    table: str
    row: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A row compared with another one (`beside`), of the same table or not.

    `times` multiplies the other's rate: the number of cores if that is the rate of one core.
    """

    row: Key
    beside: Key
    times: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one benchmark, in a file of its name.

    `setting` are the conditions. The first row of each table is the baseline. `versions` are those of
    measured software outside this environment. `is_side_by_side` shows all tables, which have the same rows,
    as one table for each unit. Comparisons with rows that were not measured are left out.
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
        """Return the complete result with its conditions."""
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
        """Return the ratio of the median rates with its range over single runs, and the ratios of costs."""
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
            "first_batch": _divided(row["first_batch_s"], beside["first_batch_s"]),
            "fetched": _divided(row["fetched_bytes"], beside["fetched_bytes"]),
        }


def identified(
    name: str, question: str, setting: Mapping[str, Any], more_versions: Mapping[str, str]
) -> dict[str, Any]:
    """Return the beginning of every result: question, date, commit, machine, versions and conditions."""
    return {
        "benchmark": name,
        "question": question,
        "command": _command(),
        **conditions_with(more_versions),
        "setting": dict(setting),
    }


def conditions_with(more_versions: Mapping[str, str], is_smoke: bool = False) -> dict[str, Any]:
    """Return date, commit, machine and versions, `more_versions` among them; a smoke run is marked."""
    found = conditions.identified(is_smoke)
    date = {"date": found.pop("date"), "commit": commit()}
    return {**date, **found, "versions": {**found["versions"], **more_versions}}


def _command() -> str:
    """Return the command line that repeats this run, with PATH in place of each path."""
    arguments = ["PATH" if os.sep in each or os.path.exists(each) else each for each in sys.argv[1:]]
    return " ".join([f"python benchmarks/{Path(sys.argv[0]).name}", *arguments])


def options_of(description: str | None, **extra: Mapping[str, Any]) -> argparse.Namespace:
    """Parse the command line; `extra` has the benchmark's own options as arguments of `add_argument`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, metavar="N", help="turns of each side (5)")
    parser.add_argument("--smoke", action="store_true", help="a tiny run, to check that it works")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where the result's JSON goes (benchmarks/results; with --smoke, nowhere)",
    )
    parser.add_argument(
        "--workdir", type=Path, metavar="FOLDER", help="a folder on the disk to use (the temporary folder)"
    )
    for name, arguments in extra.items():
        parser.add_argument("--" + name.replace("_", "-"), **arguments)
    options = parser.parse_args()
    if options.runs is None:
        options.runs = 1 if options.smoke else 5
    # A partial result must not replace the complete one.
    if options.out is None and not options.smoke and not getattr(options, "only", None):
        options.out = RESULTS
    return options


@contextlib.contextmanager
def work_folder(options: argparse.Namespace) -> Iterator[Path]:
    """Create a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="fastload-bench-", dir=options.workdir) as folder:
        yield Path(folder)


def take_turns(sides: Sequence[Side], runs: int) -> dict[Key, list[Reading]]:
    """Call every side once in each run, each time starting with another one.

    Drift, from the processor's clock or other users, then affects all sides alike.
    """
    readings: dict[Key, list[Reading]] = {}
    for run in range(runs):
        for turn in range(len(sides)):
            side = (run + turn) % len(sides)
            progress(f"run {run + 1} of {runs}, side {turn + 1} of {len(sides)}")
            for key, reading in sides[side]().items():
                readings.setdefault(key, []).append(reading)
    return readings


def progress(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def timed_command(command: Sequence[str | os.PathLike[str]], **arguments: Any) -> Reading:
    """Return a program's seconds from start to end and the CPU time of its processes.

    Raises:
        RuntimeError: It failed; the message has its output.
    """
    cpu_before, began = _children_cpu_s(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, env=user_environment(), **arguments)
    reading = Reading(time.perf_counter() - began, _children_cpu_s() - cpu_before)
    if done.returncode != 0:
        output = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"{os.fspath(command[0])} ended with {done.returncode}: {output[-2000:]}")
    return reading


def user_environment() -> dict[str, str]:
    """Return this process's environment without a developer's settings that slow Python down."""
    slower = {"PYTHONDONTWRITEBYTECODE", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME"}
    return {name: value for name, value in os.environ.items() if name not in slower}


def _children_cpu_s() -> float:
    """Return the CPU time of all ended descendants."""
    times = os.times()
    return times.children_user + times.children_system


def folder_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def drop_from_page_cache(file: str | os.PathLike[str]) -> None:
    """Drop a file from the page cache."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def publish(report: Report, options: argparse.Namespace) -> None:
    """Print the report as Markdown and write its JSON to the folder of the options."""
    publish_json(report.to_json(), options)


def publish_json(content: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Publish a report that is JSON already."""
    write_json(content, options)
    print(markdown(content))


def write_json(content: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Write a result to the folder of the options."""
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"{content['benchmark']}.json"
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _summary(readings: Sequence[Reading]) -> dict[str, Any]:
    seconds = [reading.seconds for reading in readings]
    first_batches = [round(reading.first_batch_s, 6) for reading in readings if reading.first_batch_s]
    return {
        "seconds": [round(value, 6) for value in seconds],
        "median_s": _median(seconds),
        "min_s": round(min(seconds), 6),
        "max_s": round(max(seconds), 6),
        "cpu_s": _median([reading.cpu_s for reading in readings]),
        "first_batch_s": _median(first_batches),
        "first_batches_s": first_batches,
        **{
            name: getattr(readings[-1], name)
            for name in ("stored_bytes", "write_s", "memory_bytes", "fetched_bytes")
        },
    }


def _divided(row: float | None, beside: float | None, scale: float = 1) -> float | None:
    """Return the ratio of two figures; None if one is unknown or too small to measure."""
    return round(row / beside / scale, 4) if row and beside else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 6) if known else None
