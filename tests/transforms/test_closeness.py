"""Largest differences from torchvision: worst cases, and images that torchvision leaves to PIL."""

import numpy as np
import pytest
from PIL import Image

import fastload.transforms as T
from fastload.transforms.colour import adjusting
from tests.transforms.samples import KINDS, WORST, drawn, picture, to_array, to_tensor
from tests.transforms.test_adjusting import FACTORS, JOBS
from tests.transforms.tolerances import TOLERANCES, assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")
F = v2.functional

# Factors with many whole products, and factors that change almost nothing.
MORE_FACTORS = [0.1, 0.2, 0.5, 0.7, 0.9, 0.9995, 1.0005, 1.1, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.6, 3.0]
MORE_TURNS = [-0.4, -1 / 3, -0.1, 0.05, 1 / 6, 0.25, 1 / 3]
SIZES = [(64, 48), (33, 75)]


def to_pil(pixels):
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def from_pil(image):
    return np.asarray(image).reshape(image.height, image.width, -1)


def amounts_of(name):
    more = {"hue": MORE_TURNS}.get(name, MORE_FACTORS if JOBS[name][2] is FACTORS else [])
    return [*JOBS[name][2], *more]


@pytest.mark.parametrize("kind", WORST)
@pytest.mark.parametrize("name", JOBS)
def test_worst_cases_are_adjusted_like_torchvision(name, kind):
    ours, theirs, _ = JOBS[name]
    for seed, size in enumerate(SIZES):
        pixels = picture(size, kind, seed)
        for amount in amounts_of(name):
            expected = to_array(theirs(to_tensor(pixels), amount))
            assert_close(ours(pixels, amount), expected, name, is_worst=True)


@pytest.mark.parametrize("kind", ["photo", "noise"])
@pytest.mark.parametrize("name", ["contrast", "saturation", "sharpness", "hue"])
def test_photos_and_noise_are_adjusted_like_torchvision(name, kind):
    ours, theirs, _ = JOBS[name]
    for seed, size in enumerate(SIZES):
        pixels = picture(size, kind, seed)
        for amount in amounts_of(name):
            assert_close(ours(pixels, amount), to_array(theirs(to_tensor(pixels), amount)), name)


@pytest.mark.parametrize("kind", [*KINDS, *WORST])
@pytest.mark.parametrize("name", JOBS)
def test_adjusted_images_are_close_to_pils(name, kind):
    ours, theirs, _ = JOBS[name]
    row = f"{name} of PIL images" if f"{name} of PIL images" in TOLERANCES else name
    pixels = picture((64, 48), kind)
    if name == "grey":
        expected = from_pil(v2.Grayscale(pixels.shape[2])(to_pil(pixels)))
        assert_close(adjusting.grey(pixels), expected, row, is_worst=kind in (*WORST, "grey", "flat"))
        return
    for amount in amounts_of(name):
        if name != "posterize" or amount:
            expected = from_pil(theirs(to_pil(pixels), amount))
            # If one channel of a grey image is a level off, all are.
            is_worst = kind in (*WORST, "grey", "flat")
            assert_close(ours(pixels, amount), expected, row, is_worst=is_worst)


@pytest.mark.parametrize("kind", ["photo", "noise", *WORST])
@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "nearest"])
def test_resized_images_equal_torchvisions_and_are_close_to_pils(filter, kind):
    mode = v2.InterpolationMode(filter)
    row = "resize of PIL images" + ("" if filter == "bilinear" else f", {filter}")
    for size, target in [
        ((64, 48), (24, 24)),
        ((90, 7), (64, 49)),
        ((33, 75), (100, 13)),
        ((64, 48), (224, 224)),
    ]:
        pixels = picture(size, kind)
        result = T.Resize(target, filter).apply(pixels, target)
        assert_close(result, to_array(F.resize(to_tensor(pixels), target, mode)), "resize")
        expected = from_pil(F.resize(to_pil(pixels), target, mode))
        assert_close(result, expected, row, is_worst=kind in WORST or size == (90, 7))


# Angles, scales and shears for which many points lie halfway between two pixels.
HALFWAY = [
    (0, 1, (45, 0)),
    (0, 0.5, (26.565051, 0)),
    (45, 1, (0, 0)),
    (45, 2, (45, 0)),
    (90, 1, (0, 0)),
    (90, 2, (0, 0)),
    (180, 0.5, (0, 45)),
    (0, 1, (np.degrees(np.arctan(0.25)), 0)),
    (0, 1, (0, np.degrees(np.arctan(0.04)))),
]


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize(("angle", "scale", "shear"), HALFWAY)
def test_points_between_two_pixels_match_torchvision(angle, scale, shear, interpolation):
    for center in (None, (0, 0), (11.5, 3)):
        for size in ((64, 48), (33, 75), (45, 61)):
            for kind in ("noise", "checkerboard"):
                pixels = picture(size, kind)
                mode = v2.InterpolationMode(interpolation)
                ours = T.RandomAffine(0, interpolation=interpolation, fill=200, center=center)
                expected = F.affine(to_tensor(pixels), angle, [0, 0], scale, shear, mode, 200, center)
                result = ours.apply(pixels, (angle, 0, 0, scale, *shear))
                assert_close(result, to_array(expected), f"warp, {interpolation}", is_worst=True)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_warped_images_are_close_to_pils(interpolation):
    mode, row = v2.InterpolationMode(interpolation), f"warp of PIL images, {interpolation}"
    transform = T.RandomAffine(180, (0.3, 0.2), (0.5, 2), (-30, 30, -20, 20), interpolation)
    for seed, kind in enumerate(["photo", "noise"]):
        pixels = picture((64, 64), kind, seed)
        for drawn_row in drawn(transform, (64, 64), 8, seed).tolist():
            angle, x, y, scale, *shear = drawn_row
            expected = F.affine(to_pil(pixels), angle, [x, y], scale, shear, mode, 0)
            assert_close(transform.apply(pixels, drawn_row), from_pil(expected), row)
