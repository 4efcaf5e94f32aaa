"""Lists a folder of images: by classes as torchvision's ImageFolder does, by splits, or flat.

The classes, the files and their order are those of ImageFolder. Files that it does not take, because
of their names, are taken where their content is an image, and stand where their names sort. What is
not taken is listed with its reason. A folder that cannot be listed is an error instead of being
passed over, so is a symbolic link that leads back into its own path, and a class without images is
kept with a warning instead of being refused.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut, Skipped
from fastload.shards.schema import Field
from fastload.sources.files import NO_LABEL, FileLister, FileSource
from fastload.sources.foreign import explain_no_images
from fastload.sources.layouts import IMAGE_FOLDERS, refuse_other_layouts
from fastload.sources.left_out import HIDDEN
from fastload.sources.walking import IMAGE_SUFFIXES, Walk, is_folder

SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
"""Which split a folder's name stands for, in any case; in the order in which splits are packed."""

_Entry = TypeVar("_Entry", LeftOut, Skipped)

BESIDE_CLASSES = "an image beside the class folders"
BESIDE_SPLITS = "an image beside the splits"


def list_folder(
    path: str, *, by_content: bool = True, skips_unlistable: bool = False
) -> dict[str, FileSource]:
    """Lists the images of a folder.

    Folders named after two splits or more (train, val, test), or after train and nothing beside it,
    make one source a split, with one class list; a split without images is left out. Otherwise the
    folder is one source, under the name "": its folders are the classes; or, where none of them
    holds an image, its own images are listed, with the label -1.

    Args:
        path: The folder.
        by_content: Whether to take images whatever they are named, and to list what is left out;
            False for just the files that ImageFolder takes.
        skips_unlistable: Whether to go on without folders below it that cannot be listed and links
            that lead in a circle, and to list these as `unlisted`.

    Returns:
        The sources by split, train first.

    Raises:
        SourceError: There is no image, more of them beside class folders than within, or a layout
            that holds more than labels; a folder cannot be listed, or links lead in a circle.
    """
    refuse_other_layouts(path)
    listing = _Listing(path, by_content, skips_unlistable)
    whole = listing.walk()
    folders, images = whole.scan()
    splits = _split_folders(path, folders)
    if splits:
        return _list_splits(listing, whole, splits, folders, images)
    if len(folders) == 1 and not images:
        _refuse_wrapped_splits(path, folders[0])
    source = _list_one(path, whole, folders, images)
    if not len(source):
        raise SourceError(_no_images(listing, source.unlisted, source.left_out))
    return {"": source}


@dataclass(frozen=True, slots=True)
class _Listing:
    """What `list_folder` was asked for."""

    path: str
    by_content: bool
    skips_unlistable: bool

    def walk(self, folder: str = "") -> Walk:
        """A walk below the path, or below one of its folders."""
        root = os.path.abspath(os.path.join(self.path, folder))
        return Walk(root, by_content=self.by_content, skips_unlistable=self.skips_unlistable)


def _list_splits(
    listing: _Listing, whole: Walk, splits: Mapping[str, str], folders: Sequence[str], images: Sequence[str]
) -> dict[str, FileSource]:
    sources = {}
    for split, folder in splits.items():
        walk = listing.walk(folder)
        sources[split] = _list_one(os.path.join(listing.path, folder), walk, *walk.scan())
    others = [folder for folder in folders if folder not in splits.values()]
    left_out = [_moved(entry, "..") for entry in _beside_splits(whole, others, images)]
    unlisted = [_moved(entry, "..") for entry in whole.unlisted]
    warnings = []
    empty = [split for split, source in sources.items() if not len(source)]
    for split in empty:
        source = sources.pop(split)
        left_out += [_moved(entry, f"../{splits[split]}") for entry in source.left_out]
        unlisted += [_moved(entry, f"../{splits[split]}") for entry in source.unlisted]
    if not sources:
        raise SourceError(_no_images(listing, unlisted, left_out))
    if empty:
        names = _some([splits[split] for split in empty])
        warnings.append(f"{listing.path} has splits without images, which are left out: {names}")
    _refuse_unlabelled_split(sources)
    # What belongs to no split is listed with the first one, its keys counting from there.
    first = next(iter(sources))
    sources[first] = replace(
        sources[first],
        left_out=(*sources[first].left_out, *left_out),
        unlisted=(*sources[first].unlisted, *unlisted),
    )
    return _with_one_class_list(sources, warnings)


