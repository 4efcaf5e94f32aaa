"""Images with one mask each, in a folder parallel to that of the images or beside the images.

Masks are stored byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fastload.shards.schema import Field
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.files import list_files, safe_key
from fastload.sources.listing import Listing
from fastload.sources.malformed import malformed
from fastload.sources.masks.pairing import PairedFolders, Pairs, paired
from fastload.sources.names import NameTable
from fastload.sources.protocol import LeftOutReason, Reading
from fastload.sources.splits import SPLITS, by_split, require_plain_splits, split_names

NO_IMAGE_OF_MASK = "a mask without an image of its name"
NO_MASKS_OF_SPLIT = "of a split without masks"

_TABLE_STEP = "move all but one elsewhere, or pack a table with a column for each of them"


def read_masks(listing: Listing, places: Mapping[str, Sequence[PairedFolders]]) -> Reading:
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
    warnings = []
    for folder in _unmasked_splits(listing, pairs.values()):
        reasons |= dict.fromkeys(listing.images_below(folder), (NO_MASKS_OF_SPLIT, False))
        warnings.append(f"{listing.name}: {folder!r} has no masks, and is left out")
    sources = {split: _source(listing, found) for split, found in pairs.items()}
    next(iter(sources.values())).warnings = tuple(warnings)
    return Reading(sources, reasons=reasons)


def _require_one_reading(listing: Listing, places: Mapping[str, Sequence[PairedFolders]]) -> None:
    """Raise SourceError if images have several folders of masks, or the other way round."""
    every = [place for some in places.values() for place in some]
    if len(places) > 1 and not {*map(str.lower, places)} <= {*SPLITS}:
        got = " and ".join(f"{images!r} with {masks!r}" for images, masks in every[:2])
        step = "pack each of them after moving the others elsewhere"
        raise malformed(listing.name, "have one folder of images with masks, or splits of it", got, step)
    for (images, masks), *others in places.values():
        shared = [other.masks if other.images == images else other.images for other in others]
        shared += _of_the_same_names(listing, PairedFolders(images, masks), every)
        if shared:
            must = f"have one folder of masks for the images in {images or listing.name!r}"
            raise malformed(listing.name, must, f"{masks!r} or {shared[0]!r}, of the same names", _TABLE_STEP)


def _of_the_same_names(listing: Listing, place: PairedFolders, every: Sequence[PairedFolders]) -> list[str]:
    """Return the folders beside those of images and masks that have the same names, too."""
    if place.images == place.masks:
        return []
    parent = listing[place.images if not place.images else place.images.rpartition("/")[0]]
    known = {path for each in every for path in each}
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
    named = split_names(images.visible)
    if not named:
        require_plain_splits(listing, images)
    by_split(listing.shown(images.path), {name: name for name in named})
    inner = by_split(listing.shown(masks.path), {name: name for name in split_names(masks.visible)})
    found = {name: inner.get(SPLITS[name.lower()]) for name in named}
    return {
        name: PairedFolders(images.join(name), masks.join(other)) for name, other in found.items() if other
    } or {"": place}


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
    )
