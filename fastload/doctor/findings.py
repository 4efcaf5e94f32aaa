"""Measurements of a training run, and the diagnosis that is based on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fastload.loader.clock import LoadTimes

Category = Literal[
    "read", "load", "decode", "transform", "collate", "copy", "work", "script", "sync", "model"
]
"""Kinds of work. `load` reads and decodes in one call, `transform` is the rest of making a sample. In a step,
`model` runs inside modules, the backward pass and the optimizer, `sync` is a call of torch.distributed,
`work` is logging and the like, `script` the rest of what the main thread does."""

Verdict = Literal[
    "storage", "decoding", "transforms", "transport", "copy", "model", "network", "main thread", "little"
]
"""The main cause. `transport` is collating and moving batches, `copy` goes to the device, `network`
synchronises gradients, `main thread` is logging and all else that the script does between two batches."""

SlowerSide = Literal["loading", "training step", "balanced"]
Role = Literal["training", "evaluation", "unknown"]

MOST_GAIN = 10.0
"""The largest gain that is stated. A larger one means that less than a tenth of the time is left, and two
runs of the same script differ by as much."""

NO_WORK = LoadTimes(batches=0, samples=0, busy_s=0.0, cpu_s=0.0, delayed_s=0.0, collate_s=0.0)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Seconds that a thread spent on one line of the user's code, estimated from stack samples."""

    category: Category
    place: str
    seconds: float
    source: str = ""  # file and line of a statement in the training step: `/home/me/train.py:41`


SCRIPTS: tuple[Category, ...] = ("work", "script")
"""Kinds of work in a training step that are not the model's."""


def spent(sampled: Sequence[Sampled], *categories: Category) -> float:
    """Return the seconds of some categories."""
    return sum(one.seconds for one in sampled if one.category in categories)


