"""unpack writes labels and further fields so that packing gives the same ones again."""

import csv
import os

import numpy as np
import pytest

import fastload
from fastload.packing.unpack import _Unpacking, unpack
from fastload.shards.records import RecordReader
from fastload.sources import open_source
from tests.folders import class_folders, encoded, pixels, tree
from tests.packing.labelled import LabelledImages, rows_of


def test_labels_of_a_table_are_written_to_a_table(tmp_path):
    rows = [("0.png", "dog", 0.5, "ünï"), ("sub/1.png", "cat", -1.0, 'a "quoted", text\nof two lines')]
    (tmp_path / "data" / "sub").mkdir(parents=True)
    for number, row in enumerate(rows):
        (tmp_path / "data" / row[0]).write_bytes(encoded(pixels(number), ".png"))
    with (tmp_path / "data" / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "score", "caption"), *rows])
    fastload.pack(tmp_path / "data" / "table.csv", tmp_path / "p.fl", encode="keep", workers=1)
    result = unpack(tmp_path / "p.fl", tmp_path / "out")
    assert result.table == tmp_path / "out" / "table.csv"
    with result.table.open(newline="") as file:
        read = list(csv.reader(file))
    assert read == [["path", "label", "score", "caption"], *(list(map(str, row)) for row in rows)]
    fastload.pack(result.table, tmp_path / "again.fl", encode="keep", workers=1)
    first, second = fastload.PackedDataset(tmp_path / "p.fl"), fastload.PackedDataset(tmp_path / "again.fl")
    assert first.classes == second.classes
    assert [first[i][1] for i in range(2)] == [second[i][1] for i in range(2)]


@pytest.mark.parametrize(
    "content",
    [
        "file,depth map,grade,mask\na.png,depth/a.png,007,masks/a.png\nb.png,depth/b.png,1,masks/a.png\n",
        "image,label,mask\na.png,bad,masks/a.png\nb.png,good,\n",
        "label,image,x y\n3,a.png,0.5\n1,b.png,-2.0\n",
        "a.png,cat\nb.png,dog\n",
        "path\na.png\nb.png\n",
    ],
    ids=["images", "images of some rows", "numbers", "no header", "paths alone"],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_table_comes_back_as_it_was(tmp_path, content, suffix):
    for number, name in enumerate(["a.png", "b.png", "depth/a.png", "depth/b.png", "masks/a.png"]):
        if name in content:
            (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / name).write_bytes(encoded(pixels(number), ".png"))
    table = tmp_path / "data" / f"t.{suffix}"
    table.write_text(content.replace(",", "\t") if suffix == "tsv" else content)
    fastload.pack(table, tmp_path / "p.fl", encode="keep", workers=1)
    assert unpack(tmp_path / "p.fl", tmp_path / "out").table == tmp_path / "out" / table.name
    assert tree(tmp_path / "out") == tree(tmp_path / "data")


LABELS = {
    "sorted names": (["ant", "bee"], [0, 1, 1]),
    "names in another order": (["dog", "cat"], [0, 1, 0]),
    "names without records": (["a", "b", "c"], [0, 2, 2]),
    "names that are numbers": (["7", "3"], [0, 1, 0]),
    "names that are fractions": (["0.5", "1.5", "nan"], [0, 1, 2]),
    "names with spaces": ([" a", " b", "c "], [0, 1, 2]),
    "names with quotes and lines": (['"q"', "a\nb", "a,b", "é"], [0, 1, 2, 3]),
    "two classes of one name": (["a", "a"], [0, 1, 0]),
    "an empty name": (["", "b"], [0, 1, 1]),
    "labels without a name": (["a"], [0, 5, -1]),
    "no names": ([], [3, 1, -1]),
}


@pytest.mark.parametrize("name", LABELS)
def test_a_table_packs_to_the_same_labels(tmp_path, name):
    classes, labels = LABELS[name]
    notes = ["plain", " with space", 'with "quotes", and\nlines', ""][: len(labels)]
    fastload.pack(LabelledImages(classes, labels, note=notes), tmp_path / "p.fl", encode="keep", workers=1)
    table = unpack(tmp_path / "p.fl", tmp_path / "out").table
    fastload.pack(table, tmp_path / "again.fl", encode="keep", workers=1)
    again = fastload.PackedDataset(tmp_path / "again.fl")
    assert again.targets == labels
    assert [again[index][1]["note"] for index in range(len(labels))] == notes
    written = table.read_text()
    assert all(class_name.strip().replace('"', '""') in written for class_name in classes)


def test_table_holds_file_names_of_every_kind(tmp_path):
    names = [" x.jpg", "y,z.jpg", 'q"r.jpg', "new\nline.jpg", "é.jpg", os.fsdecode(b"\xff.jpg"), "#.jpg"]
    (tmp_path / "photos").mkdir()
    for number, name in enumerate(names):
        (tmp_path / "photos" / name).write_bytes(encoded(pixels(number)))
    [source] = open_source(tmp_path / "photos").values()
    source.kind = "files"  # images alone would need no table
    fastload.pack(source, tmp_path / "p.fl", encode="keep", workers=1)
    table = unpack(tmp_path / "p.fl", tmp_path / "out").table
    assert fastload.pack(table, tmp_path / "again.fl", encode="keep", workers=1).records == len(names)
    unpack(tmp_path / "again.fl", tmp_path / "out2")
    assert tree(tmp_path / "out") == tree(tmp_path / "out2")


def test_fields_that_a_table_cannot_hold_are_reported(tmp_path):
    more = {"box": [[1, 2]] * 2, "rows": [np.zeros((1, 4))] * 2, "blob": [b"x"] * 2, "score": [0.5, 1.0]}
    fastload.pack(LabelledImages(["a", "b"], [0, 1], **more), tmp_path / "p.fl", workers=1)
    result = unpack(tmp_path / "p.fl", tmp_path / "out")
    assert result.unwritten == ("box", "rows", "blob")
    assert result.table.read_text().splitlines()[0] == '"path","label","score"'


def test_classes_that_share_a_folder_are_labelled_by_a_table(tmp_path):
    photos = class_folders(tmp_path / "photos", count=4, classes=2)
    fastload.pack(photos, tmp_path / "p.fl", encode="keep", workers=1)
    assert unpack(tmp_path / "p.fl", tmp_path / "out").table is None
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "class0").mkdir()
    unpacking = _Unpacking(RecordReader(tmp_path / "p.fl"), tmp_path / "shared", None, None, is_rebuilt=True)
    (tmp_path / "shared" / "class1").symlink_to("class0")  # as a file system does that ignores case
    labels = [row["label"] for row in rows_of(unpacking.run().table)]
    assert labels == ["class0", "class0", "class1", "class1"]
