"""Examination of a script: run it while watching, try changes on its data, judge."""

from __future__ import annotations

import contextlib
import itertools
import socket
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastload.doctor.findings import Diagnosis, MachineState, TrainingMeasurements
from fastload.doctor.judging.fixes import CHANGES, diagnose
from fastload.doctor.judging.judge import judge, ran_out_of
from fastload.doctor.judging.ranks import RankComparison, compare
from fastload.doctor.rerunning.runs import ScriptRuns
from fastload.doctor.trials import Trials
from fastload.doctor.watching.dataset_files import count_of, storage_of
from fastload.doctor.watching.machine import BusyWatch
from fastload.doctor.watching.record import LoaderRecord
from fastload.doctor.watching.sync import SyncWatch
from fastload.doctor.watching.watch import Watcher
from fastload.system.cpus import local_rank
from fastload.system.script import Ending, Script
from fastload.system.statements import is_average_loop
from fastload.system.units import format_count

# Changes are tried on the main loader, and on others whose waits take more than this share of the time:
# without these waits, the script would be a quarter faster.
_LONG_WAITS = 0.2

# The longest wait, after the training, for the times of the other ranks, and for the trials of the slowest.
_MOST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Examination:
    """One loader: its dataset's class and size, its measurements, the diagnosis."""

    name: str
    measured: TrainingMeasurements
    diagnosis: Diagnosis


@dataclass
class ExaminedLoader:
    """A loader and its measurements, to which trials are added; without `trials`, nothing is tried."""

    name: str
    measured: TrainingMeasurements
    record: LoaderRecord
    trials: Trials | None = None
    diagnose: Callable[[TrainingMeasurements], Diagnosis] = diagnose

    def result(self) -> Examination:
        """Return the examination, with the trials so far."""
        return Examination(self.name, self.measured, self.diagnose(self.measured))


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """The loaders of a script, training before evaluation, then by the time spent on them.

    `ending` has no error if the script was ended as requested. `notes` tell how it ended, and what could not
    be watched. Of several ranks, which are compared in `ranks`, `rank` 0 has the examinations of the slowest.
    """

    examinations: tuple[Examination, ...]
    ending: Ending
    notes: tuple[str, ...]
    rank: int = 0
    ranks: RankComparison | None = None


def _notes(ending: Ending, was_cut: bool, batches: int) -> Iterator[str]:
    if was_cut:
        yield "The script was ended early, as requested."
    elif ending.is_hard:
        after = format_count(batches, "batch", "batches")
        yield f"The script ended by os._exit({ending.error}) after {after}."
    elif ending.text:
        yield f"The script ended with {ending.text}."
    if not batches:
        yield (
            "There is nothing to judge: no batch was loaded in the main thread of this process by torch's "
            "DataLoader or a subclass of it."
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
    runs: ScriptRuns | None = None,
) -> Generator[Script, Ending, ScriptReport]:
    """Yield a script, to be run by `run_script`, and find the limit of its training.

    `steps` ends it after this many batches, `seconds` this long after its first step; by default, it runs to
    its end. `on_trials` is called before changes are tried; those of the step need `runs`.
    """
    # The script may change its arguments, its folder and the environment.
    busy, command = BusyWatch(), script.command
    with tempfile.TemporaryDirectory(prefix="fastload-doctor-", ignore_cleanup_errors=True) as root:
        folder = Path(root)
        watcher = Watcher(folder, steps, seconds, script.code.co_filename)
        with watcher.watching():
            ending = yield script
        was_cut = watcher.was_cut
        if was_cut:  # by an exception, which a framework may have replaced
            ending = Ending(None)
        error = ending.text
        if error:  # perhaps while waiting for a rank that had ended
            for record in watcher.records:
                record.drop_last_step()
        loaders = _loaders(watcher, busy.state(), command, error)
        if runs is not None:
            runs.folder, runs.start_s = folder / "runs", watcher.start_s
        rank, slowest, ranks, earlier = local_rank(), 0, None, dict[int, str]()
        if (exchange := watcher.sync.exchange) is not None:
            if error:
                earlier = exchange.collect("error", range(exchange.size), 0.0)
                exchange.post("error", error)
            most_s = 0.0 if error else _MOST_WAIT_S
            rank, ranks = exchange.rank, _compared(watcher.sync, [each.measured for each in loaders], most_s)
        if watcher.sync.exchange is not None and watcher.sync.exchange.size > 1:
            runs = None  # of one rank, the script would wait for the others
        if ranks is not None:
            loaders[0].measured = ranks.measured_on(rank, loaders[0].measured)
            slowest = ranks.slowest or 0
        # Changes are tried on one rank.
        if loaders and rank == slowest:
            on_trials()
            _add_trials(loaders, folder, runs)
            with contextlib.suppress(KeyboardInterrupt):  # a second one, after which there is no more to try
                try_changes(loaders)
        examinations = tuple(each.result() for each in loaders)
        if slowest and exchange is not None:
            if rank == slowest:
                exchange.post("examinations", examinations)
            elif rank == 0:
                arrived = exchange.collect("examinations", [slowest], _MOST_WAIT_S)
                examinations = arrived.get(slowest, examinations)
    notes = tuple(f"Before that, rank {number} ended with {earlier[number]}." for number in sorted(earlier))
    notes = (*_notes(ending, was_cut, watcher.batches), *notes)
    return ScriptReport(examinations, ending, notes, rank, ranks)


