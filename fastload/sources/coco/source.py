"""COCO datasets: a JSON file with images, annotations and categories, or a folder with one for each split.

The images are in a folder near the JSON file: its own, `images`, `train2017` or similar. Records are in the
order of the images' ids, as in torchvision's CocoDetection; categories are numbered from 0 in the order of
their ids. Backslashes in names, as written by Windows, are read as slashes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.boxes import Coordinates, Sides, require_pixels
from fastload.sources.coco.places import ImagePlace, place_in, place_near, split_of
from fastload.sources.coco.rows import CocoReader
from fastload.sources.files import list_files
from fastload.sources.listing import Listing, list_folder, read_part
from fastload.sources.malformed import FROM_PYTHON, INT64, explaining, is_finite, is_text, malformed
from fastload.sources.names import NameTable
from fastload.sources.protocol import LeftOutReason, Reading, evenly_spaced
from fastload.sources.splits import in_order
from fastload.system.units import format_count

OBJECTS = "instances_"  # COCO's own files of boxes; others hold keypoints and captions
_OF_OBJECTS = frozenset(("bbox", "segmentation", "keypoints", "area", "caption"))
_SAMPLED = 16

UNLISTED = "an image that no json lists"
FURTHER = "a further COCO json, which is packed if it is named"
_OTHER_JSON: LeftOutReason = ("a json beside the one that was named", True)

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Content:
    """A parsed JSON file: the images in the order of their ids, and the annotations of each."""

    path: str
    images: list[Entry]
    annotations: dict[int, list[Entry]]
    categories: list[Entry]


def read_coco(listing: Listing, files: Sequence[str]) -> Reading:
    """List the records of a folder's JSON files by split, of objects if there are such among others."""
    chosen = [file for file in files if os.path.basename(file).startswith(OBJECTS)] or files
    contents = _by_split(listing, chosen)
    places: dict[str, ImagePlace] = {}
    for file, (split, content) in zip(chosen, contents.items(), strict=True):
        found = place_in(listing, file, _sampled(content))
        inside = found and found._replace(folder=listing.absolute(found.folder))
        places[split] = inside or place_near(content.path, _sampled(content))
    further = [file for file in files if file not in chosen]
    warnings = [f"{listing.name}: {file} is not packed; name it to pack it" for file in further]
    reasons: dict[str, LeftOutReason] = {listing.absolute(file): (FURTHER, False) for file in further}
    name, folders = listing.name, [listing.root, *(place.folder for place in places.values())]
    if any(listing.place_of(folder) is None for folder in folders):
        listing = Listing.covering(os.path.commonpath(folders), folders)
    return _reading(name, listing, contents, places, warnings, reasons, is_whole=True)


def read_one(path: str) -> Reading:
    """List the images of a JSON file, which lie in a folder near it."""
    content = _parsed(os.path.abspath(path))
    place = place_near(content.path, _sampled(content))
    folder = os.path.dirname(content.path)
    listing = Listing.covering(os.path.commonpath([folder, place.folder]), [place.folder], [content.path])
    beside = (os.path.join(folder, name) for name in list_folder(folder).others_with(".json"))
    others = [each for each in beside if each != content.path and is_coco(each)]
    reasons = dict.fromkeys(others, _OTHER_JSON)
    return _reading(path, listing, {"": content}, {"": place}, [], reasons, is_whole=not others)


def is_coco(path: str) -> bool:
    """Return True if the start, middle and end of a JSON file contain COCO's member names."""
    # COCO's own files are too large to read in full.
    text = b"".join(read_part(path, share) for share in (0.0, 0.5, 1.0))
    has_parts = b'"images"' in text or b'"annotations"' in text
    return has_parts and (b'"image_id"' in text or b'"categories"' in text)


def _reading(
    name: str,
    listing: Listing,
    contents: Mapping[str, _Content],
    places: Mapping[str, ImagePlace],
    warnings: list[str],
    reasons: Mapping[str, LeftOutReason],
    *,
    is_whole: bool,
) -> Reading:
    """List the records, with absolute paths; unless `is_whole`, other JSON files may list other images."""
    inside = {
        split: place._replace(folder=listing.place_of(place.folder) or "") for split, place in places.items()
    }
    sources = _sources(name, listing, contents, inside)
    listed = {image for source in sources.values() for image in source.files.names}
    images = (path for folder in listing.folders.values() for path in map(folder.join, folder.images))
    unlisted = [path for path in images if path not in listed and "/." not in f"/{path}"]
    if unlisted:
        count = format_count(len(unlisted), "image")
        warnings.append(f"{name}: its json does not list {count}, such as {unlisted[0]}")
    next(iter(sources.values())).warnings = tuple(warnings)
    known = {place: reason for path, reason in reasons.items() if (place := listing.place_of(path))}
    read = [place for content in contents.values() if (place := listing.place_of(content.path))]
    return Reading(sources, read, known | dict.fromkeys(unlisted, (UNLISTED, not is_whole)), listing)


