"""Rotations and affine maps, compared with torchvision's functions for uint8 tensors."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import SIZES, assert_same_distribution, drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")
F = v2.functional

FILLS = [0, None, 200, (10, 100, 250)]
CENTERS = [None, (0, 0), (11.5, 3)]
FILTERS = ["nearest", "bilinear"]


def torchvisions_fill(fill):
    return [float(level) for level in fill] if isinstance(fill, tuple) else fill


def few(pixels, interpolation):
    """Return how many more values may differ than the table allows: a corner, or a row along the edge."""
    return 3 if interpolation == "nearest" else 3 * max(pixels.shape[:2])


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("interpolation", FILTERS)
def test_affine_pixels_match_torchvision(interpolation, center, fill):
    transform = T.RandomAffine(180, (0.3, 0.2), (0.5, 2), (-30, 30, -20, 20), interpolation, fill, center)
    for seed, size in enumerate(SIZES):
        pixels = picture(size, "noise", seed)
        for row in drawn(transform, size, 4, seed).tolist():
            angle, x, y, scale, *shear = row
            expected = F.affine(
                to_tensor(pixels),
                angle,
                [x, y],
                scale,
                shear,
                v2.InterpolationMode(interpolation),
                torchvisions_fill(fill),
                center,
            )
            spare = few(pixels, interpolation)
            assert_close(transform.apply(pixels, row), to_array(expected), f"warp, {interpolation}", spare)


@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("fill", [0, (10, 100, 250)])
def test_rotated_pixels_match_torchvision(interpolation, center, expand, fill):
    transform = T.RandomRotation(180, interpolation, expand, center, fill)
    for seed, size in enumerate(SIZES):
        pixels = picture(size, "noise", seed)
        for row in drawn(transform, size, 4, seed).tolist():
            expected = F.rotate(
                to_tensor(pixels),
                row[0],
                v2.InterpolationMode(interpolation),
                expand,
                center,
                torchvisions_fill(fill),
            )
            result = transform.apply(pixels, row)
            spare = few(result, interpolation)
            assert_close(result, to_array(expected), f"warp, {interpolation}", spare)
            [after] = transform.sizes_after(np.array([size]), np.array([row])).tolist()
            assert tuple(after) == result.shape[:2]


@pytest.mark.parametrize("angle", [-360, -180, -90, 0, 90, 180, 270, 360, 450])
@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize("size", [(12, 12), (13, 13), (12, 30), (7, 3), (1, 1)])
def test_quarter_turns_match_torchvision(angle, expand, size):
    # For other sizes, quarter turns that keep the size fall between two pixels, where either is right.
    transform = T.RandomRotation((angle, angle), expand=expand)
    pixels = picture(size, "noise")
    [row] = drawn(transform, size, 1).tolist()
    expected = to_array(F.rotate(to_tensor(pixels), float(angle), expand=expand, fill=0.0))
    np.testing.assert_array_equal(transform.apply(pixels, row), expected)


@pytest.mark.parametrize("interpolation", FILTERS)
def test_one_channel_equals_one_of_three(interpolation):
    pixels = picture((30, 41), "noise")
    for transform in (T.RandomRotation(90, interpolation, True), T.RandomAffine(90, (0.2, 0.2), fill=9)):
        [row] = drawn(transform, (30, 41), 1).tolist()
        result = transform.apply(pixels[:, :, 1:2], row)
        np.testing.assert_array_equal(result[:, :, 0], transform.apply(pixels, row)[:, :, 1])


def test_rotations_are_drawn_like_torchvision():
    theirs = v2.RandomRotation((-20, 75))
    torch.manual_seed(0)
    expected = [theirs.make_params([])["angle"] for _ in range(3000)]
    assert_same_distribution(drawn(T.RandomRotation((-20, 75)), (9, 9))[:, 0], expected)


@pytest.mark.parametrize(
    "options",
    [
        {"degrees": 30},
        {"degrees": (5, 10), "translate": (0.1, 0.4), "scale": (0.5, 1.5), "shear": 20},
        {"degrees": 0, "shear": (-5, 15)},
        {"degrees": 0, "translate": (0.0, 1.0), "shear": (-5, 5, 10, 30)},
    ],
    ids=["degrees", "all", "shear", "shears"],
)
def test_affine_maps_are_drawn_like_torchvision(options):
    theirs = v2.RandomAffine(**options)
    torch.manual_seed(0)
    image = torch.empty(3, 40, 70)
    expected = [theirs.make_params([image]) for _ in range(3000)]
    columns = [
        [value for part in params.values() for value in (part if isinstance(part, tuple) else (part,))]
        for params in expected
    ]
    rows = drawn(T.RandomAffine(**options), (40, 70))
    for ours, other in zip(rows.T, np.array(columns).T, strict=True):
        assert_same_distribution(np.round(ours, 4), np.round(other, 4))
    np.testing.assert_array_equal(rows[:, 1:3], np.rint(rows[:, 1:3]))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (T.RandomRotation, {"degrees": -5}, "degrees must be .* got -5"),
        (T.RandomRotation, {"degrees": (1, 2, 3)}, "degrees must be .* got \\(1, 2, 3\\)"),
        (
            T.RandomRotation,
            {"degrees": 5, "interpolation": "bicubic"},
            "must be nearest or bilinear.* 'bicubic'",
        ),
        (
            T.RandomRotation,
            {"degrees": 5, "interpolation": "lanczos"},
            "interpolation must be .* got 'lanczos'",
        ),
        (T.RandomRotation, {"degrees": 5, "center": 3}, "center must be two numbers, got 3"),
        (T.RandomRotation, {"degrees": 5, "fill": "red"}, "fill must be a number.* got 'red'"),
        (
            T.RandomAffine,
            {"degrees": 5, "translate": (0.1, 1.2)},
            "translate must be two shares from 0 to 1, got \\(0.1, 1.2\\)",
        ),
        (
            T.RandomAffine,
            {"degrees": 5, "translate": 0.1},
            "translate must be two shares from 0 to 1, got 0.1",
        ),
        (
            T.RandomAffine,
            {"degrees": 5, "scale": (0, 1)},
            "scale must be two factors above 0, got \\(0, 1\\)",
        ),
        (T.RandomAffine, {"degrees": 5, "shear": -1}, "shear must be .* got -1"),
        (T.RandomAffine, {"degrees": 5, "shear": (1, 2, 3)}, "shear must be .* got \\(1, 2, 3\\)"),
    ],
)
def test_parameters_are_checked(make, options, message):
    with pytest.raises(OptionError, match=message):
        make(**options)


def test_the_number_of_channels_of_a_colour_is_checked():
    transform = T.RandomRotation((10, 10), fill=(1, 2))
    with pytest.raises(OptionError, match="fill must be one number, or one for each of 3 channels"):
        transform(picture((9, 9)))


def test_torchvisions_interpolation_constants_are_accepted():
    pixels = picture((20, 30), "noise")
    [row] = drawn(T.RandomRotation(45), (20, 30), 1).tolist()
    expected = T.RandomRotation(45, "bilinear").apply(pixels, row)
    for name in (v2.InterpolationMode.BILINEAR, 2):
        np.testing.assert_array_equal(T.RandomRotation(45, name).apply(pixels, row), expected)


def test_results_of_several_sizes_are_refused_in_a_batch():
    with pytest.raises(OptionError, match="RandomRotation must give a batch's images one size, got"):
        T.RandomRotation(90, expand=True)(np.stack([picture((30, 41))] * 4))