@dataclass(frozen=True, slots=True)
class LoaderTrial:
    """Throughput of a loader that was created again with one change, measured without training.

    `kind` is `same`, or the change: `workers`, `loader`, `compile`, `decoder`, `pack`, `cache`. `cpu_s` is
    CPU time per sample, `start_s` the time for starting and stopping the workers once; `encoding` and
    `stored_bytes` are those of packed samples.
    """

    kind: str
    num_workers: int
    samples_per_s: float
    cpu_s: float
    start_s: float
    encoding: str = ""
    stored_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class StepTrial:
    """Steps of the script that was run again with a change; `as it is` without one.

    `kind` is the change's name, and `value` how far it goes (the number of threads). `samples` are those of a
    batch, `step_s` and `cpu_s` times per step, and `warm_s` the time that the first steps took longer, for
    compilation. After a `failure`, which is a reason, there are none. `flops` are the operations of a step as
    it is, `peak_flops_per_s` those of a large matrix product in a second.
    """

    kind: str
    value: str = ""
    step_s: float = 0.0
    samples: float = 1.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    losses: tuple[float, ...] = ()
    warm_s: float = 0.0
    failure: str = ""
    flops: float = 0.0
    peak_flops_per_s: float = 0.0

    @property
    def samples_per_s(self) -> float:
        """Samples (or batches, if the size of a batch is unknown) per second of training steps."""
        return self.samples / self.step_s if self.step_s else 0.0


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A training's model and optimizers, and a device that is there but unused ("" for none).

    `faster_optimizers` are calls that would make one kernel of many, `parallel` the name of a DataParallel
    class, `averages` the sources (file and line) of loops that average weights one by one.
    """

    unused_device: str = ""
    has_convolutions: bool = False
    faster_optimizers: tuple[str, ...] = ()
    threads: int = 1
    half: str = "bfloat16"  # the type for autocast
    parallel: str = ""
    averages: tuple[str, ...] = ()


TrialResult = LoaderTrial | StepTrial


@dataclass(frozen=True, slots=True)
class DataStorage:
    """Size of a dataset, and the kind of its disk with the file system, or the latter alone."""

    samples: int
    size_bytes: int
    kind: str


@dataclass(frozen=True, slots=True)
class MachineState:
    """CPUs and limits of this machine (None: unknown or unlimited), and the CPUs that other programs used.

    `usable_cpus` is the process's affinity or its quota, whichever is less; `other_cpus` are those of other
    programs and, on the same host, of other virtual machines.
    """

    usable_cpus: float
    cpus: int
    open_files: int | None = None
    shared_memory_bytes: int | None = None
    available_bytes: int | None = None
    other_cpus: float = 0.0
    memory_bytes: int | None = None
    swapped_bytes: int = 0  # written to the swap space meanwhile
    device_bytes: int = 0  # of the GPU's memory, 0 without one, and what is free of it
    free_device_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TrainingMeasurements:
    """Measurements of one loader and of the steps that used its batches; times are sums in seconds.

    The first wait of each epoch, in which workers start, counts in `first_wait_s` only, and warm-up steps
    in `warmup_s` only.
    """

    machine: MachineState
    num_workers: int = 0
    prefetch_factor: int | None = None
    batch_size: int | None = None  # the sampler's; None if the dataset returns complete batches
    batches: int = 0
    batch_bytes: int = 0
    epochs: int = 1
    epoch_batches: int | None = None  # of one epoch; None if unknown
    first_wait_s: float = 0.0
    waits: int = 0
    waiting_s: float = 0.0  # of `waits` waits
    copying_s: float = 0.0  # within them, for copying to the device
    steps: int = 0
    stepping_s: float = 0.0  # of `steps` steps
    step_cpu_s: float = 0.0
    step_delayed_s: float = 0.0  # within the steps, in which the main thread waited for a free CPU
    warmup_steps: int = 0
    warmup_s: float = 0.0
    # For each step, warm-up included: the time from the end of its own backward pass, and from the beginning
    # of the synchronisation of gradients, to its end.
    synced_s: tuple[float, ...] = ()
    exchanged_s: tuple[float, ...] = ()
    network_s: float = 0.0  # within `stepping_s`, in which every rank waited for synchronisation
    held_up_s: float = 0.0  # within `stepping_s`, in which this rank waited for slower ones
    machines: int = 1  # with ranks
    work: LoadTimes = NO_WORK  # of all processes that make batches
    busiest_s: float = 0.0  # the sum of each epoch's largest `busy_s` of one process
    loading: tuple[Sampled, ...] = ()  # stack samples of the processes that make batches
    training: tuple[Sampled, ...] = ()  # those of the main thread in the steps
    role: Role = "unknown"
    is_fastload: bool = False
    pin_memory: bool = False
    persistent_workers: bool = False
    is_iterable: bool = False
    is_recreated: bool = False  # the script creates the loader for each epoch
    own_class: str = (
        ""  # the name of the loader's class, unless it is torch's or fastload's DataLoader itself
    )
    device: str = "cpu"
    encoding: str | None = None
    folder: str = "FOLDER"  # the name of the files in the actions of fixes
    command: str = ""  # the script and its arguments, for the same purpose
    was_cut: bool = False  # the training was ended early, as requested
    trials: tuple[LoaderTrial, ...] = ()
    store: DataStorage | None = None
    gpu_share: float = 0.0  # the GPU's mean utilisation, from 0 to 1
    error: str = ""  # the exception that ended the training
    with_grad: int = 0  # batches that came while gradients were recorded
    in_training_mode: int = 0  # and while modules were in training mode
    epoch_memory_bytes: tuple[int, ...] = ()  # of the process, at the start of each epoch
    facts: StepFacts = StepFacts()  # of the whole script
    is_step_wanted: bool = False  # changes of the step are to be tried, whatever the verdict
    step_trials: tuple[StepTrial, ...] = ()

    @property
    def samples_a_batch(self) -> float:
        """Samples per batch; 1 if unknown, so that rates count batches."""
        return float(self.batch_size or 1)

    @property
    def unit(self) -> str:
        """The unit that all rates count: samples or batches."""
        return "samples" if self.batch_size else "batches"

    @property
    def made_samples(self) -> float:
        """Samples that all loading processes made."""
        return self.work.batches * self.samples_a_batch

    @property
    def waited_s(self) -> float:
        """All waits."""
        return self.first_wait_s + self.waiting_s

    @property
    def wait_s(self) -> float:
        """The mean wait for a batch."""
        return self.waiting_s / self.waits if self.waits else 0.0

    @property
    def step_s(self) -> float:
        """The mean step without warm-up."""
        return self.stepping_s / self.steps if self.steps else 0.0

    @property
    def samples_per_s(self) -> float:
        """Throughput of the training without warm-up and the first waits of epochs; 0 if unknown."""
        batch_s = self.wait_s + self.step_s
        return self.samples_a_batch / batch_s if batch_s > 0 and self.waits else 0.0

    def with_trial(self, trial: TrialResult) -> TrainingMeasurements:
        """Return the measurements with one more trial."""
        if isinstance(trial, StepTrial):
            return replace(self, step_trials=(*self.step_trials, trial))
        return replace(self, trials=(*self.trials, trial))

    def trials_of(self, kind: str) -> list[LoaderTrial]:
        """Return the trials of a kind."""
        return [trial for trial in self.trials if trial.kind == kind]

    def trial(self, kind: str) -> LoaderTrial | None:
        """Return the first trial of a kind."""
        return next(iter(self.trials_of(kind)), None)


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that would help; `kind` is a stable name.

    `gain` is the training's throughput with the fix divided by the present one, where 10 stands for 10 or
    more; None if not measured.
    """

    kind: str
    action: str
    why: str
    gain: float | None = None

    @property
    def gain_text(self) -> str:
        """The gain for printing: `1.8 times as fast as now`."""
        if self.gain is None:
            return "not measured"
        times = f"at least {MOST_GAIN:.0f}" if self.gain >= MOST_GAIN else f"{self.gain:.3g}"
        return f"{times} times as fast as now"


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the time of one batch, or, with `is_meanwhile`, what workers do during that time."""

    name: str
    seconds: float
    is_meanwhile: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict, its evidence and the fixes."""

    verdict: Verdict
    headline: str
    evidence: tuple[str, ...]
    fixes: tuple[Fix, ...]
    limits: tuple[str, ...]
    samples_per_s: float
    side: SlowerSide = "balanced"
    loading_per_s: float = 0.0  # without training; 0 if unknown
    step_per_s: float = 0.0  # with batches already in memory; 0 if unknown
    doubts: tuple[str, ...] = ()
    parts: tuple[TimePart, ...] = ()
    combination: tuple[str, ...] = ()  # sentences on fixes that add up, and on alternatives
