"""Protocol of the processes that are compared: each loads epochs on request.

A process is started by the Python of its own environment with one argument, its job as JSON. It writes its
dataset, warms up, and reports that with a line of JSON on standard output. From then on, each line on
standard input requests a turn: complete epochs until `min_s` seconds have passed, at most `max_s` seconds;
the answer has their seconds and samples. The process ends at the end of its input.

Only the standard library is imported here, so that it works in every peer's environment.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# After a first epoch, which compiles and starts workers. FFCV's rate on thumbnails grows by two fifths over
# its first ten epochs, half a second in all, while its memory is touched for the first time.
_WARM_UP_TURNS = 3


class Stored(NamedTuple):
    """The file or folder that a loader reads, and the seconds that writing it took; None if it was there.

    `is_new` is True if this process has written it.
    """

    path: Path
    write_s: float | None = None
    is_new: bool = False


class Loading(NamedTuple):
    """A loader that is ready.

    `epoch` begins an epoch and returns its batches; `count` returns the number of samples in a batch.
    """

    epoch: Callable[[], Iterable[Any]]
    stored: Stored
    versions: Mapping[str, str]
    count: Callable[[Any], int] = lambda batch: int(batch[0].shape[0])


def serve(prepare: Callable[[Mapping[str, Any]], Loading]) -> None:
    """Serve the protocol above."""
    job = json.loads(sys.argv[1])
    # Output of libraries must not be mixed with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    began = time.perf_counter()
    loading = prepare(job)
    spent_s = time.perf_counter() - began
    _, write_s, is_new = loading.stored
    work = _work(job)
    # A cold turn must not find files in memory, so its warm-up is a single batch.
    first = _turn(loading, work, 0.0, job["max_s"] if job["is_warm"] else 0.0)
    if job["is_warm"]:
        _turn(loading, work, _WARM_UP_TURNS * job["min_s"], job["max_s"])
    ready = {
        "stored": str(loading.stored.path),
        "write_s": write_s,
        "open_s": spent_s - (write_s or 0.0) * is_new,
        "first_batch_s": first["first_batch_s"],
        "versions": dict(loading.versions),
    }
    answers.write(json.dumps(ready) + "\n")
    for _ in sys.stdin:
        answers.write(json.dumps(_turn(loading, work, job["min_s"], job["max_s"])) + "\n")


class _NoWork:
    """A training loop that does nothing with a batch."""

    def step(self, batch: Any) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


def _work(job: Mapping[str, Any]) -> Any:
    """Return the work done with each batch: nothing, or a training step on the job's device."""
    if job["device"] is None:
        return _NoWork()
    return importlib.import_module("training").Training(job["device"])  # needs torch


def _turn(loading: Loading, work: Any, min_s: float, max_s: float) -> dict[str, float | None]:
    samples, first_batch_s, began = 0, None, time.perf_counter()
    while True:
        for batch in loading.epoch():
            work.step(batch)
            samples += loading.count(batch)
            seconds = time.perf_counter() - began
            first_batch_s = first_batch_s or seconds
            if seconds >= max_s:
                break
        if not samples:
            sys.exit("an epoch must have a full batch: there are too few images")
        work.finish()
        seconds = time.perf_counter() - began
        if seconds >= min(min_s, max_s):
            return {"seconds": seconds, "samples": samples, "first_batch_s": first_batch_s}


def written(path: Path, write: Callable[[], object]) -> Stored:
    """Write a dataset on first use, and a file beside it with the seconds that this took."""
    record = path.with_name(f"{path.name}.write_s")
    is_new = not record.exists()
    if is_new:
        began = time.perf_counter()
        write()
        record.write_text(repr(time.perf_counter() - began))
    return Stored(path, float(record.read_text()), is_new)
