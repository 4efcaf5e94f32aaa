"""Unpacking to COCO's layout where the attached files do not fit: a JSON file for each split."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath

from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.sources.coco.content import Entry
from fastload.sources.writing import LayoutWriter, WrittenFiles

# Fields of objects that are members of annotations under the same names.
_MEMBERS = ("area", "iscrowd")


class CocoWriter(LayoutWriter):
    """Writer of a split's JSON file, with what the fields hold."""

    def __init__(self, manifest: Manifest, split: str) -> None:
        super().__init__(manifest, split)
        self._entries: list[Entry] = []
        self._annotations: list[Entry] = []

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        height, width, _ = record.image_shape()
        folder = PurePosixPath(self.details["images"])
        name = image.relative_to(folder) if image.is_relative_to(folder) else image
        number = record["image_id"]
        self._entries.append({"id": number, "file_name": name.as_posix(), "height": height, "width": width})
        is_text = "captions" in self.names
        objects = [{"caption": each} for each in record["captions"]] if is_text else self._objects(record)
        for each in objects:
            self._annotations.append({"id": len(self._annotations) + 1, "image_id": number, **each})
        yield from ()

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        content = {
            "images": self._entries,
            "annotations": self._annotations,
            "categories": self.details["categories"],
        }
        yield self.details["file"], json.dumps(content).encode()

    def _objects(self, record: Record) -> list[Entry]:
        columns = {name: record[name].tolist() for name in _MEMBERS}
        columns["bbox"] = record["boxes"].tolist()
        columns["category_id"] = [self.details["categories"][label]["id"] for label in record["labels"]]
        if "polygons" in self.names:
            columns["segmentation"] = [
                [polygon.reshape(-1).tolist() for polygon in polygons] for polygons in record["polygons"]
            ]
        if "keypoints" in self.names:
            points = [each.reshape(-1).tolist() for each in record["keypoints"]]
            columns["keypoints"] = [*map(self._named_points, points, record["labels"])]
        return [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]

    def _named_points(self, points: list[float], label: int) -> list[float]:
        """Return an object's keypoints without the zeros that fill them up to those of other categories."""
        names = self.details["categories"][label].get("keypoints")
        return points[: 3 * len(names)] if names else points