def _beside_splits(whole: Walk, folders: Sequence[str], images: Sequence[str]) -> tuple[LeftOut, ...]:
    """What lies beside the splits; of a hidden folder, the folder alone."""
    for folder in folders:
        if folder.startswith("."):
            whole.leave_out(f"{folder}/", HIDDEN, is_clutter=True)
        elif whole.by_content:
            for name in whole.images_below(folder):
                whole.leave_out(name, BESIDE_SPLITS)
    for name in images:
        whole.leave_out(name, BESIDE_SPLITS)
    return whole.left_out


def _moved(entry: _Entry, folder: str) -> _Entry:
    return replace(entry, key=f"{folder}/{entry.key}")


def _no_images(listing: _Listing, unlisted: Sequence[Skipped], left_out: Sequence[LeftOut]) -> str:
    if unlisted:
        return unlisted[0].reason
    if listing.by_content:
        return explain_no_images(listing.path, left_out)
    list_folder(listing.path)  # says what the folder holds, where there is no image by content either
    return (
        f"{listing.path}: must hold images by their names ({', '.join(IMAGE_SUFFIXES)}), got images under "
        "other names alone: rename them, or pack the folder, for which the content counts"
    )


def _refuse_unlabelled_split(sources: Mapping[str, FileSource]) -> None:
    """Refuses a split whose only folder holds its images, and no class, as Tiny ImageNet's val/images."""
    for source in sources.values():
        others = {name for other in sources.values() if other is not source for name in other.classes}
        if len(source.classes) == 1 and others - {*source.classes} and source.classes[0] not in others:
            [folder] = source.classes
            if folder.lower() in IMAGE_FOLDERS:
                raise SourceError(
                    f"{source.name}: must have class folders as the other splits have, got {folder!r} alone, "
                    "which would become a class: sort its images into class folders, or pack a table of "
                    "their paths and labels"
                )


def _split_folders(path: str, folders: Sequence[str]) -> dict[str, str]:
    """The folder of each split; none where the folders are not splits but classes."""
    visible = [folder for folder in folders if not folder.startswith(".")]
    named = [(SPLITS[folder.lower()], folder) for folder in visible if folder.lower() in SPLITS]
    found = {split for split, _ in named}
    is_only_train = found == {"train"} and len(visible) == 1
    if len(found) < 2 and not is_only_train:
        return {}
    if len(named) > len(found):
        raise SourceError(
            f"{path}: must have one folder a split, got {_some([folder for _, folder in named])}: "
            "rename or move those that are not meant"
        )
    folder_of = dict(named)
    return {split: folder_of[split] for split in dict.fromkeys(SPLITS.values()) if split in folder_of}


def _refuse_wrapped_splits(path: str, folder: str) -> None:
    """Refuses a folder that holds nothing but one that is split, whose name would become the only class."""
    inner = os.path.join(path, folder)
    try:
        with os.scandir(inner) as entries:
            splits = sorted(
                _split_folders(inner, [each.name for each in entries if is_folder(each)]).values()
            )
    except OSError:
        return  # the listing says so
    if len(splits) > 1:
        raise SourceError(
            f"{path}: must hold class folders, splits or images, got one folder, {folder!r}, which is split "
            f"into {_some(splits)}, and would become the only class: pack it instead ('fastload pack {inner} "
            "DEST')"
        )


