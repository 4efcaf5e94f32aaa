"""unpack gives folders back, and writes nowhere else, whatever a key says."""

import csv

import cv2
import numpy as np
import pytest

import fastload
from fastload.unpacking import safe_path, unpack
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
