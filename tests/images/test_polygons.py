"""Masks of polygons are those of pycocotools, and polygons around masks are drawn as the masks."""

import hashlib
import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.images.polygons import drawn, outlines

SIZE = 60, 80


def square(left, top, right, bottom):
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float64)


def mask_of(rings, size=SIZE):
    (patch,) = drawn([rings], size)
    mask = np.zeros(size, np.uint8)
    patch.view(mask)[:] = patch.pixels
    return mask


# The pixels that pycocotools 2.0.11 draws.
PIXELS = {
    "4 x 4": ([square(10, 10, 14, 14)], 16),
    "10 x 10": ([square(10, 10, 20, 20)], 100),
    "one wide": ([square(10, 10, 11, 40)], 30),
    "half a pixel wide, over a middle": ([square(10.2, 10, 10.7, 40)], 30),
    "overlapping": ([square(10, 10, 30, 30), square(20, 20, 40, 40)], 700),
    "one within the other": ([square(10, 10, 30, 30), square(15, 15, 20, 20)], 400),
    "crossing itself": ([np.array([(10, 10), (30, 30), (30, 10), (10, 30)], np.float64)], 200),
    "partly outside": ([square(-10, -5, 5, 7), square(75, 50, 95, 70)], 85),
    "outside": ([square(-10, -10, -2, -2), square(100, 100, 120, 110)], 0),
    "no polygons": ([], 0),
    "no points": ([np.zeros((0, 2))], 0),
    "one point three times": ([np.full((3, 2), 12.5)], 0),
}


@pytest.mark.parametrize("name", PIXELS)
def test_a_polygon_has_the_pixels_that_pycocotools_draws(name):
    rings, pixels = PIXELS[name]
    assert mask_of(rings).sum() == pixels


def polygons(seed, kind):
    """Return polygons of an object: any numbers, decimals, whole numbers, narrow ones."""
    rng = np.random.default_rng(seed)
    rings = []
    for _ in range(rng.integers(1, 4)):
        points = rng.uniform(-30, 110, (rng.integers(3, 12), 2))
        if kind == "narrow":
            points[:, 0] = points[:, 0] / 100 + 30
        rings.append(points.round({"decimals": 1, "whole": 0}.get(kind, 12)))
    return rings


KINDS = ("any", "decimals", "whole", "narrow")


def test_random_polygons_are_those_that_pycocotools_drew():
    digest = hashlib.sha256()
    for seed in range(40):
        for kind in KINDS:
            digest.update(mask_of(polygons(seed, kind)).tobytes())
    assert digest.hexdigest() == "8d33e087de6852d5a5bbc0a6ec8fa1c7b93ea6cb085c135668541f6d26226f33"


@pytest.mark.frameworks("pycocotools")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS))
def test_polygons_are_drawn_as_by_pycocotools(seed, kind):
    reference = importlib.import_module("pycocotools.mask")
    objects = [polygons(seed + at, kind) for at in range(3)]
    for rings, patch in zip(objects, drawn(objects, SIZE), strict=True):
        mask = np.zeros(SIZE, np.uint8)
        patch.view(mask)[:] = patch.pixels
        runs = reference.frPyObjects([ring.reshape(-1).tolist() for ring in rings], *SIZE)
        assert np.array_equal(mask, reference.decode(reference.merge(runs)))


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 1])
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (40, 50)])
def test_outlines_of_a_mask_are_drawn_as_the_mask(share, size):
    for seed in range(5):
        mask = (np.random.default_rng(seed).random(size) < share).astype(np.uint8)
        assert np.array_equal(mask_of(outlines(mask), size), mask)


def test_outlines_of_rings_within_rings_are_the_mask():
    mask = np.zeros(SIZE, np.uint8)
    for depth in range(0, 28, 2):
        mask[depth : 60 - depth, depth : 80 - depth] = depth % 4 == 0
    rings = outlines(mask)
    assert len(rings) == 7
    assert np.array_equal(mask_of(rings), mask)
