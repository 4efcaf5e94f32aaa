"""From the same seeds, fastload's DataLoader gives the same batches as torch's."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import RandomSampler, TensorDataset, WeightedRandomSampler, get_worker_info

import fastload
from tests.loader.datasets import Counting, Nested, Pair, Random, Rows, assert_same
from tests.products import sampled

LOADERS = (torch.utils.data.DataLoader, fastload.DataLoader)


def both(make: Any, epochs: int = 1) -> list[list[Any]]:
    """Return each class's batches in some epochs from the same seeds, then one draw of each generator."""
    results = []
    for kind in LOADERS:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        loader = make(kind)
        batches = [list(loader) for _ in range(epochs)]
        # The generators must be as torch leaves them.
        results.append([batches, torch.rand(3), random.random(), np.random.rand()])
    return results


@pytest.mark.parametrize(
    ("dataset", "workers"),
    sampled(
        [Rows(), Random(), Nested(), [1, 2.5, 3], list("abcdef")],
        [(0, False), (2, False), (2, True), (1, False), (1, True)],
    ),
)
def test_epochs_equal_torchs(dataset, workers):
    workers, persistent = workers
    options = {"batch_size": 7, "shuffle": True, "num_workers": workers, "persistent_workers": persistent}
    assert_same(*both(lambda kind: kind(dataset, **options), epochs=3))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 6, "drop_last": True},
        {"batch_size": None},
        {"batch_size": None, "sampler": [[1, 2], [5, 3], [0]]},
        {"batch_sampler": [[0, 1, 2], [5], [7, 3]]},
        {"sampler": WeightedRandomSampler([1.0, 2.0, 3.0, 4.0], 30), "batch_size": 4},
        {"sampler": RandomSampler(range(40), replacement=True, num_samples=50), "batch_size": 4},
        {"shuffle": True, "batch_size": 3, "generator": torch.Generator().manual_seed(0)},
    ],
    ids=lambda options: "-".join(options),
)
def test_every_way_of_sampling_gives_torchs_batches(options, workers):
    def make(kind):
        if "generator" in options:
            options["generator"].manual_seed(5)
        return kind(TensorDataset(torch.arange(80.0).view(40, 2)), num_workers=workers, **options)

    assert_same(*both(make, epochs=2))


def test_one_worker_may_be_requested_by_true():
    assert_same(*both(lambda kind: kind(Random(), batch_size=7, num_workers=True)))


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_iterable_datasets_give_torchs_batches(workers, batch_size):
    assert_same(*both(lambda kind: kind(Counting(), batch_size=batch_size, num_workers=workers), epochs=2))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_every_start_method_gives_torchs_batches(method):
    def make(kind):
        started = {"multiprocessing_context": method} if kind is fastload.DataLoader else {}
        return kind(Nested(24), batch_size=8, shuffle=True, num_workers=2, **started)

    assert_same(*both(make))


def strange(samples: list[Any]) -> Any:
    """Return a batch of everything that a collate_fn may return but default_collate does not make."""
    base = torch.arange(6000.0).view(2, 3, 10, 100) + float(samples[0][1])
    image = base.contiguous(memory_format=torch.channels_last)
    return {
        "strided": base[:, :, ::2, ::3],
        "transposed": base.transpose(1, 3),
        "channels_last": image,
        "expanded": torch.ones(3, 1).expand(3, 5000),
        "scalar": torch.tensor(3.5),
        "grad": torch.zeros(2000, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(2000)),
        "sparse": torch.eye(3).to_sparse(),
        "conjugate": torch.full((1000,), 1 + 2j).conj(),
        "empty": base[:0, :, 3:],
        "array": np.arange(3000).reshape(30, 100),
        "fortran": np.asfortranarray(np.arange(3000).reshape(30, 100)),
        "readonly": np.frombuffer(bytes(9000), np.uint8),
        "objects": np.array([1, "a", None], object),
        "small": np.arange(4),
        "pair": Pair(base + 1, samples[0][1]),
        "text": "x" * 100_000,
        "set": {1, 2},
        "none": None,
        "ragged": [torch.full((n,), n) for n in (1, 3000, 0, 700)],
    }


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_results_of_a_collate_fn_arrive_as_in_torch():
    assert_same(*both(lambda kind: kind(Rows(12), batch_size=3, num_workers=2, collate_fn=strange)))


DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
MOVABLE = [
    dtype
    for dtype in DTYPES
    if not str(dtype).startswith(("torch.q", "torch.bits", "torch.int1", "torch.uint1"))
]


