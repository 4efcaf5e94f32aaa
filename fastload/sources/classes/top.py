"""A folder that may hold class folders, and the annotations beside its images that are not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from fastload.sources.left_out import clutter_reason
from fastload.sources.listing import Folder, Listing, stem_of
from fastload.sources.malformed import pack_command
from fastload.sources.protocol import Doubt, evenly_spaced
from fastload.sources.sniffing import (
    ANNOTATION_SUFFIXES,
    TABLE_OF_BOXES,
    YOLO,
    AnnotationKind,
    annotation_kind,
)
from fastload.sources.words import MASK_WORDS, is_image_part, is_part, words_of

MOST_FOLDERS = 16
"""More folders beside each other are classes."""

SAMPLED = 16

TABLE_STEP = "write a table (.csv) with a row for each record and a column for each of its images"

_OF_VIDEO = re.compile(r"^(ground_?truth|gt)(_|\b)", re.IGNORECASE)
_ROW_OF_BOX = re.compile(rb"(-?[0-9.]+|nan)([\s,]+(-?[0-9.]+|nan)){3}", re.IGNORECASE)

_TABLES_AND_ARRAYS = (".csv", ".tsv", ".npy", ".npz", ".mat")


class Top(NamedTuple):
    """A folder of class folders, and the names of those that hold images, directly or below."""

    listing: Listing
    folder: Folder
    bearing: list[str]

    @classmethod
    def of(cls, listing: Listing, folder: Folder) -> Top:
        """Look for the folders with images in a folder."""
        names = [name for name in folder.folders if name[0] != "."]
        bearing = [name for name in names if any(each.images for each in listing.below(folder.join(name)))]
        return cls(listing, folder, bearing)

    def has_one_folder(self) -> bool:
        """Return True if all images lie in one folder, which shows no classes."""
        below = self.listing.below(self.folder.path) if len(self.bearing) == 1 else ()
        return sum(bool(each.images) for each in below) == 1

    def inner(self, name: str) -> Folder:
        """Return a folder in this one."""
        return self.listing[self.folder.join(name)]

    def shown(self, name: str) -> str:
        """Return an entry's path, for messages."""
        return self.listing.shown(self.folder.join(name))

    def unwrapped(self, name: str) -> str:
        """Return the path of a folder in this one, or of the only folder in it, if that holds all others."""
        path = self.folder.join(name)
        while len(inner := (folder := self.listing[path]).visible) == 1:
            is_wrapper = self.listing[folder.join(inner[0])].visible or path.endswith(inner[0])
            if folder.images or not is_wrapper or not all(map(clutter_reason, folder.others)):
                break
            path = folder.join(inner[0])
        return path

    def command(self, name: str) -> str:
        """Return the command that packs a folder in this one."""
        return pack_command(self.listing.shown(self.unwrapped(name)))

    def beside(self) -> Iterator[tuple[str, list[Folder]]]:
        """Yield the visible folders without images, and those below each, beside images or class folders."""
        bearing, visible = {*self.bearing}, self.folder.visible
        if len(bearing) < len(visible) and (bearing or self.folder.images):
            for name in visible:
                if name not in bearing:
                    yield name, self.listing.below(self.folder.join(name))


def unread_annotations(top: Top) -> Iterator[Doubt]:
    """Yield a doubt for annotations of each image, for boxes of a video, and for those of all images."""
    visible = top.folder.visible
    for folder in (top.folder, *(top.inner(visible[at]) for at in evenly_spaced(len(visible), SAMPLED))):
        yield from _of_each(top, folder)
    yield from _of_all(top)


def _of_each(top: Top, folder: Folder) -> Iterator[Doubt]:
    """Yield a doubt for boxes of a video, and for a file for each image, beside it or in a folder inside."""
    texts = map(folder.join, filter(_OF_VIDEO.search, folder.others_with(".txt")))
    unknown = [path for path in texts if _ROW_OF_BOX.match(top.listing.head(path))]
    inside = folder.visible if folder.images else ()
    named_so = [name for name in inside if not MASK_WORDS.isdisjoint(words_of(name))]
    for place in (folder, *(top.listing[folder.join(name)] for name in named_so)):
        found = place.others_with(*ANNOTATION_SUFFIXES)
        stems = {*map(stem_of, folder.images)} if found else set()
        names = [name for name in found if stem_of(name) in stems]
        if not names or 2 * len(names) < len(stems):
            continue
        if kind := _kind_in(top, map(place.join, names)):
            shown = top.listing.shown(place.join(names[0]))
            reading = f"images with {kind.what} beside them, such as {shown} ({kind.title})"
            yield Doubt(reading, _step(top, kind.step))
        elif place is not folder:
            unknown.append(place.path)
    for path in unknown if folder is not top.folder else ():
        reading = f"images with boxes in {top.listing.shown(path)}, in no layout that is read"
        yield Doubt(reading, _step(top, TABLE_OF_BOXES))


def _of_all(top: Top) -> Iterator[Doubt]:
    """Yield a doubt for files with the annotations of all images, and for folders of annotations."""
    # A text of numbers alone could be anything.
    suffixes = [suffix for suffix in ANNOTATION_SUFFIXES if suffix != ".txt"]
    alone = top.folder.others_with(*suffixes) if top.bearing or top.folder.images else []
    stems = {*map(stem_of, top.folder.images)} if alone else set()
    places = [(name, [top.folder.join(name)]) for name in alone if stem_of(name) not in stems]
    for name, below in top.beside():
        inside = [each.join(file) for each in below for file in each.others_with(*ANNOTATION_SUFFIXES)]
        places.append((name, inside))
    for name, paths in islice(places, MOST_FOLDERS):
        kind = _kind_in(top, paths)
        if kind is YOLO:
            yield Doubt(f"a detection dataset of YOLO with its labels in {top.shown(name)}", YOLO.step)
        elif kind is not None:
            reading = (
                f"images with {kind.what} in {top.shown(name)} ({kind.title}), in no layout that is read"
            )
            yield Doubt(reading, _step(top, kind.step))


def _step(top: Top, first: str) -> str:
    images = top.bearing if len(top.bearing) == 1 else [*filter(is_image_part, top.bearing)]
    alone = [f"; {top.command(name)} packs the images without them" for name in images[:1]]
    return f"{first}, and pack that{''.join(alone)}"


def unread_folders(top: Top) -> list[str]:
    """Return the folders of texts or arrays beside folders of images that are named after annotations."""
    suffixes = (*ANNOTATION_SUFFIXES, *_TABLES_AND_ARRAYS)
    beside = top.beside() if not top.folder.images else ()
    return [
        name for name, below in beside if is_part(name) and any(each.others_with(*suffixes) for each in below)
    ]


def _kind_in(top: Top, paths: Iterable[str]) -> AnnotationKind | None:
    kinds = (annotation_kind(path, top.listing.head(path)) for path in islice(paths, SAMPLED))
    return next(filter(None, kinds), None)
