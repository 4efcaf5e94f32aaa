"""YOLO datasets: a description such as data.yaml, or a folder with images and label files.

The splits of a data.yaml are folders of images, lists of such folders, or .txt files that list images. An
image without a label file has no objects. Images are sorted by path. Coordinates refer to the upright image,
because Ultralytics turns images by their EXIF orientation.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.files import NOT_FOUND, FileList, list_files, read_text
from fastload.sources.listing import Listing, stem_of
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.protocol import LeftOutReason, Reading, evenly_spaced
from fastload.sources.splits import SPLITS, by_split, require_plain_splits
from fastload.sources.yolo.description import (
    OTHER_DESCRIPTIONS,
    YoloDescription,
    find_class_files,
    read_class_names,
)
from fastload.sources.yolo.labels import find_labels, find_masks
from fastload.sources.yolo.named import find_named, lists_of
from fastload.sources.yolo.rows import YoloReader, guess_task, scan_rows
from fastload.system.units import format_count

_COPY: LeftOutReason = ("equal to the label file that was read", True)
_CACHE: LeftOutReason = ("a cache of Ultralytics", True)
_REPEATED: LeftOutReason = ("a description of what was read", True)
_SAME_NAMES: LeftOutReason = ("names of classes, as in the description", True)
_OTHER_NAMES: LeftOutReason = ("names of classes other than in the description", False)

_SCANNED = 5000


def read_described(name: str, description: YoloDescription, inner: Listing | None) -> Reading:
    """List the splits of a description, `name`; `inner` lists its folder, if this is the source."""
    listing, named = find_named(description, inner)
    files = [description.file, description.names_file, *lists_of(description)]
    read = {path: listing.place_of(path) for path in map(os.path.abspath, filter(None, files))}
    images = {split: paths for split, paths in named.items() if paths}
    if not images:
        raise malformed(name, "have images in its splits", "none", "check the folders")
    missing = (f"{name}: its split {split} has no images, and is left out" for split in named.keys() - images)
    reading = _read_splits(listing, name, images, description, missing, filter(None, read.values()))
    outside = [path for path, place in read.items() if place is None]
    return replace(reading, listing=listing, outside=outside)


def read_folders(listing: Listing, folders: Mapping[str, str]) -> Reading:
    """List the images below the folder of each split, named as in the dataset, of one without a data.yaml."""
    for folder in folders.values():
        require_plain_splits(listing, listing[folder])
    found = {name: sorted(listing.images_below(folder)) for name, folder in folders.items()}
    images = by_split(listing.name, {name: paths for name, paths in found.items() if paths})
    lists = _read_lists(listing, images)
    return _read_splits(listing, listing.name, images, YoloDescription(), (), lists)


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
    name: str,
    images: Mapping[str, Sequence[str]],
    description: YoloDescription,
    warnings: Iterable[str],
    read: Iterable[str],
) -> Reading:
    """List the splits; `read` are further files that were read."""
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
    # A test split may have no labels: in competitions, they are kept secret.
    doubtful = [split for split in unlabelled if not any(masks[split])]
    told = (f"{name}: the split {split} has no label files" for split in doubtful if split == "test")
    reasons |= dict.fromkeys((copy for _, copies in found.values() for copy in copies), _COPY)
    for folder in listing.folders.values():
        reasons |= dict.fromkeys(map(folder.join, folder.others_with(".cache")), _CACHE)
    doubts = tuple(_doubt(name, split, texts[split]) for split in doubtful if split != "test")
    next(iter(sources.values())).doubts = doubts
    return Reading(sources, [*read], reasons, [*warnings, *told])


def _doubt(name: str, split: str, labels: FileList) -> str:
    """Return the sentence about a split of background alone, as far as can be seen."""
    return (
        f"{name}: none of the {format_count(len(labels), 'image')} of its split {split} has a label file, "
        f"such as {labels.path(0)}: add them; or if no image has objects, say --layout yolo (in Python, "
        "layout='yolo')"
    )


def _reader_of(
    labels: Iterable[FileList], description: YoloDescription
) -> tuple[YoloReader, tuple[str, ...]]:
    """Return the reader for all splits, and the names of the classes, by default their numbers."""
    counts: set[int] = set()
    largest = -1
    for files in labels:
        scanned = range(len(files)) if not description.classes else evenly_spaced(len(files), _SCANNED)
        for index in scanned:
            if files.sizes_bytes[index] > 0:
                with contextlib.suppress(SourceError):  # reading the record reports it
                    found, highest = scan_rows(files.read(index))
                    counts |= found
                    largest = max(largest, highest)
    classes = description.classes or tuple(map(str, range(largest + 1)))
    if description.keypoints is not None:
        return YoloReader("keypoints", len(classes), description.keypoints), classes
    return YoloReader(guess_task(counts), len(classes)), classes
