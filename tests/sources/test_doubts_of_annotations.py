"""Images with annotations or tables beside them that are not read are refused, with what to do instead."""

import re
import subprocess

import cv2
import numpy as np
import pytest

from fastload import SourceError, pack
from fastload.sources import open_source
from tests.sources.test_layouts import NUMBERS, many, photo, written

# Annotations in no layout that is read: a file, its text, and the program and the step of the message.
UNREAD = {
    "VQA": ("annotations.json", '{"annotations": [{"image_id": 0, "question_id": 1}]}', "VQA", "table"),
    "DOTA": (
        "labelTxt/{}.txt",
        "imagesource:x\ngsd:0.1\n1 2 30 2 30 20 1 20 plane 0\n",
        "DOTA",
        "convert_dota",
    ),
    "VisDrone": ("annotations/{}.txt", "6,8,20,11,0,0,0,0\n4,11,26,7,1,4,0,0\n", "VisDrone", "Ultralytics"),
    "BDD100K": ("labels/det.json", '[{"name": "0.jpg", "labels": [{"box2d": {}}]}]', "BDD100K", "to_coco"),
    "xView": ("train.geojson", '{"type": "FeatureCollection"}', "GeoJSON", "table .path, xmin"),
    "CVAT": ("annotations.xml", "<annotations>\n<version>1.1</version></annotations>", "CVAT", "export"),
    "Label Studio": (
        "p.json",
        '[{"id": 1, "annotations": [{"id": 2, "result": []}]}]',
        "Label Studio",
        "export",
    ),
    "Datumaro": (
        "annotations/default.json",
        '{"categories": {}, "items": [{"id": "0", "annotations": []}]}',
        "Datumaro",
        "export",
    ),
    "KITTI": ("label_2/{}.txt", "Car 0.0 0 -1.5 5 6 9 19 2 2 1 0.4 1.4 69 -1\n", "KITTI", "table"),
}


def test_boxes_of_videos_and_in_class_folders_are_refused(tmp_path):
    trees = {
        "GOT-10k": many("train/s{}/1.jpg", photo) | many("train/s{}/groundtruth.txt", "3.0,4.0,10,12\n"),
        "OTB": many("v{}/img/1.jpg", photo) | many("v{}/groundtruth_rect.txt", "3\t4\t10\t12\n"),
        "OIDv4": many("train/Apple/{}.jpg", photo) | many("train/Apple/Label/{}.txt", "Apple 3 4 20 30\n"),
    }
    for name, tree in trees.items():
        root = written(tmp_path / name, tree)
        with pytest.raises(SourceError, match=r"images with boxes in .*table .path, xmin, ymin, xmax"):
            open_source(root)
        assert open_source(root, layout="classes")


def test_captions_that_name_images_by_numbers_are_no_class_folder(tmp_path):
    rows = "".join(f"{at}_a.jpg#{number}\tA child.\n" for at in NUMBERS for number in range(5))
    root = written(tmp_path / "data", many("Flicker8k/{}_a.jpg", photo) | {"Flickr8k.token.txt": rows})
    with pytest.raises(SourceError, match=r"labels in .*Flickr8k\.token\.txt, with the names of images"):
        open_source(root)


@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize("folder", ["images", "pictures_of_mine"])
def test_annotations_that_are_not_read_are_named_with_a_next_step(tmp_path, name, folder):
    pattern, text, program, step = UNREAD[name]
    root = written(tmp_path / "data", many(f"{folder}/{{}}.jpg", photo) | many(pattern, text))
    alone = rf"pack .*{folder} DEST' packs the images without them"
    place = pattern.split("/")[0]
    with pytest.raises(SourceError, match=rf"images with .* in .*{place}.*{program}.*{step}.*{alone}"):
        open_source(root)


