"""YOLO's labels, lists and names of classes in all their places; two readings are refused."""

import numpy as np
import pytest

from fastload import SourceError
from fastload.sources import open_source
from fastload.sources.left_out import MOST_LISTED
from tests.folders import encoded
from tests.layouts.samples import SIZE, photo, written

BOX = "0 0.5 0.5 0.25 0.125\n"


@pytest.mark.parametrize("place", ["classes.txt", "labels/classes.txt", "obj.names"])
def test_names_of_classes_come_from_classes_txt(tmp_path, place):
    tree = {
        "images/a.jpg": photo(0),
        "labels/a.txt": "1 0.5 0.5 0.25 0.125\n",
        place: "\ufeffcat\r\nbig dog\r\n",
    }
    source = open_source(written(tmp_path / "data", tree))[""]
    assert (source.classes, source.left_out) == (("cat", "big dog"), ())


def test_two_lists_of_classes_that_differ_are_refused(tmp_path):
    tree = {
        "images/a.jpg": photo(0),
        "labels/a.txt": BOX,
        "classes.txt": "a\nb",
        "labels/classes.txt": "b\na",
    }
    with pytest.raises(SourceError, match=r"labels/classes.txt: must have the names of .*classes.txt"):
        open_source(written(tmp_path / "data", tree))


@pytest.mark.parametrize(
    "text", ["\ufeff2 0.5 0.5 0.25 0.125", "2.0 0.5 0.5 0.25 0.125", "0 .5 .5 .1 .1\r2 .5 .5 .1 .1"]
)
def test_classes_without_names_are_counted_as_they_are_read(tmp_path, text):
    source = open_source(written(tmp_path / "data", {"images/a.jpg": photo(0), "labels/a.txt": text}))[""]
    assert source.classes == ("0", "1", "2")
    assert {*source.read(0).values} == {"boxes", "labels"}


@pytest.mark.parametrize("labels", ["labels", "images"])
def test_labels_and_lists_of_other_splits_in_one_folder_are_not_left_out(tmp_path, labels):
    tree = {
        "images/a.jpg": photo(0),
        "images/b.jpg": photo(1),
        f"{labels}/a.txt": BOX,
        f"{labels}/b.txt": BOX,
        "images/train.txt": "a.jpg\n",
        "images/val.txt": "./b.jpg\n",
        "data.yaml": "train: images/train.txt\nval: images/val.txt\nnames: [cat, dog]\n",
    }
    sources = open_source(written(tmp_path / "data", tree) / "data.yaml")
    assert [(split, len(each), each.left_out) for split, each in sources.items()] == [
        ("train", 1, ()),
        ("val", 1, ()),
    ]


def test_label_files_that_are_not_read_are_listed(tmp_path):
    tree = {"images/a.jpg": photo(0), "images/b.jpg": photo(1), "labels/a.txt": BOX, "labels/b.TXT": BOX}
    (left_out,) = open_source(written(tmp_path / "data", tree))[""].left_out
    assert left_out.key == "labels/b.TXT"


def test_very_many_label_files_that_are_not_read_are_counted(tmp_path):
    tree = {"images/a.jpg": photo(0), "labels/a.txt": BOX}
    tree |= {f"labels/other{number}.txt": BOX for number in range(MOST_LISTED + 1)}
    (left_out,) = open_source(written(tmp_path / "data", tree))[""].left_out
    assert (left_out.key, left_out.files) == ("**/*.txt", MOST_LISTED + 1)


def test_a_list_of_images_may_begin_with_a_byte_order_mark(tmp_path):
    text = "train: list.txt\nnames: [a]"
    tree = {"a.jpg": photo(0), "a.txt": BOX, "list.txt": "\ufeffa.jpg\r\n", "data.yaml": text}
    assert len(open_source(written(tmp_path / "data", tree))["train"]) == 1


def test_a_data_yaml_without_names_is_refused(tmp_path):
    tree = {"images/a.jpg": photo(0), "labels/a.txt": BOX, "data.yaml": "train: images\nval: images\n"}
    with pytest.raises(SourceError, match="must have names"):
        open_source(written(tmp_path / "data", tree))


SPLIT = {"images/a.jpg": photo(0), "images/b.jpg": photo(1), "labels/a.txt": BOX}


def test_labels_in_a_second_place_are_used_where_the_first_has_none(tmp_path):
    tree = SPLIT | {"images/b.txt": "1 0.5 0.5 0.25 0.125\n", "images/a.txt": "a dog\n"}
    source = open_source(written(tmp_path / "data", tree))[""]
    assert [source.read(at).values["labels"].tolist() for at in range(2)] == [[0], [1]]
    assert [(entry.key, entry.is_clutter) for entry in source.left_out] == [("images/a.txt", False)]


