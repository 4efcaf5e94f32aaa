"""The two rates that decide, and what each side spends its time on: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastload.doctor.findings import Category, LoaderTrial, Sampled, TrainingMeasurements

COLDER = 0.75
"""Workers that loaded at less than this share of the rate of a later trial read from a disk what the trial
found in memory: then the training's own rate counts."""

_ALL_COLLATING = 0.95


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates in samples a second, infinite where nothing takes time, and CPU seconds of a sample.

    Attributes:
        loading: What the loader gives with nobody training.
        step: What the training step takes of batches that are there.
        start_s: Seconds for starting and ending workers, once an epoch.
        epoch_samples: Samples of an epoch; infinite where unknown.
        warmup_s: Seconds of warm-up for each epoch, of a training that was watched to its end.
    """

    loading: float
    step: float
    num_workers: int
    cpus: float
    loading_cpu_s: float = 0.0
    step_cpu_s: float = 0.0
    start_s: float = 0.0
    epoch_samples: float = math.inf
    warmup_s: float = 0.0

    def combined(self) -> float:
        """Return the throughput of the training, by the one rule that all gains rest on.

        Without workers, loading and the step take turns. With workers the slower one decides, unless the CPUs
        that they share do. The start of workers counts once an epoch.
        """
        if self.num_workers:
            steady = min(self.loading, self.step, per_s(self.loading_cpu_s + self.step_cpu_s, self.cpus))
        else:
            steady = per_s(per_s(self.loading) + per_s(self.step))
        if math.isinf(self.epoch_samples) or math.isinf(steady) or steady <= 0:
            return steady
        return self.epoch_samples / (self.epoch_samples / steady + self.start_s + self.warmup_s)

    def with_trial(self, trial: LoaderTrial, read_s: float = 0.0) -> Rates:
        """Return the rates with the loader of a trial, and `read_s` of each sample for reading."""
        loading = per_s(per_s(trial.samples_per_s) + read_s / max(1, trial.num_workers))
        return Rates(
            loading,
            self.step,
            trial.num_workers,
            self.cpus,
            trial.cpu_s,
            self.step_cpu_s,
            trial.start_s,
            self.epoch_samples,
            self.warmup_s,
        )


def per_s(seconds: float, count: float = 1.0) -> float:
    """Return `count / seconds`; infinite for no time. It turns a rate into seconds too."""
    return count / seconds if seconds > 0 else math.inf


def rates_of(measured: TrainingMeasurements) -> Rates:
    """Return the rates of a training."""
    size, same = measured.samples_a_batch, measured.trial("same")
    step_s = (measured.stepping_s - measured.step_delayed_s) / measured.steps if measured.steps else 0.0
    step_cpu_s = measured.step_cpu_s / measured.steps if measured.steps else 0.0
    epoch = measured.epoch_batches * size if measured.epoch_batches else math.inf
    return Rates(
        loading=_loading_per_s(measured, same),
        step=per_s(step_s, size),
        num_workers=measured.num_workers,
        cpus=measured.machine.usable_cpus,
        loading_cpu_s=same.cpu_s if same is not None and measured.num_workers else 0.0,
        step_cpu_s=step_cpu_s / size,
        start_s=same.start_s if same is not None and not measured.persistent_workers else 0.0,
        epoch_samples=epoch,
        warmup_s=0.0 if measured.was_cut else measured.warmup_s / measured.epochs,
    )


def _loading_per_s(measured: TrainingMeasurements, same: LoaderTrial | None) -> float:
    size = measured.samples_a_batch
    if not measured.num_workers:
        if measured.waits:
            return per_s((measured.waiting_s - measured.copying_s) / measured.waits, size)
        return seen_loading_per_s(measured)
    seen = seen_loading_per_s(measured)
    if same is None:
        return seen if math.isfinite(seen) else measured.samples_per_s or math.inf
    return seen if seen < COLDER * same.samples_per_s else same.samples_per_s


def seen_loading_per_s(measured: TrainingMeasurements) -> float:
    """Return the rate at which the processes that load made batches in the training, each for itself."""
    batches = sum(worker.batches for worker in measured.workers)
    busy_s = sum(worker.busy_s - worker.delayed_s for worker in measured.workers)
    processes = max(1, measured.num_workers)
    return per_s(busy_s, batches * measured.samples_a_batch * processes) if batches else math.inf


def is_colder(measured: TrainingMeasurements) -> bool:
    """Return whether the training loaded much slower than the same loader did afterwards."""
    same = measured.trial("same")
    return same is not None and seen_loading_per_s(measured) < COLDER * same.samples_per_s


@dataclass(frozen=True, slots=True)
class LoadingWork:
    """Seconds of making batches, by what was done; decoding is 0 where it cannot be told from transforms."""

    storage_s: float
    decoding_s: float
    transforms_s: float
    collate_s: float
    is_told_apart: bool

    @property
    def total_s(self) -> float:
        """All of them."""
        return self.storage_s + self.decoding_s + self.transforms_s + self.collate_s

    def share(self, seconds: float) -> float:
        """Return a part of the total, from 0 to 1."""
        return seconds / self.total_s if self.total_s > 0 else 0.0


def spent(sampled: Sequence[Sampled], *categories: Category) -> float:
    """Return the seconds of some categories."""
    return sum(one.seconds for one in sampled if one.category in categories)


def blocked_s(measured: TrainingMeasurements) -> float:
    """Return the seconds of making batches that waited for a disk, a lock or a sleep."""
    return sum(max(0.0, worker.busy_s - worker.cpu_s - worker.delayed_s) for worker in measured.workers)


def loading_work(measured: TrainingMeasurements) -> LoadingWork:
    """Split the time of making batches by the stack samples; a clock told what collating took."""
    busy_s, cpu_s, collate_s = (
        sum(getattr(worker, name) for worker in measured.workers) for name in ("busy_s", "cpu_s", "collate_s")
    )
    known = attributed(measured.loading)
    sampled_s, collating_s = spent(known, "read", "load", "decode", "transform"), spent(known, "collate")
    if sampled_s + collating_s <= 0:
        storage_s = min(blocked_s(measured), busy_s)
        rest_s = max(0.0, busy_s - storage_s - collate_s)
        return LoadingWork(storage_s, 0.0, rest_s, collate_s, is_told_apart=False)
    if not 0 < collate_s < _ALL_COLLATING * busy_s:
        # To the clock, a dataset that fills batches itself does nothing but collate: the samples tell.
        collate_s = busy_s * collating_s / (sampled_s + collating_s)
    scale = (busy_s - collate_s) / sampled_s if sampled_s > 0 else 0.0
    read_s, load_s, decode_s, transform_s = (
        scale * spent(known, name) for name in ("read", "load", "decode", "transform")
    )
    # Reading hides in calls that read and decode at once, and in lazy decoders. A transform may sleep as
    # well: a call that reads counts first, then the transform, then the decoder.
    hidden_s = max(0.0, blocked_s(measured) - read_s)
    in_loads_s = min(load_s, max(0.0, hidden_s - max(0.0, transform_s - cpu_s)))
    in_decoding_s = min(decode_s, max(0.0, hidden_s - in_loads_s - transform_s))
    moved_s = in_loads_s + in_decoding_s
    return LoadingWork(
        read_s + moved_s, load_s + decode_s - moved_s, transform_s, collate_s, is_told_apart=True
    )


def attributed(loading: Sequence[Sampled]) -> Sequence[Sampled]:
    """Return the stack samples of making batches without those between two samples, if these are the fewer.

    There, in torch's own loop, what samples leave behind is freed: that is each part's, by its size.
    """
    known = [one for one in loading if one.place or one.category != "transform"]
    is_most = sum(one.seconds for one in known) > 0.5 * sum(one.seconds for one in loading)
    return known if is_most else loading
