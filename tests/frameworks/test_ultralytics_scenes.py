"""Images made of several others and their objects, beside those of Ultralytics' own transforms."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastload.transforms as T
from fastload.images.canvas import Canvas, Placement
from fastload.images.deferred import DeferredImage
from fastload.images.hsv import HsvChange
from fastload.transforms.annotations import Annotations
from fastload.transforms.mixing.mosaics import loaded_size, mosaic_of_4, perspective_matrix
from fastload.transforms.mixing.moved_objects import on_canvas, resampled, through_matrix
from fastload.transforms.mixing.objects import blended, pasted
from fastload.transforms.scenes import Scene
from tests.frameworks import scene_samples as samples
from tests.frameworks.ultralytics_scenes import CASES, LETTERBOXES, SEEDS

pytestmark = pytest.mark.frameworks("ultralytics")

# Boxes and points in pixels: float32 of numbers up to 200, computed in another order.
POINTS = 0.01

# A sheared box is no rectangle, and two rectangles around it may have the same area but for rounding.
CORNERS = 0.5

# Levels of pixels where a resize stands in for a matrix (within 1/32 of a source pixel), or for a part of a
# resize (within a tenth), and these images change by up to 60 levels from pixel to pixel.
FAST_MEAN, FAST_MOST = 2, 40

# A share of 1/1024 and a rounding lie between OpenCV's weights and theirs.
BLENDED = 1

WARPS = [(case, kind, seed) for case in CASES for kind in samples.KINDS for seed in range(SEEDS)]
PICTURES = [(case, seed) for case in CASES for seed in range(SEEDS)]  # the same for every kind of objects
PAIRS = [(kind, seed) for kind in samples.KINDS for seed in range(SEEDS)]


class Samples:
    """The images as a dataset gives them to scenes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def size(self, index: int) -> tuple[int, int]:
        return samples.image(index).shape[:2]

    def annotations(self, index: int) -> Annotations:
        labels, polygons, keypoints = samples.shares(index)
        height, width = self.size(index)
        points = polygons * np.array((width, height), np.float32)
        return Annotations(
            (height, width),
            samples.boxes(points).astype(np.float32),
            labels,
            [[each] for each in points] if self.kind == "polygons" else None,
            keypoints * np.array((width, height, 1), np.float32) if self.kind == "keypoints" else None,
            points if self.kind == "corners" else None,
            samples.mask(index) if self.kind == "masks" else None,
        )


@pytest.fixture(scope="session")
def theirs(run_programs, tmp_path_factory) -> dict[str, np.ndarray]:
    """Return the arrays that the program wrote."""
    result = Path(tmp_path_factory.mktemp("scenes"), "theirs.npz")
    run_programs(("ultralytics_scenes", result))
    with np.load(result) as stored:
        return dict(stored)


def of(theirs: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key.removeprefix(name + "/"): each for key, each in theirs.items() if key.startswith(name + "/")}


def assert_same_objects(
    objects: Annotations, expected: dict[str, np.ndarray], is_affine: bool = True
) -> None:
    """Polygons are compared by their points where it makes no difference when these are made."""
    assert objects.labels.tolist() == expected["labels"].tolist()
    np.testing.assert_allclose(objects.boxes, expected["boxes"], atol=POINTS)
    assert (objects.mask is None) == ("mask" not in expected)
    if objects.mask is not None:
        assert np.array_equal(objects.mask, expected["mask"])
    if objects.polygons is not None and len(objects) and is_affine:
        rings = np.stack([resampled(ring) for (ring,) in objects.polygons])
        np.testing.assert_allclose(rings, expected["segments"], atol=POINTS)
    if objects.keypoints is not None and len(objects):
        np.testing.assert_allclose(objects.keypoints, expected["keypoints"], atol=POINTS)
    if objects.corners is not None and len(objects) and is_affine:
        rings = np.stack([resampled(ring, 100) for ring in objects.corners])
        np.testing.assert_allclose(rings, expected["segments"], atol=CORNERS)