# Tables of one folder, and the one that the command names.
TABLES = {
    "EuroSAT": (("test.csv", "train.csv", "validation.csv"), "train.csv"),
    "chest": (("BBox_List.csv", "Data_Entry.csv"), "Data_Entry.csv"),
    "signs": (("Meta.csv", "Test.csv", "Train.csv"), "Train.csv"),
    "blindness": (("sample_submission.csv", "test.csv", "train.csv"), "train.csv"),
    "numbers in another column": (("train.csv",), "train.csv"),
    "faces": (("list_bbox.csv", "list_attr.csv"), "list_attr.csv"),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_command_names_the_table_of_all_labels(tmp_path, name):
    names, best = TABLES[name]
    rows = "image,label\n" + "".join(f"{at}.jpg,pug\n" for at in NUMBERS)
    if name == "numbers in another column":
        rows = "site,image_id,label\n" + "".join(f"2,{at},pug\n" for at in NUMBERS)
    tree = dict.fromkeys(names, rows) | {name: rows[:25] for name in names if "box" in name.lower()}
    root = written(tmp_path / "data", many("all/{}.jpg", photo) | tree)
    with pytest.raises(SourceError, match=rf"fastload pack .*/data/{best} DEST") as caught:
        open_source(root)
    text = str(caught.value)
    assert [other for other in names if other not in text] == []


@pytest.mark.parametrize("name", ["labels.csv", "_annotations.train.jsonl"])
@pytest.mark.parametrize("folders", [("all",), ("part1", "part2")])
def test_tables_in_folders_of_images_are_offered(tmp_path, folders, name):
    rows = "file,breed\n{0}0.jpg,pug\n{0}1.jpg,husky\n"
    if name.endswith("jsonl"):
        rows = '{{"image": "{0}0.jpg", "suffix": "pug"}}\n{{"image": "{0}1.jpg", "suffix": "husky"}}\n'
    tree = {f"{folder}/{folder}{at}.jpg": photo(at) for folder in folders for at in NUMBERS}
    tree |= {f"{folder}/{name}": rows.format(folder) for folder in folders}
    root = written(tmp_path / "data", tree)
    with pytest.raises(SourceError, match=rf"table.*fastload pack .*/data/{folders[0]}/{name} DEST"):
        open_source(root)
    assert len(open_source(root / folders[0] / name)[""]) == 2


def test_a_table_beside_class_folders_that_names_their_images_is_offered(tmp_path):
    tree = many("train/{}.jpg", photo) | {"train.csv": "id,breed\n0,pug\n1,pug\n2,husky\n3,husky\n"}
    root = written(tmp_path / "data", tree)
    with pytest.raises(SourceError, match=r"the table .*train\.csv, .*fastload pack .*train\.csv DEST"):
        open_source(root)


# Files beside the images, and the step of the refusal.
def table(header, pattern):
    return header + "".join(f"{pattern.format(at)}\n" for at in NUMBERS)


BREEDS = table("image,n\n", "{0}.jpg,breed {0}")
LINES = table('{"image": "0.jpg", "label": 1}\n', '{{"image": "{}.jpg", "label": 0}}')
STEPS = {
    "short ids": (
        {"t.csv": table("id,n\n", "{0},breed {0}")}, "be packed after a change .*in 'a/', 'b/': write their"),
    "backslashes": ({"t.csv": table("image,n\n", "a\\{}.jpg,x")}, "t.csv DEST' packs it;"),
    "UTF-16": ({"t.csv": BREEDS.encode("utf-16")}, "after a change .*save it as 'CSV UTF-8'"),
    "a split": (
        {"t.csv": table("path,split\n", "a/{}.jpg,train")}, "packs it, its columns as fields and not as"),
    "no header": ({"t.csv": table("", "a/{}.jpg,1,2,5,6,x")}, "after a change .*begin with a header"),
    "a table in each folder": ({"a/t.csv": BREEDS, "b/t.csv": BREEDS}, "a/t.csv DEST' packs the first;"),
    "JSON in each folder": (
        dict.fromkeys(["a/m.jsonl", "b/m.jsonl"], LINES), "a/m.jsonl DEST' packs the first;"),
    "paths from above": (
        {"a/t.csv": table("image,n\n", "a/{0}.jpg,{0}")}, r"it to .*data \(mv .*data/a/t.csv .*data/t.csv\)"),
    "a table in each split": (
        many("train/{}.jpg", photo) | {"train/t.csv": BREEDS} | many("test/{}.jpg", photo)
        | {"test/t.csv": BREEDS}, "train/t.csv DEST' packs the first;"),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_table_beside_class_folders_is_packed_or_the_change_that_it_needs_is_said(tmp_path, name):
    tree, step = STEPS[name]
    tree = many("a/{}.jpg", photo) | many("b/{}.jpg", photo) | tree
    with pytest.raises(SourceError, match=step):
        open_source(written(tmp_path / "data", tree))


def test_boxes_in_class_folders_are_no_part_of_ordinary_ones(tmp_path):
    tree = {f"{name}/images/{at}.jpg": photo(at) for name in ("cat", "dog") for at in NUMBERS}
    tree |= {f"{name}/labels/{at}.txt": "0 0.5 0.5 0.25 0.125\n" for name in ("cat", "dog") for at in NUMBERS}
    with pytest.raises(SourceError, match="'cat' holds 'images'"):
        open_source(written(tmp_path / "data", tree))


def test_a_command_that_would_fail_without_an_option_is_named_with_it(tmp_path):
    names = ("images/normal/0.png", "images/bad/1.png", "masks/bad/1.png")
    root = written(tmp_path / "data", {f"candle/Data/{name}": photo(0) for name in names})
    option = "with --on-error skip, but for 1 image without a mask"
    with pytest.raises(SourceError, match=rf"pack .*/candle/Data DEST' keeps them, {option}"):
        open_source(root)
    (root / "candle/Data/masks/bad/1.png").write_bytes(cv2.imencode(".png", np.zeros((40, 50), np.uint8))[1])
    pack(root / "candle/Data", tmp_path / "x.fl", workers=1, on_error="skip")


def test_what_a_command_leaves_behind_is_named(tmp_path):
    root = written(tmp_path / "data", {"validation/data.mdb": "x", "training/MJ/data.mdb": "x"})
    with pytest.raises(SourceError, match=r"pack .*/training/MJ DEST' keeps them, without 'validation'"):
        open_source(root)


def test_a_folder_of_folders_of_parquet_names_one(tmp_path):
    root = written(tmp_path / "data", {f"{name}/train-0.parquet": "PAR1" for name in ("mnist", "fashion")})
    with pytest.raises(SourceError, match=r"fastload pack .*/fashion DEST' packs those of one folder"):
        open_source(root)


def test_a_table_with_paths_from_the_folder_above_is_to_be_moved_there(tmp_path):
    rows = "".join(f"data/rgb/{at}.jpg,data/depth/{at}.png\n" for at in NUMBERS)
    tree = many("rgb/{}.jpg", photo) | many("depth/{}.png", photo) | {"pairs.csv": rows}
    root = written(tmp_path / "data", tree)
    with pytest.raises(
        SourceError, match=r"pairs\.csv, which names .*: move it to .* \(mv .*pairs\.csv "
    ) as caught:
        open_source(root)
    subprocess.run(re.search(r"\((mv .*?)\)", str(caught.value))[1].split(), check=True)
    assert open_source(tmp_path / "pairs.csv")[""].fields[0].name == "col2"
