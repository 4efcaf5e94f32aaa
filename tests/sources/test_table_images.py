"""Images of tables: found by the files, stated in words, and refused where two readings are possible."""

import csv
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload import PackedDataset, SourceError, pack, unpack
from fastload.sources import open_source
from tests.folders import encoded, pixels


def listed(root, text, *images, name="t.csv", **columns):
    for image in images:
        (root / image).parent.mkdir(parents=True, exist_ok=True)
        (root / image).touch()
    (root / name).write_text(text)
    return open_source(root / name, columns=columns)[""]


def keys(source):
    return [source.key(at) for at in range(len(source))]


def classes(source):
    return [source.classes[label] for label in source.values["label"]]


@pytest.mark.parametrize(
    ("text", "images", "said"),
    [
        ("id,breed\na,x\nb,y\n", ("in/a.jpg", "in/b.jpg"), "names of files in in/, with .jpg added"),
        ("a,x\nb,y\n", ("in/a.jpg", "in/b.jpg"), "names of files in in/, with .jpg added"),
        ("id,n\na,x\nb,y\n", ("a.jpg", "b.JPG"), "files in the table's folder, with .jpg or .JPG added"),
        ("label,image_path\nx,a.jpg\ny,b.jpg\n", ("a.jpg", "b.jpg"), "paths of the images"),
        ("label,picture\nx,a.jpg\ny,b.jpg\n", ("in/a.jpg", "in/b.jpg"), "names of files in in/"),
        (
            "n,uid\nx,1.2.3\ny,1.2.4\n",
            ("d/1.2.3.png", "d/1.2.4.png"),
            "names of files in d/, with .png added",
        ),
        ("n,id\nx,p/1\ny,q/1\n", ("d/p/1.png", "d/q/1.png"), "names of files in d/, with .png added"),
        (
            "n,id\nx,1\ny,2\n",
            ("p/1.png", "q/2.png"),
            "names of files in 2 folders, p/ to q/, with .png added",
        ),
        ("sep=;\nimage;n\nin\\a.jpg;x\nin\\b.jpg;y\n", ("in/a.jpg", "in/b.jpg"), "paths of the images"),
        ("image,n\n./in/a.jpg,x\nin//b.jpg,y\n", ("in/a.jpg", "in/b.jpg"), "paths of the images"),
        (
            "id,n\na,x\nb,y\n",
            ("a.jpg", "b.jpg", "a.png"),
            "names of files in the table's folder, with .jpg add",
        ),
    ],
)
def test_every_way_of_naming_images_is_read_and_said(tmp_path, text, images, said):
    source = listed(tmp_path, text, *images)
    assert [os.path.normpath(path) for path in source.files.names] == sorted(images[:2])
    assert classes(source) == ["x", "y"]
    assert source.columns["image"].startswith(said) or said in source.columns["image"]


@pytest.mark.parametrize(
    ("text", "images", "message"),
    [
        (
            "id,n\na,x\nb,y\n",
            ("p/a.jpg", "p/b.jpg", "q/a.jpg", "q/b.jpg"),
            "got names that are in 'p/', 'q/'",
        ),
        ("id,n\na,x\nb,y\n", ("a.jpg", "a.png", "b.jpg", "b.png"), "'a', the name of 'a.jpg', 'a.png'"),
        ("digit,n\n0,1\n1,0\n", ("p/0.jpg", "p/1.jpg"), "--column digit=path .* or --column n=path"),
        ("0,1\n1,0\n", ("p/0.jpg", "p/1.jpg"), "--column col1=path .* or --column col2=path"),
        ("image,n\n1,x\n", ("p/001.jpg",), r"'1', which is no file in .*there are 'p/001\.jpg'"),
        ("id,n\n1,x\n", ("p/001.jpg",), "'1', which names none of the images .* --column id=text"),
        ("image,n\n/data/a.jpg,x\n", ("p/a.jpg",), r"'/data/a\.jpg', which is no file .*'p/a\.jpg'"),
    ],
)
def test_two_readings_or_none_are_refused_with_a_step(tmp_path, text, images, message):
    with pytest.raises(SourceError, match=message):
        listed(tmp_path, text, *images)


# A table, the files beside it, and the folders that its rows' images are in: never by the number of hits.
OWN = {
    "the table's name": ("train", "train_images/{ab} test_images/{ab}", "train_images/{ab}"),
    "the table's split": ("train_labels", "train/{a} valid/{ab}", "train/{ab}"),
    "one of another split missing": ("Train", "train/{a} test/{b}", "train/{ab}"),
    "several of its split": ("train", "train_a/{a} train_b/{b} test/{ab}", "train_a/{a} train_b/{b}"),
    "its classes": ("train", "train/cat/{a} train/dog/{b} test/{ab}", "train/cat/{a} train/dog/{b}"),
    "images beside masks": ("labels", "images/{a} masks/{ab}", "images/{ab}"),
    "patients beside masks": ("labels", "p/0/{a} p/1/{b} gt_mask_2/{ab}", "p/0/{a} p/1/{b}"),
    "beside the table": ("labels", "{ab} resized/{ab}", "{ab}"),
    "masks alone": ("labels", "masks/{ab}", "masks/{ab}"),
}


