"""Values of stored records, as targets or, without images, as samples; one by one or in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastload.datasets._batch_source import Records
from fastload.datasets.batch import BatchMemory
from fastload.errors import FormatError, OptionError
from fastload.images.encodings import encoding_named
from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.shards.schema import Field

# Numbers of these dtypes are Python's, which `default_collate` makes tensors of the same dtypes; uint64 may
# exceed int64.
_DTYPES_OF_PYTHON = ("bool", "int64", "float64", "uint64")

SampleForm = str | Sequence[str | Sequence[str]] | None
"""The fields in the places of their values: see `sample_form`."""


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
            field.name: encoding_named(field.encoding)
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

    def batch(self, records: Records, positions: NDArray[np.int64], out: BatchMemory) -> object:
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
    details: Any = manifest.made.get("details")
    form = details.get("sample") if isinstance(details, Mapping) else None
    parts = [form] if isinstance(form, str) else form or []
    used = [name for part in parts for name in ([part] if isinstance(part, str) else part)]
    if form is not None and sorted(used) != sorted(names):
        raise FormatError(
            f"the form of its samples must have each of the fields {names}, got {form!r}: the program that "
            "wrote the manifest did not follow the format's specification"
        )
    return form
