"""The second part of bench_remote.py: fastload's ranks with a network slower and faster than they need."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from _harness import progress
from _remote_ranks import Datasets
from _sides import Side

from fastload.shards.manifest import read_manifest
from fastload.shards.remote import RemoteFolder

NEEDS = (1.2, 0.8, 0.5)


@dataclass(frozen=True, slots=True)
class Training:
    """Ranks that train with a dataset in shards.

    Attributes:
        ranks: Processes.
        shards, size_bytes, samples: Of the dataset.
        batch_size, step_s: Of each rank.
    """

    ranks: int
    shards: int
    size_bytes: int
    samples: int
    batch_size: int
    step_s: float

    @property
    def needed_bytes_per_s(self) -> float:
        """The speed at which the download of all ranks' batches takes as long as a step."""
        return self.ranks * self.batch_size * self.size_bytes / self.samples / self.step_s

    def waiting_s(self, bytes_per_s: float) -> float:
        """Return how long a rank must wait for the shards after the first, if each is used when complete."""
        download_s = self.size_bytes / self.shards / bytes_per_s
        steps_s = self.samples / self.ranks / self.batch_size / self.shards * self.step_s
        return (self.shards - 1) * max(0.0, download_s - steps_s)


def slow_network_rows(
    datasets: Datasets, side: Side, url: str, runs: int, is_smoke: bool
) -> list[dict[str, Any]]:
    """Measure cold epochs of a dataset with each number of ranks and speed of the network."""
    job = {"batch_size": 4, "step_s": 0.02} if is_smoke else {"batch_size": 16, "step_s": 0.1}
    manifest = read_manifest(RemoteFolder(url, datasets.server.storage_options))
    rows = []
    for ranks in (1,) if is_smoke else (1, 2):
        size = len(manifest.shards), manifest.size_bytes, manifest.records
        training = Training(ranks, *size, **job)
        for need in NEEDS[-1:] if is_smoke else NEEDS:
            bytes_per_s = need * training.needed_bytes_per_s
            epochs = []
            for run in range(runs):
                progress(f"{ranks} ranks with {need} of the network needed, run {run + 1} of {runs}")
                datasets.server.limit(bytes_per_s)
                with datasets.ranks(side, url, ranks, **job) as load_epoch:
                    epochs.append(asdict(load_epoch()))
            rows.append(
                {
                    "training": asdict(training),
                    "network": need,
                    "bytes_per_s": round(bytes_per_s),
                    "epochs": epochs,
                    "must_wait_s": round(training.waiting_s(bytes_per_s), 6),
                }
            )
    datasets.server.limit(math.inf)
    return rows


def slow_network_grid(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the table of `slow_network_rows`."""
    heads = ["Ranks, network", "MB/s", "epoch", "first batch", "waited", "fastest–slowest", "must wait"]
    cells = []
    for row in rows:
        values = {name: [epoch[name] for epoch in row["epochs"]] for name in row["epochs"][0]}
        waited = values["waited_s"]
        medians = [statistics.median(values[name]) for name in ("seconds", "first_batch_s", "waited_s")]
        cells.append(
            [
                f"{row['training']['ranks']}, {row['network']} × the need",
                f"{row['bytes_per_s'] / 1e6:.1f}",
                *(f"{seconds:.2f} s" for seconds in medians),
                f"{min(waited):.2f}–{max(waited):.2f} s",
                f"{row['must_wait_s']:.2f} s",
            ]
        )
    return {"heads": heads, "rows": cells}
