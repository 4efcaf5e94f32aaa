"""Tables and archives without images: packed, resumed, merged, unpacked; refused where they may have some."""

import importlib

import numpy as np
import pytest

import fastload
from fastload import PackedDataset, SourceError, pack, unpack
from tests.folders import encoded, pixels
from tests.layouts.containers import npy, write_tar
from tests.packing.test_without_image import CONTAINERS, assert_same

TABLE = 'text,label,score\n"Hi, ""you""",pos,1.5\n"",neg,2.0\né/n/a,pos,3.0\n'
MEMBERS = {
    f"{at}.{end}": value for at in range(3) for end, value in (("txt", b"a %d" % at), ("cls", b"%d" % at))
}
ARRAYS = {
    f"{at}.{end}": value
    for at in range(3)
    for end, value in (("npy", npy(np.arange(2) + at)), ("json", b"{}"))
}


def write_source(folder, name):
    path = folder / name
    if name.endswith(".csv"):
        path.write_text(TABLE)
        return path
    return write_tar(path, MEMBERS if name == "texts.tar" else ARRAYS)


@CONTAINERS
@pytest.mark.parametrize("name", ["texts.csv", "texts.tar", "arrays.tar"])
def test_files_without_images_come_back(tmp_path, container, name):
    source = write_source(tmp_path, name)
    result = pack(source, tmp_path / "x.fl", format=container, workers=1)
    assert "without images" in result.warnings[0]
    unpack(tmp_path / "x.fl", tmp_path / "out")
    pack(tmp_path / "out" / name, tmp_path / "again.fl", format=container, workers=1)
    dataset, again = PackedDataset(tmp_path / "x.fl"), PackedDataset(tmp_path / "again.fl")
    first = {
        "texts.csv": {"text": 'Hi, "you"', "label": 1, "score": 1.5},
        "texts.tar": {"label": 0, "txt": "a 0"},
        "arrays.tar": {"npy": np.arange(2), "json": "{}"},
    }
    assert_same(dataset[0], first[name])
    assert_same([again[index] for index in range(3)], [dataset[index] for index in range(3)])
    assert again.classes == dataset.classes


def test_parts_are_merged_and_packing_resumes(tmp_path):
    source = tmp_path / "texts.csv"
    source.write_text("text,n\n" + "".join(f"text {at},{at}\n" for at in range(3000)))
    options = {"shard_size": 4096, "workers": 1}
    pack(source, tmp_path / "whole.fl", **options)

    def stop(progress):
        if progress.records > 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "resumed.fl", progress=stop, **options)
    assert pack(source, tmp_path / "resumed.fl", **options).resumed > 0
    for number in (1, 2):
        pack(source, tmp_path / "merged.fl", part=(number, 2), **options)
    assert fastload.merge(tmp_path / "merged.fl").encoding == ""
    shards = {path.name: path.read_bytes() for path in (tmp_path / "whole.fl").glob("*.h5")}
    assert len(shards) > 2
    for name in ("resumed.fl", "merged.fl"):
        assert {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.h5")} == shards


def test_splits_of_which_one_has_no_images_are_refused(tmp_path):
    write_tar(tmp_path / "d/x-train-0.tar", {"a.jpg": encoded(pixels(1), ".jpg"), "a.txt": b"x"})
    write_tar(tmp_path / "d/x-val-0.tar", {"a.txt": b"x"})
    with pytest.raises(SourceError, match="images in train but not in val"):
        pack(tmp_path / "d", tmp_path / "x.fl")


def test_a_tar_of_other_files_is_no_dataset(tmp_path):
    with pytest.raises(SourceError, match=r"must hold samples with an image .*, or with texts or arrays"):
        pack(write_tar(tmp_path / "x.tar", {"setup.py": b"", "main.c": b""}), tmp_path / "x.fl")


@pytest.mark.frameworks("pyarrow")
def test_rows_without_a_column_of_images_are_records(tmp_path):
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    columns = {
        "id": [1, 2],
        "text": ["", "ü"],
        "vector": arrow.array([[0.5, 1], [2, 3]], arrow.list_(arrow.float32(), 2)),
        "tags": [["a"], []],
        "objects": [[{"bbox": [0.0, 1, 2, 3], "category": 4}], []],
    }
    table = arrow.table(columns)
    parquet.write_table(table, tmp_path / "x.parquet")
    result = pack(tmp_path / "x.parquet", tmp_path / "x.fl", workers=1)
    assert "no column is of images" in result.warnings[0]
    sample = PackedDataset(tmp_path / "x.fl")[1]
    assert (sample["id"], sample["text"], sample["vector"].tolist(), sample["tags"]) == (2, "ü", [2, 3], [])
    assert sample["objects_bbox"].shape == (0, 4)
    unpack(tmp_path / "x.fl", tmp_path / "out")
    assert parquet.read_table(tmp_path / "out/x.parquet").equals(table)
