"""COCO datasets: a json with images, annotations and categories, or a folder with one for each split.

The images are in a folder near the json: images, train2017, the json's own and the like. Records are in the
order of the images' ids, as in torchvision's CocoDetection; categories are numbered from 0 in the order of
their ids.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from fastload.errors import SourceError
from fastload.sources._annotated import AnnotatedFiles
from fastload.sources._annotations import read_part
from fastload.sources._coco_rows import CocoReader
from fastload.sources._walking import in_order, list_entries
from fastload.sources.files import NameTable, list_files

_SPLIT = re.compile(r"(train|val|test)", re.IGNORECASE)
_OBJECTS = "instances_"  # COCO's own file of boxes, beside others for keypoints and captions
_SAMPLED = 16


class _Content(NamedTuple):
    """A parsed json: the images in the order of their ids, and the annotations of each."""

    path: str
    images: list[dict[str, Any]]
    annotations: dict[int, list[dict[str, Any]]]
    categories: list[dict[str, Any]]
    others: dict[str, Any]


def recognise(path: str) -> bool:
    """Return True for a COCO json, and for a folder with one: in it, in `annotations`, or in a split's."""
    if os.path.isdir(path):
        return bool(_descriptions_in(path))
    return path.lower().endswith(".json") and is_coco(path)


def is_coco(path: str) -> bool:
    """Return True if a JSON file has images and annotations, by its start, middle and end."""
    # COCO's own files are too large to be read whole.
    text = b"".join(read_part(path, share) for share in (0.0, 0.5, 1.0))
    has_parts = b'"images"' in text or b'"annotations"' in text
    return has_parts and (b'"image_id"' in text or b'"categories"' in text)


def open_coco(path: str) -> dict[str, AnnotatedFiles]:
    """List a COCO dataset by split."""
    is_folder = os.path.isdir(path)
    files = _descriptions_in(path) if is_folder else [os.path.abspath(path)]
    chosen = [file for file in files if os.path.basename(file).startswith(_OBJECTS)] or files
    by_split: dict[str, str] = {}
    for file in chosen:
        split = _split_of(file) if len(chosen) > 1 else ""
        if split in by_split:
            _refuse(path, "must hold one json for each split", f"{by_split[split]} and {file}")
        by_split[split] = file
    contents = {split: _parsed(file) for split, file in by_split.items()}
    first, *others = contents.values()
    for other in others:
        if other.categories != first.categories:
            _refuse(other.path, f"must have the categories of {first.path}", "others")
    root = os.path.abspath(path) if is_folder else ""
    warnings = tuple(
        f"{path}: {file} is not packed; name it to pack it" for file in files if file not in chosen
    )
    return {
        split: _source(path, root, contents[split], first, warnings if content is first else ())
        for split, content in in_order(contents).items()
    }


