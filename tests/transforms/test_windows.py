"""Windows of all images of a batch, compared with those of each image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.transforms.windows import Gathered, crop_padded, windows_into, windows_over_black_into


@settings(max_examples=150)
@given(
    st.integers(1, 6),
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
    st.sampled_from([1, 3]),
    st.sampled_from([np.uint8, np.float32]),
    st.integers(0, 25),
    st.integers(0, 2**32 - 1),
)
def test_pixels_beyond_an_image_are_black(count, size, window, channels, dtype, padding, seed):
    rng = np.random.default_rng(seed)
    images = rng.integers(1, 256, (count, *size, channels)).astype(dtype)
    offsets = rng.integers(-padding, [side + padding for side in size], (count, 2))
    out = np.full((count, *window, channels), 7, dtype)
    if windows_over_black_into(Gathered.all_of(images), offsets, out):
        expected = [crop_padded(image, *place, *window) for image, place in zip(images, offsets, strict=True)]
        np.testing.assert_array_equal(out, np.stack(expected))
    else:
        assert (out == 7).all()


def test_cifar_crops_take_the_fast_path():
    images = np.zeros((8, 32, 32, 3), np.uint8)
    offsets = np.tile([[-4, 4], [4, -4]], (4, 1))
    assert windows_over_black_into(Gathered.all_of(images), offsets, np.empty((8, 32, 32, 3), np.uint8))


def test_images_may_be_rows_of_a_read_only_array():
    images = np.random.default_rng(0).integers(1, 256, (20, 16, 16, 3), np.uint8)
    images.flags.writeable = False
    rows = np.array([19, 0, 0, 7, 19])
    offsets = np.array([[4, 4], [-4, -4], [0, 1], [3, -2], [1, 0]])
    out = np.empty((5, 16, 16, 3), np.uint8)
    assert windows_over_black_into(Gathered(images, rows), offsets, out)
    for row, place, window in zip(rows, offsets, out, strict=True):
        np.testing.assert_array_equal(window, crop_padded(images[row], *place, 16, 16))


@pytest.mark.parametrize("channels", [1, 3])
def test_windows_within_images_are_copied(channels):
    images = np.random.default_rng(0).integers(0, 256, (5, 9, 11, channels), np.uint8)
    offsets = np.array([[0, 0], [2, 4], [3, 1], [0, 4], [3, 4]])
    out = np.empty((5, 6, 7, channels), np.uint8)
    windows_into(Gathered.all_of(images), offsets, out)
    for image, (top, left), window in zip(images, offsets, out, strict=True):
        np.testing.assert_array_equal(window, image[top : top + 6, left : left + 7])
