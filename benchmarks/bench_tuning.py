"""How near does an untold DataLoader come to the best of all numbers of workers and prefetch factors?

Nine trainings, each an epoch of one to a few seconds: tiny raw images, photos as files and in three
encodings, transforms in Python, samples that are waited for, a slow step, a tiny dataset.

For each, every cell of the grid (0 to 6 workers, prefetch_factor 1 to 8) loads one epoch. Then
the three best cells, torch's default (no workers) and a tuned loader that has settled take turns, five
times: one epoch each, workers' start included. Best is the fastest of the three by its median, which in a
noisy machine is the luckiest too. The first epochs are those of loaders made anew, with no plan kept.

Read it so: "of the best" is the tuned loader's throughput divided by the grid's best; "of torch's" the same
by that of torch's defaults; "first epoch" what tuning cost: the first epoch's seconds beyond those of
the best cell.
"""

from __future__ import annotations

import statistics
from typing import Any

from _harness import identified, options_of, progress, publish_json, work_folder
from _tuning_jobs import Job, epoch_s, jobs, loader_of, without_kept_plans

_WORKERS = range(7)
_PREFETCHES = range(1, 9)
_FINALISTS = 3

# So many epochs a search may take: short ones hold one trial each.
_MOST_EPOCHS = 25

Cell = tuple[int, int | None]


def main() -> None:
    options = options_of(__doc__, only={"metavar": "TEXT", "help": "the jobs whose name holds it"})
    without_kept_plans()
    with work_folder(options) as folder:
        chosen = jobs(folder, 0.004 if options.smoke else 1.0)
        chosen = [job for job in chosen if options.only is None or options.only in job.name]
        rows = [_measured(job, options.runs, options.smoke) for job in chosen]
    heads = [
        "training", "best cell", "samples/s", "tuned", "samples/s", "of the best", "of torch's",
        "first epoch",
    ]  # fmt: skip
    setting = {
        "grid": "0 to 6 workers × prefetch_factor 1 to 8",
        "page cache": "warm",
        "runs": options.runs,
    }
    question = "How near does an untold DataLoader come to the best cell of the grid?"
    content: dict[str, Any] = {
        **identified("tuning", question, setting, {}),
        "tables": [],
        "rows": [],
        "missing": [],
        "jobs": rows,
        "grids": [{"heads": heads, "rows": [_cells(row) for row in rows]}],
    }
    publish_json(content, options)


def _measured(job: Job, runs: int, is_smoke: bool) -> dict[str, Any]:
    """All that is measured of one job."""
    progress(f"{job.name}: the grid")
    epoch_s(job, loader_of(job, num_workers=0))
    workers = (0, 2) if is_smoke else _WORKERS
    cells: list[Cell] = [(0, None)]
    cells += [(number, prefetch) for number in workers if number for prefetch in _PREFETCHES]
    grid = {cell: epoch_s(job, _of(job, cell)) for cell in cells}
    finalists = sorted(grid, key=lambda cell: grid[cell])[:_FINALISTS]
    tuned, first_s = _settled(job)
    sides: dict[Any, Any] = {cell: _of(job, cell) for cell in {*finalists, (0, None)}}
    sides["tuned"] = tuned
    seconds: dict[Any, list[float]] = {name: [] for name in sides}
    firsts = [first_s]
    for run in range(runs):
        progress(f"{job.name}: run {run + 1} of {runs}")
        names = list(sides)
        for place in range(len(names)):
            name = names[(run + place) % len(names)]
            seconds[name].append(epoch_s(job, sides[name]))
        if run < 2 and not is_smoke:
            firsts.append(epoch_s(job, loader_of(job)))
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    best = min(finalists, key=lambda cell: medians[cell])
    return {
        "name": job.name,
        "samples": job.samples,
        "batch_size": job.batch_size,
        "step_s": job.step_s,
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
    """A tuned loader that has nothing left to try, and what its first epoch took."""
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


def _cells(row: dict[str, Any]) -> list[str]:
    def rate(seconds: float) -> str:
        return f"{row['samples'] / seconds:,.0f}"

    def shown(cell: list[Any]) -> str:
        return "no workers" if not cell[0] else f"{cell[0]} × {cell[1]}"

    cost = row["first_s"] - row["best_s"]
    return [
        row["name"],
        shown(row["best"]),
        rate(row["best_s"]),
        shown(row["tuned"]),
        rate(row["tuned_s"]),
        f"{row['best_s'] / row['tuned_s']:.2f}",
        f"{row['torch_s'] / row['tuned_s']:.2f}",
        f"{cost:+.1f} s ({cost / row['best_s']:+.0%})",
    ]


if __name__ == "__main__":
    main()
