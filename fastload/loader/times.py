"""What the steps of an epoch took, as the loader saw them: the readings that tuning and diagnosis share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """What making batches took one process: a worker, or the training process where there are none.

    Attributes:
        batches: How many batches it made.
        samples: How many samples they hold.
        busy_s: From the indices' arrival to the batch's being made, in seconds, summed over the batches.
        cpu_s: The CPU time of that.
        delayed_s: How much of it the process was ready to run and no CPU was free; 0 where the system does
            not tell.
        collate_s: How much of `busy_s` went into making batches of samples and putting them into slots. Of a
            dataset that fills batches itself, everything.
    """

    batches: int
    samples: int
    busy_s: float
    cpu_s: float
    delayed_s: float
    collate_s: float

    @property
    def blocked_s(self) -> float:
        """How much of `busy_s` it waited for something other than a CPU: a disk, a network, a lock."""
        return max(0.0, self.busy_s - self.cpu_s - self.delayed_s)


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """What one epoch's steps took.

    A step is a wait for the next batch, then whatever the training does until it asks for another one.

    Attributes:
        num_workers: How many workers loaded at the epoch's end; 0: the training process.
        prefetch_factor: Batches asked of each worker in advance; None without workers.
        batch_size: Samples in the epoch's first batch.
        batches: How many batches were handed out.
        samples: How many samples they held.
        batch_bytes: Bytes of the first batch's tensors.
        first_wait_s: The wait for the first batch, in which workers are started.
        waiting_s: The sum of all later waits, in seconds.
        stepping_s: The sum of the steps without waits.
        copying_s: How much of the waits went into copies to the device, where the loader makes them.
        waits_s: The latest waits, at most 4,096, the first batch's left out.
        steps_s: What followed each of these; as many, or one less.
        loading: What making the batches took each process.
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
        """The epoch's throughput, the first batch left out; 0 for fewer than two batches."""
        seconds = self.waiting_s + self.stepping_s
        return 0.0 if self.batches < 2 or seconds <= 0 else self.samples * (1 - 1 / self.batches) / seconds

    @property
    def waiting_share(self) -> float:
        """How much of the time the training waited for data, from 0 to 1, the first batch left out."""
        seconds = self.waiting_s + self.stepping_s
        return 0.0 if seconds <= 0 else self.waiting_s / seconds
