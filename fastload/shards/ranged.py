"""Remote HDF5 shards read by range requests: the structure, and only the images that are needed.

The structure (every column but the images) is stored around the images, and fetched when the shard is opened.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import h5py
import numpy as np
from numpy.typing import NDArray

from fastload.errors import DamageError, FastloadError
from fastload.shards.container import IDENTITY_NAME, ByteArray, ShardEntry, Stamp, require_identity
from fastload.shards.hdf5 import Hdf5Reader
from fastload.shards.remote import RemoteFolder
from fastload.shards.schema import CRC32C, Column

_HEAD_BYTES = 4096  # the superblock and the root group, before the images

Range = tuple[int, int]


class RangedReader(Hdf5Reader):
    """Reader of one remote HDF5 shard.

    `hold` fetches the images of the next reads in concurrent requests. Raises DamageError if the shard is not
    the one that the manifest lists, RemoteError if it cannot be reached.
    """

    is_ranged: ClassVar[bool] = True

    def __init__(self, remote: RemoteFolder, columns: Sequence[Column], entry: ShardEntry) -> None:
        self._remote, self._entry = remote, entry
        self.stamp = Stamp(0, 0, entry.size_bytes, 0)
        # The kernel allocates only what is written.
        self._memory = mmap.mmap(-1, entry.size_bytes)
        self._names = [column.name for column in columns if column != CRC32C]
        names = {column.name for column in columns}
        self._images = [name for name in names if f"{name}/shape" in names]
        self._image_begins: dict[str, int] = {}
        self._structure: list[Range] = []
        self._held: dict[tuple[str, int], ByteArray] = {}
        where = remote / entry.file
        try:
            # The data of fixed size, which is about half of the structure.
            row_bytes = sum(8 if column.ragged else column.row_bytes for column in columns)
            with h5py.File(_Blocks(self, row_bytes * (entry.records + 1)), "r") as file:
                self._view_identity(file, self._memory)
                self._view_columns(file, self._memory, columns, entry)
                self._locate(file, columns)
                self._load_structure()
        except FastloadError:
            raise
        except Exception as error:  # h5py raises anything on a malformed file
            remote.require_unchanged(entry)
            raise DamageError(
                f"{where}: cannot be opened as a shard ({error}): it was replaced or damaged: open "
                "the dataset again, or upload it again"
            ) from error
        require_identity(where, self.identity(), entry)

    def hold(self, rows: Iterable[int]) -> list[int]:
        """Fetch the images of some rows that are not held, and return these rows; drop all other images."""
        wanted = [(name, row) for name in self._images for row in rows]
        held = {key: self._held[key] for key in wanted if key in self._held}
        missing = [key for key in wanted if key not in held]
        parts = self._fetch([self._image_range(*key) for key in missing])
        self._held = held | dict(zip(missing, parts, strict=True))
        return [row for _, row in missing]

    def fetch_again(self, row: int) -> None:
        """Fetch the structure and a row's images again."""
        self._load_structure()
        for name in self._images:
            self._held.pop((name, row), None)

    def row(self, column: str, index: int) -> ByteArray:
        """Return the bytes of a value, as far as they were fetched."""
        if column not in self._images:
            return super().row(column, index)
        if (column, index) not in self._held:
            self._held[column, index] = self._fetch([self._image_range(column, index)])[0]
        return self._held[column, index]

    def rows(self, index: int) -> list[ByteArray]:
        """Return the bytes of all values of a record."""
        return [self.row(name, index) for name in self._names]

    def stack(self, column: str, indices: NDArray[np.int64]) -> None:
        """Return None: images are held one by one."""

    def _image_range(self, name: str, row: int) -> Range:
        _, offsets, row_bytes = self._ragged[name]
        begin = self._image_begins[name]
        return begin + offsets[row] * row_bytes, begin + offsets[row + 1] * row_bytes

    def _locate(self, file: h5py.File, columns: Sequence[Column]) -> None:
        """Find the ranges of the structure, and the offsets of the images."""
        names = [IDENTITY_NAME]
        for column in columns:
            names += [f"{column.name}/offsets", f"{column.name}/data"] if column.ragged else [column.name]
        for name in names:
            dataset = file[name].id
            begin = dataset.get_offset() or 0
            if name.removesuffix("/data") in self._images:
                self._image_begins[name.removesuffix("/data")] = begin
            elif begin:
                self._structure.append((begin, begin + dataset.get_storage_size()))

    def _load_structure(self) -> None:
        for (begin, end), part in zip(self._structure, self._fetch(self._structure), strict=True):
            self._memory[begin:end] = part.data

    def _fetch(self, ranges: Sequence[Range]) -> list[ByteArray]:
        """Return the bytes in ranges of the file; adjacent ranges are requested as one."""
        merged: list[Range] = []
        for begin, end in sorted(set(ranges)):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            elif end > begin:
                merged.append((begin, end))
        if any(end > self._entry.size_bytes for _, end in merged):
            raise DamageError(
                f"{self._remote / self._entry.file}: its index points beyond its end: it was replaced or "
                "damaged: open the dataset again, or upload it again"
            )
        found = self._remote.read_ranges(self._entry, merged) if merged else []
        arrays = {each[0]: np.frombuffer(part, np.uint8) for each, part in zip(merged, found, strict=True)}
        begins = np.array(list(arrays), np.int64)
        parts: list[ByteArray] = []
        for begin, end in ranges:
            if end <= begin:
                parts.append(np.zeros(0, np.uint8))
                continue
            first = int(begins[np.searchsorted(begins, begin, "right") - 1])
            parts.append(arrays[first][begin - first : end - first])
        return parts


class _Blocks(io.RawIOBase):
    """A remote shard as a file for h5py, which reads the structure's headers: fetched in large blocks."""

    def __init__(self, shard: RangedReader, known_bytes: int) -> None:
        self._shard = shard
        self._size = shard._entry.size_bytes
        self._block_bytes = max(_HEAD_BYTES, 2 * known_bytes)
        self._blocks: list[tuple[int, ByteArray]] = []
        self._position = 0
        self._fetch((0, min(_HEAD_BYTES, self._size)), (max(0, self._size - self._block_bytes), self._size))

    def _fetch(self, *ranges: Range) -> None:
        self._blocks += zip((begin for begin, _ in ranges), self._shard._fetch(ranges), strict=True)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence, self._size)
        return self._position

    def readinto(self, buffer: Any) -> int:
        begin, end = self._position, min(self._size, self._position + len(buffer))
        for _ in range(2):
            for first, block in self._blocks:
                if first <= begin and end <= first + len(block):
                    buffer[: end - begin] = block[begin - first : end - first].data
                    self._position = end
                    return end - begin
            self._fetch((begin, min(self._size, max(end, begin + self._block_bytes))))
        raise EOFError(f"{begin} to {end} of {self._size} bytes cannot be read")
