"""Unpacking to a table: the source's own columns, and images under the paths that it names.

Rows of objects stay as they were; only the path of a changed file and the boxes of a resized image differ.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.sources.stored_records import safe_path
from fastload.sources.table.cells import JSON_SUFFIXES
from fastload.sources.writing import LayoutWriter, WrittenFiles, number_text


class TableWriter(LayoutWriter):
    """Writer of a table, and of the image files that its further columns name."""

    def __init__(self, manifest: Manifest, split: str) -> None:
        super().__init__(manifest, split)
        self._rows: list[tuple[int, list[str]]] = []

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        if "objects" in self.details:
            self._add_objects(record, image)
            return
        cells = {"image": image.as_posix()}
        for name, path in self.details["paths"].items():
            cells[name] = safe_path(Path(), record[path]).as_posix() if record[path] else ""
            if cells[name]:
                yield cells[name], bytes(record.stored(name))
        for name in self.details["columns"]:
            if name not in cells:
                value, classes = record[name], self.manifest.classes
                is_class = name == "label" and 0 <= value < len(classes)
                cells[name] = classes[value] if is_class else str(value)
        self._rows.append((len(self._rows), [cells[name] for name in self.details["columns"]]))

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        name, header = self.details["table"], self.details["header"]
        name = f"{name}.csv" if name.lower().endswith(JSON_SUFFIXES) else name
        rows = [*([header] if any(header) else []), *(cells for _, cells in sorted(self._rows))]
        # Readers may drop the leading spaces of unquoted cells.
        has_spaces = any(cell.startswith(" ") for row in rows for cell in row)
        text = io.StringIO(newline="")
        csv.writer(
            text,
            delimiter="," if name.lower().endswith(".csv") else "\t",
            lineterminator="\n",
            quoting=csv.QUOTE_ALL if has_spaces else csv.QUOTE_MINIMAL,
        ).writerows(rows)
        yield name, text.getvalue().encode("utf-8", "surrogateescape")

    def _add_objects(self, record: Record, image: PurePosixPath) -> None:
        places, boxes = self.details["objects"], iter(record["boxes"].tolist())
        size = record.image_shape()[:2]
        for number, *cells in map(json.loads, record["rows"]):
            cells[places["image"]] = image.as_posix()
            if self.manifest.made.get("limit") and any(cells[at].strip() for at in places["box"]):
                changed = [number_text(value) for value in next(boxes)]
                changed = changed if len(places["box"]) > 1 else [f"[{', '.join(changed)}]"]
                for at, text in zip(places["box"], changed, strict=True):
                    cells[at] = text
                for at, side in zip(places["size"], size, strict=False):
                    cells[at] = str(side)
            self._rows.append((number, cells))
