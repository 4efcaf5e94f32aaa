"""One run of the user's script with changes, in this process, which ends when its steps are measured."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import random
import statistics
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils.flop_counter import FlopCounterMode

from fastload.doctor.findings import StepTrial
from fastload.doctor.rerunning.changed_run import ChangedRun
from fastload.doctor.rerunning.changes import CHANGES
from fastload.doctor.rerunning.runs import Job
from fastload.doctor.watching.record import LoaderRecord
from fastload.doctor.watching.watch import Watcher
from fastload.system.patching import patched
from fastload.system.script import Ending, Script, find, run_script

# The first step is without changes, the second compiles; after the third, memory is as it stays.
_WARM_STEPS = 3
# A few dozen steps, for a few seconds; at least a few.
_ENOUGH_STEPS, _ENOUGH_S, _LEAST_STEPS, _GROUPS = 24, 4.0, 4, 9
# The number of batches taken from each loader before the evaluation's.
_MOST_BEFORE = 3


class TrialWatcher(Watcher):
    """Measures the steps of one loader, and ends this process as soon as they suffice."""

    def __init__(self, folder: Path, job: Job, run: ChangedRun) -> None:
        super().__init__(folder, is_sampling=False)
        self._job, self._run = job, run
        self.began_at = math.inf
        self.losses: list[torch.Tensor] = []
        self._has_begun = False
        self.counter: FlopCounterMode | None = None

    def target(self) -> LoaderRecord | None:
        """Return the loader whose steps count."""
        return next((each for each in self.records if each.name == self._job.loader), None)

    def note_loss(self, backward: Callable[..., None]) -> Callable[..., None]:
        """Return torch's function for the backward pass, which also records the loss."""

        def noting(tensors: Any, *given: Any, **named: Any) -> None:
            loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
            if loss is not None and loss.numel() == 1:
                self.losses.append(loss.detach().reshape(()))
            backward(tensors, *given, **named)

        return noting

    def _stop_if_enough(self) -> None:
        self._has_begun = self._has_begun or self._run.finish_first_batch()
        record, target = self._current, self.target()
        if record is not target:
            if self._job.is_evaluation and record is not None and record.batches >= _MOST_BEFORE:
                raise StopIteration
            return
        assert target is not None
        if target.batches == _WARM_STEPS:
            _wait_for_device()
            self.began_at = time.perf_counter()
        measured_s, steps = time.perf_counter() - self.began_at, target.batches - _WARM_STEPS
        least_s, most_s = min(_ENOUGH_S, self._job.seconds), self._job.seconds
        is_enough = measured_s >= (least_s if steps >= _ENOUGH_STEPS else most_s) and steps >= _LEAST_STEPS
        if self.counter is not None or (is_enough and self._job.changes):
            # No handler of the script notices, which would save what it has: see `run_script`.
            os._exit(0)
        if is_enough:
            self.counter = FlopCounterMode(display=False)  # for one more step
            self.counter.__enter__()  # type: ignore[no-untyped-call]


def _wait_for_device() -> float:
    before = time.perf_counter()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return time.perf_counter() - before


def trial_of(watcher: TrialWatcher, error: str) -> StepTrial:
    """Return the measurements; `error` is what ended the script, "" if nothing did."""
    record = watcher.target()
    steps = [] if record is None else record.steps()
    if watcher.counter is not None:
        watcher.counter.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        steps.pop()
    if len(steps) < _WARM_STEPS + _LEAST_STEPS or record is None:
        few = f"it ended after {len(steps)} steps, and {_WARM_STEPS + _LEAST_STEPS} are needed"
        return StepTrial("", failure=error or few)
    seconds, cpu_s = zip(*steps, strict=True)
    warm_s, seconds = sum(seconds[1:_WARM_STEPS]), seconds[_WARM_STEPS:]
    step_s = _typical(seconds) + _wait_for_device() / len(seconds)
    is_on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    resident_bytes = psutil.Process().memory_info().rss
    return StepTrial(
        "",
        step_s=step_s,
        samples=float(record.settings.batch_size or 1),
        cpu_s=statistics.mean(cpu_s[_WARM_STEPS:]),
        memory_bytes=torch.cuda.max_memory_reserved() if is_on_gpu else resident_bytes,
        losses=tuple(float(each) for each in watcher.losses),
        flops=0.0 if watcher.counter is None else _flops(watcher.counter),
        peak_flops_per_s=0.0
        if watcher.counter is None
        else _peak_flops_per_s("cuda" if is_on_gpu else "cpu"),
        warm_s=max(0.0, warm_s - (_WARM_STEPS - 1) * step_s),
    )


def _peak_flops_per_s(device: str) -> float:
    """Return the rate of a large matrix product; on a CPU, without waits for a free one."""
    size, threads = (4096, 1) if device == "cuda" else (1024, torch.get_num_threads())
    clock = time.perf_counter if device == "cuda" else time.process_time
    matrix, readings = torch.rand(size, size, device=device), list[float]()
    for _ in range(6):
        _wait_for_device()
        readings.append(clock() / threads)
        matrix @ matrix
    return 2 * size**3 / min(after - before for before, after in itertools.pairwise(readings))


def _flops(counter: FlopCounterMode) -> float:
    """Return the operations of a step; torch counts the backward pass of convolutions as if not grouped."""
    counts, aten = counter.get_flop_counts()["Global"], torch.ops.aten
    forward, backward = counts.get(aten.convolution, 0), counts.get(aten.convolution_backward, 0)
    return float(sum(counts.values()) - backward + (2 * forward if backward else 0))


def _typical(seconds: Sequence[float]) -> float:
    size = -(-len(seconds) // _GROUPS)
    # Other programs slow down a few of them.
    groups = [seconds[begin : begin + size] for begin in range(0, len(seconds), size)]
    return statistics.median(map(statistics.mean, groups))


def _around_script(job: Job, folder: Path) -> Generator[Script, Ending, int]:
    is_module, (path, *arguments) = job.words[0] == "-m", job.words[job.words[0] == "-m" :]
    # With the same numbers in all trials, losses can be compared.
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    run = ChangedRun()
    for name, value in job.changes:
        CHANGES[name](run, value)
    with run.applying():
        script = run.changed(find(path, is_module, arguments))
        watcher = TrialWatcher(folder, job, run)
        with (
            watcher.watching(),
            patched((torch.autograd, "backward", watcher.note_loss(torch.autograd.backward))),
        ):
            ending = yield script
    trial, unused = trial_of(watcher, ending.text), {name for name, _ in job.changes} - run.applied
    if unused and not trial.failure:
        trial = StepTrial("", failure="the script has nothing that it would change")
    (folder / "trial").write_bytes(pickle.dumps(trial))
    return 0


if __name__ == "__main__":
    root = Path(sys.argv[1])
    run_script(_around_script(pickle.loads((root / "job").read_bytes()), root))
