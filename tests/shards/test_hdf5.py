"""HDF5 shards: the conformance suite, HDF5's own tools, and the payload that is written beforehand."""

import os
import random
import signal
import subprocess
import threading

import h5py
import numpy as np
import pytest
from hypothesis import given

from fastload.errors import DamageError
from fastload.shards import hdf5
from fastload.shards.container import Ragged
from fastload.shards.schema import CRC32C, Column
from tests.shards.conformance import EVERY_COLUMN, FEW_COLUMNS, ContainerConformance
from tests.shards.contents import (
    IDENTITY,
    columns_and_rows,
    content_of,
    opened,
    random_rows,
    read_rows,
    write_shard,
)


class TestHdf5(ContainerConformance):
    container = "hdf5"


@given(content=columns_and_rows())
def test_any_fields_and_records_round_trip(tmp_path_factory, content):
    columns, rows = content
    path = write_shard("hdf5", tmp_path_factory.mktemp("shard"), columns, rows)
    assert read_rows("hdf5", path, columns, len(rows)) == rows


def contents(path):
    """Return dtype, shape and bytes of every dataset of a file, by name."""
    found = {}

    def take(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = (item.dtype, item.shape, item[()].tobytes())

    with h5py.File(path, "r") as file:
        file.visititems(take)
    return found


def written_by_h5py(folder, columns, rows):
    """Write the shard with h5py itself, dataset by dataset."""
    folder.mkdir()
    content = content_of(columns, rows, folder / "payload", 0)
    with h5py.File(folder / "plain.h5", "w") as file:
        file["shard-identity"] = np.frombuffer(IDENTITY, np.uint8)
        for name, array in content.fixed.items():
            file[name] = array
        payload = Ragged(np.fromfile(folder / "payload", np.uint8), content.payload.offsets)
        for name, ragged in {**content.ragged, "image": payload}.items():
            file[f"{name}/data"], file[f"{name}/offsets"] = ragged.data, ragged.offsets
    return folder / "plain.h5"


@given(content=columns_and_rows())
def test_shard_has_the_same_datasets_as_one_written_by_h5py(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("shards")
    shard = write_shard("hdf5", folder, *content)
    assert contents(shard) == contents(written_by_h5py(folder / "plain", *content))


@pytest.mark.parametrize("size", [1, 511, 512, 4095, 4096, 4097, 70_000, 200_000])
def test_payload_of_any_size_is_at_its_offset(tmp_path, size):
    rows = [dict(row, image=bytes([7]) * size) for row in random_rows(EVERY_COLUMN, 3)]
    shard = write_shard("hdf5", tmp_path, EVERY_COLUMN, rows)
    assert contents(shard) == contents(written_by_h5py(tmp_path / "plain", EVERY_COLUMN, rows))
    assert read_rows("hdf5", shard, EVERY_COLUMN, 3) == rows


def test_file_has_the_size_that_hdf5_expects(tmp_path):
    path = write_shard("hdf5", tmp_path, FEW_COLUMNS, random_rows(FEW_COLUMNS, 3, longest=50_000))
    with h5py.File(path, "r") as file:
        assert file.id.get_filesize() == path.stat().st_size


@pytest.mark.parametrize("columns", [FEW_COLUMNS, EVERY_COLUMN], ids=["few", "every"])
def test_payload_is_never_copied(tmp_path, columns):
    rows = [dict(row, image=bytes(1000)) for row in random_rows(columns, 3)]
    content = content_of(columns, rows, tmp_path / "payload", hdf5.WRITER.payload_offset)
    written = content.payload.path.stat().st_ino
    hdf5.WRITER.write(tmp_path / "shard.h5", columns, content)
    assert (tmp_path / "shard.h5").stat().st_ino == written


def test_payload_takes_no_memory_while_the_structure_is_made(tmp_path):
    content = content_of(FEW_COLUMNS, random_rows(FEW_COLUMNS, 3), tmp_path / "payload", 0)
    content.payload.offsets[-1] = 1 << 40
    structure, begin = hdf5._structure(FEW_COLUMNS, content)
    assert begin == 4096
    assert structure.size_bytes > 1 << 40
    assert len(structure.memory.getvalue()) < 100_000


def test_a_small_payload_is_moved_to_where_hdf5_places_it(tmp_path):
    rows = [dict(row, image=bytes([number]) * 7) for number, row in enumerate(random_rows(FEW_COLUMNS, 3))]
    content = content_of(FEW_COLUMNS, rows, tmp_path / "payload", hdf5.WRITER.payload_offset)
    hdf5.WRITER.write(tmp_path / "shard.h5", FEW_COLUMNS, content)
    with h5py.File(tmp_path / "shard.h5") as shard:
        assert shard["image/data"].id.get_offset() != hdf5.WRITER.payload_offset
        assert shard["image/data"][()].tobytes() == b"".join(row["image"] for row in rows)


def test_interrupt_while_the_structure_is_made_is_not_lost(tmp_path):
    content = content_of(EVERY_COLUMN, random_rows(EVERY_COLUMN, 5), tmp_path / "payload", 0)
    chance = random.Random(3)

    def make_and_wait(timer):
        timer.start()
        hdf5._structure(EVERY_COLUMN, content)
        timer.join()

    for _ in range(60):
        delay_s = chance.uniform(0, 0.03)  # about as long as making the structure takes
        with pytest.raises(KeyboardInterrupt):
            make_and_wait(threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT)))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_pixels_of_one_shape_are_one_array(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    records = zip(random_rows(FEW_COLUMNS, 4), pixels, strict=True)
    rows = [dict(row, image=image.tobytes()) for row, image in records]
    path = write_shard("hdf5", tmp_path, FEW_COLUMNS, rows, row_shape=(5, 6, 3))
    with h5py.File(path, "r") as file:
        assert np.array_equal(file["image/data"][()], pixels)
    reader = opened("hdf5", path, FEW_COLUMNS, 4)
    assert bytes(reader.row("image", 2)) == pixels[2].tobytes()


def test_h5py_reads_a_shard_without_fastload(tmp_path):
    rows = random_rows(EVERY_COLUMN, 12)
    path = write_shard("hdf5", tmp_path, EVERY_COLUMN, rows)
    with h5py.File(path, "r") as file:
        for column in EVERY_COLUMN:
            if not column.ragged:
                array = file[column.name][()]
                assert array.dtype == np.dtype(column.dtype)
                assert array.tobytes() == b"".join(row[column.name] for row in rows)
                continue
            data, offsets = file[f"{column.name}/data"], file[f"{column.name}/offsets"][()].tolist()
            assert data.dtype == np.dtype(column.dtype)
            assert data.shape[1:] == column.shape
            for index, row in enumerate(rows):
                assert data[offsets[index] : offsets[index + 1]].tobytes() == row[column.name]


def test_datasets_are_contiguous_and_uncompressed(tmp_path):
    path = write_shard("hdf5", tmp_path, EVERY_COLUMN, random_rows(EVERY_COLUMN, 12))
    with h5py.File(path, "r") as file:
        names = list(contents(path))
        assert names
        for name in names:
            assert file[name].chunks is None
            assert file[name].compression is None


def test_h5dump_reads_a_shard(tmp_path, require_tool):
    h5dump = require_tool("h5dump")
    rows = random_rows(EVERY_COLUMN, 3)
    path = write_shard("hdf5", tmp_path, EVERY_COLUMN, rows)
    shown = subprocess.run([h5dump, "-d", "/scalar_uint16", path], capture_output=True, text=True, check=True)
    values = [int.from_bytes(row["scalar_uint16"], "little") for row in rows]
    assert f"(0): {values[0]}, {values[1]}, {values[2]}" in shown.stdout
    out = tmp_path / "image.bin"
    command = [h5dump, "-d", "/image/data", "-b", "LE", "-o", out, path]
    subprocess.run(command, capture_output=True, check=True)
    assert out.read_bytes() == b"".join(row["image"] for row in rows)
    full = subprocess.run([h5dump, "-H", path], capture_output=True, text=True, check=True)
    assert not full.stderr
    assert all(column.name.split("/")[0] in full.stdout for column in EVERY_COLUMN)


def write_foreign(path, **datasets):
    with h5py.File(path, "w") as file:
        file["shard-identity"] = np.frombuffer(IDENTITY, np.uint8)
        for name, options in datasets.items():
            file.create_dataset(name.replace("__", "/"), **options)


def test_compressed_dataset_is_refused(tmp_path):
    path = tmp_path / "shard.h5"
    write_foreign(path, crc32c={"data": np.zeros(4, "<u4"), "chunks": (2,), "compression": "gzip"})
    with pytest.raises(DamageError, match="contiguous"):
        opened("hdf5", path, (CRC32C,), 4)


def test_dataset_of_another_dtype_is_refused(tmp_path):
    path = tmp_path / "shard.h5"
    write_foreign(path, crc32c={"data": np.zeros(4, ">u4")})
    with pytest.raises(DamageError, match="uint32"):
        opened("hdf5", path, (CRC32C,), 4)


def test_dataset_without_storage_is_refused(tmp_path):
    path = tmp_path / "shard.h5"
    write_foreign(path, crc32c={"shape": (4,), "dtype": "<u4"})
    with pytest.raises(DamageError, match="storage"):
        opened("hdf5", path, (CRC32C,), 4)


def test_offsets_of_another_length_are_refused(tmp_path):
    path = tmp_path / "shard.h5"
    data = {"data": np.zeros(9, np.uint8)}
    write_foreign(path, key__data=data, key__offsets={"data": np.zeros(9, "<u8")})
    with pytest.raises(DamageError, match=r"key/offsets must have the shape \(5,\)"):
        opened("hdf5", path, (Column("key", "uint8", ragged=True),), 4)


@pytest.mark.parametrize("offsets", [[0, 2**63, 5, 2**64 - 1, 9], [9, 5, 3, 1, 0], [0, 100, 200, 300, 400]])
def test_invalid_offsets_give_short_rows_but_no_crash(tmp_path, offsets):
    path = tmp_path / "shard.h5"
    data = {"data": np.arange(9, dtype=np.uint8)}
    write_foreign(path, key__data=data, key__offsets={"data": np.array(offsets, "<u8")})
    reader = opened("hdf5", path, (Column("key", "uint8", ragged=True),), 4)
    assert all(len(reader.row("key", index)) <= 9 for index in range(4))
