"""Datasets and comparisons shared by the loader's tests; at module level, so that any start method
can pickle them."""

from __future__ import annotations

import dataclasses
import random
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


class Rows(Dataset):
    """Sample `i` is a tensor of `size` numbers that begins with i, and i."""

    def __init__(self, length: int = 40, size: int = 3000) -> None:
        self.length, self.size = length, size

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.arange(index, index + self.size, dtype=torch.float32), index


class Random(Rows):
    """Sample `i` depends on every generator that torch seeds in a worker."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float, int]:
        return torch.rand(self.size) + index, random.random(), int(np.random.randint(1 << 30))


class Draws(Rows):
    """Sample `i` is a number from each generator that torch seeds in a worker, whatever i is."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([torch.rand(()).item(), random.random(), np.random.random()], dtype=torch.float64)


class Nested(Rows):
    """Sample `i` is a tree of everything that default_collate takes."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        big = torch.full((40, 50), index)
        return {
            "point": Point(big.float(), index),
            "list": [index, float(index), str(index), bytes([index])],
            "array": np.full((3, 700), index, np.uint16),
            "scalar": np.float32(index),
            "small": torch.tensor([index, 1]),
            "ordered": OrderedDict(a=big.bool(), b=(index, big.to(torch.bfloat16))),
            "empty": torch.empty(0, 3),
            "complex": torch.full((600,), index + 1j),
        }


class Counting(IterableDataset):
    """Numbers, distributed to the workers in turn."""

    def __init__(self, length: int = 40, size: int = 2000) -> None:
        self.length, self.size = length, size

    def __iter__(self) -> Any:
        worker = get_worker_info()
        start, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (torch.full((self.size,), number) for number in range(start, self.length, step))


class StatefulCounting(Counting):
    """The same numbers, from a dataset with a state."""

    position = 0

    def __iter__(self) -> Any:
        worker = get_worker_info()
        start, step = (worker.id, worker.num_workers) if worker else (0, 1)
        numbers = range(start, self.length, step)
        while self.position < len(numbers):
            self.position += 1
            yield torch.full((self.size,), numbers[self.position - 1])
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def assert_same(one: Any, other: Any) -> None:
    """Assert that two batches are equal: structure, types, values, dtypes, strides."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.layout == other.layout
        if one.is_sparse:
            one, other = one.to_dense(), other.to_dense()
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert one.requires_grad == other.requires_grad
        assert (
            torch.equal(one.nan_to_num(), other.nan_to_num())
            if one.is_floating_point()
            else torch.equal(one, other)
        )
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.flags.writeable) == (
            other.dtype,
            other.shape,
            other.flags.writeable,
        )
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif dataclasses.is_dataclass(one):
        assert_same(vars(one), vars(other))
    else:
        assert one == other


class Holder:
    """Object with attributes that raises if any of its code is run."""

    def __init__(self, **things: Any) -> None:
        self.__dict__.update(things)

    def __eq__(self, other: object) -> bool:
        raise AssertionError("code of the dataset was run")

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> Any:
        raise AssertionError("code of the dataset was run")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("code of the dataset was run")

    def __len__(self) -> int:
        raise AssertionError("code of the dataset was run")

    @property
    def computed(self) -> Any:
        raise AssertionError("code of the dataset was run")
