"""Measurements of a training, and the diagnosis that is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Category = Literal["read", "load", "decode", "transform", "collate", "copy", "work", "model"]
"""Kinds of work: reading files; reading and decoding in one call; decoding; anything else that makes a
sample; collating; copying to the device; logging and the like; the model and the rest of a step."""

Verdict = Literal[
    "storage", "decoding", "transforms", "preparing", "transport", "copy", "model", "main thread", "little"
]
"""The main cause: reading; decoding; transforms; one of these two where they cannot be told apart; collating
and moving batches; copies to the device; the model; logging and the like; or too little work to matter."""

Side = Literal["loading", "training step", "balanced"]
Role = Literal["training", "evaluation", "unknown"]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Seconds that a thread spent on one line of the user's code, by stack samples."""

    category: Category
    place: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """Seconds that one process spent on making batches; `delayed_s` is the wait for a free CPU."""

    batches: int = 0
    samples: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    delayed_s: float = 0.0
    collate_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoaderTrial:
    """The rate of a loader that was made again with one change, while nobody trains.

    `kind` is `same`, or the change: `workers`, `loader`, `decoder`, `transforms`, `pack`, `cache`. `cpu_s` is
    the CPU time of a sample, `start_s` the time for starting and ending the workers, once an epoch; `detail`
    names the encoding and the transforms.
    """

    kind: str
    num_workers: int
    samples_per_s: float
    cpu_s: float
    start_s: float
    detail: str = ""
    stored_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelTrial:
    """Seconds that the model's step took for each sample, as it is and with a change, on the same batch."""

    change: Literal["batch", "amp"]
    seconds: float
    changed_s: float


@dataclass(frozen=True, slots=True)
class DataStorage:
    """The files of a dataset and the speed of their disk, in samples a second (0: not measured).

    Cold figures are those of the page cache too where `is_cold` is False: its pages could not be dropped.
    """

    samples: int
    size_bytes: int
    kind: str = ""
    is_cold: bool = False
    random_per_s: float = 0.0
    parallel_per_s: float = 0.0
    warm_per_s: float = 0.0
    latency_s: float = 0.0
    are_shards: bool = False


