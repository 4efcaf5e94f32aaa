"""LMDB shards: the conformance suite, and their content as read by the lmdb library."""

import lmdb
import numpy as np
from hypothesis import given

from tests.shards.conformance import EVERY_COLUMN, ContainerConformance
from tests.shards.contents import IDENTITY, columns_and_rows, random_rows, read_rows, write_shard

KEY_BYTES = 511  # LMDB's limit


class TestLmdb(ContainerConformance):
    container = "lmdb"


@given(content=columns_and_rows())
def test_any_fields_and_records_round_trip(tmp_path_factory, content):
    columns, rows = content
    path = write_shard("lmdb", tmp_path_factory.mktemp("shard"), columns, rows)
    assert read_rows("lmdb", path, columns, len(rows)) == rows


def test_plain_lmdb_reads_a_shard_by_the_documented_keys(tmp_path):
    rows = random_rows(EVERY_COLUMN, 12)
    path = write_shard("lmdb", tmp_path, EVERY_COLUMN, rows)
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        stored = dict(transaction.cursor())
    expected = {b"records": b"12", b"shard-identity": IDENTITY}
    for column in EVERY_COLUMN:
        if column.ragged:
            for index, row in enumerate(rows):
                expected[f"{column.name}/{index:08d}".encode()] = row[column.name]
        else:
            expected[column.name.encode()] = b"".join(row[column.name] for row in rows)
    assert stored == expected


def test_fixed_columns_are_little_endian_arrays(tmp_path):
    rows = random_rows(EVERY_COLUMN, 5)
    path = write_shard("lmdb", tmp_path, EVERY_COLUMN, rows)
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        values = np.frombuffer(transaction.get(b"scalar_uint32"), "<u4")
    assert values.tolist() == [int.from_bytes(row["scalar_uint32"], "little") for row in rows]


def test_a_shard_is_a_single_file_without_a_lock_file(tmp_path):
    path = write_shard("lmdb", tmp_path, EVERY_COLUMN, random_rows(EVERY_COLUMN, 5))
    assert path.is_file()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_the_longest_field_name_fits_into_a_key():
    longest = "x" * 64
    assert len(f"{longest}/tiles/{10**8 - 1:08d}") < KEY_BYTES
