"""Pascal VOC datasets: JPEGImages with Annotations, masks and lists of splits; or images and XML files alone.

Without lists, all images are packed. The classes are numbered in the order of their names, as in VOC itself.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.files import FileList, list_files
from fastload.sources.listing import Listing
from fastload.sources.pairing import one_of_each
from fastload.sources.protocol import LeftOutReason, Reading
from fastload.sources.splits import by_split, require_plain_names, split_names
from fastload.sources.voc.lists import Lists, read_lists
from fastload.sources.voc.places import BOXES, IMAGES, MASKS, OBJECT_MASKS, SETS, XmlFolders, masks_in
from fastload.sources.voc.rows import VocReader, class_names

IN_NO_SPLIT = "in no split"
NO_IMAGE_OF_XML = "annotations without an image of their name"
MASK_OF_NO_RECORD = "a mask of an image that is not packed"
_ABOUT_VOC: LeftOutReason = ("part of VOC's development kit", True)

_OF_VOC = re.compile(r"20\d\d_\d{6}")  # VOC 2012 has images of each task, and no list names them all
_DEVKIT = re.compile(r"(.*/)?(VOCcode/.+|[^/]+\.m|devkit_doc\.\w+)")


@dataclass(frozen=True, slots=True)
class _Split:
    """The files of a split: each image, its annotation, and its mask, "" for none."""

    images: Sequence[str]
    xml: Sequence[str] = ()  # empty without annotations of boxes
    masks: Sequence[str] = ()  # empty without masks
    details: Mapping[str, str] = field(default_factory=dict)


def read_kit(listing: Listing, root: str) -> Reading:
    """List the splits of a folder with JPEGImages, by its lists."""
    kit = listing.view(root)
    place = XmlFolders(IMAGES, BOXES)
    images = place.images_in(kit)
    stems = {path: stem for stem, paths in images.items() for path in paths}
    xml = one_of_each(place.xml_in(kit), "annotation of its image", kit.shown)
    masks = masks_in(kit, MASKS)
    lists = read_lists(kit, images, has_boxes=bool(xml))
    splits = lists.splits or {"": [*one_of_each(images, "image of its name", kit.shown).values()]}
    found = {}
    for split, listed in splits.items():
        own = [stems[path] for path in listed]
        found[split] = _Split(
            listed,
            [xml.get(stem, f"{BOXES}/{stem}.xml") for stem in own] if xml else (),
            [masks.get(stem, "") for stem in own] if masks else (),
            {"images": IMAGES, "boxes": BOXES, "lists": lists.folder, "list": lists.names.get(split, "")},
        )
    packed = {stems[path] for listed in splits.values() for path in listed}
    # Masks of objects are no field of records: they are kept with the annotation files.
    object_masks = masks_in(kit, OBJECT_MASKS)
    kept = [path for stem, path in object_masks.items() if stem in packed]
    reasons = {**lists.reasons, **dict(_reasons(stems, xml, lists, packed))}
    reasons |= dict.fromkeys((*masks.values(), *object_masks.values()), (MASK_OF_NO_RECORD, False))
    outside = (folder.join(name) for folder in listing.folders.values() for name in folder.others)
    every = {path: _ABOUT_VOC for path in outside if _DEVKIT.fullmatch(path)}
    every |= {listing[root].join(path): reason for path, reason in reasons.items()}
    read = map(listing[root].join, (*lists.read, *kept))
    return Reading(_sources(listing.name, kit, found, [*_warnings(kit, lists)]), [*read], every)


def read_folders(listing: Listing, names: Sequence[str], found: Mapping[str, XmlFolders]) -> Reading:
    """List the images in the folders of each split, "" without splits, of which `names` are all."""
    places = _inner_splits(listing, found[""]) if "" in found else dict(found)
    splits = {name: _split_of(listing, each) for name, each in places.items()}
    warnings = [
        f"{listing.name}: {name!r} has no annotations, and is left out"
        for name in names
        if name not in places and "" not in places
    ]
    unpaired = (path for place in places.values() for xml in place.xml_in(listing).values() for path in xml)
    reasons: dict[str, LeftOutReason] = dict.fromkeys(unpaired, (NO_IMAGE_OF_XML, False))
    return Reading(_sources(listing.name, listing, by_split(listing.name, splits), warnings), (), reasons)


def _inner_splits(listing: Listing, place: XmlFolders) -> dict[str, XmlFolders]:
    """Return the folders of the splits within those of images and annotations, or these folders."""
    top, boxes = listing[place.images], listing[place.boxes]
    names = [] if top.images else split_names(top.visible)
    if names:
        return {name: XmlFolders(top.join(name), boxes.join(name)) for name in names}
    if not top.images:
        bearing = [name for name in top.visible if any(each.images for each in listing.below(top.join(name)))]
        require_plain_names(listing.shown(place.images), bearing)
    return {"": place}


def _split_of(listing: Listing, place: XmlFolders) -> _Split:
    images = one_of_each(place.images_in(listing), "image of its name", listing.shown)
    xml = one_of_each(place.xml_in(listing), "annotation of its image", listing.shown)
    expected = listing[place.boxes].join("{}.xml").format
    details = {"images": place.images, "boxes": place.boxes}
    return _Split([*images.values()], [xml.get(stem, expected(stem)) for stem in images], (), details)


def _sources(
    name: str, listing: Listing, splits: Mapping[str, _Split], warnings: Sequence[str]
) -> dict[str, AnnotatedFiles]:
    root = listing.root
    texts = {split: list_files(root, found.xml) for split, found in splits.items()}
    classes = sorted({each for files in texts.values() for each in _class_names(files)})
    labels = {each: label for label, each in enumerate(classes)}
    sources: dict[str, AnnotatedFiles] = {}
    for split, found in splits.items():
        reader = VocReader(labels) if found.xml else None
        sources[split] = AnnotatedFiles(
            kind="voc",
            name=name,
            classes=tuple(classes),
            fields=(*(reader.fields() if reader else ()), *[Field.mask()] * bool(found.masks)),
            warnings=() if sources else tuple(warnings),
            details=found.details,
            files=list_files(root, found.images),
            values={"mask": list_files(root, found.masks)} if found.masks else {},
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


def _reasons(
    stems: Mapping[str, str], xml: Mapping[str, str], lists: Lists, packed: Collection[str]
) -> Iterator[tuple[str, LeftOutReason]]:
    """Yield the reasons for leaving out images in no split, and their annotations."""
    is_clutter: dict[str, bool] = {}
    for path, stem in stems.items():
        is_clutter[stem] = stem in lists.elsewhere or _OF_VOC.fullmatch(stem) is not None
        yield path, (f"an image {IN_NO_SPLIT}", is_clutter[stem])
    for stem, path in xml.items():
        if stem not in is_clutter:
            yield path, (NO_IMAGE_OF_XML, False)
        elif stem not in packed:
            yield path, (f"annotations of an image {IN_NO_SPLIT}", is_clutter[stem])


def _warnings(kit: Listing, lists: Lists) -> Iterator[str]:
    """Yield which lists decide, if there are lists of several tasks."""
    others = [
        folder.path
        for folder in kit.below(SETS)
        if folder.path != lists.folder and folder.others_with(".txt")
    ]
    if lists.derived:
        yield f"{kit.name}: {lists.derived}"
    if lists.folder and others:
        yield (
            f"{kit.name}: the lists in {lists.folder} decide the splits; "
            f"those in {', '.join(map(os.path.basename, others))} are left out"
        )