def paths(pattern):
    """The paths of `train/{ab} {c}`: train/a.jpg, train/b.jpg, c.jpg."""
    parts = [each.rstrip("}").split("{") for each in pattern.split()]
    return [f"{place}{name}.jpg" for place, names in parts for name in names]


@pytest.mark.parametrize("suffix", ["", ".jpg"])
@pytest.mark.parametrize("name", OWN)
def test_names_in_two_folders_are_those_of_the_table_s_own(tmp_path, name, suffix):
    table, files, own = OWN[name]
    text = f"id,n\na{suffix},x\nb{suffix},y\n"
    assert keys(listed(tmp_path, text, *paths(files), name=f"{table}.csv")) == paths(own)


@pytest.mark.parametrize(
    ("table", "files", "got"),
    [
        ("labels", "images/{a} images_resized/{ab}", "'images/', 'images_resized/'"),
        ("labels", "train_a/{a} other/{b} test/{ab}", "'other/', 'test/', 'train_a/'"),
        ("labels", "{a} resized/{ab}", "'', 'resized/'"),
        ("train", "train/p/{ab} train/q/{ab}", "'train/p/', 'train/q/'"),
        ("train", "test/{ab}", "'test/'"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".jpg"])
def test_a_folder_with_more_of_the_names_does_not_win(tmp_path, table, files, got, suffix):
    text = f"id,n\na{suffix},x\nb{suffix},y\n"
    with pytest.raises(SourceError, match=f"got names that are in {got}: write their paths"):
        listed(tmp_path, text, *paths(files), name=f"{table}.csv")


def test_a_column_of_masks_has_its_files_in_their_folder(tmp_path):
    images = ("images/a.png", "masks/a.png")
    source = listed(tmp_path, "image,mask\na.png,a.png\n", *images)
    assert (keys(source), list(source.values["mask"].names)) == (["images/a.png"], ["masks/a.png"])


def test_a_kind_chooses_between_columns(tmp_path):
    images = ("p/0.jpg", "p/1.jpg", "p/2.jpg")
    source = listed(tmp_path, "digit,n\n0,1\n1,0\n1,2\n", *images, n="path")
    assert (keys(source), classes(source)) == (["p/1.jpg", "p/0.jpg", "p/2.jpg"], ["0", "1", "1"])


def test_images_and_masks_in_folders_of_their_own_are_both_found(tmp_path):
    images = ("images/a.jpg", "images/b.jpg", "masks/a.png", "masks/b.png")
    source = listed(tmp_path, "image,mask\na.jpg,a.png\nb.jpg,b.png\n", *images)
    assert keys(source) == ["images/a.jpg", "images/b.jpg"]
    assert list(source.values["mask"].names) == ["masks/a.png", "masks/b.png"]
    assert source.left_out == ()


class TestRowsWithoutAFurtherImage:
    """As in VisA, where images without a defect have no mask."""

    @pytest.mark.parametrize("columns", [{}, {"mask": "path"}])
    @pytest.mark.parametrize("cells", [("", "./masks/m.png", ""), ("./masks/m.png", "", "")])
    def test_empty_cells_are_no_image(self, tmp_path, cells, columns):
        (tmp_path / "masks").mkdir()
        (tmp_path / "masks/m.png").write_bytes(b"m")
        text = "label,image,mask\n" + "".join(f"a,{name}.jpg,{cells[at]}\n" for at, name in enumerate("abc"))
        source = listed(tmp_path, text, "a.jpg", "b.jpg", "c.jpg", "masks/m.png", **columns)
        assert (list(source.values["mask"].names), keys(source)) == ([*cells], ["a.jpg", "b.jpg", "c.jpg"])
        stored = [source.read(at).values["mask"] for at in range(3)]
        assert stored == [b"m" if cell else b"" for cell in cells]
        said = f"2 empty cells are no image (the first in row {cells.index('') + 1})"
        assert source.columns["mask"] == f"images, stored as the files are, of the column 'mask', {said}"
        assert source.left_out == ()

    def test_names_in_a_folder_are_found_beside_empty_cells(self, tmp_path):
        source = listed(tmp_path, "path,mask\na.jpg,\nb.jpg,m.png\n", "a.jpg", "b.jpg", "masks/m.png")
        assert list(source.values["mask"].names) == ["", "masks/m.png"]

    def test_a_column_with_empty_cells_does_not_name_the_records(self, tmp_path):
        source = listed(tmp_path, "image_id,mask\na,\nb,m.png\n", "a.jpg", "b.jpg", "m.png")
        assert keys(source) == ["a.jpg", "b.jpg"]

    def test_an_empty_column_is_text(self, tmp_path):
        source = listed(tmp_path, "path,label,mask\na.jpg,x,\n", "a.jpg")
        assert [field.kind for field in source.fields] == ["scalar", "text"]


def test_images_that_no_row_names_are_left_out_unless_another_table_names_them(tmp_path):
    images = [f"images/{name}.jpg" for name in "abcd"]
    (tmp_path / "test.csv").write_text("id\nc\n")
    source = listed(tmp_path, "id,n\na,x\nb,y\n", *images, "other/e.jpg", name="train.csv")
    assert [(each.key, each.reason, each.is_clutter) for each in source.left_out] == [
        ("images/d.jpg", "an image that no row of the table names", False),
        ("images/c.jpg", "an image of test.csv", True),
    ]


@pytest.mark.parametrize(
    ("table", "left_out"),
    [("labels", "other/{e} train/dog/{c}"), ("train", "train/dog/{c}"), ("/labels", "")],
)
def test_images_in_other_folders_are_left_out_but_for_those_of_other_splits(tmp_path, table, left_out):
    files = paths("train/cat/{a} train/dog/{c} other/{e} .git/{f}")
    cell = "train/cat/a.jpg"
    if table[0] == "/":  # a table of images elsewhere has no account of those beside it
        (tmp_path / "a.jpg").touch()
        table, cell, tmp_path = table[1:], tmp_path / "a.jpg", tmp_path / "inner"
    source = listed(tmp_path, f"path,n\n{cell},x\n", *files, name=f"{table}.csv")
    assert [each.key for each in source.left_out if not each.is_clutter] == paths(left_out)


class TestLabels:
    @pytest.mark.parametrize("header", ["Class", "labels", "target", "category", "y"])
    def test_one_usual_header_among_several_columns_gives_labels(self, tmp_path, header):
        source = listed(tmp_path, f"image,site,{header}\na.jpg,s,x\nb.jpg,t,y\n", "a.jpg", "b.jpg")
        assert classes(source) == ["x", "y"]

    @pytest.mark.parametrize("text", ["image,site,sex\na.jpg,s,x\n", "image,class,target\na.jpg,s,x\n"])
    def test_labels_that_are_not_certain_are_fields_with_a_note(self, tmp_path, text):
        source = listed(tmp_path, text, "a.jpg")
        assert source.classes == ()
        assert [field.kind for field in source.fields] == ["text", "text"]
        assert "no column is certain to hold labels" in source.warnings[0]

    @pytest.mark.parametrize("text", ["id,EncodedPixels\n1,1 3 10 5\n", 'id,ground_truth\n1,"{""a"": 1}"\n'])
    def test_run_lengths_and_json_are_texts(self, tmp_path, text):
        (tmp_path / "1.png").write_bytes(encoded(pixels(1, 8, 8), ".png"))
        (tmp_path / "t.csv").write_text(text)
        source = open_source(tmp_path / "t.csv")[""]
        assert (source.classes, source.fields[0].kind) == ((), "text")

    def test_the_kind_label_makes_labels(self, tmp_path):
        text = "image,site,sex,label\na.jpg,s,x,1\nb.jpg,t,y,2\n"
        source = listed(tmp_path, text, "a.jpg", "b.jpg", sex="label")
        assert classes(source) == ["x", "y"]
        assert [field.name for field in source.fields] == ["label", "site", "label_"]
        source = listed(tmp_path, "text,sex\nhello,x\n", sex="label", name="rows.csv")
        assert (source.classes, source.read(0).values) == (("x",), {"text": "hello", "label": 0})
        with pytest.raises(SourceError, match=r"must be an integer or a name, .* got '0\.5'"):
            listed(tmp_path, "image,score\na.jpg,0.5\n", score="label")

    def test_columns_of_zeros_and_ones_are_fields(self, tmp_path):
        text = "filename, cat, dog\na.jpg, 1, 0\nb.jpg, 1, 1\n"
        source = listed(tmp_path, text, "a.jpg", "b.jpg", name="_classes.csv")
        assert source.read(1).values == {"cat": 1, "dog": 1}


class TestBoxes:
    def test_open_images_are_read_with_their_labels(self, tmp_path):
        text = "ImageID,LabelName,XMin,XMax,YMin,YMax\na,/m/2,0.1,0.5,0.2,0.6\na,/m/1,0,1,0,1\n"
        (tmp_path / "train").mkdir()
        (tmp_path / "train/a.jpg").write_bytes(encoded(pixels(1), ".jpg"))
        values = listed(tmp_path, text).read(0).values
        assert values["boxes"].tolist() == [[0.1, 0.2, 0.5, 0.6], [0, 0, 1, 1]]
        assert values["labels"].tolist() == [1, 0]

    def test_a_column_that_may_hold_the_classes_is_named(self, tmp_path):
        text = "image_id,bbox,source\n" + 'a,"[1, 2, 3, 4]",x\na,"[1, 2, 3, 4]",y\n'
        with pytest.raises(SourceError, match="the texts of 'source': pack with --column source=label"):
            listed(tmp_path, text, "in/a.jpg")
        (tmp_path / "in/a.jpg").write_bytes(encoded(pixels(1), ".jpg"))
        assert listed(tmp_path, text, source="label").read(0).values["labels"].tolist() == [0, 1]
        source = listed(tmp_path, text, source="text")
        assert (source.classes, source.read(0).values["source"]) == (("object",), ["x", "y"])


@pytest.mark.parametrize(
    "text", ["id,n\r\na,x\r\nb,y\r\n", "\ufeffsep=;\nid;n\na;x\nb;y", 'id,n\n"a",x\n\nb,y\n']
)
def test_a_table_comes_back_byte_for_byte(tmp_path, text):
    for name in "ab":
        (tmp_path / "data/in").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"data/in/{name}.jpg").write_bytes(encoded(pixels(ord(name)), ".jpg"))
    (tmp_path / "data/t.csv").write_bytes(text.encode())
    pack(tmp_path / "data/t.csv", tmp_path / "x.fl", encode="keep", workers=1)
    result = unpack(tmp_path / "x.fl", tmp_path / "back")
    assert result.table.read_bytes() == text.encode()
    pack(result.table, tmp_path / "y.fl", encode="keep", workers=1)
    first, second = PackedDataset(tmp_path / "x.fl"), PackedDataset(tmp_path / "y.fl")
    assert first.classes == second.classes == ["x", "y"]
    assert [first.read(at).key for at in (0, 1)] == [second.read(at).key for at in (0, 1)]


