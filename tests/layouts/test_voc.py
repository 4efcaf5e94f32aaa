"""Pascal VOC datasets, and agreement with torchvision."""

import torch

from fastload import PackedDataset, pack
from fastload.sources import open_source
from tests.layouts.conformance import LayoutConformance
from tests.layouts.samples import photo, voc, voc_object, voc_xml, written


class TestVoc(LayoutConformance):
    def make(self, root):
        return voc(root)


class TestXmlBesideImages(LayoutConformance):
    def make(self, root):
        return written(root, {"a.jpg": photo(0), "a.xml": voc_xml(voc_object())})


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