def mosaic(expected: dict[str, np.ndarray], case: str, **options: Any) -> tuple[Canvas, list[int]]:
    indices = expected["indices"].tolist()
    stored = [samples.image(index).shape[:2] for index in indices]
    placements = mosaic_of_4(stored, samples.IMGSZ, tuple(expected["centre"].tolist()))
    size = (2 * samples.IMGSZ, 2 * samples.IMGSZ)
    return Canvas(size, placements, None, size, **options), indices


def drawn(canvas: Canvas, indices: list[int]) -> np.ndarray:
    images = [DeferredImage.of_pixels(samples.image(index)) for index in indices]
    return DeferredImage.on(canvas, images).pixels()


@pytest.mark.parametrize(("case", "kind", "seed"), WARPS)
def test_objects_move_as_theirs(theirs, case, kind, seed):
    expected = of(theirs, f"{case}/{kind}/{seed}")
    canvas, indices = mosaic(expected, case)
    images = Samples(kind)
    objects = on_canvas(canvas, [images.annotations(index) for index in indices])
    assert_same_objects(objects, of(expected, "mosaic"))
    size = (samples.IMGSZ, samples.IMGSZ)
    moved = through_matrix(objects, expected["matrix"], size, float(expected["scale"]))
    assert_same_objects(moved, of(expected, "warped"), is_affine="perspective" not in CASES[case])