class OfEveryDtype(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        return (torch.arange(16_384) % 251).to(torch.uint8).view(MOVABLE[index])


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.filterwarnings("ignore:BComplex32 support is experimental")
def test_every_dtype_arrives_bit_for_bit():
    for kind in LOADERS:
        batches = kind(OfEveryDtype(len(MOVABLE)), batch_size=None, num_workers=1)
        for batch, dtype in zip(batches, MOVABLE, strict=True):
            assert batch.dtype == dtype
            assert torch.equal(batch.view(torch.uint8), (torch.arange(16_384) % 251).to(torch.uint8))


def shared_storages(samples: list[Any]) -> Any:
    base = torch.arange(4000.0)
    small = torch.zeros(4)
    return [base, base[10:2000], base.view(torch.int32), base, small, small[1:]]


def test_tensors_that_share_storage_share_it_on_arrival():
    for kind in LOADERS:
        for whole, part, numbers, again, small, rest in kind(
            Rows(6), num_workers=1, collate_fn=shared_storages
        ):
            assert again is whole
            part[0] = -1.0
            assert whole[10] == -1.0
            assert numbers[10] == torch.tensor(-1.0).view(torch.int32)
            rest[0] = 5.0
            assert small[1] == 5.0


def test_holding_a_leaf_does_not_hold_the_rest_of_its_batch():
    iterator = iter(fastload.DataLoader(Rows(40, 100_000), batch_size=2, num_workers=1))
    images, labels = next(iterator)
    address = images.data_ptr()
    kept = [labels]
    del images, labels
    addresses = set()
    for images, labels in iterator:
        addresses.add(images.data_ptr())
        kept.append(labels)
    assert address in addresses
    assert torch.cat(kept).tolist() == list(range(40))


def same_start(samples: list[Any]) -> Any:
    """Return two storages that begin at one address, the second one larger."""
    array = np.arange(20_000.0, dtype=np.float32)
    return [torch.from_numpy(array[:5000]), torch.from_numpy(array), array.astype(">f4")]


def test_storages_that_begin_at_one_address_arrive_intact():
    assert_same(*both(lambda kind: kind(Rows(4), num_workers=1, collate_fn=same_start)))


@pytest.mark.parametrize("workers", [0, 1])
def test_iterating_in_inference_mode_gives_torchs_batches(workers):
    with torch.inference_mode():
        assert_same(*both(lambda kind: kind(Rows(12, 400_000), batch_size=2, num_workers=workers)))
        assert_same(*both(lambda kind: kind(Rows(12, 400_000), batch_size=None, num_workers=workers)))


def test_the_default_dtype_of_the_training_process_changes_nothing():
    torch.set_default_dtype(torch.float64)
    try:
        results = [list(kind(Rows(12), 4, num_workers=1)) for kind in LOADERS]
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(*results)


def keeps_last(samples: list[Any], kept: list[Any] = []) -> Any:  # noqa: B006
    """Return each batch together with the one before, which is kept."""
    kept.append(torch.utils.data.default_collate(samples))
    return kept[-2:]


def test_tensor_that_a_collate_fn_keeps_is_not_overwritten():
    assert_same(*both(lambda kind: kind(Rows(60), batch_size=2, num_workers=1, collate_fn=keeps_last)))


class Inspecting(Rows):
    def __getitem__(self, index: int) -> Any:
        worker = get_worker_info()
        threads = os.environ.get("OPENCV_FOR_THREADS_NUM")
        import cv2

        assert worker.dataset is self
        return worker.id, worker.num_workers, torch.get_num_threads(), cv2.getNumThreads(), threads or ""

    def fetch_into(self, indices: Any, out: Any) -> Any:
        return NotImplemented


@pytest.mark.usefixtures("two_threads")
def test_a_worker_knows_its_own_dataset_and_uses_one_thread():
    for batch in fastload.DataLoader(Inspecting(4), num_workers=2):
        assert batch[1].item() == 2
        assert batch[2].item() == 1
        assert batch[3].item() <= 1


@pytest.mark.parametrize("workers", [1, 2])
def test_pinning_calls_a_batchs_own_method(workers):
    batches = list(fastload.DataLoader(Rows(8), batch_size=2, num_workers=workers, collate_fn=Pinnable))
    assert all(isinstance(batch, Pinnable) for batch in batches)


class Pinnable:
    def __init__(self, samples: Any) -> None:
        self.rows = torch.stack([row for row, _ in samples])

    def pin_memory(self) -> Any:
        return self


trees = st.recursive(
    st.sampled_from([torch.uint8, torch.float32, torch.int64]).flatmap(
        lambda dtype: st.lists(st.integers(0, 40), max_size=3).map(
            lambda shape: torch.ones(shape, dtype=dtype)
        )
    )
    | st.integers()
    | st.text(max_size=5)
    | st.none()
    | st.integers(0, 3000).map(lambda size: np.arange(size)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.tuples(inner, inner).map(tuple)
        | st.tuples(inner, inner).map(lambda pair: Point2(*pair))
    ),
    max_leaves=12,
)


class Point2(tuple):
    def __new__(cls, *values: Any) -> Any:
        return super().__new__(cls, values)

    def __getnewargs__(self) -> Any:
        return tuple(self)


@settings(max_examples=5, deadline=None)
@given(st.lists(trees, min_size=6, max_size=18))
def test_any_tree_arrives_unchanged(batches):
    loader = fastload.DataLoader(batches, batch_size=None, num_workers=1, collate_fn=as_it_is)
    assert_same(list(loader), batches)


def as_it_is(sample: Any) -> Any:
    return sample


@pytest.mark.parametrize("workers", [0, 1])
def test_a_profiler_shows_each_batch_under_torchs_name(workers):
    def shown(kind):
        loader = kind(Rows(), batch_size=7, num_workers=workers)
        with torch.profiler.profile() as profile:
            batches = len(list(loader))
        return batches, [
            (each.key, each.count) for each in profile.key_averages() if "DataLoader" in each.key
        ]

    torchs, ours = map(shown, LOADERS)
    assert torchs == ours
    assert ours[1]
