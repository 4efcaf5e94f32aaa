"""Conformance suite of shard containers, subclassed once for each container."""

import os
import pickle
import time

import numpy as np
import pytest

from fastload.errors import DamageError
from fastload.shards.schema import CRC32C, KEY, Column, record_columns
from tests.shards.contents import (
    EVERY_FIELD,
    IMAGE,
    opened,
    random_rows,
    read_rows,
    write_shard,
)

EVERY_COLUMN = (*record_columns(EVERY_FIELD), CRC32C)
FEW_COLUMNS = (*record_columns((IMAGE,)), CRC32C)


class ContainerConformance:
    """Tests of one `container`, which subclasses name."""

    container: str

    def test_every_kind_and_dtype_round_trips(self, tmp_path):
        rows = random_rows(EVERY_COLUMN, 13)
        path = write_shard(self.container, tmp_path, EVERY_COLUMN, rows)
        assert read_rows(self.container, path, EVERY_COLUMN, 13) == rows

    @pytest.mark.parametrize("longest", [0, 1])
    def test_empty_rows_round_trip(self, tmp_path, longest):
        rows = random_rows(EVERY_COLUMN, 5, longest=longest)
        path = write_shard(self.container, tmp_path, EVERY_COLUMN, rows)
        assert read_rows(self.container, path, EVERY_COLUMN, 5) == rows

    def test_rows_of_a_megabyte_round_trip(self, tmp_path):
        rows = random_rows(FEW_COLUMNS, 3, longest=1_000_000)
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, rows)
        assert read_rows(self.container, path, FEW_COLUMNS, 3) == rows

    def test_thousands_of_records_are_read_in_any_order(self, tmp_path):
        rows = random_rows(FEW_COLUMNS, 3000)
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, rows)
        reader = opened(self.container, path, FEW_COLUMNS, 3000)
        for index in np.random.default_rng(0).permutation(3000).tolist():
            assert bytes(reader.row("image", index)) == rows[index]["image"]
            assert bytes(reader.row("key", index)) == rows[index]["key"]

    def test_fixed_columns_are_read_as_a_whole(self, tmp_path):
        rows = random_rows(EVERY_COLUMN, 7)
        path = write_shard(self.container, tmp_path, EVERY_COLUMN, rows)
        reader = opened(self.container, path, EVERY_COLUMN, 7)
        for column in EVERY_COLUMN:
            if not column.ragged:
                full = reader.fixed(column.name)
                assert full.dtype == column.numpy_dtype
                assert full.shape == (7, *column.shape)
                assert full.tobytes() == b"".join(row[column.name] for row in rows)

    def test_rows_are_read_only(self, tmp_path):
        path = write_shard(self.container, tmp_path, EVERY_COLUMN, random_rows(EVERY_COLUMN, 4))
        reader = opened(self.container, path, EVERY_COLUMN, 4)
        for column in EVERY_COLUMN:
            assert memoryview(reader.row(column.name, 1)).readonly

    def test_rows_outlive_their_reader(self, tmp_path):
        rows = random_rows(FEW_COLUMNS, 4, longest=100_000)
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, rows)
        reader = opened(self.container, path, FEW_COLUMNS, 4)
        rows_read = [reader.row("image", index) for index in range(4)]
        full = reader.fixed("image/shape")
        del reader
        assert [bytes(row) for row in rows_read] == [row["image"] for row in rows]
        assert full.tobytes() == b"".join(row["image/shape"] for row in rows)

    def test_equal_content_gives_equal_bytes_at_different_times(self, tmp_path):
        files = []
        for name in ("one", "two"):
            if files:  # HDF5 can record times, in seconds
                time.sleep(1.1)
            (tmp_path / name).mkdir()
            rows = random_rows(EVERY_COLUMN, 50, longest=3000)
            files.append(write_shard(self.container, tmp_path / name, EVERY_COLUMN, rows).read_bytes())
        assert files[0] == files[1]

    def test_writing_leaves_only_the_shard(self, tmp_path):
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, random_rows(FEW_COLUMNS, 4))
        assert list(tmp_path.iterdir()) == [path]

    def test_reading_changes_no_file_and_leaves_no_lock(self, tmp_path):
        rows = random_rows(FEW_COLUMNS, 4)
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, rows)
        before = path.read_bytes(), path.stat().st_mtime_ns
        assert read_rows(self.container, path, FEW_COLUMNS, 4) == rows
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before
        assert list(tmp_path.iterdir()) == [path]

    def test_a_read_only_file_in_a_read_only_folder_is_read(self, tmp_path):
        rows = random_rows(FEW_COLUMNS, 4)
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, rows)
        path.chmod(0o400)
        tmp_path.chmod(0o500)
        try:
            assert read_rows(self.container, path, FEW_COLUMNS, 4) == rows
        finally:
            tmp_path.chmod(0o700)

    def test_two_readers_of_one_shard_work_at_once(self, tmp_path):
        rows = random_rows(FEW_COLUMNS, 4)
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, rows)
        readers = [opened(self.container, path, FEW_COLUMNS, 4) for _ in range(2)]
        assert bytes(readers[0].row("image", 1)) == rows[1]["image"]
        del readers[0]
        assert bytes(readers[0].row("image", 2)) == rows[2]["image"]

    def test_replaced_shard_is_read_from_the_new_file(self, tmp_path):
        old, new = random_rows(FEW_COLUMNS, 4, seed=1), random_rows(FEW_COLUMNS, 4, seed=2)
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, old)
        first = opened(self.container, path, FEW_COLUMNS, 4)
        write_shard(self.container, tmp_path, FEW_COLUMNS, new)
        assert read_rows(self.container, path, FEW_COLUMNS, 4) == new
        assert bytes(first.row("image", 3)) == old[3]["image"]

    def test_a_forked_child_and_its_parent_read_the_same_reader(self, tmp_path):
        rows = random_rows(FEW_COLUMNS, 40, longest=10_000)
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, rows)
        reader = opened(self.container, path, FEW_COLUMNS, 40)
        assert bytes(reader.row("image", 0)) == rows[0]["image"]
        child = os.fork()
        is_equal = all(bytes(reader.row("image", i)) == rows[i]["image"] for i in range(40))
        if child == 0:
            os._exit(0 if is_equal else 1)
        assert is_equal
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bytes(reader.row("image", 39)) == rows[39]["image"]

    def test_missing_file_raises_damage_error(self, tmp_path):
        with pytest.raises(DamageError, match=r"nowhere"):
            opened(self.container, tmp_path / "nowhere", FEW_COLUMNS, 4)

    @pytest.mark.parametrize(
        "content", [b"", b"\0", b"no shard at all" * 1000], ids=["empty", "byte", "text"]
    )
    def test_foreign_file_raises_damage_error(self, tmp_path, content):
        path = tmp_path / "foreign"
        path.write_bytes(content)
        with pytest.raises(DamageError, match=r"foreign.*pack again") as caught:
            opened(self.container, path, FEW_COLUMNS, 4)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    def test_another_count_raises_damage_error(self, tmp_path):
        path = write_shard(self.container, tmp_path, FEW_COLUMNS, random_rows(FEW_COLUMNS, 4))
        for count in (3, 5):
            with pytest.raises(DamageError):
                opened(self.container, path, FEW_COLUMNS, count)

    def test_missing_fixed_column_raises_damage_error(self, tmp_path):
        path = write_shard(self.container, tmp_path, (KEY, *FEW_COLUMNS[1:]), random_rows(FEW_COLUMNS, 4))
        with pytest.raises(DamageError, match="label"):
            opened(self.container, path, (*FEW_COLUMNS, Column("label", "int64")), 4)
