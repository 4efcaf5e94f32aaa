"""Table of labels and further fields, which `unpack` writes in a form that `pack` reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fastload.errors import DamageError
from fastload.shards.record import Record
from fastload.shards.records import RecordReader
from fastload.shards.schema import Field
from fastload.sources.table.columns import are_class_names


class LabelTable:
    """Writer of a table with a row for each record."""

    def __init__(
        self,
        write_row: Callable[[Iterable[object]], object],
        reader: RecordReader,
        fields: Sequence[Field],
        images: Sequence[Field],
    ) -> None:
        self._write_row = write_row
        self._fields = fields
        self._classes = reader.manifest.classes
        has_label = any(field.name == "label" for field in fields)
        are_numbers = self._classes == tuple(map(str, range(len(self._classes))))  # or there are none
        self._has_names = has_label and not are_numbers
        self._names_are_labels = self._has_names and _names_give_labels(reader)
        extra = ["class"] if self._has_names and not self._names_are_labels else []
        names = [field.name for field in images]
        paths = ["path"] if reader.manifest.image is not None else []
        write_row([*paths, *(field.name for field in fields), *extra, *names])

    def add(self, paths: Sequence[str], record: Record) -> None:
        """Write the row of a record whose images, if it has any, are at `paths`."""
        row = {field.name: record[field.name] for field in self._fields}
        if self._has_names:
            label = row["label"]
            name = self._classes[label] if 0 <= label < len(self._classes) else ""
            row["label" if self._names_are_labels else "class"] = name
        self._write_row([*paths[:1], *row.values(), *paths[1:]])


def _names_give_labels(reader: RecordReader) -> bool:
    """Return True if `pack` would derive the same labels from the class names.

    It numbers the names in sorted order, and does not accept numbers or file names as class names.
    """
    classes = reader.manifest.classes
    try:
        labels = {int(label) for label in np.unique(reader.column("label"))}
    except DamageError:
        return False
    is_same_order = labels == set(range(len(classes))) and list(classes) == sorted({*classes} - {""})
    return is_same_order and are_class_names(classes)
