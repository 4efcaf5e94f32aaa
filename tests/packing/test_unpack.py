"""unpack writes the packed files back, and leaves out only damaged records."""

import cv2
import h5py
import numpy as np
import pytest
from PIL import Image

import fastload
from fastload.packing.unpack import unpack
from tests.folders import class_folders, encoded, files_in, pixels, tree
from tests.packing.labelled import LabelledImages, rows_of


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_keep_writes_the_same_files_back(tmp_path, container):
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
def test_other_encodings_are_written_as_images(tmp_path, encode, suffix):
    photos = class_folders(tmp_path / "photos", count=6)
    fastload.pack(photos, tmp_path / "p.fl", encode=encode, workers=1)
    unpack(tmp_path / "p.fl", tmp_path / "out")
    dataset = fastload.PackedDataset(tmp_path / "p.fl")
    for index in range(6):
        place = tmp_path / "out" / dataset.read(index).key.replace(".jpg", suffix)
        image = cv2.imread(str(place))[:, :, ::-1]
        assert np.array_equal(image, dataset[index][0].permute(1, 2, 0))


def test_splits_are_written_side_by_side(tmp_path):
    for split in ("train", "val"):
        class_folders(tmp_path / "data" / split, count=4)
    fastload.pack(tmp_path / "data", tmp_path / "out", encode="keep", workers=1)
    unpack(tmp_path / "out", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(tmp_path / "data")


def test_existing_files_are_not_changed(tmp_path):
    photos = class_folders(tmp_path / "photos", count=3)
    fastload.pack(photos, tmp_path / "p.fl", workers=1)
    before = tree(photos)
    with pytest.raises(fastload.DestinationError, match="empty folder"):
        unpack(tmp_path / "p.fl", photos)
    assert tree(photos) == before


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
def test_intact_records_are_unpacked_although_a_shard_is_damaged(tmp_path, damage):
    labels = [0, 1] * 20
    source = LabelledImages(["ant", "bee"], labels, note=["x"] * 40)
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
    with pytest.raises(fastload.DestinationError, match="file"):
        unpack(tmp_path / "p.fl", tmp_path / "file" / "out")


def test_unreadable_files_that_were_kept_come_back_in_every_encoding(tmp_path):
    photos = class_folders(tmp_path / "photos", count=3)
    (photos / "class0" / "bad.jpg").write_bytes(b"no image")
    for encode in ("keep", "raw", "jpeg"):
        fastload.pack(photos, tmp_path / f"{encode}.fl", encode=encode, on_error="keep", workers=1)
        unpack(tmp_path / f"{encode}.fl", tmp_path / encode)
        assert (tmp_path / encode / "class0" / "bad.jpg").read_bytes() == b"no image"


@pytest.mark.parametrize("more", [{}, {"note": ["x"] * 5}], ids=["folders", "table"])
def test_an_interruption_leaves_only_complete_files(tmp_path, more):
    fastload.pack(
        LabelledImages(["a", "b"], [0, 1, 0, 1, 0], **more), tmp_path / "p.fl", encode="keep", workers=1
    )

    def interrupt(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(tmp_path / "p.fl", tmp_path / "out", progress=interrupt)
    files = files_in(tmp_path / "out")
    assert len(files) == 3
    dataset = fastload.PackedDataset(tmp_path / "p.fl")
    assert set(files.values()) == {dataset.read(index)["image"] for index in range(3)}


def pil(path):
    with Image.open(path) as image:
        return np.asarray(image)


class Masked:
    """Images with a mask as a PIL image, and a second view stored as JPEG."""

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
def test_masks_of_every_encoding_are_written_as_png(tmp_path, encoding, require_tool):
    if encoding == "tiled":
        require_tool("jpegtran")
    fields = (fastload.Field("mask", "image", encoding=encoding), Masked.fields[1])
    fastload.pack(Masked(), tmp_path / "p.fl", fields=fields, workers=1)
    unpack(tmp_path / "p.fl", tmp_path / "out")
    mask = pil(tmp_path / "out" / "00000002.mask.png")
    np.testing.assert_array_equal(mask if mask.ndim == 2 else mask[:, :, 0], pixels(12, 8, 9)[:, :, 0])
