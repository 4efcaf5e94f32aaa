"""YOLO datasets: a description such as data.yaml, or a folder with images and label files that hold boxes.

The splits of a data.yaml are folders of images, lists of such folders, or .txt files that list images. An
image without a label file has no objects. Images are sorted by path. Coordinates refer to the upright image,
because Ultralytics turns images by their EXIF orientation.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources.file_source import AnnotatedFiles
from fastload.sources.files import NOT_FOUND, FileList, list_files, read_text
from fastload.sources.listing import Listing, stem_of
from fastload.sources.malformed import in_quotes, malformed, pack_command
from fastload.sources.protocol import Claim, LeftOutReason, Reading, evenly_spaced
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import SPLITS, by_split, require_plain_splits, split_names
from fastload.sources.yolo.description import (
    DARKNET_SUFFIX,
    OTHER_DESCRIPTIONS,
    YAML_SUFFIXES,
    YoloDescription,
    describes_splits,
    find_class_files,
    find_named,
    read_class_names,
    read_description,
)
from fastload.sources.yolo.labels import (
    YoloReader,
    find_labels,
    find_masks,
    guess_task,
    label_folders,
    likely_labels,
    scan_rows,
)
from fastload.system.units import format_count

_OTHER_DESCRIPTION: LeftOutReason = ("another description than the one that was named", True)
_COPY: LeftOutReason = ("equal to the label file that was read", True)
_CACHE: LeftOutReason = ("a cache of Ultralytics", True)
_REPEATED: LeftOutReason = ("a description of what was read", True)
_SAME_NAMES: LeftOutReason = ("names of classes, as in the description", True)
_OTHER_NAMES: LeftOutReason = ("names of classes other than in the description", False)

_DARKNET = re.compile(r"obj_([a-z]+)_data", re.IGNORECASE)  # Darknet's and CVAT's folders of images
_SCANNED = 5000  # files of a split that are looked at
_SAMPLED = 32  # label files that are opened to recognise the layout


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder with a description, or with images and label files."""
    if found := _descriptions(listing):
        return Claim(f"{found[0]} names its splits", lambda: _read_one(listing, found))
    texts = {path for path, folder in listing.folders.items() if folder.others and folder.others_with(".txt")}
    if not texts:
        return None
    folders = _image_folders(listing)
    labels = (_label_with_boxes(listing, folder, texts) for folder in folders.values())
    label = next(filter(None, labels), None)
    if label is None:
        return None
    return Claim(f"rows of boxes in {label}", lambda: _read_folders(listing, folders))


def recognise_file(path: str) -> Claim | None:
    """Claim a file that describes splits."""
    if not describes_splits(path):
        return None
    return Claim(f"{path} names its splits", lambda: _read_described(path))


def _read_one(listing: Listing, names: list[str]) -> Reading:
    paths = [listing.shown(name) for name in names]
    if len(paths) > 1:
        step = f"pack the right one: {pack_command(paths[0])}"
        raise malformed(listing.name, "hold one description of a dataset", ", ".join(paths), step)
    return _read_described(paths[0], listing)


def _descriptions(listing: Listing) -> list[str]:
    """Return the files that describe splits, or else those in folders inside; Darknet's without a yaml."""
    inner = [folder for folder in listing.visible if folder.path]
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


def _read_described(path: str, inner: Listing | None = None) -> Reading:
    """List the splits of a description; `inner` lists its folder, if this is the source."""
    description = read_description(path)
    listing, named = find_named(description, inner)
    files = map(os.path.abspath, filter(None, [path, description.names_file, *description.lists]))
    read = {file: listing.place_of(file) for file in files}
    images = {split: paths for split, paths in named.items() if paths}
    if not images:
        raise malformed(path, "have images in its splits", "none", "check the folders")
    missing = (f"{path}: its split {split} has no images, and is left out" for split in named.keys() - images)
    reading = _read_splits(listing, images, description, missing, filter(None, read.values()))
    others = dict.fromkeys(_descriptions(listing), _OTHER_DESCRIPTION)
    outside = [file for file, place in read.items() if place is None]
    return replace(reading, listing=listing, outside=outside, reasons=others | dict(reading.reasons))


def _read_folders(listing: Listing, folders: Mapping[str, str]) -> Reading:
    """List the images below the folder of each split, named as in the dataset, of one without a data.yaml."""
    for folder in folders.values():
        require_plain_splits(listing, listing[folder])
    found = {name: sorted(listing.images_below(folder)) for name, folder in folders.items()}
    images = by_split(listing.name, {name: paths for name, paths in found.items() if paths})
    lists = _read_lists(listing, images)
    return _read_splits(listing, images, YoloDescription(), (), lists)


