"""ColorJitter, Grayscale and RandomGrayscale: parameters and pixels."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import (
    KINDS,
    assert_same_distribution,
    drawn,
    picture,
    to_array,
    to_tensor,
)
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")

JITTERS = {
    "all": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
    "ranges": {
        "brightness": (0.5, 0.9),
        "contrast": (1.1, 1.6),
        "saturation": [0.0, 2.0],
        "hue": (-0.5, -0.2),
    },
    "one": {"contrast": 0.8},
    "wide": {"brightness": 1.7, "hue": 0.5},
    "none": {"brightness": 0, "hue": 0},
}


def torchvisions(row, chosen):
    """Return a row of parameters in the form of torchvision's ColorJitter."""
    names = ("brightness", "contrast", "saturation", "hue")
    factors = {
        f"{name}_factor": None if getattr(chosen, name) is None else value
        for name, value in zip(names, row[4:], strict=True)
    }
    return {"fn_idx": torch.tensor(row[:4]).long(), **factors}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", JITTERS.values(), ids=JITTERS)
def test_jittered_pixels_match_torchvision(options, kind):
    ours, theirs = T.ColorJitter(**options), v2.ColorJitter(**options)
    pixels = picture((47, 62), kind)
    for row in drawn(ours, (47, 62), 8).tolist():
        expected = to_array(theirs.transform(to_tensor(pixels), torchvisions(row, theirs)))
        assert_close(ours.apply(pixels, row), expected, "colour jitter")


@pytest.mark.parametrize("options", JITTERS.values(), ids=JITTERS)
def test_jitter_has_the_same_ranges_as_torchvision(options):
    ours, theirs = T.ColorJitter(**options), v2.ColorJitter(**options)
    for name in ("brightness", "contrast", "saturation", "hue"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_jitter_draws_uniform_amounts():
    ours, theirs = T.ColorJitter(**JITTERS["all"]), v2.ColorJitter(**JITTERS["all"])
    torch.manual_seed(0)
    expected = [theirs.make_params([]) for _ in range(3000)]
    rows = drawn(ours, (8, 8))
    for column, name in enumerate(("brightness", "contrast", "saturation", "hue"), 4):
        assert_same_distribution(rows[:, column], [params[f"{name}_factor"] for params in expected])


def test_jitter_draws_every_order_equally_often():
    orders, counts = np.unique(drawn(T.ColorJitter(0.1), (8, 8))[:, :4], axis=0, return_counts=True)
    assert len(orders) == 24
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(4), (24, 1)))
    # 833 each, with a deviation of 28; five times that in any of them happens once in 100,000 runs.
    assert np.abs(counts - 20_000 / 24).max() < 145


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brightness": -0.1}, "brightness must be .* got -0.1"),
        ({"contrast": (0.8, 0.2)}, "contrast must be .* got \\(0.8, 0.2\\)"),
        ({"saturation": "much"}, "saturation must be .* got 'much'"),
        ({"saturation": (1, 2, 3)}, "saturation must be .* got \\(1, 2, 3\\)"),
        ({"hue": 0.6}, "hue must be .* from 0 to 0.5.* got 0.6"),
        ({"hue": (-0.6, 0.1)}, "hue must be .* got \\(-0.6, 0.1\\)"),
    ],
)
def test_jitter_parameters_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        T.ColorJitter(**options)
    with pytest.raises((ValueError, TypeError)):
        v2.ColorJitter(**options)


@pytest.mark.parametrize("kind", ["photo", "noise", "grey", "one"])
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_pixels_match_torchvision(kind, channels):
    pixels = picture((40, 60), kind)
    expected = to_array(v2.Grayscale(channels)(to_tensor(pixels)))
    ours = T.Grayscale(channels)
    assert_close(ours.apply(pixels, ()), expected, "grey")
    assert ours.channels_after(pixels.shape[2]) == channels


@pytest.mark.parametrize("kind", ["photo", "one"])
def test_random_grayscale_keeps_the_channels(kind):
    pixels = picture((40, 60), kind)
    expected = to_array(v2.RandomGrayscale(p=1)(to_tensor(pixels)))
    assert_close(T.RandomGrayscale(p=1).apply(pixels, [1.0]), expected, "grey")
    assert T.RandomGrayscale(p=1).apply(pixels, [0.0]) is pixels


@pytest.mark.parametrize("p", [0.0, 0.1, 0.7, 1.0])
def test_random_grayscale_has_the_given_probability(p):
    share = drawn(T.RandomGrayscale(p), (4, 4)).mean()
    assert abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 20_000)


@pytest.mark.parametrize("channels", [0, 2, 4, "3"])
def test_grayscale_checks_the_number_of_channels(channels):
    with pytest.raises(OptionError, match=f"num_output_channels must be 1 or 3, got {channels!r}"):
        T.Grayscale(channels)
