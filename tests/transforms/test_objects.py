"""Transforms made for images with objects, with torchvision v2's results."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.draws import fresh_draws
from tests.transforms.test_moving import SIZE, sample, torchvisions

v2 = pytest.importorskip("torchvision.transforms.v2")


@pytest.mark.parametrize(("size", "area"), [(1, 1), (6, 1), (1, 60), (8, 80)])
def test_sanitized_boxes_are_torchvisions(size, area):
    annotations = T.RandomCrop((30, 40)).apply_to(sample(1, 40), [20, 30, 30, 40])
    boxes = torchvisions(annotations)[0]
    boxes = type(boxes)(boxes, format="XYXY", canvas_size=annotations.size)
    labels = torch.from_numpy(annotations.labels)
    expected = v2.SanitizeBoundingBoxes(size, area)({"boxes": boxes, "labels": labels})
    found = T.SanitizeBoundingBoxes(size, area).apply_to(annotations, [])
    assert 0 < len(found) < 40
    assert torch.equal(found.to_target()["boxes"], expected["boxes"].as_subclass(torch.Tensor))
    assert torch.equal(found.to_target()["labels"], expected["labels"])
    assert len(found.polygons) == len(found.keypoints) == len(found.others["area"]) == len(found)


def test_clamped_boxes_are_torchvisions():
    annotations = sample()
    annotations.boxes += np.float32([-20, -20, 40, 40])
    expected = v2.ClampBoundingBoxes()(torchvisions(annotations)[0])
    found = T.ClampBoundingBoxes().apply_to(annotations, [])
    assert torch.equal(torch.from_numpy(found.boxes), expected.as_subclass(torch.Tensor))


def crops_of(transform, objects, count):
    sizes = np.tile(SIZE, (count, 1))
    return transform.draw_with(fresh_draws(count), sizes, [objects] * count)


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_iou_crops_satisfy_torchvisions_conditions(overlap):
    objects = sample(2)
    objects.boxes[0] = 10, 5, 70, 50
    transform = T.RandomIoUCrop(sampler_options=[overlap, 1.0])
    rows = crops_of(transform, objects, 60)
    is_whole = (rows == (0, 0, *SIZE)).all(axis=1)
    assert 0 < is_whole.sum() < 60
    for top, left, height, width in rows[~is_whole]:
        assert 0.5 <= width / height <= 2
        moved = transform.apply_to(objects, [top, left, height, width])
        kept = moved.boxes.any(axis=1)
        x, y = (objects.boxes[:, :2] + objects.boxes[:, 2:]).T / 2
        is_inside = (left < x) & (x < left + width) & (top < y) & (y < top + height)
        assert is_inside.any()
        np.testing.assert_array_equal(kept, is_inside)
        common = moved.boxes[kept, 2:] - moved.boxes[kept, :2]
        own = objects.boxes[kept, 2:] - objects.boxes[kept, :2]
        shares = common.prod(axis=1) / (own.prod(axis=1) + height * width - common.prod(axis=1))
        assert shares.max() >= overlap - 1e-6


def test_iou_crops_have_torchvisions_distribution():
    objects = sample(3, 3)
    rows = crops_of(T.RandomIoUCrop(), objects, 1500)
    theirs = v2.RandomIoUCrop()
    torch.manual_seed(0)
    inputs = [torch.zeros(3, *SIZE), torchvisions(objects)[0]]
    found = [theirs.make_params(inputs) for _ in range(150)]
    whole = {"top": 0, "left": 0, "height": SIZE[0], "width": SIZE[1]}
    expected = np.array([[{**whole, **each}[name] for name in whole] for each in found])
    # Five standard errors of a mean of 150.
    errors = 5 * expected.std(axis=0) / np.sqrt(150)
    assert (abs(rows.mean(axis=0) - expected.mean(axis=0)) < errors).all()


def test_iou_crops_leave_images_without_boxes_whole_and_need_a_target():
    nobody = sample().chosen([])
    assert (crops_of(T.RandomIoUCrop(sampler_options=[0.5]), nobody, 5) == (0, 0, *SIZE)).all()
    with pytest.raises(OptionError, match="RandomIoUCrop must be given images with boxes"):
        T.RandomIoUCrop()(np.zeros((*SIZE, 3), np.uint8))
    with pytest.raises(OptionError, match="scale must be"):
        T.RandomIoUCrop(min_scale=0)


def test_the_ssd_pipeline_of_torchvisions_reference_runs():
    image = np.random.default_rng(0).integers(0, 255, (*SIZE, 3), np.uint8)
    pipeline = T.Compose(
        [
            T.RandomPhotometricDistort(),
            T.RandomZoomOut(fill=(123, 117, 104)),
            T.RandomIoUCrop(),
            T.RandomHorizontalFlip(),
            T.SanitizeBoundingBoxes(),
            T.ToDtype(torch.float32, scale=True),
        ]
    )
    for seed in range(8):
        torch.manual_seed(seed)
        result, target = pipeline(torch.from_numpy(image).permute(2, 0, 1), sample(seed).to_target())
        height, width = result.shape[1:]
        assert result.dtype == torch.float32
        assert (target["mask"].shape) == (height, width)
        assert 0 < len(target["boxes"]) == len(target["labels"]) == len(target["polygons"])
        assert (target["boxes"] <= torch.tensor([width, height, width, height])).all()
