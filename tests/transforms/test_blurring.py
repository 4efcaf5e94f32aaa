"""GaussianBlur, compared with torchvision's function for uint8 tensors."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import assert_same_distribution, drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")


@pytest.mark.parametrize("kind", ["photo", "noise", "one"])
@pytest.mark.parametrize("kernel_size", [1, 3, (3, 7), (9, 1), 13])
@pytest.mark.parametrize("sigma", [0.1, 0.4, 1.0, 2.0, 9.0])
def test_blurred_pixels_match_torchvision(kind, kernel_size, sigma):
    transform = T.GaussianBlur(kernel_size)
    for seed, size in enumerate([(50, 61), (7, 30), (31, 8)]):
        pixels = picture(size, kind, seed)
        expected = v2.functional.gaussian_blur(to_tensor(pixels), list(transform.kernel_size), [sigma, sigma])
        assert_close(transform.apply(pixels, [sigma]), to_array(expected), "blur", spare=1)


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (5, 2)])
def test_images_smaller_than_the_kernel_are_blurred_too(size):
    result = T.GaussianBlur(9).apply(np.full((*size, 3), 90, np.uint8), [2.0])
    np.testing.assert_array_equal(result, np.full((*size, 3), 90))


@pytest.mark.parametrize("sigma", [(0.1, 2.0), [0.5, 0.5], 3])
def test_deviations_are_drawn_like_torchvision(sigma):
    theirs = v2.GaussianBlur(3, sigma)
    torch.manual_seed(0)
    expected = [theirs.make_params([])["sigma"][0] for _ in range(3000)]
    assert_same_distribution(
        np.round(drawn(T.GaussianBlur(3, sigma), (9, 9))[:, 0], 5), np.round(expected, 5)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": 4}, "kernel_size must be an odd number of pixels, got 4"),
        ({"kernel_size": (3, 2)}, "kernel_size must be an odd number"),
        ({"kernel_size": 0}, "kernel_size must be a whole number"),
        ({"kernel_size": 3, "sigma": 0}, "sigma must be a number above 0.* got 0"),
        ({"kernel_size": 3, "sigma": (2, 1)}, "sigma must be .* got \\(2, 1\\)"),
        ({"kernel_size": 3, "sigma": (1, 2, 3)}, "sigma must be .* got \\(1, 2, 3\\)"),
        ({"kernel_size": 3, "sigma": "1"}, "sigma must be .* got '1'"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        T.GaussianBlur(**options)