def test_different_labels_of_one_image_in_two_places_are_refused(tmp_path):
    root = written(tmp_path / "data", SPLIT | {"images/a.txt": "1 0.5 0.5 0.25 0.125\n"})
    with pytest.raises(
        SourceError, match=r"labels/a.txt: must be the only label file .*images/a.txt: remove"
    ):
        open_source(root)
    (root / "images/a.txt").write_text(BOX)
    [left_out] = open_source(root)[""].left_out
    assert (left_out.key, left_out.is_clutter) == ("images/a.txt", True)


def test_splits_that_a_description_does_not_name_are_listed(tmp_path):
    tree = {f"images/{split}/a.jpg": photo(0) for split in ("train", "test")}
    tree |= {f"labels/{split}/a.txt": BOX for split in ("train", "test")}
    root = written(tmp_path / "data", tree | {"data.yaml": "train: images/train\nnames: [cat]\n"})
    (tmp_path / "elsewhere").mkdir()
    text = f"path: {root}\ntrain: images/train\nnames: [cat]\n"
    written(tmp_path / "elsewhere", {"x.yaml": text, "y.yml": "lr: 1\n"})
    for path in (root, root / "data.yaml", tmp_path / "elsewhere/x.yaml", tmp_path / "elsewhere"):
        sources = open_source(path)
        left_out = {entry.key for entry in sources["train"].left_out if not entry.is_clutter}
        assert left_out - {"y.yml"} == {"images/test/a.jpg", "labels/test/a.txt"}
        assert [*sources] == ["train"]


def test_a_description_under_another_name_of_its_folder_is_read_there(tmp_path):
    root = written(
        tmp_path / "data", SPLIT | {"data.yaml": f"path: {tmp_path}/data\ntrain: images\nnames: [a]\n"}
    )
    (tmp_path / "link").symlink_to(root)
    source = open_source(tmp_path / "link")["train"]
    assert (source.left_out, source.account.records) == ((), 2)


def test_a_line_of_a_list_that_is_no_image_is_refused(tmp_path):
    tree = SPLIT | {"train.txt": "images/a.jpg\nimages/b\n", "data.yaml": "train: train.txt\nnames: [a]\n"}
    with pytest.raises(SourceError, match=r"train.txt, line 2: must be the path of an image.*'images/b'"):
        open_source(written(tmp_path / "data", tree))


def test_lists_of_splits_without_a_description_are_refused_unless_they_agree_with_the_folders(tmp_path):
    root = written(tmp_path / "data", SPLIT | {"train.txt": "x/a.jpg\n", "valid.txt": "x/b.jpg\n"})
    with pytest.raises(SourceError, match=r"data.yaml .*: write one with train: train.txt, val: valid.txt"):
        open_source(root)
    (root / "valid.txt").unlink()
    (root / "train.txt").write_text("x/a.jpg\nx/b.jpg\n")
    assert open_source(root)[""].left_out == ()


def test_splits_of_darknet_are_all_packed(tmp_path):
    tree = {f"obj_{split}_data/{split}.{suffix}": data for split in ("train", "valid")
            for suffix, data in (("jpg", photo(0)), ("txt", BOX))}  # fmt: skip
    tree |= {
        "obj.names": "cat\n",
        "obj.data": "classes = 1\n",
        "train.txt": "data/obj_train_data/train.jpg\n",
    }
    sources = open_source(written(tmp_path / "data", tree))
    assert {split: len(source) for split, source in sources.items()} == {"train": 1, "val": 1}
    assert [(entry.key, entry.is_clutter) for entry in sources["train"].left_out] == [("obj.data", True)]


@pytest.mark.parametrize(("names", "is_clutter"), [("cat\n", True), ("dog\n", False)])
def test_classes_txt_beside_a_description_needs_attention_if_it_differs(tmp_path, names, is_clutter):
    tree = SPLIT | {"data.yaml": "train: images\nnames: [cat]\n", "classes.txt": names}
    source = open_source(written(tmp_path / "data", tree))["train"]
    assert source.classes == ("cat",)
    assert [(entry.key, entry.is_clutter) for entry in source.left_out] == [("classes.txt", is_clutter)]


@pytest.mark.parametrize("further", [{}, {"data.yaml": "train: train\nnames: [cat]\n"}])
def test_labels_in_a_folder_of_another_name_are_refused(tmp_path, further):
    tree = {"train/a.jpg": photo(0), "train_labels/a.txt": BOX}
    with pytest.raises(
        SourceError, match=r"YOLO with its labels in .*train_labels: move|must have label files"
    ):
        open_source(written(tmp_path / "data", tree | further))


def test_two_masks_of_one_image_are_refused(tmp_path):
    blank = encoded(np.zeros(SIZE, np.uint8), ".png")
    root = written(tmp_path / "data", SPLIT | {"masks/a.png": blank, "masks/a.bmp": blank})
    with pytest.raises(SourceError, match=r"a.png: must be the only mask of its image, got .*a.bmp too"):
        open_source(root)
