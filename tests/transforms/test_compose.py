"""Compose and RandomApply."""

import numpy as np
import pytest

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import drawn, keys, picture

CROP = T.RandomCrop(8)
FLIP = T.RandomHorizontalFlip(1.0)


def test_transforms_run_in_order():
    pixels = picture((6, 10), "noise")
    compose = T.Compose([T.Pad(2), T.CenterCrop((10, 4)), lambda image: image[::-1]])
    np.testing.assert_array_equal(compose(pixels), T.CenterCrop((10, 4))(T.Pad(2)(pixels))[::-1])


def test_repr_of_compose_lists_its_transforms():
    assert repr(T.Compose([T.Pad(2), T.RandomGrayscale()])) == (
        "Compose([Pad(padding=2, fill=0, padding_mode='constant'), RandomGrayscale(p=0.1)])"
    )


@pytest.mark.parametrize("transforms", [3, [T.Pad(1), 3], [None]])
def test_compose_refuses_objects_that_are_not_callable(transforms):
    with pytest.raises(OptionError, match="callable"):
        T.Compose(transforms)


def test_random_apply_applies_all_or_none():
    pixels = picture((20, 20), "noise")
    transform = T.RandomApply([CROP, T.Compose([FLIP])], p=0.4)
    rows = drawn(transform, (20, 20))
    assert abs(rows[:, 0].mean() - 0.4) < 5 * np.sqrt(0.24 / 20_000)
    sizes = transform.sizes_after(np.full((20_000, 2), 20), rows)
    for row, size in zip(rows[:30].tolist(), sizes.tolist(), strict=False):
        expected = FLIP.apply(CROP.apply(pixels, row[1:5]), row[5:]) if row[0] else pixels
        result = transform.apply(pixels, row)
        np.testing.assert_array_equal(result, expected)
        assert list(result.shape[:2]) == size


def test_nested_transforms_draw_independently():
    rows = T.RandomApply([T.RandomCrop(20), CROP], p=1.0).draw(keys(2000), np.full((2000, 2), 60))
    tops, lefts = rows[:, [1, 5]], rows[:, [2, 6]]
    for columns in (tops, lefts, rows[:, [1, 6]]):
        # Correlations of independent columns are within 5 / sqrt(2000).
        assert abs(np.corrcoef(columns.T)[0, 1]) < 0.12


def test_random_apply_keeps_the_number_of_channels():
    assert T.RandomApply([T.Grayscale(3)]).channels_after(3) == 3
    with pytest.raises(OptionError, match="RandomApply must keep the 3 channels of an image, got 1"):
        T.RandomApply([T.Grayscale(1)]).channels_after(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transforms": [CROP], "p": 2}, "p must be a probability"),
        ({"transforms": [abs]}, "RandomApply takes fastload's image transforms, got <built-in"),
        ({"transforms": 7}, "transforms must be a list of callables, got 7"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        T.RandomApply(**options)
