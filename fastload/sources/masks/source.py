"""Images with one mask each: in a folder parallel to that of the images, or beside the images.

They are recognised by the names of folders and files; no image is opened. Folders belong together if their
names differ in the word for images or masks alone: `images` and `masks`, `train` and `train_masks`, `x_val`
and `y_val`. At least half of the masks must have the name of an image. Masks are stored byte for byte.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from fastload.shards.schema import Field
from fastload.sources.file_source import AnnotatedFiles
from fastload.sources.files import NameTable, list_files, safe_key
from fastload.sources.listing import Folder, Listing, stem_of
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.masks.pairing import PairedFolders, Pairs, has_masks_beside, paired
from fastload.sources.protocol import Claim, LeftOutReason, Reading
from fastload.sources.splits import SPLITS, by_split, require_plain_splits, split_names, split_words
from fastload.sources.words import IMAGE_WORDS, MASK_ENDING, MASK_WORDS, words_of

NO_IMAGE_OF_MASK = "a mask without an image of its name"
NO_MASKS_OF_SPLIT = "of a split without masks"

_TABLE_STEP = "move all but one elsewhere, or pack a table with a column for each of them"

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
    return Claim(evidence, partial(_read, listing, places))


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
            if rest and _may_be_classes(listing, place, folder):
                continue
            if fitting := _fitting(listing, place, folder):
                found.setdefault(rest, []).extend(fitting)
    if not found and len(visible) <= _MOST_FOLDERS:
        others = [place for places in images.values() for place in places]
        fitting = [
            each for _, folder in masks for other in others for each in _by_endings(listing, other, folder)
        ]
        return {"": fitting} if len(fitting) == 1 else {}
    return found


def _may_be_classes(listing: Listing, images: str, masks: str) -> bool:
    """Return True for folders such as `face` and `face_mask`, if their files do not say masks either."""
    name = images.rpartition("/")[2].lower()
    if not IMAGE_WORDS.isdisjoint(words_of(name)) or split_words(name):
        return False
    suffixes, of_masks = (
        {os.path.splitext(path)[1].lower() for path in listing.images_below(folder)}
        for folder in (images, masks)
    )
    say_masks = all(MASK_ENDING.fullmatch(stem_of(path)) for path in listing.images_below(masks))
    return not say_masks and not suffixes.isdisjoint(of_masks)


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


def _read(listing: Listing, places: Mapping[str, Sequence[PairedFolders]]) -> Reading:
    """List images and masks by split.

    `places` has those that fit, by the part that their folders' names have in common. SourceError is raised
    if they can be read in two ways.
    """
    _require_one_reading(listing, places)
    single = {name: place for name, [place] in places.items()}
    named = single if {*map(str.lower, single)} <= {*SPLITS} else _inner_splits(listing, *single.values())
    splits = by_split(listing.name, named)
    pairs = {split: paired(listing, place) for split, place in splits.items()}
    reasons: dict[str, LeftOutReason] = {}
    for found in pairs.values():
        reasons |= dict.fromkeys(found.unpaired, (NO_IMAGE_OF_MASK, False))
    warnings: list[str] = []
    for folder in _unmasked_splits(listing, pairs.values()):
        reasons |= dict.fromkeys(listing.images_below(folder), (NO_MASKS_OF_SPLIT, False))
        warnings.append(f"{listing.name}: {folder!r} has no masks, and is left out")
    for images, masks in splits.values():
        both = {*listing[images].visible} & {*listing[masks].visible} if images != masks else set()
        if len(both) > 1:
            step = "if they are classes, pack a table with the columns path, mask and label"
            names = in_quotes(sorted(both))
            warnings.append(f"{listing.shown(images)}: the folders {names} give no labels: {step}")
    sources = {split: _source(listing, found) for split, found in pairs.items()}
    return Reading(sources, reasons=reasons, warnings=warnings)


def _require_one_reading(listing: Listing, places: Mapping[str, Sequence[PairedFolders]]) -> None:
    """Raise SourceError if images have several folders of masks, or the other way round."""
    pairs = [place for some in places.values() for place in some]
    if len(places) > 1 and not {*map(str.lower, places)} <= {*SPLITS}:
        got = " and ".join(f"{images!r} with {masks!r}" for images, masks in pairs[:2])
        step = "pack each of them after moving the others elsewhere"
        raise malformed(listing.name, "have one folder of images with masks, or splits of it", got, step)
    for (images, masks), *others in places.values():
        shared = [other.masks if other.images == images else other.images for other in others]
        shared += _of_the_same_names(listing, PairedFolders(images, masks), pairs)
        if shared:
            must = f"have one folder of masks for the images in {images or listing.name!r}"
            raise malformed(listing.name, must, f"{masks!r} or {shared[0]!r}, of the same names", _TABLE_STEP)


def _of_the_same_names(listing: Listing, place: PairedFolders, pairs: Sequence[PairedFolders]) -> list[str]:
    """Return the folders beside those of images and masks that have the same names, too."""
    if place.images == place.masks:
        return []
    parent = listing[place.images.rpartition("/")[0]]
    known = {path for each in pairs for path in each}
    others = [parent.join(name) for name in parent.visible if name.lower() not in SPLITS]
    return [
        other
        for other in others
        if not any(path == other or path.startswith(f"{other}/") for path in known)
        and paired(listing, PairedFolders(place.images, other)).are_half
    ]


def _inner_splits(listing: Listing, place: PairedFolders) -> dict[str, PairedFolders]:
    """Return the places of the splits in the folders of images and masks; the place itself without any."""
    images, masks = map(listing.__getitem__, place)
    if place.images == place.masks or place.masks.startswith(f"{place.images}/") or not place.images:
        return {"": place}
    of_images, of_masks = (
        by_split(
            listing.shown(folder.path), {name: folder.join(name) for name in split_names(folder.visible)}
        )
        for folder in (images, masks)
    )
    if not of_images:
        require_plain_splits(listing, images)
    found = {
        split: PairedFolders(of_images[split], of_masks[split]) for split in of_images if split in of_masks
    }
    return found or {"": place}


def _unmasked_splits(listing: Listing, pairs: Iterable[Pairs]) -> Iterator[str]:
    """Yield the folders named after a split that have images, none of which is in a record."""
    taken = {path for found in pairs for each in found.mask_of.items() for path in each}
    beside = {"", *(path.rpartition("/")[0].rpartition("/")[0] for path in taken)}
    for parent in sorted(beside):
        for folder in map(listing[parent].join, split_names(listing[parent].visible)):
            images = listing.images_below(folder)
            if images and taken.isdisjoint(images):
                yield folder


def _source(listing: Listing, pairs: Pairs) -> AnnotatedFiles:
    if pairs.conflict is not None:
        first, second = map(listing.shown, pairs.conflict)
        kind, of = ("mask", "image") if pairs.conflict[0] in pairs.mask_of.values() else ("image", "mask")
        step = "unite or remove one of them, or pack a table with a column for each"
        raise malformed(second, f"be the only {kind} of its {of}", f"{first} too", step)
    masks = [*pairs.mask_of.values()]
    return AnnotatedFiles(
        kind="masks",
        name=listing.name,
        classes=(),
        fields=(Field.mask(), Field("mask_path", "text", internal=True)),
        files=list_files(listing.root, pairs.mask_of),
        values={"mask": list_files(listing.root, masks), "mask_path": NameTable(map(safe_key, masks))},
        needs_masks=True,
        if_no_mask="; to take the folders for classes, say --layout classes",
    )
