"""Datasets that behave like users' datasets."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

# Numbers in a record, so many that a file's buffer does not hold its neighbours too.
_PAGE = 2048


def busy(seconds: float) -> None:
    """Keep a CPU busy."""
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        pass


class Slow(Dataset[Any]):
    """Samples that take time, and record in a file which of them were read.

    They mostly wait, so workers pay off however busy the machine is.
    """

    def __init__(self, length: int = 600, seconds: float = 0.003, log: Path | None = None) -> None:
        self.length = length
        self.seconds = seconds
        self.log = log
        self.sign = 1
        self.process = os.getpid()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.length:
            raise IndexError(index)
        if self.log is not None:
            descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, f"{index}\n".encode())
            os.close(descriptor)
        busy(self.seconds / 5)
        time.sleep(self.seconds * 4 / 5)
        return torch.tensor(self.sign * index)


class Counting(Slow):
    """Counts its reads."""

    reads = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reads += 1
        return super().__getitem__(index)


class Remembering(Slow):
    """Keeps what it has read, in a list made in advance."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.remembered: list[torch.Tensor | None] = [None] * self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        sample = self.remembered[index]
        if sample is None:
            sample = self.remembered[index] = super().__getitem__(index)
        return sample


class Drawing(Slow):
    """Draws from its own generator."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.random = np.random.default_rng(7)
        self.drawn = 0.0

    def __getitem__(self, index: int) -> torch.Tensor:
        self.random.random()
        return super().__getitem__(index)


class HoldingAFile(Slow):
    """Reads through a file that it has opened once."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(**options)
        path.write_bytes(np.arange(self.length).repeat(_PAGE).tobytes())
        self.file = path.open("rb")

    def __getitem__(self, index: int) -> torch.Tensor:
        self.file.seek(8 * _PAGE * index)
        time.sleep(0)
        value = int(np.frombuffer(self.file.read(8), np.int64)[0])
        assert value == index, "another process has moved the file's position"
        return super().__getitem__(index)


class OnlyInItsProcess(Slow):
    """Works only in the process that created it, like a dataset with tensors on a GPU."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if os.getpid() != self.process:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return super().__getitem__(index)


class Deadly(Slow):
    """Kills every other process that reads it."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if os.getpid() != self.process and index % 40 == 7:
            os._exit(3)
        return super().__getitem__(index)


class Lacking(Slow):
    """Has a sample that cannot be loaded."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 400:
            raise KeyError("four hundred is missing")
        return super().__getitem__(index)


class Unpicklable(Slow):
    """Cannot be sent to another process."""

    def __reduce__(self) -> Any:
        raise TypeError("this dataset cannot be pickled")
