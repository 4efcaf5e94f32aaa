"""Times of an epoch as the loader measured them, for tuning and diagnosis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Time that one process spent on making batches: a worker or, without workers, the training process.

    Attributes:
        batches: The number of batches it made.
        samples: Their samples.
        busy_s: Time from receiving the indices to the finished batch, summed over the batches.
        cpu_s: CPU time within `busy_s`.
        delayed_s: Time within `busy_s` in which the process was ready but no CPU was free; 0 if unknown.
        collate_s: Time within `busy_s` for collating samples and writing the batch into slots; all of it for
            a dataset that fills batches itself.
    """

    batches: int
    samples: int
    busy_s: float
    cpu_s: float
    delayed_s: float
    collate_s: float

    @property
    def blocked_s(self) -> float:
        """Time within `busy_s` spent waiting for something other than a CPU: a disk, a network, a lock."""
        return max(0.0, self.busy_s - self.cpu_s - self.delayed_s)


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """Times of one epoch: waits for the next batch, and the training's steps between them.

    Attributes:
        num_workers: Workers that loaded at the epoch's end; 0: the training process.
        prefetch_factor: Batches requested from each worker in advance; None without workers.
        batch_size: Samples in the epoch's first batch.
        batches: The number of batches handed out.
        samples: Their samples.
        batch_bytes: Bytes of the first batch's tensors.
        first_wait_s: The wait for the first batch, in which workers are started.
        waiting_s: The sum of all later waits.
        stepping_s: The sum of the steps.
        copying_s: Time within the waits for copies to the device, where the loader makes them.
        waits_s: The latest waits, at most 4,096, without the first batch's.
        steps_s: The step after each of these waits; the last one may be missing.
        loading: The load times of each process.
    """

    num_workers: int
    prefetch_factor: int | None
    batch_size: int
    batches: int
    samples: int
    batch_bytes: int
    first_wait_s: float
    waiting_s: float
    stepping_s: float
    copying_s: float
    waits_s: tuple[float, ...]
    steps_s: tuple[float, ...]
    loading: tuple[LoadTimes, ...]

    @property
    def samples_per_s(self) -> float:
        """Throughput without the first batch; 0 for fewer than two batches."""
        seconds = self.waiting_s + self.stepping_s
        return 0.0 if self.batches < 2 or seconds <= 0 else self.samples * (1 - 1 / self.batches) / seconds

    @property
    def waiting_share(self) -> float:
        """Share of the time spent waiting for data, from 0 to 1, without the first batch."""
        seconds = self.waiting_s + self.stepping_s
        return 0.0 if seconds <= 0 else self.waiting_s / seconds
