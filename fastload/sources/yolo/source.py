"""YOLO datasets: a data.yaml, or a folder with images and label files.

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
from fastload.sources.files import NOT_FOUND, FileList, Values, list_files, read_text
from fastload.sources.listing import Listing, is_image, stem_of
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.protocol import LeftOutReason, Reading, evenly_spaced
from fastload.sources.splits import SPLITS, by_split, require_plain_names
from fastload.sources.yolo.description import (
    DESCRIPTIONS,
    YoloDescription,
    find_class_files,
    read_class_names,
)
from fastload.sources.yolo.labels import LabelFiles, find_labels, find_masks
from fastload.sources.yolo.reach import Reach
from fastload.sources.yolo.rows import YoloReader, guess_task, scan_rows

NO_IMAGE_OF_NAME = "labels without an image of their name"
_COPY: LeftOutReason = ("equal to the label file that was read", True)
_CACHE: LeftOutReason = ("a cache of Ultralytics", True)
_REPEATED: LeftOutReason = ("a description of what was read", True)
_SAME_NAMES: LeftOutReason = ("names of classes, as in the yaml file", True)
_OTHER_NAMES: LeftOutReason = ("names of classes other than in the yaml file", False)

_SCANNED = 5000


def described_folder(description: YoloDescription) -> str:
    """Return the folder of the dataset that a description names: the one of all of its splits."""
    entries = [entry for entries in description.splits.values() for entry in entries]
    _require_entries(description, entries)
    folders = [entry if os.path.isdir(entry) else os.path.dirname(entry) for entry in entries]
    common = os.path.commonpath(folders)
    # Labels lie beside the folder `images`, and splits often inside.
    before, images, _ = (common + os.sep).rpartition(f"{os.sep}images{os.sep}")
    common = before if images else common
    is_everything = os.path.dirname(common) == common
    return description.root if is_everything else common


def read_described(listing: Listing, name: str, description: YoloDescription) -> Reading:
    """List the splits of a data.yaml, `name`; parts of them may lie outside of the listing."""
    reach = Reach(listing)
    splits = {split: [*map(reach.known, entries)] for split, entries in description.splits.items()}
    entries = [entry for entries in splits.values() for entry in entries]
    _require_entries(description, entries)
    images = {split: _images_of(reach, entries) for split, entries in splits.items()}
    warnings = []
    if images.get("test") == []:
        del images["test"]
        warnings = [f"{name}: its split test has no images, and is left out"]
    lists = [entry for entry in entries if not os.path.isdir(entry)]
    root = reach.known(description.root)
    read = [reach.known(os.path.abspath(description.file)), *lists]
    return _read_splits(reach, name, root, images, description, warnings, read)


def read_folders(listing: Listing, folders: Mapping[str, str]) -> Reading:
    """List the images below the folder of each split, named as in the dataset, of one without a data.yaml."""
    reach = Reach(listing)
    for folder in folders.values():
        _require_known_splits(listing, folder)
    found = {name: sorted(reach.images_below(listing.absolute(folder))) for name, folder in folders.items()}
    images = by_split(listing.name, {name: paths for name, paths in found.items() if paths})
    lists = _read_lists(listing, images)
    return _read_splits(reach, listing.name, listing.root, images, YoloDescription(), (), lists)


def _require_entries(description: YoloDescription, entries: Iterable[str]) -> None:
    for path in entries:
        if not (os.path.isdir(path) or (path.lower().endswith(".txt") and os.path.isfile(path))):
            must = "have splits that are folders of images, or .txt files that list them"
            raise malformed(description.file, must, path, "correct `path` or the split")


def _require_known_splits(listing: Listing, folder: str) -> None:
    """Raise SourceError if splits under other names lie in a folder of images."""
    top = listing[folder]
    if not top.images:
        bearing = [name for name in top.visible if any(each.images for each in listing.below(top.join(name)))]
        require_plain_names(listing.shown(folder), bearing)


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
            agreeing.append(listing.absolute(name))
        elif "" in names and listed and listed <= names[""]:
            others.append(name)
    if others:
        splits = ", ".join(f"{SPLITS[stem_of(name).lower()]}: {name}" for name in others)
        must = "have a data.yaml if lists name the images of its splits"
        step = f"write one with {splits} and names: [NAMES OF THE CLASSES]"
        raise malformed(listing.name, must, in_quotes(others), step)
    return agreeing


def _images_of(reach: Reach, entries: Sequence[str]) -> list[str]:
    """Return the images of a split: those in folders, and those that .txt files list."""
    images: list[str] = []
    for path in entries:
        if os.path.isdir(path):
            images += reach.images_below(path)
            continue
        for number, line in enumerate(map(str.strip, read_text(path).split("\n")), 1):
            if line and not is_image(line):
                must = "be the path of an image, such as images/a.jpg"
                raise malformed(f"{path}, line {number}", must, repr(line))
            if line:
                images.append(reach.known(os.path.normpath(os.path.join(os.path.dirname(path), line))))
    return sorted(images)


def _read_splits(
    reach: Reach,
    name: str,
    root: str,
    images: Mapping[str, Sequence[str]],
    description: YoloDescription,
    warnings: Iterable[str],
    read: Iterable[str],
) -> Reading:
    """List the splits; keys are relative to `root`, and `read` are further files that were read."""
    labels = {split: find_labels(reach, paths) for split, paths in images.items()}
    texts = {split: _listed(root, found.paths) for split, found in labels.items()}
    label_folders = {os.path.dirname(path) for found in labels.values() for path in found.paths}
    class_files = find_class_files(reach, [root, os.path.join(root, "labels"), *sorted(label_folders)])
    reasons: dict[str, LeftOutReason] = {}
    if not description.file:
        description = replace(description, classes=read_class_names(class_files))
        read = [*read, *class_files]
        reasons |= {os.path.join(root, each): _REPEATED for each in DESCRIPTIONS if class_files}
    else:
        for path, names in class_files.items():
            reasons[path] = _SAME_NAMES if names == description.classes else _OTHER_NAMES
    reader, classes = _reader_of(texts.values(), description)
    masks = {split: find_masks(reach, paths) for split, paths in images.items()}
    has_masks = any(map(any, masks.values()))
    unlabelled = [split for split, files in texts.items() if not (files.sizes_bytes != NOT_FOUND).any()]
    if len(unlabelled) == len(texts) and not has_masks:
        expected = next((files.path(0) for files in texts.values() if len(files)), name)
        raise malformed(name, f"have label files, such as {expected}", "none", "check the folders")
    warnings = [*warnings, *(f"{name}: the split {split} has no label files" for split in unlabelled)]
    sources: dict[str, AnnotatedFiles] = {}
    for split, paths in images.items():
        values: dict[str, Values] = {}
        if has_masks:
            values["mask"] = _listed(root, masks[split])
        sources[split] = AnnotatedFiles(
            kind="yolo",
            name=name,
            classes=classes,
            fields=(*reader.fields(), *[Field.mask()] * has_masks),
            warnings=tuple(warnings) if not sources else (),
            details={"yaml": description.further},
            is_upright=True,
            files=_listed(root, paths),
            values=values,
            texts=texts[split],
            reader=reader,
        )
    reasons |= _reasons(reach, images, labels)
    return Reading(
        sources,
        [inside for path in read if (inside := reach.inside(path)) is not None],
        {inside: reason for path, reason in reasons.items() if (inside := reach.inside(path)) is not None},
    )


def _reasons(
    reach: Reach, images: Mapping[str, Sequence[str]], labels: Mapping[str, LabelFiles]
) -> dict[str, LeftOutReason]:
    """Return the reasons to leave out caches, copies of labels, and labels without an image."""
    listing = reach.listing
    reasons = {
        listing.absolute(folder.join(name)): _CACHE
        for folder in listing.folders.values()
        for name in folder.others_with(".cache")
    }
    pairs: dict[tuple[str, str], None] = {}
    for split, paths in images.items():
        reasons |= dict.fromkeys(labels[split].copies, _COPY)
        folders = zip(map(os.path.dirname, paths), map(os.path.dirname, labels[split].paths), strict=True)
        pairs |= dict.fromkeys(folders)
    for images_folder, labels_folder in pairs:
        own = {*map(stem_of, reach.folder(images_folder).images)}
        for name in reach.folder(labels_folder).others_with(".txt"):
            if stem_of(name) not in own:
                reasons.setdefault(os.path.join(labels_folder, name), (NO_IMAGE_OF_NAME, False))
    return reasons


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


def _listed(root: str, paths: Sequence[str]) -> FileList:
    """List files by absolute paths; those below the root become relative to it."""
    prefix = os.path.join(root, "")
    return list_files(root, (path.removeprefix(prefix) for path in paths))
