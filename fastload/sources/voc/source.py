"""Pascal VOC datasets: JPEGImages with Annotations, masks and lists of splits; or images and XML files alone.

Without lists, all images are packed. The classes are numbered in the order of their names, as in VOC itself.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.files import FileList, list_files
from fastload.sources.listing import Listing
from fastload.sources.protocol import LeftOutReason, Reading
from fastload.sources.splits import by_split, require_plain_splits, split_names
from fastload.sources.voc.lists import Lists, read_lists, read_lists_beside
from fastload.sources.voc.places import BOXES, IMAGES, MASKS, OBJECT_MASKS, SETS, XmlFolders, masks_in
from fastload.sources.voc.rows import VocReader, class_names

_IN_NO_SPLIT: LeftOutReason = ("of an image in no split", True)
_ABOUT_VOC: LeftOutReason = ("part of VOC's development kit", True)

_OF_VOC = re.compile(r"20\d\d_\d{6}")  # VOC 2012 has images of each task, and no list names them all
_DEVKIT = re.compile(r"(.*/)?(VOCcode/.+|[^/]+\.m|devkit_doc\.\w+)")


@dataclass(frozen=True, slots=True)
class _Split:
    """The files of a split: each image, its annotation, and its mask, "" for none."""

    place: XmlFolders
    images: Sequence[str]
    xml: Sequence[str]  # empty without annotations of boxes
    masks: Sequence[str]  # empty without masks

    @classmethod
    def of(
        cls, place: XmlFolders, images: Mapping[str, str], xml: Mapping[str, str], masks: Mapping[str, str]
    ) -> _Split:
        """Return the split of some images; files of each kind are given by stem."""
        expected = os.path.join(place.boxes, "{}.xml").format
        boxes = [xml.get(stem, expected(stem)) for stem in images] if xml else []
        return cls(
            place, [*images.values()], boxes, [masks.get(stem, "") for stem in images] if masks else []
        )


def read_kit(listing: Listing, root: str) -> Reading:
    """List the splits of a folder with JPEGImages, by its lists."""
    kit = listing.view(root)
    place = XmlFolders(IMAGES, BOXES)
    images = place.images_in(kit)
    stems = {path: stem for stem, paths in images.items() for path in paths}
    xml, masks, object_masks = place.xml_of(kit), masks_in(kit, MASKS), masks_in(kit, OBJECT_MASKS)
    lists = read_lists(kit, images, has_boxes=bool(xml))
    splits = lists.splits or {"": [*place.images_of(kit).values()]}
    by_stem = {split: {stems[path]: path for path in listed} for split, listed in splits.items()}
    found = {split: _Split.of(place, own, xml, masks) for split, own in by_stem.items()}
    # Masks of objects are no field of records: they are kept with the annotation files.
    kept = [object_masks[stem] for own in by_stem.values() for stem in own if stem in object_masks]
    clutter = {stem for stem in images if stem in lists.elsewhere or _OF_VOC.fullmatch(stem)}
    unlisted = [path for stem in clutter for path in (*images[stem], xml.get(stem, ""))]
    reasons = {**lists.reasons, **dict.fromkeys(unlisted, _IN_NO_SPLIT)}
    outside = (folder.join(name) for folder in listing.folders.values() for name in folder.others)
    every = {path: _ABOUT_VOC for path in outside if _DEVKIT.fullmatch(path)}
    every |= {listing[root].join(path): reason for path, reason in reasons.items()}
    read = map(listing[root].join, (*lists.read, *kept))
    return Reading(_sources(listing.name, kit, found), [*read], every, [*_warnings(kit, lists)])


def read_folders(listing: Listing, names: Sequence[str], found: Mapping[str, XmlFolders]) -> Reading:
    """List the images in the folders of each split, "" without splits, of which `names` are all."""
    places = _inner_splits(listing, found[""]) if "" in found else dict(found)
    images = {name: each.images_of(listing) for name, each in places.items()}
    lists = read_lists_beside(listing, found[""].images_in(listing)) if [*places] == [""] else Lists()
    if lists.splits:
        stems = {path: stem for stem, path in images[""].items()}
        images = {split: {stems[path]: path for path in own} for split, own in lists.splits.items()}
        places = dict.fromkeys(images, places[""])
    splits = {
        name: _Split.of(places[name], own, places[name].xml_of(listing), {}) for name, own in images.items()
    }
    warnings = [
        f"{listing.name}: {name!r} has no annotations, and is left out"
        for name in names
        if name not in places and "" not in found
    ]
    sources = _sources(listing.name, listing, by_split(listing.name, splits))
    return Reading(sources, lists.read, warnings=[*warnings, *_warnings(listing, lists)])


def _inner_splits(listing: Listing, place: XmlFolders) -> dict[str, XmlFolders]:
    """Return the folders of the splits within those of images and annotations, or these folders."""
    top, boxes = listing[place.images], listing[place.boxes]
    names = [] if top.images else split_names(top.visible)
    if not names:
        require_plain_splits(listing, top)
    return {name: XmlFolders(top.join(name), boxes.join(name)) for name in names} or {"": place}


def _sources(name: str, listing: Listing, splits: Mapping[str, _Split]) -> dict[str, AnnotatedFiles]:
    root = listing.root
    texts = {split: list_files(root, found.xml) for split, found in splits.items()}
    classes = sorted({each for files in texts.values() for each in _class_names(files)})
    reader = VocReader({each: label for label, each in enumerate(classes)})
    return {
        split: AnnotatedFiles(
            kind="voc",
            name=name,
            classes=tuple(classes),
            fields=(*(reader.fields() if found.xml else ()), *[Field.mask()] * bool(found.masks)),
            details=found.place._asdict(),
            files=list_files(root, found.images),
            values={"mask": list_files(root, found.masks)} if found.masks else {},
            texts=texts[split],
            reader=reader if found.xml else None,
            needs_masks=not found.xml,
        )
        for split, found in splits.items()
    }


def _class_names(files: FileList) -> set[str]:
    names: set[str] = set()
    for index in range(len(files)):
        if files.sizes_bytes[index] > 0:
            with contextlib.suppress(SourceError):  # reading the record reports it
                names |= class_names(files.read(index))
    return names


def _warnings(kit: Listing, lists: Lists) -> Iterator[str]:
    """Yield which lists decide, if there are lists of several tasks."""
    others = [
        folder.path
        for folder in kit.below(SETS)
        if folder.path != lists.folder and folder.others_with(".txt")
    ]
    if lists.note:
        yield f"{kit.name}: {lists.note}"
    if lists.folder and others:
        yield (
            f"{kit.name}: the lists in {lists.folder} decide the splits; "
            f"those in {', '.join(map(os.path.basename, others))} are left out"
        )
