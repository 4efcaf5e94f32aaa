"""Listing of class folders as in torchvision's ImageFolder, of splits of them, and of images alone.

The classes, the files and their order are those of ImageFolder. Where files are selected by content, those
without an image suffix are included if their first bytes say that they are images, in the order of their
names. A class without images keeps its label, with a warning.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fastload.errors import SourceError
from fastload.images.formats import HEAD_BYTES, NUMPY_FORMATS, format_of, unreadable_reason
from fastload.shards.schema import Field
from fastload.sources.account import balanced
from fastload.sources.file_source import FileSource
from fastload.sources.files import NO_LABEL, OUT_OF_DESCRIPTORS, FileList, NameTable
from fastload.sources.left_out import HIDDEN, NO_IMAGE, LeftOutFiles, explain_no_images
from fastload.sources.listing import Folder, Listing, head_of, stem_of, unlistable
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.protocol import CLASS_FOLDERS, IMAGES_ALONE
from fastload.sources.sniffing import ANNOTATION_SUFFIXES
from fastload.sources.splits import SPLITS, by_split, split_names
from fastload.sources.words import has_stem

BESIDE_CLASSES = "an image beside the class folders"
BESIDE_SPLITS = "an image beside the splits"
TEXT_OF_IMAGE = "a text named as the image beside it, which a table with a column for each would keep"


ARRAY_BESIDE = "an array, where other files are images"


class Selection:
    """Choice of the images in each folder of a listing, by suffix alone or also by content.

    By content, the files that are not chosen are counted, and recorded with the reason.
    """

    def __init__(self, listing: Listing, *, by_content: bool) -> None:
        self.listing = listing
        self.by_content = by_content
        self.left_out = LeftOutFiles()
        self._has_images = any(folder.images for folder in listing.folders.values())

    def images(self, folder: Folder) -> list[str]:
        """Return the names of the images directly in a folder, sorted."""
        if not self.by_content or not folder.others:
            return folder.images
        found = [name for name in folder.others if self._is_image(folder, name)]
        return sorted((*folder.images, *found)) if found else folder.images

    def leave_out(self, paths: Iterable[str], reason: str) -> None:
        """Record images as left out."""
        for path in paths if self.by_content else ():
            self.left_out.add(path, reason)

    def _is_image(self, folder: Folder, name: str) -> bool:
        key = folder.join(name)
        # Files below hidden folders are not opened: the .git of a clone holds its images a second time.
        reason = HIDDEN if folder.is_hidden else self._reason_to_leave_out(key)
        if reason is None:
            return True
        if reason is NO_IMAGE and name.lower().endswith(ANNOTATION_SUFFIXES):
            reason = TEXT_OF_IMAGE if has_stem(folder.images, stem_of(name)) else NO_IMAGE
        self.left_out.add(key, reason)
        return False

    def _reason_to_leave_out(self, key: str) -> str | None:
        path = self.listing.absolute(key)
        try:
            head = head_of(path, HEAD_BYTES)
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise unlistable(path, error) from error
            return f"cannot be read: {error.strerror}"
        image_format = format_of(head, os.path.splitext(key)[1])
        if image_format is None:
            return NO_IMAGE
        is_beside = image_format in NUMPY_FORMATS and self._has_images
        return ARRAY_BESIDE if is_beside else unreadable_reason(image_format, head)


def list_classes(listing: Listing, *, by_content: bool) -> dict[str, FileSource]:
    """List the images of a folder by split, train first, or under the name "" if there are no splits.

    Folders named after two or more splits (train, val, test), or a single folder named after train, give one
    source per split, with a shared class list; a split without images is left out. Otherwise the subfolders
    are the classes; if none of them holds an image, the folder's own images are listed with the label -1.

    SourceError is raised for a folder without images, and for one with more images beside class folders than
    in them.
    """
    selection = Selection(listing, by_content=by_content)
    splits = split_folders(listing.name, listing.top.visible)
    sources = _list_splits(selection, splits) if splits else {"": _list_one(selection, listing.top)}
    if not any(map(len, sources.values())):
        selection = Selection(listing, by_content=True)
        for folder in listing.folders.values():
            selection.images(folder)
        raise SourceError(explain_no_images(listing.name, selection.left_out.finish()))
    left_out = selection.left_out.finish()
    if by_content:
        first = next(iter(sources.values()))
        first.left_out = left_out
        first.account = balanced(listing, sum(map(len, sources.values())), 0, left_out)
    return sources


def split_folders(where: str, folders: Sequence[str]) -> dict[str, str]:
    """Return the folder of each split; nothing if the folders are classes."""
    named = split_names(folders)
    found = {SPLITS[folder.lower()] for folder in named}
    is_only_train = found == {"train"} and len(folders) == 1
    return by_split(where, {folder: folder for folder in named}) if len(found) > 1 or is_only_train else {}


def _list_splits(selection: Selection, splits: Mapping[str, str]) -> dict[str, FileSource]:
    listing = selection.listing
    sources = {split: _list_one(selection, listing[folder]) for split, folder in splits.items()}
    beside = [listing.top]
    for name in listing.top.folders:
        beside += listing.below(name) if name not in splits.values() else []
    for folder in beside:
        selection.leave_out(map(folder.join, selection.images(folder)), BESIDE_SPLITS)
    full = {split: source for split, source in sources.items() if len(source)}
    warnings = []
    if len(full) < len(sources):
        names = in_quotes([splits[split] for split in sources if split not in full])
        warnings.append(f"{listing.name} has splits without images, which are left out: {names}")
    return _with_one_class_list(full, warnings) if full else {}


def _with_one_class_list(sources: Mapping[str, FileSource], warnings: Sequence[str]) -> dict[str, FileSource]:
    """Return the sources relabelled to the union of their classes, with the warnings in the first one."""
    classes = sorted({name for source in sources.values() for name in source.classes})
    position = {name: label for label, name in enumerate(classes)}
    common: dict[str, FileSource] = {}
    for split, source in sources.items():
        # The entry at the end is the one that NO_LABEL, -1, selects.
        new_label = np.array([*(position[name] for name in source.classes), NO_LABEL], dtype=np.int64)
        labels = source.values["label"]
        assert isinstance(labels, np.ndarray)
        notes = (*(() if common else warnings), *source.warnings, *_missing_classes(source, classes))
        common[split] = replace(
            source, classes=tuple(classes), values={"label": new_label[labels]}, warnings=notes
        )
    return common


def _missing_classes(source: FileSource, classes: Sequence[str]) -> Iterator[str]:
    absent = sorted({*classes} - {*source.classes})
    if absent and source.kind == IMAGES_ALONE:
        yield f"{source.name} has no class folders: its images get the label {NO_LABEL}"
    elif absent:
        yield f"{source.name} lacks classes that other splits have: {in_quotes(absent)}"


def _list_one(selection: Selection, top: Folder) -> FileSource:
    """List the class folders in a folder or, if they hold no images, the images beside them."""
    listing = selection.listing
    loose, classes = selection.images(top), top.folders
    names, counts = NameTable(), array("q")
    skipped = len(top.path) + 1 if top.path else 0
    for name in classes:
        before = len(names)
        for folder in listing.below(top.join(name)):
            inner = folder.path[skipped:]
            names.extend([f"{inner}/{image}" for image in selection.images(folder)])
        counts.append(len(names) - before)
    warnings: tuple[str, ...]
    is_visible = any(count and not name.startswith(".") for name, count in zip(classes, counts, strict=True))
    if loose and not (is_visible or (len(names) and not selection.by_content)):
        selection.leave_out(map(top.join, names), HIDDEN)
        labels, kind, classes = np.full(len(loose), NO_LABEL, np.int64), IMAGES_ALONE, []
        names, warnings = NameTable(loose), ()
    else:
        _require_few_beside(selection, top, len(loose), len(names))
        selection.leave_out(map(top.join, loose), BESIDE_CLASSES)
        labels, kind = np.repeat(np.arange(len(classes)), counts), CLASS_FOLDERS
        warnings = tuple(_odd_classes(listing.shown(top.path), classes, counts))
    return FileSource(
        kind=kind,
        name=listing.shown(top.path),
        classes=tuple(classes),
        fields=(Field.label(),),
        warnings=warnings,
        files=FileList(listing.absolute(top.path), names),
        values={"label": labels},
    )


def _require_few_beside(selection: Selection, top: Folder, beside: int, inside: int) -> None:
    """Raise SourceError if more images lie beside class folders than in them."""
    if selection.by_content and beside > inside > 0:
        must = "have its images in class folders, or no class folders"
        got = f"{beside:,} beside the folders {in_quotes(top.folders)}, and {inside:,} in these"
        step = "move the folders elsewhere, or the images into class folders"
        raise malformed(selection.listing.shown(top.path), must, got, step)


def _odd_classes(path: str, classes: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    empty = [name for name, count in zip(classes, counts, strict=True) if not count]
    if empty:
        yield f"{path} has classes without images, which keep their labels: {in_quotes(empty)}"
    hidden = [name for name in classes if name.startswith(".")]
    if hidden:
        yield f"{path} has hidden folders, which are classes as in ImageFolder: {in_quotes(hidden)}"
