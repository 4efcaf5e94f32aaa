"""RandomErasing: rectangles, colours and noise."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import assert_same_distribution, drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")

DTYPES = [np.uint8, np.float32, np.float16, np.int16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("value", "kind"), [(0, "photo"), (7.9, "one"), ((1, 200, 30), "photo"), ([5], "one")]
)
def test_erased_pixels_match_torchvision(dtype, value, kind):
    transform = T.RandomErasing(1.0, value=value)
    pixels = picture((37, 52), kind).astype(dtype)
    colour = torch.tensor(value if isinstance(value, (tuple, list)) else [value])[:, None, None]
    for row in drawn(transform, (37, 52), 10).tolist():
        expected = v2.functional.erase(to_tensor(pixels), *map(int, row[:4]), colour)
        assert_close(transform.apply(pixels, row), to_array(expected), "erase")


@pytest.mark.parametrize("size", [(37, 52), (6, 90), (90, 3), (2, 2)])
def test_rectangles_are_drawn_like_torchvision(size):
    options = {"scale": (0.02, 0.4), "ratio": (0.3, 3.3)}
    theirs = v2.RandomErasing(**options)
    torch.manual_seed(0)
    expected = [theirs.make_params([torch.empty(3, *size)]) for _ in range(3000)]
    rows = drawn(T.RandomErasing(1.0, **options), size)
    for column, name in enumerate("ijhw"):
        # Where ten attempts fail, torchvision's rectangle is the image, which it leaves alone.
        wanted = [0 if params["v"] is None else params[name] for params in expected]
        assert_same_distribution(rows[:, column], wanted)


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_erasing_has_the_given_probability(p):
    share = (drawn(T.RandomErasing(p, scale=(0.1, 0.2)), (50, 50))[:, 2] > 0).mean()
    assert abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 20_000)


def test_noise_follows_from_the_parameters():
    transform = T.RandomErasing(1.0, value="random", scale=(0.3, 0.4))
    pixels = picture((60, 80)).astype(np.float32)
    first, second = drawn(transform, (60, 80), 2).tolist()
    np.testing.assert_array_equal(transform.apply(pixels, first), transform.apply(pixels, first))
    assert not np.array_equal(
        transform.apply(pixels, first), transform.apply(pixels, [*first[:4], second[4]])
    )


def test_noise_has_mean_0_and_deviation_1():
    transform = T.RandomErasing(1.0, value="random", scale=(0.5, 0.5), ratio=(1, 1))
    [row] = drawn(transform, (200, 200), 1).tolist()
    erased = transform.apply(np.full((200, 200, 3), 1000, np.float32), row)
    noise = erased[erased < 500]
    assert noise.size == 141 * 141 * 3
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02


def test_noise_is_converted_to_bytes_like_torch():
    transform = T.RandomErasing(1.0, value="random", scale=(0.5, 0.5))
    [row] = drawn(transform, (80, 80), 1).tolist()
    noise = transform.apply(np.full((80, 80, 3), 1000, np.float32), row)
    bytes_erased = transform.apply(np.full((80, 80, 3), 100, np.uint8), row)
    is_noise = noise < 500
    np.testing.assert_array_equal(bytes_erased[is_noise], torch.from_numpy(noise[is_noise]).to(torch.uint8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 1.5}, "p must be a probability.* got 1.5"),
        ({"scale": (0.5, 0.1)}, "scale must be .* got \\(0.5, 0.1\\)"),
        ({"scale": (0.5, 1.1)}, "scale must be .* got \\(0.5, 1.1\\)"),
        ({"scale": 0.5}, "scale must be two numbers from 0 to 1, .* got 0.5"),
        ({"ratio": (0, 1)}, "ratio must be .*above 0.* got \\(0, 1\\)"),
        ({"value": "noise"}, "value must be .* got 'noise'"),
        ({"value": None}, "value must be .* got None"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        T.RandomErasing(**options)


def test_the_number_of_channels_of_a_colour_is_checked():
    with pytest.raises(OptionError, match="one for each of 3 channels, got \\(1, 2\\)"):
        T.RandomErasing(1.0, value=(1, 2))(picture((40, 40)))
