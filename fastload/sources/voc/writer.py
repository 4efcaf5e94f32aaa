"""Unpacking to Pascal VOC's layout: masks, and XML files and lists where the attached ones do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from xml.etree import ElementTree

from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.record import Record
from fastload.sources.voc.lists import IMAGES, MASKS, OBJECT_MASKS, SETS
from fastload.sources.voc.rows import FLAGS, SIDES
from fastload.sources.writing import LayoutWriter, WrittenFiles, number_text

_FOLDERS = {"mask": MASKS, "instances": OBJECT_MASKS}  # earlier releases stored the masks of objects, too
_SUFFIXES = {"GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif", "WebP": ".webp", "PNM": ".pgm", "JPEG": ".jpg"}


class VocWriter(LayoutWriter):
    """Writer of a split's masks, annotations and list of images."""

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        if "boxes" not in self.names:
            return
        height, width, channels = record.image_shape()
        root = ElementTree.Element("annotation")
        _add(root, filename=image.name)
        _add(ElementTree.SubElement(root, "size"), width=str(width), height=str(height), depth=str(channels))
        for members, sides in self._objects(record):
            found = ElementTree.SubElement(root, "object")
            _add(found, **members)
            _add(ElementTree.SubElement(found, "bndbox"), **sides)
        path = PurePosixPath(self.details["boxes"]) / self._inner(image).with_suffix(".xml")
        yield path.as_posix(), ElementTree.tostring(root, encoding="utf-8")

    def _objects(self, record: Record) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        """Yield the members and the box of each object."""
        flags = zip(*(record[name].tolist() for name in FLAGS), strict=True)
        columns = record["labels"].tolist(), record["pose"], flags, record["boxes"].tolist()
        for label, pose, own, (left, top, right, bottom) in zip(*columns, strict=True):
            members = {"name": self.manifest.classes[label], "pose": pose}
            members |= dict(zip(FLAGS, map(str, own), strict=True))
            sides = map(number_text, (left + 1, top + 1, right, bottom))
            yield members, dict(zip(SIDES, sides, strict=True))

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        inner = self._inner(image)
        for name, folder in _FOLDERS.items():
            if name in self.names and len(mask := record.stored(name)):
                data = bytes(mask)
                suffix = _SUFFIXES.get(format_of(data[:HEAD_BYTES]) or "", ".png")
                yield f"{folder}/{inner.with_suffix(suffix)}", data

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        if self.split and self.details["images"] == IMAGES:
            content = "".join(f"{self._inner(image).with_suffix('')}\n" for image in self.images)
            yield f"{SETS}/Main/{self.split}.txt", content.encode()

    def _inner(self, image: PurePosixPath) -> PurePosixPath:
        return image.relative_to(self.details["images"])


def _add(parent: ElementTree.Element, **members: str) -> None:
    for name, text in members.items():
        ElementTree.SubElement(parent, name).text = text