def _by_split(listing: Listing, files: Sequence[str]) -> dict[str, _Content]:
    """Parse JSON files of the same categories, each of another split."""
    contents: dict[str, _Content] = {}
    for file in files:
        split = split_of(file) if len(files) > 1 else ""
        same = [*contents] if not split else [each for each in (split, "") if each in contents]
        if same:
            found = f"{contents[same[0]].path} and {listing.absolute(file)}"
            raise malformed(listing.name, "hold one json for each split", found, "name one of them")
        contents[split] = _parsed(listing.absolute(file))
    first, *others = contents.values()
    for each in others:
        if each.categories != first.categories:
            raise malformed(each.path, f"have the categories of {first.path}", "others", "correct it first")
    return contents


def _sources(
    name: str, listing: Listing, contents: Mapping[str, _Content], places: Mapping[str, ImagePlace]
) -> dict[str, AnnotatedFiles]:
    categories = next(iter(contents.values())).categories
    every = [each for found in contents.values() for group in found.annotations.values() for each in group]
    reader = CocoReader(
        "",
        {category["id"]: label for label, category in enumerate(categories)},
        any(each.get("segmentation") is not None for each in every),
        max((_points(each) for each in every), default=0),
        {category["id"]: len(names) for category in categories if (names := _names(category))},
        any("caption" in each for each in every) and not any("bbox" in each for each in every),
    )
    return {
        split: _source(name, listing.root, content, places[split], replace(reader, origin=content.path))
        for split, content in in_order(contents).items()
    }


def _source(name: str, root: str, content: _Content, place: ImagePlace, reader: CocoReader) -> AnnotatedFiles:
    names = [
        os.path.normpath(os.path.join(place.folder, place.name_of(image["file_name"])))
        for image in content.images
    ]
    texts = (
        json.dumps({"image": image, "annotations": content.annotations[image["id"]]})
        for image in content.images
    )
    return AnnotatedFiles(
        kind="coco",
        name=name,
        classes=tuple(category["name"] for category in content.categories),
        fields=reader.fields(),
        details={
            "file": os.path.relpath(content.path, root),
            "images": place.folder,
            "categories": [_described(category) for category in content.categories],
        },
        files=list_files(root, names),
        texts=NameTable(texts),
        origin=content.path,
        reader=reader,
    )


def _sampled(content: _Content) -> list[str]:
    """Return the names of some images, evenly spaced."""
    names = (content.images[at]["file_name"] for at in evenly_spaced(len(content.images), _SAMPLED))
    return [os.path.normpath(name) for name in names]


def _parsed(path: str) -> _Content:
    """Parse a JSON file; raise SourceError, naming the image, category or annotation, if it is malformed."""
    errors = (OSError, ValueError, RecursionError)
    with explaining(errors, path, "be a json file", "correct it"), open(path, encoding="utf-8-sig") as file:
        content = json.load(file, object_pairs_hook=_members)
    if not isinstance(content, dict):
        raise malformed(path, "hold images and annotations", type(content).__name__)
    _require_objects(path, content.get("annotations"))
    images, annotations = (_entries(path, name, content.get(name)) for name in ("images", "annotations"))
    categories = _entries(path, "categories", content.get("categories", []))
    for image in images:
        name = image.get("file_name", _name_in_url(image.get("coco_url")))
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
    require_pixels(path, must, step, boxes, lambda index: _stated_sides(images[index]))
    return _Content(path, images, by_image, categories)


def _name_in_url(url: Any) -> Any:
    """Return the name of an image of LVIS, which has only its URL: the folder of COCO, and the file."""
    return "/".join(url.split("/")[-2:]) if is_text(url) else None


def _require_objects(path: str, annotations: Any) -> None:
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


def _members(members: list[tuple[str, Any]]) -> Entry:
    """Return a JSON object as a dict; raise ValueError if it names a member twice."""
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        raise ValueError(f"a second {next(each for each in names if names.count(each) > 1)!r} in one object")
    return found


def _entries(path: str, name: str, entries: Any) -> list[Entry]:
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


def _stated_sides(image: Entry) -> Sides | None:
    sides: Any = image.get("width"), image.get("height")
    are_known = all(is_finite(side) and side > 0 for side in sides)
    return sides if are_known else None


def _points(annotation: Mapping[str, Any]) -> int:
    keypoints = annotation.get("keypoints")
    return len(keypoints) // 3 if isinstance(keypoints, list) else 0


def _names(category: Entry) -> list[str]:
    """Return the names of a category's keypoints; none if it has no list of them."""
    names = category.get("keypoints")
    return [*map(str, names)] if isinstance(names, list) else []


def _described(category: Entry) -> Entry:
    """Return the members of a category that a JSON file written anew has."""
    names = _names(category)
    return {"id": category["id"], "name": category["name"]} | ({"keypoints": names} if names else {})
