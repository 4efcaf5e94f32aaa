"""Examination of a script: run it while watching, try changes on its data, judge."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fastload.doctor._dataset_files import count_of, encoding_of, files_of, folder_of, storage_of
from fastload.doctor._evidence import ran_out_of
from fastload.doctor._fixes import trials_to_make, workers_to_try
from fastload.doctor._judge import diagnose
from fastload.doctor._machine import BusyWatch, gpu_in_use, gpu_share, reading_gpus
from fastload.doctor._rates import loading_work
from fastload.doctor._record import LoaderRecord
from fastload.doctor._sync import SyncWatch
from fastload.doctor._trials import Trials
from fastload.doctor._watch import Watcher
from fastload.doctor.findings import Diagnosis, TrainingMeasurements
from fastload.doctor.ranks import RankComparison, RankTimes, compare
from fastload.doctor.script import Ending, HardExit, Script, local_rank, run_script
from fastload.system.units import format_count

# Changes are tried on the main loader, and on others whose waits take more than this share of the time.
_LONG_WAITS = 0.2

# The longest wait, after the training, for the times of the other ranks, and for the trials of the slowest.
_MOST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Examination:
    """One loader: its dataset's class and size, its measurements, the diagnosis, its place in the script."""

    name: str
    measured: TrainingMeasurements
    diagnosis: Diagnosis
    number: int = 0


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """The loaders of a script, training before evaluation, then by the time spent on them.

    `notes` tell how the script ended, and what could not be watched. Of several ranks, which are compared in
    `ranks`, `rank` 0 has the examinations of the slowest one.
    """

    examinations: tuple[Examination, ...]
    ending: Ending
    was_cut: bool
    batches: int
    notes: tuple[str, ...]
    rank: int = 0
    ranks: RankComparison | None = None


def _notes(ending: Ending, was_cut: bool, batches: int) -> Iterator[str]:
    if was_cut:
        yield "The script was ended early, as requested."
    elif isinstance(ending.error, HardExit):
        after = format_count(batches, "batch", "batches")
        yield f"The script ended by os._exit({ending.error.code}) after {after}."
    elif ending.text:
        yield f"The script ended with {ending.text}."
    if not batches:
        yield (
            "There is nothing to judge: no batch was loaded in this process by torch's DataLoader or a "
            "subclass of it."
        )
    if not batches and ending.children:
        more = f" and {len(ending.children) - 3} more" if len(ending.children) > 3 else ""
        listed = "; ".join(f"'{child[:120]}'" for child in ending.children[:3])
        yield (
            f"It started {listed}{more}. Child processes are not watched: run the one that trains by itself, "
            "'fastload doctor CHILD.py …', or call its function in the main process. For several ranks: "
            "'torchrun … -m fastload doctor CHILD.py'."
        )


