"""Unpacking to Pascal VOC's layout: XML files, masks and lists of splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from xml.etree import ElementTree

from fastload.shards.record import Record
from fastload.sources.writing import LayoutWriter, WrittenFiles, number_text

_MASKS = {"mask": "SegmentationClass", "instances": "SegmentationObject"}


class VocWriter(LayoutWriter):
    """Writer of a split's annotations: the source's own XML, with scaled numbers for a resized image."""

    @property
    def _is_beside(self) -> bool:
        return self.details.get("is_beside") is True

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        if "xml" in self.names:
            xml = image.with_suffix(".xml")
            yield xml.as_posix() if self._is_beside else f"Annotations/{xml.name}", self._xml(record)

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        for name in self.names & {*_MASKS}:
            if len(mask := record.stored(name)):
                yield f"{_MASKS[name]}/{image.stem}.png", bytes(mask)

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        if self.split and not self._is_beside:
            kind = "Main" if "xml" in self.names else "Segmentation"
            content = "".join(f"{image.stem}\n" for image in self.images)
            yield f"ImageSets/{kind}/{self.split}.txt", content.encode()

    def _xml(self, record: Record) -> bytes:
        data: bytes = record["xml"]
        if not self.manifest.made.get("limit"):
            return data
        root = ElementTree.fromstring(data)
        height, width, _ = record.image_shape()
        for name, side in (("height", height), ("width", width)):
            if (stated := root.find(f"size/{name}")) is not None:
                stated.text = str(side)
        for found, box in zip(root.findall("object/bndbox"), record["boxes"].tolist(), strict=True):
            sides = [box[0] + 1, box[1] + 1, box[2], box[3]]
            for name, value in zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True):
                if (element := found.find(name)) is not None:
                    element.text = number_text(value)
        return bytes(ElementTree.tostring(root, encoding="utf-8"))
