"""Recognition of Pascal VOC datasets: a folder with JPEGImages, or images with XML files of VOC."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from fastload.sources.listing import Listing
from fastload.sources.malformed import in_quotes, malformed, pack_command
from fastload.sources.protocol import Claim, Reading
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import split_names
from fastload.sources.voc.places import (
    BOXES,
    IMAGES,
    MASKS,
    Places,
    files_by_stem,
    image_names,
    mask_names,
    xml_names,
)
from fastload.sources.voc.source import read_kit, read_places

_TITLE = "a Pascal VOC dataset"
_KIT_NAME = "VOC"  # of VOCdevkit, VOC2012, VOCtrainval_11-May-2012
_DEEPEST_KIT = 3
_IMAGE_FOLDER = re.compile(r"(jpeg)?images?|imgs?|photos|pictures", re.IGNORECASE)
_XML_FOLDER = re.compile(r"annotations?|anns?|labels?|xmls?|b?box(es)?", re.IGNORECASE)
_SAMPLED = 32


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder of VOC's own form, or images and their XML files, also by split."""
    if kits := _kits(listing):
        evidence = f"{listing[kits[0]].join(IMAGES)} and its annotations"
        return Claim("voc", _TITLE, evidence, lambda: _read_one_kit(listing, kits))
    if not any(folder.others and folder.others_with(".xml") for folder in listing.folders.values()):
        return None
    names = split_names(listing.top.visible)
    found = {"": [*_places_in(listing, "")]}
    if not found[""]:
        found = {name: places for name in names if (places := [*_places_in(listing, name)])}
    if not found:
        return None
    first = next(iter(found.values()))[0]
    evidence = f"XML files of VOC in {listing.shown(first.boxes)}"
    return Claim("voc", _TITLE, evidence, lambda: _read_found(listing, names, found))


def _kits(listing: Listing) -> list[str]:
    """Return the folders with JPEGImages and annotations: this one, or some below, as VOCdevkit/VOC2012."""
    found = []
    pending = [("", 0)]
    for path, depth in pending:
        folder = listing[path]
        if folder.join(IMAGES) not in listing.folders:
            inner = [name for name in folder.visible if name.startswith(_KIT_NAME)]
            pending += [(folder.join(name), depth + 1) for name in inner if depth < _DEEPEST_KIT]
        elif _has_annotations(listing, path):
            found.append(path)
    return found


def _has_annotations(listing: Listing, kit: str) -> bool:
    kinds = {BOXES: xml_names} | dict.fromkeys(MASKS, mask_names)
    below = ((listing.below(listing[kit].join(name)), names_of) for name, names_of in kinds.items())
    return any(names_of(folder) for folders, names_of in below for folder in folders)


def _read_one_kit(listing: Listing, kits: list[str]) -> Reading:
    if len(kits) > 1:
        shown = [*map(listing.shown, kits)]
        step = "pack each of them: " + ", ".join(map(pack_command, shown[:2]))
        raise malformed(listing.name, "hold one VOC dataset", " and ".join(shown), step)
    return read_kit(listing, kits[0])


def _places_in(listing: Listing, path: str) -> Iterator[Places]:
    """Yield the folders in which images and XML files of VOC form pairs: here, or in folders here."""
    here = listing[path]
    images = [here.join(name) for name in here.visible if _IMAGE_FOLDER.fullmatch(name)]
    boxes = [here.join(name) for name in here.visible if _XML_FOLDER.fullmatch(name)]
    places = [Places(each, each, is_deep=False) for each in (path, *images)]
    places += [Places(path, each, is_deep=False) for each in boxes]
    places += [Places(*each, is_deep=True) for each in itertools.product(images, boxes)]
    yield from (each for each in places if _are_pairs(listing, each))


def _are_pairs(listing: Listing, places: Places) -> bool:
    """Return True if half of the XML files, or of the images that they lie beside, form pairs."""
    xml = files_by_stem(listing, places.boxes, xml_names, is_deep=places.is_deep)
    if not xml:
        return False
    images = files_by_stem(listing, places.images, image_names, is_deep=places.is_deep)
    paired = [path for stem, paths in xml.items() if stem in images for path in paths]
    least = len(images) if places.images == places.boxes else len(xml)
    heads = ((path, listing.head(path)) for path in paired[:_SAMPLED])
    return 2 * len(paired) >= least and any(holds_boxes(*each) for each in heads)


def _read_found(listing: Listing, names: list[str], found: dict[str, list[Places]]) -> Reading:
    for places in found.values():
        if len(places) > 1:
            got = in_quotes([listing.shown(each.boxes) for each in places])
            must = "have the XML files of its images in one folder"
            raise malformed(listing.name, must, got, "move the wrong ones elsewhere")
    return read_places(listing, names, {name: places for name, (places,) in found.items()})
