"""Examining a script: run it, watched; try changes on its data and its model; judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fastload.doctor.categories import Frame
from fastload.doctor.dataset_files import DataFiles, count_of, encoding_of, files_of, measure_store
from fastload.doctor.findings import Diagnosis, LoaderTrial, TrainingMeasurements
from fastload.doctor.fixes import trials_to_make, workers_to_try
from fastload.doctor.gpu import GpuWatch, has_device, uuid_of
from fastload.doctor.judge import diagnose
from fastload.doctor.machine import BusyWatch
from fastload.doctor.model_trials import ModelWatch, try_model
from fastload.doctor.rates import loading_work
from fastload.doctor.record import LoaderRecord
from fastload.doctor.script import Ending, HardExit, Script, local_rank, run_script
from fastload.doctor.trials import Trials
from fastload.doctor.watch import Watcher
from fastload.doctor.workspace import workspace


@dataclass(frozen=True, slots=True)
class Examination:
    """One loader: its dataset's class and size, what was measured, and the diagnosis."""

    name: str
    measured: TrainingMeasurements
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """A script that was examined.

    Attributes:
        examinations: The loaders, the main one first: training before evaluation, then by the time spent on
            them.
        was_cut: Whether it was ended because it had been measured for long enough.
        batches: Batches that all loaders handed out.
    """

    examinations: tuple[Examination, ...]
    ending: Ending
    was_cut: bool
    batches: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on how the script ended and what could not be watched."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        if self.was_cut:
            yield "The script was ended early, as it was asked for."
        elif isinstance(self.ending.error, HardExit):
            batches = "1 batch" if self.batches == 1 else f"{self.batches:,} batches"
            yield f"The script ended by os._exit({self.ending.error.code}) after {batches}."
        elif self.ending.text:
            yield f"The script ended with {self.ending.text}."
        if not self.batches:
            yield "No batch was loaded in this process by torch's DataLoader or a subclass of it."
        if not self.batches and self.ending.children:
            yield (
                f"It started {_listed(self.ending.children)}. Child processes are not watched: run the one "
                "that trains by itself, 'fastload doctor CHILD.py …', or call its function in the main "
                "process."
            )


def _listed(children: tuple[str, ...]) -> str:
    more = f" and {len(children) - 3} more" if len(children) > 3 else ""
    return "; ".join(f"'{child[:120]}'" for child in children[:3]) + more


def examine_script(
    script: Script,
    steps: int | None = None,
    seconds: float | None = None,
    on_trials: Callable[[], None] = lambda: None,
) -> ScriptReport:
    """Run a script and find out what holds its training back.

    `steps` ends it after so many batches, `seconds` so many seconds after its first step; else it comes to
    its own end.
    """
    model, gpu, busy = ModelWatch(), GpuWatch(), BusyWatch()
    with workspace() as folder:
        watcher = Watcher(folder, steps, seconds, _is_above(script))
        with watcher.watching(), model.watching(), gpu.watching():
            ending = run_script(script)
        # Not by the exception: a framework may have made another of it.
        was_cut = watcher.was_cut
        machine = busy.state()
        gpu_busy = gpu.busy(watcher.span, uuid_of(model.device))
        # A loader that failed before its first batch says why, if it is the only one.
        records = [record for record in watcher.records if record.batches]
        records = records or (watcher.records[:1] if ending.text and not was_cut else [])
        found = [(record, record.measured(watcher.logs_of(record), machine)) for record in records]
        if any(measured.role == "training" for _, measured in found):
            found = [(record, _with_role(measured)) for record, measured in found]
        found.sort(key=lambda each: (each[1].role == "evaluation", -each[0].total_s))
        examinations = []
        for place, (record, measured) in enumerate(found):
            measured = replace(
                measured,
                device=_device(model, record),
                encoding=encoding_of(record.view.dataset),
                gpu_busy=gpu_busy,
                uses_data_parallel=model.uses_data_parallel,
                was_cut=was_cut,
                error="" if was_cut else ending.text,
            )
            # Of several ranks on a machine, one speaks, and the others' CPUs and GPUs are left alone.
            if place == 0 and not local_rank():
                measured = _with_trials(measured, record, model, folder / "trials", on_trials)
            examinations.append(Examination(_name(record), measured, diagnose(measured)))
    return ScriptReport(tuple(examinations), ending, was_cut, watcher.batches)


def _with_role(measured: TrainingMeasurements) -> TrainingMeasurements:
    """Call a loader without optimizer steps evaluation, as another one was trained on."""
    return replace(measured, role="evaluation") if measured.role == "unknown" else measured


def _with_trials(
    measured: TrainingMeasurements,
    record: LoaderRecord,
    model: ModelWatch,
    folder: Path,
    on_trials: Callable[[], None],
) -> TrainingMeasurements:
    """Add the speed of the disk and the trials that matter for the verdict."""
    on_trials()
    files = files_of(record.view.dataset)
    if files.paths:
        samples = count_of(record.view.dataset)
        if not files.are_containers:
            samples = max(samples, len(files.paths))
        measured = replace(measured, store=measure_store(files.paths, samples, 1.0, files.are_containers))
    if not measured.batches:
        return measured
    folder.mkdir()
    measured = replace(measured, trials=tuple(_loader_trials(measured, record, files, folder)))
    if diagnose(measured).verdict == "model":
        measured = replace(measured, model_trials=try_model(model, measured.step_s))
    return measured


def _loader_trials(
    measured: TrainingMeasurements,
    record: LoaderRecord,
    files: DataFiles,
    folder: Path,
) -> Iterator[LoaderTrial]:
    trials = Trials(record.view, measured.num_workers, files, folder, record.total_s)
    if measured.num_workers:
        same = trials.same()
        if same is not None:
            yield same
            measured = replace(measured, trials=(same,))
    kinds = trials_to_make(measured, loading_work(measured), diagnose(measured).verdict)
    if "cache" in kinds:
        yield from filter(None, [trials.cached()])
    if "workers" in kinds:
        for number in workers_to_try(measured):
            yield from filter(None, [trials.with_workers(number, is_cold="cache" in kinds)])
    if "loader" in kinds:
        yield from filter(None, [trials.with_fast_loader()])
    if "files" in kinds:
        yield from trials.from_files()


def _device(model: ModelWatch, record: LoaderRecord) -> str:
    if model.device is not None:
        return model.device.type
    if record.view.device:
        return torch.device(record.view.device).type
    return "cuda" if has_device() else "cpu"


def _name(record: LoaderRecord) -> str:
    dataset = record.view.dataset
    count = count_of(dataset)
    return f"{type(dataset).__name__}{f' of {count:,} samples' if count else ''}"


def _is_above(script: Script) -> Callable[[Frame], bool]:
    """Return a test for the frames that lead to the script."""
    name = script.code.co_filename

    def is_above(frame: Frame) -> bool:
        return frame.file != name

    return is_above
