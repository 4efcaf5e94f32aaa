"""Folders of images as sources: class folders as in torchvision's ImageFolder, splits, or loose images.

The classes, the files and their order are those of ImageFolder. Files without an image suffix are included if
their content is an image, in the order of their names. All other files are recorded with a reason. Unlike in
ImageFolder, a folder that cannot be listed and a link back into its own path are errors, and a class without
images keeps its label, with a warning.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field
from fastload.sources.files import NO_LABEL, FileSource, list_files
from fastload.sources.left_out import HIDDEN
from fastload.sources.malformed import malformed
from fastload.sources.refused import IMAGE_FOLDERS, explain_no_images, refuse_other_layouts
from fastload.sources.walking import IMAGE_SUFFIXES, SPLITS, Walk, by_split, list_entries, split_names

BESIDE_CLASSES = "an image beside the class folders"
BESIDE_SPLITS = "an image beside the splits"


def list_folder(path: str, *, by_content: bool = True) -> dict[str, FileSource]:
    """List the images of a folder by split, train first, or under the name "" if there are no splits.

    Folders named after two or more splits (train, val, test), or a single folder named after train, give one
    source per split, with a shared class list; a split without images is left out. Otherwise the subfolders
    are the classes; if none of them holds an image, the folder's own images are listed with the label -1.

    With `by_content`, images are listed under any name, and other files are recorded as left out; otherwise
    only the files of ImageFolder are listed. SourceError is raised for a folder that cannot be listed, a
    circular link, a folder without images, one with more images beside class folders than in them, and a
    layout that holds more than labels.
    """
    refuse_other_layouts(path)
    walk = Walk(os.path.abspath(path), by_content=by_content)
    folders, images = walk.scan()
    splits = _split_folders(path, folders)
    if splits:
        return _list_splits(path, walk, splits, folders, images)
    if len(folders) == 1 and not images:
        _refuse_wrapped_splits(path, folders[0])
    source = _list_one(path, walk, folders, images)
    if not len(source):
        raise _no_images(path, walk, source.left_out)
    return {"": source}


def _list_splits(
    path: str, walk: Walk, splits: Mapping[str, str], folders: Sequence[str], images: Sequence[str]
) -> dict[str, FileSource]:
    sources = {}
    for split, folder in splits.items():
        split_walk = Walk(os.path.join(walk.root, folder), by_content=walk.by_content)
        sources[split] = _list_one(os.path.join(path, folder), split_walk, *split_walk.scan())
    _leave_out_beside_splits(walk, [folder for folder in folders if folder not in splits.values()], images)
    left_out = [_moved(entry, "..") for entry in walk.left_out]
    warnings = []
    empty = [split for split, source in sources.items() if not len(source)]
    for split in empty:
        source = sources.pop(split)
        left_out += [_moved(entry, f"../{splits[split]}") for entry in source.left_out]
    if not sources:
        raise _no_images(path, walk, left_out)
    if empty:
        names = _quoted([splits[split] for split in empty])
        warnings.append(f"{path} has splits without images, which are left out: {names}")
    _refuse_unlabelled_split(sources)
    # Files outside all splits are recorded with the first split, with keys relative to it.
    first = next(iter(sources))
    sources[first] = replace(sources[first], left_out=(*sources[first].left_out, *left_out))
    return _with_one_class_list(sources, warnings)


def _leave_out_beside_splits(walk: Walk, folders: Sequence[str], images: Sequence[str]) -> None:
    """Record the images beside the splits; for a hidden folder, record only the folder itself."""
    for folder in folders:
        if folder.startswith("."):
            walk.leave_out(f"{folder}/", HIDDEN, is_clutter=True)
        elif walk.by_content:
            for name in walk.images_below(folder):
                walk.leave_out(name, BESIDE_SPLITS)
    for name in images:
        walk.leave_out(name, BESIDE_SPLITS)


def _moved(entry: LeftOut, folder: str) -> LeftOut:
    return replace(entry, key=f"{folder}/{entry.key}")


def _no_images(path: str, walk: Walk, left_out: Sequence[LeftOut]) -> SourceError:
    if walk.by_content:
        return SourceError(explain_no_images(path, left_out))
    list_folder(path)  # raises the proper error if there are no images by content either
    must = f"hold images with a usual suffix ({', '.join(IMAGE_SUFFIXES)})"
    step = "rename them, or pack the folder, which recognises images by content"
    return malformed(path, must, "only images under other names", step)


def _refuse_unlabelled_split(sources: Mapping[str, FileSource]) -> None:
    """Raise SourceError if a split's only folder holds all of its images, as in Tiny ImageNet's val."""
    for source in sources.values():
        others = {name for other in sources.values() if other is not source for name in other.classes}
        if len(source.classes) == 1 and others - {*source.classes} and source.classes[0] not in others:
            [folder] = source.classes
            if folder.lower() in IMAGE_FOLDERS:
                got = f"{folder!r} alone, which would become a class"
                step = "sort its images into class folders, or pack a table of their paths and labels"
                raise malformed(source.name, "have class folders as the other splits have", got, step)


def _split_folders(path: str, folders: Sequence[str]) -> dict[str, str]:
    """Return the folder of each split; nothing if the folders are classes."""
    visible = [folder for folder in folders if not folder.startswith(".")]
    named = split_names(visible)
    found = {SPLITS[folder.lower()] for folder in named}
    is_only_train = found == {"train"} and len(visible) == 1
    return by_split(path, {folder: folder for folder in named}) if len(found) > 1 or is_only_train else {}


def _refuse_wrapped_splits(path: str, folder: str) -> None:
    """Raise SourceError if the only folder in a folder holds splits: its name would become the only class."""
    inner = os.path.join(path, folder)
    splits = sorted(_split_folders(inner, list_entries(inner).folders).values())
    if len(splits) > 1:
        got = f"one folder, {folder!r}, which is split into {_quoted(splits)} and would become the only class"
        step = f"pack it instead ('fastload pack {inner} DEST')"
        raise malformed(path, "hold class folders, splits or images", got, step)


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
    if absent and source.kind == "flat":
        yield f"{source.name} has no class folders: its images get the label {NO_LABEL}"
    elif absent:
        yield f"{source.name} lacks classes that other splits have: {_quoted(absent)}"


def _list_one(path: str, walk: Walk, classes: Sequence[str], loose: Sequence[str]) -> FileSource:
    """List a folder without splits: its class folders, or else its loose images."""
    class_of_each = array("q")

    def classified() -> Iterator[str]:
        for label, folder in enumerate(classes):
            for name in walk.images_below(folder):
                class_of_each.append(label)
                yield name

    files = list_files(walk.root, classified())
    labels = np.array(class_of_each, np.int64)
    warnings: tuple[str, ...]
    are_all_hidden = walk.by_content and all(classes[label].startswith(".") for label in {*class_of_each})
    if loose and (not class_of_each or are_all_hidden):
        for name in files.names:
            walk.leave_out(name, HIDDEN, is_clutter=True)
        kind, classes, warnings = "flat", (), ()
        files, labels = list_files(walk.root, loose), np.full(len(loose), NO_LABEL, np.int64)
    else:
        if walk.by_content and len(loose) > len(labels):
            must = "have its images in class folders, or no class folders"
            got = f"{len(loose):,} beside the folders {_quoted(classes)}, and {len(labels):,} in these"
            step = "move the folders elsewhere, or the images into class folders"
            raise malformed(path, must, got, step)
        for name in loose:
            walk.leave_out(name, BESIDE_CLASSES)
        kind, warnings = "folder", tuple(_odd_classes(path, classes, labels))
    return FileSource(
        kind=kind,
        name=path,
        classes=tuple(classes),
        fields=(Field.label(),),
        warnings=warnings,
        files=files,
        values={"label": labels},
        left_out=walk.left_out,
    )


def _odd_classes(path: str, classes: Sequence[str], labels: npt.NDArray[np.int64]) -> Iterator[str]:
    counts = np.bincount(labels, minlength=len(classes))
    empty = [name for name, count in zip(classes, counts, strict=True) if not count]
    if empty:
        yield f"{path} has classes without images, which keep their labels: {_quoted(empty)}"
    hidden = [name for name in classes if name.startswith(".")]
    if hidden:
        yield f"{path} has hidden folders, which are classes as in ImageFolder: {_quoted(hidden)}"


def _quoted(names: Sequence[str], limit: int = 5) -> str:
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
