"""How good is a shuffle within windows of shards, compared with a full one?

Question: how far does `ShardedSampler(dataset, window=…)` spread samples, and what does its order cost?

Method. A dataset of 128 shards with 1,000 samples each, in 1,000 classes. Once it is sorted by class, which
is the worst case, and once it was shuffled before packing. The orders of ten epochs are compared: with
windows of one shard and more, and shuffled fully. Then rank 999 of 1,000 begins an epoch of 10⁶ samples, and
one of 10⁹.

Reading it. "Distance": the mean distance in the order of two samples that are neighbours in the dataset, in
units of a full shuffle's (a third of the dataset). "Classes": different classes in a batch of 256; "most of
one": samples of the most frequent class of a batch. "Open": shards that a reader needs at once. Last table:
the time until the first index (which 4,096 are computed for), the mean time of the next ones, and the most
memory in use.
"""

from __future__ import annotations

import itertools
import statistics
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
from _harness import identified, options_of, progress, publish_json
from numpy.typing import NDArray

from fastload import ShardedSampler

_CLASSES, _BATCH = 1000, 256
_WINDOWS = (1, 2, 4, 8, 16, 32, None)


class Shards(Sequence[int]):
    """Samples without content, in shards of one size."""

    def __init__(self, shards: int, size: int) -> None:
        self.shard_sizes = [size] * shards

    def __len__(self) -> int:
        return sum(self.shard_sizes)

    def __getitem__(self, index: Any) -> Any:
        return index


def main() -> None:
    options = options_of(__doc__)
    shards, size, epochs = (16, 200, 1) if options.smoke else (128, 1000, 10)
    dataset = Shards(shards, size)
    rows = []
    for window in _WINDOWS:
        if window is None or window < shards:
            progress(f"window: {window}")
            rows.append({"window": window, **quality(dataset, window, epochs)})
    costs = [{"samples": count, **cost(count)} for count in (10**6, 10**9)]
    setting = {"shards": shards, "samples per shard": size, "classes": _CLASSES, "epochs": epochs}
    content = {
        **identified(
            "windows", str(__doc__).partition("\n")[0], setting | {"page cache": "not involved"}, {}
        ),
        "quality": rows,
        "costs": costs,
        "tables": [],
        "rows": [],
        "missing": [],
        "grids": [quality_grid(rows), cost_grid(costs)],
    }
    publish_json(content, options)


def quality(dataset: Shards, window: int | None, epochs: int) -> dict[str, float]:
    """Return the means over epochs of one shuffle's measures."""
    sampler = ShardedSampler(dataset, 1, 0, window=window)
    by_class = np.arange(len(dataset)) * _CLASSES // len(dataset)
    classes = {"sorted": by_class, "shuffled": np.random.default_rng(0).permutation(by_class)}
    found: list[dict[str, float]] = []
    for _ in range(epochs):
        order = np.fromiter(sampler, np.int64, len(dataset))
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        measures = {"distance": float(np.abs(np.diff(places)).mean() / (len(order) / 3))}
        for name, each in classes.items():
            measures[f"{name}_classes"], measures[f"{name}_most"] = mixture(each[order])
        found.append(measures)
    return {name: round(statistics.mean(each[name] for each in found), 4) for name in found[0]}


def mixture(classes: NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean number of classes in a batch, and of samples of its most frequent one."""
    batches = classes[: len(classes) // _BATCH * _BATCH].reshape(-1, _BATCH)
    counts = [np.unique(batch, return_counts=True)[1] for batch in batches]
    return float(np.mean([len(each) for each in counts])), float(np.mean([each.max() for each in counts]))


def cost(samples: int) -> dict[str, float]:
    """Return the times of a rank's first index and of further ones, and the most memory in use."""
    firsts, others = [], []
    for _ in range(20):
        began = time.perf_counter()
        indices = iter(ShardedSampler(range(samples), 1000, 999))
        next(indices)
        first = time.perf_counter()
        count = sum(1 for _ in itertools.islice(indices, 100_000))
        firsts.append(first - began)
        others.append((time.perf_counter() - first) / count)
    tracemalloc.start()
    next(iter(ShardedSampler(range(samples), 1000, 999)))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    medians = {"first_s": statistics.median(firsts), "each_s": statistics.median(others)}
    return {name: round(seconds, 8) for name, seconds in medians.items()} | {"peak_bytes": peak_bytes}


def quality_grid(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = {"sorted": "sorted by class", "shuffled": "shuffled before"}
    heads = [f"{kind}: {name}" for kind in kinds.values() for name in ("classes", "most of one")]
    cells = [
        [
            "full shuffle" if row["window"] is None else f"`window={row['window']}`",
            f"{row['distance']:.2f}",
            *(f"{row[f'{kind}_{name}']:.1f}" for kind in kinds for name in ("classes", "most")),
            "all" if row["window"] is None else str(row["window"]),
        ]
        for row in rows
    ]
    return {"heads": ["Shuffle", "distance", *heads, "open"], "rows": cells}


def cost_grid(rows: list[dict[str, Any]]) -> dict[str, Any]:
    cells = [
        [
            f"{row['samples']:,}",
            f"{1e3 * row['first_s']:.1f} ms",
            f"{1e6 * row['each_s']:.2f} µs",
            f"{row['peak_bytes'] / 1e3:.0f} KB",
        ]
        for row in rows
    ]
    return {
        "heads": ["Samples, on rank 999 of 1,000", "first index", "each further one", "memory"],
        "rows": cells,
    }


if __name__ == "__main__":
    main()
