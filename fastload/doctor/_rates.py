"""The two rates that decide the verdict, and each side's time by cause, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastload.doctor.findings import Category, LoaderTrial, Sampled, TrainingMeasurements, Verdict

COLDER = 0.75
"""If the training's workers were slower than this share of a later trial's rate, the trial found files in
memory that they had to read from the disk; then the training's own rate counts."""

MAJORITY = 0.5
"""More than this share of a time or of a space is most of it."""

CauseSeconds = dict[Verdict, float]

LOADING_CAUSES: tuple[Verdict, ...] = ("storage", "decoding", "transforms", "transport")
STEP_CAUSES: tuple[Verdict, ...] = ("model", "main thread", "copy", "network")


@dataclass(frozen=True, slots=True)
class Rates:
    """Samples per second of loading and of the step (infinite if they take no time), and CPU time per sample.

    `start_s` is the time for starting workers, 0 if they are persistent, and `warmup_s` that of warm-up, in
    each epoch.
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
    is_persistent: bool = False

    @property
    def by_cpus(self) -> float:
        """The rate at which loading and the step together occupy all CPUs."""
        return per_s(self.loading_cpu_s + self.step_cpu_s, self.cpus)

    def combined(self) -> float:
        """Return the throughput of the training, by the one rule behind all gains.

        Without workers, loading and the step take turns. With workers, the slower one decides, unless the
        CPUs that they share do. Starting workers and warm-up count once per epoch.
        """
        if self.num_workers:
            steady = min(self.loading, self.step, self.by_cpus)
        else:
            steady = per_s(per_s(self.loading) + per_s(self.step))
        if math.isinf(self.epoch_samples) or math.isinf(steady) or steady <= 0:
            return steady
        return self.epoch_samples / (self.epoch_samples / steady + self.start_s + self.warmup_s)

    def with_trial(self, trial: LoaderTrial, read_s: float = 0.0) -> Rates:
        """Return the rates with the loader of a trial that also spends `read_s` per sample on reading."""
        return replace(
            self,
            loading=per_s(per_s(trial.samples_per_s) + read_s / max(1, trial.num_workers)),
            num_workers=trial.num_workers,
            loading_cpu_s=trial.cpu_s,
            start_s=0.0 if self.is_persistent else trial.start_s,
        )

    def with_step(self, left: float) -> Rates:
        """Return the rates with a step that takes only a share `left` of its time."""
        return replace(self, step=per_s(left * per_s(self.step)), step_cpu_s=left * self.step_cpu_s)


def per_s(seconds: float, count: float = 1.0) -> float:
    """Return `count / seconds`, infinite for no time; it also turns a rate into seconds."""
    return count / seconds if seconds > 0 else math.inf


def rates_of(measured: TrainingMeasurements) -> Rates:
    """Return the rates of a training run."""
    size, same = measured.samples_a_batch, measured.trial("same")
    steps = max(1, measured.steps)
    return Rates(
        loading=_loading_per_s(measured, same),
        step=per_s((measured.stepping_s - measured.step_delayed_s - measured.held_up_s) / steps, size),
        num_workers=measured.num_workers,
        cpus=measured.machine.usable_cpus,
        loading_cpu_s=same.cpu_s if same is not None and measured.num_workers else 0.0,
        step_cpu_s=measured.step_cpu_s / steps / size,
        start_s=same.start_s if same is not None and not measured.persistent_workers else 0.0,
        is_persistent=measured.persistent_workers and measured.num_workers > 0,
        epoch_samples=measured.epoch_batches * size if measured.epoch_batches else math.inf,
        warmup_s=0.0 if measured.was_cut else measured.warmup_s / measured.epochs,
    )


def _loading_per_s(measured: TrainingMeasurements, same: LoaderTrial | None) -> float:
    seen = seen_loading_per_s(measured)
    if not measured.num_workers:
        if not measured.waits:
            return seen
        # As in the steps, without waiting for a free CPU.
        delayed_s = measured.work.delayed_s / max(1, measured.work.batches)
        waited_s = (measured.waiting_s - measured.copying_s) / measured.waits - delayed_s
        return per_s(waited_s, measured.samples_a_batch)
    if same is None:
        return seen if math.isfinite(seen) else measured.samples_per_s or math.inf
    return seen if is_colder(measured) else same.samples_per_s


def seen_loading_per_s(measured: TrainingMeasurements) -> float:
    """Return the rate at which the loading processes made batches during the training."""
    made, busy_s = measured.made_samples, measured.work.busy_s - measured.work.delayed_s
    return per_s(busy_s, made * max(1, measured.num_workers)) if made else math.inf


def is_colder(measured: TrainingMeasurements) -> bool:
    """Return whether the training loaded much more slowly than the same loader did afterwards."""
    same = measured.trial("same")
    return same is not None and seen_loading_per_s(measured) < COLDER * same.samples_per_s


def spent(sampled: Sequence[Sampled], *categories: Category) -> float:
    """Return the seconds of some categories."""
    return sum(one.seconds for one in sampled if one.category in categories)


def share(seconds: CauseSeconds, cause: Verdict) -> float:
    """Return the share of a cause, from 0 to 1."""
    return seconds[cause] / (sum(seconds.values()) or 1.0)


def step_work(measured: TrainingMeasurements) -> CauseSeconds:
    """Split the time of the steps, without waiting for other ranks, by the stack samples."""
    seen, network_s = measured.training, measured.network_s
    # Synchronisation appears in the stack as the backward pass, or as a call of torch.distributed.
    model_s = spent(seen, "model", "sync") - network_s - measured.held_up_s
    work: CauseSeconds = {"model": max(0.0, model_s), "main thread": spent(seen, "work")}
    return work | {"copy": spent(seen, "copy"), "network": network_s}


def loading_work(measured: TrainingMeasurements) -> CauseSeconds:
    """Split the time of making batches, without waits for a CPU, by the stack samples.

    Without samples, all of it counts as transforms.
    """
    work = measured.work
    known = attributed(measured.loading)
    if not any(one.seconds for one in known):  # none, or all of them while no CPU was free
        known = (Sampled("transform", "", 1.0),)
    scale = max(0.0, work.busy_s - work.delayed_s) / sum(one.seconds for one in known)
    categories: tuple[Category, ...] = ("read", "load", "decode", "transform", "collate")
    read_s, load_s, decode_s, transform_s, collate_s = (scale * spent(known, name) for name in categories)
    # Calls that read and decode, and lazy decoders, contain reading. Because transforms may be blocked too,
    # blocked time is assigned to such calls first, then to transforms, then to decoders.
    hidden_s = max(0.0, work.blocked_s - read_s)
    in_loads_s = min(load_s, max(0.0, hidden_s - max(0.0, transform_s - work.cpu_s)))
    moved_s = in_loads_s + min(decode_s, max(0.0, hidden_s - in_loads_s - transform_s))
    return {
        "storage": read_s + moved_s,
        "decoding": load_s + decode_s - moved_s,
        "transforms": transform_s,
        "transport": collate_s,
    }


def attributed(loading: Sequence[Sampled]) -> Sequence[Sampled]:
    """Return the stack samples of making batches, without those in torch's loop unless they are the majority.

    The loop frees the memory of earlier samples: that time belongs to all parts alike.
    """
    known = [one for one in loading if one.place or one.category != "transform"]
    is_most = sum(one.seconds for one in known) > MAJORITY * sum(one.seconds for one in loading)
    return known if is_most else loading
