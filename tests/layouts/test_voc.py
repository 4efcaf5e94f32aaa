"""Pascal VOC datasets, images with masks, and agreement with torchvision."""

import numpy as np
import pytest
import torch

from fastload import PackedDataset, SourceError, pack
from fastload.sources import open_source
from tests.folders import encoded, pixels
from tests.layouts.conformance import LayoutConformance
from tests.layouts.samples import SIZE, mask, photo, voc, voc_object, voc_xml, written


class TestVoc(LayoutConformance):
    def make(self, root):
        return voc(root)


class TestXmlBesideImages(LayoutConformance):
    def make(self, root):
        return written(root, {"a.jpg": photo(0), "a.xml": voc_xml(voc_object())})


class TestXmlInAFolder(LayoutConformance):
    def make(self, root):
        tree = {
            f"images/{split}/{split} 1.png": encoded(pixels(0, 40, 50), ".png") for split in ("train", "val")
        }
        xml = {f"annotations/{split}/{split} 1.xml": voc_xml(voc_object()) for split in ("train", "val")}
        return written(root, tree | xml)


class TestTrainvalAndTest(LayoutConformance):
    def make(self, root):
        return kit(root, {"Main/trainval": ["a", "b.x"], "Main/test": ["c 1"]})


class TestMasksOfOtherFormats(LayoutConformance):
    def make(self, root):
        tree = {f"JPEGImages/{stem}.jpg": photo(0) for stem in "ab"}
        tree |= {
            f"SegmentationClass/{stem}.bmp": encoded(np.eye(*SIZE, dtype=np.uint8), ".bmp") for stem in "ab"
        }
        return written(root, tree | {"ImageSets/Segmentation/train.txt": "a\nb\n"})


def kit(root, lists):
    """Write a dataset with the lists, an image and annotations for each name in them."""
    stems = {line.removesuffix(".jpg") for lines in lists.values() for line in lines}
    tree = {f"JPEGImages/{stem}.jpg": photo(0) for stem in stems}
    tree |= {f"Annotations/{stem}.xml": voc_xml(voc_object()) for stem in stems}
    tree |= {f"ImageSets/{name}.txt": "".join(f"{line}\n" for line in lines) for name, lines in lists.items()}
    return written(root, tree)


SPLITS = {
    "trainval beside test": ({"Main/trainval": "abcd", "Main/test": "ef"}, {"train": "abcd", "test": "ef"}),
    "trainval alone": ({"Main/trainval": "ab"}, {"train": "ab"}),
    "trainval beside its parts": (
        {"Main/train": "a", "Main/val": "bc", "Main/trainval": "abc", "Main/test": "d"},
        {"train": "a", "val": "bc", "test": "d"},
    ),
    "valid": ({"Main/train": "ab", "Main/valid": "c"}, {"train": "ab", "val": "c"}),
    "Training and validation": ({"Main/Training": "ab", "Main/validation": "c"}, {"train": "ab", "val": "c"}),
    "lists of masks alone": (
        {"Segmentation/train": "a", "Segmentation/val": "b"},
        {"train": "a", "val": "b"},
    ),
    "lists in ImageSets": ({"train": "a", "test": "b"}, {"train": "a", "test": "b"}),
    "an empty test": ({"Main/train": "a", "Main/test": ""}, {"train": "a"}),
    "names with spaces": (
        {"Main/train": ["IMG 1", "IMG 2 (1)"], "Main/val": ["IMG 3"]},
        {"train": ["IMG 1", "IMG 2 (1)"], "val": ["IMG 3"]},
    ),
    "names that end in numbers": ({"Main/train": ["a 1", "a -1"]}, {"train": ["a 1", "a -1"]}),
    "names with suffixes": (
        {"Main/train": ["IMG 1.jpg"], "Main/val": ["b"]},
        {"train": ["IMG 1"], "val": ["b"]},
    ),
    "one list of all images": ({"Main/default": "ab"}, {"": "ab"}),
}


@pytest.mark.parametrize("name", SPLITS)
def test_splits_are_those_of_the_lists(tmp_path, name):
    lists, splits = SPLITS[name]
    sources = open_source(kit(tmp_path / "data", lists))
    assert {split: keys(source) for split, source in sources.items()} == {
        split: [f"JPEGImages/{stem}.jpg" for stem in stems] for split, stems in splits.items()
    }
    account = next(iter(sources.values())).account
    assert (account.left_out, account.files) == (0, account.records + account.annotations)


def keys(source):
    return [source.key(at) for at in range(len(source))]


