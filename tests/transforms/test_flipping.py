"""Flips of images and batches."""

import numpy as np
import pytest

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import KINDS, SIZES, drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")

BOTH = pytest.mark.parametrize("name", ["RandomHorizontalFlip", "RandomVerticalFlip"])


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_flipped_pixels_match_torchvision(name, kind):
    for size in SIZES:
        pixels = picture(size, kind)
        expected = to_array(getattr(v2, name)(p=1)(to_tensor(pixels)))
        transform = getattr(T, name)(p=1)
        assert_close(transform.apply(pixels, [1.0]), expected, "flip")
        assert transform.apply(pixels, [0.0]) is pixels


@BOTH
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int16])
@pytest.mark.parametrize("channels", [1, 3])
def test_batches_are_flipped_image_by_image(name, dtype, channels):
    images = np.stack([picture((9, 14), "noise", seed)[:, :, :channels] for seed in range(5)]).astype(dtype)
    rows = np.array([[1.0], [0.0], [1.0], [1.0], [0.0]])
    transform = getattr(T, name)()
    expected = np.stack([transform.apply(image, row) for image, row in zip(images, rows, strict=True)])
    np.testing.assert_array_equal(transform.apply_batch(images.copy(), rows), expected)


@BOTH
@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
def test_flips_have_the_given_probability(name, p):
    share = drawn(getattr(T, name)(p), (4, 4)).mean()
    assert abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 20_000)


@BOTH
@pytest.mark.parametrize("p", [-0.1, 1.1, "often", None])
def test_the_probability_is_checked(name, p):
    with pytest.raises(OptionError, match=f"p must be a probability, 0 to 1, got {p!r}"):
        getattr(T, name)(p)
