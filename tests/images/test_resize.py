"""Resizing: sizes against torchvision, pixels against PIL."""

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload.errors import OptionError
from fastload.images.resize import Resampling, SizeLimit, resize
from tests.images.samples import ODD_SIZES, TOLERANCES, photo, sizes

LIMIT = TOLERANCES["antialiased resize against PIL"]


def pil_resized(pixels, height, width):
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    resized = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    return resized.reshape(height, width, pixels.shape[2]).astype(int)


@given(sizes(), sizes(), st.sampled_from([1, 3]), st.integers(0, 99))
@settings(max_examples=60)
@example((1, 5000), (1, 100), 3, 0)
@example((1, 5000), (64, 64), 1, 0)
@example((5000, 1), (3, 3), 3, 0)
@example((1, 1), (50, 70), 3, 0)
def test_antialiased_equals_pil_within_a_level(size, target, channels, seed):
    pixels = np.ascontiguousarray(photo(*size, seed, noise=60)[:, :, :channels])
    resized = resize(pixels, *target)
    assert resized.shape == (*target, channels)
    assert resized.dtype == np.uint8
    assert resized.flags.c_contiguous
    assert np.abs(resized - pil_resized(pixels, *target)).max() <= LIMIT


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", ODD_SIZES)
def test_bilinear_without_antialias_is_opencvs_linear(size, channels):
    pixels = np.ascontiguousarray(photo(*size)[:, :, :channels])
    resized = resize(pixels, 31, 17, Resampling(antialias=False))
    expected = cv2.resize(pixels, (17, 31), interpolation=cv2.INTER_LINEAR)
    assert resized.shape == (31, 17, channels)
    np.testing.assert_array_equal(resized, expected.reshape(31, 17, channels))


@pytest.mark.parametrize("antialias", [True, False])
def test_view_of_a_larger_image_is_resized_like_its_copy(antialias):
    part = photo(80, 90)[11:40, 20:61]
    resized = resize(part, 20, 20, Resampling(antialias=antialias))
    np.testing.assert_array_equal(resized, resize(part.copy(), 20, 20, Resampling(antialias=antialias)))


@pytest.mark.parametrize("antialias", [True, False])
def test_read_only_memory_is_resized(antialias):
    pixels = photo(40, 50)
    expected, before = resize(pixels, 20, 20, Resampling(antialias=antialias)), pixels.copy()
    pixels.setflags(write=False)
    np.testing.assert_array_equal(resize(pixels, 20, 20, Resampling(antialias=antialias)), expected)
    np.testing.assert_array_equal(pixels, before)


@given(sizes(5000), st.integers(1, 6000))
@example((1, 5000), 100)
@example((5000, 3), 2)
def test_shorter_side_is_rounded_as_torchvision_does(size, limit):
    functional = pytest.importorskip("torchvision.transforms.functional")
    expected = functional._compute_resized_output_size(size, [limit])
    target = SizeLimit(shorter_side=limit).target(*size)
    assert target == (tuple(expected) if min(size) > limit else None)


@given(sizes(5000), st.integers(1, 6000))
@example((1, 5000), 100)
def test_max_side_only_shrinks_and_keeps_proportions(size, limit):
    target = SizeLimit(max_side=limit).target(*size)
    if max(size) <= limit:
        assert target is None
        return
    assert max(target) == limit
    scale = limit / max(size)
    for side, expected in zip(size, target, strict=True):
        assert side * scale - 1 < expected <= max(1, side * scale + 1e-9)


def test_size_limit_is_exact():
    assert SizeLimit(size=(64, 48)).target(10, 2000) == (64, 48)
    assert SizeLimit(size=(64, 48)).target(48, 64) == (64, 48)
    assert SizeLimit(size=(64, 48)).target(64, 48) is None


@pytest.mark.parametrize("limits", [{}, {"max_side": 5, "shorter_side": 4}, {"max_side": 5, "size": (1, 1)}])
def test_exactly_one_limit_is_required(limits):
    with pytest.raises(OptionError, match="must be one of"):
        SizeLimit(**limits)


@pytest.mark.parametrize("limits", [{"max_side": 0}, {"shorter_side": -1}, {"size": (5, 0)}])
def test_limit_of_less_than_a_pixel_is_refused(limits):
    with pytest.raises(OptionError, match="whole number of pixels"):
        SizeLimit(**limits)
