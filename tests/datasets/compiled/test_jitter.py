"""ColorJitter of PIL images: PIL's own integers, computed by OpenCV."""

import numpy as np
import pytest
import torch
from PIL import Image

from fastload.datasets.compiled.jitter import jittered
from tests.images.samples import photo

RANGES = {
    "brightness": (0.8, 0, 0, 0),
    "contrast": (0, 0.8, 0, 0),
    "saturation": (0, 0, 0.8, 0),
    "hue": (0, 0, 0, 0.5),
    "all": (0.8, 0.8, 0.8, 0.2),
}


def _images():
    rng = np.random.default_rng(0)
    yield photo(90, 110, seed=1)
    yield rng.integers(0, 256, (120, 130, 3), np.uint8)
    yield rng.integers(0, 2, (40, 50, 3), np.uint8) * 255
    yield np.repeat(rng.integers(0, 256, (40, 50, 1), np.uint8), 3, axis=2)
    yield np.zeros((9, 8, 3), np.uint8)


@pytest.mark.parametrize("name", RANGES)
def test_colours_are_those_of_pil(name):
    from torchvision import transforms

    theirs = transforms.ColorJitter(*RANGES[name])
    for seed in range(6):
        for pixels in _images():
            torch.manual_seed(seed)
            expected = np.asarray(theirs(Image.fromarray(pixels)))
            torch.manual_seed(seed)
            order, *amounts = theirs.get_params(
                theirs.brightness, theirs.contrast, theirs.saturation, theirs.hue
            )
            assert np.array_equal(jittered(pixels, order.tolist(), amounts), expected)


# The amount of one change, such that each rounds levels in its own way: up, down, of negative sums.
@pytest.mark.parametrize(("change", "amount"), [(1, 0.6), (2, 0.6), (2, 1.4), (3, 0.1), (3, -0.37)])
def test_each_of_many_colours_is_pils(change, amount):
    from torchvision.transforms import functional

    steps = np.arange(0, 256, 3, dtype=np.uint8)
    colours = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(86, -1, 3)
    adjust = (None, functional.adjust_contrast, functional.adjust_saturation, functional.adjust_hue)[change]
    amounts = [amount if number == change else None for number in range(4)]
    expected = np.asarray(adjust(Image.fromarray(colours), amount))
    assert np.array_equal(jittered(colours, [change], amounts), expected)


def test_grey_images_have_no_colours_to_change():
    from torchvision.transforms import functional

    grey = photo(30, 40, seed=2)[:, :, :1]
    expected = functional.adjust_contrast(Image.fromarray(grey[:, :, 0]), 0.5)
    found = jittered(np.ascontiguousarray(grey), [0, 1, 2, 3], [None, 0.5, 2.0, 0.3])
    assert np.array_equal(found[:, :, 0], np.asarray(expected))
