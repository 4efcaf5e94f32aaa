"""One cluster's answer: how fast it trains, what it waits for, and what would have to be faster."""

from __future__ import annotations

from _cluster import Cluster, simulated

from fastload.system.units import format_figure, format_size

# Less is lost to the spread of the steps alone.
_LITTLE = 0.03


def answer(cluster: Cluster) -> str:
    """Return what an epoch of a cluster is like, in two sentences."""
    epoch = simulated(cluster)
    trained_s = epoch.seconds - epoch.start_up_s
    samples = cluster.ranks * cluster.steps * cluster.batch_size
    alone = cluster.ranks * cluster.batch_size / cluster.step_s
    waiting, synchronising = epoch.waiting_s / trained_s, epoch.synchronising_s / trained_s
    rate = samples / trained_s
    cause = _cause(cluster) if waiting > _LITTLE else ""
    return (
        f"{cluster.ranks:,} ranks train {format_figure(rate)} samples/s, {rate / alone:.0%} of what their "
        f"steps alone would, {epoch.start_up_s:.1f} s after the start. They wait {waiting:.0%} of the time "
        f"for data{cause}, and {synchronising:.0%} for each other and for the "
        "gradients."
    )


def _cause(cluster: Cluster) -> str:
    """Return the slowest part of the way of the data, as a clause, with what it does and what is needed."""
    step_s = cluster.whole_step_s()
    node = min(cluster.ranks, cluster.ranks_per_node) * cluster.batch_bytes / step_s
    decoded = cluster.workers * cluster.decode_samples_per_s
    parts = [
        ("the remote sends", cluster.needed_bytes_per_s(), cluster.remote_bytes_per_s, _bytes),
        ("a node's network carries", node * (1 - cluster.cached), cluster.node_bytes_per_s, _bytes),
        ("a node's disk reads", node, cluster.disk_bytes_per_s, _bytes),
        ("a rank's workers decode", cluster.batch_size / step_s, decoded, _samples),
    ]
    what, needed, there, text = max(parts, key=lambda part: part[1] / part[2])
    return f" ({what} {text(there)}, and {text(needed)} are needed)"


def _bytes(rate: float) -> str:
    return f"{format_size(rate)}/s"


def _samples(rate: float) -> str:
    return f"{format_figure(rate)} samples/s"
