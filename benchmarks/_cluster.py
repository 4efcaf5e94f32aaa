"""Event-based model of a training run on many ranks: downloads, disks, workers, steps and gradients.

Each rank downloads its batches in order, at most `ahead` before they are trained with, and keeps them on its
node's disk. A worker reads a batch from there and decodes it. A step begins on a rank when its batch is there
and all ranks have the gradients of the step before. Transfers that share a link or a disk have equal parts.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks, what each of them does in a step, and what they share.

    Attributes:
        ranks, ranks_per_node: Processes in all, and those of a machine.
        steps: Batches of each rank in the epoch.
        batch_size, sample_bytes: Samples of a rank's batch, and the stored bytes of each.
        step_s, step_spread: Mean time of a step without data or gradients, and its deviation as a share of it
            (of a lognormal distribution, drawn for each rank and step).
        workers, prefetch_factor: As in a DataLoader.
        decode_samples_per_s: Rate of one worker.
        start_s: Time until workers run.
        remote_bytes_per_s: Downloads of all ranks together.
        node_bytes_per_s: The network of a node: limits its downloads and its part of the gradients' ring.
        disk_bytes_per_s: Reads of all workers of a node together.
        cached: Share of the epoch that is on the nodes' disks before.
        ahead: Batches that a rank downloads before they are trained with: room in the cache.
        gradient_bytes, hop_s: Of the all-reduce: its content, and the latency of each of its 2(n - 1) hops.
        overlap_s: Time of it that passes during the step.
    """

    ranks: int
    ranks_per_node: int
    steps: int
    batch_size: int
    sample_bytes: float
    step_s: float
    step_spread: float
    workers: int
    prefetch_factor: int
    decode_samples_per_s: float
    start_s: float
    remote_bytes_per_s: float
    node_bytes_per_s: float
    disk_bytes_per_s: float
    cached: float
    ahead: int
    gradient_bytes: float
    hop_s: float
    overlap_s: float = 0.0

    @property
    def batch_bytes(self) -> float:
        return self.batch_size * self.sample_bytes

    def all_reduce_s(self) -> float:
        """Return the time of a ring all-reduce: 2(n - 1) hops, each with the n-th part of the gradients."""
        hops = 2 * (self.ranks - 1)
        return hops * (self.hop_s + self.gradient_bytes / self.ranks / self.node_bytes_per_s)

    def whole_step_s(self) -> float:
        """Return the mean time of a step, with what its gradients take beyond it."""
        return self.step_s + max(0.0, self.all_reduce_s() - self.overlap_s)

    def needed_bytes_per_s(self) -> float:
        """Return the speed of the remote at which a batch's download takes as long as a mean step."""
        return self.ranks * self.batch_bytes * (1 - self.cached) / self.whole_step_s()

    def step_times(self, rank: int, seed: int = 0) -> NDArray[np.float64]:
        """Return the times of a rank's steps, (steps,)."""
        sigma = np.sqrt(np.log1p(self.step_spread**2))
        draws = np.random.default_rng((seed, rank)).lognormal(-(sigma**2) / 2, sigma, self.steps)
        return self.step_s * draws


@dataclass(frozen=True, slots=True)
class Epoch:
    """Measurements of an epoch, simulated or real; times are means over ranks.

    Attributes:
        seconds: From its beginning to the last step's end.
        start_up_s: Until the first batch is there.
        waiting_s: Waiting for data after that.
        synchronising_s: Waiting for other ranks and for the gradients.
        downloaded_bytes: Of all ranks.
    """

    seconds: float
    start_up_s: float
    waiting_s: float
    synchronising_s: float
    downloaded_bytes: float


