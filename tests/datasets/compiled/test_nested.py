"""Pipelines that nobody wrote: random steps in random containers, each compared with torchvision's own."""

import math
import random

import numpy as np
import pytest
import torch
from PIL import Image

from fastload.datasets.compiled.lazy import LazyImage
from fastload.datasets.compiled.pipeline import CompiledTransform
from fastload.images.deferred import DeferredImage
from tests.images.samples import photo

# A step makes of a difference of d levels one of at most factor * d + own; none is promised where a level
# more or less can turn a pixel into another one, as in equalizing.
_EXACT, _RESIZED, _LEVEL, _ANY = (1, 0), (1, 2), (3, 3), (math.inf, 0)


def _steps(home, size):
    """Steps that keep an image of at least `size` pixels a side, with their tolerance."""
    crop = random.Random(size).choice([size, size + 3])
    return {
        "CenterCrop": (lambda: home.CenterCrop(crop), _EXACT),
        "RandomCrop": (lambda: home.RandomCrop(size), _EXACT),
        "RandomCrop, padded": (lambda: home.RandomCrop(size, 4, True, 7, "constant"), _EXACT),
        "RandomCrop, reflected": (lambda: home.RandomCrop(size, (2, 3), padding_mode="reflect"), _EXACT),
        "Resize": (lambda: home.Resize(size + 5), _RESIZED),
        "Resize, both sides": (lambda: home.Resize((size + 1, size + 9)), _RESIZED),
        "RandomResizedCrop": (lambda: home.RandomResizedCrop(size + 2), _RESIZED),
        "RandomHorizontalFlip": (lambda: home.RandomHorizontalFlip(), _EXACT),
        "RandomVerticalFlip": (lambda: home.RandomVerticalFlip(0.3), _EXACT),
        "ColorJitter": (lambda: home.ColorJitter(0.3, 0.3, 0.3), _LEVEL),
        "ColorJitter, one": (lambda: home.ColorJitter(contrast=(0.5, 1.2)), _LEVEL),
        "GaussianBlur": (lambda: home.GaussianBlur(3, (0.1, 2.0)), (1, 1)),
        "RandomGrayscale": (lambda: home.RandomGrayscale(0.5), (1, 1)),
        "Grayscale": (lambda: home.Grayscale(3), (1, 1)),
        "RandomAdjustSharpness": (lambda: home.RandomAdjustSharpness(2), (3, 1)),
        "RandomAutocontrast": (lambda: home.RandomAutocontrast(), (2, 3)),
        "RandomInvert": (lambda: home.RandomInvert(), _EXACT),
        "RandomEqualize": (lambda: home.RandomEqualize(), _ANY),
        "RandomPosterize": (lambda: home.RandomPosterize(4), _ANY),
        "RandomSolarize": (lambda: home.RandomSolarize(100), _ANY),
        "RandomRotation": (lambda: home.RandomRotation(10), _ANY),
        "Pad": (lambda: home.Pad(2), _EXACT),
        "RandomPerspective": (lambda: home.RandomPerspective(), _ANY),
    }


class _Pipelines:
    """Random pipelines of one home, v1 or v2, and the tolerance of each."""

    def __init__(self, home, seed):
        self.home, self.chance = home, random.Random(seed)
        self.is_v2 = "v2" in home.__name__
        self.tolerance = 0.0
        self.is_abrupt = False

    def _step(self, size, depth):
        kind = self.chance.random()
        if depth < 2 and kind < 0.3:
            name = self.chance.choice(["RandomApply", "RandomChoice", "RandomOrder", "Compose"])
            inner = [self._step(size, depth + 1) for _ in range(self.chance.randint(1, 3))]
            if name == "RandomOrder" and self.is_abrupt and self.tolerance:
                self.tolerance = math.inf
            if name == "RandomApply":
                inner = torch.nn.ModuleList(inner) if all(map(_is_module, inner)) else inner
                return self.home.RandomApply(inner, p=self.chance.choice([0.3, 1.0]))
            return getattr(self.home, name)(inner)
        make, (factor, own) = self.chance.choice(list(_steps(self.home, size).values()))
        self.is_abrupt |= factor == math.inf
        self.tolerance = self.tolerance * factor + own if self.tolerance or factor < math.inf else 0.0
        return make()

    def _body(self, size):
        return [self._step(size, 0) for _ in range(self.chance.randint(1, 4))]

    def _last(self, is_tensor):
        home = self.home
        normalize = home.Normalize([0.4, 0.5, 0.6], [0.25, 0.25, 0.25])
        if self.is_v2 and (is_tensor or self.chance.random() < 0.7):
            # A crop to one size before, because tensors are padded by other steps than images are.
            to_float = home.ToDtype(torch.float32, scale=True)
            last = [home.ToImage(), to_float, home.CenterCrop(20), normalize]
            return last + [home.ToPureTensor()] * self.chance.randint(0, 1)
        convert = [home.PILToTensor(), home.ConvertImageDtype(torch.float)]
        convert = self.chance.choice([[home.ToTensor()], convert])
        erasing = [home.RandomErasing(0.7, value=self.chance.choice([0, "random"]))]
        return [*convert, home.CenterCrop(22), normalize, *erasing * self.chance.randint(0, 1)]

    def make(self):
        body = self._body(24)
        is_tensor = self.is_v2 and self.chance.random() < 0.4
        body = [self.home.ToImage(), *body] if is_tensor else body
        return self.home.Compose([*body, *(self._last(is_tensor) if self.chance.random() < 0.8 else [])])


def _is_module(transform):
    return isinstance(transform, torch.nn.Module)


def _homes():
    from torchvision import transforms
    from torchvision.transforms import v2

    return {"v1": transforms, "v2": v2}


def _seed(seed):
    torch.manual_seed(seed)
    random.seed(seed)


def _array(image):
    return image.double().numpy() if isinstance(image, torch.Tensor) else np.asarray(image).astype(float)


@pytest.mark.filterwarnings("ignore:The transform `ToTensor:UserWarning", "ignore:.*ToTensor.*deprecated")
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("home", ["v1", "v2"])
def test_random_pipelines_are_torchvisions(home, seed):
    pipelines = _Pipelines(_homes()[home], seed)
    theirs = pipelines.make()
    ours = CompiledTransform(theirs)
    for index in range(3):
        pixels = photo(50 + index, 61, seed=index)
        _seed(index)
        expected = theirs(Image.fromarray(pixels))
        after = torch.rand(1).item(), random.random()
        _seed(index)
        found = ours(Image.fromarray(pixels))
        assert (torch.rand(1).item(), random.random()) == after
        _seed(index)
        lazily = ours.end.finish(ours.prepare(LazyImage(DeferredImage.of_pixels(pixels))))
        for each in (found, lazily):
            assert type(each) is type(expected), theirs
            assert _array(each).shape == _array(expected).shape
            if isinstance(each, torch.Tensor):
                assert each.dtype == expected.dtype
            scale = 255 * 0.25 if isinstance(each, torch.Tensor) and each.is_floating_point() else 1
            difference = np.abs(_array(each) - _array(expected)) * scale
            assert difference.max() <= pipelines.tolerance + 1.01, theirs
