"""RecordReader: values of every kind, checksums, threads, and more shards than descriptors."""

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fastload.errors import DamageError, FormatError, OptionError, RecordIndexError
from fastload.shards.checksum import (
    array_crc32c,
    file_crc32c,
    identity_crc,
    record_crc32c,
    row_mask,
    shard_identity,
)
from fastload.shards.manifest import Manifest, ShardEntry
from fastload.shards.records import RecordReader
from fastload.shards.schema import CRC32C, DTYPES, Field, record_columns
from fastload.shards.shard import writer_for
from tests.commands import run_python
from tests.shards.contents import IMAGE, content_of

FIELDS = (
    IMAGE,
    Field.label(),
    Field("score", "scalar", "float32"),
    Field("is_good", "scalar", "bool"),
    Field("point", "vector", "float64", (2, 3)),
    Field("boxes", "ragged", "int16", (4,)),
    Field("note", "text"),
    Field("blob", "bytes"),
)

pytestmark = pytest.mark.parametrize("container", ["hdf5", "lmdb"])


def write_dataset(folder: Path, container: str, fields, shards) -> Path:
    """Write a packed dataset of shards, each a list of records' stored bytes by column."""
    folder.mkdir()
    writer, columns = writer_for(container), record_columns(fields)
    entries = []
    for number, rows in enumerate(shards):
        path = folder / f"shard-{number:05d}{writer.suffix}"
        crcs = [record_crc32c(row[column.name] for column in columns) for row in rows]
        identity = shard_identity([b"%d" % number, *(b"%d" % crc for crc in crcs)])
        bound = identity_crc(identity)
        for place, (row, crc) in enumerate(zip(rows, crcs, strict=True)):
            row["crc32c"] = (crc ^ row_mask(bound, place)).to_bytes(4, "little")
        content = content_of(
            (*columns, CRC32C), rows, folder / "payload", writer.payload_offset, identity=identity
        )
        writer.write(path, (*columns, CRC32C), content)
        content.payload.path.unlink(missing_ok=True)
        sums = {
            field.name: array_crc32c(content.fixed[field.name], bound)
            for field in fields
            if field.kind in ("scalar", "vector")
        }
        size = path.stat().st_size
        entries.append(ShardEntry(path.name, len(rows), size, file_crc32c(path), sums, identity.hex()))
    manifest = Manifest(container, tuple(fields), (), tuple(entries), {"fastload": "test"})
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


def row_of(index: int) -> dict[str, bytes]:
    """Return a record of FIELDS whose values are functions of its index."""
    return {
        "key": f"klasse/{index}.jpg".encode(),
        "image": bytes([index % 256]) * (100 + index),
        "image/shape": np.array([1, 2, 3], "<u4").tobytes(),
        "image/grid": bytes(16),
        "image/tiles": np.arange(index % 4, dtype="<u2").tobytes(),
        "label": index.to_bytes(8, "little"),
        "score": np.float32(index / 3).tobytes(),
        "is_good": bytes([index % 2]),
        "point": np.full((2, 3), index, "<f8").tobytes(),
        "boxes": np.full((index % 3, 4), -index, "<i2").tobytes(),
        "note": f"nö {index}".encode(),
        "blob": bytes(index % 5),
    }


@pytest.fixture
def dataset(tmp_path, container):
    """Write ten records in shards of 4, 5 and 1."""
    rows = [row_of(index) for index in range(10)]
    return write_dataset(tmp_path / "ten.fl", container, FIELDS, [rows[:4], rows[4:9], rows[9:]])


