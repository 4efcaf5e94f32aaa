"""How does a training run scale to many ranks that download from one remote?

Question: samples per second, start-up, bytes moved and waiting, from one rank to a thousand.

Method. An event-based model (_cluster.py) of training: every rank downloads batches ahead, its workers read
and decode them, and each step ends with a ring all-reduce. Step times are drawn from a distribution, and a
step is as long as its slowest rank. The epoch is simulated with all data in the remote, and with all of it on
the nodes' disks. Before that, the model is checked: 1, 2 and 4 processes with fastload's loader (sleeps are
their steps, a token bucket is their network) train beside it, with 1.2, 0.8 and 0.5 times the network that
they need; the time of an all-reduce and of starting workers is measured first.

With values of your cluster as options, only that cluster is simulated, and the answer is a sentence; what
you leave out is as in the second table.

Reading it. First table: real epochs beside simulated ones. "Arithmetic" is the greater of the steps' time and
of bytes divided by bandwidth: a network of 1.2 times the need does not make the training wait; a slower one
makes it wait until the bytes are there, so that the epoch takes longer by the difference. Second table: the
simulated cluster.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from _cluster import Cluster, Epoch, simulated
from _cluster_answer import answer
from _cluster_ranks import measured
from _harness import identified, options_of, progress, publish_json

from fastload.system.units import format_figure

_UNLIMITED = 1e15

# What the processes of the check do. Sleeps are late by some 0.1 ms, which long steps hide.
CHECKED = Cluster(
    ranks=1,
    ranks_per_node=4,
    steps=60,
    batch_size=16,
    sample_bytes=16 * 1024,
    step_s=0.05,
    step_spread=0.1,
    workers=2,
    prefetch_factor=2,
    decode_samples_per_s=1000,
    start_s=0.0,
    remote_bytes_per_s=_UNLIMITED,
    node_bytes_per_s=_UNLIMITED,
    disk_bytes_per_s=_UNLIMITED,
    cached=0.0,
    ahead=8,
    gradient_bytes=0,
    hop_s=0.0,
)

# Machines with eight GPUs, 25 Gbit/s and an NVMe disk, a bucket of 80 Gbit/s, and a network of ResNet-50's
# size that trains with photos of 110 KB.
SIMULATED = Cluster(
    ranks=1,
    ranks_per_node=8,
    steps=50,
    batch_size=256,
    sample_bytes=110e3,
    step_s=0.25,
    step_spread=0.05,
    workers=8,
    prefetch_factor=2,
    decode_samples_per_s=250,
    start_s=1.0,
    remote_bytes_per_s=80e9 / 8,
    node_bytes_per_s=25e9 / 8,
    disk_bytes_per_s=3e9,
    cached=0.0,
    ahead=8,
    gradient_bytes=102e6,
    hop_s=20e-6,
    overlap_s=0.1,
)
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SHOWN = (1, 8, 64, 256, 1000)
NEEDS = (1.2, 0.8, 0.5)


def main() -> None:
    options = options_of(__doc__, **cluster_options())
    given = {name: getattr(options, name) for name in cluster_options() if getattr(options, name) is not None}
    if given:
        print(answer(replace(SIMULATED, **given)))
        return
    checked = check((1,) if options.smoke else (1, 2, 4), 4 if options.smoke else CHECKED.steps)
    cluster = replace(SIMULATED, steps=2) if options.smoke else SIMULATED
    epochs = simulate(cluster, (1, 16) if options.smoke else RANKS)
    sizes = {"steps": cluster.steps, "batch size": cluster.batch_size, "ranks of a node": 8, "runs": 1}
    content = {
        **identified("cluster", str(__doc__).partition("\n")[0], sizes | {"page cache": "not involved"}, {}),
        "cluster": json_of(cluster),
        "checked": checked,
        "epochs": epochs,
        "tables": [],
        "rows": [],
        "missing": [],
        "grids": [checked_grid(checked), simulated_grid(epochs)],
    }
    publish_json(content, options)


def cluster_options() -> dict[str, dict[str, Any]]:
    """Return an option for each value of a cluster."""
    values = asdict(SIMULATED)
    return {
        name: {"type": type(value), "metavar": "N", "help": f"of your cluster; see _cluster.py ({value:g})"}
        for name, value in values.items()
    }


def check(ranks: tuple[int, ...], steps: int) -> list[dict[str, Any]]:
    """Run real ranks, and simulate the same."""
    rows = []
    for count in ranks:
        cluster = replace(CHECKED, ranks=count, steps=steps)
        progress(f"real ranks: {count}")
        networks = [
            replace(cluster, remote_bytes_per_s=need * cluster.needed_bytes_per_s()) for need in NEEDS
        ]
        for need, (calibrated, real) in zip(NEEDS, measured(networks), strict=True):
            found = simulated(calibrated)
            rows.append(
                {
                    "ranks": count,
                    "network": need,
                    "cluster": json_of(calibrated),
                    "real": json_of(real),
                    "simulated": json_of(found),
                    "arithmetic_s": arithmetic_s(calibrated),
                }
            )
    return rows


def arithmetic_s(cluster: Cluster) -> float:
    """Return the least time of an epoch: its steps, each as long as the slowest rank's, or its downloads."""
    slowest = np.max([cluster.step_times(rank) for rank in range(cluster.ranks)], axis=0)
    steps_s = float(slowest.sum()) + cluster.steps * cluster.all_reduce_s() + cluster.start_s
    downloaded = cluster.ranks * cluster.steps * cluster.batch_bytes * (1 - cluster.cached)
    return max(steps_s, downloaded / cluster.remote_bytes_per_s)


