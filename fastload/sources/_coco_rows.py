"""One image of a COCO json: boxes, polygons or run lengths, keypoints and captions, checked and converted.

A record keeps what the fields cannot hold, such as the ids, as JSON in the internal fields `extra` (a text
for each annotation) and `image_extra`; run lengths stay as they are in `rle`, their outlines are polygons.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastload.errors import SourceError
from fastload.images.rle import decode_counts, mask_of_counts, outlines
from fastload.shards.schema import Field
from fastload.sources._annotated import AnnotationReader, Size, Values

# Members of an annotation that fields hold; the others are kept in `extra`.
_STORED = ("image_id", "category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints", "caption")
_LEAST_POLYGON = 6


@dataclass(frozen=True, slots=True)
class CocoReader(AnnotationReader):
    """Reader of an image and its annotations, as JSON; `labels` gives the label of each category's id.

    `points` is the number of keypoints, 0 for none; `has_captions` says that annotations are texts alone.
    """

    origin: str
    labels: Mapping[int, int]
    has_polygons: bool = False
    points: int = 0
    has_captions: bool = False

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of each image."""
        ids = (Field("image_id", "scalar", "int64"), Field("image_extra", "text", internal=True))
        extra = Field("extra", "texts", per_object=not self.has_captions, internal=True)
        if self.has_captions:
            return *ids, Field("captions", "texts"), extra
        rle = Field("rle", "texts", per_object=True, internal=True)
        return (
            *(Field.boxes("xywh"), Field.labels(), *ids),
            Field("area", "ragged", "float64", per_object=True),
            Field("iscrowd", "ragged", "int64", per_object=True),
            *((Field.polygons(), rle) if self.has_polygons else ()),
            *((Field.keypoints((self.points, 3)),) if self.points else ()),
            extra,
        )

    def read(self, text: bytes, size: Size, where: str) -> tuple[Values, tuple[str, ...]]:
        """See `AnnotationReader`."""
        content = json.loads(text)
        image, annotations = content["image"], content["annotations"]
        for name, side in zip(("height", "width"), size, strict=True):
            if (image.get(name) or side) != side:  # some tools write 0
                raise SourceError(
                    f"{where}: must have the {name} of its file, {side}, got {image[name]}: its boxes belong "
                    "to another size of the image, or to one turned by its EXIF orientation"
                )
        rest = {name: value for name, value in image.items() if name != "file_name"}
        values: Values = {"image_id": image["id"], "image_extra": json.dumps(rest)}
        values["extra"] = [_rest_of(annotation) for annotation in annotations]
        if self.has_captions:
            values["captions"] = [self._caption(each, self._place(each)) for each in annotations]
            return values, ()
        boxes = [self._box(each, size, self._place(each)) for each in annotations]
        values["boxes"] = np.array(boxes, np.float64).reshape(-1, 4)
        values["labels"] = np.array([self._label(each, self._place(each)) for each in annotations], np.int64)
        values["area"] = np.array([self._area(each, self._place(each)) for each in annotations], np.float64)
        crowds = [_crowd(each, self._place(each)) for each in annotations]
        values["iscrowd"] = np.array(crowds, np.int64)
        if self.has_polygons:
            segments = [_segments(each.get("segmentation"), size, self._place(each)) for each in annotations]
            values["polygons"] = [polygons for polygons, _ in segments]
            values["rle"] = [rle for _, rle in segments]
        if self.points:
            points = [self._keypoints(each, self._place(each)) for each in annotations]
            values["keypoints"] = np.array(points, np.float64).reshape(-1, self.points, 3)
        return values, ()

    def _place(self, annotation: Mapping[str, Any]) -> str:
        return f"{self.origin}, annotation {annotation['id']}"

    def _label(self, annotation: Mapping[str, Any], where: str) -> int:
        category = annotation.get("category_id")
        if type(category) is not int or category not in self.labels:
            _refuse(where, "have the category_id of a category", category)
        return self.labels[category]

    def _box(self, annotation: Mapping[str, Any], size: Size, where: str) -> list[float]:
        box = _numbers(annotation.get("bbox"), where, "bbox")
        if len(box) != 4 or min(box[2:]) < 0:
            _refuse(where, "have a bbox of x, y, and a width and a height of at least 0", box)
        x, y, width, height = box
        if x > size[1] or y > size[0] or x + width < 0 or y + height < 0:
            _refuse(where, f"have a bbox within its image of {size[0]}x{size[1]}", box)
        return box

    def _area(self, annotation: Mapping[str, Any], where: str) -> float:
        if "area" not in annotation:
            return float(math.prod(annotation["bbox"][2:]))
        [area] = _numbers([annotation["area"]], where, "area")
        if area < 0:
            _refuse(where, "have an area of at least 0", area)
        return area

    def _keypoints(self, annotation: Mapping[str, Any], where: str) -> list[float]:
        if "keypoints" not in annotation:
            return [0.0] * (3 * self.points)
        numbers = _numbers(annotation["keypoints"], where, "keypoints")
        if len(numbers) != 3 * self.points:
            _refuse(where, f"have {self.points} keypoints of x, y, visibility", f"{len(numbers)} numbers")
        if not {*numbers[2::3]} <= {0, 1, 2}:
            _refuse(where, "have keypoints of a visibility 0, 1 or 2", sorted({*numbers[2::3]}))
        return numbers

    def _caption(self, annotation: Mapping[str, Any], where: str) -> str:
        caption = annotation.get("caption")
        if not isinstance(caption, str):
            _refuse(where, "have a caption, as others have", caption)
        return caption


