"""Random adjustments of levels and channels, compared with torchvision's; noise and compression."""

import numpy as np
import pytest
import torch
from PIL import Image

import fastload.transforms as T
from tests.transforms.samples import drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")

SIZE = (37, 53)


# Random adjustments: ours, torchvision's, and the row of the table.
CHANCES = {
    "invert": (T.RandomInvert(1.0), v2.RandomInvert(1.0)),
    "posterize": (T.RandomPosterize(3, 1.0), v2.RandomPosterize(3, 1.0)),
    "solarize": (T.RandomSolarize(99.5, 1.0), v2.RandomSolarize(99.5, 1.0)),
    "sharpness": (T.RandomAdjustSharpness(1.8, 1.0), v2.RandomAdjustSharpness(1.8, 1.0)),
    "autocontrast": (T.RandomAutocontrast(1.0), v2.RandomAutocontrast(1.0)),
    "equalize": (T.RandomEqualize(1.0), v2.RandomEqualize(1.0)),
}


@pytest.mark.parametrize("kind", ["photo", "noise", "one", "ramp", "one grey"])
@pytest.mark.parametrize("name", CHANCES)
def test_random_adjustments_match_torchvision(name, kind):
    ours, theirs = CHANCES[name]
    for size in (SIZE, (2, 3), (1, 1)):
        pixels = picture(size, kind)
        assert_close(ours(pixels), to_array(theirs(to_tensor(pixels))), name, spare=3)
        unchanged = type(ours)(*[3] * (name in ("posterize", "solarize", "sharpness")), p=0.0)(pixels)
        np.testing.assert_array_equal(unchanged, pixels)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_noise_is_torchvisions(dtype):
    pixels = np.full((300, 300, 3), 100 if dtype == np.uint8 else 0.4, dtype)
    for options in ({}, {"mean": 0.1, "sigma": 0.02}, {"sigma": 0.5}):
        torch.manual_seed(0)
        ours = T.GaussianNoise(**options)(pixels)
        theirs = to_array(v2.GaussianNoise(**options)(to_tensor(pixels)))
        assert ours.dtype == theirs.dtype
        # The mean of 270,000 numbers has a standard error of 0.002 deviations; five times that never happens.
        scale = 255 if dtype == np.uint8 else 1
        assert abs(ours.mean() - theirs.mean()) < 0.014 * options.get("sigma", 0.1) * scale
        assert abs(ours.std() / theirs.std() - 1) < 0.01


@pytest.mark.parametrize("kind", ["photo", "one"])
def test_compressed_pixels_are_pils(kind):
    pixels = picture((48, 64), kind)
    image = Image.fromarray(pixels[:, :, 0] if kind == "one" else pixels)
    for quality in (5, 50, 95):
        expected = np.asarray(v2.JPEG(quality)(image)).reshape(pixels.shape)
        difference = np.abs(T.JPEG(quality)(pixels).astype(int) - expected)
        # Two builds of libjpeg-turbo may differ in the transform that they take.
        assert difference.max() <= 3


def test_distorted_colours_match_torchvision():
    ours = T.RandomPhotometricDistort((0.5, 1.5))
    theirs = v2.RandomPhotometricDistort((0.5, 1.5))
    names = [f"{name}_factor" for name in ("brightness", "contrast", "saturation", "hue")]
    pixels = picture(SIZE)
    for row in drawn(ours, SIZE, 40).tolist():
        params = {name: row[4 + n] if row[n] else None for n, name in enumerate(names)}
        shown = ours.apply(np.arange(3, dtype=np.uint8).reshape(1, 1, 3), [0.0] * 9 + row[9:])
        order = shown.ravel().tolist()
        params |= {"contrast_before": bool(row[8]), "channel_permutation": order if row[9] else None}
        expected = to_array(theirs.transform(to_tensor(pixels), params))
        assert_close(ours.apply(pixels, row), expected, "colour jitter")
    rows = drawn(ours, SIZE)
    assert np.abs(rows[:, [0, 1, 2, 3, 8, 9]].mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(rows))


def test_every_order_of_channels_is_equally_frequent():
    transform = T.RandomChannelPermutation()
    pixels = np.arange(3, dtype=np.uint8).reshape(1, 1, 3)
    orders = [tuple(transform.apply(pixels, row).ravel()) for row in drawn(transform, SIZE, 6000).tolist()]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_grey_becomes_rgb_like_torchvision():
    pixels = picture(SIZE, "one")
    np.testing.assert_array_equal(T.RGB()(pixels), to_array(v2.RGB()(to_tensor(pixels))))
    assert T.RGB()(Image.fromarray(pixels[:, :, 0])).mode == "RGB"
