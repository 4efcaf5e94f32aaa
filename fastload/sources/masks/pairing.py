"""The rule that pairs images and masks by their names, used to recognise a dataset and to read it.

The mask of `images/a/0.jpg` is `masks/a/0.png`, or has a name with an ending: `masks/a/0_mask.gif`. Beside
the image, it is `a/0_mask.png` or similar, or `a/0.png` beside `a/0.jpg`. An ending that all images have,
such as that of `0_sat.jpg`, is no part of the names that are compared.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fastload.sources.listing import Folder, Listing, stem_of
from fastload.sources.splits import SPLITS
from fastload.sources.words import MASK_ENDING, MASK_SUFFIXES, FilesByStem, begun_with, by_stem, shared_ends

_PHOTO_SUFFIXES = (".jpg", ".jpeg")

# In a folder of masks, any last word is an ending, such as `_L` or `_lesion`; numbers are not.
_LAST_WORD = re.compile(r"(.*[^_ .-])[_ .-]+[a-z][a-z0-9]*", re.IGNORECASE)

_SAMPLED = 64


class PairedFolders(NamedTuple):
    """The folder of images and the folder of their masks, by their paths in a listing; the same if beside."""

    images: str
    masks: str


class Pairs(NamedTuple):
    """The mask of each image, "" for none; masks without an image; and two files that claim one partner."""

    mask_of: dict[str, str]
    unpaired: list[str]
    conflict: tuple[str, str] | None

    @property
    def are_half(self) -> bool:
        """True if at least half of the masks are those of images."""
        found = len({*self.mask_of.values()} - {""})
        return found > 0 and found >= len(self.unpaired)


def paired(listing: Listing, place: PairedFolders) -> Pairs:
    """Pair the images and the masks of a place."""
    images, masks = place
    files = listing.images_below(masks, *MASK_SUFFIXES)
    if images == masks:
        return _paired_beside(by_stem(files, images))
    # Masks in a folder inside that of the images leave it the images that lie directly in it.
    is_inside = masks.startswith(f"{images}/") or not images
    folder = listing[images]
    names = list(map(folder.join, folder.images)) if is_inside else listing.images_below(images)
    return _united(_by_split(names, images), _by_split(files, masks), is_beside=False)


def has_masks_beside(folder: Folder) -> bool:
    """Return True if at least half of the images directly in a folder have a mask beside them.

    Without masks in a sample of the names, the others are not looked at.
    """
    drawn = random.Random(0)  # an even step could miss each second file
    names = (
        some[at]
        for some in (folder.images, folder.others)
        for at in drawn.sample(range(len(some)), min(len(some), _SAMPLED))
    )
    if not any(_may_be_mask(name, folder.images) for name in names):
        return False
    found = _paired_beside(by_stem([*folder.images, *folder.others_with(*MASK_SUFFIXES)])).mask_of
    return 0 < len(found) <= 2 * sum(map(bool, found.values()))


def _paired_beside(files: FilesByStem) -> Pairs:
    bases = {stem: match[1] for stem in files if (match := MASK_ENDING.fullmatch(stem))}
    _, ending = shared_ends([stem for stem in files if stem not in bases])
    images: FilesByStem = {}
    masks: FilesByStem = {}
    for stem, paths in files.items():
        is_mask = stem in bases and (bases[stem] in files or bases[stem] + ending in files)
        has_photo = any(path.lower().endswith(_PHOTO_SUFFIXES) for path in paths)
        for path in paths:
            if is_mask or (has_photo and path.lower().endswith(".png")):
                masks.setdefault(stem, []).append(path)
            elif not path.lower().endswith(MASK_SUFFIXES):
                images.setdefault(stem, []).append(path)
    return _united(images, masks, is_beside=True)


def _united(images: FilesByStem, masks: FilesByStem, *, is_beside: bool) -> Pairs:
    _, ending = shared_ends(images)
    of_image: dict[str, list[str]] = {}
    unpaired: list[str] = []
    for stem, paths in masks.items():
        image = _image_stem(stem, images, ending, is_beside=is_beside)
        if image is None:
            unpaired += paths
        else:
            of_image.setdefault(image, []).extend(paths)
    twins = [(paths[0], paths[1]) for paths in of_image.values() if len(paths) > 1]
    twins += [(paths[0], paths[1]) for stem, paths in images.items() if stem in of_image and len(paths) > 1]
    mask_of = {
        path: of_image[stem][0] if stem in of_image else ""
        for stem, paths in images.items()
        for path in paths
    }
    return Pairs(mask_of, unpaired, next(iter(twins), None))


def _image_stem(stem: str, images: Mapping[str, object], ending: str, *, is_beside: bool) -> str | None:
    """Return the stem of the image to which a mask belongs, or None."""
    known = MASK_ENDING.fullmatch(stem)
    last = None if is_beside else _LAST_WORD.fullmatch(stem)
    bases = [stem, *(match[1] for match in (known, last) if match)]
    choices = [*bases, *(base + ending for base in bases)] if ending else bases
    return next((choice for choice in choices if choice in images), None)


def _by_split(paths: Iterable[str], place: str) -> FilesByStem:
    """Return files by their stems, in which a split's folder has one of the names that stand for it."""
    found: FilesByStem = {}
    for stem, files in by_stem(paths, place).items():
        first, slash, rest = stem.partition("/")
        found.setdefault(f"{SPLITS.get(first.lower(), first)}/{rest}" if slash else stem, []).extend(files)
    return found


def _may_be_mask(name: str, images: Sequence[str]) -> bool:
    """Return True if one of some sorted images begins with the name of which this one could be the mask."""
    ending = MASK_ENDING.fullmatch(stem_of(name))
    if ending is None and not name.lower().endswith(".png"):
        return False
    sought = ending[1] if ending else f"{stem_of(name)}."
    return any(image != name for image in begun_with(images, sought))
