"""Small replicas of public detection datasets, laid out as they are downloaded or exported."""

import json
import shutil

import pytest

from fastload import PackedDataset, SourceError, pack, unpack
from fastload.cli.main import main
from fastload.sources import open_source
from tests.folders import files_in
from tests.layouts.samples import coco, mask, photo, voc_object, voc_xml, written, yolo

ROW = "1 0.5 0.5 0.25 0.125\n"
XML = voc_xml(voc_object("cat"))
DARKNET = "classes = 2\ntrain = data/train.txt\nvalid = data/test.txt\nnames = data/obj.names\nbackup = x/\n"


def both(pattern: str, content, splits=("train", "valid")) -> dict:
    """Two files in the folders of each split."""
    return {pattern.format(split, at): content for split in splits for at in range(2)}


def images(pattern: str, splits=("train", "valid")) -> dict:
    return both(pattern, photo(0), splits)


def coco_json(*names: str, member: str = "file_name") -> str:
    entries = [{"id": at, "height": 40, "width": 50, member: name} for at, name in enumerate(names)]
    common = {"category_id": 2, "bbox": [5, 5, 10, 10], "area": 100, "iscrowd": 0}
    objects = [{"id": at, "image_id": at, **common} for at in range(len(names))]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    return json.dumps({"images": entries, "annotations": objects, "categories": categories})


ROBOFLOW = images("{}/images/{}.jpg") | both("{}/labels/{}.txt", ROW)
URL = "http://images.cocodataset.org/{}2017/{}{}.jpg".format
TWO = {"train": 2, "val": 2}

