"""Pascal VOC datasets, images with masks, and agreement with torchvision."""

import numpy as np
import pytest
import torch

from fastload import PackedDataset, SourceError, pack
from fastload.sources import open_source
from tests.folders import encoded
from tests.layouts.conformance import LayoutConformance
from tests.layouts.samples import mask, masks, photo, voc, voc_object, voc_xml, written


class TestVoc(LayoutConformance):
    def make(self, root):
        return voc(root)


class TestXmlBesideImages(LayoutConformance):
    def make(self, root):
        return written(root, {"a.jpg": photo(0), "a.xml": voc_xml(voc_object())})


class TestMasks(LayoutConformance):
    def make(self, root):
        return masks(root)


class TestMasksBySplit(LayoutConformance):
    def make(self, root):
        splits = {"train": 0, "val": 3}
        tree = {
            f"{k}/images/{at}.jpg": photo(at) for k, first in splits.items() for at in range(first, first + 3)
        }
        tree |= {
            f"{k}/masks/{at}.png": mask(at) for k, first in splits.items() for at in range(first, first + 3)
        }
        return written(root, tree)


class TestMasksBesideImages(LayoutConformance):
    def make(self, root):
        tree = {f"{at}.jpg": photo(at) for at in range(3)}
        return written(root, tree | {f"{at}_mask.png": mask(at) for at in range(3)})


def test_boxes_are_those_of_torchvision_counted_from_zero(tmp_path):
    from torchvision.datasets import VOCDetection

    root = voc(tmp_path / "data/VOCdevkit/VOC2012")
    pack(tmp_path / "data", tmp_path / "x.fl", encode="keep", workers=1)
    for split in ("train", "val"):
        mine = PackedDataset(tmp_path / f"x.fl/{split}.fl")
        theirs = VOCDetection(tmp_path / "data", year="2012", image_set=split)
        assert mine.classes == ["cat", "owl"]
        for (_, target), (_, annotation), path in zip(mine, theirs, theirs.images, strict=True):
            objects = annotation["annotation"].get("object", [])
            assert [mine.classes[label] for label in target["labels"]] == [each["name"] for each in objects]
            sides = [[float(v) for v in each["bndbox"].values()] for each in objects]
            expected = torch.tensor(sides).reshape(-1, 4) - torch.tensor([1.0, 1, 0, 0])
            assert torch.equal(target["boxes"], expected)
            assert target["difficult"].tolist() == [int(each.get("difficult", 0)) for each in objects]
            assert str(root) in path
    assert PackedDataset(tmp_path / "x.fl/train.fl")[0][1]["pose"] == ["Left"]
    assert "instances" not in PackedDataset(tmp_path / "x.fl/train.fl")[0][1]


def test_images_in_no_split_are_listed(tmp_path):
    root = voc(tmp_path / "data")
    (root / "ImageSets/Main/val.txt").unlink()
    [source] = open_source(root).values()
    assert [(entry.key, entry.is_clutter) for entry in source.left_out] == [("JPEGImages/y.jpg", True)]


def test_annotations_without_an_image_are_listed(tmp_path):
    root = voc(tmp_path / "data", has_masks=False)
    written(root, {"Annotations/none.xml": voc_xml(voc_object())})
    [left_out] = [each for source in open_source(root).values() for each in source.left_out]
    assert left_out.key.endswith("Annotations/none.xml")


@pytest.mark.parametrize(
    "pixels", [np.uint16(600) * np.eye(40, 50, dtype=np.uint16), np.eye(20, 25, dtype=np.uint8)]
)
def test_masks_of_16_bits_or_another_size_are_refused_and_no_class_of_images(tmp_path, pixels):
    masks = {f"masks/{at}.png": encoded(pixels, ".png") for at in range(4)}
    root = written(tmp_path / "data", masks | {f"images/{at}.jpg": photo(at) for at in range(4)})
    with pytest.raises(SourceError, match=r"masks/0.png: .*must have (the size|classes of 8 bits)"):
        pack(root, tmp_path / "x.fl", workers=1)


def test_an_image_without_its_mask_is_skipped(tmp_path):
    root = masks(tmp_path / "data")
    (root / "masks/2_mask.png").unlink()
    (root / "masks/9_mask.png").write_bytes(mask(9))
    result = pack(root, tmp_path / "x.fl", encode="keep", on_error="skip", workers=1)
    assert [(each.key, "mask" in each.reason) for each in result.splits[0].skipped] == [
        ("images/2.jpg", True)
    ]
    assert [entry.key for entry in result.splits[0].left_out] == ["masks/9_mask.png"]


def test_masks_are_classes_of_pixels(tmp_path):
    pack(masks(tmp_path / "data"), tmp_path / "x.fl", encode="keep", workers=1)
    _, target = PackedDataset(tmp_path / "x.fl")[3]
    assert (list(target), target["mask"].dtype, target["mask"].unique().tolist()) == (
        ["mask"],
        torch.uint8,
        [0, 1],
    )


def test_one_bit_masks_are_0_and_1(tmp_path):
    from PIL import Image

    from fastload.images.masks import decode_mask

    Image.fromarray(np.eye(16, dtype=bool)).save(tmp_path / "a.png")
    assert np.array_equal(decode_mask((tmp_path / "a.png").read_bytes()), np.eye(16))
    assert np.array_equal(decode_mask(encoded(np.full((4, 4, 3), 7, np.uint8), ".png")), np.full((4, 4), 7))
