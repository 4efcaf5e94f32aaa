"""Unpacking to YOLO's layout: masks, and label files and a data.yaml where the attached ones do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import yaml

from fastload.shards.record import Record
from fastload.sources.writing import LayoutWriter, WrittenFiles, number_text, parallel


class YoloWriter(LayoutWriter):
    """Writer of a split's label files: parallel to `images`, or else beside the images."""

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        rows = "".join(f"{row}\n" for row in self._rows(record))
        yield parallel(image, "labels", ".txt").as_posix(), rows.encode()

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        if "mask" in self.names and len(mask := record.stored("mask")):
            yield parallel(image, "masks", ".png").as_posix(), bytes(mask)

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        if self is not writers[0]:
            return
        entries = {writer.split or "train": f"{writer.split or 'train'}.txt" for writer in writers}
        for writer, entry in zip(writers, entries.values(), strict=True):
            yield entry, "".join(f"./{path}\n" for path in writer.images).encode()
        content = {**entries, "names": dict(enumerate(self.manifest.classes))}
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        yield "data.yaml", (text + self.details.get("yaml", "")).encode()

    def _rows(self, record: Record) -> list[str]:
        boxes, labels = record["boxes"], record["labels"].tolist()
        numbers: list[list[float]] = boxes.tolist()
        if "polygons" in self.names:
            for place, polygons in enumerate(record["polygons"]):
                if polygons:
                    numbers[place] = np.concatenate(polygons).reshape(-1).tolist()
        elif "corners" in self.names:
            numbers = record["corners"].reshape(-1, 8).tolist()
        elif "keypoints" in self.names:
            points = record["keypoints"]
            columns = points.shape[1] * points.shape[2]
            numbers = np.hstack([boxes, points.reshape(len(points), columns)]).tolist()
        return [
            " ".join([str(label), *map(number_text, row)]) for label, row in zip(labels, numbers, strict=True)
        ]