class Events:
    """Time, and what happens next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time, next(self._order), action))

    def run(self) -> None:
        while self._due:
            self.now, _, action = heapq.heappop(self._due)
            action()


class Link:
    """Bytes per second that are shared equally by the transfers under way, up to a limit for each."""

    def __init__(self, events: Events, bytes_per_s: float, limit: float = np.inf) -> None:
        self._events, self._bytes_per_s, self._limit = events, bytes_per_s, limit
        # Every transfer under way has had as many bytes since it began as this number has grown.
        self._each_bytes = self._updated = 0.0
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._version = 0
        self._order = itertools.count()

    def transfer(self, size: float, then: Callable[[], None]) -> None:
        self._update()
        heapq.heappush(self._ends, (self._each_bytes + size, next(self._order), then))
        self._schedule()

    def _rate(self) -> float:
        return min(self._bytes_per_s / len(self._ends), self._limit)

    def _update(self) -> None:
        if self._ends:
            self._each_bytes += (self._events.now - self._updated) * self._rate()
        self._updated = self._events.now

    def _schedule(self) -> None:
        self._version += 1
        version = self._version
        if self._ends:
            left = max(0.0, self._ends[0][0] - self._each_bytes)
            self._events.at(self._events.now + left / self._rate(), lambda: self._end(version))

    def _end(self, version: int) -> None:
        if version != self._version:
            return  # another transfer has begun or ended since
        self._update()
        self._each_bytes = self._ends[0][0]  # without the error of rounding
        done = []
        while self._ends and self._ends[0][0] <= self._each_bytes:
            done.append(heapq.heappop(self._ends)[2])
        self._schedule()
        for then in done:
            then()


class Rank:
    """One rank's way from the remote to the step, for batch after batch."""

    def __init__(self, training: Training, number: int) -> None:
        self.training, self.cluster, self.events = training, training.cluster, training.events
        self.disk = training.disks[number // self.cluster.ranks_per_node]
        self.step_times = self.cluster.step_times(number)
        self.fetched = self.begun = 0
        self.is_fetching = False
        self.busy = [False] * self.cluster.workers
        self.next_of = list(range(self.cluster.workers))
        self.decoded: set[int] = set()
        self.start_up_s = self.waiting_s = self.ended = self.synchronising_s = 0.0

    def fetch(self) -> None:
        """Begin the next download, if there is room."""
        cluster = self.cluster
        if self.is_fetching or self.fetched == min(cluster.steps, self.begun + cluster.ahead):
            return
        self.is_fetching = True
        self.training.remote.transfer(cluster.batch_bytes * (1 - cluster.cached), self._has_fetched)

    def _has_fetched(self) -> None:
        self.is_fetching = False
        self.fetched += 1
        self.fetch()
        self.work()

    def work(self) -> None:
        """Give workers what has been downloaded: batch n to worker n modulo their number."""
        if self.events.now < self.cluster.start_s:
            return
        sent = min(self.fetched, self.begun + self.cluster.workers * self.cluster.prefetch_factor)
        for worker, number in enumerate(self.next_of):
            if number < sent and not self.busy[worker]:
                self.busy[worker] = True
                self.disk.transfer(self.cluster.batch_bytes, lambda worker=worker: self._decode(worker))

    def _decode(self, worker: int) -> None:
        seconds = self.cluster.batch_size / self.cluster.decode_samples_per_s
        self.events.at(self.events.now + seconds, lambda: self._has_decoded(worker))

    def _has_decoded(self, worker: int) -> None:
        self.decoded.add(self.next_of[worker])
        self.busy[worker] = False
        self.next_of[worker] += self.cluster.workers
        self.work()
        self.step()

    def step(self) -> None:
        """Begin the next step, if its batch is there and all ranks have ended the one before."""
        if self.begun > self.training.ended or self.begun not in self.decoded:
            return
        self.decoded.remove(self.begun)
        if self.begun == 0:
            self.start_up_s = self.events.now
        else:
            self.waiting_s += self.events.now - self.training.synchronised
        self.ended = self.events.now + self.step_times[self.begun]
        self.begun += 1
        self.training.has_begun()
        self.fetch()
        self.work()


class Training:
    """An epoch of all ranks."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.events = cluster, Events()
        share = cluster.node_bytes_per_s / cluster.ranks_per_node
        self.remote = Link(self.events, cluster.remote_bytes_per_s, share)
        nodes = -(-cluster.ranks // cluster.ranks_per_node)
        self.disks = [Link(self.events, cluster.disk_bytes_per_s) for _ in range(nodes)]
        self.ranks = [Rank(self, number) for number in range(cluster.ranks)]
        self.ended = self._begun = 0
        self.synchronised = 0.0

    def has_begun(self) -> None:
        """Count a rank that has begun the step; with the last of them, it is known when the step ends."""
        self._begun += 1
        if self._begun == len(self.ranks):
            visible_s = max(0.0, self.cluster.all_reduce_s() - self.cluster.overlap_s)
            self.events.at(max(rank.ended for rank in self.ranks) + visible_s, self._synchronise)

    def _synchronise(self) -> None:
        self.synchronised, self._begun = self.events.now, 0
        self.ended += 1
        for rank in self.ranks:
            rank.synchronising_s += self.events.now - rank.ended
        for rank in self.ranks:
            rank.step()

    def epoch(self) -> Epoch:
        for rank in self.ranks:
            rank.fetch()
            self.events.at(self.cluster.start_s, rank.work)
        self.events.run()
        cluster = self.cluster
        return Epoch(
            self.synchronised,
            *(
                float(np.mean([getattr(rank, name) for rank in self.ranks]))
                for name in ("start_up_s", "waiting_s", "synchronising_s")
            ),
            cluster.ranks * cluster.steps * cluster.batch_bytes * (1 - cluster.cached),
        )


def simulated(cluster: Cluster) -> Epoch:
    """Return an epoch of a cluster."""
    return Training(cluster).epoch()
