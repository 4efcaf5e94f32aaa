"""Region decoding is bit-equal to decoding the whole image and cropping."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.contracts import Box
from fastload.errors import DecodeError
from fastload.images.decode import decode, encode
from fastload.images.jpeg import TileIndex, choose_interval, index_tiles
from fastload.images.region import crop, decode_region

SIDES = st.integers(1, 150)


def smooth_image(height: int, width: int, seed: int) -> np.ndarray:
    """Make smooth colours with some noise, so that every coefficient matters and none is clipped."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return cv2.add(smooth, rng.integers(0, 40, smooth.shape, np.uint8))


def stored(pixels: np.ndarray, subsampling: str, quality: int):
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    mcu_width = 8 if pixels.ndim == 2 or subsampling == "444" else 16
    options += [cv2.IMWRITE_JPEG_RST_INTERVAL, choose_interval(pixels.shape[1], mcu_width)]
    if pixels.ndim == 3:
        factors = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{subsampling}")
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factors]
    data = encode(pixels, ".jpg", options)
    return np.frombuffer(data, np.uint8), index_tiles(data)


@settings(max_examples=300, deadline=None)
@given(
    st.data(),
    SIDES,
    SIDES,
    st.sampled_from(["420", "422", "444", "grey"]),
    st.sampled_from([30, 75, 90, 100]),
    st.integers(0, 1000),
)
def test_any_region_of_any_image_equals_the_crop(data, height, width, subsampling, quality, seed):
    pixels = smooth_image(height, width, seed)
    if subsampling == "grey":
        pixels, subsampling = pixels[:, :, 0].copy(), "420"
    jpeg, index = stored(pixels, subsampling, quality)
    full = decode(jpeg)
    for _ in range(4):
        top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
        box = Box(top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left)))
        region = decode_region(jpeg, (height, width), index, box)
        expected = full[top : top + box.height, left : left + box.width]
        np.testing.assert_array_equal(region, expected)


def test_fewer_bytes_than_in_the_index_raise_decode_error():
    jpeg, index = stored(smooth_image(120, 100, 0), "420", 90)
    with pytest.raises(DecodeError):
        decode_region(jpeg[:-900], (120, 100), index, Box(70, 0, 40, 30))


@pytest.mark.parametrize("lengths", [slice(0, -1), slice(1, None), slice(0, 0)])
def test_index_of_another_image_raises_decode_error(lengths):
    jpeg, index = stored(smooth_image(120, 100, 0), "420", 90)
    wrong = TileIndex(index.grid, index.lengths[lengths])
    with pytest.raises(DecodeError):
        decode_region(jpeg, (120, 100), wrong, Box(70, 0, 40, 30))


@settings(max_examples=60)
@given(st.data(), SIDES, SIDES, st.sampled_from(["420", "422", "444"]), st.sampled_from([2, 4, 8]))
def test_reduced_region_equals_the_crop_of_the_reduced_image(draw, height, width, subsampling, reduction):
    data, index = stored(smooth_image(height, width, 3), subsampling, 90)
    top, left = draw.draw(st.integers(0, height - 1)), draw.draw(st.integers(0, width - 1))
    box = Box(top, left, draw.draw(st.integers(1, height - top)), draw.draw(st.integers(1, width - left)))
    expected = crop(decode(data, reduction), (height, width), box, reduction)
    region = decode_region(data, (height, width), index, box, reduction)
    np.testing.assert_array_equal(region, expected)


def test_half_pixels_are_rounded_alike_everywhere():
    data, index = stored(smooth_image(41, 1, 3), "422", 90)
    expected = crop(decode(data, 8), (41, 1), Box(36, 0, 1, 1), 8)
    np.testing.assert_array_equal(decode_region(data, (41, 1), index, Box(36, 0, 1, 1), 8), expected)


@pytest.mark.soak
def test_ten_thousand_regions_equal_the_crops():
    rng = np.random.default_rng(11)
    for number in range(400):
        height, width = (int(side) for side in rng.integers(1, 400, 2))
        subsampling, quality = ("420", "422", "444")[number % 3], int(rng.integers(30, 101))
        pixels = smooth_image(height, width, number)
        if number % 7 == 0:
            pixels = pixels[:, :, 0].copy()
        data, index = stored(pixels, subsampling, quality)
        full = decode(data)
        for _ in range(25):
            top, left = int(rng.integers(0, height)), int(rng.integers(0, width))
            box = Box(
                top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))
            )
            region = decode_region(data, (height, width), index, box)
            expected = box.of(full)
            np.testing.assert_array_equal(region, expected)
