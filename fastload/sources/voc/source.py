"""Pascal VOC datasets: JPEGImages with Annotations, masks and lists of splits; or images and XML files alone.

Without lists, all images are packed. The classes are numbered in the order of their names, as in VOC itself.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fastload.errors import SourceError
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.files import FileList, Values, list_files
from fastload.sources.listing import Listing
from fastload.sources.pairing import FilesByStem, one_of_each
from fastload.sources.protocol import LeftOutReason, Reading
from fastload.sources.splits import by_split, require_plain_names, split_names
from fastload.sources.voc.lists import Lists, read_lists
from fastload.sources.voc.places import (
    BOXES,
    IMAGES,
    MASKS,
    SETS,
    Places,
    files_by_stem,
    image_names,
    mask_names,
    xml_names,
)
from fastload.sources.voc.rows import VocReader, class_names

IN_NO_SPLIT = "in no split"
NO_IMAGE_OF_XML = "annotations without an image of their name"
MASK_OF_NO_RECORD = "a mask of an image that is not packed"
_ABOUT_VOC: LeftOutReason = ("part of VOC's development kit", True)

_OF_VOC = re.compile(r"20\d\d_\d{6}")  # VOC 2012 has images of each task, and no list names them all
_DEVKIT = re.compile(r"(.*/)?(VOCcode/.+|[^/]+\.m|devkit_doc\.\w+)")


@dataclass(frozen=True, slots=True)
class _Split:
    """The files of a split: each image, its annotation, and its mask in each folder of masks, if any."""

    images: Sequence[str]
    xml: Sequence[str] = ()  # empty without annotations of boxes
    masks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)


def read_kit(listing: Listing, root: str) -> Reading:
    """List the splits of a folder with JPEGImages, by its lists."""
    kit = listing.view(root)
    images = files_by_stem(kit, IMAGES, image_names, is_deep=True)
    stems = {path: stem for stem, paths in images.items() for path in paths}
    xml = _single(kit, files_by_stem(kit, BOXES, xml_names, is_deep=True))
    masks = {name: _masks_in(kit, name) for name in MASKS}
    lists = read_lists(kit, images, has_boxes=bool(xml))
    splits = lists.splits or {"": [*_single(kit, images).values()]}
    found = {}
    for split, listed in splits.items():
        own = [stems[path] for path in listed]
        details = {
            "images": IMAGES,
            "boxes": BOXES,
            "lists": lists.folder,
            "list": lists.names.get(split, ""),
        }
        found[split] = _Split(
            listed,
            [xml.get(stem, f"{BOXES}/{stem}.xml") for stem in own] if xml else (),
            {name: [by_stem.get(stem, "") for stem in own] for name, by_stem in masks.items() if by_stem},
            details,
        )
    reasons = dict(lists.reasons)
    packed = {path for listed in splits.values() for path in listed}
    reasons |= _reasons(stems, xml, masks, lists, packed)
    prefix = f"{root}/" if root else ""
    outside = (folder.join(name) for folder in listing.folders.values() for name in folder.others)
    every = {path: _ABOUT_VOC for path in outside if _DEVKIT.fullmatch(path)}
    every |= {prefix + path: reason for path, reason in reasons.items()}
    read = [prefix + path for path in lists.read]
    return Reading(_sources(listing.name, kit, found, [*_warnings(kit, lists)]), read, every)


def read_places(listing: Listing, names: Sequence[str], found: Mapping[str, Places]) -> Reading:
    """List the images in the places of each split, "" without splits, of which `names` are all."""
    places = dict(found)
    if "" in places and places[""].is_deep:
        places = _inner_splits(listing, places[""])
    splits = {name: _split_of(listing, each) for name, each in places.items()}
    warnings = [
        f"{listing.name}: {name!r} has no annotations, and is left out"
        for name in names
        if name not in places and "" not in places
    ]
    reasons: dict[str, LeftOutReason] = {}
    for place in places.values():
        for folder in listing.below(place.boxes):
            for name in folder.others_with(".xml"):
                reasons[folder.join(name)] = (NO_IMAGE_OF_XML, False)
    return Reading(_sources(listing.name, listing, by_split(listing.name, splits), warnings), (), reasons)


def _inner_splits(listing: Listing, places: Places) -> dict[str, Places]:
    """Return the places of the splits within the folders of images and annotations, or these places."""
    top = listing[places.images]
    names = split_names(top.visible)
    if not names:
        bearing = [name for name in top.visible if any(each.images for each in listing.below(top.join(name)))]
        if not top.images:
            require_plain_names(listing.shown(places.images), bearing)
        return {"": places}
    boxes = listing[places.boxes]
    return {name: Places(top.join(name), boxes.join(name), is_deep=True) for name in names}


def _split_of(listing: Listing, places: Places) -> _Split:
    images = _single(listing, files_by_stem(listing, places.images, image_names, is_deep=places.is_deep))
    xml = _single(listing, files_by_stem(listing, places.boxes, xml_names, is_deep=places.is_deep))
    expected = listing[places.boxes].join("{}.xml").format
    details = {"images": places.images, "boxes": places.boxes}
    return _Split([*images.values()], [xml.get(stem, expected(stem)) for stem in images], {}, details)


def _sources(
    name: str, listing: Listing, splits: Mapping[str, _Split], warnings: Sequence[str]
) -> dict[str, AnnotatedFiles]:
    root = listing.root
    texts = {split: list_files(root, found.xml) for split, found in splits.items()}
    classes = sorted({each for files in texts.values() for each in _class_names(files)})
    sources: dict[str, AnnotatedFiles] = {}
    for split, found in splits.items():
        reader = VocReader({each: label for label, each in enumerate(classes)}) if found.xml else None
        values: dict[str, Values] = {
            MASKS[folder].name: list_files(root, paths) for folder, paths in found.masks.items()
        }
        masks = [MASKS[folder] for folder in found.masks]
        sources[split] = AnnotatedFiles(
            kind="voc",
            name=name,
            classes=tuple(classes),
            fields=(*(reader.fields() if reader else ()), *masks),
            warnings=() if sources else tuple(warnings),
            details=found.details,
            files=list_files(root, found.images),
            values=values,
            texts=texts[split],
            reader=reader,
            needs_masks=reader is None,
        )
    return sources


def _class_names(files: FileList) -> set[str]:
    names: set[str] = set()
    for index in range(len(files)):
        if files.sizes_bytes[index] > 0:
            with contextlib.suppress(SourceError):  # reading the record reports it
                names |= class_names(files.read(index))
    return names


def _masks_in(kit: Listing, folder: str) -> dict[str, str]:
    return _single(kit, files_by_stem(kit, folder, mask_names, is_deep=True))


def _single(listing: Listing, files: FilesByStem) -> dict[str, str]:
    """Return the file of each stem; raise SourceError if it has two."""
    return one_of_each(files, "file", listing.shown)


def _reasons(
    stems: Mapping[str, str],
    xml: Mapping[str, str],
    masks: Mapping[str, Mapping[str, str]],
    lists: Lists,
    packed: set[str],
) -> Iterator[tuple[str, LeftOutReason]]:
    """Yield the reasons for leaving out images in no split, and files of images that are not packed."""
    is_clutter: dict[str, bool] = {}
    for path, stem in stems.items():
        if path not in packed:
            is_clutter[stem] = stem in lists.elsewhere or _OF_VOC.fullmatch(stem) is not None
            yield path, (f"an image {IN_NO_SPLIT}", is_clutter[stem])
    every = {*stems.values()}
    for stem, path in xml.items():
        if stem not in every:
            yield path, (NO_IMAGE_OF_XML, False)
        elif stem in is_clutter:
            yield path, (f"annotations of an image {IN_NO_SPLIT}", is_clutter[stem])
    for by_stem in masks.values():
        yield from ((path, (MASK_OF_NO_RECORD, False)) for path in by_stem.values())


def _warnings(kit: Listing, lists: Lists) -> Iterator[str]:
    """Yield which lists decide, if there are lists of several tasks."""
    others = [
        folder.path
        for folder in kit.below(SETS)
        if folder.path != lists.folder and folder.others_with(".txt")
    ]
    if lists.folder and others:
        yield (
            f"{kit.name}: the lists in {lists.folder} decide the splits; "
            f"those in {', '.join(map(os.path.basename, others))} are left out"
        )
