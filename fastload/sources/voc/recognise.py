"""Recognition of Pascal VOC datasets: a folder with JPEGImages, or images with XML files of VOC."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from fastload.sources.listing import Folder, Listing
from fastload.sources.malformed import in_quotes, malformed, pack_command
from fastload.sources.protocol import Claim, Reading
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import SPLITS, split_names
from fastload.sources.voc.places import BOXES, IMAGES, MASKS, XmlFolders, masks_in
from fastload.sources.voc.source import read_folders, read_kit

_TITLE = "a Pascal VOC dataset"
_KIT_NAME = "VOC"  # of VOCdevkit, VOC2012, VOCtrainval_11-May-2012
_IMAGE_FOLDER = re.compile(r"(jpeg)?images?|imgs?|photos|pictures", re.IGNORECASE)
_SAMPLED = 32
_MOST_FOLDERS = 64  # of classes, for example, each of which would be compared with each other one


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder of VOC's own form, or images and their XML files, also by split."""
    if kits := _kits(listing):
        evidence = f"{listing[kits[0]].join(IMAGES)} and its annotations"
        return Claim("voc", _TITLE, evidence, lambda: _read_one_kit(listing, kits))
    if not any(map(_has_xml, listing.folders.values())):
        return None
    names = split_names(listing.top.visible)
    found = {"": [*_folders_in(listing, "")]}
    if not found[""]:
        found = {name: places for name in names if (places := [*_folders_in(listing, name)])}
    if not found:
        return None
    first = next(iter(found.values()))[0]
    evidence = f"XML files of VOC in {listing.shown(first.boxes)}"
    return Claim("voc", _TITLE, evidence, lambda: _read_found(listing, names, found))


def _kits(listing: Listing) -> list[str]:
    """Return the folders with JPEGImages and annotations: those named VOC…, or that with most images."""
    found = []
    for path in listing.folders:
        kit, _, name = path.rpartition("/")
        if name == IMAGES and kit.rpartition("/")[2].lower() not in SPLITS and "/." not in f"/{path}":
            boxes, masks = (f"{kit}/{each}".lstrip("/") for each in (BOXES, MASKS))
            if XmlFolders("", boxes).xml_in(listing) or masks_in(listing, masks):
                found.append(kit)
    named = [kit for kit in found if all(part.startswith(_KIT_NAME) for part in kit.split("/") if part)]
    every = sum(len(each.images) for each in listing.folders.values() if "/." not in f"/{each.path}")
    return sorted(named or [kit for kit in found if 2 * len(listing.images_below(kit)) > every])


def _read_one_kit(listing: Listing, kits: list[str]) -> Reading:
    if len(kits) > 1:
        shown = [*map(listing.shown, kits)]
        step = "pack each of them: " + ", ".join(map(pack_command, shown[:2]))
        raise malformed(listing.name, "hold one VOC dataset", " and ".join(shown), step)
    return read_kit(listing, kits[0])


def _folders_in(listing: Listing, path: str) -> Iterator[XmlFolders]:
    """Yield the folders in which images and XML files of VOC form pairs: here, or in folders here."""
    here = listing[path]
    inner = [here.join(name) for name in here.visible if name.lower() not in SPLITS][:_MOST_FOLDERS]
    images = {each: found for each in inner if (found := _bearing(listing, each, _has_images))}
    named = [found for each, found in images.items() if _IMAGE_FOLDER.fullmatch(each.rpartition("/")[2])]
    chosen = named or [*images.values()]
    of_xml = filter(None, (_bearing(listing, each, _has_xml) for each in inner))
    # XML files beside images are theirs alone.
    boxes = [each for each in of_xml if not any(_has_xml(at) and at.images for at in listing.below(each))]
    beside = chosen[0] if len(chosen) == 1 and not here.images else path
    places = [XmlFolders(path, each) for each in boxes]
    if here.images or not split_names(here.visible):
        places.append(XmlFolders(beside, beside))
    places += itertools.starmap(XmlFolders, itertools.product(chosen, boxes))
    yield from (each for each in places if _are_pairs(listing, each))


def _has_images(folder: Folder) -> bool:
    return bool(folder.images)


def _has_xml(folder: Folder) -> bool:
    return bool(folder.others and folder.others_with(".xml"))


def _bearing(listing: Listing, path: str, bears: Callable[[Folder], bool]) -> str | None:
    """Return the folder at or below a path that bears all of its files of a kind, at least by splits."""
    folder = listing[path]
    while not bears(folder):
        bearing = [each for each in folder.visible if any(map(bears, listing.below(folder.join(each))))]
        if len(bearing) != 1 or split_names(bearing):
            return folder.path if bearing else None
        folder = listing[folder.join(bearing[0])]
    return folder.path


def _are_pairs(listing: Listing, place: XmlFolders) -> bool:
    """Return True if half of the XML files, or of the images that they lie beside, form pairs."""
    xml = place.xml_in(listing)
    images = place.images_in(listing) if xml else {}
    paired = [path for stem, paths in xml.items() if stem in images for path in paths]
    least = len(images) if place.images == place.boxes else len(xml)
    heads = ((path, listing.head(path)) for path in paired[:_SAMPLED])
    return 2 * len(paired) >= least and any(holds_boxes(*each) for each in heads)


def _read_found(listing: Listing, names: list[str], found: Mapping[str, Sequence[XmlFolders]]) -> Reading:
    for places in found.values():
        if len(places) > 1:
            got = in_quotes([listing.shown(each.boxes) for each in places])
            must = "have the XML files of its images in one folder"
            raise malformed(listing.name, must, got, "move the wrong ones elsewhere")
    return read_folders(listing, names, {name: places[0] for name, places in found.items()})
