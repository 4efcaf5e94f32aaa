"""Unpacking to Pascal VOC's layout: XML files, masks and lists of splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from xml.etree import ElementTree

from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.record import Record
from fastload.sources.writing import LayoutWriter, WrittenFiles, number_text

_MASKS = {"mask": "SegmentationClass", "instances": "SegmentationObject"}
_SUFFIXES = {"GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif", "WebP": ".webp", "PNM": ".pgm", "JPEG": ".jpg"}


class VocWriter(LayoutWriter):
    """Writer of a split's annotations: the source's own XML, with scaled numbers for a resized image."""

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        if "xml" in self.names:
            xml = PurePosixPath(self.details["boxes"]) / self._inner(image).with_suffix(".xml")
            yield xml.as_posix(), self._xml(record)

    def _inner(self, image: PurePosixPath) -> PurePosixPath:
        return image.relative_to(self.details["images"])

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        inner = self._inner(image)
        for name in self.names & {*_MASKS}:
            if len(mask := record.stored(name)):
                data = bytes(mask)
                suffix = _SUFFIXES.get(format_of(data[:HEAD_BYTES]) or "", ".png")
                yield f"{_MASKS[name]}/{inner.with_suffix(suffix)}", data

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        if self.details.get("list"):
            content = "".join(f"{self._inner(image).with_suffix('')}\n" for image in self.images)
            yield f"{self.details['lists']}/{self.details['list']}.txt", content.encode()

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
