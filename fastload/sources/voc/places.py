"""The folders and files of Pascal VOC datasets, and which of them belong together: by their stems."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from fastload.shards.schema import Field
from fastload.sources.listing import Folder, Listing
from fastload.sources.pairing import FilesByStem as FilesByStem

IMAGES, BOXES, SETS = "JPEGImages", "Annotations", "ImageSets"
MASKS = {"SegmentationClass": Field.mask()} | {
    "SegmentationObject": Field("instances", "image", encoding="keep", internal=True)
}


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of images and of their XML files, and True if files in folders below belong to them."""

    images: str
    boxes: str
    is_deep: bool


def files_by_stem(
    listing: Listing, path: str, names_of: Callable[[Folder], list[str]], *, is_deep: bool
) -> FilesByStem:
    """Return the files of a kind in a folder, and with `is_deep` in those below it."""
    skipped = len(path) + 1 if path else 0
    found: FilesByStem = {}
    for folder in listing.below(path) if is_deep else [listing[path]]:
        for name in map(folder.join, names_of(folder)):
            found.setdefault(os.path.splitext(name[skipped:])[0], []).append(name)
    return found


def image_names(folder: Folder) -> list[str]:
    """Return the names of the images in a folder."""
    return folder.images


def xml_names(folder: Folder) -> list[str]:
    """Return the names of the XML files in a folder."""
    return folder.others_with(".xml")


def mask_names(folder: Folder) -> list[str]:
    """Return the names of the masks in a folder: images, GIF among them."""
    return sorted([*folder.images, *folder.others_with(".gif")])