def test_values_keep_their_types(dataset):
    for index in range(10):
        record = RecordReader(dataset).read(index)
        assert record.index == index
        assert record.key == f"klasse/{index}.jpg"
        assert record["image"] == bytes([index]) * (100 + index)
        assert record.image_shape() == (1, 2, 3)
        assert type(record["label"]) is int
        assert record["label"] == index
        assert record["score"] == np.float32(index / 3)
        assert record["is_good"] is bool(index % 2)
        assert np.array_equal(record["point"], np.full((2, 3), index, np.float64))
        assert record["boxes"].shape == (index % 3, 4)
        assert record["boxes"].dtype == np.int16
        assert (record["boxes"] == -index).all()
        assert record["note"] == f"nö {index}"
        assert record["blob"] == bytes(index % 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_every_dtype_round_trip(tmp_path, container, dtype):
    fields = (IMAGE, Field("one", "scalar", dtype), Field("two", "vector", dtype, (2,)))
    if dtype == "bool":
        values = np.array([False, True])
    else:
        limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
        values = np.array([limits.min, limits.max], dtype)
    row = row_of(0) | {"one": values[1:].tobytes(), "two": values.tobytes()}
    folder = write_dataset(tmp_path / "x.fl", container, fields, [[row]])
    record = RecordReader(folder).read(0)
    assert record["one"] == values[1].item()
    assert record["two"].dtype == np.dtype(dtype)
    assert np.array_equal(record["two"], values)


@pytest.mark.parametrize("index", [-1, 10, 2**70, -(2**70)])
def test_error_of_an_index_out_of_range_names_the_count(dataset, index):
    with pytest.raises(RecordIndexError, match="10 records") as caught:
        RecordReader(dataset).read(index)
    assert isinstance(caught.value, IndexError)


def test_reader_can_be_pickled(dataset):
    reader = RecordReader(dataset)
    reader.read(5)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.read(5)["label"] == 5
    assert reader.read(6)["label"] == 6


def test_fixed_column_of_all_shards_is_joined(dataset):
    assert RecordReader(dataset).column("label").tolist() == list(range(10))


def test_dataset_without_records(tmp_path, container):
    reader = RecordReader(write_dataset(tmp_path / "empty.fl", container, FIELDS, []))
    assert len(reader) == 0
    assert reader.column("point").shape == (0, 2, 3)
    with pytest.raises(RecordIndexError):
        reader.read(0)


def test_unknown_verify_is_refused(dataset):
    with pytest.raises(OptionError, match="always, once or never"):
        RecordReader(dataset, "sometimes")


def test_only_shards_that_are_read_are_opened(dataset):
    reader = RecordReader(dataset)
    reader.read(4)
    assert [reader.is_open(number) for number in range(3)] == [False, True, False]
    reader.close_shard(1)
    assert not reader.is_open(1)
    assert reader.read(4)["label"] == 4


def damage(dataset: Path, index: int) -> None:
    """Change a byte in the image of a record."""
    expected = bytes([index]) * (100 + index)
    for shard in dataset.glob("shard-*"):
        data = shard.read_bytes()
        if (place := data.find(expected)) >= 0:
            with shard.open("r+b") as file:
                file.seek(place)
                file.write(b"\xff")
            return
    raise AssertionError("record is nowhere")


@pytest.mark.parametrize("verify", ["once", "always"])
def test_damaged_record_is_named_and_the_others_are_read(dataset, verify):
    damage(dataset, 6)
    reader = RecordReader(dataset, verify)
    for index in range(10):
        if index != 6:
            assert reader.read(index)["label"] == index
    with pytest.raises(DamageError, match=r"shard-00001.*record 6.*klasse/6\.jpg.*checksum") as caught:
        reader.read(6)
    assert "fastload verify" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(DamageError):
        reader.read(6)


def test_damage_after_the_first_check_is_found_only_by_always(dataset):
    readers = {verify: RecordReader(dataset, verify) for verify in ("once", "always")}
    for reader in readers.values():
        reader.read(6)
    damage(dataset, 6)
    readers["once"].read(6)
    with pytest.raises(DamageError):
        readers["always"].read(6)


def test_verify_never_returns_damaged_bytes(dataset):
    damage(dataset, 6)
    assert RecordReader(dataset, "never").read(6)["image"].startswith(b"\xff")


def test_missing_shard_is_named_when_it_is_read(dataset):
    missing = next(dataset.glob("shard-00001*"))
    missing.unlink()
    reader = RecordReader(dataset)
    assert reader.read(0)["label"] == 0
    with pytest.raises(DamageError, match=missing.name):
        reader.read(4)


@pytest.mark.parametrize("size", [0, 1, 4096, -1, +1])
def test_shard_of_another_size_is_named_when_it_is_read(dataset, size):
    shard = next(dataset.glob("shard-00001*"))
    os.truncate(shard, size if size > 1 else shard.stat().st_size + size if size else 0)
    with pytest.raises(DamageError, match=f"{shard.name}.*size"):
        RecordReader(dataset).read(4)


def test_folder_without_a_manifest_is_not_a_dataset(dataset):
    (dataset / "manifest.json").unlink()
    with pytest.raises(FormatError, match="is not a packed dataset"):
        RecordReader(dataset)


def test_threads_share_a_reader(dataset):
    for _ in range(5):
        reader = RecordReader(dataset)
        with ThreadPoolExecutor(8) as pool:
            indices = [index % 10 for index in range(800)]
            labels = pool.map(lambda index, reader=reader: reader.read(index)["label"], indices)
            assert list(labels) == indices


def test_replaced_dataset_is_read_from_the_new_files(dataset, container):
    old = RecordReader(dataset)
    assert old.read(0)["label"] == 0
    dataset.rename(dataset.with_name("old.fl"))
    rows = [row_of(index) | {"label": (index + 50).to_bytes(8, "little")} for index in range(10)]
    write_dataset(dataset, container, FIELDS, [rows[:4], rows[4:9], rows[9:]])
    assert RecordReader(dataset).read(0)["label"] == 50
    assert old.read(1)["label"] == 1


def test_changing_the_working_directory_has_no_effect(dataset, monkeypatch):
    monkeypatch.chdir(dataset.parent)
    reader = RecordReader(dataset.name)
    assert reader.read(0)["label"] == 0
    monkeypatch.chdir("/")
    assert reader.read(9)["label"] == 9


def test_more_shards_than_descriptors_are_read(tmp_path, container):
    folder = write_dataset(tmp_path / "many.fl", container, FIELDS, [[row_of(i)] for i in range(100)])
    code = (
        "import resource, sys; from fastload.shards.records import RecordReader\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "readers = [RecordReader(sys.argv[1]) for _ in range(3)]\n"
        "for turn in range(2):\n"
        "    for index in range(100):\n"
        "        for reader in readers:\n"
        "            assert reader.read(index)['label'] == index"
    )
    done = run_python("-c", code, folder)
    assert done.returncode == 0, done.stderr
