"""A COCO JSON file: its images, annotations and categories, its split, and the folder of its images."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastload.sources.boxes import Coordinates, Sides, require_pixels
from fastload.sources.listing import Listing, list_alone, read_part
from fastload.sources.malformed import FROM_PYTHON, INT64, explaining, is_finite, is_text, malformed
from fastload.sources.splits import SPLITS, splits_in

_LIKE_A_SPLIT = re.compile(r"train|val|test", re.IGNORECASE)
_LEVELS = 3  # folders from that of a JSON file upwards, in or below which its images are looked for
_OF_OBJECTS = frozenset(("bbox", "segmentation", "keypoints", "area", "caption"))

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CocoContent:
    """A parsed JSON file: the images in the order of their ids, and the annotations of each."""

    path: str
    images: list[Entry]
    annotations: dict[int, list[Entry]]
    categories: list[Entry]


def is_coco(path: str) -> bool:
    """Return True if the start, middle and end of a JSON file contain COCO's member names."""
    # COCO's own files are too large to read in full.
    text = b"".join(read_part(path, share) for share in (0.0, 0.5, 1.0))
    if b'"question_id"' in text:  # of VQA, without boxes
        return False
    has_parts = b'"images"' in text or b'"annotations"' in text
    has_categories = b'"categories"' in text and not re.search(rb'"items"\s*:\s*\[', text)  # of Datumaro
    return has_parts and (b'"image_id"' in text or has_categories)


def read_content(path: str) -> CocoContent:
    """Parse a JSON file; raise SourceError, naming the image, category or annotation, if it is malformed."""
    errors = (OSError, ValueError, RecursionError)
    with explaining(errors, path, "be a json file", "correct it"), open(path, encoding="utf-8-sig") as file:
        content = json.load(file, object_pairs_hook=_members)
    if not isinstance(content, dict):
        raise malformed(path, "hold images and annotations", type(content).__name__)
    # Images of a test alone may have no annotations, as in COCO's image_info_test2017.json.
    content = {"annotations": [], "categories": [], **content}
    _require_objects(path, content["annotations"])
    images, annotations = (_entries(path, name, content.get(name)) for name in ("images", "annotations"))
    categories = _entries(path, "categories", content["categories"])
    for image in images:
        name, url = image.get("file_name"), image.get("coco_url")
        if "file_name" not in image and is_text(url):  # LVIS: the folder of COCO, and the file
            name = "/".join(url.split("/")[-2:])
        parts = name.replace("\\", "/").split("/") if is_text(name) and "\0" not in name else [""]
        if not parts[-1] or ".." in parts or parts[0].endswith(":"):
            raise malformed(f"{path}, image {image['id']}", "have a relative file_name", repr(name))
        image["file_name"] = "/".join(parts).lstrip("/")
    for category in categories:
        if not is_text(name := category.get("name")):
            raise malformed(f"{path}, category {category['id']}", "have a name", repr(name))
    by_image: dict[int, list[Entry]] = {image["id"]: [] for image in images}
    for annotation in annotations:
        image_id = annotation.get("image_id")
        if type(image_id) is not int or image_id not in by_image:
            where = f"{path}, annotation {annotation['id']}"
            raise malformed(where, "have an image's image_id", repr(image_id))
        by_image[image_id].append(annotation)
    must, step = "have a bbox of x, y, width, height in pixels", "convert its boxes first"
    boxes = [_well_formed(by_image[image["id"]]) for image in images]

    def stated_sides(index: int) -> Sides | None:
        sides = images[index].get("width", 0), images[index].get("height", 0)
        return sides if all(is_finite(side) and side > 0 for side in sides) else None

    require_pixels(path, must, step, boxes, stated_sides)
    return CocoContent(path, images, by_image, categories)


def _require_objects(path: str, annotations: object) -> None:
    """Raise SourceError if annotations are panoptic segments, or nothing but labels of whole images."""
    some = [each for each in annotations if isinstance(each, dict)] if isinstance(annotations, list) else []
    must = "hold boxes or captions"
    if any("segments_info" in each for each in some):
        raise malformed(
            path, must, "panoptic segments (segments_info)", f"name another json, or {FROM_PYTHON}"
        )
    if some and all("category_id" in each and _OF_OBJECTS.isdisjoint(each) for each in some):
        step = "write a table (path, label) of them, or say --layout classes if the folders are their classes"
        raise malformed(path, must, "labels of whole images", step)


def _members(members: list[tuple[str, object]]) -> Entry:
    """Return a JSON object as a dict; raise ValueError if it names a member twice."""
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        raise ValueError(f"a second {next(each for each in names if names.count(each) > 1)!r} in one object")
    return found