def examine_script(
    script: Script,
    steps: int | None = None,
    seconds: float | None = None,
    on_trials: Callable[[], None] = lambda: None,
) -> ScriptReport:
    """Run a script and find the limit of its training.

    `steps` ends it after this many batches, `seconds` this long after its first step; by default, it runs to
    its end. `on_trials` is called before changes are tried.
    """
    # The script may change its arguments.
    busy, command = BusyWatch(), script.command
    with tempfile.TemporaryDirectory(prefix="fastload-doctor-", ignore_cleanup_errors=True) as root:
        folder = Path(root)
        watcher = Watcher(folder, steps, seconds, script.code.co_filename)
        with watcher.watching(), reading_gpus() as gpus:
            ending = run_script(script)
        # Not judged by the exception, which a framework may have replaced.
        was_cut = watcher.was_cut
        machine = busy.state()
        busy_gpu = gpu_share(gpus, watcher.span, gpu_in_use())
        records = [record for record in watcher.records if record.batches]
        if not records and ran_out_of(ending.text) and not was_cut:
            records = watcher.records[:1]  # this loader's settings are the cause
        has_failed = bool(ending.text) and not was_cut
        if has_failed:  # perhaps while waiting for a rank that had ended
            for record in records:
                record.drop_last_step()
        has_training = any(record.role() == "training" for record in records)
        found = []
        for record in records:
            measured = replace(
                record.measured(watcher.logs_of(record), machine),
                # A loader without optimizer steps beside one with them is evaluation.
                role="evaluation" if has_training and not record.trained else record.role(),
                device=_device(record),
                encoding=encoding_of(record.settings.dataset),
                folder=folder_of(record.settings.dataset) or "FOLDER",
                command=command,
                gpu_share=busy_gpu,
                was_cut=was_cut,
                error="" if was_cut else ending.text,
            )
            found.append((record, measured))
        found.sort(key=lambda each: (each[1].role == "evaluation", -each[0].total_s))
        own, slowest, ranks, earlier = local_rank(), 0, None, dict[int, str]()
        if (exchange := watcher.sync.exchange) is not None:
            if has_failed:
                earlier = exchange.collect("error", range(exchange.size), 0.0)
                exchange.post("error", ending.text)
            most_s = 0.0 if has_failed else _MOST_WAIT_S
            own, ranks = exchange.rank, _compared(watcher.sync, [each for _, each in found], most_s)
        if ranks is not None:
            found[0] = found[0][0], ranks.measured_on(own, found[0][1])
            slowest = ranks.slowest or 0
        # Changes are tried on one rank.
        if found and own == slowest:
            on_trials()
            all_s = sum(record.total_s for record, _ in found)
            tried: dict[int, Trials] = {}
            for place, (record, measured) in enumerate(found):
                if measured.batches and (place == 0 or measured.waited_s > _LONG_WAITS * all_s):
                    tried[place] = trials = _trials(record, folder / f"trials{place}")
                    store = storage_of(trials.files, count_of(record.settings.dataset))
                    found[place] = record, replace(measured, store=store)
            for add in TRIALS:
                for place, trials in tried.items():
                    record, measured = found[place]
                    found[place] = record, add(measured, trials)
        examinations = tuple(
            Examination(_name(record), measured, diagnose(measured), watcher.records.index(record))
            for record, measured in found
        )
        if slowest and exchange is not None:
            if own == slowest:
                exchange.post("examinations", examinations)
            elif own == 0:
                arrived = exchange.collect("examinations", [slowest], _MOST_WAIT_S)
                examinations = arrived.get(slowest, examinations)
    notes = tuple(f"Before that, rank {rank} ended with {earlier[rank]}." for rank in sorted(earlier))
    notes = (*_notes(ending, was_cut, watcher.batches), *notes)
    return ScriptReport(examinations, ending, was_cut, watcher.batches, notes, own, ranks)


def _compared(
    sync: SyncWatch, measured: Sequence[TrainingMeasurements], most_s: float
) -> RankComparison | None:
    """Compare this rank's main loader with those of the others; return None if nothing of them arrives."""
    assert sync.exchange is not None
    rank, size = sync.exchange.rank, sync.exchange.size
    sync.exchange.post("times", RankTimes.of(rank, measured[0]) if measured else None)
    found = sync.exchange.collect("times", range(size), most_s)
    times = [found[rank] for rank in sorted(found) if found[rank] is not None]
    if len(times) < 2 or rank not in [each.rank for each in times]:
        return None
    missing = set(range(size)) - {each.rank for each in times}
    return compare(times, sync.gradient_bytes, sorted(missing))


def _trials(record: LoaderRecord, folder: Path) -> Trials:
    files = files_of(record.settings.dataset)
    return Trials(record.settings, record.num_workers, files, folder, record.total_s)


def _with_own_trials(measured: TrainingMeasurements, trials: Trials) -> TrainingMeasurements:
    """Add trials of the user's own loader: as it is, with files in memory, with other numbers of workers."""
    if measured.num_workers:
        measured = replace(measured, trials=tuple(trials.tried("same")))
    kinds, made = _kinds(measured), list(measured.trials)
    if "cache" in kinds:
        made += trials.cached()
    if "workers" in kinds:
        for number in workers_to_try(measured):
            made += trials.with_workers(number, is_cold="cache" in kinds)
    return replace(measured, trials=tuple(made))


def _with_fastload_trials(measured: TrainingMeasurements, trials: Trials) -> TrainingMeasurements:
    """Add trials of fastload's loader and datasets."""
    kinds, made = _kinds(measured), list(measured.trials)
    if "one line" in kinds:
        made += trials.one_line()
    if "files" in kinds:
        made += trials.from_files()
    return replace(measured, trials=tuple(made))


def _kinds(measured: TrainingMeasurements) -> Sequence[str]:
    return trials_to_make(measured, loading_work(measured), diagnose(measured).verdict)


TRIALS = _with_own_trials, _with_fastload_trials
"""Add trials to the measurements of a loader. fastload's come last, for all loaders, because they make the C
library keep freed memory in this process, with which any loader is faster."""


def _device(record: LoaderRecord) -> str:
    if record.settings.device:
        return torch.device(record.settings.device).type
    return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def _name(record: LoaderRecord) -> str:
    dataset = record.settings.dataset
    samples = count_of(dataset)
    return f"{type(dataset).__name__}{f' of {samples:,} samples' if samples else ''}"