@dataclass(frozen=True, slots=True)
class MachineState:
    """CPUs and limits of this machine (None: unknown or unlimited), and CPUs taken by others meanwhile.

    `usable_cpus` is the affinity of this process, or its quota if that is less; `stolen_cpus` went to other
    virtual machines.
    """

    usable_cpus: float
    cpus: int
    open_files: int | None = None
    shared_memory_bytes: int | None = None
    available_bytes: int | None = None
    other_cpus: float = 0.0
    stolen_cpus: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingMeasurements:
    """Measurements of one loader and the steps that used its batches; times are sums in seconds.

    Warm-up steps are in `warmup_s` alone, and the first wait of each epoch, which starts workers, is in
    `first_wait_s` alone. `waiting_s` covers `waits` batches, `stepping_s` covers `steps`. `batch_size` is
    that of the loader's sampler; None where the dataset makes whole batches. `step_delayed_s` is the time for
    which the main thread was ready to run and no CPU was free. `loading` and `training` are the stack samples
    of the processes that make batches, and of the main thread in the steps. `error` ended the training.
    """

    machine: MachineState
    num_workers: int = 0
    prefetch_factor: int | None = None
    batch_size: int | None = None
    batches: int = 0
    batch_bytes: int = 0
    epochs: int = 1
    epoch_batches: int | None = None
    first_wait_s: float = 0.0
    waits: int = 0
    waiting_s: float = 0.0
    copying_s: float = 0.0
    steps: int = 0
    stepping_s: float = 0.0
    step_cpu_s: float = 0.0
    step_delayed_s: float = 0.0
    warmup_steps: int = 0
    warmup_s: float = 0.0
    waits_s: tuple[float, ...] = ()
    steps_s: tuple[float, ...] = ()
    workers: tuple[WorkerTimes, ...] = ()
    loading: tuple[Sampled, ...] = ()
    training: tuple[Sampled, ...] = ()
    role: Role = "unknown"
    is_fastload: bool = False
    pin_memory: bool = False
    persistent_workers: bool = False
    device: str = "cpu"
    encoding: str | None = None
    was_cut: bool = False
    trials: tuple[LoaderTrial, ...] = ()
    model_trials: tuple[ModelTrial, ...] = ()
    store: DataStorage | None = None
    gpu_busy: tuple[float, ...] = ()
    error: str = ""

    @property
    def samples_a_batch(self) -> float:
        """Samples of a batch; 1 where that is unknown, so that rates are of batches."""
        return float(self.batch_size or 1)

    @property
    def unit(self) -> str:
        """The noun for the units of all rates."""
        return "samples" if self.batch_size else "batches"

    @property
    def made_samples(self) -> float:
        """Samples that all processes made."""
        return sum(worker.batches for worker in self.workers) * self.samples_a_batch

    @property
    def wait_s(self) -> float:
        """Seconds of waiting for a batch."""
        return self.waiting_s / self.waits if self.waits else 0.0

    @property
    def step_s(self) -> float:
        """Seconds of a step, warm-up left out."""
        return self.stepping_s / self.steps if self.steps else 0.0

    @property
    def samples_per_s(self) -> float:
        """The throughput of the training, the starts of epochs and warm-up left out; 0 where unknown."""
        batch_s = self.wait_s + self.step_s
        return self.samples_a_batch / batch_s if batch_s > 0 and self.waits else 0.0

    @property
    def overall_per_s(self) -> float:
        """The throughput with the starts of epochs, in which workers start; warm-up is left out."""
        if not self.batches:
            return 0.0
        batch_s = (self.first_wait_s + self.waiting_s) / self.batches + self.step_s
        return self.samples_a_batch / batch_s if batch_s > 0 else 0.0

    @property
    def gpu_share(self) -> float:
        """The mean utilisation of the GPU, from 0 to 1."""
        return sum(self.gpu_busy) / len(self.gpu_busy) if self.gpu_busy else 0.0

    def trials_of(self, kind: str) -> list[LoaderTrial]:
        """Return the trials of a kind."""
        return [trial for trial in self.trials if trial.kind == kind]

    def trial(self, kind: str) -> LoaderTrial | None:
        """Return the first trial of a kind."""
        return next(iter(self.trials_of(kind)), None)


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing to do; `kind` stays the same from release to release.

    `gain` is the training's throughput with it as a multiple of the present one; None where not measured.
    `arguments` of the DataLoader apply it, for `--try`; they are empty where the script has to change.
    """

    kind: str
    action: str
    gain: float | None
    why: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def gain_text(self) -> str:
        """The gain as people read it: `1.8 ×`."""
        if self.gain is None:
            return "not measured"
        return f"{self.gain:.0f} ×" if self.gain >= 10 else f"{self.gain:.2g} ×"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The throughput of the training with a number of workers, from the trials."""

    num_workers: int
    samples_per_s: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict, its evidence and the fixes; `str()` of it is a report.

    `loading_per_s` is the rate of the loader while nobody trains, `step_per_s` that of the training step on
    batches that are already there; 0 where unknown.
    """

    verdict: Verdict
    headline: str
    evidence: tuple[str, ...]
    fixes: tuple[Fix, ...]
    limits: tuple[str, ...]
    samples_per_s: float
    side: Side = "balanced"
    loading_per_s: float = 0.0
    step_per_s: float = 0.0
    doubts: tuple[str, ...] = ()
    forecast: tuple[Forecast, ...] = ()

    def __str__(self) -> str:
        lines = [self.headline, *_bullets("Evidence", self.evidence), *_bullets("Doubts", self.doubts)]
        lines += ["", "What to do, first things first:" if self.fixes else "Nothing to do."]
        for number, fix in enumerate(self.fixes, 1):
            lines += [f"  {number}. {fix.action}", f"     gain: {fix.gain_text} ({fix.why})"]
        return "\n".join([*lines, *_bullets("Limits of this machine", self.limits)])

    __repr__ = __str__


def _bullets(title: str, sentences: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  - {text}" for text in sentences)] if sentences else []