def _loaders(watcher: Watcher, machine: MachineState, command: str, error: str) -> list[ExaminedLoader]:
    """Return the loaders, training before evaluation, then by the time spent on them."""
    records = [record for record in watcher.records if record.batches]
    if not records and ran_out_of(error):
        records = watcher.records[:1]  # this loader's settings are the cause
    has_training, facts = any(record.trained for record in records), watcher.step.facts()
    loaders = []
    for record in records:
        measured = replace(
            record.measured(watcher.logs_of(record), machine),
            command=command,
            gpu_share=watcher.gpu.share,
            was_cut=watcher.was_cut,
            error=error,
        )
        # A loader without optimizer steps beside one with them is evaluation.
        if has_training and not record.trained:
            measured = replace(measured, role="evaluation")
        sources = {one.source for one in measured.training if one.category == "script"}
        averages = tuple(sorted(filter(is_average_loop, sources)))
        measured = replace(measured, facts=replace(facts, averages=averages))
        loaders.append(ExaminedLoader(_name(record), measured, record))
    return sorted(loaders, key=lambda each: (each.measured.role == "evaluation", -each.record.total_s))


def _compared(
    sync: SyncWatch, measured: Sequence[TrainingMeasurements], most_s: float
) -> RankComparison | None:
    """Compare this rank's main loader with those of the others; return None if nothing of them arrives."""
    assert sync.exchange is not None
    rank, size = sync.exchange.rank, sync.exchange.size
    sync.exchange.post("times", (socket.gethostname(), measured[0]) if measured else None)
    arrived = sync.exchange.collect("times", range(size), most_s)
    found = {rank: arrived[rank] for rank in sorted(arrived) if arrived[rank] is not None}
    if len(found) < 2 or rank not in found:
        return None
    return compare(found, sync.gradient_bytes, sorted(set(range(size)) - set(found)))


def _add_trials(loaders: Sequence[ExaminedLoader], folder: Path, runs: ScriptRuns | None = None) -> None:
    """Prepare trials of the main loader, and of others that the script waits for."""
    all_s = sum(each.record.total_s for each in loaders)
    for index, each in enumerate(loaders):
        record, measured = each.record, each.measured
        is_evaluation = measured.role == "evaluation" and record.total_s > _LONG_WAITS * all_s
        is_run = index == 0 or (is_evaluation and measured.with_grad > 0)
        if measured.batches and (is_run or measured.waited_s > _LONG_WAITS * all_s):
            each.trials = Trials(
                record.settings, record.num_workers, folder / f"trials{index}", record.total_s
            )
            if is_run:
                each.trials.runs, each.trials.loader = runs, record.name
                each.trials.is_evaluation = measured.role == "evaluation"
                measured = replace(measured, is_step_wanted=runs is not None and runs.is_wanted)
            store = storage_of(each.trials.files, count_of(record.settings.dataset))
            each.measured = replace(measured, store=store)


def try_changes(loaders: Sequence[ExaminedLoader]) -> None:
    """Try the changes that can help, and add their trials to the measurements of the loaders."""
    tried = [(each, each.trials) for each in loaders if each.trials is not None]
    for is_last, (each, trials), change in itertools.product((False, True), tried, CHANGES):
        judged = judge(each.measured)
        if change.is_last == is_last and change.can_help(judged):
            for found in change.trials(trials, judged):
                each.measured = each.measured.with_trial(found)


def _name(record: LoaderRecord) -> str:
    dataset = record.settings.dataset
    samples = count_of(dataset)
    return f"{dataset.__class__.__name__}{f' of {samples:,} samples' if samples else ''}"
