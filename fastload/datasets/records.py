"""Images and values of stored records, as samples or batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastload.contracts import BatchMemory, Box, Gathered
from fastload.datasets.batch import BatchSource, Positions
from fastload.errors import DecodeError, FormatError, OptionError
from fastload.images.arrays import Pixels
from fastload.images.encodings import Encoding, encoding_named
from fastload.images.header import orientation_of
from fastload.images.jpeg import TileIndex
from fastload.images.region import reduction_for
from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.shards.remote import RemoteFolder
from fastload.shards.schema import Field
from fastload.transforms.transform import Sizes

# Numbers of these dtypes are Python's, which `default_collate` makes tensors of the same dtypes; uint64 may
# exceed int64.
_DTYPES_OF_PYTHON = ("bool", "int64", "float64", "uint64")

SampleForm = str | Sequence[str | Sequence[str]] | None
"""A sample without image, with a field's name for each value: see `sources.dataset.nested.sample_form`."""


class Records(Protocol):
    """Verified records, from shards or through a cache."""

    @property
    def folder(self) -> Path | RemoteFolder:
        """The dataset's place, for messages."""

    def read_verified(self, index: int) -> Record:
        """Return a verified record; its bytes are read-only."""

    def take(self, name: str, indices: Positions) -> NDArray[np.generic]:
        """Return a copy of verified records' rows of a fixed column, (indices, *row shape)."""

    def stack(self, name: str, indices: Positions) -> tuple[Pixels, Positions] | None:
        """Return the images as rows of an array (any number, size), read-only, and the row of each record.

        None unless all have one size.
        """


class RecordImages(BatchSource):
    """Images of verified records, at `positions`; a damaged record's sizes could ask for any memory.

    `orientation` is the column that holds their EXIF orientations; "" if only their files do.

    Raises DecodeError if a record was packed although it is unreadable.
    """

    def __init__(
        self,
        records: Records,
        encoding: Encoding,
        positions: Positions,
        reducing_gap: float | None = None,
        orientation: str = "",
    ) -> None:
        self._records = records
        self._encoding = encoding
        self.dtype, self.channels = encoding.pixel_type.numpy_dtype, encoding.pixel_type.channels
        self._positions = positions
        self._reducing_gap = reducing_gap
        self._orientation = orientation
        self._shapes = records.take("image/shape", positions)
        self.sizes: Sizes = self._shapes[:, :2].astype(np.int64)
        # Read for the batch at once, because record by record takes ten times as long.
        grids = records.take("image/grid", positions).tolist() if encoding.has_tiles else []
        self._grids: list[tuple[int, int, int, int]] = list(map(tuple, grids))
        if np.count_nonzero(self._shapes[:, 0]) < len(positions):
            self.region(int(np.argmin(self._shapes[:, 0])), Box(0, 0, 0, 0), (1, 1))

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        record = self._records.read_verified(int(self._positions[position]))
        reduction = 1 if self._reducing_gap is None else reduction_for(box, size, self._reducing_gap)
        shape, tiles = tuple(self._shapes[position].tolist()), None
        if self._grids:
            lengths = np.frombuffer(record.stored("image/tiles"), np.uint16)
            tiles = TileIndex(self._grids[position], lengths) if lengths.size else None
        try:
            return self._encoding.decode_box(record.stored("image"), shape, box, tiles, reduction)
        except DecodeError as error:
            raise DecodeError(
                f"{self._records.folder}, record {record.index} (key {record.key!r}): {error}"
            ) from error

    def orientations(self) -> list[int]:
        if self._orientation:
            return self._records.take(self._orientation, self._positions).tolist()  # type: ignore[no-any-return]
        if not self._encoding.holds_files:
            return super().orientations()
        read = map(self._records.read_verified, self._positions.tolist())
        return [orientation_of(bytes(record.stored("image"))) for record in read]

    def gathered(self) -> Gathered | None:
        if not self._encoding.is_raw or (self._shapes != self._shapes[0]).any():
            return None
        stacked = self._records.stack("image", self._positions)
        shape = tuple(self._shapes[0].tolist())
        if stacked is None or stacked[0].shape[1] != self._encoding.pixel_bytes(shape):
            return None
        stored, rows = stacked
        return Gathered(
            stored.view(self._encoding.pixel_type.stored_dtype).reshape(len(stored), *shape), rows
        )


