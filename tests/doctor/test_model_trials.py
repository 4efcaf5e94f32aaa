"""Trying the model in other ways: which module is taken, as what it is tried, and when it is left alone."""

import contextlib

import pytest
import torch
from torch import nn

from fastload.doctor._model_trials import ModelWatch, try_model
from tests.tools import CUDA

STEP_S = 0.01


class Outer(nn.Module):
    """A model that is called with a dict, a list or keywords, and calls another one with a tensor."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 4)

    def forward(self, batch=None, images=None):
        if isinstance(batch, dict):
            images = batch["images"]
        elif batch is not None:
            images = torch.stack(batch) if isinstance(batch, list) else batch
        return self.inner(images)


def watched(call, context=contextlib.nullcontext):
    watch = ModelWatch()
    with watch.watching(), context():
        call()
    return watch


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model({"images": torch.ones(6, 8)}),
        lambda model: model([torch.ones(8)] * 6),
        lambda model: model(images=torch.ones(6, 8)),
    ],
    ids=["a dict", "a list", "keywords"],
)
def test_the_outermost_module_is_taken_whatever_it_is_given(call):
    model = Outer()
    watch = watched(lambda: call(model))
    assert watch.model is model
    assert watch.device == torch.device("cpu")
    assert watch.inputs == ()
    assert try_model(watch, STEP_S) == ()


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_a_model_is_tried_in_each_way(device):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(2)).to(device)
    images = torch.ones(2, 3, 8, 8, device=device)
    model(images)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    watch = watched(lambda: model(images))
    assert {trial.change for trial in try_model(watch, STEP_S)} == {"batch", "amp"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value.grad is None for value in model.parameters())


class Types(nn.Module):
    """Notes in which type it computes."""

    seen: list

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, images):
        output = self.linear(images)
        Types.seen.append(output.dtype)
        return output


def test_what_is_cast_already_is_tried_so_and_not_with_amp():
    model, images = Types(), torch.ones(6, 8)
    Types.seen = []
    watch = watched(lambda: model(images), lambda: torch.autocast("cpu", dtype=torch.bfloat16))
    assert watch.autocast == torch.bfloat16
    assert {trial.change for trial in try_model(watch, STEP_S)} == {"batch"}
    assert set(Types.seen) == {torch.bfloat16}
    assert watched(lambda: model(images)).autocast is None


def test_a_step_that_takes_long_is_not_tried():
    model = nn.Linear(8, 4)
    watch = watched(lambda: model(torch.ones(6, 8)))
    assert try_model(watch, 1.5) == ()
    assert try_model(watch, STEP_S)


def test_a_model_that_is_compiled_or_bound_to_other_processes_is_left_alone():
    def forbidden(graph, inputs):
        raise AssertionError("it must not be compiled")

    compiled = torch.compile(nn.Linear(8, 4), backend=forbidden)
    watch = ModelWatch()
    watch._called(compiled, (torch.ones(6, 8),))
    assert watch.inputs
    assert try_model(watch, STEP_S) == ()
    bound = nn.Sequential(nn.Linear(8, 4), nn.SyncBatchNorm(4))
    watch = ModelWatch()
    watch._called(bound, (torch.ones(6, 8),))
    assert try_model(watch, STEP_S) == ()


def test_a_model_in_data_parallel_is_tried_without_it():
    model = nn.DataParallel(nn.Linear(8, 4))
    watch = watched(lambda: model(torch.ones(6, 8)))
    assert {trial.change for trial in try_model(watch, STEP_S)} == {"batch", "amp"}


def test_modules_without_anything_to_learn_are_passed_over():
    frozen = nn.Linear(8, 8).requires_grad_(False)
    model = nn.Linear(8, 4)
    watch = watched(lambda: model(nn.ReLU()(frozen(torch.ones(6, 8)))))
    assert watch.model is model
