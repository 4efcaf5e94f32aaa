"""The rule that pairs images and masks by their names, used to recognise a dataset and to read it.

The mask of `images/a/0.jpg` is `masks/a/0.png`, or has a name with an ending: `masks/a/0_mask.gif`. Beside
the image, it is `a/0_mask.png` or similar, or `a/0.png` beside `a/0.jpg`.
"""

from __future__ import annotations

import os
import random
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fastload.sources.listing import Folder, Listing
from fastload.sources.splits import SPLITS

_FURTHER_SUFFIXES = (".gif",)  # of masks, besides those of images
_PHOTO_SUFFIXES = (".jpg", ".jpeg")

_ENDING = re.compile(
    r"(.+?)[_ .-](masks?|seg(mentation)?s?|labels?|label_?ids|annot(ation)?s?|gt|ground[_-]?truth|matte"
    r"|trimap)([_ .-]?[0-9]+)?",
    re.IGNORECASE,
)
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
    files = _mask_files(listing, masks)
    if images == masks:
        return _paired_beside(files, images)
    # Masks in a folder inside that of the images leave it the images that lie directly in it.
    is_inside = masks.startswith(f"{images}/") or not images
    folder = listing[images]
    names = list(map(folder.join, folder.images)) if is_inside else listing.images_below(images)
    return _united(_stems(names, images), _stems(files, masks), is_beside=False)


def has_masks_beside(folder: Folder) -> bool:
    """Return True if at least half of the images directly in a folder have a mask beside them.

    Without masks in a sample of the names, the others are not looked at.
    """
    if not _sample_has_masks(folder):
        return False
    files = [folder.join(name) for name in (*folder.images, *folder.others_with(*_FURTHER_SUFFIXES))]
    found = _paired_beside(files, folder.path).mask_of
    return 0 < len(found) <= 2 * sum(map(bool, found.values()))


def _paired_beside(files: Sequence[str], place: str) -> Pairs:
    every = _stems(files, place)
    photos = {stem for path, stem in every.items() if path.lower().endswith(_PHOTO_SUFFIXES)}
    stems = {*every.values()}
    masks = {}
    for path, stem in every.items():
        ending = _ENDING.fullmatch(stem)
        is_twin = stem in photos and path.lower().endswith(".png")
        if is_twin or (ending is not None and ending[1] in stems):
            masks[path] = stem
    images = {
        path: stem
        for path, stem in every.items()
        if path not in masks and not path.lower().endswith(_FURTHER_SUFFIXES)
    }
    return _united(images, masks, is_beside=True)


def _united(images: Mapping[str, str], masks: Mapping[str, str], *, is_beside: bool) -> Pairs:
    stems: dict[str, str] = {}
    by_stem: dict[str, str] = {}
    twins: dict[str, tuple[str, str]] = {}
    for path, stem in images.items():
        if stems.setdefault(stem, path) != path:
            twins[stem] = stems[stem], path
    unpaired, conflict = [], None
    for path, stem in masks.items():
        image = _image_stem(stem, stems, is_beside)
        if image is None:
            unpaired.append(path)
        elif by_stem.setdefault(image, path) != path:
            conflict = conflict or (by_stem[image], path)
    conflict = conflict or next((twins[stem] for stem in twins if stem in by_stem), None)
    return Pairs({path: by_stem.get(stem, "") for path, stem in images.items()}, unpaired, conflict)


def _image_stem(stem: str, images: Mapping[str, str], is_beside: bool) -> str | None:
    """Return the stem of the image to which a mask belongs, or None."""
    ending = _ENDING.fullmatch(stem)
    last = None if is_beside else _LAST_WORD.fullmatch(stem)
    choices = [stem, *(match[1] for match in (ending, last) if match)]
    return next((choice for choice in choices if choice in images), None)


def _stems(paths: Iterable[str], place: str) -> dict[str, str]:
    """Return paths with what images and masks share: the path below the place without its suffix.

    A split's folder has the same name for both, of the names that stand for one split.
    """
    skipped = len(place) + 1 if place else 0
    stems = {}
    for path in paths:
        first, slash, rest = path[skipped:].partition("/")
        inner = f"{SPLITS.get(first.lower(), first)}/{rest}" if slash else first
        stems[path] = os.path.splitext(inner)[0]
    return stems


def _mask_files(listing: Listing, place: str) -> list[str]:
    return [
        folder.join(name)
        for folder in listing.below(place)
        for name in (*folder.images, *folder.others_with(*_FURTHER_SUFFIXES))
    ]


def _sample_has_masks(folder: Folder) -> bool:
    names = folder.images
    for some in (names, folder.others):
        for at in random.Random(0).sample(range(len(some)), min(len(some), _SAMPLED)):
            stem, suffix = os.path.splitext(some[at])
            ending = _ENDING.fullmatch(stem)
            sought = ending[1] if ending else stem if suffix.lower() == ".png" else None
            if sought is not None:
                first = bisect_left(names, f"{sought}.")
                if any(
                    name.startswith(f"{sought}.") and name != some[at] for name in names[first : first + 1]
                ):
                    return True
    return False