class RecordValues:
    """The values of a dataset's fields, except the image and those for `unpack` alone."""

    def __init__(self, manifest: Manifest) -> None:
        self.fields = tuple(field for field in manifest.value_fields if not field.internal)
        self._columns = {field.name: _column_dtype(field) for field in self.fields}
        self._form = _form_of(manifest, list(self._columns))
        self._are_targets = manifest.image is not None
        self._number_types = {
            field.name: np.dtype(field.dtype).type
            for field in self.fields
            if field.kind == "scalar" and field.dtype not in _DTYPES_OF_PYTHON
        }
        self._pixel_encodings = {
            field.name: encoding_named(field.encoding, pixel_type=field.pixel_type)
            for field in self.fields
            if field.encoding is not None and not encoding_named(field.encoding).holds_files
        }

    def value(self, name: str, record: Record) -> object:
        """Return a field's value, which the caller may keep and write to."""
        if (encoding := self._pixel_encodings.get(name)) is not None:
            pixels = encoding.decode(record.stored(name), record.image_shape(name))
            return torch.from_numpy(pixels.copy()).permute(2, 0, 1)
        value = record[name]
        if (number_type := self._number_types.get(name)) is not None:
            return number_type(value)
        return value.copy() if isinstance(value, np.ndarray) else value

    def of(self, record: Record) -> object:
        """Return all values of a record."""
        return self._formed(lambda name: self.value(name, record), tuple)

    def batch(self, records: Records, positions: Positions, out: BatchMemory) -> object:
        """Return the values of verified records, collated as by torch's `default_collate`."""
        one_by_one = [] if all(self._columns.values()) else positions.tolist()
        read = list(map(records.read_verified, one_by_one))

        # As from default_collate, texts of tuples are tuples, and those of dicts are lists.
        form = self._form or ()
        in_tuples = form if not isinstance(form, str) else [form] if self._are_targets else ()

        def collated(name: str) -> object:
            dtype = self._columns[name]
            if dtype is None:
                container = tuple if name in in_tuples else list
                return self._collated(name, container(self.value(name, record) for record in read), read)
            rows = records.take(name, positions)
            batch = out.empty(rows.shape, dtype)
            batch.numpy()[...] = rows
            return batch

        return self._formed(collated, list)

    def _collated(self, name: str, values: Any, records: Sequence[Record]) -> object:
        try:
            return default_collate(values)
        except RuntimeError as error:
            if self._are_targets:
                raise  # as torch does
            raise OptionError(
                f"values of {name} must have one shape to be collated, and differ in the batch from record "
                f"{records[0].index} on: pass collate_fn=list, or a function that pads them ({error})"
            ) from error

    def _formed(
        self, value: Callable[[str], object], of_elements: Callable[[Iterable[object]], object]
    ) -> object:
        form = self._form
        if form is None:
            return {name: value(name) for name in self._columns}
        if isinstance(form, str):
            return value(form)
        return of_elements(
            value(part) if isinstance(part, str) else {name: value(name) for name in part} for part in form
        )


def _column_dtype(field: Field) -> torch.dtype | None:
    """Return the dtype of a batch of a field's values that is copied from its column; None for others."""
    if field.kind == "vector" or (field.kind == "scalar" and field.dtype != "uint64"):
        return torch.from_numpy(np.empty(0, field.dtype)).dtype
    return None


def _form_of(manifest: Manifest, names: list[str]) -> SampleForm:
    if manifest.image is not None:
        return "label" if names == ["label"] else None
    form = cast(SampleForm, manifest.details.get("sample"))
    parts = [form] if isinstance(form, str) else form or []
    used = [name for part in parts for name in ([part] if isinstance(part, str) else part)]
    if form is not None and sorted(used) != sorted(names):
        raise FormatError(
            f"the form of its samples must have each of the fields {names}, got {form!r}: the program that "
            "wrote the manifest did not follow the format's specification"
        )
    return form
