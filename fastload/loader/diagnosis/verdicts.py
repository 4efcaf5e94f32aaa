"""Which verdict it is: where the time from one batch to the next goes, and what most of that is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from fastload.loader.diagnosis.costs import receive_s, spent, startup_s
from fastload.loader.diagnosis.extent import foreseen_s, seen_s
from fastload.loader.diagnosis.findings import Verdict
from fastload.loader.diagnosis.measurements import Measurements, Seen

LEAST_WAITING = 0.1
"""A training that waits for less than this share of its time gains a ninth from its loader, at most."""

_NO_DESCRIPTORS = re.compile(r"too many open files|received 0 items of ancdata", re.IGNORECASE)
_FULL_SHARED_MEMORY = re.compile(
    r"bus error|/dev/shm|unable to (write|mmap|allocate|resize).*(shared memory|torch_)"
    # A file of the user's that is named fills another disk.
    r"|no space left on device(?!: ['\"](?!/(torch_|psm_|dev/shm)))",
    re.IGNORECASE,
)

LEAST_LOADING = 1 / 3
"""Without workers every training waits; below this share of its time, the step is what takes most of it."""

MOST_STARTING = 0.4
"""Where starting workers takes more than this share of all time, there is too little work for them."""

LEAST_S = 0.25
"""Less than this in all is too little to say anything, and to gain anything."""

LEAST_BUSY = 0.6
"""Workers that are busy for less than this share of the time are not what the training waits for."""


@dataclass(frozen=True, slots=True)
class Work:
    """What making a batch's samples consists of: seconds of all the time in which it was done.

    Attributes:
        storage_s: Reading.
        decoding_s: Decoding.
        transforms_s: Everything else that makes a sample.
        collate_s: Making a batch of them.
        is_told_apart: Whether decoding and transforms were.
    """

    storage_s: float
    decoding_s: float
    transforms_s: float
    collate_s: float
    is_told_apart: bool

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.storage_s + self.decoding_s + self.transforms_s + self.collate_s

    @property
    def largest(self) -> Verdict:
        """The verdict, where loading is what the training waits for."""
        parts: dict[Verdict, float] = {
            "storage": self.storage_s,
            "decoding": self.decoding_s,
            "transforms": self.transforms_s,
            "transport": self.collate_s,
        }
        if not self.is_told_apart:
            parts = {"storage": self.storage_s, "preparing": self.transforms_s, "transport": self.collate_s}
        return max(parts, key=lambda name: parts[name])


def work_of(measured: Measurements, blocked_s: float) -> Work:
    """Splits the time in which samples were made.

    Args:
        measured: The measurements.
        blocked_s: How much of that time was waited for something else than a CPU.
    """
    loading = measured.times.loading
    busy_s = sum(process.busy_s for process in loading)
    collate_s = sum(process.collate_s for process in loading)
    # Of a dataset that fills batches itself all is said to be collating: it is that of making samples.
    collate_s = 0.0 if collate_s > 0.95 * busy_s else collate_s
    known = attributed(measured.loading)
    seen = spent(known, "read", "load", "decode", "transform", "collate")
    sampled_s = seen - spent(known, "collate")
    if seen <= 0 or (sampled_s <= 0 and collate_s > 0):
        rest_s = max(0.0, busy_s - blocked_s - collate_s)
        return Work(min(blocked_s, busy_s), 0.0, rest_s, collate_s, is_told_apart=False)
    # A clock tells what batches took to be made of samples; a look now and then tells the rest apart.
    collate_s = collate_s or busy_s * spent(known, "collate") / seen
    scale = (busy_s - collate_s) / sampled_s if sampled_s > 0 else 0.0
    read_s, load_s, decode_s, transform_s = (
        scale * spent(known, name) for name in ("read", "load", "decode", "transform")
    )
    cpu_s = sum(process.cpu_s for process in loading)
    hidden_s = _hidden_s(max(0.0, blocked_s - read_s), load_s, decode_s, transform_s, cpu_s)
    decoding_s = load_s + decode_s - hidden_s
    return Work(read_s + hidden_s, decoding_s, transform_s, collate_s, is_told_apart=True)


def attributed(loading: tuple[Seen, ...]) -> tuple[Seen, ...]:
    """What processes were seen doing while they made batches, where it is known whose it is.

    Between samples, in torch's own loop, what they leave behind is freed: that is each part's, by its size.
    """
    known = tuple(seen for seen in loading if seen.place or seen.activity != "transform")
    is_most = sum(seen.seconds for seen in known) > 0.5 * sum(seen.seconds for seen in loading)
    return known if is_most else loading


def _hidden_s(blocked_s: float, load_s: float, decode_s: float, transform_s: float, cpu_s: float) -> float:
    """How much of loading and decoding was waiting for a disk, though it was not seen as reading.

    It hides in calls that read and decode at once, and in memory into which a file is mapped. A transform may
    sleep as well: of a call that reads, only what CPU time cannot explain is taken to be the transform's; of
    one that decodes alone, as much as the transform took.
    """
    slept_s = max(0.0, transform_s - cpu_s)
    in_loads_s = min(load_s, max(0.0, blocked_s - slept_s))
    in_decoding_s = min(decode_s, max(0.0, blocked_s - in_loads_s - transform_s))
    return in_loads_s + in_decoding_s


def verdict_of(measured: Measurements, work: Work) -> Verdict:
    """What the training waits for most."""
    times = measured.times
    if exhausted(measured) is not None:
        return "transport"
    if _is_little(measured):
        return "little"
    if times.waiting_share < LEAST_WAITING:
        return _stepping_verdict(measured)
    if times.num_workers == 0:
        return "copy" if times.copying_s > 0.5 * times.waiting_s else _loading_verdict(measured, work)
    if times.copying_s > 0.5 * times.waiting_s:
        return "copy"
    if receive_s(measured) > 0.5 * times.waiting_s or _is_sending(measured):
        return "transport"
    return _loading_verdict(measured, work)


def exhausted(measured: Measurements) -> Literal["open files", "shared memory"] | None:
    """What the training ran out of, if that is what ended it: torch's workers then die, or say so.

    "unable to open shared memory object </torch_1>: Too many open files" is a matter of descriptors.
    """
    if _NO_DESCRIPTORS.search(measured.error):
        return "open files"
    return "shared memory" if _FULL_SHARED_MEMORY.search(measured.error) else None


def _loading_verdict(measured: Measurements, work: Work) -> Verdict:
    """The largest of loading's parts, unless a part of the steps is larger than what loading takes."""
    times = measured.times
    if times.num_workers == 0 and times.waiting_share < LEAST_LOADING:
        return _stepping_verdict(measured)
    return work.largest


def _stepping_verdict(measured: Measurements) -> Verdict:
    model_s = spent(measured.training, "model")
    work_s = spent(measured.training, "work")
    copy_s = spent(measured.training, "copy")
    if work_s > max(model_s, copy_s):
        return "main thread"
    return "copy" if copy_s > model_s else "model"


def _is_little(measured: Measurements) -> bool:
    total_s = foreseen_s(measured)
    if total_s < LEAST_S:
        return True
    # Ten seconds an epoch: nobody minds a slow start of what goes on for long.
    return startup_s(measured) > MOST_STARTING * total_s and total_s < 10 * measured.epochs


def _is_sending(measured: Measurements) -> bool:
    """Whether workers have time left to make batches, though the training waits for them."""
    times = measured.times
    wall_s = seen_s(measured)
    busy = [process.busy_s for process in times.loading]
    if not busy or times.batches < 2 * times.num_workers:
        return False
    mean_s = sum(busy) / times.num_workers
    # One that is much slower than the others holds up all: that is a matter of its samples.
    is_even = max(busy) <= 1.5 * mean_s
    return is_even and (mean_s < LEAST_BUSY * (wall_s - startup_s(measured)))
