"""Pascal VOC's XML files, read and written: boxes in pixels, counted from 1 and inclusive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from xml.etree import ElementTree

import numpy as np

from fastload.errors import SourceError
from fastload.images.arrays import Size
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.record import Record
from fastload.shards.schema import Field
from fastload.sources.file_source import AnnotationReader, ImageValues, require_size
from fastload.sources.malformed import explaining, malformed, numbers_of
from fastload.sources.voc.lists import IMAGES, MASKS, OBJECT_MASKS, SETS
from fastload.sources.writing import LayoutWriter, WrittenFiles, number_text

FLAGS = ("difficult", "truncated")
SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True)
class VocReader(AnnotationReader):
    """Reader of XML files; `labels` gives the label of each class."""

    labels: Mapping[str, int]

    def fields(self) -> tuple[Field, ...]:
        flags = (Field(name, "ragged", "int64", per_object=True) for name in FLAGS)
        return Field.boxes("xyxy"), Field.labels(), *flags, Field("pose", "texts", per_object=True)

    def read(self, text: bytes, size: Size, where: str) -> tuple[ImageValues, tuple[str, ...]]:
        if not text:
            raise malformed(where, "exist and hold an annotation", "none")
        root = parse_xml(text, where)
        texts = [(root.findtext(f"size/{name}") or "").strip() for name in ("height", "width")]
        require_size([numbers[0] if (numbers := numbers_of([text])) else text for text in texts], size, where)
        placed = [
            (each, f"{where}, object {number}") for number, each in enumerate(root.findall("object"), 1)
        ]
        values: ImageValues = {
            "boxes": np.array([_box(each, size, place) for each, place in placed], np.float64).reshape(-1, 4),
            "labels": np.array([self._label(each, place) for each, place in placed], np.int64),
            "pose": [each.findtext("pose") or "" for each, _ in placed],
        }
        for name in FLAGS:
            values[name] = np.array([_flag(each, name, place) for each, place in placed], np.int64)
        return values, ()

    def _label(self, found: ElementTree.Element, where: str) -> int:
        name = (found.findtext("name") or "").strip()
        if name not in self.labels:
            raise malformed(where, "have a name", repr(name))
        return self.labels[name]


def parse_xml(text: bytes, where: str) -> ElementTree.Element:
    """Parse an annotation; raise SourceError if it is malformed, or declares entities."""
    # Without zero bytes, declarations in UTF-16 are found too.
    harmless = text.replace(b"\0", b"").replace(b"<!--", b"").replace(b"<![CDATA[", b"")
    if b"<!" in harmless:
        raise malformed(where, "be an annotation without declarations", "one of entities or a document type")
    errors = (ElementTree.ParseError, ValueError, LookupError)  # LookupError: an unknown encoding
    with explaining(errors, where, "be an xml file", "correct it"):
        root = ElementTree.fromstring(text)
    if root.tag != "annotation":
        raise malformed(where, "begin with <annotation>", f"<{root.tag}>")
    return root


def class_names(text: bytes) -> set[str]:
    """Return the class names in a file; none if it is malformed, which is reported when it is read."""
    try:
        root = parse_xml(text, "")
    except SourceError:
        return set()
    return {name for each in root.findall("object") if (name := (each.findtext("name") or "").strip())}


def _box(found: ElementTree.Element, size: Size, where: str) -> list[float]:
    """Return a box as x1 y1 x2 y2 counted from 0, within the image."""
    boxes = found.findall("bndbox")
    if len(boxes) != 1:
        raise malformed(where, "have one bndbox", f"{len(boxes)} of them")
    texts = [boxes[0].findtext(name) or "" for name in SIDES]
    sides = numbers_of(texts)
    if sides is None:
        raise malformed(where, f"have finite numbers as {', '.join(SIDES)}", texts)
    left, top, right, bottom = sides
    shown = ", ".join(map(str.strip, texts))
    height, width = size
    if left > right or top > bottom:
        raise malformed(where, "have xmin <= xmax and ymin <= ymax", shown)
    # Tools that count from 0, or round, are off by one.
    if min(left, top) < 0 or right > width + 1 or bottom > height + 1 or left > width or top > height:
        raise malformed(where, f"have a bndbox within its image of {height}x{width}", shown)
    return [max(left - 1, 0), max(top - 1, 0), min(right, width), min(bottom, height)]


def _flag(found: ElementTree.Element, name: str, where: str) -> int:
    text = (found.findtext(name) or "0").strip() or "0"
    if text not in ("0", "1"):
        raise malformed(where, f"have 0 or 1 as {name}", repr(text))
    return int(text)


_FOLDERS = {"mask": MASKS, "instances": OBJECT_MASKS}  # earlier releases stored the masks of objects, too
_SUFFIXES = {"GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif", "WebP": ".webp", "PNM": ".pgm", "JPEG": ".jpg"}


class VocWriter(LayoutWriter):
    """Writer of a split's masks; of XML files and the list of images where the attached ones do not fit."""

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
        path = PurePosixPath(self.details["boxes"].text()) / self._inner(image).with_suffix(".xml")
        yield path.as_posix(), ElementTree.tostring(root, encoding="utf-8")

    def _objects(self, record: Record) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        """Yield the members and the box of each object."""
        flags = zip(*(record[name].tolist() for name in FLAGS), strict=True)
        columns = record["labels"].tolist(), record["pose"], flags, record["boxes"].tolist()
        for label, pose, flag_values, (left, top, right, bottom) in zip(*columns, strict=True):
            members = {"name": self.manifest.classes[label], "pose": pose}
            members |= dict(zip(FLAGS, map(str, flag_values), strict=True))
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
        if self.split and self.details["images"].text() == IMAGES:
            content = "".join(f"{self._inner(image).with_suffix('')}\n" for image in self.images)
            yield f"{SETS}/Main/{self.split}.txt", content.encode()

    def _inner(self, image: PurePosixPath) -> PurePosixPath:
        return image.relative_to(self.details["images"].text())


def _add(parent: ElementTree.Element, **members: str) -> None:
    for name, text in members.items():
        ElementTree.SubElement(parent, name).text = text
