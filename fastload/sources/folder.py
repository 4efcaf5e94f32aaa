"""Lists a folder of images: by classes as torchvision's ImageFolder does, by splits, or flat.

The classes, the files and their order are those of ImageFolder. Three things differ, all of them
loudly: a folder that cannot be listed is an error instead of being passed over, so is a symbolic
link that leads back into its own path, and a class without images is kept with a warning instead
of being refused.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources.files import NO_LABEL, FileLister, FileSource

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What an image file's name ends in, in any case: torchvision's IMG_EXTENSIONS."""

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


def list_folder(path: str) -> dict[str, FileSource]:
    """Lists the images of a folder.

    Folders named after two splits or more (train, val, test), or after train and nothing beside it,
    make one source a split, with one class list; a split without images is left out. Otherwise the
    folder is one source, under the name "": its folders are the classes; or, where none of them
    holds an image, its own images are listed, with the label -1. Class folders without any image at
    all make a source without records.

    Args:
        path: The folder.

    Returns:
        The sources by split, train first.

    Raises:
        SourceError: There is neither an image nor a class folder, a folder cannot be listed, or links
            lead in a circle.
    """
    folders, images = _scan(path)
    splits = _split_folders(path, folders)
    if not splits:
        source = _list_one(path)
        if not len(source) and not source.classes:
            raise SourceError(_no_images(path))
        return {"": source}
    listed = {split: _list_one(os.path.join(path, folder)) for split, folder in splits.items()}
    # Where no split has an image, those with class folders stay, without records.
    sources = {split: source for split, source in listed.items() if len(source)} or {
        split: source for split, source in listed.items() if source.classes
    }
    if not sources:
        raise SourceError(_no_images(path))
    warnings = _left_out({*folders, *images} - {*splits.values()}, "the splits")
    if len(sources) < len(splits):
        empty = [folder for split, folder in splits.items() if split not in sources]
        warnings.append(f"{path} has splits without images, which are left out: {_some(empty)}")
    return _with_one_class_list(sources, warnings)


def _no_images(path: str) -> str:
    return (
        f"{path}: must hold images ({', '.join(IMAGE_SUFFIXES)}) or class folders of images, "
        "got none: check the path"
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


def _list_one(path: str) -> FileSource:
    root = os.path.abspath(path)
    classes, loose = _scan(root)
    lister = FileLister(root)
    labels = array("q")
    for label, folder in enumerate(classes):
        for name in _images_below(root, folder):
            lister.add(name)
            labels.append(label)
    if loose and not labels:
        return _list_flat(path, loose, classes)
    warnings = [
        *_left_out(loose, "the class folders"),
        *_odd_classes(path, classes, np.array(labels)),
    ]
    return FileSource(
        "folder",
        path,
        tuple(classes),
        (Field.label(),),
        lister.finish(),
        {"label": np.array(labels)},
        tuple(warnings),
    )


def _list_flat(path: str, images: Sequence[str], folders: Sequence[str]) -> FileSource:
    lister = FileLister(os.path.abspath(path))
    for name in images:
        lister.add(name)
    labels = np.full(len(images), NO_LABEL, dtype=np.int64)
    warnings = _left_out(folders, "the images")
    return FileSource("flat", path, (), (Field.label(),), lister.finish(), {"label": labels}, tuple(warnings))


def _left_out(names: Sequence[str] | set[str], beside: str) -> list[str]:
    return [f"left out, because they lie beside {beside}: {_some(sorted(names))}"] if names else []


def _odd_classes(path: str, classes: Sequence[str], labels: npt.NDArray[np.int64]) -> Iterator[str]:
    counts = np.bincount(labels, minlength=len(classes))
    empty = [name for name, count in zip(classes, counts, strict=True) if not count]
    if empty:
        yield f"{path} has classes without images, which keep their labels: {_some(empty)}"
    hidden = [name for name in classes if name.startswith(".")]
    if hidden:
        yield f"{path} has hidden folders, which are classes as in ImageFolder: {_some(hidden)}"


def _some(names: Sequence[str], limit: int = 5) -> str:
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def _images_below(root: str, top: str) -> Iterator[str]:
    """The images under a class folder, relative to root, in the order of `sorted(os.walk(...))`."""
    found: dict[str, list[str]] = {}
    pending: list[tuple[str, tuple[tuple[int, int], ...]]] = [(top, (_identity(root),))]
    while pending:
        folder, above = pending.pop()
        path = os.path.join(root, folder)
        identity = _identity(path)
        if identity in above:
            raise SourceError(
                f"{path}: must not be a link to a folder that it lies in, got one to "
                f"{os.path.realpath(path)}: remove the link"
            )
        folders, found[folder] = _scan(path)
        pending += [(f"{folder}/{name}", (*above, identity)) for name in folders]
    for folder in sorted(found):
        for name in found[folder]:
            yield f"{folder}/{name}"


def _identity(path: str) -> tuple[int, int]:
    """What two paths share exactly when they lead to the same folder."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unlistable(path, error) from error
    return status.st_dev, status.st_ino


def _scan(path: str) -> tuple[list[str], list[str]]:
    """The names of the folders and of the images that lie directly in a folder, each sorted."""
    folders, images = [], []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if _is_folder(entry):
                    folders.append(entry.name)
                elif entry.name.lower().endswith(IMAGE_SUFFIXES):
                    images.append(entry.name)
    except OSError as error:
        raise _unlistable(path, error) from error
    return sorted(folders), sorted(images)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself is no folder; reading it will say what it is
        return False


def _unlistable(path: str, error: OSError) -> SourceError:
    return SourceError(
        f"{path}: must be a folder that can be listed, got: {error.strerror}: "
        "make it readable, or move it elsewhere"
    )