# The files, the records of each split, and the name of the first record's class.
DOWNLOADS = {
    "Roboflow's Darknet": (
        images("{}/{}.jpg") | both("{}/{}.txt", ROW) | both("{}/_darknet.labels", "cat\ndog\n"), TWO),
    "Darknet": (
        images("obj/{}{}.jpg") | both("obj/{}{}.txt", ROW)
        | {"obj.data": DARKNET, "obj.names": "cat\ndog\n", "train.txt": "data/obj/train0.jpg\n"
           "data/obj/train1.jpg\n", "test.txt": "data/obj/valid0.jpg\ndata/obj/valid1.jpg\n"}, TWO),
    "Darknet in a folder": (
        images("data/obj/{}{}.jpg", "a") | both("data/obj/{}{}.txt", ROW, "a")
        | {"data/obj.data": DARKNET, "data/obj.names": "cat\ndog\n",
           "data/train.txt": "data/obj/a0.jpg\ndata/obj/a1.jpg\n"}, {"train": 2}),
    "names above the labels": (
        ROBOFLOW | {f"{split}/classes.txt": "cat\ndog\n" for split in ("train", "valid")}, TWO),
    "CVAT's YOLO": (
        images("obj_train_data/{}{}.jpg", ["a"]) | both("obj_train_data/{}{}.txt", ROW, ["a"])
        | {"obj.data": DARKNET, "obj.names": "cat\ndog\n", "train.txt": "data/obj_train_data/a0.jpg\n"
           "data/obj_train_data/a1.jpg\n"}, {"train": 2}),
    "names in a file": (
        ROBOFLOW | {"d.yaml": "train: train/images\nval: valid/images\nnames: cfg/x.names\n",
                    "cfg/x.names": "cat\ndog\n"}, TWO),
    "folders of one split": (
        ROBOFLOW | {"data.yaml": "train: [train/images, valid/images]\nnames: {0: cat, 1: dog}\n"},
        {"train": 4}),
    "paths of Kaggle": (
        ROBOFLOW | {"data.yaml": "train: /kaggle/input/x/train/images\nval: /kaggle/input/x/valid/images\n"
                    "names: [cat, dog]\n"}, TWO),
    "lists below the images' folder": (
        ROBOFLOW | {"d.yaml": "train: lists/t.txt\nval: valid/images\nnames: [cat, dog]\n",
                    "lists/t.txt": "train/images/0.jpg\ntrain/images/1.jpg\n"}, TWO),
    "lists of another machine": (
        ROBOFLOW | {"d.yaml": "train: t.txt\nval: valid/images\nnames: [cat, dog]\n",
                    "t.txt": "/home/x/train/images/0.jpg\n/home/x/train/images/1.jpg\n"}, TWO),
    "paths of Windows": (
        ROBOFLOW | {"d.yaml": "train: t.txt\nval: valid\\images\nnames: [cat, dog]\n",
                    "t.txt": "C:\\x\\train\\images\\0.jpg\nC:\\x\\train\\images\\1.jpg\n"}, TWO),
    "a description in a folder": (
        {f"archive/{path}": data for path, data in ROBOFLOW.items()}
        | {"archive/cfg/d.yaml": "path: ..\ntrain: train/images\nval: valid/images\nnames: [cat, dog]\n"},
        TWO),
    "COCO in folders of splits": (
        images("images/{}/{}.jpg")
        | both("annotations/{}/instances.json", coco_json("0.jpg", "1.jpg")), TWO),
    "COCO in a folder": (
        images("data/pictures/{}{}.jpg")
        | {f"data/meta/{split}.json": coco_json(f"{split}0.jpg", f"{split}1.jpg")
           for split in ("train", "valid")}, TWO),
    "names of another machine": (
        images("{0}/patch0/{0}{1}.jpg")
        | {f"objv2_{split}.json": coco_json(*(f"images/v1/patch0/{split}{at}.jpg" for at in range(2)))
           for split in ("train", "valid")}, TWO),
    "absolute names": (
        images("images/{}{}.jpg", "a") | {"x.json": coco_json("/home/x/a0.jpg", "/home/x/a1.jpg")}, {"": 2}),
    "LVIS": (
        images("{0}2017/{0}{1}.jpg", ("train", "val"))
        | {f"lvis_v1_{split}.json": coco_json(*(URL(split, split, at) for at in range(2)), member="coco_url")
           for split in ("train", "val")}, TWO),
    "LVIS of both folders": (
        images("{0}2017/{0}{1}.jpg", ("train", "val"))
        | {"lvis_v1_val.json": coco_json(
            *(URL(split, split, at) for at in range(2) for split in ("train", "val")), member="coco_url")},
        {"": 4}),
    "LVIS in one folder": (
        images("images/{}{}.jpg", ["a"])
        | {"lvis.json": coco_json(URL("val", "a", 0), URL("val", "a", 1), member="coco_url")}, {"": 2}),
    "BCCD": (
        images("BCCD/JPEGImages/{}{}.jpg") | both("BCCD/Annotations/{}{}.xml", XML)
        | {f"BCCD/ImageSets/Main/{split}.txt": f"{split}0\n{split}1\n" for split in ("train", "valid")}, TWO),
    "annots": (images("images/{}{}.jpg") | both("annots/{}{}.xml", XML), {"": 4}),
    "Annotation": (images("Images/{}{}.jpg") | both("Annotation/{}{}.xml", XML), {"": 4}),
    "xml": (images("JPEGImages/{}{}.jpg") | both("xml/{}{}.xml", XML), {"": 4}),
    "lists beside folders of VOC": (
        images("images/{}{}.jpg") | both("annotations/{}{}.xml", XML)
        | {f"{split}.txt": f"{split}0\n{split}1.jpg\n" for split in ("train", "valid")}, TWO),
    "labels of VOC": (images("{}/images/{}.jpg") | both("{}/labels/{}.xml", XML), TWO),
    "other names": (images("pics/{}{}.jpg") | both("boxes_of_voc/{}{}.xml", XML), {"": 4}),
    "folders within folders": (
        images("Data/DET/{}/n1/{}.JPEG") | both("Annotations/DET/{}/n1/{}.xml", XML), TWO),
    "XML in class folders": (images("{}/{}.jpg", "ab") | both("{}/{}.xml", XML, "ab"), {"": 4}),
}  # fmt: skip


