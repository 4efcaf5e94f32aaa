"""Windows of all images of a batch, compared with those of each image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.contracts import Gathered
from fastload.transforms import RandomCrop
from fastload.transforms.draws import Draws
from fastload.transforms.windows import crop_padded, windows_into


@settings(max_examples=100)
@given(
    st.integers(1, 6),
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
    st.sampled_from([1, 3]),
    st.sampled_from([np.uint8, np.float32]),
    st.integers(0, 9),
    st.sampled_from([0, 7]),
    st.integers(0, 2**32 - 1),
)
def test_random_crops_of_a_batch_are_those_of_its_images(
    count, size, window, channels, dtype, padding, fill, seed
):
    rng = np.random.default_rng(seed)
    images = rng.integers(1, 256, (count, *size, channels)).astype(dtype)
    images.flags.writeable = False
    crop = RandomCrop(window, padding, pad_if_needed=True, fill=fill)
    rows = crop.draw(Draws(rng.integers(0, 2**63, count, np.uint64), count), np.array([size] * count))
    for order in (np.arange(count), rng.integers(0, count, count)):
        expected = [crop.apply(images[at], row) for at, row in zip(order, rows.tolist(), strict=True)]
        np.testing.assert_array_equal(crop.apply_gathered(Gathered(images, order), rows), np.stack(expected))


def test_windows_are_of_rows_of_a_read_only_array():
    images = np.random.default_rng(0).integers(1, 256, (20, 16, 16, 3), np.uint8)
    images.flags.writeable = False
    rows, offsets = np.array([19, 0, 0, 7]), np.array([[4, 4], [0, 0], [0, 1], [3, 2]])
    out = np.empty((4, 12, 12, 3), np.uint8)
    windows_into(Gathered(images, rows), offsets, out)
    for row, place, window in zip(rows, offsets, out, strict=True):
        np.testing.assert_array_equal(window, crop_padded(images[row], *place, 12, 12))


@pytest.mark.parametrize("channels", [1, 3])
def test_windows_within_images_are_copied(channels):
    images = np.random.default_rng(0).integers(0, 256, (5, 9, 11, channels), np.uint8)
    offsets = np.array([[0, 0], [2, 4], [3, 1], [0, 4], [3, 4]])
    out = np.empty((5, 6, 7, channels), np.uint8)
    windows_into(Gathered(images, np.arange(len(images))), offsets, out)
    for image, (top, left), window in zip(images, offsets, out, strict=True):
        np.testing.assert_array_equal(window, image[top : top + 6, left : left + 7])
