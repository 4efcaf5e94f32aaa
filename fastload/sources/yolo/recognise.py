"""Recognition of YOLO datasets: a description, or images with label files that hold rows of YOLO."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Container
from dataclasses import replace

from fastload.errors import SourceError
from fastload.sources.listing import Listing
from fastload.sources.malformed import malformed, pack_command
from fastload.sources.protocol import Claim, LeftOutReason, Reading
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import split_names
from fastload.sources.yolo.description import (
    DARKNET_SUFFIX,
    YAML_SUFFIXES,
    describes_splits,
    read_description,
)
from fastload.sources.yolo.labels import label_folders, likely_labels
from fastload.sources.yolo.source import read_described, read_folders

_TITLE = "a YOLO dataset"
_OTHER_DESCRIPTION: LeftOutReason = ("another description than the one that was named", True)
_DARKNET = re.compile(r"obj_([a-z]+)_data", re.IGNORECASE)  # Darknet's and CVAT's folders of images
_SCANNED = 5000  # images of a split whose label files are looked for
_SAMPLED = 32  # of these label files, those that are opened


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder with a description, or with images and label files."""
    if found := _descriptions(listing):
        return Claim("yolo", _TITLE, f"{found[0]} names its splits", lambda: _read_one(listing, found))
    texts = {path for path, folder in listing.folders.items() if folder.others and folder.others_with(".txt")}
    if not texts:
        return None
    folders = _image_folders(listing)
    labels = (_label_with_boxes(listing, folder, texts) for folder in folders.values())
    label = next(filter(None, labels), None)
    if label is None:
        return None
    return Claim("yolo", _TITLE, f"rows of boxes in {label}", lambda: read_folders(listing, folders))


def recognise_file(path: str) -> Claim | None:
    """Claim a file that describes splits."""
    if not describes_splits(path):
        return None
    return Claim("yolo", _TITLE, f"{path} names its splits", lambda: _read_named(path))


def _read_named(path: str, listing: Listing | None = None) -> Reading:
    reading = read_described(path, read_description(path), listing)
    assert reading.listing is not None
    others = dict.fromkeys(_descriptions(reading.listing), _OTHER_DESCRIPTION)
    return replace(reading, reasons=others | dict(reading.reasons))


def _read_one(listing: Listing, names: list[str]) -> Reading:
    paths = [listing.shown(name) for name in names]
    if len(paths) > 1:
        step = f"pack the right one: {pack_command(paths[0])}"
        raise malformed(listing.name, "hold one description of a dataset", ", ".join(paths), step)
    return _read_named(paths[0], listing)


def _descriptions(listing: Listing) -> list[str]:
    """Return the files that describe splits, or else those in folders inside; Darknet's without a yaml."""
    inner = [folder for path, folder in listing.folders.items() if path and "/." not in f"/{path}"]
    for folders, suffixes in itertools.product(([listing.top], inner), (YAML_SUFFIXES, (DARKNET_SUFFIX,))):
        bearing = (folder for folder in folders if folder.others)
        files = (each.join(name) for each in bearing for name in each.others_with(*suffixes))
        if found := [file for file in files if _describes(listing, file)]:
            return found
    return []


def _describes(listing: Listing, file: str) -> bool:
    """Return True for a description; one in a folder inside must name what lies in the listing."""
    path = listing.absolute(file)
    if not describes_splits(path) or "/" not in file:
        return describes_splits(path)
    with contextlib.suppress(SourceError):
        entries = itertools.chain(*read_description(path).splits.values())
        return all(os.path.exists(entry) and listing.place_of(entry) is not None for entry in entries)
    return False


def _image_folders(listing: Listing) -> dict[str, str]:
    """Return the folder of each split's images, by the split's own name, "" without splits."""
    top = listing["images"] if "images" in listing.folders else listing.top
    names = split_names(top.visible)
    if names:
        inner = {name: f"{top.join(name)}/images" for name in names}
        return {name: inner[name] if inner[name] in listing.folders else top.join(name) for name in names}
    if top.path or top.images:
        return {"": top.path}
    darknet = {match[1]: name for name in top.visible if (match := _DARKNET.fullmatch(name))}
    return {"": darknet["train"]} if [*darknet] == ["train"] else darknet


def _label_with_boxes(listing: Listing, path: str, texts: Container[str]) -> str | None:
    """Return a label file of a folder's images that holds boxes; `texts` are the folders with text files."""
    folders = [folder for folder in listing.below(path) if folder.images]
    # Most datasets of other layouts have no texts in these places: their images are not looked at.
    if not any(place in texts for folder in folders for place in label_folders(folder.path)):
        return None
    images = (folder.join(name) for folder in folders for name in folder.images)
    labels = likely_labels(listing, [*itertools.islice(images, _SCANNED)])[:_SAMPLED]
    return next((label for label in labels if holds_boxes(label, listing.head(label))), None)
