"""Batches that default_collate refuses, or that contain themselves, are treated as by torch's loader."""

from __future__ import annotations

import dataclasses
import itertools
import resource
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import Dataset

import fastload
from fastload.loader.clock import size_of
from tests.loader.datasets import Rows
from tests.loader.tuning.deciding import planned

TENSOR = torch.zeros(2000)


class Holding(Dataset[Any]):
    """Has one odd sample among, or before, usual ones."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


@dataclasses.dataclass
class Box:
    inside: Any


ODD = {
    "none": None,
    "set": {1, 2},
    "object": Box(1),
    "text": "x",
    "number": 1,
    "tensor": TENSOR,
    "longer": torch.zeros(2001),
    "shorter": torch.zeros(5),
    "empty": torch.zeros(0),
    "double": TENSOR.double(),
    "grad": torch.zeros(2000, requires_grad=True),
    "sparse": TENSOR.to_sparse(),
    "array": np.zeros(2000, np.float32),
    "long array": np.zeros(2001),
    "objects": np.array([None, "a"]),
    "list": [TENSOR, 1],
    "long list": [TENSOR, 1, 2],
    "no list": [],
    "dict": {"a": TENSOR},
    "other key": {"b": TENSOR},
    "none inside": {"a": None},
    "complex": 1j,
    "bytes": b"x",
}


def ended(loader: Any) -> Any:
    """Return a batch's values, or the type and the last line of the exception in its place."""
    try:
        return str(list(loader))
    except Exception as error:
        # torch's iterator is in a cycle with it: once that is collected, it waits 5 s for each worker.
        error.__traceback__ = None
        return type(error), str(error).strip().splitlines()[-1:]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_cannot_be_collated_raise_the_same_error_as_in_torch(workers):
    """Make each pair of samples a batch of one dataset, so that workers are started only once."""
    samples = [sample for pair in itertools.product(ODD.values(), repeat=2) for sample in pair]
    results = []
    for kind in (torch.utils.data.DataLoader, fastload.DataLoader):
        iterator = iter(kind(Holding(samples), batch_size=2, num_workers=workers))
        results.append([ended(itertools.islice(iterator, 1)) for _ in range(len(samples) // 2)])
    for pair, torchs, ours in zip(itertools.product(ODD, repeat=2), *results, strict=True):
        assert ours == torchs, pair
    assert sum(isinstance(result, tuple) for result in results[0]) > len(ODD)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("odd", ["none", "set", "longer"])
def test_tuned_loader_refuses_it_as_torch_does_without_workers(odd, workers):
    dataset = Holding([TENSOR, ODD[odd]])
    expected = ended(torch.utils.data.DataLoader(dataset, batch_size=2))
    assert ended(planned(fastload.DataLoader(dataset, batch_size=2), workers)) == expected


def cycles() -> dict[str, Any]:
    """Batches that contain themselves."""
    itself: list[Any] = [TENSOR]
    itself.append(itself)
    mapping: dict[str, Any] = {"a": TENSOR}
    mapping["itself"] = mapping
    ordered: OrderedDict[str, Any] = OrderedDict(a=TENSOR)
    ordered["list"] = [ordered]
    pair: Any = (TENSOR, [])
    pair[1].append(pair)
    box = Box([TENSOR])
    box.inside.append(box)
    wide: Any = [TENSOR]
    for _ in range(60):
        wide = [wide, wide]
    return {"list": itself, "dict": mapping, "ordered": ordered, "tuple": pair, "box": box, "wide": wide}


class Circling:
    """A collate_fn whose batch contains itself."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, samples: Any) -> Any:
        return cycles()[self.kind]


def first_tensor(batch: Any) -> Any:
    """Return the tensor in a batch, and whether a container occurred twice on the way."""
    parts, seen = [batch], {}
    found, again = None, False
    while parts:
        part = parts.pop(0)
        if id(part) in seen:
            again = True
            continue
        seen[id(part)] = part
        if isinstance(part, torch.Tensor):
            found = part
        elif isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
        elif isinstance(part, Box):
            parts.append(part.inside)
    return found, again


@pytest.fixture
def _bounded_memory() -> Iterator[None]:
    """Lets this process and its workers take 2 GB more: following such a batch endlessly would take all."""
    if sys.platform != "linux":
        yield  # other systems do not enforce this limit
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (psutil.Process().memory_info().data + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.usefixtures("_bounded_memory")
@pytest.mark.parametrize("kind", cycles())
def test_batch_that_contains_itself_is_handed_out(kind):
    for workers in (0, 1, None):
        options = {} if workers is None else {"num_workers": workers}
        loader = fastload.DataLoader(range(3), collate_fn=Circling(kind), **options)
        for batch in loader:
            tensor, is_met_again = first_tensor(batch)
            assert torch.equal(tensor, TENSOR)
            assert is_met_again
        assert loader.report().verdict


def deep(samples: Any) -> Any:
    """Return a batch of five thousand levels."""
    batch: Any = TENSOR
    for _ in range(5000):
        batch = [batch]
    return batch


def test_batch_of_many_levels_is_handed_out_or_refused_but_does_not_hang():
    for options in ({}, {"num_workers": 0}):
        assert len(list(fastload.DataLoader(range(3), collate_fn=deep, **options))) == 3
    with pytest.raises(RecursionError):
        list(fastload.DataLoader(range(3), collate_fn=deep, num_workers=1))


class Endless(list):
    """A list with an endless iterator."""

    def __iter__(self) -> Any:
        return itertools.repeat(TENSOR)


def test_batch_is_measured_without_running_its_own_code():
    assert size_of(Endless([TENSOR[:4]])) == (4, 16)


class Ready(Rows):
    """Every sample is the same large tensor; `is_changing` writes to it before each."""

    def __init__(self, length: int, is_changing: bool) -> None:
        super().__init__(length)
        self.tensor = torch.zeros(1 << 19)
        self.is_changing = is_changing

    def __getitem__(self, index: int) -> Any:
        return self.tensor.fill_(index) if self.is_changing else self.tensor


@pytest.mark.parametrize("is_changing", [False, True])
def test_large_tensor_that_is_sent_again_has_its_current_values(is_changing):
    loader = fastload.DataLoader(Ready(9, is_changing), batch_size=None, num_workers=1)
    batches = list(loader)
    assert [float(batch[-1]) for batch in batches] == [number * is_changing for number in range(9)]
