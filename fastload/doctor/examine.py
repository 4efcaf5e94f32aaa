"""Examining a script: run it, watched; try changes on its data and its model; judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fastload.doctor._dataset_files import DataFiles, count_of, encoding_of, files_of, measure_store
from fastload.doctor._fixes import trials_to_make, workers_to_try
from fastload.doctor._gpu import GpuWatch, uuid_of
from fastload.doctor._judge import diagnose
from fastload.doctor._machine import BusyWatch
from fastload.doctor._model_trials import ModelWatch, try_model
from fastload.doctor._rates import loading_work
from fastload.doctor._record import LoaderRecord
from fastload.doctor._trials import Trials
from fastload.doctor._watch import Watcher
from fastload.doctor._workspace import workspace
from fastload.doctor.findings import Diagnosis, LoaderTrial, TrainingMeasurements
from fastload.doctor.script import Ending, HardExit, Script, local_rank, run_script
from fastload.system.units import format_count


@dataclass(frozen=True, slots=True)
class Examination:
    """One loader: its dataset's class and size, its measurements, and the diagnosis."""

    name: str
    measured: TrainingMeasurements
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """A script that was examined.

    The main loader comes first: training before evaluation, then by the time spent on them. `notes` tell how
    the script ended, and what could not be watched.
    """

    examinations: tuple[Examination, ...]
    ending: Ending
    was_cut: bool
    batches: int
    notes: tuple[str, ...]


def _notes(ending: Ending, was_cut: bool, batches: int) -> Iterator[str]:
    if was_cut:
        yield "The script was ended early, as requested."
    elif isinstance(ending.error, HardExit):
        after = format_count(batches, "batch", "batches")
        yield f"The script ended by os._exit({ending.error.code}) after {after}."
    elif ending.text:
        yield f"The script ended with {ending.text}."
    if not batches:
        yield "No batch was loaded in this process by torch's DataLoader or a subclass of it."
    if not batches and ending.children:
        more = f" and {len(ending.children) - 3} more" if len(ending.children) > 3 else ""
        listed = "; ".join(f"'{child[:120]}'" for child in ending.children[:3])
        yield (
            f"It started {listed}{more}. Child processes are not watched: run the one that trains by itself, "
            "'fastload doctor CHILD.py …', or call its function in the main process."
        )


def examine_script(
    script: Script,
    steps: int | None = None,
    seconds: float | None = None,
    on_trials: Callable[[], None] = lambda: None,
) -> ScriptReport:
    """Run a script and find the limit of its training.

    `steps` ends it after so many batches, `seconds` so many seconds after its first step; else it comes to
    its own end.
    """
    model, gpu, busy = ModelWatch(), GpuWatch(), BusyWatch()
    with workspace() as folder:
        watcher = Watcher(folder, steps, seconds, script.code.co_filename)
        with watcher.watching(), model.watching(), gpu.watching():
            ending = run_script(script)
        # Not by the exception: a framework may have made another of it.
        was_cut = watcher.was_cut
        machine = busy.state()
        gpu_busy = gpu.busy(watcher.span, uuid_of(model.device))
        # A loader that failed before its first batch explains the failure, if it is the only one.
        records = [record for record in watcher.records if record.batches]
        records = records or (watcher.records[:1] if ending.text and not was_cut else [])
        has_training = any(record.role() == "training" for record in records)
        found = []
        for record in records:
            measured = replace(
                record.measured(watcher.logs_of(record), machine),
                # A loader without optimizer steps beside another one with them is evaluation.
                role="evaluation" if has_training and not record.trained else record.role(),
                device=_device(model, record),
                encoding=encoding_of(record.view.dataset),
                gpu_busy=gpu_busy,
                was_cut=was_cut,
                error="" if was_cut else ending.text,
            )
            found.append((record, measured))
        found.sort(key=lambda each: (each[1].role == "evaluation", -each[0].total_s))
        # Only one of several ranks on a machine reports, and the others' CPUs and GPUs are left alone.
        if found and not local_rank():
            on_trials()
            found[0] = found[0][0], _with_trials(found[0][1], found[0][0], model, folder / "trials")
        examinations = tuple(
            Examination(_name(record), measured, diagnose(measured)) for record, measured in found
        )
    notes = tuple(_notes(ending, was_cut, watcher.batches))
    return ScriptReport(examinations, ending, was_cut, watcher.batches, notes)


def _with_trials(
    measured: TrainingMeasurements, record: LoaderRecord, model: ModelWatch, folder: Path
) -> TrainingMeasurements:
    """Add the speed of the disk and the trials that matter for the verdict."""
    files = files_of(record.view.dataset)
    measured = replace(measured, store=measure_store(files, count_of(record.view.dataset)))
    if not measured.batches:
        return measured
    folder.mkdir()
    measured = replace(measured, trials=tuple(_loader_trials(measured, record, files, folder)))
    if diagnose(measured).verdict == "model":
        measured = replace(measured, model_trials=try_model(model, measured.step_s))
    return measured


def _loader_trials(
    measured: TrainingMeasurements, record: LoaderRecord, files: DataFiles, folder: Path
) -> Iterator[LoaderTrial]:
    trials = Trials(record.view, measured.num_workers, files, folder, record.total_s)
    if measured.num_workers:
        same = trials.same()
        yield from same
        measured = replace(measured, trials=tuple(same))
    kinds = trials_to_make(measured, loading_work(measured), diagnose(measured).verdict)
    if "cache" in kinds:
        yield from trials.cached()
    if "workers" in kinds:
        for number in workers_to_try(measured):
            yield from trials.with_workers(number, is_cold="cache" in kinds)
    if "loader" in kinds:
        yield from trials.with_fast_loader()
    if "files" in kinds:
        yield from trials.from_files()


def _device(model: ModelWatch, record: LoaderRecord) -> str:
    if model.device is not None:
        return model.device.type
    if record.view.device:
        return torch.device(record.view.device).type
    return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def _name(record: LoaderRecord) -> str:
    dataset = record.view.dataset
    samples = count_of(dataset)
    return f"{type(dataset).__name__}{f' of {samples:,} samples' if samples else ''}"
