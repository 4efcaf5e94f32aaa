"""Recognition of images and masks by the names of their folders and files; no image is opened.

Folders belong together if their names differ in the word for images or masks alone: `images` and `masks`,
`train` and `train_masks`, `x_val` and `y_val`. At least half of the masks must have the name of an image.
"""

from __future__ import annotations

import re
from functools import partial

from fastload.sources.listing import Folder, Listing, stem_of
from fastload.sources.masks.pairing import PairedFolders, has_masks_beside, paired
from fastload.sources.masks.source import read_masks
from fastload.sources.protocol import Claim
from fastload.sources.splits import SPLITS, split_names
from fastload.sources.words import IMAGE_WORDS, MASK_ENDING, MASK_WORDS, words_of

_MOST_FOLDERS = 16
_SIGNS = ("mask", "label", "ann", "gt", "truth", "seg", "trimap", "y_", "_y", "\ny\n")


def recognise(listing: Listing) -> Claim | None:
    """Claim images with a mask each: in parallel folders, also around or inside splits, or side by side."""
    places = _places(listing, listing.top)
    if not places:
        for name in split_names(listing.top.visible):
            if inner := _places(listing, listing[name]) or _beside(listing[name]):
                places[name] = [place for each in inner.values() for place in each]
    places = places or _beside(listing.top)
    if not places:
        return None
    images, masks = next(iter(places.values()))[0]
    evidence = f"masks beside the images in {listing.shown(images)}"
    if images != masks:
        shown = f"{images}/" if images else "its images"
        evidence = f"{masks}/ with the names of {shown}"
    title = "a segmentation dataset of images and masks"
    return Claim("masks", title, evidence, partial(read_masks, listing, places))


def _places(listing: Listing, top: Folder) -> dict[str, list[PairedFolders]]:
    """Return the places of images and masks in folders of a folder, by what their names have in common."""
    visible = top.visible
    joined = "\n".join(("", *visible, "")).lower()
    if not any(sign in joined for sign in _SIGNS):
        return {}
    images: dict[str, list[str]] = {"": [top.path]} if top.images else {}
    masks: list[tuple[str, str]] = []
    for name in visible:
        rest, is_mask = _parted(name)
        if is_mask:
            masks.append((rest, top.join(name)))
        else:
            images.setdefault(rest, []).append(top.join(name))
    found: dict[str, list[PairedFolders]] = {}
    for rest, folder in masks:
        for place in images.get(rest, ()):
            if fitting := _fitting(listing, place, folder):
                found.setdefault(rest, []).extend(fitting)
    if not found and len(visible) <= _MOST_FOLDERS:
        others = [place for places in images.values() for place in places]
        fitting = [
            each for _, folder in masks for other in others for each in _by_endings(listing, other, folder)
        ]
        return {"": fitting} if len(fitting) == 1 else {}
    return found


def _by_endings(listing: Listing, images: str, masks: str) -> list[PairedFolders]:
    """Return the places whose files, too, are named as masks: the folders may have words of their own."""
    names = listing.images_below(masks)
    words = words_of(images.rpartition("/")[2])
    if not names or IMAGE_WORDS.isdisjoint(words) or not all(map(MASK_ENDING.fullmatch, map(stem_of, names))):
        return []
    return _fitting(listing, images, masks)


def _parted(name: str) -> tuple[str, bool]:
    """Return a folder's name without the words for images and masks, and True if it says masks.

    >>> _parted("train_masks"), _parted("trainannot"), _parted("Images")
    (('train', True), ('train', True), ('', False))
    """
    joined = re.sub("ground[_ .-]?truth", "groundtruth", name, flags=re.IGNORECASE)
    words = words_of(joined) or [name]
    glued = words[-1].removesuffix("annot")
    if glued and glued != words[-1]:
        words[-1:] = [glued, "annot"]
    rest = [word for word in words if word not in IMAGE_WORDS and word not in MASK_WORDS]
    is_letter = words != rest and {*words} - {*rest} <= {"x", "y"}
    if is_letter and (not rest or rest[0] not in SPLITS):  # classes may be called x and y
        return name.lower(), False
    return "_".join(rest), not MASK_WORDS.isdisjoint(words)


def _fitting(listing: Listing, images: str, masks: str) -> list[PairedFolders]:
    """Return the places in a folder of masks, or in the folders in it, that have the names of the images."""
    folders = [masks, *map(listing[masks].join, listing[masks].visible)]
    for some in (folders[:1], folders[1:]):
        places = [PairedFolders(images, folder) for folder in some]
        if fitting := [place for place in places if paired(listing, place).are_half]:
            return fitting
    return []


def _beside(folder: Folder) -> dict[str, list[PairedFolders]]:
    return {"": [PairedFolders(folder.path, folder.path)]} if has_masks_beside(folder) else {}