@pytest.mark.parametrize("name", DOWNLOADS)
def test_downloads_are_read_with_all_of_their_files(tmp_path, name):
    tree, records = DOWNLOADS[name]
    sources = open_source(written(tmp_path / "data", tree))
    assert {split: len(source) for split, source in sources.items()} == records
    first = next(iter(sources.values()))
    assert first.left_out == ()
    assert first.account.files == len({*tree})
    for source in sources.values():
        labels = source.read(0).values["labels"]
        assert [source.classes[label] for label in labels] == ["cat" if source.kind == "voc" else "dog"]


AMBIGUOUS = {
    "YOLO": images("images/{1}.jpg", "a") | both("labels/{1}.txt", ROW, "a")
    | {"data.yaml": "train: /x/train/images\nval: /x/valid/images\nnames: [cat, dog]\n"},
    "COCO": images("images/{1}.jpg", "a")
    | {f"{split}.json": coco_json(f"{split}/0.jpg", f"{split}/1.jpg") for split in ("train", "val")},
}  # fmt: skip


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_folders_of_another_machine_are_not_thrown_together(tmp_path, name):
    with pytest.raises(SourceError, match=r"in the folders that (it|its json) names"):
        open_source(written(tmp_path / "data", AMBIGUOUS[name]))


def test_xml_beside_masks_is_one_of_two_layouts(tmp_path):
    tree = images("images/{}{}.jpg") | both("annotations/xmls/{}{}.xml", XML)
    root = written(tmp_path / "data", tree | both("annotations/trimaps/{}{}.png", mask(0)))
    with pytest.raises(SourceError, match=r"annotations/xmls.*: choose with --layout voc or --layout masks"):
        open_source(root)
    assert len(open_source(root, layout="voc")[""]) == 4


def test_labelme_with_its_image_before_its_objects_is_refused(tmp_path):
    content = json.dumps(
        {"imageData": "A" * 100_000, "shapes": [{"label": "cat", "points": [[1, 2], [3, 4]]}]}
    )
    root = written(tmp_path / "data", images("{}{}.jpg") | both("{}{}.json", content))
    with pytest.raises(SourceError, match="boxes"):
        open_source(root)


def packed(root, tmp_path, *options) -> int:
    return main(["pack", str(root), str(tmp_path / "x.fl"), "--overwrite", *options])


def test_a_split_without_labels_needs_attention(tmp_path, capsys):
    text = "train: train/images\nval: valid/images\ntest: test/images\nnames: [cat, dog]\n"
    tree = ROBOFLOW | images("test/images/{}{}.jpg", "t") | {"data.yaml": text}
    root = written(tmp_path / "data", tree)
    assert packed(root, tmp_path) == 0  # the test split may have none
    shutil.rmtree(root / "valid/labels")
    for path in (root, root / "data.yaml"):
        assert packed(path, tmp_path) == 1
        assert "none of the 2 images of its split val has a label file, such as" in capsys.readouterr().err
        assert packed(path, tmp_path, "--layout", "yolo") == 0
    written(root, {"valid/labels/0.txt": ""})
    assert packed(root, tmp_path) == 0


def test_trainval_beside_val_is_divided(tmp_path):
    tree = images("JPEGImages/{}{}.jpg") | both("Annotations/{}{}.xml", XML)
    lists = {"trainval": "train0\ntrain1\nvalid0\nvalid1\n", "val": "valid0\nvalid1\n"}
    tree |= {f"ImageSets/Main/{name}.txt": text for name, text in lists.items()}
    sources = open_source(written(tmp_path / "data", tree))
    assert [sources["train"].key(at) for at in range(2)] == ["JPEGImages/train0.jpg", "JPEGImages/train1.jpg"]
    assert len(sources["val"]) == 2
    assert "train is trainval.txt without the images of val.txt" in sources["train"].warnings[0]
    assert sources["train"].left_out == ()


