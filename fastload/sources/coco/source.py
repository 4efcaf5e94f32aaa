"""COCO datasets: a JSON file with images, annotations and categories, or a folder with one for each split.

The images are in a folder near the JSON file: its own, `images`, `train2017` or similar. Records are in the
order of the images' ids, as in torchvision's CocoDetection; categories are numbered from 0 in the order of
their ids. Backslashes in names, as written by Windows, are read as slashes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastload.shards.manifest import LeftOut
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.boxes import Coordinates, Sides, require_pixels
from fastload.sources.coco.rows import CocoReader
from fastload.sources.files import NameTable, list_files
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.malformed import INT64, explaining, is_finite, is_text, malformed
from fastload.sources.protocol import evenly_spaced
from fastload.sources.walking import in_order, is_image, list_entries, read_part

_SPLIT = re.compile(r"(train|val|test)", re.IGNORECASE)
_OBJECTS = "instances_"  # COCO's own files of boxes; others hold keypoints and captions
_SAMPLED = 16
_MOST_LEVELS = 20  # a manifest, which stores the JSON, may nest 30

UNLISTED = "an image that the json does not list"

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Content:
    """A parsed JSON file: the images in the order of their ids, and the annotations of each."""

    path: str
    images: list[Entry]
    annotations: dict[int, list[Entry]]
    categories: list[Entry]
    others: Entry


def open_coco(path: str) -> dict[str, AnnotatedFiles] | None:
    """List a COCO JSON file, or a folder with one: directly, in `annotations`, or in each split's folder."""
    is_folder = os.path.isdir(path)
    files = _descriptions_in(path) if is_folder else [os.path.abspath(path)]
    if not files or not (is_folder or (path.lower().endswith(".json") and _is_coco(path))):
        return None
    chosen = [file for file in files if os.path.basename(file).startswith(_OBJECTS)] or files
    contents: dict[str, _Content] = {}
    for file in chosen:
        split = _split_of(file) if len(chosen) > 1 else ""
        if split in contents:
            found = f"{contents[split].path} and {file}"
            raise malformed(path, "hold one json for each split", found, "name one of them")
        contents[split] = _parsed(file)
    first, *others = contents.values()
    for other in others:
        if other.categories != first.categories:
            raise malformed(other.path, f"have the categories of {first.path}", "others", "correct it first")
    every = [each for found in contents.values() for group in found.annotations.values() for each in group]
    reader = CocoReader(
        "",
        {category["id"]: label for label, category in enumerate(first.categories)},
        any(each.get("segmentation") is not None for each in every),
        max((_points(each) for each in every), default=0),
        {category["id"]: len(names) for category in first.categories if (names := _names(category))},
        any("caption" in each for each in every) and not any("bbox" in each for each in every),
    )
    root = os.path.abspath(path) if is_folder else ""
    sources = {
        split: _source(path, root, content, replace(reader, origin=content.path))
        for split, content in in_order(contents).items()
    }
    warnings = [f"{path}: {file} is not packed; name it to pack it" for file in files if file not in chosen]
    left_out = _unlisted([*sources.values()])
    if left_out:
        count = sum(each.files for each in left_out)
        warnings.append(f"{path} does not list {count:,} images beside the others, such as {left_out[0].key}")
    first_source = next(iter(sources.values()))
    first_source.warnings, first_source.left_out = tuple(warnings), left_out
    return sources


def _is_coco(path: str) -> bool:
    """Return True if the start, middle and end of a JSON file contain COCO's member names."""
    # COCO's own files are too large to read in full.
    text = b"".join(read_part(path, share) for share in (0.0, 0.5, 1.0))
    has_parts = b'"images"' in text or b'"annotations"' in text
    return has_parts and (b'"image_id"' in text or b'"categories"' in text)


def _source(path: str, root: str, content: _Content, reader: CocoReader) -> AnnotatedFiles:
    folder = _image_folder(content)
    root = root or os.path.commonpath([os.path.dirname(content.path), folder])
    prefix = os.path.relpath(folder, root)
    names = [os.path.normpath(os.path.join(prefix, image["file_name"])) for image in content.images]
    texts = (
        json.dumps({"image": image, "annotations": content.annotations[image["id"]]})
        for image in content.images
    )
    return AnnotatedFiles(
        kind="coco",
        name=path,
        classes=tuple(category["name"] for category in content.categories),
        fields=reader.fields(),
        details={
            "file": os.path.relpath(content.path, root),
            "images": prefix,
            "categories": content.categories,
            "others": content.others,
        },
        files=list_files(root, names),
        texts=NameTable(texts),
        origin=content.path,
        reader=reader,
    )


