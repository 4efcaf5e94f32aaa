"""COCO datasets: round trip, agreement with pycocotools and torchvision, captions, folders."""

import importlib
import json

import numpy as np
import pytest

import fastload
import fastload.transforms as T
from fastload import PackedDataset, pack, unpack
from fastload.images.opencv import cv2
from fastload.images.polygons import drawn
from fastload.sources.coco.rows import decode_counts, mask_of_counts
from tests.layouts.conformance import LayoutConformance
from tests.layouts.samples import SIZE, coco, coco_content, run_lengths


def drawn_by_fastload(target):
    masks = np.zeros((len(target["polygons"]), *SIZE), np.uint8)
    rings = [[each.numpy() for each in polygons] for polygons in target["polygons"]]
    for mask, patch in zip(masks, drawn(rings, SIZE), strict=True):
        patch.view(mask)[:] = patch.pixels
    return masks


class TestCoco(LayoutConformance):
    def make(self, root):
        return coco(root)


COMPRESSED = "b6:n00000000000000000000000000000000000000nn0"


class TestCompressedRunLengths(TestCoco):
    def make(self, root):
        content = coco_content()
        rle = content["annotations"][1]["segmentation"]
        assert decode_counts(COMPRESSED) == rle["counts"]
        rle["counts"] = COMPRESSED
        return coco(root, content)


class TestWithoutSegmentation(TestCoco):
    def make(self, root):
        content = coco_content()
        for annotation in content["annotations"]:
            for name in ("segmentation", "keypoints", "area", "iscrowd"):
                annotation.pop(name, None)
        return coco(root, content)


class TestKeypointsThatDifferByCategory(TestCoco):
    def make(self, root):
        content = coco_content()
        named, absent, _ = content["annotations"]
        named["keypoints"] = [7, 8, 2]  # its category has no names
        absent["keypoints"] = None
        common = {"image_id": 12, "bbox": [0, 0, 5, 5], "area": 25, "iscrowd": 0, "segmentation": []}
        more = [
            {"category_id": 18, "keypoints": []},
            {"category_id": 18},
            {"category_id": 3, "keypoints": [0] * 6},
        ]
        content["annotations"] += [{"id": 20 + at, **common, **each} for at, each in enumerate(more)]
        return coco(root, content)


def test_missing_keypoints_are_zeros_without_visibility(tmp_path):
    root = TestKeypointsThatDifferByCategory().make(tmp_path / "data")
    pack(root, tmp_path / "x.fl", encode="keep", workers=1)
    found = [target["keypoints"].tolist() for _, target in PackedDataset(tmp_path / "x.fl")]
    nothing = [[0, 0, 0]] * 2
    assert found == [[nothing], [[[7, 8, 2], [0, 0, 0]], [[5, 6, 2], [0, 0, 0]]], [nothing] * 3]


def test_fewer_keypoints_are_unpacked_in_the_size_of_the_image(tmp_path):
    root = TestKeypointsThatDifferByCategory().make(tmp_path / "data")
    pack(root, tmp_path / "x.fl", encode="jpeg", max_side=25, workers=1)
    unpack(tmp_path / "x.fl", tmp_path / "out")
    content = json.loads((tmp_path / "out/annotations/instances_val2017.json").read_text())
    assert [each["keypoints"] for each in content["annotations"]] == [
        [0] * 6,
        [3.5, 4, 2, 0, 0, 0],
        [2.5, 3, 2, 0, 0, 0],
        *[[0] * 6] * 3,
    ]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own
@pytest.mark.frameworks("pycocotools")
def test_samples_are_those_of_torchvision_and_pycocotools(tmp_path):
    from torchvision.datasets import CocoDetection

    root = coco(tmp_path / "data")
    pack(root / "annotations/instances_val2017.json", tmp_path / "x.fl", encode="keep", workers=1)
    mine = PackedDataset(tmp_path / "x.fl")
    theirs = CocoDetection(root / "val2017", root / "annotations/instances_val2017.json")
    categories = sorted(theirs.coco.cats)
    assert mine.classes == [theirs.coco.cats[each]["name"] for each in categories]
    assert len(mine) == len(theirs)
    for (_, target), (_, annotations), number in zip(mine, theirs, theirs.ids, strict=True):
        assert target["image_id"].item() == number
        assert [categories[label] for label in target["labels"]] == [
            each["category_id"] for each in annotations
        ]
        boxes = np.array([each["bbox"] for each in annotations]).reshape(-1, 4)
        np.testing.assert_allclose(
            target["boxes"], np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]), 1e-6
        )
        assert target["area"].tolist() == [each["area"] for each in annotations]
        assert target["iscrowd"].tolist() == [each["iscrowd"] for each in annotations]
        for polygons, mask, annotation in zip(
            target["polygons"], drawn_by_fastload(target), annotations, strict=True
        ):
            assert np.array_equal(mask, theirs.coco.annToMask(annotation))
            if not annotation["iscrowd"]:
                assert [each.reshape(-1).tolist() for each in polygons] == annotation["segmentation"]


