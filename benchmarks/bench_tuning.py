"""How close does a tuned DataLoader come to the best numbers of workers and prefetched batches?

Nine training jobs, each with epochs of one to a few seconds: tiny raw images, photos as files and in three
encodings, transforms in Python, samples from a slow network, a slow step, a tiny dataset.

Each cell of the grid (0 to 6 workers, prefetch_factor 1 to 8) loads one epoch. Then the three best cells,
torch's default (no workers) and a settled tuned loader take turns, five times: one epoch each, the start of
workers included. The best cell is the one of the three with the lowest median. In addition, a new tuned
loader and one without workers take turns for ten epochs, the search included. With `--busy N`, N other
processes keep CPUs busy meanwhile; `--short` takes epochs of under a second, which are hardest to tune.

"Of the best" is the tuned loader's throughput divided by that of the best cell; "of torch's" the same for
torch's default; "first epoch" the seconds that the first epoch took beyond those of the best cell; "ten
epochs" the time of ten epochs with torch's default divided by that of the new tuned loader's.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
from collections.abc import Iterator
from typing import Any

from _harness import identified, options_of, progress, publish_json, work_folder
from _tuning_jobs import Job, epoch_s, loader_of, make_jobs

_WORKERS = range(7)
_PREFETCHES = range(1, 9)
_FINALISTS = 3
_EPOCHS = 10

# The most epochs that a search may take here.
_MOST_EPOCHS = 25

# With --short: the share of the samples.
_SHORT = 0.1

Cell = tuple[int, int | None]


def main() -> None:
    options = options_of(
        __doc__,
        only={"metavar": "TEXT", "help": "the jobs whose name contains it"},
        busy={
            "type": int,
            "default": 0,
            "metavar": "N",
            "help": "processes that keep CPUs busy meanwhile (0)",
        },
        short={"action": "store_true", "help": "epochs of under a second"},
        no_grid={"action": "store_true", "help": "only the ten epochs"},
    )
    scale = 0.004 if options.smoke else _SHORT if options.short else 1.0
    with work_folder(options) as folder:
        jobs = make_jobs(folder, scale)
        jobs = [job for job in jobs if options.only is None or options.only in job.name]
        jobs = jobs[:3] if options.smoke else jobs
        with busy_processes(options.busy):
            rows = [_measure(job, options) for job in jobs]
    heads = [
        "training; samples/s", "best cell", "", "tuned", "", "of the best", "of torch's",
        "first epoch, s", "ten epochs",
    ]  # fmt: skip
    setting = {
        "grid": "0 to 6 workers × prefetch_factor 1 to 8",
        "page cache": "warm",
        "runs": options.runs,
        "busy processes": options.busy,
    }
    question = "How close does a tuned DataLoader come to the best cell of the grid?"
    content: dict[str, Any] = {
        **identified("tuning", question, setting, {}),
        "tables": [],
        "rows": [],
        "missing": [],
        "jobs": rows,
        "grids": [{"heads": heads, "rows": [_cells(row) for row in rows]}],
    }
    publish_json(content, options)


def _measure(job: Job, options: Any) -> dict[str, Any]:
    """Measure one job."""
    epoch_s(job, loader_of(job, num_workers=0))
    ten = _ten_epochs(job, 2 if options.smoke else _EPOCHS)
    row = {
        "name": job.name,
        "samples": job.samples,
        "batch_size": job.batch_size,
        "step_s": job.step_s,
        "ten_epochs": ten,
    }
    return row if options.no_grid else {**row, **_compare_with_grid(job, options)}


def _ten_epochs(job: Job, epochs: int) -> dict[str, Any]:
    """Measure the epochs of a new tuned loader and of one without workers, in turns."""
    progress(f"{job.name}: ten epochs")
    sides = {"tuned": loader_of(job), "torch": loader_of(job, num_workers=0)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    settled = None
    for epoch in range(epochs):
        for name in (*sides,) if epoch % 2 else (*sides,)[::-1]:
            seconds[name].append(epoch_s(job, sides[name]))
        if settled is None and sides["tuned"].plan.is_settled:
            settled = epoch + 1
    return {name: [round(each, 4) for each in taken] for name, taken in seconds.items()} | {
        "settled": settled
    }


def _compare_with_grid(job: Job, options: Any) -> dict[str, Any]:
    """Measure every cell, then the best of them, torch's default and a settled tuned loader in turns."""
    progress(f"{job.name}: the grid")
    workers = (0, 2) if options.smoke else _WORKERS
    cells: list[Cell] = [(0, None)]
    cells += [(number, prefetch) for number in workers if number for prefetch in _PREFETCHES]
    grid = {cell: epoch_s(job, _of(job, cell)) for cell in cells}
    finalists = sorted(grid, key=lambda cell: grid[cell])[:_FINALISTS]
    tuned, first_s = _settled(job)
    sides: dict[Any, Any] = {cell: _of(job, cell) for cell in {*finalists, (0, None)}}
    sides["tuned"] = tuned
    seconds: dict[Any, list[float]] = {name: [] for name in sides}
    firsts = [first_s]
    for run in range(options.runs):
        progress(f"{job.name}: run {run + 1} of {options.runs}")
        names = list(sides)
        for place in range(len(names)):
            name = names[(run + place) % len(names)]
            seconds[name].append(epoch_s(job, sides[name]))
        if run < 2 and not options.smoke:
            firsts.append(epoch_s(job, loader_of(job)))
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    best = min(finalists, key=lambda cell: medians[cell])
    return {
        "grid": [[*cell, round(taken, 4)] for cell, taken in grid.items()],
        "seconds": {str(name): [round(each, 4) for each in taken] for name, taken in seconds.items()},
        "best": list(best),
        "tuned": [int(tuned.plan.num_workers.value), tuned.plan.prefetch_factor.value],
        "best_s": medians[best],
        "tuned_s": medians["tuned"],
        "torch_s": medians[0, None],
        "first_s": statistics.median(firsts),
    }


def _settled(job: Job) -> tuple[Any, float]:
    """Return a tuned loader that has nothing left to try, and the time of its first epoch."""
    loader = loader_of(job)
    first_s = epoch_s(job, loader)
    for _ in range(_MOST_EPOCHS):
        if loader.plan.is_settled:
            break
        epoch_s(job, loader)
    return loader, first_s


def _of(job: Job, cell: Cell) -> Any:
    number, prefetch = cell
    return loader_of(job, num_workers=number, prefetch_factor=prefetch)


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep CPUs busy with other processes during the block."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_burn, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _burn() -> None:
    while True:
        sum(range(10_000))


def _cells(row: dict[str, Any]) -> list[str]:
    def rate(seconds: float) -> str:
        return f"{row['samples'] / seconds:,.0f}"

    def shown(cell: list[Any]) -> str:
        return "no workers" if not cell[0] else f"{cell[0]} × {cell[1]}"

    ten = row["ten_epochs"]
    ratio = f"{sum(ten['torch']) / sum(ten['tuned']):.2f}"
    if "best" not in row:
        return [row["name"], *["-"] * 7, ratio]
    cost = row["first_s"] - row["best_s"]
    return [
        row["name"],
        shown(row["best"]),
        rate(row["best_s"]),
        shown(row["tuned"]),
        rate(row["tuned_s"]),
        f"{row['best_s'] / row['tuned_s']:.2f}",
        f"{row['torch_s'] / row['tuned_s']:.2f}",
        f"{cost:+.1f} ({cost / row['best_s']:+.0%})",
        ratio,
    ]


if __name__ == "__main__":
    main()
