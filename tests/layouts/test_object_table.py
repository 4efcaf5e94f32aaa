"""Tables with a row for each object: round trip, forms of columns, and rows that are malformed."""

import pytest

from fastload import PackedDataset, SourceError, pack, unpack
from fastload.sources import open_source
from tests.layouts.conformance import LayoutConformance
from tests.layouts.samples import photo, written

TABLE = """filename,width,height,class,xmin,ymin,xmax,ymax,conf
0.jpg,50,40,dog,5,10,20,30,0.5
1.jpg,50,40,cat,1.50,2,49,40,0.25
0.jpg,50,40,cat,0,0,50,40,1.0
2.jpg,50,40,,,,,,0.0
"""


def table(root, text=TABLE, name="train.csv"):
    return written(root, {f"{at}.jpg": photo(at) for at in range(3)} | {name: text}) / name


class TestObjects(LayoutConformance):
    def make(self, root):
        return table(root)

    def test_what_was_unpacked_is_packed_to_the_same_samples(self, packed, tmp_path):
        unpack(packed, tmp_path / "back")
        pack(tmp_path / "back/train.csv", tmp_path / "again.fl", encode="keep", workers=1)
        first, second = PackedDataset(packed), PackedDataset(tmp_path / "again.fl")
        assert [str(first[at][1]) for at in range(3)] == [str(second[at][1]) for at in range(3)]

    def test_coordinates_and_masks_are_resized_with_their_image(self, packed, tmp_path):
        pack(tmp_path / "data/train.csv", tmp_path / "s.fl", encode="jpeg", size=(20, 100), workers=1)
        assert PackedDataset(tmp_path / "s.fl")[0][1]["boxes"].tolist() == [[10, 5, 40, 15], [0, 0, 100, 20]]
        rows = unpack(tmp_path / "s.fl", tmp_path / "back").table.read_text().splitlines()
        assert rows[1:3] == ["0.jpg,100,20,dog,10,5,40,15,0.5", "1.jpg,100,20,cat,3,1,98,20,0.25"]

    def test_samples_are_the_same_in_workers_and_from_lmdb(self):
        """It is a source like the others."""


def test_rows_become_images_with_boxes(tmp_path):
    [source] = open_source(table(tmp_path)).values()
    first, second, third = (source.read(at).values for at in range(3))
    assert source.classes == ("cat", "dog")
    assert (first["boxes"].tolist(), first["labels"].tolist()) == ([[5, 10, 20, 30], [0, 0, 50, 40]], [1, 0])
    assert (first["width"], first["conf"].tolist()) == (50, [0.5, 1.0])
    assert second["boxes"].tolist() == [[1.5, 2, 49, 40]]
    assert (third["boxes"].shape, third["conf"].tolist()) == ((0, 4), [])
    assert source.columns["boxes"] == ("x1 y1 x2 y2 in pixels, of the columns 'xmin', 'ymin', 'xmax', 'ymax'")


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        ("image,x,y,w,h,label", "5,10,15,20,a", (5, 10, 20, 30)),
        ("path,X1,Y1,X2,Y2,Class", "5,10,20,30,a", (5, 10, 20, 30)),
        ("image,bbox_x,bbox_y,bbox_w,bbox_h,name", "5,10,15,20,a", (5, 10, 20, 30)),
        ("image,width,height,bbox", '50,40,"[5, 10, 15.0, 20]"', (5, 10, 20, 30)),
        ("image,x_center,y_center,width,height,label", "0.25,0.5,0.3,0.5,0", (5, 10, 20, 30)),
        ("file,left,top,right,bottom,category", "0.1,0.25,0.4,0.75,a", (5, 10, 20, 30)),
    ],
)
def test_forms_of_columns(tmp_path, header, cells, expected):
    path = table(tmp_path, f"{header}\n0.jpg,{cells}\n")
    pack(path, tmp_path / "x.fl", encode="keep", workers=1)
    target = PackedDataset(tmp_path / "x.fl")[0][1]
    assert tuple(target["boxes"][0].round().tolist()) == expected
    assert target["labels"].tolist() == [0]
    assert unpack(tmp_path / "x.fl", tmp_path / "out").table.read_text() == path.read_text()


def test_columns_that_are_given_a_kind_are_no_boxes(tmp_path):
    text = "".join(TABLE.splitlines(keepends=True)[:-1])
    source = open_source(table(tmp_path, text), columns={"xmin": "text"})[""]
    assert len(source) == 3
    assert "boxes" not in {field.name for field in source.fields}


@pytest.mark.parametrize(
    "cells",
    [
        "nan,1,5,5",
        "1,1,inf,5",
        "5,1,1,5",
        "1,1,60,5",
        "-30,1,5,5",
        "1,1,5",
        "a,1,5,5",
        "1_0,1,20,5",
        ",1,5,5",
    ],
)
def test_a_malformed_box_is_named_with_its_row(tmp_path, cells):
    cells = cells if cells.count(",") == 3 else f"{cells},"
    path = table(tmp_path, f"image,xmin,ymin,xmax,ymax,label\n0.jpg,1,2,30,40,a\n1.jpg,{cells},a\n")
    source = open_source(path)[""]
    assert source.read(0).values["labels"].tolist() == [0]
    with pytest.raises(SourceError, match=r"train\.csv, image '1\.jpg', row 2: must have"):
        source.read(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,x,y,w,h,label\n0.jpg,30,20,45,35,a\n1.jpg,1,2,4,5,a\n", "got x1 y1 x2 y2"),
        ("image,x,y,w,h,label\n0.jpg,0.1,0.1,0.2,0.2,a\n", "got fractions"),
        ("image,xmin,ymin,xmax,ymax,label\n0.jpg,1,2,3,4,-1\n", "classes in the column 'label'"),
        ("image,xmin,ymin,xmax,ymax,label\n0.jpg,1,2,3,4,\n", "row 1, label: must have a value"),
        ("image,xmin,ymin,xmax,ymax,label\n0.jpg,,,,,\n", "a box in one row or more"),
        ("image,xmin,ymin,xmax,ymax,label\n,1,2,3,4,a\n", "row 1, image: must name an image"),
    ],
)
def test_a_table_whose_boxes_have_no_meaning_is_refused(tmp_path, text, message):
    with pytest.raises(SourceError, match=rf"train\.csv.*{message}"):
        open_source(table(tmp_path, text))


def test_an_image_of_another_size_is_refused(tmp_path):
    source = open_source(table(tmp_path, TABLE.replace("1.jpg,50,40", "1.jpg,40,50")))[""]
    with pytest.raises(SourceError, match=r"1\.jpg.*height of its file, 40, got 50"):
        source.read(1)
