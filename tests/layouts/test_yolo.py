"""YOLO datasets: all tasks, descriptions, folders, and agreement with Ultralytics."""

import json
import os

import cv2
import numpy as np
import pytest
import torch

from fastload import OptionError, PackedDataset, pack
from fastload.sources import open_source
from tests.commands import run_python
from tests.folders import encoded
from tests.images.samples import exif, file_of
from tests.layouts.conformance import LayoutConformance
from tests.layouts.samples import NAMES, ROWS, SIZE, photo, written, yolo

BOX = "0 0.5 0.5 0.25 0.125\n"


class TestBoxes(LayoutConformance):
    def make(self, root):
        return yolo(root)


class TestPolygons(LayoutConformance):
    def make(self, root):
        return yolo(root, "polygons")


class TestCorners(LayoutConformance):
    def make(self, root):
        return yolo(root, "corners")


class TestKeypoints(LayoutConformance):
    def make(self, root):
        return yolo(root, "keypoints")


class TestEmptyAndMissingLabels(LayoutConformance):
    def make(self, root):
        tree = {f"images/train/{at}.jpg": photo(at) for at in range(3)}
        text = "train: images/train\nnames:\n  0: a\n"
        return written(root, tree | {"labels/train/0.txt": BOX, "labels/train/1.txt": "", "data.yaml": text})


class TestMasksBeside(LayoutConformance):
    def make(self, root):
        return yolo(root, has_masks=True)


def test_boxes_are_in_pixels_and_an_image_without_labels_has_none(tmp_path):
    pack(yolo(tmp_path / "data"), tmp_path / "x.fl", encode="keep", workers=1)
    train, val = (PackedDataset(tmp_path / f"x.fl/{split}.fl") for split in ("train", "val"))
    _, target = train[0]
    torch.testing.assert_close(target["boxes"][0], torch.tensor([18.75, 17.5, 31.25, 22.5]))
    assert target["labels"].tolist() == [0, 2]
    assert (train.classes, val[0][1]["boxes"].shape) == (NAMES, (0, 4))


