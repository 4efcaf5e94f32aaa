"""NV12 planes against BT.601 computed in float, and round trips."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastload.contracts import Box
from fastload.errors import DecodeError
from fastload.images.encodings import Yuv420
from fastload.images.nv12 import nv12_size, nv12_to_rgb, rgb_to_nv12
from tests.images.samples import ODD_SIZES, TOLERANCES, photo, sizes

LUMA = np.array([65.481, 128.553, 24.966]) / 255
BLUE = np.array([-37.797, -74.203, 112.0]) / 255
RED = np.array([112.0, -93.786, -18.214]) / 255


def restored_from(data, height, width):
    return Yuv420().decode(data, (height, width, 3))


def padded(pixels):
    height, width = pixels.shape[:2]
    return np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def planes(data, height, width):
    height, width = height + height % 2, width + width % 2
    luma = data[: height * width].reshape(height, width)
    return luma, data[height * width :].reshape(height // 2, width // 2, 2)


@given(sizes(), st.integers(0, 99))
@settings(max_examples=40)
@example((1, 1), 0)
@example((1, 5000), 0)
@example((5000, 1), 0)
def test_planes_equal_bt601(size, seed):
    pixels = photo(*size, seed)
    luma, chroma = planes(rgb_to_nv12(pixels), *size)
    full = padded(pixels).astype(float)
    down, across = full.shape[0] // 2, full.shape[1] // 2
    means = full.reshape(down, 2, across, 2, 3).mean(axis=(1, 3))
    limit = TOLERANCES["luma against BT.601 in float"]
    assert np.abs(luma - (full @ LUMA + 16)).max() <= limit
    assert np.abs(chroma - np.stack([means @ BLUE, means @ RED], axis=2) - 128).max() <= limit


@pytest.mark.parametrize("size", [*ODD_SIZES, (3, 3), (4, 6)])
def test_any_size_round_trips(size):
    data = rgb_to_nv12(photo(*size))
    assert data.shape == (nv12_size(*size),)
    assert data.dtype == np.uint8
    restored = restored_from(data, *size)
    assert restored.shape == (*size, 3)
    assert restored.flags.c_contiguous


def test_sizes_in_bytes():
    assert nv12_size(4, 6) == 36
    assert nv12_size(1, 1) == 6
    assert nv12_size(3, 5) == 36


def test_every_grey_round_trips():
    greys = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16), 3).reshape(16, 16, 3)
    restored = restored_from(rgb_to_nv12(greys), 16, 16).astype(int)
    assert np.abs(restored - greys).max() <= TOLERANCES["grey through NV12"]


@given(st.tuples(*[st.integers(0, 255)] * 3), sizes(9))
def test_image_of_one_colour_round_trips(colour, size):
    pixels = np.full((*size, 3), colour, np.uint8)
    restored = restored_from(rgb_to_nv12(pixels), *size).astype(int)
    assert np.abs(restored - pixels).max() <= TOLERANCES["one colour through NV12"]


def test_bytes_and_read_only_memory_are_converted():
    data = rgb_to_nv12(photo(17, 33))
    restored = restored_from(data, 17, 33)
    np.testing.assert_array_equal(restored_from(data.tobytes(), 17, 33), restored)
    data.setflags(write=False)
    np.testing.assert_array_equal(restored_from(data, 17, 33), restored)


def test_view_of_a_larger_image_is_converted_like_its_copy():
    part = photo(80, 90)[11:40, 20:61]
    np.testing.assert_array_equal(rgb_to_nv12(part), rgb_to_nv12(part.copy()))


@pytest.mark.parametrize("extra", [-1, 1])
def test_planes_of_another_size_are_refused(extra):
    data = bytes(nv12_size(17, 33) + extra)
    with pytest.raises(DecodeError, match="17x33 pixels must have 918 bytes"):
        restored_from(data, 17, 33)


@settings(max_examples=100)
@given(st.data(), st.integers(1, 70), st.integers(1, 70))
def test_region_is_bit_equal_to_the_crop(data, height, width):
    planes = rgb_to_nv12(np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8))
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    box = top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))
    full = restored_from(planes, height, width)
    part = nv12_to_rgb(planes, (height, width), Box(*box))
    np.testing.assert_array_equal(part, full[top : top + box[2], left : left + box[3]])
