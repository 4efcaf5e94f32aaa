"""Unpacking to a table: the source's own columns, and images under the paths that it names."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fastload.packing._layout_writers import Files, LayoutWriter
from fastload.packing._stored_records import safe_path
from fastload.shards.manifest import Manifest
from fastload.shards.records import Record


class TableWriter(LayoutWriter):
    """Writer of a table, and of the files of its further columns of images."""

    def __init__(self, manifest: Manifest, split: str) -> None:
        super().__init__(manifest, split)
        self._rows = [header] if any(header := self.details["header"]) else []

    def files(self, record: Record, image: PurePosixPath) -> Files:
        cells = {"image": image.as_posix()}
        for name, path in self.details["paths"].items():
            cells[name] = safe_path(Path(), record[path]).as_posix()
            yield cells[name], bytes(record.stored(name))
        for name in self.details["columns"]:
            if name not in cells:
                cells[name] = self._cell(name, record)
        self._rows.append([cells[name] for name in self.details["columns"]])

    def last_files(self, writers: Sequence[LayoutWriter]) -> Files:
        name = self.details["table"]
        # Spaces at the beginning of cells without quotes may be dropped in reading.
        has_spaces = any(cell.startswith(" ") for row in self._rows for cell in row)
        text = io.StringIO(newline="")
        csv.writer(
            text,
            delimiter="\t" if name.lower().endswith(".tsv") else ",",
            lineterminator="\n",
            quoting=csv.QUOTE_ALL if has_spaces else csv.QUOTE_MINIMAL,
        ).writerows(self._rows)
        yield name, text.getvalue().encode("utf-8", "surrogateescape")

    def _cell(self, name: str, record: Record) -> str:
        value, classes = record[name], self.manifest.classes
        return classes[value] if name == "label" and 0 <= value < len(classes) else str(value)
