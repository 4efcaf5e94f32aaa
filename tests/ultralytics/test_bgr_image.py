"""Deferred images against the steps that they replace: paste, warp, change colours, flip, letterbox."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.images.canvas import GREY, Canvas, Placement, axis_resize
from fastload.images.deferred import DeferredImage
from fastload.images.hsv import HsvChange
from fastload.ultralytics.bgr_image import BgrImage

SIDE = 120


def smooth(height: int, width: int, colour: float = 1.0) -> np.ndarray:
    """Waves around grey that end in grey, with slopes of less than 5 levels a pixel."""
    down, across = (np.sin(np.linspace(0, np.pi * 3, side)) for side in (height, width))
    waves = 30 * colour * down[:, None, None] * across[None, :, None] * np.array([1, -1, 0.5])
    return np.rint(GREY + waves).astype(np.uint8)


def warped(image: np.ndarray, matrix: np.ndarray, height: int, is_exact: bool = False) -> np.ndarray:
    return np.asarray(BgrImage(BgrImage.of(image).deferred.warped(matrix, (height, SIDE), is_exact)))


def matrix_of(scale: float, left: float, top: float) -> np.ndarray:
    return np.array([[scale, 0, left], [0, scale, top], [0, 0, 1]], np.float64)


@settings(max_examples=60, deadline=None)
@given(
    scale=st.one_of(st.just(1.0), st.floats(0.5, 1.5)),
    left=st.floats(-90, 90),
    top=st.floats(-90, 90),
    height=st.integers(60, 200),
    width=st.integers(60, 200),
)
def test_resize_shows_what_a_warp_shows(scale, left, top, height, width):
    image, matrix = smooth(height, width), matrix_of(scale, left, top)
    expected = cv2.warpAffine(image, matrix[:2], (SIDE, SIDE), borderValue=(GREY,) * 4)
    found = warped(image, matrix, SIDE)
    assert found.shape == expected.shape
    # Positions are at most 1/32 of a pixel off on either axis, OpenCV's table of weights half of that; each
    # of them rounds to a level.
    assert np.abs(found.astype(int) - expected).max() <= 2


@given(st.floats(0.3, 3), st.floats(-500, 500))
def test_resize_begins_where_the_warp_does(scale, offset):
    found = axis_resize(scale, offset, SIDE)
    if found is None:
        return
    positions = found.start + (found.skipped + np.arange(SIDE) + 0.5) / scale - 0.5
    assert np.abs(positions - (np.arange(SIDE) - offset) / scale).max() <= 1 / 32 + 1e-9
    assert positions[0] >= found.start - 1e-9
    assert positions[-1] + 1 <= found.start + found.length


@pytest.mark.parametrize("is_perspective", [False, True], ids=["affine", "perspective"])
def test_rotation_is_opencvs(is_perspective):
    image = smooth(90, 130)
    matrix = np.vstack([cv2.getRotationMatrix2D((40, 50), 12, 0.9), [0, 0.001 * is_perspective, 1]])
    warp = cv2.warpPerspective if is_perspective else cv2.warpAffine
    expected = warp(image, matrix if is_perspective else matrix[:2], (SIDE, 80), borderValue=(GREY,) * 4)
    assert np.array_equal(warped(image, matrix, 80, is_exact=True), expected)


def mosaic() -> tuple[BgrImage, np.ndarray]:
    """Four images that overlap and end outside, in both orders of colours, and what they show."""
    shape, placements, sources = (150, 170), [], []
    expected = np.full((*shape, 3), GREY, np.uint8)
    for number, (left, top) in enumerate([(-20, -10), (80, 10), (5, 70), (80, 75)]):
        image = smooth(70, 100, 1 + number / 4)
        y1, x1 = max(top, 0), max(left, 0)
        shown = image[y1 - top : shape[0] - top, x1 - left : shape[1] - left]
        expected[y1 : y1 + shown.shape[0], x1 : x1 + shown.shape[1]] = shown
        is_rgb = number == 2
        sources.append(DeferredImage.of_pixels(image[..., ::-1].copy() if is_rgb else image, not is_rgb))
        placements.append(Placement(number, (70, 100), (70, 100), left, top))
    return BgrImage(DeferredImage.on(Canvas(shape, tuple(placements), None, shape), sources)), expected


@pytest.mark.parametrize("flip", [None, 0, 1], ids=["as it is", "upside down", "mirrored"])
@pytest.mark.parametrize("is_coloured", [False, True], ids=["plain", "coloured"])
@pytest.mark.parametrize("is_rgb", [False, True], ids=["BGR", "RGB"])
def test_deferred_image_writes_what_the_steps_make(flip, is_coloured, is_rgb):
    image, expected = mosaic()
    deferred = image.deferred
    if is_coloured:
        rng = np.random.default_rng(0)
        tables = [rng.integers(0, end, 256).astype(np.uint8) for end in (180, 256, 256)]
        deferred = deferred.changed(HsvChange(np.stack(tables), is_bgr=True))
        hsv = cv2.cvtColor(expected, cv2.COLOR_BGR2HSV)
        changed = cv2.merge([cv2.LUT(hsv[..., at], tables[at]) for at in range(3)])
        expected = cv2.cvtColor(changed, cv2.COLOR_HSV2BGR)
    if flip is not None:
        deferred = deferred.flipped(flip == 0, flip == 1)
        expected = cv2.flip(expected, flip)
    image = BgrImage(deferred)
    assert np.array_equal(np.asarray(image), expected)
    wanted = (expected[..., ::-1] if is_rgb else expected).transpose(2, 0, 1)
    assert np.array_equal(image.tensor(is_rgb).numpy(), wanted)


def test_large_image_is_written_upside_down():
    image = smooth(700, 300)
    flipped = BgrImage(BgrImage.of(image).deferred.flipped(upside_down=True))
    assert np.array_equal(flipped.tensor(False).numpy(), image[::-1].transpose(2, 0, 1))


def test_image_flipped_twice_is_itself():
    image = smooth(40, 50)
    twice = BgrImage.of(image).deferred.flipped(upside_down=True).flipped(mirrored=True)
    assert np.array_equal(np.asarray(BgrImage(twice)), image[::-1, ::-1])


def test_canvas_has_its_own_colour_beside_an_image():
    canvas = Canvas((40, 40), (Placement(0, (20, 30), (20, 30), 5, 7),), None, (40, 40), fill=3)
    expected = np.full((40, 40, 3), 3, np.uint8)
    expected[7:27, 5:35] = smooth(20, 30)
    deferred = DeferredImage.on(canvas, [DeferredImage.of_pixels(smooth(20, 30))])
    assert np.array_equal(deferred.pixels(), expected)


def test_pixels_of_a_deferred_image_are_an_array_of_their_own():
    image = smooth(20, 30)
    np.asarray(BgrImage.of(image))[:] = 0
    assert image.any()
