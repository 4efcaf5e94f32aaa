"""Shards with correct checksums and false contents are refused by verify or by reading."""

import os
from dataclasses import replace

import h5py
import numpy as np
import pytest

import fastload
from fastload.errors import DamageError
from fastload.packing.verify import verify
from fastload.shards.checksum import file_crc32c
from fastload.shards.manifest import read_manifest
from fastload.shards.schema import Field
from tests.folders import encoded, pixels
from tests.shards.test_records import write_dataset


def with_image(tmp_path, container, encoding, data, shape, **columns):
    """A dataset of one record, every checksum right."""
    row = {
        "key": b"a.jpg",
        "image": data,
        "image/shape": np.array(shape, "<u4").tobytes(),
        "image/grid": bytes(16),
        "image/tiles": b"",
    } | columns
    fields = (Field("image", "image", encoding=encoding),)
    return write_dataset(tmp_path / "x.fl", container, fields, [[row]])


JPEG, PNG, BMP = (encoded(pixels(0), suffix) for suffix in (".jpg", ".png", ".bmp"))
SHAPE = (24, 32, 3)


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
@pytest.mark.parametrize(
    ("encoding", "data", "shape", "message"),
    [
        ("keep", JPEG, (24, 33, 3), "header says"),
        ("keep", PNG, (24, 32, 1), "header says"),
        ("keep", BMP, (2**32 - 1, 32, 3), "header says"),
        ("keep", JPEG, (0, 0, 0), "no shape"),
        ("keep", JPEG, (24, 32, 7), "header says"),
        ("jpeg", PNG, SHAPE, "its format is png"),
        ("raw", JPEG, SHAPE, "has 2,304 bytes"),
        ("yuv420", bytes(24 * 32 * 3), SHAPE, "has 1,152 bytes"),
        ("raw", bytes(24 * 32), (24, 32, 1), "3 channels"),
    ],
)
def test_false_data_about_an_image_is_found(tmp_path, container, encoding, data, shape, message):
    path = with_image(tmp_path, container, encoding, data, shape)
    [damage] = verify(path, workers=1).damages
    assert damage.record == 0
    assert message in damage.message
    assert "x.fl" in damage.message


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_false_tiles_are_found(tmp_path, container):
    grid, tiles = np.array([20, 600, 16, 16], "<u4").tobytes(), np.array([50, 60], "<u2").tobytes()
    more = {"image/grid": grid, "image/tiles": tiles}
    path = with_image(tmp_path, container, "jpeg", JPEG, SHAPE, **more)
    [damage] = verify(path, workers=1).damages
    assert "tiles are not where" in damage.message


@pytest.mark.parametrize(
    "change",
    ["compressed", "chunked", "external file", "soft link", "external link", "virtual", "group", "dtype"],
)
def test_hdf5_datasets_of_another_layout_are_refused(tmp_path, change):
    path = with_image(tmp_path, "hdf5", "keep", JPEG, SHAPE)
    [shard] = path.glob("shard-*")
    os.mkfifo(tmp_path / "pipe")  # whoever opens it waits for ever
    with h5py.File(shard, "r+") as file:
        crcs = file["crc32c"][()]
        del file["crc32c"]
        if change == "compressed":
            file.create_dataset("crc32c", data=crcs, chunks=(1,), compression="gzip")
        elif change == "chunked":
            file.create_dataset("crc32c", data=crcs, chunks=(1,))
        elif change == "external file":
            file.create_dataset("crc32c", (1,), "<u4", external=[(str(tmp_path / "pipe"), 0, 4)])
        elif change == "soft link":
            file["elsewhere"] = crcs
            file["crc32c"] = h5py.SoftLink("/elsewhere")
        elif change == "external link":
            file["crc32c"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/crc32c")
        elif change == "virtual":
            layout = h5py.VirtualLayout((1,), "<u4")
            layout[:] = h5py.VirtualSource(str(tmp_path / "pipe"), "crc32c", (1,))
            file.create_virtual_dataset("crc32c", layout)
        elif change == "group":
            file.create_group("crc32c")
        else:
            file["crc32c"] = crcs.astype(np.float32)
    manifest = read_manifest(path)
    entry = replace(manifest.shards[0], size_bytes=shard.stat().st_size, crc32c=file_crc32c(shard))
    (path / "manifest.json").write_bytes(replace(manifest, shards=(entry,)).to_bytes())
    with pytest.raises(DamageError, match="crc32c"):
        fastload.PackedDataset(path)[0]
    assert verify(path, workers=1).damages