NAMES = st.text("abcXYZ0189_-. é", min_size=1, max_size=6).map(lambda name: f"n{name}e")
PLACES = st.sampled_from(["", "train/", "images/a/", "Bilder ü/"])
SUFFIXES = st.sampled_from([".jpg", ".JPG", ".png", ".webp"])


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(
        st.tuples(NAMES, SUFFIXES, st.sampled_from("xyz")),
        min_size=1,
        max_size=8,
        unique_by=lambda each: each[0].lower(),
    ),
    beside=st.lists(NAMES, max_size=3),
    place=PLACES,
    way=st.sampled_from(["path", "name", "id"]),
    columns=st.permutations(["item", "label", "note"]),
    delimiter=st.sampled_from(",;\t"),
    has_header=st.booleans(),
)
def test_random_tables_name_their_images(names, beside, place, way, columns, delimiter, has_header):
    taken = {name.lower() for name, _, _ in names}
    beside = [name for name in dict.fromkeys(beside) if name.lower() not in taken]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / place).mkdir(parents=True, exist_ok=True)
        paths = [f"{place}{name}{suffix}" for name, suffix, _ in names]
        for path in (*paths, *(f"{place}{name}.jpg" for name in beside)):
            (root / path).touch()
        cells = {
            "path": paths,
            "name": [path.removeprefix(place) for path in paths],
            "id": [name for name, _, _ in names],
        }[way]
        with (root / "t.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
            if has_header:
                writer.writerow(columns)
            for cell, (_, _, label) in zip(cells, names, strict=True):
                row = {"item": cell, "label": f"class {label}", "note": f"note {label}"}
                writer.writerow([row[name] for name in columns])
        source = open_source(root / "t.csv")[""]
        assert list(source.files.names) == paths
        assert {each.key for each in source.left_out} == {f"{place}{name}.jpg" for name in beside}
        if has_header:
            assert classes(source) == [f"class {label}" for _, _, label in names]
        else:
            assert source.classes == ()


def test_addresses_on_the_web_are_texts(tmp_path):
    source = listed(tmp_path, "id,url,label\na,http://x/1.jpg,5\nb,http://x/2.jpg,6\n", "a.jpg", "b.jpg")
    assert source.read(1).values == {"label": 6, "url": "http://x/2.jpg"}


def test_vertical_bars_delimit_where_nothing_else_does(tmp_path):
    source = listed(tmp_path, "image_name| number| text\na.jpg| 0| x, y\nb.jpg| 1| z\n", "a.jpg", "b.jpg")
    assert source.read(0).values == {"number": 0, "text": "x, y"}
    source = listed(tmp_path, "image,label\na.jpg,Hernia|Mass|Edema\nb.jpg,None\n", "a.jpg", "b.jpg")
    assert classes(source) == ["Hernia|Mass|Edema", "None"]