def _with_one_class_list(sources: Mapping[str, FileSource], warnings: Sequence[str]) -> dict[str, FileSource]:
    """The sources relabelled into the union of their classes; the first one gets the warnings."""
    classes = sorted({name for source in sources.values() for name in source.classes})
    position = {name: label for label, name in enumerate(classes)}
    common: dict[str, FileSource] = {}
    for split, source in sources.items():
        # The entry at the end is the one that NO_LABEL, -1, picks.
        new_label = np.array([*(position[name] for name in source.classes), NO_LABEL], dtype=np.int64)
        labels = source.values["label"]
        assert isinstance(labels, np.ndarray)
        notes = (*(() if common else warnings), *source.warnings, *_missing(source, classes))
        common[split] = replace(
            source, classes=tuple(classes), values={"label": new_label[labels]}, warnings=notes
        )
    return common


def _missing(source: FileSource, classes: Sequence[str]) -> list[str]:
    """Says which of the other splits' classes a split does not have."""
    absent = sorted({*classes} - {*source.classes})
    if not absent:
        return []
    if source.kind == "flat":
        return [f"{source.name} has no class folders: its images get the label {NO_LABEL}"]
    return [f"{source.name} lacks classes that other splits have: {_some(absent)}"]


def _list_one(path: str, walk: Walk, classes: Sequence[str], loose: Sequence[str]) -> FileSource:
    lister = FileLister(walk.root)
    labels = array("q")
    inner: dict[str, set[str]] = {}
    for label, folder in enumerate(classes):
        for name in walk.images_below(folder):
            lister.add(name)
            labels.append(label)
            inner.setdefault(folder, set()).add(name[len(folder) + 1 :].rpartition("/")[0].partition("/")[0])
    if loose and (
        not labels or (walk.by_content and all(classes[label].startswith(".") for label in {*labels}))
    ):
        for name in lister.finish().names:
            walk.leave_out(name, HIDDEN, is_clutter=True)
        return _list_flat(path, walk, loose)
    if walk.by_content and len(loose) > len(labels):
        raise SourceError(
            f"{path}: must have its images in class folders or beside none, got {len(loose):,} beside "
            f"the folders {_some(classes)}, and {len(labels):,} in these: move the folders elsewhere, "
            "or the images into class folders"
        )
    for name in loose:
        walk.leave_out(name, BESIDE_CLASSES)
    return FileSource(
        "folder",
        path,
        tuple(classes),
        (Field.label(),),
        lister.finish(),
        {"label": np.array(labels, np.int64)},
        (*_odd_classes(path, classes, np.array(labels, np.int64)), *_repeated_folders(path, inner)),
        left_out=walk.left_out,
        unlisted=tuple(walk.unlisted),
    )


def _list_flat(path: str, walk: Walk, images: Sequence[str]) -> FileSource:
    lister = FileLister(walk.root)
    for name in images:
        lister.add(name)
    labels = np.full(len(images), NO_LABEL, dtype=np.int64)
    return FileSource(
        "flat",
        path,
        (),
        (Field.label(),),
        lister.finish(),
        {"label": labels},
        left_out=walk.left_out,
        unlisted=tuple(walk.unlisted),
    )


def _odd_classes(path: str, classes: Sequence[str], labels: npt.NDArray[np.int64]) -> Iterator[str]:
    counts = np.bincount(labels, minlength=len(classes))
    empty = [name for name, count in zip(classes, counts, strict=True) if not count]
    if empty:
        yield f"{path} has classes without images, which keep their labels: {_some(empty)}"
    hidden = [name for name in classes if name.startswith(".")]
    if hidden:
        yield f"{path} has hidden folders, which are classes as in ImageFolder: {_some(hidden)}"


def _repeated_folders(path: str, inner: Mapping[str, set[str]]) -> Iterator[str]:
    """Says that folders look like splits or a wrapping instead of classes, which may be what is in them.

    Args:
        path: The source, for the message.
        inner: Of each class, the folders in it that hold its images; "" where it holds some itself.
    """
    shared = sorted(set.intersection(*inner.values())) if inner else []
    if not shared or "" in shared or (len(inner) == 1 and len(shared) == 1):
        return
    yield (
        f"{path}: its folders {_some([*inner])} are taken for the classes, but each holds the folders "
        f"{_some(shared)}: if these are the classes, pack each of the former by itself, or rename them to "
        "train, val and test"
    )


def _some(names: Sequence[str], limit: int = 5) -> str:
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