def test_the_account_is_that_of_the_folders_that_a_description_names(tmp_path):
    root = yolo(tmp_path / "data")
    text = (root / "data.yaml").read_text()
    (root / "data.yaml").unlink()
    written(
        tmp_path, {"cfg/x.yaml": f"path: {root}\n{text}", "data/images/test/9.jpg": photo(0), "odd.jpg": ""}
    )
    for path in (tmp_path / "cfg", tmp_path / "cfg/x.yaml"):
        source = open_source(path)["train"]
        assert (source.account.files, source.account.records) == (8, 4)
        assert [entry.key for entry in source.left_out] == ["images/test/9.jpg"]
    pack(tmp_path / "cfg/x.yaml", tmp_path / "x.fl", encode="keep", workers=1)
    unpack(tmp_path / "x.fl", tmp_path / "back")
    root.rename(tmp_path / "elsewhere")
    again = open_source(tmp_path / "back/x.yaml")
    assert [again["train"].key(at) for at in range(2)] == ["images/train/0.jpg", "images/train/1.jpg"]
    assert again["train"].classes == ("cat", "dog", "owl")


def test_folders_in_two_places_have_one_account(tmp_path):
    tree = images("{}/images/{}.jpg", "ab") | both("{}/labels/{}.txt", ROW, "ab") | {"c/odd.jpg": photo(0)}
    text = "train: ../a/images\nval: ../b/images\nnames: [cat, dog]\n"
    source = open_source(written(tmp_path, tree | {"cfg/x.yaml": text}) / "cfg/x.yaml")["train"]
    assert (source.account.files, source.account.records, source.left_out) == (9, 4, ())
    assert source.key(0) == "a/images/0.jpg"


def test_a_json_that_is_named_has_an_account(tmp_path):
    root = written(coco(tmp_path / "data"), {"val2017/d.jpg": photo(4), "train2017/e.jpg": photo(5)})
    json_path = root / "annotations/instances_val2017.json"
    for path in (json_path, root / "annotations"):
        source = open_source(path)[""]
        assert (source.account.files, source.account.records) == (5, 3)
        assert [(entry.key, entry.is_clutter) for entry in source.left_out] == [("val2017/d.jpg", False)]
    shutil.copy(json_path, root / "annotations/other.json")  # may list the other images
    assert [entry.is_clutter for entry in open_source(json_path)[""].left_out] == [True]
    pack(json_path, tmp_path / "x.fl", encode="keep", workers=1)
    unpack(tmp_path / "x.fl", tmp_path / "back")
    expected = {*files_in(root)} - {b"val2017/d.jpg", b"train2017/e.jpg", b"annotations/other.json"}
    assert {*files_in(tmp_path / "back")} == expected


def test_masks_of_objects_come_back(tmp_path):
    tree = images("JPEGImages/{}{}.jpg", "a") | both("SegmentationClass/{}{}.png", mask(0), "a")
    root = written(tmp_path / "data", tree | both("SegmentationObject/{}{}.png", mask(1), "a"))
    pack(root, tmp_path / "x.fl", encode="keep", workers=1)
    assert {*PackedDataset(tmp_path / "x.fl")[0][1]} == {"mask"}
    unpack(tmp_path / "x.fl", tmp_path / "back")
    assert files_in(tmp_path / "back") == files_in(root)


def test_an_image_beside_a_kit_does_not_hide_its_lists(tmp_path):
    tree, records = DOWNLOADS["BCCD"]
    sources = open_source(written(tmp_path / "data", tree | {"example.jpg": photo(0)}))
    assert {split: len(source) for split, source in sources.items()} == records
    assert [entry.key for entry in sources["train"].left_out] == ["example.jpg"]