def _rest_of(annotation: Mapping[str, Any]) -> str:
    """Return what no field holds, as JSON, with the names of the members that the fields add."""
    rest = {name: value for name, value in annotation.items() if name not in _STORED}
    absent = [name for name in ("area", "iscrowd", "segmentation", "keypoints") if name not in annotation]
    return json.dumps({"members": rest, "absent": absent})


def _crowd(annotation: Mapping[str, Any], where: str) -> int:
    crowd = annotation.get("iscrowd", 0)
    if crowd not in (0, 1):
        _refuse(where, "have an iscrowd of 0 or 1", crowd)
    return int(crowd)


def _segments(segmentation: Any, size: Size, where: str) -> tuple[list[NDArray[np.float64]], str]:
    """Return the polygons of a segmentation, and its JSON if it holds run lengths."""
    if isinstance(segmentation, dict):
        try:
            mask = mask_of_counts(_counts(segmentation), *_size(segmentation, size))
        except (TypeError, ValueError) as error:
            raise SourceError(f"{where}: must have valid run lengths, got: {error}: correct it") from error
        return outlines(mask), json.dumps(segmentation)
    if segmentation is None:
        return [], ""
    if not isinstance(segmentation, list):
        _refuse(where, "have a segmentation of polygons or run lengths", segmentation)
    polygons = []
    for polygon in segmentation:
        numbers = _numbers(polygon, where, "segmentation")
        if len(numbers) < _LEAST_POLYGON or len(numbers) % 2:
            _refuse(where, "have polygons of three points and more", f"{len(numbers)} numbers")
        polygons.append(np.array(numbers, np.float64).reshape(-1, 2))
    return polygons, ""


def _counts(segmentation: Mapping[str, Any]) -> list[int]:
    counts = segmentation.get("counts")
    if isinstance(counts, str):
        return decode_counts(counts)
    if not isinstance(counts, list) or not all(type(count) is int for count in counts):
        raise ValueError("counts must be a text or a list of whole numbers")
    return counts


def _size(segmentation: Mapping[str, Any], size: Size) -> Size:
    if segmentation.get("size") != list(size):
        raise ValueError(f"size must be that of the image, {list(size)}, got {segmentation.get('size')}")
    return size


def _numbers(value: Any, where: str, name: str) -> list[float]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        _refuse(where, f"have a list of numbers as {name}", value)
    for number in value:
        if type(number) not in (int, float) or not math.isfinite(number):
            _refuse(where, f"have finite numbers in {name}", number)
    return [float(number) for number in value]


def _refuse(where: str, wanted: str, got: Any) -> NoReturn:
    raise SourceError(f"{where}: must {wanted}, got {str(got)[:80]}: correct or remove it")
