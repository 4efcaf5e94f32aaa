"""Annotations of COCO images: boxes, polygons or RLE, keypoints and captions, read and written.

Run lengths become the outlines of their masks. Members that no field holds are in the attached file alone.

Run-length encoding (RLE) goes column by column and begins with the pixels outside. COCO also writes the
lengths as a text, of which each character holds five bits of a number, lowest first, and a bit that is set if
more follow; from the fourth run on, the difference from the run two before it is written (pycocotools,
maskApi.c). Fractions of a percent of all objects have such masks: crowds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Size
from fastload.images.polygons import outlines
from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.shards.schema import Field
from fastload.sources.coco.content import Entry
from fastload.sources.file_source import AnnotationReader, ImageValues, require_size
from fastload.sources.malformed import explaining, finite_numbers, is_text, malformed, quoted
from fastload.sources.writing import LayoutWriter, WrittenFiles

_LEAST_POLYGON = 6

_FIRST_CHARACTER = 48
_MORE, _SIGN = 0x20, 0x10
_MOST_BITS = 64  # more than any run has; reading a longer number takes quadratic time


@dataclass(frozen=True, slots=True)
class CocoReader(AnnotationReader):
    """Reader of an image and its annotations, as JSON; `labels` maps category ids to labels.

    `points` is the most keypoints of an annotation, 0 for none, and `names` gives the number of them that a
    category names; annotations with fewer get zeros. `has_captions` is True if annotations are only captions.
    """

    origin: str
    labels: Mapping[int, int]
    has_polygons: bool = False
    points: int = 0
    names: Mapping[int, int] = field(default_factory=dict)
    has_captions: bool = False

    def fields(self) -> tuple[Field, ...]:
        if self.has_captions:
            return Field("image_id", "scalar", "int64"), Field("captions", "texts")
        return (
            *(Field.boxes("xywh"), Field.labels(), Field("image_id", "scalar", "int64")),
            Field("area", "ragged", "float64", per_object=True),
            Field("iscrowd", "ragged", "int64", per_object=True),
            *((Field.polygons(),) if self.has_polygons else ()),
            *((Field.keypoints((self.points, 3)),) if self.points else ()),
        )

    def read(self, text: bytes, size: Size, where: str) -> tuple[ImageValues, tuple[str, ...]]:
        content = json.loads(text)
        image = content["image"]
        require_size((image.get("height"), image.get("width")), size, where)
        placed = [(each, f"{self.origin}, annotation {each['id']}") for each in content["annotations"]]
        values: ImageValues = {"image_id": image["id"]}
        if self.has_captions:
            values["captions"] = list(starmap(_caption, placed))
            return values, ()
        values["boxes"] = np.array([_box(*each, size) for each in placed], np.float64).reshape(-1, 4)
        values["labels"] = np.array(list(starmap(self._label, placed)), np.int64)
        values["area"] = np.array(list(starmap(_area, placed)), np.float64)
        values["iscrowd"] = np.array(list(starmap(_crowd, placed)), np.int64)
        if self.has_polygons:
            values["polygons"] = [_polygons(*each, size) for each in placed]
        if self.points:
            points = np.array(list(starmap(self._keypoints, placed)), np.float64)
            values["keypoints"] = points.reshape(-1, self.points, 3)
        return values, ()

    def _label(self, annotation: Entry, where: str) -> int:
        category = annotation.get("category_id")
        if type(category) is not int or category not in self.labels:
            raise malformed(where, "have the category_id of a category", quoted(category))
        return self.labels[category]

    def _keypoints(self, annotation: Entry, where: str) -> list[float]:
        found = [] if annotation.get("keypoints") is None else annotation["keypoints"]
        numbers = finite_numbers(found, where, "keypoints")
        count = self.names.get(annotation["category_id"], len(numbers) // 3)
        if numbers and len(numbers) != 3 * count:
            must = f"have {count} keypoints of x, y, visibility"
            raise malformed(where, must, f"{len(numbers)} numbers")
        if not {*numbers[2::3]} <= {0, 1, 2}:
            raise malformed(where, "have keypoints of a visibility 0, 1 or 2", quoted(sorted({*found[2::3]})))
        return numbers + [0.0] * (3 * self.points - len(numbers))


def _box(annotation: Entry, where: str, size: Size) -> list[float]:
    box = finite_numbers(annotation.get("bbox"), where, "bbox")
    if len(box) != 4 or min(box[2:]) < 0:
        raise malformed(
            where, "have a bbox of x, y, and a width and a height of at least 0", annotation["bbox"]
        )
    x, y, width, height = box
    if x > size[1] or y > size[0] or x + width < 0 or y + height < 0:
        raise malformed(where, f"have a bbox within its image of {size[0]}x{size[1]}", annotation["bbox"])
    return box


def _area(annotation: Entry, where: str) -> float:
    if annotation.get("area") is None:
        return float(math.prod(annotation["bbox"][2:]))
    [area] = finite_numbers([annotation["area"]], where, "area")
    if area < 0:
        raise malformed(where, "have an area of at least 0", annotation["area"])
    return area


def _crowd(annotation: Entry, where: str) -> int:
    crowd = annotation.get("iscrowd")
    if crowd not in (None, 0, 1):
        raise malformed(where, "have an iscrowd of 0 or 1", quoted(crowd))
    return int(crowd or 0)


def _caption(annotation: Entry, where: str) -> str:
    caption = annotation.get("caption")
    if not is_text(caption):
        raise malformed(where, "have a caption, as others have", repr(caption))
    return caption


def _polygons(annotation: Entry, where: str, size: Size) -> list[NDArray[np.float64]]:
    """Return the polygons of a segmentation, or the outlines of its RLE."""
    segmentation = annotation.get("segmentation")
    if isinstance(segmentation, dict):
        with explaining((TypeError, ValueError), where, "have valid RLE"):
            if segmentation.get("size") != list(size):
                got = segmentation.get("size")
                raise ValueError(f"size must be that of the image, {list(size)}, got {got}")
            mask = mask_of_counts(_counts(segmentation), *size)
        return outlines(mask)
    if segmentation is None:
        return []
    if not isinstance(segmentation, list):
        raise malformed(where, "have a segmentation of polygons or RLE", quoted(segmentation))
    polygons = []
    for polygon in segmentation:
        numbers = finite_numbers(polygon, where, "segmentation")
        if len(numbers) < _LEAST_POLYGON or len(numbers) % 2:
            raise malformed(where, "have polygons of three points and more", f"{len(numbers)} numbers")
        polygons.append(np.array(numbers, np.float64).reshape(-1, 2))
    points = np.concatenate(polygons) if polygons else np.zeros((1, 2))
    if (points.max(0) < 0).any() or (points.min(0) > size[::-1]).any():
        raise malformed(where, f"have a segmentation within its image of {size[0]}x{size[1]}", segmentation)
    return polygons


def _counts(segmentation: Entry) -> list[int]:
    counts = segmentation.get("counts")
    if isinstance(counts, str):
        return decode_counts(counts)
    if not isinstance(counts, list) or not all(type(count) is int for count in counts):
        raise ValueError("counts must be a text or a list of whole numbers")
    return counts


def decode_counts(text: str) -> list[int]:
    """Return the run lengths of a compressed text; raise ValueError if it is not valid."""
    counts: list[int] = []
    number = shift = 0
    for character in text:
        bits = ord(character) - _FIRST_CHARACTER
        if not 0 <= bits < 2 * _MORE:
            raise ValueError(f"the character {character!r} is not one of a compressed mask")
        number |= (bits & (_MORE - 1)) << shift
        shift += 5
        if not bits & _MORE:
            number -= (1 << shift) if bits & _SIGN else 0
            counts.append(number + (counts[-2] if len(counts) > 2 else 0))
            number = shift = 0
        elif shift > _MOST_BITS:
            raise ValueError("a number of the text is longer than any run")
    if shift:
        raise ValueError("the text ends within a number")
    return counts


def mask_of_counts(counts: Sequence[int], height: int, width: int) -> NDArray[np.uint8]:
    """Return a mask of 0 and 1, (height, width); raise ValueError unless the runs fill it."""
    if any(count < 0 for count in counts) or sum(counts) != height * width:
        raise ValueError(f"the runs must fill {height}x{width} pixels, got {sum(counts)}")
    values = np.arange(len(counts), dtype=np.uint8) & 1
    return np.ascontiguousarray(np.repeat(values, counts).reshape(width, height).T)


# Fields of objects that are members of annotations under the same names.
_MEMBERS = ("area", "iscrowd")


class CocoWriter(LayoutWriter):
    """Writer of a split's JSON file where the attached one does not fit, with what the fields hold."""

    def __init__(self, manifest: Manifest, split: str) -> None:
        super().__init__(manifest, split)
        self._entries: list[Entry] = []
        self._annotations: list[Entry] = []

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        height, width, _ = record.image_shape()
        folder = PurePosixPath(self.details["images"].text())
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
            "categories": self.details["categories"].value,
        }
        yield self.details["file"].text(), json.dumps(content).encode()

    def _objects(self, record: Record) -> list[Entry]:
        columns = {name: record[name].tolist() for name in _MEMBERS}
        columns["bbox"] = record["boxes"].tolist()
        categories = self.details["categories"].each()
        columns["category_id"] = [categories[label]["id"].value for label in record["labels"]]
        if "polygons" in self.names:
            columns["segmentation"] = [
                [polygon.reshape(-1).tolist() for polygon in polygons] for polygons in record["polygons"]
            ]
        if "keypoints" in self.names:
            # Without the zeros that fill them up to those of other categories.
            names = [category.get("keypoints") for category in categories]
            points_of = [None if each is None or not each.value else 3 * len(each.each()) for each in names]
            counts = [points_of[label] for label in record["labels"]]
            points = (each.reshape(-1).tolist() for each in record["keypoints"])
            columns["keypoints"] = [each[:count] for each, count in zip(points, counts, strict=True)]
        return [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]
