"""COCO datasets: a JSON file with images, annotations and categories, or a folder with one for each split.

The images are in a folder near the JSON file: its own, `images`, `train2017` or similar. Records are in the
order of the images' ids, as in torchvision's CocoDetection; categories are numbered from 0 in the order of
their ids. Backslashes in names, as written by Windows, are read as slashes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from fastload.sources.coco.content import (
    CocoContent,
    Entry,
    ImagePlace,
    is_coco,
    place_in,
    place_near,
    read_content,
    split_of,
)
from fastload.sources.coco.rows import CocoReader
from fastload.sources.file_source import AnnotatedFiles
from fastload.sources.files import NameTable, list_files
from fastload.sources.listing import Listing, list_alone
from fastload.sources.malformed import malformed, pack_command
from fastload.sources.protocol import Claim, LeftOutReason, Reading, evenly_spaced
from fastload.sources.splits import SPLITS, sorted_splits
from fastload.system.units import format_count

_OBJECTS = "instances_"  # COCO's own files of boxes; others hold keypoints and captions
_MOST_FILES = 64  # more files than these are annotations of one image each
_SAMPLED = 16

_UNLISTED = "an image that no json lists"
_FURTHER: LeftOutReason = ("a further COCO json, which is packed if it is named", False)
_REPEATED: LeftOutReason = (
    "a COCO json of images that other jsons list, which is packed if it is named",
    False,
)
_OTHER_JSON: LeftOutReason = ("a json beside the one that was named", True)


class _Split(NamedTuple):
    content: CocoContent
    place: ImagePlace

    def paths(self, root: str) -> Iterator[str]:
        """Yield the paths of its images relative to a folder."""
        folder = os.path.relpath(self.place.folder, root)
        for image in self.content.images:
            yield os.path.normpath(os.path.join(folder, self.place.name_of(image["file_name"])))


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder with COCO's JSON files."""
    names = islice(_json_files(listing), _MOST_FILES)
    files = [name for name in names if is_coco(listing.absolute(name))]
    if not files:
        return None
    return Claim(f"its json {files[0]}", partial(_read_folder, listing, files))


def recognise_file(path: str) -> Claim | None:
    """Claim a COCO JSON file."""
    if not path.lower().endswith(".json") or not is_coco(path):
        return None
    return Claim(f"images and annotations in {path}", partial(_read_one, path))


def _json_files(listing: Listing) -> Iterator[str]:
    """Yield the JSON files that are not hidden, the likeliest first: in upper folders, of annotations."""

    def depth(path: str) -> int:
        return len(path.split("/")) - 2 * ("annotation" in path.lower()) if path else 0

    bearing = (each for each in listing.visible if each.others)
    for folder in sorted(bearing, key=lambda each: (depth(each.path), each.path)):
        found = folder.others_with(".json")
        yield from map(folder.join, sorted(found, key=lambda name: not name.startswith(_OBJECTS)))


def _read_folder(listing: Listing, files: Sequence[str]) -> Reading:
    """List the records of a folder's JSON files by split, of objects if there are such among others."""
    chosen = [file for file in files if os.path.basename(file).startswith(_OBJECTS)] or files
    splits = _splits(listing, chosen)
    further = dict.fromkeys((listing.absolute(file) for file in files if file not in chosen), _FURTHER)
    further |= {splits.pop(split).content.path: _REPEATED for split in _repeated(listing, splits)}
    shown = (os.path.relpath(path, listing.root) for path in further)
    warnings = [f"{listing.name}: {file} is not packed; name it to pack it" for file in shown]
    name, folders = listing.name, [listing.root, *(each.place.folder for each in splits.values())]
    if any(listing.place_of(folder) is None for folder in folders):
        listing = Listing.covering(os.path.commonpath(folders), folders)
    return _reading(name, listing, splits, warnings, further, is_whole=True)


def _read_one(path: str) -> Reading:
    """List the images of a JSON file, which lie in a folder near it."""
    content = read_content(os.path.abspath(path))
    place = place_near(content.path, _sampled(content))
    folder = os.path.dirname(content.path)
    listing = Listing.covering(os.path.commonpath([folder, place.folder]), [place.folder], [content.path])
    beside = (os.path.join(folder, name) for name in list_alone(folder).others_with(".json"))
    others = [each for each in beside if each != content.path and is_coco(each)]
    reasons = dict.fromkeys(others, _OTHER_JSON)
    return _reading(path, listing, {"": _Split(content, place)}, [], reasons, is_whole=not others)