@pytest.mark.frameworks("pycocotools")
@pytest.mark.parametrize("seed", range(8))
def test_run_lengths_are_those_of_pycocotools(seed):
    from pycocotools import mask as reference

    rng = np.random.default_rng(seed)
    mask = (rng.random((rng.integers(1, 60), rng.integers(1, 60))) < rng.random()).astype(np.uint8)
    text = reference.encode(np.asfortranarray(mask))["counts"].decode()
    assert np.array_equal(mask_of_counts(decode_counts(text), *mask.shape), mask)


def line(rows, columns):
    mask = np.zeros(SIZE, np.uint8)
    mask[rows, columns] = 1
    return mask


# The segmentations of objects, and the number of their pixels by pycocotools 2.0.11.
SEGMENTATIONS = {
    "a line of run lengths": (run_lengths(line(slice(5, 35), 30)), 30),
    "a pixel of run lengths": (run_lengths(line(20, 10)), 1),
    "a square": ([[10, 10, 20, 10, 20, 20, 10, 20]], 100),
    "a thin square": ([[10, 10, 11, 10, 11, 20, 10, 20]], 10),
    "tenths": ([[10.7, 10.3, 20.7, 10.3, 20.9, 20.7, 10.1, 20.5]], 116),
    "overlapping": ([[5, 5, 25, 5, 25, 25, 5, 25], [15, 15, 35, 15, 35, 35, 15, 35]], 700),
    "partly outside": ([[-10, 30, 10, 30, 10, 60, -10, 60]], 100),
    "none": ([], 0),
}


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    content = coco_content()
    common = {"image_id": 9, "category_id": 3, "bbox": [0, 0, 50, 40], "area": 1, "iscrowd": 0}
    content["annotations"] = [
        {"id": number, **common, "segmentation": segmentation}
        for number, (segmentation, _) in enumerate(SEGMENTATIONS.values())
    ]
    content["images"] = content["images"][:1]
    root = tmp_path_factory.mktemp("segmented")
    pack(coco(root / "data", content), root / "x.fl", encode="keep", workers=1)
    return root / "x.fl"


def test_masks_have_the_pixels_that_pycocotools_draws(segmented):
    pytest.importorskip("torchvision.tv_tensors")
    masks = PackedDataset(segmented, tv_tensors=True)[0][1]["masks"]
    found = dict(zip(SEGMENTATIONS, masks.sum((1, 2)).tolist(), strict=True))
    assert found == {name: pixels for name, (_, pixels) in SEGMENTATIONS.items()}


def test_ultralytics_batches_have_the_masks_of_pycocotools(segmented):
    data = PackedDataset(segmented)
    batch = fastload.collate_ultralytics([data[0]])
    masks = [cv2.resize(mask, (12, 10)) for mask in drawn_by_fastload(data[0][1])]
    order = np.argsort(-np.array([mask.sum() for mask in masks], np.uint64))
    expected = np.zeros((10, 12), np.uint8)
    for number, index in enumerate(order, 1):
        expected[masks[index] > 0] = number
    assert np.array_equal(batch["masks"][0], expected)


@pytest.mark.frameworks("pycocotools")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own
@pytest.mark.parametrize(
    "move",
    [T.RandomHorizontalFlip(1), T.RandomVerticalFlip(1), T.CenterCrop((25, 33)), T.Resize((71, 37))],
)
def test_moved_polygons_are_drawn_as_by_pycocotools(segmented, move):
    reference = importlib.import_module("pycocotools.mask")
    image, target = PackedDataset(segmented, move)[0]
    height, width = size = image.shape[1:]
    rings = [[each.numpy() for each in polygons] for polygons in target["polygons"]]
    for own, patch in zip(rings[:-1], drawn(rings, size)[:-1], strict=True):  # without the empty one
        mask = np.zeros(size, np.uint8)
        patch.view(mask)[:] = patch.pixels
        runs = reference.frPyObjects([ring.reshape(-1).tolist() for ring in own], height, width)
        assert np.array_equal(mask, reference.decode(reference.merge(runs)))
