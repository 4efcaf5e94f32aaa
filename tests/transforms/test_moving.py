"""Boxes, keypoints, polygons and masks move with the pixels, as torchvision v2's do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.annotations import Annotations, joined
from fastload.transforms.draws import fresh_draws
from fastload.transforms.samples import SampleParts

tv_tensors = pytest.importorskip("torchvision.tv_tensors")
F = pytest.importorskip("torchvision.transforms.v2.functional")

SIZE = HEIGHT, WIDTH = 60, 90

NEAR = 0.5

# Of an expanded rotation, torchvision moves pixels with the middle of the canvas, boxes with its corner, and
# rounds the canvas up by at most two pixels. Of an elastic one, it rounds keypoints down to whole pixels.
FAR = {"RandomRotation that expands": 1.0}
FAR_POINTS = {"ElasticTransform": 1.0, **FAR}


def sample(seed=0, count=6):
    """Objects in the image, with whole coordinates, and blocks of classes as a mask."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, (WIDTH - 12, HEIGHT - 12), (count, 2))
    last = first + rng.integers(4, 12, (count, 2))
    boxes = np.concatenate((first, last), axis=1).astype(np.float32)
    ring = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    points = np.concatenate((ring, np.full((count, 4, 1), 2, np.float32)), axis=2)
    mask = np.kron(rng.integers(0, 250, (10, 15)), np.ones((6, 6))).astype(np.uint8)
    polygons = [[corners.astype(np.float64)] for corners in ring]
    return Annotations(SIZE, boxes, np.arange(count), polygons, points, ring, mask, {"area": first[:, 0]})


def plain(annotations):
    """Annotations as lists, to be compared."""

    def listed(value):
        return [listed(each) for each in value] if isinstance(value, list) else value.tolist()

    return annotations.size, {name: listed(value) for name, value in annotations.to_target().items()}


def torchvisions(annotations):
    boxes = tv_tensors.BoundingBoxes(torch.from_numpy(annotations.boxes), format="XYXY", canvas_size=SIZE)
    points = tv_tensors.KeyPoints(torch.from_numpy(annotations.keypoints[..., :2]), canvas_size=SIZE)
    return boxes, points, tv_tensors.Mask(torch.from_numpy(annotations.mask))


def rows_of(transform, count=8):
    return transform.draw(fresh_draws(count), np.tile(SIZE, (count, 1))).tolist()


def crop(_, row):
    top, left, height, width = map(int, row)
    return lambda each: F.crop(each, top, left, height, width)


def resized_crop(transform, row):
    top, left, height, width = map(int, row)
    return lambda each: F.resized_crop(each, top, left, height, width, list(transform.size))


def resize(_, row):
    return lambda each: F.resize(each, [int(row[0]), int(row[1])])


def rotate(transform, row):
    return lambda each: F.rotate(each, row[0], expand=transform.expand, center=transform.center, fill=7)


def affine(transform, row):
    angle, x, y, scale, *shear = row
    return lambda each: F.affine(each, angle, [x, y], scale, shear, fill=7, center=transform.center)


def perspective(_, row):
    before = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
    after = np.reshape(row[1:], (4, 2)).tolist()
    return lambda each: F.perspective(each, before, after, fill=7) if row[0] else each


def elastic(transform, row):
    return lambda each: F.elastic(each, transform.displacement(row[0], *SIZE), fill=7)


def pad(transform, _):
    return lambda each: F.pad(each, list(transform.sides), fill=7)


def flip(transform, row):
    function = F.horizontal_flip if isinstance(transform, T.RandomHorizontalFlip) else F.vertical_flip
    return lambda each: function(each) if row[0] else each


CASES = {
    "CenterCrop": (T.CenterCrop((40, 50)), crop),
    "CenterCrop of a larger size": (T.CenterCrop((80, 50)), crop),
    "RandomCrop": (T.RandomCrop((30, 70)), crop),
    "RandomZoomOut": (T.RandomZoomOut(p=1), crop),
    "RandomResizedCrop": (T.RandomResizedCrop((50, 44)), resized_crop),
    "Resize": (T.Resize(37), resize),
    "RandomResize": (T.RandomResize(30, 90), resize),
    "RandomShortestSize": (T.RandomShortestSize([30, 50, 80], 100), resize),
    "ScaleJitter": (T.ScaleJitter((64, 64)), resize),
    "RandomRotation": (T.RandomRotation(50, fill=7), rotate),
    "RandomRotation around a center": (T.RandomRotation(50, center=(20, 9), fill=7), rotate),
    "RandomRotation by right angles": (T.RandomRotation((90, 90), expand=True, fill=7), rotate),
    "RandomRotation that expands": (T.RandomRotation(50, expand=True, fill=7), rotate),
    "RandomAffine": (T.RandomAffine(40, (0.2, 0.1), (0.5, 1.5), (-20, 20, -9, 9), fill=7), affine),
    "RandomPerspective": (T.RandomPerspective(p=0.8, fill=7), perspective),
    "ElasticTransform": (T.ElasticTransform(40.0, 4.0, fill=7), elastic),
    "Pad": (T.Pad((3, 5, 7, 9), fill=7), pad),
    "RandomHorizontalFlip": (T.RandomHorizontalFlip(), flip),
    "RandomVerticalFlip": (T.RandomVerticalFlip(), flip),
}


