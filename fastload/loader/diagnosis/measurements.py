"""What a diagnosis is made from: readings of a training, of its data and of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastload.loader.times import EpochTimes

Activity = Literal[
    "read", "load", "decode", "transform", "collate", "idle", "receive", "copy", "work", "model"
]
"""What a thread is seen doing: reading files; reading and decoding in one call; decoding; anything else that
makes a sample; making a batch of samples; waiting for a batch; taking one in; copying to the device;
logging and the like; the model, and whatever is not known to be something else."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a thread was seen doing.

    Attributes:
        activity: What kind of thing it is.
        place: The line of the user's own code that led there, with its text: `train.py:41 log(loss)`.
        seconds: For how long.
    """

    activity: Activity
    place: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SlowSample:
    """A sample that took long to make.

    Attributes:
        index: Its index in the dataset.
        seconds: How long it was seen being made.
    """

    index: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Setting:
    """How a loader is set, and where it runs.

    Attributes:
        usable_cpus: The CPUs' worth of time that this process and its workers may use: the CPUs that it may
            run on, or the quota of its control group if that is less.
        cpus: The CPUs that it may run on, whatever the quota.
        is_fastload: Whether batches come through fastload's loader.
        pin_memory: As the loader was told.
        persistent_workers: As the loader was told.
        device: The kind of device that the model is on: `cpu`, `cuda`, …
        encoding: How a packed dataset stores its images; None where nothing is packed.
        epoch_samples: How many samples an epoch has; None where that is not known, or there is no end.
        epoch_batches: How many batches, as `len(loader)` tells; None: to be told from `epoch_samples`.
        threads: How many threads an operation of torch's has in the training process.
    """

    usable_cpus: float
    cpus: int
    is_fastload: bool = True
    pin_memory: bool = False
    persistent_workers: bool = False
    device: str = "cpu"
    encoding: str | None = None
    epoch_samples: int | None = None
    epoch_batches: int | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class ModelTrial:
    """What the model's step took when it was tried in another way, on the batch of the training.

    Attributes:
        change: What was changed: `batch`, `amp` or `channels_last`.
        seconds: A sample's time as it is.
        changed_s: A sample's time with the change.
    """

    change: Literal["batch", "amp", "channels_last"]
    seconds: float
    changed_s: float


@dataclass(frozen=True, slots=True)
class Decoding:
    """What decoding one of the user's own images takes on one core, in each way.

    Attributes:
        seconds: By the way: `PIL`, `OpenCV`, and the encodings of a packed dataset.
        stored_bytes: What an image takes in each encoding, on average.
        height: Of the images as they are stored, in pixels, on average.
        width: The same.
        shrunk_s: What decoding takes of images that were shrunk to `shrunk_side` before; None where they
            are no larger.
        shrunk_side: The shorter side of these, in pixels.
    """

    seconds: dict[str, float]
    stored_bytes: dict[str, float]
    height: float
    width: float
    shrunk_s: float | None = None
    shrunk_side: int = 256


@dataclass(frozen=True, slots=True)
class Store:
    """Where the dataset's files lie, and how fast that is.

    Attributes:
        samples: How many they hold; a file is one, unless they are containers.
        size_bytes: What they take together.
        kind: Of the disk, and its file system, in words.
        is_cold: Whether the speeds are those of the disk, and not of the page cache.
        random_per_s: Samples a second, read one by one in random order; 0 where unknown.
        parallel_per_s: The same, by several at once.
        sequential_bytes_per_s: Of one long read.
        warm_per_s: Samples a second out of the page cache.
        latency_s: From asking for one to its first byte.
        note: What the readings do not say.
        are_containers: Whether each file holds many samples.
    """

    samples: int
    size_bytes: int
    kind: str = ""
    is_cold: bool = False
    random_per_s: float = 0.0
    parallel_per_s: float = 0.0
    sequential_bytes_per_s: float = 0.0
    warm_per_s: float = 0.0
    latency_s: float = 0.0
    note: str = ""
    are_containers: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What this machine, or whoever rents it out, allows; None where it does not say.

    Attributes:
        open_files: `ulimit -n`.
        shared_memory_bytes: The size of /dev/shm.
        shared_memory_free_bytes: What is free of it.
        available_bytes: Memory that can be taken without swapping.
    """

    open_files: int | None = None
    shared_memory_bytes: int | None = None
    shared_memory_free_bytes: int | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measurements:
    """All that was measured of one loader's training. What was not measured is None, or empty.

    Attributes:
        times: The steps of all its epochs together.
        setting: How the loader is set.
        epochs: How many epochs began.
        loading: What the processes that load were seen doing, while they made batches.
        training: What the training process's main thread was seen doing.
        sending_cpu_s: The CPU time that workers took besides making batches, in all: for sending them.
        helping_cpu_s: Without workers: the CPU time of the process's other threads while it made batches
            (OpenCV's, OpenMP's), in all. Workers' is among what they take for sending.
        transforms_pil: Whether transforms were seen at work on PIL's images.
        epoch_waits_s: The mean wait for a batch in each epoch, first batches left out; very short epochs are
            passed over.
        quickest_s: What making the quickest of all batches took; None where that is not known.
        receiving_cpu_s: The CPU time of the training process's main thread in the waits, the first ones of
            epochs left out; None where that is not known.
        training_cpu_s: The CPU time of the training process, loading left out, in all.
        training_delayed_s: How long its main thread was ready to run and no CPU was free.
        slow: The samples that were seen taking longest.
        trials: The model, tried in other ways.
        decoding: What decoding takes in each way.
        store: Where the files lie.
        limits: What the machine allows.
        gpu_busy: How busy the GPU was, 0 to 1, at even times.
        uses_data_parallel: Whether the model is in torch's DataParallel.
        error: What ended the training, if it did not end by itself.
    """

    times: EpochTimes
    setting: Setting
    epochs: int = 1
    loading: tuple[Seen, ...] = ()
    training: tuple[Seen, ...] = ()
    sending_cpu_s: float = 0.0
    helping_cpu_s: float = 0.0
    transforms_pil: bool = False
    epoch_waits_s: tuple[float, ...] = ()
    quickest_s: float | None = None
    receiving_cpu_s: float | None = None
    training_cpu_s: float | None = None
    training_delayed_s: float = 0.0
    slow: tuple[SlowSample, ...] = ()
    trials: tuple[ModelTrial, ...] = ()
    decoding: Decoding | None = None
    store: Store | None = None
    limits: Limits | None = None
    gpu_busy: tuple[float, ...] = ()
    uses_data_parallel: bool = False
    error: str = ""
