"""Recognition of YOLO datasets: a data.yaml, or images with label files that hold rows of YOLO."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from fastload.sources.account import settled
from fastload.sources.listing import Listing, read_part
from fastload.sources.malformed import malformed, pack_command
from fastload.sources.protocol import Claim, LeftOutReason, Reading, Source
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import SPLITS, split_names
from fastload.sources.yolo.description import YoloDescription, read_description
from fastload.sources.yolo.labels import likely_labels, parallel_to
from fastload.sources.yolo.reach import Reach
from fastload.sources.yolo.source import described_folder, read_described, read_folders

_TITLE = "a YOLO dataset"
_OTHER_DESCRIPTION: LeftOutReason = ("another description than the one that was named", True)
_YAML_SUFFIXES = (".yaml", ".yml")
_YAML_SPLITS = re.compile(rb"^(%s)\s*:" % "|".join(SPLITS).encode(), re.MULTILINE | re.IGNORECASE)
_YAML_NAMES = re.compile(rb"^(names|nc)\s*:", re.MULTILINE)
_DARKNET = re.compile(r"obj_([a-z]+)_data", re.IGNORECASE)  # Darknet's and CVAT's folders of images
_SCANNED = 5000  # images of a split whose label files are looked for
_SAMPLED = 32  # of these label files, those that are opened


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder with a data.yaml, or with images and label files."""
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


def open_file(path: str) -> Mapping[str, Source] | None:
    """List the dataset that a data.yaml describes; return None for another file."""
    if not path.lower().endswith(_YAML_SUFFIXES) or not _describes_splits(path, read_part(path)):
        return None
    return _read_elsewhere(path, read_description(path))


def _describes_splits(path: str, head: bytes) -> bool:
    is_data_yaml = os.path.basename(path).lower() in ("data.yaml", "data.yml")  # must have names
    return bool(_YAML_SPLITS.search(head) and (is_data_yaml or _YAML_NAMES.search(head)))


def _read_one(listing: Listing, names: list[str]) -> Reading:
    paths = [listing.shown(name) for name in names]
    if len(paths) > 1:
        step = f"pack the right one: {pack_command(paths[0])}"
        raise malformed(listing.name, "hold one description of a dataset", ", ".join(paths), step)
    description = read_description(paths[0])
    reach = Reach(listing)
    entries = [reach.known(entry) for entries in description.splits.values() for entry in entries]
    if any(reach.inside(entry) is not None for entry in entries):
        return read_described(listing, paths[0], description)
    return Reading(_read_elsewhere(paths[0], description), names)


def _read_elsewhere(name: str, description: YoloDescription) -> dict[str, Source]:
    """List a described dataset, with what is left out of the folder that all of its splits lie in."""
    listing = Listing.walk(described_folder(description))
    reading = read_described(listing, name, description)
    others = dict.fromkeys(_descriptions(listing), _OTHER_DESCRIPTION)
    return settled(listing, replace(reading, reasons=others | dict(reading.reasons)))


def _descriptions(listing: Listing) -> list[str]:
    names = listing.top.others_with(*_YAML_SUFFIXES)
    return [name for name in names if _describes_splits(name, listing.head(name))]


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


def _label_with_boxes(listing: Listing, folder: str, texts: Container[str]) -> str | None:
    """Return a label file of a folder's images that holds boxes; `texts` are the folders with text files."""
    # Most datasets of other layouts have no texts in these places: their images are not looked at.
    if not any(map(texts.__contains__, _label_folders(listing, folder))):
        return None
    images = map(listing.absolute, itertools.islice(_images_below(listing, folder), _SCANNED))
    reach = Reach(listing)
    labels = likely_labels(reach, list(images))[:_SAMPLED]
    found = next((path for path in labels if holds_boxes(path, read_part(path))), None)
    return found and reach.inside(found)


def _label_folders(listing: Listing, path: str) -> Iterator[str]:
    """Yield the folders in which the labels of the images below a folder may lie."""
    for folder in listing.below(path):
        if folder.images:
            yield from (folder.path, folder.join("labels"))
            if parallel := parallel_to(f"/{folder.path}", "labels"):
                yield parallel[1:]


def _images_below(listing: Listing, path: str) -> Iterator[str]:
    return (folder.join(name) for folder in listing.below(path) for name in folder.images)
