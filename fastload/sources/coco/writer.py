"""Unpacking to COCO's layout: one JSON file for each split."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.sources.writing import LayoutWriter, WrittenFiles


class CocoWriter(LayoutWriter):
    """Writer of a split's JSON file."""

    def __init__(self, manifest: Manifest, split: str) -> None:
        super().__init__(manifest, split)
        self._entries: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        height, width, _ = record.image_shape()
        folder = PurePosixPath(self.details["images"])
        name = image.relative_to(folder) if image.is_relative_to(folder) else image
        entry = json.loads(record["image_extra"])
        sides = {name: side for name, side in (("height", height), ("width", width)) if name in entry}
        self._entries.append({"file_name": name.as_posix(), **entry, **sides})
        self._annotations += self._annotations_of(record)
        yield from ()

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        content = {
            **self.details["others"],
            "images": self._entries,
            "annotations": sorted(self._annotations, key=lambda each: each["id"]),
            "categories": self.details["categories"],
        }
        yield self.details["file"], json.dumps(content).encode()

    def _annotations_of(self, record: Record) -> list[dict[str, Any]]:
        found = []
        for place, text in enumerate(record["extra"]):
            extra = json.loads(text)
            annotation = {"image_id": record["image_id"], **self._object(record, place)}
            if "points" in extra:  # fewer than other categories have
                annotation["keypoints"] = annotation["keypoints"][: 3 * extra["points"]]
            added = {name: value for name, value in annotation.items() if name not in extra["absent"]}
            found.append(added | extra["members"])
        return found

    def _object(self, record: Record, place: int) -> dict[str, Any]:
        if "captions" in self.names:
            return {"caption": record["captions"][place]}
        annotation: dict[str, Any] = {
            "category_id": self.details["categories"][int(record["labels"][place])]["id"],
            "bbox": record["boxes"][place].tolist(),
            "area": float(record["area"][place]),
            "iscrowd": int(record["iscrowd"][place]),
        }
        if "polygons" in self.names:
            rle = record["rle"][place]
            polygons = [polygon.reshape(-1).tolist() for polygon in record["polygons"][place]]
            annotation["segmentation"] = json.loads(rle) if rle else polygons
        if "keypoints" in self.names:
            annotation["keypoints"] = record["keypoints"][place].reshape(-1).tolist()
        return annotation
