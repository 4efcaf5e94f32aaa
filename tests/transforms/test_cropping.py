"""Crops and padding, compared with torchvision's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.draws import fresh_draws
from tests.transforms.samples import SIZES, assert_same_distribution, drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")
F = v2.functional

sides = st.integers(1, 40)
MODES = ["constant", "edge", "reflect", "symmetric"]


@given(sides, sides, sides, sides)
@settings(max_examples=80)
def test_center_crops_match_torchvision(height, width, crop_height, crop_width):
    pixels = picture((height, width), "noise")
    transform = T.CenterCrop((crop_height, crop_width))
    [row] = drawn(transform, (height, width), 1).tolist()
    expected = to_array(v2.CenterCrop((crop_height, crop_width))(to_tensor(pixels)))
    assert_close(transform.apply(pixels, row), expected, "crop")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [0, 3, [2], (1, 4), [1, 2, 3, 0]])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("kind", ["noise", "one"])
def test_padded_pixels_match_torchvision(mode, padding, dtype, kind):
    pixels = picture((7, 9), kind).astype(dtype)
    for fill in (0, 77.6, [3.0]):
        theirs = v2.Pad(padding, fill, mode)
        ours = T.Pad(padding, fill, mode)
        expected = to_array(theirs(to_tensor(pixels)))
        assert_close(ours(pixels), expected, "pad")
        sizes = np.array([[7, 9]])
        [after] = ours.sizes_after(sizes, ours.draw(fresh_draws(1), sizes)).tolist()
        assert tuple(after) == expected.shape[:2]


def test_padding_has_the_given_colour():
    pixels = picture((5, 6), "noise")
    expected = to_array(v2.Pad(2, (9, 99, 199.5))(to_tensor(pixels)))
    assert_close(T.Pad(2, (9, 99, 199.5))(pixels), expected, "pad")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [None, 4, (0, 3), (1, 2, 3, 4)])
@pytest.mark.parametrize("fill", [0, (9, 99, 199)])
def test_random_crops_match_torchvision_on_the_padded_image(mode, padding, fill):
    size, crop = (11, 14), (8, 10)
    transform = T.RandomCrop(crop, padding, fill=fill, padding_mode=mode)
    pixels = picture(size, "noise")
    rows = drawn(transform, size, 20)
    left, top, right, bottom = T.Pad(padding or 0).sides
    colour = [float(level) for level in fill] if mode == "constant" and fill else 0
    padded = F.pad(to_tensor(pixels), [left, top, right, bottom], colour, mode)
    batch = transform.apply_batch(np.stack([pixels] * 20), rows)
    for row, result in zip(rows.astype(int).tolist(), batch, strict=True):
        expected = to_array(F.crop(padded, row[0] + top, row[1] + left, *crop))
        assert_close(transform.apply(pixels, row), expected, "crop")
        assert_close(result, expected, "crop")


@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((30, 50), {"size": 20}),
        ((30, 50), {"size": (30, 12), "padding": (3, 1)}),
        ((30, 50), {"size": (30, 50)}),
        ((10, 50), {"size": 20, "pad_if_needed": True}),
        ((10, 5), {"size": 20, "padding": 2, "pad_if_needed": True}),
    ],
)
def test_random_crops_are_drawn_like_torchvision(size, options):
    theirs = v2.RandomCrop(**options)
    torch.manual_seed(0)
    image = torch.empty(3, *size)
    expected = [theirs.make_params([image]) for _ in range(3000)]
    rows = drawn(T.RandomCrop(**options), size)
    for column, name, side in ((0, "top", 1), (1, "left", 0)):
        places = [params[name] - params["padding"][side] for params in expected]
        assert_same_distribution(rows[:, column], places)


WIDE = {"scale": (0.5, 0.6), "ratio": (2.0, 3.0)}


# With long sides and wide crops all ten attempts often fail: the result is then the middle.
@pytest.mark.parametrize(
    ("size", "options"),
    [(size, {}) for size in [(40, 60), (200, 3), (3, 200), (1, 1), (2, 90), (7, 7)]]
    + [(size, WIDE) for size in [(40, 60), (200, 3), (7, 7)]],
)
def test_resized_crops_are_drawn_like_torchvision(size, options):
    theirs = v2.RandomResizedCrop(8, **options)
    torch.manual_seed(0)
    image = torch.empty(3, *size)
    expected = [theirs.make_params([image]) for _ in range(3000)]
    rows = drawn(T.RandomResizedCrop(8, **options), size)
    for column, name in enumerate(("top", "left", "height", "width")):
        assert_same_distribution(rows[:, column], [params[name] for params in expected])


def test_a_resized_crop_has_at_least_a_pixel():
    # torchvision's middle of this image has no height, and cannot be resized.
    assert (drawn(T.RandomResizedCrop(8, **WIDE), (1, 1)) == (0, 0, 1, 1)).all()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "resize"),
        ({"interpolation": "bicubic"}, "resize"),
        ({"interpolation": "nearest"}, "resize"),
        ({"antialias": False}, "resize, bilinear, not antialiased"),
    ],
)
@pytest.mark.parametrize("target", [16, (20, 50)])
def test_resized_crops_match_torchvision(options, name, target):
    mode = v2.InterpolationMode(options.get("interpolation", "bilinear"))
    transform = T.RandomResizedCrop(target, **options)
    for seed, size in enumerate(SIZES):
        pixels = picture(size, seed=seed)
        for row in drawn(transform, size, 4, seed).astype(int).tolist():
            expected = F.resized_crop(
                to_tensor(pixels), *row, list(transform.size), mode, options.get("antialias", True)
            )
            assert_close(transform.apply(pixels, row), to_array(expected), name)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (T.CenterCrop, {"size": 0}, "size must be a whole number of pixels.* got 0"),
        (T.CenterCrop, {"size": (1, 2, 3)}, "size must be .* got \\(1, 2, 3\\)"),
        (T.RandomCrop, {"size": 2.5}, "size must be .* got 2.5"),
        (T.RandomCrop, {"size": 5, "padding": (1, 2, 3)}, "padding must be .* got \\(1, 2, 3\\)"),
        (T.RandomCrop, {"size": 5, "padding_mode": "wrap"}, "padding_mode must be one of .* got 'wrap'"),
        (T.Pad, {"padding": -1}, "padding must be .* got -1"),
        (T.Pad, {"padding": 1, "fill": "red"}, "fill must be a number.* got 'red'"),
        (T.RandomResizedCrop, {"size": 5, "scale": (0.5, 0.1)}, "the smaller first, got \\(0.5, 0.1\\)"),
        (T.RandomResizedCrop, {"size": 5, "scale": 0.5}, "scale must be two numbers above 0, .* got 0.5"),
        (T.RandomResizedCrop, {"size": 5, "ratio": (0, 1)}, "ratio must be .*above 0.* got \\(0, 1\\)"),
        (T.RandomResizedCrop, {"size": 5, "interpolation": "cubic"}, "interpolation must be .* got 'cubic'"),
    ],
)
def test_parameters_are_checked(make, options, message):
    with pytest.raises(OptionError, match=message):
        make(**options)


def test_an_image_too_small_for_a_random_crop_is_refused():
    with pytest.raises(OptionError, match=r"RandomCrop of \(9, 9\) must fit .* one of \(10, 8\)"):
        T.RandomCrop(9, padding=1)(picture((8, 6)))


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
def test_an_image_too_small_to_mirror_is_refused(mode):
    with pytest.raises(OptionError, match=f"padding_mode '{mode}' must have enough pixels to mirror, got 5"):
        T.Pad(5, padding_mode=mode)(picture((4, 30)))