def simulate(cluster: Cluster, ranks: tuple[int, ...]) -> list[dict[str, Any]]:
    """Simulate an epoch from the remote and one from the nodes' disks, for each number of ranks."""
    rows = []
    for cached in (0.0, 1.0):
        for count in ranks:
            progress(f"simulated ranks: {count}")
            found = simulated(replace(cluster, ranks=count, cached=cached))
            samples = count * cluster.steps * cluster.batch_size
            trained_s = found.seconds - found.start_up_s
            row = {"ranks": count, "cached": cached, "samples_per_s": round(samples / trained_s, 1)}
            rows.append(row | json_of(found))
    return rows


def checked_grid(rows: list[dict[str, Any]]) -> dict[str, Any]:
    enough = {row["ranks"]: row for row in rows if row["network"] == NEEDS[0]}
    times = ["real epoch", "simulated", "arithmetic"]
    waits = [f"longer than with {NEEDS[0]} ×: {kind}" for kind in ("real", "arithmetic")]
    cells = []
    for row in rows:
        first = enough[row["ranks"]]
        real_s, simulated_s, least_s = _seconds(row)
        longer = [one - other for one, other in zip(_seconds(row), _seconds(first), strict=True)]
        cells.append(
            [
                f"{row['ranks']}, {row['network']} × the need",
                *(f"{seconds:.2f} s" for seconds in (real_s, simulated_s, least_s)),
                f"{real_s / simulated_s:.2f}",
                *("–" if row is first else f"{seconds:.2f} s" for seconds in (longer[0], longer[2])),
            ]
        )
    return {"heads": ["Real ranks, network", *times, "real / simulated", *waits], "rows": cells}


def _seconds(row: dict[str, Any]) -> tuple[float, float, float]:
    return row["real"]["seconds"], row["simulated"]["seconds"], row["arithmetic_s"]


def simulated_grid(rows: list[dict[str, Any]]) -> dict[str, Any]:
    heads = ["Simulated ranks, data", "samples/s", "start-up", "downloaded", "waiting for data", "for ranks"]
    cells = [
        [
            f"{row['ranks']:,}, {'on disks' if row['cached'] else 'in the remote'}",
            format_figure(row["samples_per_s"]),
            f"{row['start_up_s']:.1f} s",
            f"{format_figure(row['downloaded_bytes'] / 1e9)} GB",
            *(f"{row[name] / row['seconds']:.0%}" for name in ("waiting_s", "synchronising_s")),
        ]
        for row in rows
        if row["ranks"] in SHOWN
    ]
    return {"heads": heads, "rows": cells}


def json_of(result: Cluster | Epoch) -> dict[str, Any]:
    """Return a cluster or an epoch for JSON, without digits that are rounding errors."""
    values = asdict(result).items()
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in values}


if __name__ == "__main__":
    main()
