"""Watching torch's workers: what runs in them beside their loop, and how they tell."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils.data._utils import worker as torchs

from fastload.doctor.activities import Frame
from fastload.doctor.loads import LoadLog, noting_fetches
from fastload.doctor.sampling import Sampler

_SAVE_EACH_S = 0.25

original_loop = torchs._worker_loop


def watched_loop(folder: str, loader: str, *arguments: Any) -> None:
    """The worker loop of torch, watched: started in its place, by name where workers do not fork.

    Args:
        folder: Where to write what was seen. An argument, not a variable of the environment: all workers of a
            forkserver have the environment of its start.
        loader: Names the loader whose worker it is.
        *arguments: Of torch's loop.
    """
    watch = _Watch(Path(folder) / f"{loader}-{os.getpid()}.json")
    with noting_fetches(lambda: watch.log, lambda: watch.looking_cpu_s):
        watch.start()
        try:
            original_loop(*arguments)
        finally:
            watch.end()


class _Watch:
    """Looks at the worker's main thread, and writes down what it saw."""

    def __init__(self, path: Path) -> None:
        self.log = LoadLog()
        self._path = path
        self._saved = time.perf_counter()
        self._sampler = Sampler(threading.get_ident(), self._notice)

    @property
    def looking_cpu_s(self) -> float:
        return self._sampler.cpu_s

    def start(self) -> None:
        self._sampler.start()

    def end(self) -> None:
        self._sampler.stop()
        self._save()

    def _notice(self, stack: Sequence[Frame], seconds: float, index: int | None) -> None:
        self.log.notice(stack, seconds, index)
        if time.perf_counter() - self._saved >= _SAVE_EACH_S:
            self._save()
            self._saved = time.perf_counter()

    def _save(self) -> None:
        try:
            self.log.save(self._path)
        except OSError:
            # The doctor has gone, and its folder with it.
            return
