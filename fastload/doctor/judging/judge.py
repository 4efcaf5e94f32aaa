"""Judgement of a training run: two rates, the time of each side by cause, and the verdict; pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastload.doctor.findings import (
    SCRIPTS,
    Category,
    LoaderTrial,
    Sampled,
    SlowerSide,
    TrainingMeasurements,
    Verdict,
    spent,
)
from fastload.loader.report import LEAST_S, slower_cause

COLDER = 0.75
"""If the training's workers were slower than this share of a later trial's rate, the trial found files in
memory that they had to read from the disk; then the training's own rate counts."""

MAJORITY = 0.5
"""More than this share of a time or of a space is most of it."""

BALANCED = 0.9
"""Two rates are balanced if the slower is more than this share of the faster: on a machine that does other
work, stack samples and clocks cannot resolve a smaller difference."""

MOST_STARTING = 0.4
"""Workers have too little to do if starting them takes more than 40 % of the epoch, and the rest of the epoch
takes less than `LEAST_S`. A longer epoch may be that of a rehearsal on a part of the data."""

MOST_OF_OTHERS = 0.2
"""If other programs take more than this share of a machine's CPUs, figures differ from run to run."""

GPU_BUSY = 0.9
"""A GPU that computes for more than this share of the time is the limit, wherever the host waits."""

_NO_DESCRIPTORS = re.compile(r"too many open files|received 0 items of ancdata", re.IGNORECASE)
_FULL_SHARED_MEMORY = re.compile(
    r"bus error|/dev/shm|unable to (write|mmap|allocate|resize).*(shared memory|torch_)"
    # If the message names one of the user's files, another disk is full.
    r"|no space left on device(?!: ['\"](?!/(torch_|psm_|dev/shm)))",
    re.IGNORECASE,
)

CauseSeconds = dict[Verdict, float]