CONTRADICTIONS = {
    "trainval beyond its parts": (
        {"Main/train": "a", "Main/val": "b", "Main/trainval": "abc"},
        r"c\.jpg.*alone",
    ),
    "trainval beyond train": (
        {"Main/train": "a", "Main/trainval": "ab"},
        r"list in trainval.txt .* train.txt",
    ),
    "val twice": ({"Main/train": "a", "Main/val": "b", "Main/valid": "b"}, "one name for each split"),
    "trainval twice": ({"Main/trainval": "a", "Main/train_val": "b"}, "in one of them alone"),
    "empty lists": ({"Main/train": "", "Main/val": "", "Layout/x": "a"}, "only empty ones"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_lists_that_contradict_each_other_are_refused(tmp_path, name):
    lists, message = CONTRADICTIONS[name]
    with pytest.raises(SourceError, match=message):
        open_source(kit(tmp_path / "data", lists))


def test_a_number_behind_a_name_is_no_part_of_a_list_of_a_split(tmp_path):
    root = written(kit(tmp_path / "data", {"Main/train": "ab"}), {"ImageSets/Main/train.txt": "a 1\nb -1\n"})
    with pytest.raises(SourceError, match=r"train.txt: must list images of JPEGImages, got 'a 1': add"):
        open_source(root)


def test_which_lists_decide_is_told_and_what_only_the_others_name_is_listed(tmp_path):
    root = kit(
        tmp_path / "data", {"Main/train": "ab", "Segmentation/train": "bc", "Action/jumping_val": ["d  1"]}
    )
    tree = {f"SegmentationClass/{stem}.png": mask(0) for stem in "bc"}
    written(root, tree | {f"JPEGImages/{stem}.jpg": photo(0) for stem in "de"})
    [source] = open_source(root).values()
    assert keys(source) == ["JPEGImages/a.jpg", "JPEGImages/b.jpg"]
    assert any(
        "ImageSets/Main decide" in warning and "Segmentation" in warning for warning in source.warnings
    )
    left_out = {entry.key: entry.is_clutter for entry in source.left_out}
    assert left_out["SegmentationClass/c.png"] is False
    assert left_out["ImageSets/Segmentation/train.txt"] is True
    images = {stem: left_out[f"JPEGImages/{stem}.jpg"] for stem in "cde"}
    assert images == {"c": True, "d": True, "e": False}


@pytest.mark.parametrize(
    ("lists", "are_clutter"),
    [
        ({"Main/train": "ab", "Main/cat_train": ["a  1", "b -1"]}, [True]),
        ({"Main/cat_train": ["a  1", "b -1"]}, [False]),
        ({"Main/train": "ab", "Main/fold1": "a"}, [False]),
        ({"Main/fold1": "a", "Main/fold2": "b"}, [False, False]),
        ({"Layout/train": ["a 1", "b 2"]}, [False]),
    ],
)
def test_lists_that_are_not_read_need_attention_unless_they_are_of_one_class(tmp_path, lists, are_clutter):
    root = kit(tmp_path / "data", {"x": "ab"})
    (root / "ImageSets/x.txt").unlink()
    written(root, {f"ImageSets/{name}.txt": "\n".join(lines) for name, lines in lists.items()})
    [source] = open_source(root).values()
    assert keys(source) == ["JPEGImages/a.jpg", "JPEGImages/b.jpg"]
    assert [entry.is_clutter for entry in source.left_out] == are_clutter


def test_two_images_of_one_name_are_refused_unless_the_list_gives_the_suffix(tmp_path):
    root = written(kit(tmp_path / "data", {"Main/train": "ab"}), {"JPEGImages/a.png": photo(0)})
    with pytest.raises(SourceError, match=r"'a', which may be 'JPEGImages/a.jpg', 'JPEGImages/a.png': give"):
        open_source(root)
    written(root, {"ImageSets/Main/train.txt": "a.png\nb\n"})
    [source] = open_source(root).values()
    assert keys(source) == ["JPEGImages/a.png", "JPEGImages/b.jpg"]
    assert [(entry.key, entry.is_clutter) for entry in source.left_out] == [("JPEGImages/a.jpg", False)]
    (root / "ImageSets/Main/train.txt").unlink()
    with pytest.raises(SourceError, match="one file named 'a'"):
        open_source(root)


def test_two_years_of_voc_are_refused_with_the_commands(tmp_path):
    for year in ("VOC2007", "VOC2012"):
        kit(tmp_path / "VOCdevkit" / year, {"Main/train": "a"})
    with pytest.raises(
        SourceError, match=r"VOC2007 and .*pack .*VOC2007 DEST', 'fastload pack .*VOC2012 DEST'"
    ):
        open_source(tmp_path)


def test_the_development_kit_is_clutter(tmp_path):
    kit(tmp_path / "VOCdevkit/VOC2007", {"Main/train": "a", "Main/val": "b"})
    written(
        tmp_path / "VOCdevkit", {"VOCcode/x.m": "x", "viewanno.m": "x", "devkit_doc.pdf": "x", "odd.txt": "x"}
    )
    sources = open_source(tmp_path)
    assert {split: len(source) for split, source in sources.items()} == {"train": 1, "val": 1}
    left_out = {entry.key: entry.is_clutter for entry in sources["train"].left_out}
    assert [key for key, is_clutter in left_out.items() if not is_clutter] == ["VOCdevkit/odd.txt"]
    assert len(left_out) == 4


IN_FOLDERS = {
    "images and annotations": ({"images/a.png", "annotations/a.xml"}, {"": ["images/a.png"]}),
    "other names": ({"Imgs/a.jpg", "XML/a.XML"}, {"": ["Imgs/a.jpg"]}),
    "images beside the folder": ({"a.jpg", "Annotations/a.xml"}, {"": ["a.jpg"]}),
    "splits outside": (
        {"train/images/a.jpg", "train/annotations/a.xml", "valid/images/b.jpg", "valid/annotations/b.xml"},
        {"train": ["train/images/a.jpg"], "val": ["valid/images/b.jpg"]},
    ),
    "splits in the names": (
        {f"JPEGImages-{path}.jpg" for path in ("trainval/a", "test/b", "test/c")}
        | {f"Annotations/boxes/{name}.xml" for name in "abc"},
        {"train": ["JPEGImages-trainval/a.jpg"], "test": ["JPEGImages-test/b.jpg", "JPEGImages-test/c.jpg"]},
    ),
    "splits beside their boxes": (
        {"train/a.jpg", "Valid/b.jpg", "annotations/a.xml", "annotations/b.xml"},
        {"train": ["train/a.jpg"], "val": ["Valid/b.jpg"]},
    ),
    "splits beside": (
        {"train/a.jpg", "train/a.xml", "test/b.jpg", "test/b.xml"},
        {"train": ["train/a.jpg"], "test": ["test/b.jpg"]},
    ),
}


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_xml_files_in_folders_are_read_without_jpegimages(tmp_path, name):
    paths, splits = IN_FOLDERS[name]
    tree = {path: voc_xml(voc_object()) if path.lower().endswith(".xml") else photo(0) for path in paths}
    sources = open_source(written(tmp_path / "data", tree))
    assert {split: keys(source) for split, source in sources.items()} == splits
    assert {source.kind for source in sources.values()} == {"voc"}
    assert all(source.read(0).values["labels"].tolist() == [0] for source in sources.values())
    first = next(iter(sources.values()))
    assert (first.account.left_out, first.warnings) == (0, ())


def test_xml_files_in_two_folders_are_refused(tmp_path):
    tree = {"images/a.jpg": photo(0)}
    tree |= dict.fromkeys(["images/a.xml", "annotations/a.xml"], voc_xml(voc_object()))
    with pytest.raises(SourceError, match=r"in one folder, got .*images', .*annotations'"):
        open_source(written(tmp_path / "data", tree))


@pytest.mark.parametrize("second", ["b", "a"])
def test_images_in_two_folders_of_no_split_are_refused(tmp_path, second):
    tree = {"one/a.jpg": photo(0), f"two/{second}.jpg": photo(1)}
    tree |= dict.fromkeys(["annotations/a.xml", "annotations/b.xml"], voc_xml(voc_object()))
    with pytest.raises(SourceError, match=r"in one folder, or in folders named .*, got .*one', .*two'"):
        open_source(written(tmp_path / "data", tree))


@pytest.mark.parametrize("annotations", ["annotations/{}/0.xml", "labels/{}/0.txt"])
def test_splits_under_other_names_are_refused_and_not_merged(tmp_path, annotations):
    text = voc_xml(voc_object()) if annotations.endswith("xml") else "0 0.5 0.5 0.25 0.125\n"
    tree = {f"images/{split}/0.jpg": photo(0) for split in ("train2017", "val2017")}
    tree |= {annotations.format(split): text for split in ("train2017", "val2017")}
    with pytest.raises(SourceError, match="named train, val and test, got 'train2017', 'val2017': rename"):
        open_source(written(tmp_path / "data", tree))


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
    assert [(entry.key, entry.is_clutter) for entry in source.left_out] == [
        ("JPEGImages/y.jpg", False),
        ("Annotations/y.xml", False),
    ]


def test_annotations_without_an_image_are_listed(tmp_path):
    root = voc(tmp_path / "data", has_masks=False)
    written(root, {"Annotations/none.xml": voc_xml(voc_object())})
    [left_out] = [each for source in open_source(root).values() for each in source.left_out]
    assert left_out.key.endswith("Annotations/none.xml")
