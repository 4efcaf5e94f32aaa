"""YOLO's label files and masks: their places, and the rows of labels, read and written.

Each row is a class, then a box, a polygon, corners or keypoints:

    boxes      class cx cy w h
    polygons   class x1 y1 x2 y2 x3 y3 …
    corners    class x1 y1 x2 y2 x3 y3 x4 y4
    keypoints  class cx cy w h x1 y1 [v1] x2 y2 [v2] …

Coordinates are fractions of the image. The checks are those by which Ultralytics 8.4 excludes images from
training: the number of columns, the class, and coordinates at most 1 % outside the image.

The files lie parallel to `images`, in a folder `labels` inside, or beside the images. As for Ultralytics, the
label file of images/train/a.jpg is labels/train/a.txt. Other programs write images/train/labels/a.txt or
images/train/a.txt. The labels of a folder are in the first of these places that holds one of them. Labels
that lie in a later place alone are used, too; if two places hold different ones for an image, nothing says
which are right.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

import numpy as np
import yaml

from fastload.images.arrays import Size
from fastload.shards.record import Record
from fastload.shards.schema import Field
from fastload.sources.file_source import AnnotationReader, ImageValues
from fastload.sources.files import read_text
from fastload.sources.listing import Listing, stem_of
from fastload.sources.malformed import malformed, numbers_of
from fastload.sources.sniffing import holds_boxes
from fastload.sources.words import by_stem, one_of_each
from fastload.sources.writing import LayoutWriter, WrittenFiles, number_text

Task = Literal["boxes", "polygons", "corners", "keypoints"]

MOST_CLASSES = 100_000
"""Larger numbers are not classes: a name would be made for each."""

_BOX_COLUMNS = 5
_CORNER_COLUMNS = 9
_LEAST_POLYGON_COLUMNS = 7
_TOLERANCE = 0.01


def find_labels(listing: Listing, images: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the path of each image's label file, which may be missing, and the copies of these files.

    SourceError is raised if two places hold different ones for one image.
    """
    chosen: dict[str, str] = {}
    copies: list[str] = []
    for folder, by_name in _by_folder(images).items():
        first, *others = _places_of(folder, by_name, listing)
        later = [listing[place] for place in others if listing[place].others_with(".txt")]
        for name, group in by_name.items():
            path = listing[first].join(name)
            for other in (place.join(name) for place in later):
                if not listing.has_file(other) or not holds_boxes(other, listing.head(other)):
                    continue  # texts of other things may lie there, too
                if not listing.has_file(path):
                    path = other
                elif read_text(listing.absolute(path)) == read_text(listing.absolute(other)):
                    copies.append(other)
                else:
                    must, got = "be the only label file of its image", f"other labels in {other}"
                    raise malformed(listing.shown(path), must, got, "remove the wrong file")
            chosen |= dict.fromkeys(group, path)
    return [chosen[image] for image in images], copies


def likely_labels(listing: Listing, images: Sequence[str]) -> list[str]:
    """Return the label files of some images; none if they lie beside less than half of the images."""
    found = []
    are_beside = True
    for folder, by_name in _by_folder(images).items():
        labels, *_ = _places_of(folder, by_name, listing)
        names = {*listing[labels].others}
        are_beside = are_beside and labels == folder
        found += [listing[labels].join(name) for name in by_name if name in names]
    return [] if are_beside and 2 * len(found) < len(images) else found


def find_masks(listing: Listing, images: Sequence[str]) -> list[str]:
    """Return each image's mask in a folder `masks` that is parallel to `images`, or "" without one."""
    found: dict[str, dict[str, str]] = {}
    for folder in {*map(os.path.dirname, images)}:
        masks = listing[parallel_to(folder, "masks") or "\0"]
        by_name = by_stem(map(masks.join, masks.images), masks.path)
        found[folder] = one_of_each(by_name, "mask of its image", listing.shown)
    return [found[os.path.dirname(image)].get(stem_of(image), "") for image in images]


def label_folders(folder: str) -> list[str]:
    """Return the folders in which the labels of a folder's images may lie."""
    parallel = parallel_to(folder, "labels")
    inside = f"{folder}/labels" if folder else "labels"
    return [*([parallel] if parallel else []), inside, folder]


