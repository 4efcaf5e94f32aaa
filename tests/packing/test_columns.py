"""Round trips of tables: no cell changes by packing, reading, collating, unpacking and packing again."""

import contextlib
import csv
import io
import json

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import default_collate

import fastload
from fastload import DataLoader, PackedDataset, SourceError, pack, unpack, verify
from fastload.cli.main import main
from fastload.shards.manifest import read_manifest
from tests.commands import run
from tests.folders import encoded, pixels

HEADER = ["path", "label", "patient_id", "zip", "age", "score", "mass", "note"]
ROWS = [
    ["1.png", "1e5", "00001", "01234", "41", "0.5", "1", "a, b"],
    ["2.png", "100000", "00002", "99999", "-7", "nan", "2.5", 'quoted "and"\nbroken'],
    ["3.png", "1e5", "00010", "00501", "0", "1.25", "", " 7"],
]


@pytest.fixture
def table(tmp_path):
    for name in ("1.png", "2.png", "3.png"):
        (tmp_path / name).write_bytes(encoded(pixels(ord(name[0])), ".png"))
        (tmp_path / f"m{name}").write_bytes(encoded(pixels(ord(name[0]))[:, :, 0], ".png"))
    write(tmp_path / "t.csv", HEADER, ROWS)
    return tmp_path / "t.csv"


def write(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def cells_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_every_cell_comes_back(table, tmp_path, container):
    pack(table, tmp_path / "x.fl", encode="keep", format=container, workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    assert dataset.classes == ["100000", "1e5"]
    assert dataset[1][1] | {"score": 0} == {
        "label": 0, "patient_id": "00002", "zip": "99999", "age": -7, "score": 0, "mass": 2.5,
        "note": 'quoted "and"\nbroken',
    }  # fmt: skip
    back = unpack(tmp_path / "x.fl", tmp_path / "out").table
    [header, *rows] = cells_of(back)
    assert (header, rows) == (HEADER, ROWS)
    pack(back, tmp_path / "again.fl", encode="keep", workers=1)
    again = PackedDataset(tmp_path / "again.fl")
    assert again.classes == dataset.classes
    for (_, values), (_, before) in zip(again, dataset, strict=True):
        np.testing.assert_equal(values, before)


def test_decisions_are_printed_and_stored_in_the_manifest(table, tmp_path):
    done = run("pack", table, tmp_path / "x.fl", "--encode", "keep", "--column", "age=float")
    decided = read_manifest(tmp_path / "x.fl").made["columns"]
    assert decided == {
        "image": "paths of the images, of the column 'path'",
        "label": "names of 2 classes, of the column 'label'",
        "patient_id": "text, of the column 'patient_id'",
        "zip": "text, of the column 'zip'",
        "age": "float64, of the column 'age'",
        "score": "float64, of the column 'score'",
        "mass": "float64, of the column 'mass', 1 empty cell is NaN (the first in row 3)",
        "note": "text, of the column 'note'",
    }
    for name, decision in decided.items():
        assert f"{name}: {decision}\n" in done.stdout
    done = run("pack", table, tmp_path / "y.fl", "--json", "--column", "mass=text", "--column", "age=text")
    decided = json.loads(done.stdout)["columns"]
    assert (decided["mass"], decided["age"]) == ("text, of the column 'mass'", "text, of the column 'age'")


@pytest.mark.parametrize("option", ["mask", "=text", "mask=", "mask=number", "mast=path"])
def test_an_invalid_option_stops_the_command(table, tmp_path, option, capsys):
    with contextlib.suppress(SystemExit):
        assert main(["pack", str(table), str(tmp_path / "x.fl"), "--column", option]) == 2
    assert "must" in capsys.readouterr().err
    assert not (tmp_path / "x.fl").exists()


@pytest.mark.parametrize("encode", ["keep", "raw", "jpeg"])
def test_a_mask_is_stored_as_its_file_in_every_encoding(table, tmp_path, encode):
    write(table, ["path", "label", "mask"], [[f"{n}.png", f"c{n}", f"m{n}.png"] for n in "123"])
    size = {} if encode == "keep" else {"size": 16}
    pack(table, tmp_path / "x.fl", encode=encode, columns={"mask": "path"}, workers=1, **size)
    assert not verify(tmp_path / "x.fl", workers=1).damages
    for cache in (None, "ram"):
        dataset = PackedDataset(tmp_path / "x.fl", cache=cache)
        for index in range(3):
            expected = (tmp_path / f"m{index + 1}.png").read_bytes()
            assert dataset[index][1] == {"label": index, "mask": expected}
            assert dataset.read(index).image_shape("mask") == (24, 32, 1)
        [batch] = DataLoader(dataset, batch_size=3, num_workers=0)
        assert batch[1]["mask"] == default_collate([dataset[index] for index in range(3)])[1]["mask"]
        dataset.close_cache()


def test_a_row_without_a_mask_has_none(table, tmp_path):
    write(table, ["path", "label", "mask"], [["1.png", "a", ""], ["2.png", "b", "m2.png"]])
    pack(table, tmp_path / "x.fl", workers=1, encode="raw", size=16)
    assert not verify(tmp_path / "x.fl", workers=1).damages
    for cache in (None, "ram"):
        dataset = PackedDataset(tmp_path / "x.fl", cache=cache)
        assert dataset[0][1] == {"label": 0, "mask": b""}
        assert dataset[1][1] == {"label": 1, "mask": (tmp_path / "m2.png").read_bytes()}
        dataset.close_cache()


def test_a_missing_mask_is_left_out_and_listed(table, tmp_path):
    write(table, ["path", "mask"], [["1.png", "m1.png"], ["2.png", "gone.png"], ["3.png", "t.csv"]])
    with pytest.raises(SourceError, match=r"t\.csv, row 2: .*gone\.png"):
        pack(table, tmp_path / "x.fl", columns={"mask": "path"})
    for on_error in ("skip", "keep"):
        dest = tmp_path / f"{on_error}.fl"
        [split] = pack(table, dest, columns={"mask": "path"}, on_error=on_error, encode="keep").splits
        assert (split.records, [failure.key for failure in split.skipped]) == (1, ["2.png", "3.png"])


def test_masks_of_a_dataset_are_packed_without_options(tmp_path):
    class Masked:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            palette = Image.fromarray(np.full((4, 4), index + 1, np.uint8), "P")
            palette.putpalette(bytes(range(256)) * 3)
            return {"image": Image.fromarray(pixels(index)), "mask": palette}

    pack(Masked(), tmp_path / "x.fl", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    for index in range(2):
        data = dataset[index][1]["mask"]
        with Image.open(io.BytesIO(data)) as mask:
            assert np.asarray(mask).tolist() == [[index + 1] * 4] * 4


def test_unfinished_packing_is_not_resumed_with_other_columns(table, tmp_path):
    pack(table, tmp_path / "x.fl", workers=1)
    pack(table, tmp_path / "y.fl", columns={"age": "text"}, workers=1)
    kinds = [
        next(f.kind for f in read_manifest(tmp_path / name).fields if f.name == "age")
        for name in ("x.fl", "y.fl")
    ]
    assert kinds == ["scalar", "text"]


def test_columns_without_a_table_are_refused(tmp_path):
    with pytest.raises(fastload.OptionError, match="columns are for"):
        pack([(b"", 0)], tmp_path / "x.fl", columns={"label": "text"})