@pytest.mark.parametrize("case", ["4", "4 turned"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_masks_of_objects_are_parts_of_their_mask_of_classes(theirs, case, seed):
    """Each class of an image is one object here."""
    expected = of(theirs, f"{case}/masks/{seed}")
    canvas, indices = mosaic(expected, case)
    parts = []
    for index in indices:
        mask = samples.mask(index)
        levels, size = np.unique(mask), mask.shape
        boxes = np.tile(np.float32((0, 0, *size[::-1])), (len(levels), 1))
        masks = (mask == levels[:, None, None]).astype(np.uint8)
        parts.append(Annotations(size, boxes, levels.astype(np.int64), masks=masks))
    placed = on_canvas(canvas, parts)
    classes = np.full(canvas.size, 255)
    for mask, level in zip(placed.masks, placed.labels, strict=True):
        classes[mask == 1] = level
    assert np.array_equal(classes, expected["mosaic/mask"])
    size = (samples.IMGSZ, samples.IMGSZ)
    moved = through_matrix(placed, expected["matrix"], size, float(expected["scale"]))
    assert moved.masks.any()
    for mask, level in zip(moved.masks, moved.labels, strict=True):
        assert (expected["warped/mask"][mask == 1] == level).all()


@pytest.mark.parametrize(("case", "seed"), PICTURES)
def test_exact_pixels_are_theirs(theirs, case, seed):
    expected = of(theirs, f"{case}/boxes/{seed}")
    canvas, indices = mosaic(expected, case, is_exact=True)
    assert np.array_equal(drawn(canvas, indices), expected["mosaic/image"])
    canvas = dataclasses.replace(canvas, matrix=expected["matrix"], output=(samples.IMGSZ,) * 2)
    assert np.array_equal(drawn(canvas, indices), expected["warped/image"])


@pytest.mark.parametrize(("case", "seed"), PICTURES)
def test_fast_pixels_are_close_to_theirs(theirs, case, seed):
    expected = of(theirs, f"{case}/boxes/{seed}")
    canvas, indices = mosaic(expected, case)
    for matrix, name in ((None, "mosaic"), (expected["matrix"], "warped")):
        image = expected[f"{name}/image"]
        canvas = dataclasses.replace(canvas, matrix=matrix, output=image.shape[:2])
        off = np.abs(drawn(canvas, indices).astype(int) - image)
        assert off.mean() < FAST_MEAN
        assert np.percentile(off, 99.9) < FAST_MOST


@pytest.mark.parametrize(("case", "seed"), PICTURES)
def test_matrix_is_theirs(theirs, case, seed):
    expected = of(theirs, f"{case}/boxes/{seed}")
    options = {"degrees": 0.0, "scale": 0.5, "shear": 0.0, "perspective": 0.0} | CASES[case]
    numbers = expected["numbers"].tolist()
    matrix = perspective_matrix(
        (2 * samples.IMGSZ,) * 2,
        (samples.IMGSZ,) * 2,
        numbers[2] * options["degrees"],
        1 + numbers[3] * options["scale"],
        (numbers[4] * options["shear"], numbers[5] * options["shear"]),
        (0.5 + 0.1 * numbers[6], 0.5 + 0.1 * numbers[7]),
        (numbers[0] * options["perspective"], numbers[1] * options["perspective"]),
    )
    np.testing.assert_allclose(matrix, expected["matrix"], rtol=1e-5, atol=1e-5)


def letterboxed(kind: str, index: int, size: int = samples.IMGSZ) -> Scene:
    """An image resized to their size, then in a box, to the bit as theirs."""
    images = Samples(kind)
    stored = images.size(index)
    loaded = loaded_size(stored, size)
    canvas = Canvas(loaded, (Placement(0, stored, loaded),), None, loaded, is_exact=True)
    image = DeferredImage.on(canvas, [DeferredImage.of_pixels(samples.image(index))])
    scene = Scene(image, on_canvas(canvas, [images.annotations(index)]), is_exact=True)
    return T.LetterBox(size).compose(scene, (), ())


@pytest.mark.parametrize(("kind", "seed"), PAIRS)
def test_mixup_is_theirs(theirs, kind, seed):
    expected = of(theirs, f"mixup/{kind}/{seed}")
    first, second = (letterboxed(kind, each) for each in expected["indices"].tolist())
    assert np.array_equal(first.pixels(), expected["before/image"])
    mixed = blended(first, second, float(expected["share"]))
    assert np.abs(mixed.pixels().astype(int) - expected["image"]).max() <= BLENDED
    assert_same_objects(mixed.objects, expected)


@pytest.mark.parametrize(("kind", "seed"), PAIRS)
def test_cutmix_is_theirs(theirs, kind, seed):
    expected = of(theirs, f"cutmix/{kind}/{seed}")
    first, second = (letterboxed(kind, each) for each in expected["indices"].tolist())
    mixed = pasted(first, second, expected["area"].astype(np.float32))
    assert np.array_equal(mixed.pixels(), expected["image"])
    assert_same_objects(mixed.objects, expected)


@pytest.mark.parametrize(("kind", "seed"), [each for each in PAIRS if each[0] == "polygons"])
@pytest.mark.parametrize("mode", ["flip", "mixup"])
def test_copy_paste_is_theirs(theirs, kind, seed, mode):
    expected = of(theirs, f"copy {mode}/{kind}/{seed}")
    first = letterboxed(kind, seed)
    copy = T.CopyPaste(p=0.9, mode=mode)
    if mode == "flip":
        mixed = copy.compose(first, (0, 0, 0), ())
    else:
        second = letterboxed(kind, int(expected["indices"][-1]))
        mixed = copy.mixed(first, second, np.random.default_rng(0))
    assert np.array_equal(mixed.pixels(), expected["image"])
    assert_same_objects(mixed.objects, expected)


@pytest.mark.parametrize("seed", range(12))
def test_colours_are_theirs(theirs, seed):
    expected = of(theirs, f"hsv/{seed}")
    gains = tuple(expected["gains"].tolist())
    image = samples.image(seed)
    assert np.array_equal(HsvChange.of(gains)(image), expected["image"])


@pytest.mark.parametrize("number", range(len(LETTERBOXES)))
@pytest.mark.parametrize("seed", range(4))
def test_letterbox_is_theirs(theirs, number, seed):
    expected = of(theirs, f"letterbox/{number}/{seed}")
    image, images = samples.image(seed), Samples("boxes")
    target = images.annotations(seed).to_target()
    pixels, moved = T.LetterBox(**LETTERBOXES[number])(image, target)
    assert np.array_equal(pixels, expected["image"])
    np.testing.assert_allclose(moved["boxes"], expected["boxes"], atol=POINTS)
