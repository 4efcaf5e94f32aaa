"""What loading a batch in the training process leaves behind: changes that workers would not make there."""

from __future__ import annotations

import os
import stat
from typing import Any

from fastload.loader.tuning.state import bound_to, fingerprint


class Footprint:
    """The state of a dataset, and of the files that this process reads, before a batch is loaded.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._fingerprint = fingerprint(dataset)
        self._files = open_files()

    def change(self) -> str:
        """What keeps workers from loading, by what has changed since, as a sentence; "" for nothing."""
        if held := bound_to(self._dataset):
            return (
                f"the dataset reads through {held}, which forked workers would share or lack: "
                "make it in __getitem__, or say num_workers"
            )
        if moved_files(self._files, open_files()):
            return (
                "the dataset reads through a file that it holds open, and forked workers would share its "
                "position: open it in __getitem__, or say num_workers"
            )
        if fingerprint(self._dataset) != self._fingerprint:
            return (
                "reading changes the dataset (a cache, a counter, a random generator of its own), and "
                "workers would change copies of it: say num_workers if that does not matter"
            )
        return ""

    def change_by_training(self) -> str:
        """The same for what the training has changed since a batch was handed out."""
        if fingerprint(self._dataset) != self._fingerprint:
            return (
                "the training changes the dataset while it iterates, and workers would not see that: say "
                "num_workers if it does not matter"
            )
        return ""


def open_files() -> dict[int, int]:
    """The positions of the regular files that this process has open for reading, by descriptor.

    Forked workers share these positions: a dataset that reads through one of them reads garbage once two
    processes do.
    """
    positions: dict[int, int] = {}
    try:
        names = os.listdir("/proc/self/fdinfo")
    except OSError:
        return positions
    for name in names:
        try:
            if not stat.S_ISREG(os.stat(int(name)).st_mode):
                continue
            with open(f"/proc/self/fdinfo/{name}", encoding="ascii") as info:
                fields = dict(line.split(":", 1) for line in info if ":" in line)
        except (OSError, ValueError):
            continue
        if int(fields["flags"], 8) & os.O_ACCMODE != os.O_WRONLY:
            positions[int(name)] = int(fields["pos"])
    return positions


def moved_files(before: dict[int, int], after: dict[int, int]) -> list[int]:
    """The descriptors of files that have been read through in between, and are still open.

    Args:
        before: What `open_files` returned earlier.
        after: What it returned later.
    """
    return [number for number, position in after.items() if before.get(number, 0) != position]
