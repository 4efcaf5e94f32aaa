"""Examining a script: it runs, watched; what is left to measure is measured; then comes the diagnosis."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fastload.doctor.activities import Frame
from fastload.doctor.data import count_of, encoding_of, files_of
from fastload.doctor.decodings import measure_decoding
from fastload.doctor.gpu import GpuWatch, uuid_of
from fastload.doctor.loads import LoadLog, as_seen
from fastload.doctor.machine import cpus_of, limits_of
from fastload.doctor.records import LoaderRecord, slow_samples
from fastload.doctor.script import Ending, local_rank, run_script
from fastload.doctor.stores import measure_store
from fastload.doctor.trials import ModelWatch, try_model
from fastload.doctor.watching import Watcher
from fastload.loader.diagnosis import Diagnosis, Measurements, Setting, diagnose
from fastload.loader.diagnosis.measurements import Decoding, Store
from fastload.system.overview import read_machine

# Reading a PIL image as an array calls this and that of PIL as well; a transform made of it, little else.
_PIL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found of one loader.

    Attributes:
        name: What to call it: its dataset's class, and how many samples that has.
        measured: The measurements.
        diagnosis: What they say.
    """

    name: str
    measured: Measurements
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """What was found of a script.

    Attributes:
        examinations: A loader's each, that of the one on which most time was spent first.
        ending: How the script ended.
        was_cut: Whether it was ended because it had been measured for long enough.
    """

    examinations: tuple[Examination, ...]
    ending: Ending
    was_cut: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """How it came about, in sentences."""
        if self.was_cut:
            return ("The script was ended early, as it was asked for.",)
        return (f"The script ended with {self.ending.text}",) if self.ending.text else ()


def examine_script(
    path: Path, arguments: Sequence[str], steps: int | None = None, seconds: float | None = None
) -> ScriptReport:
    """Runs a script and finds out what holds its training back.

    Args:
        path: The script.
        arguments: Its arguments.
        steps: End it after so many batches; None: let it come to its own end.
        seconds: End it so many seconds after the first batch.

    Raises:
        OptionError: The script cannot be read, or is no Python.
    """
    model, gpu = ModelWatch(), GpuWatch()
    with tempfile.TemporaryDirectory(prefix="fastload-doctor-", ignore_cleanup_errors=True) as folder:
        watcher = Watcher(Path(folder), steps, seconds, _is_above(path))
        with watcher.watching(), model.watching(), gpu.watching():
            ending = run_script(path, arguments)
        # Not by the exception: a framework may have made another of it.
        was_cut = watcher.was_cut
        records = sorted(watcher.records, key=lambda record: -record.total_s)
        found = [(record, watcher.logs_of(record)) for record in records if record.batches]
        if not found:
            failed = [(record, watcher.logs_of(record)) for record in records]
            found = failed[:1] if ending.text and not was_cut else []
    gpu_busy = gpu.busy(watcher.span, uuid_of(model.device))
    examinations = []
    for place, (record, logs) in enumerate(found):
        is_first = place == 0
        text = "" if was_cut else ending.text
        measured = _measure(record, logs, model, gpu_busy, text, is_first)
        examinations.append(Examination(_name(record), measured, diagnose(measured)))
    return ScriptReport(tuple(examinations), ending, was_cut)


def _measure(
    record: LoaderRecord,
    logs: list[LoadLog],
    model: ModelWatch,
    gpu_busy: tuple[float, ...],
    error: str,
    is_first: bool,
) -> Measurements:
    machine = read_machine()
    cpus, most_cpus = cpus_of(machine)
    settings = record.loader
    if not settings["num_workers"]:
        logs = [record.log]
    seen: dict[tuple[str, str], float] = {}
    for log in logs:
        for key, taken in log.seen.items():
            seen[key] = seen.get(key, 0.0) + taken
    encoding = encoding_of(record.dataset)
    store, decoding = _measure_data(record) if is_first else (None, None)
    setting = Setting(
        usable_cpus=cpus,
        cpus=most_cpus,
        is_fastload=settings["is_fastload"],
        pin_memory=bool(settings["pin_memory"]),
        persistent_workers=bool(settings["persistent_workers"]),
        device=_device(model, settings),
        encoding=encoding,
        epoch_samples=_epoch_samples(record),
        epoch_batches=settings["epoch_batches"],
        threads=torch.get_num_threads(),
    )
    measured = Measurements(
        times=record.times(logs),
        setting=setting,
        epochs=max(1, record.epochs),
        loading=as_seen(seen),
        training=as_seen(record.training()),
        sending_cpu_s=sum(max(0.0, log.process_cpu_s - log.cpu_s) for log in logs)
        if settings["num_workers"]
        else 0.0,
        helping_cpu_s=0.0 if settings["num_workers"] else record.log.helping_cpu_s,
        transforms_pil=_transforms_pil(logs),
        epoch_waits_s=record.epoch_waits_s(),
        quickest_s=min((log.quickest_s for log in logs if log.batches), default=None),
        receiving_cpu_s=record.receiving_cpu_s if settings["num_workers"] else None,
        training_cpu_s=record.training_cpu_s,
        training_delayed_s=record.training_delayed_s,
        slow=slow_samples(logs),
        decoding=decoding,
        store=store,
        limits=limits_of(machine),
        gpu_busy=gpu_busy,
        uses_data_parallel=model.uses_data_parallel,
        error=error,
    )
    return _with_trials(measured, model) if is_first else measured


def _transforms_pil(logs: Sequence[LoadLog]) -> bool:
    """Whether transforms want PIL's images, rather than take the arrays that these can be read as."""
    seen_s = sum(seconds for log in logs for (name, _), seconds in log.seen.items() if name == "transform")
    return sum(log.pil_s for log in logs) > _PIL_SHARE * seen_s


def _measure_data(record: LoaderRecord) -> tuple[Store | None, Decoding | None]:
    """How fast the dataset's files are read, and decoded where each is an image."""
    files, samples = files_of(record.dataset), count_of(record.dataset)
    if not files.paths:
        return None, None
    if files.are_containers:
        return measure_store(files.paths, samples, most_s=1.0, are_containers=True), None
    store = measure_store(files.paths, max(samples, len(files.paths)), most_s=1.0)
    return store, measure_decoding(files.paths, most_s=1.0)


def _with_trials(measured: Measurements, model: ModelWatch) -> Measurements:
    """The measurements with those of the model, where it is the model that holds the training back."""
    # Of several ranks on a machine, one speaks, and the others' GPUs are left alone.
    if local_rank() or diagnose(measured).verdict != "model":
        return measured
    times = measured.times
    return replace(measured, trials=try_model(model, times.stepping_s / max(1, times.batches)))


def _device(model: ModelWatch, settings: dict[str, Any]) -> str:
    if model.device is not None:
        return model.device.type
    if settings["device"]:
        return torch.device(settings["device"]).type
    return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def _epoch_samples(record: LoaderRecord) -> int | None:
    """How many samples an epoch has, by the batches that were seen: a batch sampler's size is not said."""
    batches = record.loader["epoch_batches"]
    return None if batches is None or not record.batch_size else batches * record.batch_size


def _name(record: LoaderRecord) -> str:
    count = count_of(record.dataset)
    return f"{type(record.dataset).__name__}{f' of {count:,} samples' if count else ''}"


def _is_above(path: Path) -> Callable[[Frame], bool]:
    """What tells whether a frame is one of those that lead to the script."""
    name = str(path)

    def is_above(frame: Frame) -> bool:
        return frame.file != name

    return is_above
