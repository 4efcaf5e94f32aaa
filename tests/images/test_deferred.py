"""Deferred images beside the same steps done at once on arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastload.contracts import Box
from fastload.images.canvas import GREY, Canvas, Placement, level_in
from fastload.images.deferred import DeferredImage
from fastload.images.resize import Resampling, resize

NEAREST = Resampling("nearest")
KINDS = [(1, np.uint8), (3, np.uint8), (3, np.uint16), (4, np.float32), (7, np.uint16)]


def noise(height: int, width: int, channels: int, dtype: type) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 200, (height, width, channels)).astype(dtype)


def brighter(pixels: np.ndarray) -> np.ndarray:
    pixels += 1  # in place, which must not reach the source
    return pixels


STEPS = st.lists(
    st.tuples(st.sampled_from(["crop", "rows", "columns", "change", "resize"]), st.floats(0, 0.4)), max_size=7
)


@pytest.mark.parametrize(("channels", "dtype"), KINDS)
@given(steps=STEPS)
@example(steps=[("resize", 0.3), ("resize", 0.0)])  # to its own size
def test_steps_give_what_they_give_one_by_one(channels, dtype, steps):
    stored = noise(37, 53, channels, dtype)
    given_pixels, expected = stored.copy(), stored.copy()
    image = DeferredImage.of_pixels(stored)
    for kind, share in steps:
        height, width, _ = expected.shape
        if kind == "crop":
            box = Box(int(share * height), int(share * width / 2), -(-height // 2), -(-width // 2))
            image, expected = image.cropped(box), box.of(expected)
        elif kind == "resize":
            size = max(1, int(height * (1.3 - share))), max(1, int(width * (0.7 + share)))
            image = image.resized(size, NEAREST)
            expected = resize(np.ascontiguousarray(expected), *size, NEAREST)
        elif kind == "change":
            image, expected = image.changed(brighter), expected + np.ones((), dtype)
        else:
            image = image.flipped(kind == "rows", kind == "columns")
            expected = expected[::-1] if kind == "rows" else expected[:, ::-1]
    assert (image.shape, image.dtype) == (expected.shape, expected.dtype)
    assert np.array_equal(image.pixels(), expected)
    out = np.empty(image.shape, image.dtype)
    image.render_into(out)
    assert np.array_equal(out, expected)
    assert np.array_equal(stored, given_pixels)


@pytest.mark.parametrize(("channels", "dtype"), KINDS)
def test_placed_images_may_be_cropped_flipped_and_changed(channels, dtype):
    stored = noise(20, 30, channels, dtype)
    expected = np.full((40, 50, channels), level_in(GREY, np.dtype(dtype)), dtype)
    expected[5:25, 10:40] = stored
    canvas = Canvas((40, 50), (Placement(0, (20, 30), (20, 30), 10, 5),), None, (40, 50))
    image = DeferredImage.on(canvas, [DeferredImage.of_pixels(stored)])
    assert np.array_equal(image.pixels(), expected)
    changed = image.cropped(Box(2, 3, 30, 40)).flipped(mirrored=True).changed(brighter)
    assert np.array_equal(changed.pixels(), expected[2:32, 3:43][:, ::-1] + np.ones((), dtype))


@pytest.mark.parametrize("channels", [1, 3])
def test_moved_by_a_matrix(channels):
    stored = noise(20, 30, channels, np.uint8)
    moved = DeferredImage.of_pixels(stored).warped(np.array([[1, 0, 4], [0, 1, 2], [0, 0, 1.0]]), (25, 36))
    expected = np.full((25, 36, channels), GREY, np.uint8)
    expected[2:22, 4:34] = stored
    assert np.array_equal(moved.pixels(), expected)
