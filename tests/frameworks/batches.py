"""Replacing torch's class, seeding, and comparing batches between processes."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data
import torch.utils.data.dataloader

import fastload


def replace_torchs_class(kind: str) -> None:
    """Does what a user does before the import of a package that takes its loader from torch.

    Args:
        kind: "fastload", or "torch": then nothing is replaced.
    """
    if kind == "fastload":
        torch.utils.data.DataLoader = fastload.DataLoader
        torch.utils.data.dataloader.DataLoader = fastload.DataLoader


def seed_all(seed: int) -> None:
    """Seeds torch's, Python's and NumPy's global generators."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def digest(value: Any) -> str:
    """A number that two batches share if they are equal, bit for bit."""
    if isinstance(value, torch.Tensor | np.ndarray):
        array = np.asarray(value)
        content = (str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest())
    elif isinstance(value, dict):
        content = [(key, digest(item)) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        content = [digest(item) for item in value]
    else:
        content = value
    return hashlib.sha256(repr((type(value).__name__, content)).encode()).hexdigest()


def digests(batches: Iterable[Any]) -> list[str]:
    """One number for each batch."""
    return [digest(batch) for batch in batches]


def write(path: str | Path, result: Any) -> None:
    """Writes a program's result."""
    Path(path).write_text(json.dumps(result))


def read(path: str | Path) -> Any:
    """Reads a program's result."""
    return json.loads(Path(path).read_text())
