"""Batches on a device: unchanged without a device, and complete when they are used on one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

import fastload
from fastload.loader.device import moved
from tests.loader.datasets import Nested, Pair, Point, Rows, assert_same
from tests.tools import NEEDS_CUDA


def gpu(test: Any) -> Any:
    """Mark a test that runs on a GPU; it is skipped on other machines."""
    return pytest.mark.gpu(NEEDS_CUDA(test))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu")])
def test_on_the_cpu_a_device_changes_nothing(device, workers):
    results = []
    for options in ({}, {"device": device}):
        torch.manual_seed(1)
        loader = fastload.DataLoader(Nested(), batch_size=3, shuffle=True, num_workers=workers, **options)
        results.append(list(loader))
    assert_same(*results)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_missing_device_warns_once_and_batches_stay_on_the_cpu():
    with pytest.warns(UserWarning, match="'cuda' is not available") as caught:
        loader = fastload.DataLoader(Rows(6), batch_size=2, num_workers=1, device="cuda")
    batches = [batch for _ in range(2) for batch in loader]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert {rows.device.type for rows, _ in batches} == {"cpu"}
    assert loader.device == "cuda"


def test_invalid_device_is_refused():
    with pytest.raises(fastload.OptionError, match="got 'gpu'"):
        fastload.DataLoader(Rows(6), device="gpu")


def test_every_tensor_of_a_tree_is_moved_and_nothing_else_is_touched():
    tensor = torch.ones(2)
    shared = object()
    tree = {
        "point": Point(tensor, 1),
        "list": [tensor, "text", b"bytes", None],
        "tuple": (tensor, (tensor,)),
        "ordered": OrderedDict(a=tensor),
        "pair": Pair(tensor, shared),
        "object": shared,
        "packed": torch.nn.utils.rnn.pack_sequence([tensor]),
    }
    result = moved(tree, lambda one: one + 1)
    assert_same(result["point"], Point(tensor + 1, 1))
    assert_same(result["list"], [tensor + 1, "text", b"bytes", None])
    assert_same(result["tuple"], (tensor + 1, (tensor + 1,)))
    assert_same(result["ordered"], OrderedDict(a=tensor + 1))
    assert_same(result["pair"].first, tensor + 1)
    assert result["pair"].second is result["object"] is shared
    assert result["packed"] is tree["packed"]
    assert moved(tree["packed"], lambda one: one, lambda packed: packed.to("cpu")).data.device.type == "cpu"
    assert tree["list"][0] is tensor
    assert_same(tree["pair"].first, torch.ones(2))


@gpu
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin_memory", [False, True])
def test_batches_on_a_gpu_equal_those_on_the_cpu(workers, pin_memory):
    def batches(**options: Any) -> list[Any]:
        torch.manual_seed(1)
        return list(
            fastload.DataLoader(Nested(48), batch_size=5, shuffle=True, num_workers=workers, **options)
        )

    on_device = batches(device="cuda", pin_memory=pin_memory)
    assert on_device[0]["point"].x.device.type == "cuda"
    assert_same(moved(on_device, lambda tensor: tensor.cpu()), batches())


@gpu
def test_batches_stay_intact_while_the_gpu_lags_behind():
    """Make thousands of copies from reused slots, each used by a busy stream."""
    loader = fastload.DataLoader(Rows(4000, 50_000), batch_size=4, num_workers=2, device="cuda")
    busy = torch.ones(2000, 2000, device="cuda")
    sums = []
    for number, (rows, labels) in enumerate(loader):
        if number % 20 == 0:
            for _ in range(20):
                busy = busy @ busy * 0
        sums.append((rows[:, 0] - labels).abs().sum() + (rows[:, -1] - labels - 49_999).abs().sum())
        del rows, labels
    assert torch.stack(sums).eq(0).all()


@gpu
def test_a_persistent_loader_restarts_after_an_early_end_on_a_gpu():
    options = {"num_workers": 2, "persistent_workers": True, "device": "cuda"}
    loader = fastload.DataLoader(Rows(40), batch_size=4, **options)
    next(iter(loader))
    assert [int(labels[0]) for _, labels in loader] == list(range(0, 40, 4))


@gpu
def test_an_early_end_an_error_and_a_resume_work_on_a_gpu():
    loader = fastload.DataLoader(Rows(400), batch_size=4, num_workers=2, device="cuda")
    for _, labels in loader:
        if int(labels[0]) == 40:
            break
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert [int(labels[0]) for _, labels in loader] == list(range(44, 400, 4))
    with pytest.raises(ZeroDivisionError):
        for _ in fastload.DataLoader(Rows(8), num_workers=1, device="cuda", collate_fn=divide_by_zero):
            pass


def divide_by_zero(samples: Any) -> Any:
    return 1 / 0
