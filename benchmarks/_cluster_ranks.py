"""Real ranks that do what _cluster.py models; steps and decoding are sleeps, and samples made up.

Each rank is a process of torch.distributed's gloo with fastload's DataLoader and its workers. A thread of it
downloads batches in the epoch's order: it writes files, at the pace of a token bucket that all ranks share.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from _cluster import Cluster, Epoch
from _token_bucket import TokenBucket

import fastload

_POLL_S = 0.0005
_CALIBRATIONS = 30


class DownloadedSamples(torch.utils.data.Dataset[Any]):
    """Samples in files, one for each batch; a batch is there when its file is."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.cluster = folder, cluster

    def __len__(self) -> int:
        return self.cluster.ranks * self.cluster.steps * self.cluster.batch_size

    def __getitems__(self, indices: list[int]) -> list[np.ndarray[Any, Any]]:
        # Without shuffling, rank r of n has samples r, r + n, …: the batch's number is in its first one.
        number = indices[0] // self.cluster.ranks // self.cluster.batch_size
        path = self.folder / str(number)
        while not path.exists():
            time.sleep(_POLL_S)
        content = np.fromfile(path, np.uint8)
        time.sleep(len(indices) / self.cluster.decode_samples_per_s)
        return list(content.reshape(len(indices), -1))


class Downloads(threading.Thread):
    """Writes a rank's batches to files, at most `ahead` before `begun` says that they are trained with."""

    def __init__(self, folder: Path, cluster: Cluster, bucket: TokenBucket) -> None:
        super().__init__(daemon=True)
        self.folder, self.cluster, self.bucket = folder, cluster, bucket
        self.begun, self.has_room, self.bytes = 0, threading.Condition(), 0

    def note_begun(self) -> None:
        with self.has_room:
            self.begun += 1
            self.has_room.notify()

    def run(self) -> None:
        size = int(self.cluster.batch_bytes)
        partial = self.folder / "partial"
        for number in range(self.cluster.steps):
            with self.has_room:
                self.has_room.wait_for(lambda number=number: number < self.begun + self.cluster.ahead)
            self.bucket.transfer(size, self.cluster.remote_bytes_per_s)
            partial.write_bytes(bytes(size))
            partial.rename(self.folder / str(number))
            self.bytes += size


def measured(clusters: list[Cluster]) -> list[tuple[Cluster, Epoch]]:
    """Return an epoch of each cluster, by real ranks, and the cluster with the times of this machine.

    All have as many ranks. What this machine's workers need to start, and its all-reduce, are measured first.
    """
    context = multiprocessing.get_context("spawn")
    bucket, results = TokenBucket(context), context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="fastload-cluster-") as folder:
        ranks = [
            context.Process(target=_rank, args=(rank, clusters, Path(folder), bucket, results))
            for rank in range(clusters[0].ranks)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
            if rank.exitcode:
                raise RuntimeError(f"a rank ended with {rank.exitcode}: its output is above")
        parts = [results.get() for _ in ranks]
    found = []
    for number, cluster in enumerate(clusters):
        (start_s, hop_s), epochs = parts[0][0], [asdict(part[1][number]) for part in parts]
        means = {name: float(np.mean([each[name] for each in epochs])) for name in epochs[0]}
        means["downloaded_bytes"] *= cluster.ranks
        found.append((replace(cluster, start_s=start_s, hop_s=hop_s), Epoch(**means)))
    return found


def _rank(rank: int, clusters: list[Cluster], folder: Path, bucket: TokenBucket, results: Any) -> None:
    # The host's own name need not be known to the resolver.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=clusters[0].ranks
    )
    calibration = _calibrated(folder / f"{rank}-calibration", clusters[0], bucket)
    epochs = [
        _epoch(folder / f"{rank}-{number}", cluster, bucket, cluster.step_times(rank))
        for number, cluster in enumerate(clusters)
    ]
    results.put((calibration, epochs))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _calibrated(folder: Path, cluster: Cluster, bucket: TokenBucket) -> tuple[float, float]:
    """Return the time until workers have handed over an immediate batch, and an all-reduce's time per hop."""
    immediate = replace(cluster, steps=1, remote_bytes_per_s=1e12, decode_samples_per_s=1e9)
    start_s = _epoch(folder, immediate, bucket, np.zeros(1)).start_up_s
    gradient = torch.zeros(1)
    torch.distributed.barrier()
    began = time.perf_counter()
    for _ in range(_CALIBRATIONS):
        torch.distributed.all_reduce(gradient)
    all_reduce_s = (time.perf_counter() - began) / _CALIBRATIONS
    found = torch.tensor([start_s, all_reduce_s / max(1, 2 * (cluster.ranks - 1))])
    torch.distributed.all_reduce(found)
    start_s, hop_s = (found / cluster.ranks).tolist()
    return start_s, hop_s


def _epoch(folder: Path, cluster: Cluster, bucket: TokenBucket, step_times: Any) -> Epoch:
    folder.mkdir()
    dataset = DownloadedSamples(folder, cluster)
    sampler = fastload.ShardedSampler(dataset, shuffle=False)
    loader = fastload.DataLoader(
        dataset,
        cluster.batch_size,
        sampler=sampler,
        num_workers=cluster.workers,
        prefetch_factor=cluster.prefetch_factor,
        multiprocessing_context="fork",
    )
    downloads, gradient = Downloads(folder, cluster, bucket), torch.zeros(1)
    torch.distributed.barrier()
    began = synchronised = time.perf_counter()
    downloads.start()
    waits, synchronising_s = [], 0.0
    for step_s, _ in zip(step_times, loader, strict=True):
        waits.append(time.perf_counter() - synchronised)
        downloads.note_begun()
        time.sleep(step_s)
        ended = time.perf_counter()
        torch.distributed.all_reduce(gradient)
        synchronised = time.perf_counter()
        synchronising_s += synchronised - ended
    downloads.join()
    return Epoch(synchronised - began, waits[0], sum(waits[1:]), synchronising_s, downloads.bytes)