@dataclass(frozen=True, slots=True)
class Rates:
    """Samples per second of loading and of the step (infinite if they take no time), and CPU time per sample.

    `start_s` is the time for starting workers in each epoch, 0 if they are persistent.
    """

    loading: float
    step: float
    num_workers: int
    cpus: float
    loading_cpu_s: float = 0.0
    step_cpu_s: float = 0.0
    start_s: float = 0.0
    epoch_samples: float = math.inf
    is_persistent: bool = False

    @property
    def by_cpus(self) -> float:
        """The rate at which loading and the step together occupy all CPUs."""
        return per_s(self.loading_cpu_s + self.step_cpu_s, self.cpus)

    def combined(self) -> float:
        """Return the throughput of the training, by the one rule behind all gains.

        Without workers, loading and the step take turns. With workers, the slower one decides, unless the
        CPUs that they share do. Starting workers and warm-up do not count: the epochs of a trial run are
        often much shorter than those of the training.
        """
        if self.num_workers:
            return min(self.loading, self.step, self.by_cpus)
        return per_s(per_s(self.loading) + per_s(self.step))

    def of_epoch(self) -> float:
        """Return the throughput of an epoch that starts its workers."""
        return per_s(per_s(self.combined()) + self.start_s / self.epoch_samples)

    def with_trial(self, trial: LoaderTrial, read_s: float = 0.0) -> Rates:
        """Return the rates with the loader of a trial that also spends `read_s` per sample on reading."""
        return replace(
            self,
            loading=per_s(per_s(trial.samples_per_s) + read_s / max(1, trial.num_workers)),
            num_workers=trial.num_workers,
            loading_cpu_s=trial.cpu_s,
            start_s=0.0 if self.is_persistent else trial.start_s,
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """The rates of a training run, the seconds of each cause in loading and in the step, and the verdict."""

    measured: TrainingMeasurements
    rates: Rates
    loading: CauseSeconds
    step: CauseSeconds
    side: SlowerSide
    verdict: Verdict

    @property
    def is_of_loading(self) -> bool:
        """True if the verdict is a cause in loading."""
        return self.verdict in self.loading

    @property
    def is_machine_busy(self) -> bool:
        """True if other programs take so many CPUs that the measurements are doubtful."""
        machine = self.measured.machine
        return machine.other_cpus > MOST_OF_OTHERS * machine.cpus

    def throughput(self, rates: Rates) -> float:
        """Return the throughput that decides: where the work is too little, the start of workers counts."""
        return rates.of_epoch() if self.verdict == "little" else rates.combined()

    def share(self, cause: Verdict) -> float:
        """Return a cause's share of its side, from 0 to 1."""
        seconds = self.step if cause in self.step else self.loading
        return seconds[cause] / (sum(seconds.values()) or 1.0)


def judge(measured: TrainingMeasurements) -> Judgement:
    """Return the judgement: the slower rate names the side, the largest part of that side the verdict."""
    rates, loading, step = rates_of(measured), _loading_work(measured), _step_work(measured)
    slower, faster = sorted((rates.loading, rates.step))
    is_step_slower, is_gpu_busy = rates.step <= rates.loading, measured.gpu_share > GPU_BUSY
    side: SlowerSide = "training step" if is_step_slower or is_gpu_busy else "loading"
    if math.isfinite(faster) and slower > BALANCED * faster and not is_gpu_busy:
        side = "balanced"
    verdict: Verdict
    if ran_out_of(measured.error):
        verdict = "transport"
    elif _is_little(measured, rates):
        verdict = "little"
    elif is_gpu_busy:
        # A GPU that waits for gradients is busy, too.
        verdict = "network" if step["network"] > step["model"] else "model"
    elif not is_step_slower and measured.copying_s > MAJORITY * measured.waiting_s > 0:
        verdict = "copy"
    else:
        verdict = slower_cause(step, loading, is_step_slower, _busy_share(measured), "transport")
    return Judgement(measured, rates, loading, step, side, verdict)


def ran_out_of(error: str) -> str:
    """Return the resource whose exhaustion ended the training: open files, shared memory, or "" for none.

    "unable to open shared memory object </torch_1>: Too many open files" is a lack of descriptors.
    """
    if _NO_DESCRIPTORS.search(error):
        return "open files"
    return "shared memory" if _FULL_SHARED_MEMORY.search(error) else ""


def per_s(seconds: float, count: float = 1.0) -> float:
    """Return `count / seconds`, infinite for no time; it also turns a rate into seconds."""
    return count / seconds if seconds > 0 else math.inf


def rates_of(measured: TrainingMeasurements) -> Rates:
    """Return the rates of a training run."""
    size, same = measured.samples_a_batch, measured.trial("same")
    steps = max(1, measured.steps)
    # On a busy machine, what the kernel counts as waiting for a CPU may exceed the time of short steps.
    least_s = measured.step_cpu_s / measured.machine.cpus
    step_s = max(measured.stepping_s - measured.step_delayed_s - measured.held_up_s, least_s) / steps
    return Rates(
        loading=_loading_per_s(measured, same),
        step=per_s(step_s, size),
        num_workers=measured.num_workers,
        cpus=measured.machine.usable_cpus,
        loading_cpu_s=same.cpu_s if same is not None and measured.num_workers else 0.0,
        step_cpu_s=measured.step_cpu_s / steps / size,
        start_s=same.start_s if same is not None and not measured.persistent_workers else 0.0,
        is_persistent=measured.persistent_workers and measured.num_workers > 0,
        epoch_samples=measured.epoch_batches * size if measured.epoch_batches else math.inf,
    )


def _loading_per_s(measured: TrainingMeasurements, same: LoaderTrial | None) -> float:
    seen = _seen_per_s(measured)
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


def _seen_per_s(measured: TrainingMeasurements) -> float:
    """Return the rate at which the loading processes made batches during the training."""
    made, busy_s = measured.made_samples, measured.work.busy_s - measured.work.delayed_s
    return per_s(busy_s, made * max(1, measured.num_workers)) if made else math.inf


def is_colder(measured: TrainingMeasurements) -> bool:
    """Return whether the training loaded much more slowly than the same loader did afterwards."""
    same = measured.trial("same")
    return same is not None and _seen_per_s(measured) < COLDER * same.samples_per_s


def _is_little(measured: TrainingMeasurements, rates: Rates) -> bool:
    batches = measured.batches / measured.epochs
    if measured.was_cut and measured.epoch_batches:
        batches = max(batches, measured.epoch_batches)
    seen_s = measured.samples_a_batch / _seen_per_s(measured)
    working_s = batches * ((measured.wait_s if measured.waits else seen_s) + measured.step_s)
    start_s = measured.first_wait_s / measured.epochs if measured.num_workers else 0.0
    if measured.trial("same") is not None:
        start_s = min(start_s, rates.start_s)
    if measured.epochs * (working_s + start_s) < LEAST_S:
        return True
    return working_s < LEAST_S and start_s > MOST_STARTING * (start_s + working_s)


def _busy_share(measured: TrainingMeasurements) -> float:
    """Return the share of what its workers could make that the loader gives; 1 if unknown."""
    same = measured.trial("same")
    if not measured.work.batches or same is None or measured.batches < 4 * measured.num_workers:
        return 1.0
    # By the busiest worker, because one that is much slower than the others holds all of them up.
    made_per_s = per_s(measured.busiest_s, measured.made_samples)
    # Other programs may have slowed down one of the two runs.
    return max(same.samples_per_s, measured.samples_per_s) / made_per_s if made_per_s else 1.0


def _step_work(measured: TrainingMeasurements) -> CauseSeconds:
    """Split the time of the steps, without waiting for other ranks, by the stack samples."""
    seen, network_s = measured.training, measured.network_s
    # Synchronisation appears in the stack as the backward pass, or as a call of torch.distributed.
    model_s = max(0.0, spent(seen, "model", "sync") - network_s - measured.held_up_s)
    return {
        "model": model_s,
        "main thread": spent(seen, *SCRIPTS),
        "copy": spent(seen, "copy"),
        "network": network_s,
    }


def _loading_work(measured: TrainingMeasurements) -> CauseSeconds:
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
