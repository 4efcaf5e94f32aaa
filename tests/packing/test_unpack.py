"""unpack gives folders back, and writes nowhere else, whatever a key says."""

import csv
import dataclasses
import os
import subprocess
import sys

import cv2
import h5py
import numpy as np
import pytest
from PIL import Image

import fastload
from fastload.packing.unpack import _Unpacking, safe_path, unpack
from fastload.shards.records import RecordReader
from tests.folders import class_folders, encoded, files_in, pixels, tree

EVIL_KEYS = [
    "../escape.png", "/etc/escape.png", "a/../../../escape.png", "//host/share.png", "..", "", ".", "/",
    "a/./b.png", "nul\0byte.png", "C:\\windows\\x.png", "~/home.png", "\n.png", "-rf", "a//b.png",
]  # fmt: skip


class KeyedSource:
    """Pixels under keys that no honest source would have."""

    def __init__(self, keys):
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return pixels(index, 8, 8), index


@pytest.fixture
def pack_keys(tmp_path, monkeypatch):
    """Packs one picture under each key."""

    def pack_keys(keys, **options):
        from fastload.sources.dataset import DatasetSource

        monkeypatch.setattr(DatasetSource, "key", lambda self, index: keys[index])
        plain = DatasetSource.read

        def read(self, index):
            record = plain(self, index)
            record.key = keys[index]
            return record

        monkeypatch.setattr(DatasetSource, "read", read)
        fastload.pack(KeyedSource(keys), tmp_path / "keyed.fl", workers=1, **options)
        return tmp_path / "keyed.fl"

    return pack_keys


def test_no_key_leads_outside(pack_keys, tmp_path):
    packed = pack_keys(EVIL_KEYS, encode="keep")
    (tmp_path / "room").mkdir()
    before = tree(tmp_path)
    result = unpack(packed, tmp_path / "room" / "out")
    after = tree(tmp_path)
    assert result.files == len(EVIL_KEYS)
    changed = {path for path in after if after[path] != before.get(path, "new") and path not in before}
    assert changed
    assert all(path.startswith(b"room/out") for path in changed)


@pytest.mark.parametrize("key", EVIL_KEYS)
def test_a_safe_path_lies_below_its_root(key, tmp_path):
    place = safe_path(tmp_path, key)
    assert tmp_path in place.resolve().parents


def test_two_records_of_one_key_both_come_back(pack_keys, tmp_path):
    packed = pack_keys(["a.png", "a.png", "a.png"], encode="keep")
    unpack(packed, tmp_path / "out")
    assert {name for name in files_in(tmp_path / "out") if name.endswith(b"png")} == {
        b"a.png", b"a~2.png", b"a~3.png",
    }  # fmt: skip


def test_a_key_that_is_a_folder_of_another_is_no_loss(pack_keys, tmp_path):
    packed = pack_keys(["a", "a/b"], encode="keep")
    result = unpack(packed, tmp_path / "out")
    assert result.files == 2


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_keep_gives_the_very_files_back(tmp_path, container):
    photos = class_folders(tmp_path / "photos")
    (photos / "class0" / "not-really.jpg").write_bytes(encoded(pixels(9), ".png"))
    (photos / "empty").mkdir()
    fastload.pack(photos, tmp_path / "p.fl", encode="keep", format=container, workers=1)
    result = unpack(tmp_path / "p.fl", tmp_path / "out")
    assert result.table is None
    assert tree(tmp_path / "out") == tree(photos)


@pytest.mark.parametrize(
    ("encode", "suffix"), [("raw", ".jpg.png"), ("yuv420", ".jpg.png"), ("jpeg", ".jpg")]
)
def test_other_encodings_come_back_as_pictures(tmp_path, encode, suffix):
    photos = class_folders(tmp_path / "photos", count=6)
    fastload.pack(photos, tmp_path / "p.fl", encode=encode, workers=1)
    unpack(tmp_path / "p.fl", tmp_path / "out")
    dataset = fastload.PackedDataset(tmp_path / "p.fl")
    for index in range(6):
        place = tmp_path / "out" / dataset.read(index).key.replace(".jpg", suffix)
        image = cv2.imread(str(place))[:, :, ::-1]
        assert np.array_equal(image, dataset[index][0].permute(1, 2, 0))