@pytest.mark.parametrize("name", CASES)
def test_annotations_move_as_torchvisions(name):
    transform, reference = CASES[name]
    for row in rows_of(transform):
        annotations = sample()
        moved, move = transform.apply_to(annotations, row), reference(transform, row)
        boxes, points, mask = map(move, torchvisions(annotations))
        assert moved.size == tuple(mask.shape)  # torchvision rounds the canvas of its boxes otherwise
        np.testing.assert_allclose(moved.boxes, boxes.numpy(), atol=FAR.get(name, NEAR), rtol=0)
        # torchvision mirrors the indices of pixels, so keypoints lie a pixel beside the corners of boxes.
        shift = (bool(row[0]), 0) if "Horizontal" in name else (0, "Vertical" in name and row[0])
        found = moved.keypoints[..., :2] - np.array(shift, np.float32)
        np.testing.assert_allclose(found, points.numpy(), atol=FAR_POINTS.get(name, NEAR), rtol=0)
        assert (moved.mask != mask.numpy()).mean() <= 0.005  # nearest neighbours, where two are equally near
        rings = np.stack([rings[0] for rings in moved.polygons])
        np.testing.assert_allclose(rings, moved.corners, rtol=1e-5, atol=1e-5)  # of single precision
        np.testing.assert_array_equal(moved.others["area"], annotations.others["area"])
        assert plain(annotations) == plain(sample())


# These interpolate pixels, and take a mask's nearest one.
RESAMPLING = ("RandomResize", "RandomShortestSize", "ScaleJitter", "RandomResizedCrop")


@pytest.mark.parametrize("name", [name for name in CASES if name not in RESAMPLING])
def test_masks_move_as_pixels(name):
    transform, _ = CASES[name]
    transform = T.Resize(37, "nearest") if name == "Resize" else transform
    if hasattr(transform, "_filter"):
        transform._filter = "nearest"
    for row in rows_of(transform, 3):
        annotations = sample()
        pixels = transform.apply(annotations.mask[:, :, None], row)[:, :, 0]
        np.testing.assert_array_equal(transform.apply_to(annotations, row).mask, pixels)


@pytest.mark.parametrize("name", CASES)
def test_boxes_enclose_the_pixels_of_their_objects(name):
    transform, _ = CASES[name]
    mask = np.zeros(SIZE, np.uint8)
    mask[22:38, 30:58] = 200
    annotations = Annotations(SIZE, np.float32([[30, 22, 58, 38]]), np.zeros(1, np.int64), mask=mask)
    for row in rows_of(transform):
        moved = transform.apply_to(annotations, row)
        rows, columns = (np.flatnonzero((moved.mask == 200).any(axis=axis)) for axis in (1, 0))
        left, top, right, bottom = moved.boxes[0]
        # Of an object that was cut off, a corner outside of the image may have set the box.
        if len(rows) and min(left, top) > 0 and right < moved.size[1] and bottom < moved.size[0]:
            bounds = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
            # Pixels miss the tips of acute corners; an elastic movement has others between the corners.
            np.testing.assert_allclose(moved.boxes[0], bounds, atol=8 if "Elastic" in name else 3)


def test_boxes_of_the_whole_image_stay_so_without_a_move():
    annotations = sample()
    for transform in (T.ColorJitter(0.4), T.ToTensor(), T.GaussianBlur(3), T.RandomErasing(1), T.Identity()):
        assert transform.apply_to(annotations, rows_of(transform, 1)[0]) is annotations


@pytest.mark.parametrize("make", [T.RandomApply, T.RandomChoice, T.RandomOrder])
def test_sequences_move_annotations_as_images(make):
    transform = make([T.RandomVerticalFlip(1), T.Pad((4, 0, 0, 0)), T.RandomHorizontalFlip(1)])
    for row in rows_of(transform):
        annotations = sample()
        pixels = transform.apply(annotations.mask[:, :, None], row)[:, :, 0]
        moved = transform.apply_to(annotations, row)
        np.testing.assert_array_equal(moved.mask, pixels)
        assert moved.size == pixels.shape