def _source(
    path: str, root: str, content: _Content, like: _Content, warnings: Sequence[str]
) -> AnnotatedFiles:
    folder = _image_folder(content)
    root = root or os.path.commonpath([os.path.dirname(content.path), folder])
    labels = {category["id"]: label for label, category in enumerate(content.categories)}
    every = [each for found in (content, like) for group in found.annotations.values() for each in group]
    reader = CocoReader(
        content.path,
        labels,
        any(each.get("segmentation") is not None for each in every),
        max((_points(each) for each in every), default=0),
        any("caption" in each for each in every) and not any("bbox" in each for each in every),
    )
    prefix = os.path.relpath(folder, root)
    names = [os.path.normpath(os.path.join(prefix, image["file_name"])) for image in content.images]
    texts = (
        json.dumps({"image": image, "annotations": content.annotations.get(image["id"], [])})
        for image in content.images
    )
    return AnnotatedFiles(
        kind="coco",
        name=path,
        classes=tuple(category["name"] for category in content.categories),
        fields=reader.fields(),
        warnings=tuple(warnings),
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
    """Read a json; raise SourceError, naming the image, category or annotation, if it is malformed."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path}: must be a json file, got: {error}: correct it") from error
    if not isinstance(content, dict):
        _refuse(path, "must hold images and annotations", type(content).__name__)
    images, annotations = (_entries(path, content, name) for name in ("images", "annotations"))
    categories = _entries(path, content, "categories") if "categories" in content else []
    for image in images:
        name = image.get("file_name")
        if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in name.split("/"):
            _refuse(f"{path}, image {image['id']}", "must have a relative file_name", repr(name))
    for category in categories:
        if not isinstance(category.get("name"), str):
            _refuse(f"{path}, category {category['id']}", "must have a name", repr(category.get("name")))
    known = {image["id"] for image in images}
    by_image: dict[int, list[dict[str, Any]]] = {}
    for annotation in annotations:
        image_id = annotation.get("image_id")
        if type(image_id) is not int or image_id not in known:
            _refuse(f"{path}, annotation {annotation['id']}", "must have an image's image_id", repr(image_id))
        by_image.setdefault(image_id, []).append(annotation)
    others = {k: v for k, v in content.items() if k not in ("images", "annotations", "categories")}
    by_id = sorted(images, key=lambda image: image["id"])
    return _Content(path, by_id, by_image, sorted(categories, key=lambda each: each["id"]), others)


def _entries(path: str, content: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects with different ids."""
    entries = content.get(name)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        _refuse(path, f"must have {name}, a list of objects as a COCO json has", type(entries).__name__)
    seen: set[int] = set()
    for place, entry in enumerate(entries):
        number = entry.get("id")
        if type(number) is not int or number in seen:
            _refuse(f"{path}, {name}[{place}]", "must have an id, a whole number of its own", repr(number))
        seen.add(number)
    return entries


def _points(annotation: Mapping[str, Any]) -> int:
    keypoints = annotation.get("keypoints")
    return len(keypoints) // 3 if isinstance(keypoints, list) else 0


def _image_folder(content: _Content) -> str:
    """Return the folder near a json that holds most of the images."""
    own = os.path.dirname(content.path)
    above = os.path.dirname(own)
    folders = [own, above]
    for base in (own, above, os.path.join(own, "images"), os.path.join(above, "images")):
        folders += [os.path.join(base, name) for name in list_entries(base).folders]
    step = max(1, len(content.images) // _SAMPLED)
    names = [image["file_name"] for image in content.images[::step]]
    counts = [sum(os.path.isfile(os.path.join(folder, name)) for name in names) for folder in folders]
    # Of equal folders, the one that the json is named after: val2017 of instances_val2017.json.
    stem = os.path.splitext(os.path.basename(content.path))[0]
    named = [os.path.basename(folder) in stem for folder in folders]
    best = max(range(len(folders)), key=lambda at: (counts[at], named[at], -at))
    if names and not counts[best]:
        _refuse(
            content.path, f"must have its images, such as {names[0]!r}, in a folder near it", "none in " + own
        )
    return folders[best]


def _descriptions_in(path: str) -> list[str]:
    """Return the COCO files of a folder: in it, in its folders of annotations, or in its splits."""
    entries = list_entries(os.path.abspath(path))
    inner = [name for name in entries.folders if "annotation" in name.lower() or _SPLIT.match(name)]
    candidates = [
        os.path.join(folder, name)
        for folder in (entries.path, *(entries.join(name) for name in inner))
        for name in list_entries(folder).files
        if name.lower().endswith(".json")
    ]
    return [file for file in candidates if is_coco(file)]


def _split_of(path: str) -> str:
    for part in (os.path.basename(path), os.path.basename(os.path.dirname(path))):
        if match := _SPLIT.search(part):
            return match[0].lower()
    return ""


def _refuse(where: str, wanted: str, got: str) -> NoReturn:
    raise SourceError(f"{where}: {wanted}, got {got}: correct it first")
