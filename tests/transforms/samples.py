"""Test images, conversions, draws and a test of distributions, shared by the tests of transforms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastload.transforms.draws import Draws
from tests.images.samples import photo

# Heights and widths: usual, odd, tall, wide, tiny.
SIZES = [(64, 48), (33, 75), (90, 7), (5, 81), (2, 3), (1, 9), (1, 1)]


def picture(size: tuple[int, int], kind: str = "photo", seed: int = 0) -> np.ndarray:
    """Return a test image.

    Args:
        size: (height, width).
        kind: A `photo`, `noise`, `grey` in three channels, `flat`, `one` channel of a photo; or of `WORST`.
        seed: Seed of the random parts.
    """
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    if kind == "checkerboard":
        return np.repeat(((rows + columns) % 2 * 255).astype(np.uint8)[:, :, None], 3, axis=2)
    if kind == "stripes":
        return np.repeat((columns % 2 * 255).astype(np.uint8)[:, :, None], 3, axis=2)
    if kind == "ramp":
        ramps = columns * 255 // size[1], rows * 255 // size[0], (rows + columns) * 4 - 50
        return np.clip(np.stack(ramps, axis=2), 0, 255).astype(np.uint8)
    if kind == "black and white":
        return (rng.integers(0, 2, (*size, 3)) * 255).astype(np.uint8)
    if kind == "grey noise":
        return np.repeat(rng.integers(0, 256, (*size, 1), np.uint8), 3, axis=2)
    if kind == "dark":
        return rng.integers(0, 16, (*size, 3), np.uint8)
    if kind == "one colour":
        return np.full((*size, 3), rng.integers(0, 256, 3), np.uint8)
    if kind == "one grey":
        return np.full((*size, 3), rng.integers(0, 256), np.uint8)
    if kind == "noise":
        return rng.integers(0, 256, (*size, 3), np.uint8)
    if kind == "flat":
        return np.full((*size, 3), (3, 77, 255), np.uint8)
    pixels = photo(*size, seed, noise=20)
    if kind == "grey":
        return np.repeat(pixels[:, :, :1], 3, axis=2)
    return np.ascontiguousarray(pixels[:, :, :1]) if kind == "one" else pixels


KINDS = ["photo", "noise", "grey", "flat", "one"]

# The worst cases for rounding and overshooting.
WORST = [
    "checkerboard",
    "stripes",
    "ramp",
    "black and white",
    "grey noise",
    "dark",
    "one colour",
    "one grey",
]


def to_tensor(pixels: np.ndarray) -> torch.Tensor:
    """Return an array (height, width, channels) as a contiguous tensor (channels, height, width)."""
    return torch.from_numpy(np.moveaxis(pixels, -1, -3).copy())


def to_array(image: torch.Tensor) -> np.ndarray:
    """Return a tensor (channels, height, width) as an array (height, width, channels)."""
    return np.moveaxis(image.numpy(), -3, -1)


def keys(count: int, seed: int = 0) -> Draws:
    """Return random numbers for `count` images."""
    return Draws(np.random.default_rng(seed).integers(0, 1 << 63, count, np.uint64), count)


def drawn(transform: Any, size: tuple[int, int], count: int = 20_000, seed: int = 0) -> np.ndarray:
    """Return parameters for `count` images of one size."""
    return transform.draw(keys(count, seed), np.tile(np.array([size], np.int64), (count, 1)))


def assert_same_distribution(ours: Sequence[float], theirs: Sequence[float]) -> None:
    """Assert that two samples have the same distribution, by the Kolmogorov-Smirnov distance.

    Samples of the same distribution exceed the bound once in a million times.
    """
    first, second = np.sort(np.asarray(ours, float)), np.sort(np.asarray(theirs, float))
    places = np.concatenate((first, second))
    shares = [np.searchsorted(sample, places, side="right") / len(sample) for sample in (first, second)]
    distance = np.abs(shares[0] - shares[1]).max()
    bound = np.sqrt(np.log(2e6) / 2) * np.sqrt(1 / len(first) + 1 / len(second))
    assert distance <= bound, f"{distance:.4f} apart, at most {bound:.4f} expected"