def test_labels_that_folders_do_not_tell_go_to_a_table(tmp_path):
    rows = [("0.png", "dog", 0.5, "ünï"), ("sub/1.png", "cat", -1.0, 'a "quoted", text\nof two lines')]
    (tmp_path / "data" / "sub").mkdir(parents=True)
    for number, row in enumerate(rows):
        (tmp_path / "data" / row[0]).write_bytes(encoded(pixels(number), ".png"))
    with (tmp_path / "data" / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "score", "caption"), *rows])
    fastload.pack(tmp_path / "data" / "table.csv", tmp_path / "p.fl", encode="keep", workers=1)
    result = unpack(tmp_path / "p.fl", tmp_path / "out")
    assert result.table == tmp_path / "out" / "labels.csv"
    fastload.pack(result.table, tmp_path / "again.fl", encode="keep", workers=1)
    first, second = fastload.PackedDataset(tmp_path / "p.fl"), fastload.PackedDataset(tmp_path / "again.fl")
    assert first.classes == second.classes
    assert [first[i][1] for i in range(2)] == [second[i][1] for i in range(2)]


def test_splits_come_back_side_by_side(tmp_path):
    for split in ("train", "val"):
        class_folders(tmp_path / "data" / split, count=4)
    fastload.pack(tmp_path / "data", tmp_path / "out", encode="keep", workers=1)
    unpack(tmp_path / "out", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(tmp_path / "data")


def test_a_name_too_long_for_another_suffix_is_cut(tmp_path):
    photos = tmp_path / "photos" / "a"
    photos.mkdir(parents=True)
    (photos / ("x" * 251 + ".jpg")).write_bytes(encoded(pixels(1)))
    fastload.pack(tmp_path / "photos", tmp_path / "p.fl", encode="raw", workers=1)
    unpack(tmp_path / "p.fl", tmp_path / "out")
    [name] = files_in(tmp_path / "out")
    assert name.endswith(b".png")
    assert len(name) <= 257


def test_what_is_there_already_is_not_touched(tmp_path):
    photos = class_folders(tmp_path / "photos", count=3)
    fastload.pack(photos, tmp_path / "p.fl", workers=1)
    before = tree(photos)
    with pytest.raises(fastload.DestinationError, match="empty folder"):
        unpack(tmp_path / "p.fl", photos)
    assert tree(photos) == before


def test_a_key_that_is_a_file_and_a_folder_becomes_both(pack_keys, tmp_path):
    keys = ["a.png", "a.png/b.png", "a.png/c.png", "a.png~2", "d/e/f.png", "d/e"]
    packed = pack_keys(keys, encode="keep")
    result = unpack(packed, tmp_path / "out")
    assert result.files == len(keys)
    files = files_in(tmp_path / "out")
    assert {files[name] for name in files if name != b"labels.csv"} == {
        fastload.PackedDataset(packed).read(index)["image"] for index in range(len(keys))
    }
    assert b"a.png~2/b.png" in files


def test_keys_too_long_for_a_name_are_cut(pack_keys, tmp_path):
    packed = pack_keys(["x" * 300, "x" * 300 + "y", "é" * 200 + "/" + "z" * 299 + ".png"], encode="keep")
    result = unpack(packed, tmp_path / "out")
    assert result.files == 3
    assert result.damaged == ()


def test_unpacking_a_dataset_of_odd_class_names_stays_inside(tmp_path):
    from fastload.shards.manifest import read_manifest

    photos = class_folders(tmp_path / "photos", count=3)
    fastload.pack(photos, tmp_path / "p.fl", encode="keep", workers=1)
    manifest = dataclasses.replace(
        read_manifest(tmp_path / "p.fl"), classes=("../out", "/etc/x", "a/b/../c", "")
    )
    (tmp_path / "p.fl" / "manifest.json").write_bytes(manifest.to_bytes())
    (tmp_path / "room").mkdir()
    before = set(tree(tmp_path))
    unpack(tmp_path / "p.fl", tmp_path / "room" / "out")
    assert all(name.startswith(b"room/out") for name in set(tree(tmp_path)) - before)


class Labelled:
    """One picture for each label."""

    def __init__(self, classes, labels, **more):
        self.classes, self.labels, self.more = classes, labels, more

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        more = {name: values[index] for name, values in self.more.items()}
        return pixels(index, 8, 8), {"label": self.labels[index], **more}


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
    fastload.pack(Labelled(classes, labels, note=notes), tmp_path / "p.fl", encode="keep", workers=1)
    table = unpack(tmp_path / "p.fl", tmp_path / "out").table
    fastload.pack(table, tmp_path / "again.fl", encode="keep", workers=1)
    again = fastload.PackedDataset(tmp_path / "again.fl")
    assert again.targets == labels
    assert [again[index][1]["note"] for index in range(len(labels))] == notes
    written = table.read_text()
    assert all(class_name.strip().replace('"', '""') in written for class_name in classes)


def test_file_names_of_every_kind_stand_in_the_table(tmp_path):
    names = [" x.jpg", "y,z.jpg", 'q"r.jpg', "new\nline.jpg", "é.jpg", os.fsdecode(b"\xff.jpg"), "#.jpg"]
    (tmp_path / "photos").mkdir()
    for number, name in enumerate(names):
        (tmp_path / "photos" / name).write_bytes(encoded(pixels(number)))
    fastload.pack(tmp_path / "photos", tmp_path / "p.fl", encode="keep", workers=1)
    table = unpack(tmp_path / "p.fl", tmp_path / "out").table
    assert fastload.pack(table, tmp_path / "again.fl", encode="keep", workers=1).records == len(names)
    unpack(tmp_path / "again.fl", tmp_path / "out2")
    assert tree(tmp_path / "out") == tree(tmp_path / "out2")


def test_fields_that_no_table_holds_are_told(tmp_path):
    more = {"box": [[1, 2]] * 2, "rows": [np.zeros((1, 4))] * 2, "blob": [b"x"] * 2, "score": [0.5, 1.0]}
    fastload.pack(Labelled(["a", "b"], [0, 1], **more), tmp_path / "p.fl", workers=1)
    result = unpack(tmp_path / "p.fl", tmp_path / "out")
    assert result.unwritten == ("box", "rows", "blob")
    assert result.table.read_text().splitlines()[0] == '"path","label","score"'


def test_damaged_records_are_left_out_and_counted(tmp_path):
    photos = class_folders(tmp_path / "photos", count=6)
    fastload.pack(photos, tmp_path / "p.fl", encode="keep", workers=1)
    image = fastload.PackedDataset(tmp_path / "p.fl").read(5)["image"]
    shard = tmp_path / "p.fl" / "shard-00000.h5"
    shard.write_bytes(shard.read_bytes().replace(image, bytes(len(image))))
    seen = []
    result = unpack(tmp_path / "p.fl", tmp_path / "out", progress=lambda *state: seen.append(state))
    assert result.files == 5
    assert len(result.damaged) == 1
    assert seen == [(number, 6) for number in range(1, 7)]


@pytest.mark.parametrize("damage", ["a missing shard", "a damaged label"])
def test_what_is_whole_is_unpacked_although_a_shard_is_not(tmp_path, damage):
    labels = [0, 1] * 20
    source = Labelled(["ant", "bee"], labels, note=["x"] * 40)
    fastload.pack(source, tmp_path / "p.fl", encode="raw", workers=1, shard_size=4096)
    shards = sorted((tmp_path / "p.fl").glob("shard-*"))
    if damage == "a missing shard":
        shards[0].unlink()
    else:
        with h5py.File(shards[0], "r") as file:
            place = file["label"].id.get_offset()
        with shards[0].open("r+b") as file:
            file.seek(place)
            file.write(b"\7")
    result = unpack(tmp_path / "p.fl", tmp_path / "out")
    assert result.damaged
    assert result.files + len(result.damaged) == 40
    fastload.pack(result.table, tmp_path / "again.fl", workers=1)
    assert fastload.PackedDataset(tmp_path / "again.fl").targets == labels[len(result.damaged) :]


def test_unpacking_to_a_full_or_forbidden_place_is_a_pack_error(tmp_path):
    photos = class_folders(tmp_path / "photos", count=3)
    fastload.pack(photos, tmp_path / "p.fl", workers=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(fastload.PackError, match="file"):
        unpack(tmp_path / "p.fl", tmp_path / "file" / "out")


def test_records_kept_though_unreadable_come_back_in_every_encoding(tmp_path):
    photos = class_folders(tmp_path / "photos", count=3)
    (photos / "class0" / "bad.jpg").write_bytes(b"no image")
    for encode in ("keep", "raw", "jpeg"):
        fastload.pack(photos, tmp_path / f"{encode}.fl", encode=encode, on_error="keep", workers=1)
        unpack(tmp_path / f"{encode}.fl", tmp_path / encode)
        assert (tmp_path / encode / "class0" / "bad.jpg").read_bytes() == b"no image"


def rows_of(table):
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def pil(path):
    with Image.open(path) as image:
        return np.asarray(image)


def test_what_the_file_system_does_not_take_is_listed_and_all_else_written(pack_keys, tmp_path):
    too_long = "/".join(["d" * 200] * 30) + "/x.png"
    deep = "e/" * 300 + "x.png"
    packed = pack_keys(["a.png", too_long, "b/c.png", deep, "a.png/d.png"], encode="keep")
    result = unpack(packed, tmp_path / "out")
    assert result.files == 4
    [message] = result.refused
    assert message.startswith("record 1 (key 'dddd")
    assert "too long" in message
    files = files_in(tmp_path / "out")
    assert {b"a.png", b"b/c.png", deep.encode(), b"a.png~2/d.png", b"labels.csv"} == set(files)
    assert [row["path"] for row in rows_of(result.table)] == [
        "a.png", "b/c.png", deep, "a.png~2/d.png",
    ]  # fmt: skip
    assert not (tmp_path / "out" / ("d" * 200)).exists()


def test_a_class_whose_folder_has_too_long_a_path_costs_no_other(tmp_path):
    """4,096 bytes is the longest path of Linux: one class fits below this folder, the other does not."""
    photos = class_folders(tmp_path / "photos", count=4)
    first, second = sorted(photos.iterdir())[:2]
    second.rename(second.with_name("z" * 200))
    fastload.pack(photos, tmp_path / "p.fl", workers=1, encode="keep")
    out = tmp_path / "out"
    while len(str(out)) < 3900:
        out /= "d" * min(200, 3930 - len(str(out)))
    result = unpack(tmp_path / "p.fl", out)
    assert result.files == len(rows_of(result.table)) > 0
    assert {row["path"].split("/")[0] for row in rows_of(result.table)} == {
        name for name in os.listdir(out) if (out / name).is_dir()
    }
    assert first.name in os.listdir(out)
    assert result.files + len(result.refused) == 4
    assert all("zzz" in message and "too long" in message for message in result.refused)


def test_the_command_names_what_was_refused_and_exits_with_1(pack_keys, tmp_path):
    packed = pack_keys(["a.png", "/".join(["d" * 200] * 30)], encode="keep")
    command = [sys.executable, "-m", "fastload", "unpack", str(packed), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "left out: record 1 (key 'dddd" in done.stderr
    assert (tmp_path / "out" / "a.png").exists()


def test_one_place_that_cannot_be_written_costs_no_other(pack_keys, tmp_path):
    """Links that go round in circles stand in for a folder that fails: root may write to every other."""
    packed = pack_keys(["a/x.png", "b/x.png"], encode="keep")

    def block(done, total):
        if done == 1:
            (tmp_path / "out" / "b").symlink_to("loop")
            (tmp_path / "out" / "loop").symlink_to("b")

    result = unpack(packed, tmp_path / "out", progress=block)
    assert len(result.refused) == 1
    assert (tmp_path / "out" / "a" / "x.png").exists()


@pytest.mark.parametrize("more", [{}, {"note": ["x"] * 5}], ids=["folders", "table"])
def test_an_interruption_leaves_only_whole_files(tmp_path, more):
    fastload.pack(Labelled(["a", "b"], [0, 1, 0, 1, 0], **more), tmp_path / "p.fl", encode="keep", workers=1)

    def interrupt(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(tmp_path / "p.fl", tmp_path / "out", progress=interrupt)
    files = files_in(tmp_path / "out")
    assert len(files) == 3
    dataset = fastload.PackedDataset(tmp_path / "p.fl")
    assert set(files.values()) == {dataset.read(index)["image"] for index in range(3)}


class Masked:
    """Pictures with a mask as PIL gives it, and a second view stored as JPEG."""

    fields = (
        fastload.Field("mask", "image", encoding="keep"),
        fastload.Field("right", "image", encoding="jpeg"),
    )

    def __len__(self):
        return 4

    def __getitem__(self, index):
        mask = Image.fromarray(pixels(index + 10, 8, 9)[:, :, 0])
        return pixels(index, 8, 9), {"mask": mask, "right": pixels(index + 20, 8, 9)}


@pytest.mark.parametrize("encode", ["keep", "jpeg", "raw"])
def test_masks_are_written_beside_their_images(tmp_path, encode):
    source = Masked()
    fastload.pack(source, tmp_path / "p.fl", encode=encode, fields=source.fields, workers=1)
    result = unpack(tmp_path / "p.fl", tmp_path / "out")
    assert (result.files, result.unwritten, result.refused) == (12, (), ())
    rows = rows_of(result.table)
    assert list(rows[0]) == ["path", "mask", "right"]
    for index, row in enumerate(rows):
        name = row["path"].split(".")[0]
        assert (row["mask"], row["right"]) == (f"{name}.mask.png", f"{name}.right.jpg")
        mask = pil(tmp_path / "out" / row["mask"])
        np.testing.assert_array_equal(mask, pixels(index + 10, 8, 9)[:, :, 0])
        assert pil(tmp_path / "out" / row["path"]).shape[:2] == (8, 9)


@pytest.mark.parametrize("encoding", ["raw", "tiled"])
def test_masks_of_every_encoding_are_pngs(tmp_path, encoding, require_tool):
    if encoding == "tiled":
        require_tool("jpegtran")
    fields = (fastload.Field("mask", "image", encoding=encoding), Masked.fields[1])
    fastload.pack(Masked(), tmp_path / "p.fl", fields=fields, workers=1)
    unpack(tmp_path / "p.fl", tmp_path / "out")
    mask = pil(tmp_path / "out" / "00000002.mask.png")
    np.testing.assert_array_equal(mask if mask.ndim == 2 else mask[:, :, 0], pixels(12, 8, 9)[:, :, 0])


def test_classes_that_share_a_folder_are_told_apart_by_a_table(tmp_path):
    photos = class_folders(tmp_path / "photos", count=4, classes=2)
    fastload.pack(photos, tmp_path / "p.fl", encode="keep", workers=1)
    assert unpack(tmp_path / "p.fl", tmp_path / "out").table is None
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "class0").mkdir()
    unpacking = _Unpacking(RecordReader(tmp_path / "p.fl"), tmp_path / "shared", None)
    (tmp_path / "shared" / "class1").symlink_to("class0")  # as a file system does that ignores case
    labels = [row["label"] for row in rows_of(unpacking.run().table)]
    assert labels == ["class0", "class0", "class1", "class1"]