def _parsed(path: str) -> _Content:
    """Parse a JSON file; raise SourceError, naming the image, category or annotation, if it is malformed."""
    errors = (OSError, ValueError, RecursionError)
    with explaining(errors, path, "be a json file", "correct it"), open(path, encoding="utf-8-sig") as file:
        others = json.load(file, object_pairs_hook=_members)
    if not isinstance(others, dict):
        raise malformed(path, "hold images and annotations", type(others).__name__)
    images, annotations = (_entries(path, name, others.pop(name, None)) for name in ("images", "annotations"))
    categories = _entries(path, "categories", others.pop("categories", []))
    for image in images:
        name = image.get("file_name")
        parts = name.replace("\\", "/").split("/") if is_text(name) and "\0" not in name else [""]
        if not parts[0] or ".." in parts or parts[0].endswith(":"):
            raise malformed(f"{path}, image {image['id']}", "have a relative file_name", repr(name))
        image["file_name"] = "/".join(parts)
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
    if not _is_shallow([others, categories]):
        must = f"nest at most {_MOST_LEVELS} levels beside its images"
        raise malformed(path, must, "more", "correct it first")
    must, step = "have a bbox of x, y, width, height in pixels", "convert its boxes first"
    boxes = [_well_formed(by_image[image["id"]]) for image in images]
    require_pixels(path, must, step, boxes, lambda index: _stated_sides(images[index]))
    return _Content(path, images, by_image, categories, others)


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


def _is_shallow(value: Any, levels: int = _MOST_LEVELS) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(levels and _is_shallow(each, levels - 1) for each in inner)


def _well_formed(annotations: Sequence[Entry]) -> Coordinates:
    """Return the well-formed boxes of some annotations; reading their records reports the others."""
    boxes = (each.get("bbox") for each in annotations)
    right = [box for box in boxes if isinstance(box, list) and len(box) == 4 and all(map(is_finite, box))]
    return np.array(right, np.float64).reshape(-1, 4)


def _stated_sides(image: Entry) -> Sides | None:
    sides: Any = image.get("width"), image.get("height")
    are_known = all(is_finite(side) and side > 0 for side in sides)
    return sides if are_known else None


def _unlisted(sources: Sequence[AnnotatedFiles]) -> tuple[LeftOut, ...]:
    """Return the unlisted images in the folders of the listed ones."""
    left_out = LeftOutFiles()
    listed = {name for source in sources for name in source.files.names}
    for folder in sorted({os.path.dirname(name) for name in listed}):
        for name in list_entries(os.path.join(sources[0].files.folder, folder)).files:
            if is_image(name) and (path := os.path.join(folder, name)) not in listed:
                left_out.add(path, UNLISTED, is_clutter=True)
    return left_out.finish()


def _points(annotation: Mapping[str, Any]) -> int:
    keypoints = annotation.get("keypoints")
    return len(keypoints) // 3 if isinstance(keypoints, list) else 0


def _names(category: Entry) -> list[Any]:
    """Return the names of a category's keypoints; none if it has no list of them."""
    names = category.get("keypoints")
    return names if isinstance(names, list) else []


def _image_folder(content: _Content) -> str:
    """Return the folder near a JSON file that holds the most of its images."""
    own = os.path.dirname(content.path)
    above = os.path.dirname(own)
    folders = [own, above]
    for base in (own, above, os.path.join(own, "images"), os.path.join(above, "images")):
        folders += [os.path.join(base, name) for name in list_entries(base).folders]
    names = [content.images[at]["file_name"] for at in evenly_spaced(len(content.images), _SAMPLED)]
    counts = [sum(os.path.isfile(os.path.join(folder, name)) for name in names) for folder in folders]
    # On a tie, the folder that the JSON file is named after wins: val2017 for instances_val2017.json.
    stem = os.path.splitext(os.path.basename(content.path))[0]
    named = [os.path.basename(folder) in stem for folder in folders]
    best = max(range(len(folders)), key=lambda at: (counts[at], named[at], -at))
    if names and not counts[best]:
        must = f"have its images, such as {names[0]!r}, in a folder near it"
        raise malformed(content.path, must, f"none in {own}", "move it there")
    return folders[best]


def _descriptions_in(path: str) -> list[str]:
    """Return the COCO files in a folder, in its annotation folders, or in the folders of its splits."""
    entries = list_entries(os.path.abspath(path))
    inner = [name for name in entries.folders if "annotation" in name.lower() or _SPLIT.match(name)]
    candidates = [
        os.path.join(folder, name)
        for folder in (entries.path, *(entries.join(name) for name in inner))
        for name in list_entries(folder).files
        if name.lower().endswith(".json")
    ]
    return [file for file in candidates if _is_coco(file)]


def _split_of(path: str) -> str:
    folder, name = os.path.split(path)
    match = _SPLIT.search(name) or _SPLIT.search(os.path.basename(folder))
    return match[0].lower() if match else ""
