"""Datasets of boxes, masks and texts are recognised and refused; class folders of any names are not."""

import json

import numpy as np
import pytest

from fastload import FolderDataset, SourceError, pack
from fastload.doctor.folder import examine_data
from fastload.sources import open_source
from tests.folders import encoded, pixels

BOX = "0 0.5 0.5 0.25 0.125\n3 0.1 0.1 0.2 0.2\n"
COCO = {
    "info": {},
    "images": [{"id": 1, "file_name": "0.jpg"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
}
NUMBERS = range(4)


def photo(number):
    return encoded(pixels(number, 40, 50))


def mask(number, *, as_jpeg=False, as_colours=False):
    labels = np.zeros((40, 50), np.uint8)
    labels[5:20, 5 + number : 30] = 255 if as_jpeg else 1 + number % 3
    if as_colours:
        labels = np.stack([labels * 60, labels * 20, 255 - labels], axis=2)
    return encoded(labels, ".jpg" if as_jpeg else ".png")


def many(pattern, make):
    """Files of a pattern such as `images/{}.jpg`."""
    return {pattern.format(number): make(number) if callable(make) else make for number in NUMBERS}


def written(root, tree):
    for name, data in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return root


LAYOUTS = {
    "yolo": ("YOLO.*annotations would be lost", many("images/{}.jpg", photo) | many("labels/{}.txt", BOX)),
    "yolo nested": ("YOLO", many("images/train/{}.jpg", photo) | many("labels/train/{}.txt", BOX)),
    "yolo by split": ("YOLO", many("train/images/{}.jpg", photo) | many("train/labels/{}.txt", BOX)),
    "yolo described": (
        "YOLO",
        many("train/images/{}.jpg", photo)
        | many("train/labels/{}.txt", BOX)
        | {"data.yaml": "path: .\ntrain: train/images\nnames:\n  0: cat\n"},
    ),
    "yolo in one folder": (
        "YOLO",
        many("obj_train_data/{}.jpg", photo) | many("obj_train_data/{}.txt", BOX),
    ),
    "yolo beside": ("YOLO", many("{}.jpg", photo) | many("labels/{}.txt", BOX)),
    "yolo's rows in a folder of another name": (
        "YOLO with its labels in .*annotations",
        many("images/{}.jpg", photo) | many("annotations/{}.txt", BOX),
    ),
    "labelme in a folder": (
        "images with boxes in .*annotations",
        many("images/{}.jpg", photo) | many("annotations/{}.json", '{"shapes": []}'),
    ),
    "labels without boxes": (
        "parts of one dataset",
        many("images/{}.jpg", photo) | many("labels/{}.txt", ""),
    ),
    "coco": ("COCO", many("train2017/{}.jpg", photo) | {"annotations/x.json": json.dumps(COCO)}),
    "coco, large": (
        "COCO",
        many("images/{}.jpg", photo)
        | {
            "x.json": json.dumps({"annotations": COCO["annotations"] * 5000, "info": "x" * 200_000}),
            "y.json": "[1]",
        },
    ),
    "coco by split": (
        "COCO",
        many("train/{}.jpg", photo)
        | many("valid/{}.jpg", photo)
        | {"train/_annotations.coco.json": json.dumps(COCO)},
    ),
    "coco's images": (
        "splits, by the names",
        many("train2017/{}.jpg", photo) | many("val2017/{}.jpg", photo),
    ),
    "voc": (
        "Pascal VOC",
        many("VOCdevkit/VOC2012/JPEGImages/{}.jpg", photo)
        | many("VOCdevkit/VOC2012/Annotations/{}.xml", "<annotation></annotation>"),
    ),
    "voc masks": ("Pascal VOC", many("JPEGImages/{}.jpg", photo) | many("SegmentationClass/{}.png", mask)),
    "xml in one folder": ("Pascal VOC", many("train/{}.jpg", photo) | many("train/{}.xml", "<annotation/>")),
    "cityscapes": (
        "parts of one dataset, by the names 'leftImg8bit', 'gtFine'",
        many("leftImg8bit/train/ulm/{}_leftImg8bit.png", photo)
        | many("gtFine/train/ulm/{}_gtFine.png", mask),
    ),
    "masks": ("segmentation.*masks", many("images/{}.jpg", photo) | many("masks/{}.png", mask)),
    "masks as jpeg": (
        "segmentation",
        many("images/{}.jpg", photo) | many("masks/{}.jpg", lambda at: mask(at, as_jpeg=True)),
    ),
    "masks in colours": (
        "segmentation",
        many("images/{}.png", photo) | many("labels/{}.png", lambda at: mask(at, as_colours=True)),
    ),
    "masks by split": ("segmentation", many("train/images/{}.jpg", photo) | many("train/masks/{}.png", mask)),
    "masks by suffix": ("segmentation", many("train/{}.jpg", photo) | many("train_masks/{}_mask.png", mask)),
    "masks beside": ("segmentation", many("{}.jpg", photo) | many("{}_mask.png", mask)),
    "masks beside, by class": (
        "masks beside them in .*benign",
        many("benign/b ({}).png", photo)
        | many("benign/b ({})_mask.png", mask)
        | {"benign/b (0)_mask_1.png": mask(1)}
        | many("normal/n ({}).png", photo),
    ),
    "masks of the same names beside": ("segmentation", many("{}.jpg", photo) | many("{}.png", mask)),
    "splits within a folder": (
        r"'pets' holds 'train', 'val': .*fastload pack .*pets DEST",
        many("pets/train/cat/{}.jpg", photo) | many("pets/val/cat/{}.jpg", photo),
    ),
    "hugging face, csv": (
        r"the table .*fastload pack .*metadata\.csv DEST",
        many("{}.jpg", photo) | {"metadata.csv": "file_name,text\n0.jpg,a dog\n"},
    ),
    "hugging face, jsonl": (
        "labels in .*a table of it",
        many("train/{}.jpg", photo) | {"train/metadata.jsonl": '{"file_name": "0.jpg", "objects": []}\n'},
    ),
    "hdf5": ("HDF5", {"train.h5": "x"}),
    "heic": (r"HEIC.*convert them", {"a/1.heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"}),
}


# The layouts that are packed, with their kind: only readers of class folders refuse them.
PACKED = {
    "yolo": "yolo",
    "yolo nested": "yolo",
    "yolo by split": "yolo",
    "yolo described": "yolo",
    "yolo in one folder": "yolo",
    "yolo beside": "yolo",
    "coco": "coco",
    "coco by split": "coco",
    "voc": "voc",
    "voc masks": "voc",
    "xml in one folder": "voc",
    "masks": "masks",
    "masks as jpeg": "masks",
    "masks in colours": "masks",
    "masks by split": "masks",
    "masks by suffix": "masks",
    "masks beside": "masks",
    "masks of the same names beside": "masks",
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_layout_is_refused_as_class_folders(tmp_path, name):
    message, tree = LAYOUTS[name]
    root = written(tmp_path / "data", tree)
    with pytest.raises(SourceError, match=message) as caught:
        FolderDataset(root)
    assert f"fastload pack {root}" in str(caught.value)
    assert {source.kind for source in open_source(root).values()} == {PACKED[name]}


def test_masks_in_colours_are_refused_with_the_reason(tmp_path):
    root = written(tmp_path / "data", LAYOUTS["masks in colours"][1])
    with pytest.raises(SourceError, match=r"labels/0\.png.*colours must be converted"):
        pack(root, tmp_path / "x.fl", workers=1)


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in PACKED])
def test_layout_is_refused_everywhere_with_its_name_and_a_workaround(tmp_path, name):
    message, tree = LAYOUTS[name]
    root = written(tmp_path / "data", tree)
    for refuse in (open_source, FolderDataset, examine_data):
        with pytest.raises(SourceError, match=message) as caught:
            refuse(root)
        assert any(word in str(caught.value) for word in ("DEST", "first", "table"))
    with pytest.raises(SourceError, match=message):
        pack(root, tmp_path / "x.fl", on_error="skip")
    assert not (tmp_path / "x.fl").exists()


VAL_TWICE = {
    "class folders": {f"{split}/cat/0.jpg": photo(0) for split in ("train", "val", "valid")},
    "capitals": {f"{split}/cat/0.jpg": photo(0) for split in ("Train", "train", "val")},
    "yolo outside": {
        f"{split}/{name}": data
        for split in ("train", "val", "valid")
        for name, data in (("images/0.jpg", photo(0)), ("labels/0.txt", BOX))
    },
    "yolo inside": {
        f"{kind}/{split}/0.{suffix}": data
        for split in ("train", "val", "validation")
        for kind, suffix, data in (("images", "jpg", photo(0)), ("labels", "txt", BOX))
    },
    "yolo, of which one has no labels": {
        **{f"images/{split}/0.jpg": photo(0) for split in ("test", "testing", "train")},
        **{f"labels/{split}/0.txt": BOX for split in ("test", "train")},
    },
    "yolo described": {
        "images/0.jpg": photo(0),
        "labels/0.txt": BOX,
        "data.yaml": "train: images\nval: images\nvalid: images\nnames: [a]\n",
    },
    "coco": {
        f"{split}/{name}": data
        for split in ("train", "val", "valid")
        for name, data in (("0.jpg", photo(0)), ("a.json", json.dumps(COCO)))
    },
    "voc": {
        f"{split}/0.{suffix}": data
        for split in ("train", "training")
        for suffix, data in (("jpg", photo(0)), ("xml", "<annotation/>"))
    },
    "masks outside": {
        f"{split}/{kind}/{at}.{suffix}": make(at)
        for split in ("train", "val", "valid")
        for kind, suffix, make in (("images", "jpg", photo), ("masks", "png", mask))
        for at in NUMBERS
    },
    "masks inside": {
        f"{kind}/{split}/{at}.{suffix}": make(at)
        for split in ("train", "val", "valid")
        for kind, suffix, make in (("images", "jpg", photo), ("masks", "png", mask))
        for at in NUMBERS
    },
    "tars": {f"{split}/0.tar": b"" for split in ("train", "val", "valid")},
    "hugging face": {
        "dataset_dict.json": json.dumps({"splits": ["validation", "dev"]}),
        **{
            f"{split}/state.json": json.dumps({"_data_files": [{"filename": "0.arrow"}]})
            for split in ("validation", "dev")
        },
    },
}


@pytest.mark.parametrize("name", VAL_TWICE)
def test_two_names_for_one_split_are_refused(tmp_path, name):
    root = written(tmp_path / "data", VAL_TWICE[name])
    with pytest.raises(SourceError, match=r"for each split, got .* and .*: (rename|pack one of them:) "):
        open_source(root)


@pytest.mark.parametrize("kind", ["yolo", "voc", "masks"])
def test_a_split_without_annotations_is_told(tmp_path, kind):
    annotations = {
        "yolo": ("train/images/{}.jpg", many("train/labels/{}.txt", BOX)),
        "voc": ("train/{}.jpg", many("train/{}.xml", "<annotation/>")),
        "masks": ("train/images/{}.jpg", many("train/masks/{}.png", mask)),
    }
    images, others = annotations[kind]
    tree = many(images, photo) | others | many("test/{}.jpg", photo)
    sources = open_source(written(tmp_path / "data", tree))
    assert ("test" in sources) == (kind == "yolo")
    assert any("test" in warning for warning in sources["train"].warnings)


def test_captions_beside_images_are_left_out_and_listed(tmp_path):
    root = written(tmp_path / "data", many("a/{}.jpg", photo) | many("a/{}.txt", "a dog with 5 legs\n"))
    [source] = open_source(root).values()
    assert [entry.key for entry in source.left_out] == [f"a/{number}.txt" for number in NUMBERS]
    assert "a table with a column for each" in source.left_out[0].reason


def test_an_image_folder_in_python_is_packed_with_any_layout(tmp_path, image_folder):
    root = written(tmp_path / "data", many("images/{}.jpg", photo) | many("masks/{}.png", mask))
    result = pack(image_folder(str(root)), tmp_path / "x.fl", encode="keep", workers=1)
    assert (result.records, result.classes) == (8, ("images", "masks"))


def test_looking_for_masks_leaves_opencv_quiet(tmp_path, capfd):
    root = written(tmp_path / "data", many("images/{}.jpg", b"no image") | many("masks/{}.png", b"none"))
    assert len(open_source(root)[""]) == 4
    assert capfd.readouterr() == ("", "")
