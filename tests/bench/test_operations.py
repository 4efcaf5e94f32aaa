"""Every way of every installed library makes about the picture that PIL makes."""

import math
import sys
import warnings

import numpy as np
import pytest

from fastload.bench import operations as do
from fastload.bench.comparing import compare_operation, ways_of
from fastload.bench.measure import as_levels, difference
from fastload.bench.operations import BY_KEY, OPERATIONS
from fastload.bench.pictures import given_values
from fastload.bench.sides import MODULES, load_side
from fastload.errors import ToolMissingError

SIZE = 64

# Levels of 255, on average, that a way may differ from PIL: what was seen on these pictures, and half as much
# again. What is not listed is equal within rounding.
ROUNDING = 0.75
LIMITS = {
    "shrink-nearest": (27, "another pixel of each block is taken, but for the exact and PIL's own ways"),
    "shrink-box": (7, "OpenCV's area is another filter where the ratio is not whole"),
    "shrink-bilinear": (7, "not antialiased, but for fastload's and torchvision's default"),
    "shrink-bicubic": (8, "not antialiased, and OpenCV's cubic is sharper"),
    "shrink-lanczos": (9, "not antialiased"),
    "enlarge-bicubic": (2, "OpenCV's cubic is sharper: a = -0.75 where PIL has -0.5"),
    "enlarge-lanczos": (2, "OpenCV's has four lobes where PIL's has three"),
    "resized-crop": (3, "not antialiased"),
    "rotate": (2, "PIL repeats the border's pixels under the edge, others blend them with black"),
    "affine": (2, "the same"),
    "hue": (1.5, "8 bits of HSV, rounded by each in its own way"),
    "jitter": (9, "rounded four times; albumentations changes the order as well"),
    "blur": (1.5, "PIL's is three box blurs"),
    "training": (3, "not antialiased"),
    "training-jitter": (4, "not antialiased, and rounded three times"),
    "evaluation": (6, "not antialiased"),
}

# torchvision's own decoder is a compiled library, which does not load beside every torch.
COMPILED = "image extension"


def sides():
    found = []
    for library in MODULES:
        try:
            found.append(load_side(library, SIZE))
        except ToolMissingError:
            continue
    return found


SIDES = sides()
WAYS = [(side, way) for side in SIDES for way in side.ways]


def results(side, way, pictures):
    operation = BY_KEY[way.operation]
    values = given_values(pictures, operation.given, SIZE)
    if operation.given in ("pixels", "small"):
        values = map(side.take, values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision's decoders warn of their end
        return [way.work(value) for value in values]


@pytest.fixture(scope="module")
def references(made):
    pil = SIDES[0]
    return {way.operation: results(pil, way, made[0]) for way in pil.ways}


def test_pil_does_every_operation():
    assert SIDES[0].library == "PIL"
    assert {way.operation for way in SIDES[0].ways} == set(BY_KEY)


def test_opencv_does_every_operation():
    assert {way.operation for way in SIDES[1].ways} == set(BY_KEY)


@pytest.mark.parametrize(
    ("side", "way"), WAYS, ids=[f"{side.library}-{way.operation}-{way.call}" for side, way in WAYS]
)
def test_way_makes_about_the_picture_that_pil_makes(side, way, made, references):
    try:
        found = results(side, way, made[0])
    except RuntimeError as error:
        if COMPILED not in str(error):
            raise
        pytest.skip("torchvision's compiled decoder does not load here")
    expected = references[way.operation]
    is_normalised = BY_KEY[way.operation].is_normalised
    shapes = [as_levels(image, is_normalised).shape for image in found]
    assert shapes == [as_levels(image, is_normalised).shape for image in expected]
    limit, _ = LIMITS.get(way.operation, (ROUNDING, ""))
    apart = difference(found, expected, is_normalised)
    assert apart.mean <= limit
    if way.operation not in LIMITS:
        assert apart.likeness == "equal"


# What each is named for: the pairs of equal quality.
EQUAL = [
    ("OpenCV", "shrink-nearest", "INTER_NEAREST_EXACT"),
    ("OpenCV", "enlarge-bilinear", "INTER_LINEAR"),
    ("fastload", "shrink-bilinear", "Resize(bilinear)"),
    ("fastload", "shrink-bicubic", "Resize(bicubic)"),
    ("fastload", "training", "antialiased"),
    ("fastload", "evaluation", "antialiased"),
]


@pytest.mark.parametrize(("library", "key", "call"), EQUAL)
def test_pairs_of_equal_quality_are_equal(library, key, call, made, references):
    [(side, way)] = [
        (side, way) for side, way in WAYS if (side.library, way.operation, way.call) == (library, key, call)
    ]
    apart = difference(results(side, way, made[0]), references[key], BY_KEY[key].is_normalised)
    assert apart.likeness == "equal"


def test_ways_of_a_library_have_different_names():
    names = [(side.library, way.operation, way.call) for side, way in WAYS]
    assert len(set(names)) == len(names)


def test_rows_come_in_the_order_of_the_sides_with_a_time_for_each_run(made):
    pictures, _ = made
    steps = []
    operation = BY_KEY["flip-horizontal"]
    found = compare_operation(operation, SIDES, pictures, SIZE, 2, lambda: steps.append(1), 0.0)
    libraries = [side.library for side, _ in ways_of(operation.key, SIDES)]
    assert [row.library for row in found.rows] == libraries
    assert all(len(row.seconds) == 2 and min(row.seconds) > 0 for row in found.rows)
    assert len(steps) == 2 * len(libraries)
    assert found.rows[0].difference.most == 0


def test_way_that_fails_is_listed_with_its_reason(made):
    from fastload.bench.sides.side import Side, Way

    broken = Side("broken", np.asarray, (Way("grey", "call", lambda pixels: 1 / 0),))
    found = compare_operation(BY_KEY["grey"], [SIDES[0], broken], made[0], SIZE, 1, lambda: None, 0.0)
    assert [row.library for row in found.rows] == ["PIL"]
    assert [(m.library, m.reason) for m in found.missing] == [("broken", "division by zero")]


@pytest.mark.parametrize(("library", "module"), [("simplejpeg", "simplejpeg"), ("PyTurboJPEG", "turbojpeg")])
def test_library_that_is_not_installed_says_so(library, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ToolMissingError, match=r"^not installed$"):
        load_side(library, SIZE)


def test_boxes_lie_within_the_picture():
    for seed in range(200):
        shape = (10 + seed % 90, 10 + seed * 7 % 190)
        box = do.draw_box(shape, seed)
        assert box.top >= 0
        assert box.left >= 0
        assert 0 < box.height <= shape[0] - box.top
        assert 0 < box.width <= shape[1] - box.left


def test_affine_matrix_keeps_the_middle_and_its_inverse_undoes_it():
    matrix = do.affine_matrix((60, 100), 30.0)
    np.testing.assert_allclose(matrix @ (50, 30, 1), (50, 30))
    there_and_back = do.inverse(matrix) @ (*(matrix @ (7, 9, 1)), 1)
    np.testing.assert_allclose(there_and_back, (7, 9))
    assert math.isclose(np.linalg.det(matrix[:, :2]), 1.0)


def test_keys_are_unique():
    assert len(BY_KEY) == len(OPERATIONS)