def _read_lists(listing: Listing, images: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lists of exactly the images of a split.

    SourceError is raised if lists divide images that lie in one folder into splits.
    """
    names = {split: {*map(os.path.basename, paths)} for split, paths in images.items()}
    agreeing, others = [], []
    for name in listing.top.others_with(".txt"):
        if (split := SPLITS.get(stem_of(name).lower())) is None:
            continue
        lines = read_text(listing.absolute(name)).split("\n")
        listed = {os.path.basename(line.strip()) for line in lines if line.strip()}
        if listed == names.get(split, names.get("")):
            agreeing.append(name)
        elif "" in names and listed and listed <= names[""]:
            others.append(name)
    if others:
        splits = ", ".join(f"{SPLITS[stem_of(name).lower()]}: {name}" for name in others)
        must = "have a data.yaml if lists name the images of its splits"
        step = f"write one with {splits} and names: [NAMES OF THE CLASSES]"
        raise malformed(listing.name, must, in_quotes(others), step)
    return agreeing


def _read_splits(
    listing: Listing,
    images: Mapping[str, Sequence[str]],
    description: YoloDescription,
    warnings: Iterable[str],
    read: Iterable[str],
) -> Reading:
    """List the splits; `read` are further files that were read."""
    name = description.file or listing.name
    found = {split: find_labels(listing, paths) for split, paths in images.items()}
    texts = {split: list_files(listing.root, labels) for split, (labels, _) in found.items()}
    folders = {*map(os.path.dirname, (label for labels, _ in found.values() for label in labels))}
    root = listing.place_of(description.root) if description.root else ""
    above = map(os.path.dirname, sorted(folders))
    class_files = find_class_files(listing, ["", root or "", "labels", *sorted(folders), *above])
    reasons: dict[str, LeftOutReason] = {}
    if not description.file:
        description = replace(description, classes=read_class_names(listing, class_files))
        read = [*read, *class_files]
        reasons = dict.fromkeys(OTHER_DESCRIPTIONS, _REPEATED) if class_files else {}
    else:
        for path, names in class_files.items():
            reasons[path] = _SAME_NAMES if names == description.classes else _OTHER_NAMES
    reader, classes = _reader_of(texts.values(), description)
    masks = {split: find_masks(listing, paths) for split, paths in images.items()}
    has_masks = any(map(any, masks.values()))
    unlabelled = [split for split, files in texts.items() if not (files.sizes_bytes != NOT_FOUND).any()]
    if len(unlabelled) == len(texts) and not has_masks:
        expected = next(iter(texts.values())).path(0)
        step = "check the folders; or pack the folder with --layout classes if its folders are classes"
        raise malformed(name, f"have label files, such as {expected}", "none", step)
    sources = {
        split: AnnotatedFiles(
            kind="yolo",
            name=name,
            classes=classes,
            fields=(*reader.fields(), *[Field.mask()] * has_masks),
            details={"yaml": description.further},
            is_upright=True,
            files=list_files(listing.root, paths),
            values={"mask": list_files(listing.root, masks[split])} if has_masks else {},
            texts=texts[split],
            reader=reader,
        )
        for split, paths in images.items()
    }
    reasons |= dict.fromkeys((copy for _, copies in found.values() for copy in copies), _COPY)
    for folder in listing.folders.values():
        reasons |= dict.fromkeys(map(folder.join, folder.others_with(".cache")), _CACHE)
    lacking = [
        (
            split,
            f"{name}: none of the {format_count(len(texts[split]), 'image')} of its split {split} has a "
            f"label file, such as {texts[split].path(0)}",
        )
        for split in unlabelled
        if not any(masks[split])
    ]
    return Reading(sources, [*read], reasons, [*warnings], lacking)


def _reader_of(
    labels: Iterable[FileList], description: YoloDescription
) -> tuple[YoloReader, tuple[str, ...]]:
    """Return the reader for all splits, and the names of the classes, by default their numbers."""
    counts: set[int] = set()
    largest = -1
    for files in labels:
        for text in files.readable(evenly_spaced(len(files), _SCANNED) if description.classes else None):
            found, highest = scan_rows(text)
            counts |= found
            largest = max(largest, highest)
    classes = description.classes or tuple(map(str, range(largest + 1)))
    if description.keypoints is not None:
        return YoloReader("keypoints", len(classes), description.keypoints), classes
    return YoloReader(guess_task(counts), len(classes)), classes
