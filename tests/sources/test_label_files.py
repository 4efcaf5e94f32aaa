"""Labels in files beside images, as in public datasets: read, or refused with the step that reads them."""

import json

import numpy as np
import pytest

from fastload import SourceError, pack, unpack
from fastload.cli.main import main
from fastload.sources import open_source
from tests.sources.test_layouts import photo, written


def many(pattern, numbers=range(4)):
    """Files of a pattern such as `images/{}.jpg`."""
    return {pattern.format(at): photo(at) for at in numbers}


NAMES = [f"{at}.jpg" for at in range(4)]
FLAT = many("{}.jpg")


def rows(pattern, header="", numbers=range(4)):
    """The text of a table of a row for each number."""
    return f"{header}\n" * bool(header) + "".join(f"{pattern.format(at)}\n" for at in numbers)


STYLEGAN = {"labels": [[f"00000/img{at}.png", at % 3] for at in range(4)]}

# Public datasets: the folder's tree, the file that is suggested and packed, its labels or its fields.
READ = {
    "CelebA's identities": (
        many("img/{:06d}.jpg") | {"identity_CelebA.txt": rows("{:06d}.jpg 7")},
        "identity_CelebA.txt", [7] * 4),
    "CelebA's attributes": (
        many("{:06d}.jpg") | {"list_attr_celeba.txt": rows("{:06d}.jpg -1  1", "4\nBald Young ")},
        "list_attr_celeba.txt", {"Bald": -1, "Young": 1}),
    "CelebA's boxes": (
        many("{:06d}.jpg") | {"boxes.txt": rows("{:06d}.jpg  1 2 3 4", "4\nimage_id x_1 y_1 width height")},
        "boxes.txt", {"boxes": [[1.0, 2.0, 3.0, 4.0]], "labels": [0]}),
    "StyleGAN": (
        many("00000/img{}.png") | {"dataset.json": json.dumps(STYLEGAN)}, "dataset.json", [0, 1, 2, 0]),
    "labels in a JSON object": (
        FLAT | {"labels.json": json.dumps(dict(zip(NAMES, "abab", strict=True)))},
        "labels.json", [0, 1, 0, 1]),
    "Hugging Face's metadata.jsonl": (
        FLAT | {"metadata.jsonl": rows('{{"file_name": "{0}.jpg", "label": {0}}}')},
        "metadata.jsonl", [0, 1, 2, 3]),
    "Paddle's lists": (
        many("images/{}.jpg") | {"train_list.txt": rows("images/{0}.jpg {0}", numbers=range(3)),
        "val_list.txt": "images/3.jpg 1\n"}, "train_list.txt", [0, 1, 2]),
    "a .tab": (FLAT | {"labels.tab": rows("{0}.jpg\tc{0}", "image\tlabel")}, "labels.tab", [0, 1, 2, 3]),
    "APTOS": (
        many("train_images/t{}.png") | many("test_images/u{}.png")
        | {"train.csv": rows("t{0},{0}", "id_code,diagnosis"), "test.csv": rows("u{}", "id_code"),
        "sample_submission.csv": rows("u{},0", "id_code,diagnosis")}, "train.csv", [0, 1, 2, 3]),
    "folds beside labels": (
        FLAT | {"folds.csv": rows("{}.jpg,1", "image,fold"),
        "labels.csv": rows("{0}.jpg,{0}", "image,label")},
        "labels.csv", [0, 1, 2, 3]),
    "dog breeds": (
        many("train/{:032d}.jpg") | many("test/{:032d}.jpg", range(50, 54))
        | {"labels.csv": rows("{0:032d},b{0}", "id,breed"),
        "sample_submission.csv": rows("{:032d},0.5,0.5", "id,b0,b1", range(50, 54))},
        "labels.csv", [0, 1, 2, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_folder_names_the_table_of_its_labels(tmp_path, name):
    tree, table, expected = READ[name]
    root = written(tmp_path / "data", tree)
    with pytest.raises(SourceError, match=r"two readings") as caught:
        open_source(root)
    assert f"fastload pack {root / table} DEST" in str(caught.value)
    [source] = open_source(root / table).values()
    records = [source.read(index) for index in range(len(source))]
    if isinstance(expected, list):
        assert [record.values["label"] for record in records] == expected
    else:
        assert {key: np.array(records[0].values[key]).tolist() for key in expected} == expected


@pytest.mark.parametrize("name", ["CelebA's attributes", "StyleGAN", "Hugging Face's metadata.jsonl"])
@pytest.mark.parametrize("options", [{"encode": "keep"}, {"max_side": 16}], ids=["as they are", "resized"])
def test_such_a_table_comes_back(tmp_path, name, options):
    tree, table, _ = READ[name]
    root = written(tmp_path / "data", tree)
    pack(root / table, tmp_path / "a.fl", **options)
    unpack(tmp_path / "a.fl", tmp_path / "out")
    [first] = open_source(root / table).values()
    [back] = [
        path
        for path in (tmp_path / "out").iterdir()
        if path.is_file() and path.suffix not in (".jpg", ".png")
    ]
    if not options:
        assert back.read_bytes() == (root / table).read_bytes()
    [again] = open_source(back).values()
    for at in range(len(first)):
        assert again.read(at).values == first.read(at).values


BOXES = json.dumps([{"image": "0.jpg", "annotations": [{"label": "a", "coordinates": {"x": 5, "y": 5}}]}])
VIA = {"0.jpg9": {"filename": "0.jpg", "regions": [{"shape_attributes": {"name": "rect", "x": 1}}]}}

# Files that are not read as tables, and the message.
NOT_READ = {
    "CreateML": ("boxes in .*createml.json .CreateML.*export", {"_annotations.createml.json": BOXES}),
    "Keras' YOLO": ("labels in .*write a table", {"_annotations.txt": rows("{}.jpg 1,2,3,4,0 2,3,4,5,1")}),
    "VIA": ("boxes in .*via.json .VGG.*export them as COCO", {"via.json": json.dumps(VIA)}),
    "a spreadsheet": ("labels in .*labels.xlsx, which is", {"labels.xlsx": b"PK"}),
    "arrays of MATLAB": ("labels in .*imagelabels.mat, which is", {"imagelabels.mat": b"MATLAB 5.0"}),
    "numbers in order": ("labels in .*ground_truth.txt, which is", {"val_ground_truth.txt": "1\n2\n3\n4\n"}),
    "names without their endings": (
        "labels in .*train.csv, which is", {"train.csv": rows("x{},3", "Id,Target")}),
    "labels in another folder": (r"move it to .*\(mv .*Anno/list.txt .*data/list.txt\)",
        {"Anno/list.txt": rows("{}.jpg 3")}),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_READ)
def test_labels_in_other_forms_are_named(tmp_path, name):
    message, tree = NOT_READ[name]
    root = written(tmp_path / "data", FLAT | tree)
    with pytest.raises(SourceError, match=message):
        open_source(root)
    assert len(open_source(root, layout="classes")[""]) == 4


OTHERS = {
    "README.md": "![](0.jpg)",
    "notes.txt": "taken in spring\n",
    "files.txt": "0.jpg\n1.jpg\n2.jpg\n3.jpg\n",
}


def test_other_files_beside_images_are_no_labels(tmp_path):
    [source] = open_source(written(tmp_path / "data", FLAT | OTHERS)).values()
    assert (source.kind, len(source)) == ("flat", 4)


def test_a_text_without_images_is_no_table(tmp_path):
    root = written(tmp_path / "data", FLAT | {"notes.txt": "this is\na note\n"})
    with pytest.raises(SourceError, match="must be a table whose first column names images"):
        open_source(root / "notes.txt")


def test_a_class_id_is_a_label_and_sizes_are_not(tmp_path):
    text = rows("{0}.jpg;24;20;2;3;18;17;{0}", "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId")
    [source] = open_source(written(tmp_path / "data", FLAT | {"GT.csv": text}) / "GT.csv").values()
    assert source.read(1).values["label"] == 1
    assert source.read(1).values["Width"] == 24


def test_an_index_without_a_name_is_no_label(tmp_path):
    rows = "".join(f"{at},{at}.jpg,b{at}\n" for at in range(4))
    [source] = open_source(
        written(tmp_path / "data", FLAT | {"t.csv": f",file,breed\n{rows}"}) / "t.csv"
    ).values()
    assert source.classes == ("b0", "b1", "b2", "b3")


@pytest.mark.parametrize("header", ["caption", "split"])
def test_captions_and_splits_are_texts_and_no_classes(tmp_path, header):
    rows = "".join(f"{at}.jpg,a dog\n" for at in range(4))
    [source] = open_source(
        written(tmp_path / "data", FLAT | {"t.csv": f"image,{header}\n{rows}"}) / "t.csv"
    ).values()
    assert (source.classes, source.read(0).values) == ((), {header: "a dog"})


@pytest.mark.parametrize(("count", "header"), [(300, ""), (300, "image\tword\n"), (4, "")])
def test_texts_that_hardly_repeat_may_be_no_classes(tmp_path, count, header):
    text = header + "".join(f"{at % 4}.jpg\tword {at}\n" for at in range(count))
    root = written(tmp_path / "data", FLAT | {"gt.txt": text})
    column = "word" if header else "col2"
    with pytest.raises(
        SourceError, match=rf"{count} different texts in {count} rows.*--column {column}=label"
    ):
        open_source(root / "gt.txt")
    assert len(open_source(root / "gt.txt", columns={column: "label"})[""].classes) == count


def test_images_alone_come_back_as_they_were(tmp_path):
    tree = many("train/{}.jpg") | many("val/{}.jpg", range(4, 8))
    root = written(tmp_path / "data", tree)
    pack(root, tmp_path / "a", encode="keep")
    unpack(tmp_path / "a", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.*")) == [f"{at}.jpg" for at in range(8)]
    assert open_source(tmp_path / "out").keys() == {"train", "val"}


def test_fields_that_unpack_cannot_write_are_an_exit_code(tmp_path, capsys):
    pack([{"vector": [0.5, at], "id": at} for at in range(3)], tmp_path / "a.fl")
    assert main(["unpack", str(tmp_path / "a.fl"), str(tmp_path / "out"), "--quiet"]) == 1
    assert "left out: the fields vector" in capsys.readouterr().err
    with pytest.raises(SourceError, match=r"fastload pack .*out/labels.csv DEST' packs its rows"):
        open_source(tmp_path / "out")
