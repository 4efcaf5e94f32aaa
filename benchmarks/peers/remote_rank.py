"""Protocol of the ranks of bench_remote.py: each is a process that loads epochs of a remote dataset.

A rank is started with its job as JSON, and joins the other ranks. It reports the versions of the packages
that are compared with a line of JSON on standard output. From then on, each line on standard input requests
an epoch; before the first one, dataset and loader are made. With `write_to` in its job, it writes the dataset
to that folder instead, and ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed

Job = Mapping[str, Any]


def serve(
    write: Callable[[Job, Path], object], make_loader: Callable[[Job], Iterable[Any]], versions: Job
) -> None:
    """Serve the protocol above."""
    job = json.loads(sys.argv[1])
    # Output of libraries must not be mixed with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if "write_to" in job:
        write(job, Path(job["write_to"]))
    elif job["ranks"] > 1:
        torch.distributed.init_process_group("gloo")
    answers.write(json.dumps(dict(versions)) + "\n")
    loader = None
    for _ in sys.stdin:
        if job["ranks"] > 1:
            torch.distributed.barrier()
        began = time.perf_counter()
        loader = loader or make_loader(job)
        answers.write(json.dumps(_epoch(loader, job["step_s"], began)) + "\n")


def _epoch(loader: Iterable[Any], step_s: float, began: float) -> dict[str, float]:
    """Load an epoch, with a pause in place of each training step."""
    samples, waited_s, waits_since = 0, 0.0, began
    first_batch_s = None
    for batch in loader:
        now = time.perf_counter()
        if first_batch_s is None:
            first_batch_s = now - began
        else:
            waited_s += now - waits_since
        samples += len(batch[0])
        time.sleep(step_s)
        waits_since = time.perf_counter()
    if first_batch_s is None:
        sys.exit("an epoch must have a full batch: there are too few images")
    seconds = time.perf_counter() - began
    return {"samples": samples, "seconds": seconds, "first_batch_s": first_batch_s, "waited_s": waited_s}