def test_a_target_is_transformed_with_its_image():
    image = np.zeros((*SIZE, 3), np.uint8)
    image[20:30, 10:50] = 255
    target = {"boxes": [[10, 20, 50, 30]], "labels": [3], "image_id": 5, "iscrowd": torch.tensor([1])}
    transform = T.Compose([T.RandomHorizontalFlip(1), T.Pad(3), T.ColorJitter(), T.ToTensor()])
    result, moved = transform(image, target)
    assert list(moved) == list(target)
    assert moved["boxes"].tolist() == [[43, 23, 83, 33]]
    assert result[:, 23:33, 43:83].min() == 1
    assert result.sum() == 3 * 10 * 40
    assert moved["image_id"] == 5


def test_functions_of_images_alone_are_refused_with_a_target():
    with pytest.raises(OptionError, match=r"Lambda.* must be called with an image alone"):
        T.Compose([T.Lambda(abs)])(np.zeros((*SIZE, 3), np.uint8), {"boxes": [], "labels": []})


def test_keypoints_change_sides_only_if_told_so():
    annotations = sample()
    plain = T.RandomHorizontalFlip(1).apply_to(annotations, [1])
    paired = T.RandomHorizontalFlip(1, flip_idx=[1, 0, 3, 2]).apply_to(annotations, [1])
    np.testing.assert_array_equal(paired.keypoints, plain.keypoints[:, [1, 0, 3, 2]])
    with pytest.raises(OptionError, match="flip_idx must hold the index of every key point once"):
        T.RandomHorizontalFlip(flip_idx=[1, 1])


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (T.RandAugment(), "RandAugment must be given images without objects"),
        (T.Pad(3, padding_mode="reflect"), "padding_mode 'constant' for images with objects"),
        (T.RandomCrop((80, 80), pad_if_needed=True, padding_mode="edge"), "padding_mode 'constant'"),
    ],
)
def test_what_cannot_move_boxes_is_refused(transform, message):
    with pytest.raises(OptionError, match=message):
        transform.apply_to(sample(), rows_of(transform, 1)[0])


def test_an_own_transform_must_say_how_boxes_move():
    class Own(T.Transform):
        def apply(self, image, parameters):
            return image[::-1]

    with pytest.raises(OptionError, match="Own must define apply_to"):
        Own()(np.zeros((9, 9, 3), np.uint8), {"boxes": [[1, 2, 3, 4]], "labels": [1]})


def test_targets_survive_a_round_trip():
    annotations = sample()
    target = annotations.to_target()
    again = SampleParts(target, SIZE).rebuilt([], lambda each: each)
    assert {name: str(value) for name, value in again.items()} == {
        name: str(value) for name, value in target.items()
    }
    assert SampleParts({}, SIZE).annotations.to_target()["boxes"].shape == (0, 4)
    with pytest.raises(OptionError, match=r"boxes \(objects, 4\) and labels with a row for each"):
        SampleParts({"boxes": [[1, 2, 3, 4]], "labels": []}, SIZE)


def test_chosen_and_joined_objects_keep_what_is_theirs():
    annotations = sample()
    halves = annotations.chosen([0, 1, 2]), annotations.chosen(annotations.labels > 2)
    assert plain(joined(halves, SIZE, annotations.mask)) == plain(annotations)
    nobody = annotations.chosen([])
    assert len(nobody) == 0
    for transform, _ in CASES.values():
        assert len(transform.apply_to(nobody, rows_of(transform, 1)[0])) == 0


def test_a_matrix_moves_points():
    annotations = sample()
    mirror = np.array([[-1, 0, WIDTH], [0, 1, 0], [0, 0, 1.0]])
    moved = annotations.warped(mirror, SIZE, lambda mask, _: mask[:, ::-1])
    assert plain(moved) == plain(annotations.flipped(1))


@pytest.mark.parametrize("name", CASES)
def test_masks_of_objects_are_torchvisions(name):
    """Outside of the image, an object has no pixels, whatever the fill of the image."""
    transform, reference = CASES[name]
    masks = np.stack([sample().mask % 5 == level for level in range(3)])
    annotations = replace(sample(count=3), mask=None, masks=masks.astype(np.uint8))
    for row in rows_of(transform, 4):
        expected = reference(transform, row)(tv_tensors.Mask(torch.from_numpy(masks.astype(np.uint8))))
        expected = torch.where(expected == 7, 0, expected).numpy()
        found = transform.apply_to(annotations, row).masks
        assert found.shape == expected.shape
        assert (found != expected).mean() <= 0.005  # nearest neighbours, where two are equally near
