"""COCO datasets: a JSON file with images, annotations and categories, or a folder with one for each split.

The images are in a folder near the JSON file: its own, `images`, `train2017` or similar. Records are in the
order of the images' ids, as in torchvision's CocoDetection; categories are numbered from 0 in the order of
their ids. Backslashes in names, as written by Windows, are read as slashes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.coco.content import CocoContent, Entry, is_coco, read_content
from fastload.sources.coco.places import ImagePlace, place_in, place_near, split_of
from fastload.sources.coco.rows import CocoReader
from fastload.sources.files import list_files
from fastload.sources.listing import Listing
from fastload.sources.malformed import malformed
from fastload.sources.names import NameTable
from fastload.sources.protocol import LeftOutReason, Reading, evenly_spaced
from fastload.sources.splits import in_order
from fastload.system.units import format_count

OBJECTS = "instances_"  # COCO's own files of boxes; others hold keypoints and captions
_SAMPLED = 16

UNLISTED = "an image that no json lists"
FURTHER = "a further COCO json, which is packed if it is named"
_OTHER_JSON: LeftOutReason = ("a json beside the one that was named", True)


def read_coco(listing: Listing, files: Sequence[str]) -> Reading:
    """List the records of a folder's JSON files by split, of objects if there are such among others."""
    chosen = [file for file in files if os.path.basename(file).startswith(OBJECTS)] or files
    contents = _by_split(listing, chosen)
    places: dict[str, ImagePlace] = {}
    for file, (split, content) in zip(chosen, contents.items(), strict=True):
        names = _sampled(content)
        places[split] = place_in(listing, file, names) or place_near(content.path, names)
    further = [file for file in files if file not in chosen]
    warnings = [f"{listing.name}: {file} is not packed; name it to pack it" for file in further]
    reasons: dict[str, LeftOutReason] = {listing.absolute(file): (FURTHER, False) for file in further}
    name, folders = listing.name, [listing.root, *(place.folder for place in places.values())]
    if any(listing.place_of(folder) is None for folder in folders):
        listing = Listing.covering(os.path.commonpath(folders), folders)
    return _reading(name, listing, contents, places, warnings, reasons, is_whole=True)


def read_one(path: str) -> Reading:
    """List the images of a JSON file, which lie in a folder near it."""
    content = read_content(os.path.abspath(path))
    place = place_near(content.path, _sampled(content))
    folder = os.path.dirname(content.path)
    listing = Listing.covering(os.path.commonpath([folder, place.folder]), [place.folder], [content.path])
    beside = (os.path.join(folder, name) for name in Listing.of(folder, [""])[""].others_with(".json"))
    others = [each for each in beside if each != content.path and is_coco(each)]
    reasons = dict.fromkeys(others, _OTHER_JSON)
    return _reading(path, listing, {"": content}, {"": place}, [], reasons, is_whole=not others)


def _reading(
    name: str,
    listing: Listing,
    contents: Mapping[str, CocoContent],
    places: Mapping[str, ImagePlace],
    warnings: list[str],
    reasons: Mapping[str, LeftOutReason],
    *,
    is_whole: bool,
) -> Reading:
    """List the records, with absolute paths; unless `is_whole`, other JSON files may list other images."""
    sources = _sources(name, listing, contents, places)
    listed = {image for source in sources.values() for image in source.files.names}
    images = (path for folder in listing.folders.values() for path in map(folder.join, folder.images))
    unlisted = [path for path in images if path not in listed and "/." not in f"/{path}"]
    if unlisted:
        count = format_count(len(unlisted), "image")
        warnings.append(f"{name}: its json does not list {count}, such as {unlisted[0]}")
    known = {place: reason for path, reason in reasons.items() if (place := listing.place_of(path))}
    read = [place for content in contents.values() if (place := listing.place_of(content.path))]
    known |= dict.fromkeys(unlisted, (UNLISTED, not is_whole))
    return Reading(sources, read, known, warnings, listing)


def _by_split(listing: Listing, files: Sequence[str]) -> dict[str, CocoContent]:
    """Parse JSON files of the same categories, each of another split."""
    contents: dict[str, CocoContent] = {}
    for file in files:
        split = split_of(file) if len(files) > 1 else ""
        same = [*contents] if not split else [each for each in (split, "") if each in contents]
        if same:
            found = f"{contents[same[0]].path} and {listing.absolute(file)}"
            raise malformed(listing.name, "hold one json for each split", found, "name one of them")
        contents[split] = read_content(listing.absolute(file))
    first, *others = contents.values()
    for each in others:
        if each.categories != first.categories:
            raise malformed(each.path, f"have the categories of {first.path}", "others", "correct it first")
    return contents


def _sources(
    name: str, listing: Listing, contents: Mapping[str, CocoContent], places: Mapping[str, ImagePlace]
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
    sources = {}
    for split, content in in_order(contents).items():
        folder = os.path.relpath(places[split].folder, listing.root)
        paths = (os.path.join(folder, places[split].name_of(each["file_name"])) for each in content.images)
        entries = ((each, content.annotations[each["id"]]) for each in content.images)
        texts = (json.dumps({"image": image, "annotations": own}) for image, own in entries)
        file = os.path.relpath(content.path, listing.root)
        sources[split] = AnnotatedFiles(
            kind="coco",
            name=name,
            classes=tuple(category["name"] for category in categories),
            fields=reader.fields(),
            details={"file": file, "images": folder, "categories": [*map(_described, categories)]},
            files=list_files(listing.root, map(os.path.normpath, paths)),
            texts=NameTable(texts),
            origin=content.path,
            reader=replace(reader, origin=content.path),
        )
    stated = {image["file_name"] for content in contents.values() for image in content.images}
    if len({image for source in sources.values() for image in source.files.names}) < len(stated):
        raise malformed(name, "have its images in the folders that its json names", "two under one name")
    return sources


def _sampled(content: CocoContent) -> list[str]:
    """Return the names of some images, evenly spaced."""
    names = (content.images[at]["file_name"] for at in evenly_spaced(len(content.images), _SAMPLED))
    return [os.path.normpath(name) for name in names]


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