def parallel_to(folder: str, name: str) -> str:
    """Return the folder with the last `images` in its path replaced by `name`; "" if it has none."""
    before, images, after = f"/{folder}/".rpartition("/images/")
    return f"{before}/{name}/{after}".strip("/") if images else ""


def _parallel_file(image: PurePosixPath, name: str, suffix: str) -> str:
    """Return the path of an image's file in the folder parallel to `images`, or else beside it."""
    folder = parallel_to(image.parent.as_posix(), name) or image.parent
    return (PurePosixPath(folder) / image.name).with_suffix(suffix).as_posix()


def _by_folder(images: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return the images of each folder by the names of their label files."""
    by_folder: dict[str, dict[str, list[str]]] = {}
    for image in images:
        folder, name = os.path.split(image)
        by_name = by_folder.setdefault(folder, {})
        by_name.setdefault(f"{os.path.splitext(name)[0]}.txt", []).append(image)
    return by_folder


def _places_of(folder: str, names: Collection[str], listing: Listing) -> list[str]:
    """Return the folder of the labels of a folder's images, and the later places."""
    places = label_folders(folder)
    default = 0 if len(places) == 3 else -1  # parallel to `images`, or else beside
    holding = (at for at, path in enumerate(places) if any(name in names for name in listing[path].others))
    return places[next(holding, default) :]


@dataclass(frozen=True, slots=True)
class YoloReader(AnnotationReader):
    """Reader of label files; `classes` is the number of classes, `shape` that of an object's keypoints."""

    task: Task
    classes: int
    shape: tuple[int, int] = (0, 0)

    def fields(self) -> tuple[Field, ...]:
        further = {
            "boxes": (),
            "polygons": (Field.polygons(relative=True),),
            "corners": (Field.corners(relative=True),),
            "keypoints": (Field.keypoints(self.shape, relative=True),) if self.task == "keypoints" else (),
        }
        return (Field.boxes("cxcywh", relative=True), Field.labels(), *further[self.task])

    def read(self, text: bytes, size: Size, where: str) -> tuple[ImageValues, tuple[str, ...]]:
        rows: dict[bytes, list[float]] = {}
        first: dict[bool, int] = {}
        repeated: list[int] = []
        try:
            lines = text.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            byte = f"the byte {text[error.start]:#04x}"
            raise malformed(f"{where}, line {line}", "be UTF-8", byte) from error
        for number, words in enumerate(map(str.split, lines), 1):
            if not words:
                continue
            row = self._checked(words, f"{where}, line {number}")
            identity = np.array(row, np.float32).tobytes()  # the precision of Ultralytics
            if identity in rows:
                repeated.append(number)
            rows.setdefault(identity, row)
            first.setdefault(len(row) == _BOX_COLUMNS, number)
            if len(first) > 1 and self.task == "polygons":
                wanted = f"hold boxes only or polygons only, as line {min(first.values())}"
                step = "make boxes polygons of four points"
                raise malformed(f"{where}, line {number}", wanted, "the other", step)
        unique = list(rows.values())
        shown = ", ".join(map(str, repeated[:5])) + (", …" if len(repeated) > 5 else "")
        notes = (f"{where}: repeated rows are left out, as by Ultralytics: line {shown}",) if repeated else ()
        return self._values(unique), notes

    def _values(self, rows: list[list[float]]) -> ImageValues:
        values: ImageValues = {
            "boxes": np.array([self._box(row) for row in rows], np.float64).reshape(-1, 4),
            "labels": np.array([row[0] for row in rows], np.int64),
        }
        if self.task == "polygons":
            values["polygons"] = [
                [np.array(row[1:], np.float64).reshape(-1, 2)] if len(row) != _BOX_COLUMNS else []
                for row in rows
            ]
        elif self.task != "boxes":
            shape = (4, 2) if self.task == "corners" else self.shape
            first = 1 if self.task == "corners" else _BOX_COLUMNS
            values[self.task] = np.array([row[first:] for row in rows], np.float64).reshape(-1, *shape)
        return values

    def _box(self, row: list[float]) -> list[float]:
        """Return the box of a row, or the one around its points: center x, center y, width, height."""
        if self.task in ("boxes", "keypoints") or len(row) == _BOX_COLUMNS:
            return row[1:5]
        xs, ys = row[1::2], row[2::2]
        left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
        return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]

    def _checked(self, words: list[str], where: str) -> list[float]:
        self._require_columns(len(words), where)
        row, shown = numbers_of(words), repr(" ".join(words))
        if row is None:
            raise malformed(where, "hold finite numbers", shown)
        if row[0] % 1 or not 0 <= row[0] < self.classes:
            step = "correct it, or the names of the classes in data.yaml or classes.txt"
            raise malformed(where, f"begin with a class from 0 to {self.classes - 1}", words[0], step)
        box = self._box(row)
        if not all(-_TOLERANCE <= x <= 1 + _TOLERANCE for x in (*box, *self._keypoints(row))):
            must = "have coordinates from 0 to 1, as fractions of the image"
            raise malformed(where, must, shown)
        if min(box[2:]) < 0:
            raise malformed(where, "have a width and a height of at least 0", shown)
        return row

    def _keypoints(self, row: list[float]) -> list[float]:
        """Return the numbers of keypoints, which must be from 0 to 1; visibilities are capped at 1."""
        if self.task != "keypoints":
            return []
        points = np.array(row[_BOX_COLUMNS:]).reshape(-1, self.shape[1])
        return [*points[:, :2].ravel().tolist(), *np.minimum(points[:, 2:], 1).ravel().tolist()]

    def _require_columns(self, columns: int, where: str) -> None:
        points, numbers = self.shape  # zeros, except for keypoints
        count = _CORNER_COLUMNS if self.task == "corners" else _BOX_COLUMNS + points * numbers
        is_polygon = columns >= _LEAST_POLYGON_COLUMNS and columns % 2 == 1
        if columns != count and not (self.task == "polygons" and is_polygon):
            held = {
                "boxes": "a class and a box",
                "corners": "a class and four corners, as others have",
                "polygons": "a class and a box, or an odd number from 7, a class and a polygon",
                "keypoints": f"a class, a box and {points} keypoints of {numbers} numbers",
            }
            raise malformed(where, f"have {count} columns, {held[self.task]}", f"{columns} columns")


