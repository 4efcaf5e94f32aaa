"""Resize, compared with torchvision's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import KINDS, SIZES, drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")

TARGETS = [
    {"size": 24},
    {"size": [13]},
    {"size": (10, 31)},
    {"size": 20, "max_size": 33},
    {"size": None, "max_size": 19},
]
FILTERS = {
    "bilinear": ({}, "resize"),
    "bicubic": ({"interpolation": "bicubic"}, "resize"),
    "nearest": ({"interpolation": "nearest"}, "resize"),
    "nearest-exact": ({"interpolation": "nearest-exact"}, "resize"),
    "without antialias": ({"antialias": False}, "resize, bilinear, not antialiased"),
    "bicubic without antialias": (
        {"antialias": False, "interpolation": "bicubic"},
        "resize",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize(("options", "name"), FILTERS.values(), ids=FILTERS)
def test_resized_pixels_match_torchvision(options, name, target, kind):
    theirs = dict(options)
    if "interpolation" in theirs:
        theirs["interpolation"] = v2.InterpolationMode(theirs["interpolation"])
    ours = T.Resize(**target, **options)
    for size in SIZES:
        pixels = picture(size, kind)
        [row] = drawn(ours, size, 1).tolist()
        expected = to_array(v2.Resize(**target, **theirs)(to_tensor(pixels)))
        assert_close(ours.apply(pixels, row), expected, name, spare=6)


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 600), st.integers(0, 600))
@settings(max_examples=200)
def test_sizes_match_torchvision(height, width, size, more):
    compute = v2.functional._geometry._compute_resized_output_size
    for wanted, max_size in ((size, None), (size, size + more + 1), (None, size)):
        [row] = drawn(T.Resize(wanted, max_size=max_size), (height, width), 1).tolist()
        expected = compute((height, width), None if wanted is None else [wanted], max_size=max_size)
        assert row == [max(1, side) for side in expected]


@pytest.mark.parametrize("kind", ["photo", "one"])
def test_resized_pil_images_are_close_to_pils(kind):
    pixels = picture((60, 75), kind)
    image = Image.fromarray(pixels[:, :, 0] if kind == "one" else pixels)
    ours, theirs = T.Resize(31)(image), v2.Resize(31)(image)
    assert ours.mode == theirs.mode
    assert_close(np.asarray(ours), np.asarray(theirs), "resize of PIL images")


def test_an_image_of_the_right_size_is_not_resampled():
    pixels = picture((20, 30))
    assert T.Resize((20, 30)).apply(pixels, [20.0, 30.0]) is pixels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": None}, "must have a size or a max_size"),
        ({"size": 0}, "size must be .* got 0"),
        ({"size": "large"}, "size must be .* got 'large'"),
        ({"size": None, "max_size": 2.5}, "max_size must be a whole number of at least 1, got 2.5"),
        ({"size": 20, "max_size": 20}, "max_size must be above size.* got 20 and 20"),
        ({"size": (20, 30), "max_size": 50}, "max_size must be .* got 50 and \\(20, 30\\)"),
        ({"size": 20, "interpolation": "box"}, "interpolation must be .* got 'box'"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        T.Resize(**options)
