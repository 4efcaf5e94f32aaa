"""What all sides of bench_load.py share: each is a process that loads an epoch whenever it is told to.

A side is started by the Python of its own environment with one argument, its job, as JSON. It makes what it
loads from, warms up, and says so with a line of JSON on stdout. From then on every line on stdin is a turn:
whole epochs, one after the other, until `min_s` seconds have gone by; answered with the seconds and the
samples that they took. At the end of stdin it ends.

Nothing but the standard library is imported here, so that every peer's environment can.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# After a first epoch, which compiles and starts workers. FFCV's rate on thumbnails grows by two fifths over
# its first ten epochs, half a second in all, while its memory is touched for the first time.
_WARM_UP_TURNS = 3


class Loading(NamedTuple):
    """A loader that is ready.

    Attributes:
        epoch: Loads every sample once, and returns how many there were.
        stored: The file or folder that it reads.
        versions: Of what it is made of.
    """

    epoch: Callable[[], int]
    stored: Path
    versions: Mapping[str, str]


def serve(prepare: Callable[[Mapping[str, Any]], Loading]) -> None:
    """Speaks the protocol above."""
    job = json.loads(sys.argv[1])
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    loading = prepare(job)
    loading.epoch()
    _turn(loading.epoch, _WARM_UP_TURNS * job["min_s"])
    ready = {"stored": str(loading.stored), "versions": dict(loading.versions)}
    print(json.dumps(ready), file=answers)
    for _ in sys.stdin:
        print(json.dumps(_turn(loading.epoch, job["min_s"])), file=answers)


def _turn(epoch: Callable[[], int], min_s: float) -> dict[str, float]:
    samples, began = 0, time.perf_counter()
    while True:
        samples += epoch()
        seconds = time.perf_counter() - began
        if seconds >= min_s:
            return {"seconds": seconds, "samples": samples}


def count_samples(loader: Any) -> int:
    """One epoch of a loader of (images, labels)."""
    return sum(images.shape[0] for images, _ in loader)
