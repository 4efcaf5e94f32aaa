"""Adjustments of colour and sharpness, compared with torchvision's functions for uint8 tensors."""

import numpy as np
import pytest

from fastload.errors import OptionError
from fastload.transforms.colour import adjusting
from tests.transforms.samples import KINDS, SIZES, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

functional = pytest.importorskip("torchvision.transforms.v2.functional")

FACTORS = [0.0, 0.3, 0.997, 1.0, 1.25, 1.9, 2.5]
TURNS = [-0.5, -0.21, 0.0, 0.003, 0.17, 0.4, 0.5]

JOBS = {
    "brightness": (adjusting.brightness, functional.adjust_brightness, FACTORS),
    "contrast": (adjusting.contrast, functional.adjust_contrast, FACTORS),
    "saturation": (adjusting.saturation, functional.adjust_saturation, FACTORS),
    "sharpness": (adjusting.sharpness, functional.adjust_sharpness, FACTORS),
    "hue": (adjusting.hue, functional.adjust_hue, TURNS),
    "posterize": (adjusting.posterize, functional.posterize, range(9)),
    "solarize": (adjusting.solarize, functional.solarize, [0.0, 0.5, 77.0, 128.3, 255.0]),
    "autocontrast": (
        lambda image, _: adjusting.autocontrast(image),
        lambda x, _: functional.autocontrast(x),
        [0],
    ),
    "equalize": (lambda image, _: adjusting.equalize(image), lambda x, _: functional.equalize(x), [0]),
    "grey": (
        lambda image, _: adjusting.grey(image),
        lambda x, _: functional.rgb_to_grayscale(x, x.shape[0]),
        [0],
    ),
}
CASES = [(name, amount) for name, job in JOBS.items() for amount in job[2]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "amount"), CASES)
def test_pixels_match_torchvision(name, amount, kind):
    ours, theirs, _ = JOBS[name]
    for seed, size in enumerate([(120, 90), *SIZES]):
        pixels = picture(size, kind, seed)
        expected = to_array(theirs(to_tensor(pixels), amount))
        # A grey level that is one off changes all three channels of its pixel.
        assert_close(ours(pixels, amount), expected, name, spare=3)


@pytest.mark.parametrize(("name", "amount"), CASES)
def test_layout_in_memory_makes_no_difference(name, amount):
    change = JOBS[name][0]
    pixels = picture((31, 42), "noise")
    planar = np.moveaxis(np.ascontiguousarray(np.moveaxis(pixels, 2, 0)), 0, 2)
    expected = change(pixels, amount)
    for view, wanted in ((planar, expected), (pixels[:, ::-1], change(pixels[:, ::-1].copy(), amount))):
        view.flags.writeable = False
        np.testing.assert_array_equal(change(view, amount), wanted)


def test_autocontrast_keeps_levels_that_fill_the_range():
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    np.testing.assert_array_equal(adjusting.autocontrast(pixels), pixels)


def test_neutral_amounts_change_nothing():
    pixels = picture((40, 30), "noise")
    for change, amount in (
        (adjusting.brightness, 1.0),
        (adjusting.contrast, 1.0),
        (adjusting.saturation, 1.0),
        (adjusting.sharpness, 1.0),
        (adjusting.hue, 0.0),
        (adjusting.posterize, 8),
    ):
        np.testing.assert_array_equal(change(pixels, amount), pixels)


@pytest.mark.parametrize("channels", [2, 4])
def test_other_channels_are_refused(channels):
    with pytest.raises(OptionError, match=f"must have 1 or 3 channels .* got {channels}$"):
        adjusting.require_channels(np.zeros((4, 4, channels), np.uint8))