FOLDERS = {
    "images and labels": ({"images/a.jpg": 0, "labels/a.txt": BOX}, {"": ["images/a.jpg"]}),
    "labels beside images": ({"a.jpg": 0, "labels/a.txt": BOX}, {"": ["a.jpg"]}),
    "labels beside each image": ({"a.jpg": 0, "a.txt": BOX, "b.jpg": 1}, {"": ["a.jpg", "b.jpg"]}),
    "splits outside": (
        {
            "valid/images/b.jpg": 1,
            "train/images/a.jpg": 0,
            "train/labels/a.txt": BOX,
            "valid/labels/b.txt": BOX,
        },
        {"train": ["train/images/a.jpg"], "val": ["valid/images/b.jpg"]},
    ),
    "splits inside": (
        {"images/train/a.jpg": 0, "labels/train/a.txt": BOX, "images/train/deep/c.jpg": 2},
        {"train": ["images/train/a.jpg", "images/train/deep/c.jpg"]},
    ),
    "lists": (
        {
            "images/a.jpg": 0,
            "images/b.jpg": 1,
            "labels/a.txt": BOX,
            "train.txt": "./images/a.jpg\n",
            "lists/val.txt": "../images/b.jpg\n",
            "d.yaml": "path: .\ntrain: train.txt\nval: [lists/val.txt]\nnc: 2\n",
        },
        {"train": ["images/a.jpg"], "val": ["images/b.jpg"]},
    ),
    "val alone, a test that is missing, a path of others": (
        {
            "images/a.jpg": 0,
            "labels/a.txt": BOX,
            "d.yaml": "path: ../datasets/x\nval: ../images\ntest: images/test\nnames: [a]\n",
        },
        {"val": ["images/a.jpg"]},
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_and_descriptions(tmp_path, name):
    tree, expected = FOLDERS[name]
    root = written(tmp_path / "data", {k: photo(v) if isinstance(v, int) else v for k, v in tree.items()})
    found = open_source(root)
    assert {
        split: [source.key(at) for at in range(len(source))] for split, source in found.items()
    } == expected
    assert {source.kind for source in found.values()} == {"yolo"}
    assert next(iter(found.values())).read(0).values["labels"].tolist() == [0]


def test_repeated_rows_are_left_out_and_told(tmp_path):
    root = written(
        tmp_path / "data", {"images/a.jpg": photo(0), "labels/a.txt": BOX + "0 .1 .1 .1 .1\n" + BOX}
    )
    result = pack(root, tmp_path / "x.fl", encode="keep", workers=1)
    assert len(PackedDataset(tmp_path / "x.fl")[0][1]["boxes"]) == 2
    assert any("a.txt" in warning and "line 3" in warning for warning in result.warnings)


@pytest.mark.parametrize("encode", ["keep", "raw", "jpeg"])
def test_a_turned_photo_has_the_boxes_of_the_upright_image(tmp_path, encode):
    image = np.zeros((*SIZE, 3), np.uint8)
    image[:10, :10] = 255
    exif = b"\xff\xe1\x00\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    jpeg = encoded(image)
    upright = cv2.imdecode(np.frombuffer(jpeg[:2] + exif + jpeg[2:], np.uint8), cv2.IMREAD_COLOR)
    assert upright.shape == (50, 40, 3)
    row = "0 0.875 0.1 0.25 0.2\n"  # the white corner, at the upper right once it is turned
    tree = {"images/a.jpg": jpeg[:2] + exif + jpeg[2:], "labels/a.txt": row}
    pack(written(tmp_path / "data", tree), tmp_path / "x.fl", encode=encode, workers=1)
    pixels, target = PackedDataset(tmp_path / "x.fl")[0]
    left, top, right, bottom = target["boxes"][0].round().int().tolist()
    assert (pixels.shape, (left, top, right, bottom)) == ((3, 50, 40), (30, 0, 40, 10))
    # JPEG blurs edges by some levels.
    assert pixels[:, top + 1 : bottom - 1, left + 1 : right - 1].min() > 200
    assert pixels[:, :, : left - 2].max() < 50
    with pytest.raises(OptionError, match="apply_orientation"):
        PackedDataset(tmp_path / "x.fl", apply_orientation=False)


@pytest.mark.parametrize("encode", ["keep", "raw", "jpeg"])
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_photos_of_other_formats_have_the_boxes_of_the_upright_image(tmp_path, kind, encode):
    image = np.zeros((*SIZE, 3), np.uint8)
    image[:16, :16] = 255
    turn = {"tiffinfo": {0x0112: 6}} if kind == "TIFF" else {"exif": exif(6)}
    row = "0 0.8 0.16 0.4 0.32\n"  # the white corner, at the upper right once it is turned
    name = f"images/a.{kind.lower()}"
    tree = {name: file_of(image, kind, quality=90, **turn), "labels/a.txt": row}
    pack(written(tmp_path / "data", tree), tmp_path / "x.fl", encode=encode, workers=1)
    data = PackedDataset(tmp_path / "x.fl", cache="ram")
    for _ in range(2):
        pixels, target = data[0]
        assert (pixels.shape, target["boxes"].round().int().tolist()) == ((3, 50, 40), [[24, 0, 40, 16]])
        assert pixels[:, 2:14, 26:38].min() > 200
        assert pixels[:, :, :20].max() < 50


def test_a_mask_of_another_size_is_an_error(tmp_path):
    small = encoded(np.zeros((10, 10), np.uint8), ".png")
    tree = {"images/a.jpg": photo(0), "labels/a.txt": BOX, "masks/a.png": small, "images/b.jpg": photo(1)}
    result = pack(
        written(tmp_path / "data", tree), tmp_path / "x.fl", encode="keep", on_error="skip", workers=1
    )
    [skipped] = result.splits[0].skipped
    assert (skipped.key, "40x50" in skipped.reason) == ("images/a.jpg", True)


PROGRAM = """
import json, sys
from ultralytics.data.utils import verify_image_label, img2label_paths
found = []
for image, keypoint, classes, points, numbers in json.load(open(sys.argv[1])):
    [label] = img2label_paths([image])
    result = verify_image_label((image, label, "", keypoint, classes, points, numbers, False))
    boxes, segments, points = result[1], result[3], result[4]
    found.append(None if result[0] is None else [
        boxes.tolist(), [each.tolist() for each in segments], None if points is None else points.tolist()])
print(json.dumps(found))
"""


@pytest.mark.frameworks("ultralytics")
def test_boxes_labels_and_refusals_are_those_of_ultralytics(tmp_path):
    """Ultralytics runs in a process of its own, because importing it patches PIL and torch."""
    from tests.layouts.test_malformed import ACCEPTED_BY_ULTRALYTICS, YOLO_ROWS

    cases, requests = [], []
    for task in ROWS:
        root = yolo(tmp_path / task, task)
        for source in open_source(root).values():
            for at in range(len(source)):
                cases.append((task, source, at))
                is_points = task == "keypoints"
                requests.append([source.files.path(at), is_points, 3, *((2, 3) if is_points else (0, 0))])
    for name, (text, _) in YOLO_ROWS.items():
        root = written(tmp_path / name.replace(" ", "_"), {"images/a.jpg": photo(0), "labels/a.txt": text})
        requests.append([str(root / "images/a.jpg"), False, 3, 0, 0])
    environment = {
        **os.environ,
        "YOLO_CONFIG_DIR": str(tmp_path),
        "YOLO_OFFLINE": "true",
        "YOLO_VERBOSE": "false",
    }
    (tmp_path / "requests.json").write_text(json.dumps(requests))
    done = run_python("-c", PROGRAM, tmp_path / "requests.json", env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for (task, source, at), theirs in zip(cases, found, strict=False):
        mine = source.read(at).values
        rows = np.array(theirs[0]).reshape(-1, 5)
        np.testing.assert_array_equal(mine["labels"], rows[:, 0])
        np.testing.assert_allclose(mine["boxes"], rows[:, 1:], atol=1e-6)  # theirs are in single precision
        if task == "polygons":
            for polygons, segment in zip(mine["polygons"], theirs[1], strict=True):
                np.testing.assert_allclose(polygons[0], segment, atol=1e-6)
        elif task == "keypoints":
            np.testing.assert_allclose(mine["keypoints"], np.array(theirs[2]).reshape(-1, 2, 3), atol=1e-6)
    refused = {name: theirs is None for name, theirs in zip(YOLO_ROWS, found[len(cases) :], strict=True)}
    assert {name for name, is_refused in refused.items() if not is_refused} == ACCEPTED_BY_ULTRALYTICS


def test_masks_hold_classes_whatever_png_they_are(tmp_path):
    from PIL import Image

    tree = {"images/a.jpg": photo(0), "labels/a.txt": BOX}
    root = written(tmp_path / "data", tree)
    classes = np.random.default_rng(0).integers(0, 3, SIZE, dtype=np.uint8)
    (root / "masks").mkdir()
    for bits in (8, 4, 2):
        image = Image.fromarray(classes, "L").convert("P") if bits == 0 else Image.new("P", SIZE[::-1])
        image.putdata(classes.reshape(-1).tolist())
        image.putpalette([9, 9, 9, 200, 0, 0, 0, 200, 0] + [0] * (3 * ((1 << bits) - 3)))
        image.save(root / "masks/a.png", bits=bits)
        pack(root, tmp_path / "x.fl", encode="keep", overwrite=True, workers=1)
        assert np.array_equal(PackedDataset(tmp_path / "x.fl")[0][1]["mask"], classes)
