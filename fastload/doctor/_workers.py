"""Times and stack samples of the processes that make batches."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from fastload.doctor._categories import Stack, loading_category, users_line
from fastload.doctor._profile import Sampler
from fastload.doctor._torch import FETCH_FILE, FETCHERS, worker_loop
from fastload.loader.clock import LoadTimes
from fastload.system.patching import patched

_SAVE_EACH_S = 0.25


class WorkerLog:
    """Times (those of `LoadTimes`) and stack samples of one process that makes batches."""

    def __init__(self) -> None:
        self.sums: dict[str, Any] = {field.name: 0 for field in fields(LoadTimes)}
        self.seen: dict[tuple[str, str], float] = defaultdict(float)

    def notice(self, stack: Stack, seconds: float) -> None:
        """Record a stack sample if the thread is making a batch."""
        begin = next((index for index, frame in enumerate(stack) if frame.file == FETCH_FILE), None)
        if begin is not None:
            category = loading_category(stack[begin:])
            self.seen[category, users_line(stack[begin:])] += seconds
            if category == "collate":
                self.add(collate_s=seconds)

    def add(self, **seconds: float) -> None:
        """Add to the sums."""
        for name, value in seconds.items():
            self.sums[name] += value

    def save(self, path: Path) -> None:
        """Write the log to a file that another process may read at any time."""
        # A copy, because the sampling thread may add to it.
        seen = [[*key, seconds] for key, seconds in list(self.seen.items())]
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"sums": self.sums, "seen": seen}), encoding="utf-8")
        os.replace(part, path)

    @classmethod
    def load(cls, path: Path) -> WorkerLog:
        """Read a log that `save` wrote."""
        content = json.loads(path.read_text(encoding="utf-8"))
        log = cls()
        log.sums.update(content["sums"])
        log.seen.update({(category, place): seconds for category, place, seconds in content["seen"]})
        return log


@contextlib.contextmanager
def noting_fetches(current: Callable[[], WorkerLog | None], delayed_s: Callable[[], float]) -> Iterator[None]:
    """Record the times of torch's fetchers in this thread in the log that `current()` returns, if any."""

    def noted(original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch_noted(self: Any, possibly_batched_index: Any) -> Any:
            log = current()
            if log is None:
                return original(self, possibly_batched_index)
            before = time.perf_counter(), time.thread_time(), delayed_s()
            batch = original(self, possibly_batched_index)
            log.add(
                batches=1,
                samples=count_in(possibly_batched_index),
                busy_s=time.perf_counter() - before[0],
                cpu_s=time.thread_time() - before[1],
                delayed_s=delayed_s() - before[2],
            )
            return batch

        return fetch_noted

    with patched(*((kind, "fetch", noted(kind.fetch)) for kind in FETCHERS)):
        yield


def count_in(asked: Any) -> int:
    """Return the number of samples that a fetcher was asked for."""
    try:
        return len(getattr(asked, "indices", asked))
    except TypeError:
        return 1


def watched_loop(folder: str, loader: str, *arguments: Any) -> None:
    """Run torch's worker loop and write a log of it into a folder; spawned workers import it by name.

    The folder is an argument rather than an environment variable, because all workers of a forkserver have
    the environment that the server started in.
    """
    path = Path(folder) / f"{loader}-{os.getpid()}.json"
    log = WorkerLog()
    saved = time.perf_counter()

    def save() -> None:
        # If the doctor has ended, its folder is gone too.
        with contextlib.suppress(OSError):
            log.save(path)

    def notice(stack: Stack, seconds: float) -> None:
        nonlocal saved
        log.notice(stack, seconds)
        if time.perf_counter() - saved >= _SAVE_EACH_S:
            save()
            saved = time.perf_counter()

    sampler = Sampler(notice)
    with noting_fetches(lambda: log, sampler.delayed_s):
        sampler.start()
        try:
            worker_loop(*arguments)
        finally:
            sampler.stop()
            save()
