"""COCO datasets: round trip, agreement with pycocotools and torchvision, captions, folders."""

import json

import numpy as np
import pytest

from fastload import PackedDataset, SourceError, pack, unpack
from fastload.images.opencv import cv2
from fastload.images.rle import counts_of_mask, decode_counts, encode_counts, mask_of_counts, outlines
from fastload.sources import open_source
from tests.layouts.conformance import LayoutConformance
from tests.layouts.samples import SIZE, coco, coco_content, photo, written


class TestCoco(LayoutConformance):
    def make(self, root):
        return coco(root)

    def content(self, root):
        content = json.loads((root / "annotations/instances_val2017.json").read_text())
        return {
            name: {each["id"]: each for each in value} if isinstance(value, list) else value
            for name, value in content.items()
        }


class TestCompressedRunLengths(TestCoco):
    def make(self, root):
        content = coco_content()
        rle = content["annotations"][1]["segmentation"]
        rle["counts"] = encode_counts(rle["counts"])
        return coco(root, content)


class TestWithoutSegmentation(TestCoco):
    def make(self, root):
        content = coco_content()
        for annotation in content["annotations"]:
            for name in ("segmentation", "keypoints", "area", "iscrowd"):
                annotation.pop(name, None)
        return coco(root, content)


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
        for polygons, annotation in zip(target["polygons"], annotations, strict=True):
            if annotation["iscrowd"]:
                drawn = cv2.fillPoly(np.zeros(SIZE, np.uint8), [each.int().numpy() for each in polygons], 1)
                assert np.array_equal(drawn, theirs.coco.annToMask(annotation))
            else:
                assert [each.reshape(-1).tolist() for each in polygons] == annotation["segmentation"]


@pytest.mark.frameworks("pycocotools")
@pytest.mark.parametrize("seed", range(8))
def test_run_lengths_are_those_of_pycocotools(seed):
    from pycocotools import mask as reference

    rng = np.random.default_rng(seed)
    mask = (rng.random((rng.integers(1, 60), rng.integers(1, 60))) < rng.random()).astype(np.uint8)
    text = reference.encode(np.asfortranarray(mask))["counts"].decode()
    counts = counts_of_mask(mask)
    assert (encode_counts(counts), decode_counts(text)) == (text, counts)
    assert np.array_equal(mask_of_counts(counts, *mask.shape), mask)


def test_outlines_of_a_mask_with_a_hole_are_the_mask():
    mask = np.zeros(SIZE, np.uint8)
    mask[5:30, 5:40] = 1
    mask[12:20, 12:30] = 0
    drawn = cv2.fillPoly(np.zeros(SIZE, np.uint8), [each.astype(int) for each in outlines(mask)], 1)
    # Around a hole, OpenCV draws the line itself, too.
    assert np.count_nonzero(drawn != mask) <= 2 * (8 + 18) + 4


def test_captions_are_texts(tmp_path):
    content = coco_content()
    for annotation in content["annotations"]:
        annotation["caption"] = f"object {annotation['id']}"
        for name in set(annotation) - {"id", "image_id", "caption"}:
            del annotation[name]
    del content["categories"]
    root = coco(tmp_path / "data", content)
    pack(root, tmp_path / "x.fl", encode="keep", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    assert [dataset[at][1]["captions"] for at in range(3)] == [["object 7"], ["object 1", "object 5"], []]
    assert "boxes" not in dataset[0][1]


def test_splits_of_folders_with_a_json_each(tmp_path):
    content = coco_content()
    tree = {f"{split}/{name}.jpg": photo(1) for split in ("train", "valid") for name in "abc"}
    jsons = {f"{split}/_annotations.coco.json": json.dumps(content) for split in ("train", "valid")}
    found = open_source(written(tmp_path / "data", tree | jsons))
    assert [(split, source.key(0)) for split, source in found.items()] == [
        ("train", "train/a.jpg"),
        ("val", "valid/a.jpg"),
    ]


def test_names_with_backslashes_are_paths(tmp_path):
    content = coco_content()
    for image in content["images"]:
        image["file_name"] = f"val2017\\{image['file_name']}"
    [source] = open_source(coco(tmp_path / "data", content)).values()
    assert source.read(0).key == "val2017/a.jpg"


def test_images_that_the_json_does_not_list_are_told(tmp_path):
    root = coco(tmp_path / "data")
    written(root, {"val2017/d.jpg": photo(4), "val2017/notes.txt": ""})
    [source] = open_source(root).values()
    assert [(each.key, each.is_clutter) for each in source.left_out] == [("val2017/d.jpg", True)]
    assert source.warnings[-1].endswith("such as val2017/d.jpg")


def test_members_without_a_value_come_back(tmp_path):
    content = coco_content()
    content["annotations"][0] |= {"segmentation": None, "area": None, "iscrowd": None, "caption": "hi"}
    pack(coco(tmp_path / "data", content), tmp_path / "x.fl", encode="keep", workers=1)
    unpack(tmp_path / "x.fl", tmp_path / "out")
    back = json.loads((tmp_path / "out/annotations/instances_val2017.json").read_text())
    assert back["annotations"][0] == content["annotations"][0]


def test_an_annotation_without_a_box_is_no_caption(tmp_path):
    content = coco_content()
    content["annotations"] = [{"id": 1, "image_id": content["images"][0]["id"], "category_id": 1, "area": 3}]
    with pytest.raises(SourceError, match="annotation 1: must have a list of numbers as bbox"):
        pack(coco(tmp_path / "data", content), tmp_path / "x.fl", workers=1)
