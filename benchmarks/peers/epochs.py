"""Protocol of the sides of bench_load.py: each is a process that loads epochs on request.

A side is started by the Python of its own environment with one argument, its job as JSON. It prepares its
data, warms up, and reports that with a line of JSON on standard output. From then on, each line on standard
input requests a turn: whole epochs until `min_s` seconds have passed; the answer has their seconds and
samples. The process ends at the end of its input.

Only the standard library is imported here, so that it works in every peer's environment.
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

    `epoch` loads every sample once and returns their number; `stored` is the file or folder that it reads.
    """

    epoch: Callable[[], int]
    stored: Path
    versions: Mapping[str, str]


def serve(prepare: Callable[[Mapping[str, Any]], Loading]) -> None:
    """Serve the protocol above."""
    job = json.loads(sys.argv[1])
    # Output of libraries must not be mixed with the answers.
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
    """Load an epoch of (images, labels) and return the number of samples."""
    return sum(images.shape[0] for images, _ in loader)
