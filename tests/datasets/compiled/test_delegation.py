"""Presets of training scripts: classes that hold a transform and call it."""

import pytest
import torch

import fastload
from tests.datasets.compiled.pipelines import PIPELINES


class Preset:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, picture):
        return self.steps(picture)


class ModulePreset(torch.nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, picture):
        return self.steps(picture)


class Doubling(Preset):
    def __call__(self, picture):
        return self.steps(picture) * 2


class Looking(Preset):
    """A class that finds something else under the name."""

    @property
    def inner(self):
        return lambda picture: torch.zeros(1)

    def __call__(self, picture):
        return self.inner(picture)


class Many(Preset):
    def __call__(self, *pictures):
        return self.steps(pictures)


@pytest.fixture
def folder(photos):
    from torchvision.datasets import ImageFolder

    return lambda transform: ImageFolder(str(photos), transform)


def test_a_preset_is_compiled_as_the_pipeline_that_it_holds(folder):
    pipeline = PIPELINES["evaluation"][0]
    ours, expected = (fastload.compile(folder(each)) for each in (Preset(Preset(pipeline)), pipeline))
    assert ours.explain() == expected.explain()
    assert torch.equal(ours[3][0], expected[3][0])


def test_a_module_is_compiled_as_the_pipeline_that_it_holds(folder):
    from torchvision.transforms import v2

    steps = v2.RandomResizedCrop(20), v2.RandomHorizontalFlip(), v2.PILToTensor()
    preset = ModulePreset(torch.nn.Sequential(*steps))
    ours, theirs = fastload.compile(folder(preset)), folder(preset)
    assert "while decoding" in ours.explain()
    found = []
    for dataset in (ours, theirs):
        torch.manual_seed(3)
        found.append(dataset[3][0].int())
    assert (found[0] - found[1]).abs().max() <= 2
    preset.steps = torch.nn.Sequential(v2.CenterCrop(9), v2.PILToTensor())
    assert torch.equal(ours[3][0], theirs[3][0])
    preset.register_forward_hook(lambda module, inputs, output: output + 1)
    assert torch.equal(fastload.compile(folder(preset))[3][0], folder(preset)[3][0])


@pytest.mark.parametrize("kind", [Doubling, Looking, Many])
def test_a_class_that_does_more_is_called(folder, kind):
    transform = kind(PIPELINES["evaluation"][0] if kind is not Many else lambda pictures: pictures[0].size)
    ours, theirs = fastload.compile(folder(transform)), folder(transform)
    assert ("left as it is" in ours.explain()) == (kind is Many)
    difference = torch.as_tensor(ours[3][0]) - torch.as_tensor(theirs[3][0])
    assert difference.abs().max() < 0.04