def _splits(listing: Listing, files: Sequence[str]) -> dict[str, _Split]:
    """Parse JSON files of the same categories, each of another split, and find the images of each."""
    contents: dict[str, CocoContent] = {}
    for file in files:
        split = split_of(file) if len(files) > 1 else ""
        same = [*contents] if not split else [each for each in (split, "") if each in contents]
        if same:
            other = contents[same[0]].path
            found, step = f"{other} and {listing.absolute(file)}", f"pack one of them: {pack_command(other)}"
            raise malformed(listing.name, "hold one json for each split", found, step)
        contents[split] = read_content(listing.absolute(file))
    first, *others = contents.values()
    for each in others:
        if each.categories != first.categories:
            raise malformed(each.path, f"have the categories of {first.path}", "others", "correct it first")
    splits = {}
    for file, (split, content) in zip(files, contents.items(), strict=True):
        names = _sampled(content)
        splits[split] = _Split(content, place_in(listing, file, names) or place_near(content.path, names))
    return splits


def _repeated(listing: Listing, splits: Mapping[str, _Split]) -> list[str]:
    """Return the splits, other than train, val and test, whose images all are in others, as of trainval.

    SourceError is raised if the images of train, val or test all are in splits of other names.
    """
    if len(splits) < 2 or splits.keys() <= SPLITS.keys():
        return []
    images = {split: {*each.paths(listing.root)} for split, each in splits.items()}
    repeated: list[str] = []
    # A union of splits, which is larger than they are, is found before them.
    for split in sorted(images.keys() - SPLITS.keys(), key=lambda split: -len(images[split])):
        others = (images[each] for each in images if each not in (split, *repeated))
        if images[split] and images[split] <= set().union(*others):
            repeated.append(split)
    further = [split for split in images if split not in (*SPLITS, *repeated)]
    for split in images.keys() & SPLITS.keys():
        if images[split] and images[split] <= set().union(*map(images.__getitem__, further)):
            path, union = (splits[each].content.path for each in (split, further[0]))
            step = f"pack one of them: {pack_command(union)}"
            raise malformed(path, "list images that no other json lists", f"those of {union}", step)
    return repeated


def _reading(
    name: str,
    listing: Listing,
    splits: Mapping[str, _Split],
    warnings: list[str],
    reasons: Mapping[str, LeftOutReason],
    *,
    is_whole: bool,
) -> Reading:
    """List the records, with absolute paths; unless `is_whole`, other JSON files may list other images."""
    sources = _sources(name, listing, splits)
    listed = {image for source in sources.values() for image in source.files.names}
    images = (path for folder in listing.visible for path in map(folder.join, folder.images))
    unlisted = [path for path in images if path not in listed]
    if unlisted:
        count = format_count(len(unlisted), "image")
        warnings.append(f"{name}: its json does not list {count}, such as {unlisted[0]}")
    contents = [each.content for each in splits.values()]
    known = {place: reason for path, reason in reasons.items() if (place := listing.place_of(path))}
    read = [place for content in contents if (place := listing.place_of(content.path))]
    known |= dict.fromkeys(unlisted, (_UNLISTED, not is_whole))
    bare = [content.path for content in contents if not any(content.annotations.values())]
    unlabelled = [(split_of(path), f"{path}: none of its images has an annotation") for path in bare]
    return Reading(sources, read, known, warnings, unlabelled, listing)


def _sources(name: str, listing: Listing, splits: Mapping[str, _Split]) -> dict[str, AnnotatedFiles]:
    contents = [each.content for each in splits.values()]
    categories = contents[0].categories
    annotations = [each for found in contents for group in found.annotations.values() for each in group]
    reader = CocoReader(
        "",
        {category["id"]: label for label, category in enumerate(categories)},
        any(each.get("segmentation") is not None for each in annotations),
        max((_points(each) for each in annotations), default=0),
        {category["id"]: len(names) for category in categories if (names := _names(category))},
        any("caption" in each for each in annotations) and not any("bbox" in each for each in annotations),
    )
    sources = {}
    for split, each in sorted_splits(splits).items():
        content = each.content
        entries = ((image, content.annotations[image["id"]]) for image in content.images)
        texts = (json.dumps({"image": image, "annotations": objects}) for image, objects in entries)
        sources[split] = AnnotatedFiles(
            kind="coco",
            name=name,
            classes=tuple(category["name"] for category in categories),
            fields=reader.fields(),
            details={
                "file": os.path.relpath(content.path, listing.root),
                "images": os.path.relpath(each.place.folder, listing.root),
                "categories": [*map(_described, categories)],
            },
            files=list_files(listing.root, each.paths(listing.root)),
            texts=NameTable(texts),
            origin=content.path,
            reader=replace(reader, origin=content.path),
        )
    stated = {image["file_name"] for content in contents for image in content.images}
    if len({image for source in sources.values() for image in source.files.names}) < len(stated):
        raise malformed(name, "have its images in the folders that its json names", "two under one name")
    return sources


def _sampled(content: CocoContent) -> list[str]:
    """Return the names of some images, evenly spaced."""
    names = (content.images[at]["file_name"] for at in evenly_spaced(len(content.images), _SAMPLED))
    return [os.path.normpath(name) for name in names]


def _points(annotation: Entry) -> int:
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