def guess_task(counts: set[int]) -> Task:
    """Return the task of label files whose rows have these numbers of columns.

    Nine columns in every row are the corners of an oriented box; beside rows of other lengths, they are a
    polygon of four points.
    """
    if counts == {_CORNER_COLUMNS}:
        return "corners"
    return "polygons" if any(count >= _LEAST_POLYGON_COLUMNS for count in counts) else "boxes"


def scan_rows(text: bytes) -> tuple[set[int], int]:
    """Return the numbers of columns in a label file and the largest class; malformed rows are no error."""
    counts, largest = set(), -1
    for line in text.decode("utf-8-sig", "replace").splitlines():
        if words := line.split():
            counts.add(len(words))
            try:
                number = float(words[0])  # which may be written as 7.0
            except ValueError:
                continue
            if number.is_integer() and number < MOST_CLASSES:
                largest = max(largest, int(number))
    return counts, largest


class YoloWriter(LayoutWriter):
    """Writer of masks; of label files and a data.yaml where the attached ones do not fit.

    They are parallel to `images`, or else beside the images.
    """

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        rows = "".join(f"{row}\n" for row in self._rows(record))
        yield _parallel_file(image, "labels", ".txt"), rows.encode()

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        if "mask" in self.names and len(mask := record.stored("mask")):
            yield _parallel_file(image, "masks", ".png"), bytes(mask)

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        if self is not writers[0]:
            return
        entries = {writer.split or "train": f"{writer.split or 'train'}.txt" for writer in writers}
        for writer, entry in zip(writers, entries.values(), strict=True):
            yield entry, "".join(f"./{path}\n" for path in writer.images).encode()
        content = {**entries, "names": dict(enumerate(self.manifest.classes))}
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        further = self.details.get("yaml")  # datasets of older releases state none
        yield "data.yaml", (text + (further.text() if further is not None else "")).encode()

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