def _entries(path: str, name: str, entries: object) -> list[Entry]:
    """Return a list of objects with distinct ids, sorted by id except for annotations."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        got, step = type(entries).__name__, "correct it first"
        raise malformed(path, f"have {name}, a list of objects as a COCO json has", got, step)
    seen: set[int] = set()
    for place, entry in enumerate(entries):
        number = entry.get("id")
        if type(number) is not int or number in seen or number not in INT64:
            raise malformed(f"{path}, {name}[{place}]", "have an id, a whole number of its own", repr(number))
        seen.add(number)
    return entries if name == "annotations" else sorted(entries, key=lambda entry: entry["id"])


def _well_formed(annotations: Sequence[Entry]) -> Coordinates:
    """Return the well-formed boxes of some annotations; reading their records reports the others."""
    boxes = (each.get("bbox") for each in annotations)
    right = [box for box in boxes if isinstance(box, list) and len(box) == 4 and all(map(is_finite, box))]
    return np.array(right, np.float64).reshape(-1, 4)


class ImagePlace(NamedTuple):
    """The absolute path of a folder of images, and the number of first parts of their names not in it."""

    folder: str
    skipped: int

    def name_of(self, name: str) -> str:
        """Return a name of the JSON file as a path in the folder."""
        return name.split("/", self.skipped)[-1]


def split_of(path: str) -> str:
    """Return the split that a file or folder, or else a folder above it, is named after; "" for none.

    >>> [split_of(path) for path in ("annotations/instances_val2017.json", "valid/x.json", "minitrain.json")]
    ['val', 'val', 'minitrain']
    """
    for name in reversed(path.split("/")):
        stem = os.path.splitext(name)[0]
        if len(found := splits_in(stem)) == 1:
            return found.pop()
        if _LIKE_A_SPLIT.search(stem):
            return stem.removeprefix("instances_")
    return ""


def place_in(listing: Listing, file: str, names: Sequence[str]) -> ImagePlace | None:
    """Return the place in a listing where a JSON file's images lie; None if it holds none of them.

    `names` is a sample of the images' names in the JSON file.
    """

    def has_file(folder: str, name: str) -> bool:
        path = f"{folder}/{name}" if folder else name
        return os.path.dirname(path) in listing.folders and listing.has_file(path)

    folders = sorted(folder.path for folder in listing.visible)
    found = _place(listing.shown(file), file, folders, names, has_file)
    return found and found._replace(folder=listing.absolute(found.folder))


def place_near(file: str, names: Sequence[str]) -> ImagePlace:
    """Return the place near a JSON file; raise SourceError if there is none."""
    bases = [os.path.dirname(file)]
    while len(bases) < _LEVELS and os.path.dirname(bases[-1]) != bases[-1]:
        bases.append(os.path.dirname(bases[-1]))
    bases += [os.path.join(base, "images") for base in bases]
    inner = (os.path.join(base, name) for base in bases for name in list_alone(base).visible)
    folders = dict.fromkeys([*bases, *inner])
    found = _place(file, file, folders, names, lambda *parts: os.path.isfile(os.path.join(*parts)))
    if found is None:
        must = f"have its images, such as {names[0]!r}, in a folder near it"
        raise malformed(file, must, f"none in {bases[0]}", "move it there")
    return found


def _place(
    where: str, file: str, folders: Iterable[str], names: Sequence[str], has_file: Callable[[str, str], bool]
) -> ImagePlace | None:
    """Return the folder with the images; names may begin with folders of another machine."""
    if not names:
        return ImagePlace(os.path.dirname(file), 0)
    for skipped in range(max(name.count("/") for name in names) + 1):
        shortened = [name.split("/", skipped)[-1] for name in names]
        bearing = [folder for folder in folders if any(has_file(folder, name) for name in shortened)]
        if found := [folder for folder in bearing if not _of_two_splits(file, folder)]:
            return ImagePlace(_named_like(where, file, found), skipped)
    return None


def _of_two_splits(file: str, folder: str) -> bool:
    """Return True if a JSON file and a folder are named after two splits, below the folder of both."""
    top = len(os.path.commonpath([os.path.dirname(file), folder]))
    return len({split_of(path[top:]) for path in (file, folder)} & {*SPLITS.values()}) == 2


def _named_like(where: str, file: str, folders: Sequence[str]) -> str:
    """Return the folder named after a JSON file or its split, or its own; raise SourceError if it is unclear.

    A folder with other names may hold more of the images, but as copies of another size, for example.
    """
    stem, split = os.path.splitext(os.path.basename(file))[0], split_of(_last_names(file))

    def likeness(folder: str) -> tuple[int, bool, bool]:
        name = os.path.basename(folder)
        is_word = re.search(rf"(?<![a-z]){re.escape(name)}(?![a-z])", stem)
        is_of_split = split != "" and split_of(_last_names(folder)) == split
        return len(name) if is_word else 0, is_of_split, folder == os.path.dirname(file)

    best, *others = sorted(folders, key=likeness, reverse=True)
    if others and likeness(others[0]) == likeness(best):
        got = f"some in {best or '.'!r} and in {others[0] or '.'!r}"
        raise malformed(where, "have its images in one folder", got, "move the other folder elsewhere")
    return best


def _last_names(path: str) -> str:
    return "/".join(path.split("/")[-3:])
