"""YOLO datasets: a data.yaml, or a folder with images and label files.

The splits of a data.yaml are folders of images, lists of such folders, or .txt files that list images. As for
Ultralytics, the label file of images/train/a.jpg is labels/train/a.txt; otherwise it is in a folder `labels`
beside the image, or beside the image itself. An image without a label file has no objects. Images are sorted
by path. Coordinates refer to the upright image, because Ultralytics turns images by their EXIF orientation.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.annotations import first_with_boxes
from fastload.sources.files import NOT_FOUND, FileList, Values, list_files, read_text
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.malformed import malformed
from fastload.sources.protocol import evenly_spaced
from fastload.sources.walking import (
    by_split,
    images_below,
    is_image,
    list_entries,
    names_below,
    read_part,
    split_names,
    stem_of,
)
from fastload.sources.yolo.description import (
    CLASSES_FILES,
    YoloDescription,
    read_class_names,
    read_description,
)
from fastload.sources.yolo.rows import YoloReader, guess_task, scan_rows

NO_IMAGE_OF_NAME = "labels without an image of their name"

_YAML_SUFFIXES = (".yaml", ".yml")
_YAML_SPLITS = re.compile(rb"^(train|val|validation|test)\s*:", re.MULTILINE)
_YAML_NAMES = re.compile(rb"^(names|nc)\s*:", re.MULTILINE)
_DARKNET = "obj_train_data"  # Darknet's folder of images
_SCANNED = 5000
_SAMPLED = 256
_LEAST_ROW = 9  # the fewest bytes of a file with an object: `0 0 0 0 0`

# True for an image with a label file; stored if some of these files are empty.
_HAS_FILE = Field("has_file", "scalar", "bool", internal=True)


def open_yolo(path: str) -> dict[str, AnnotatedFiles] | None:
    """List a YOLO dataset by split: a data.yaml, a folder with one, or a folder of images and labels."""
    is_folder = os.path.isdir(path)
    files = [os.path.join(path, name) for name in list_entries(path).files] if is_folder else [path]
    found = [file for file in files if file.lower().endswith(_YAML_SUFFIXES) and _describes_splits(file)]
    if len(found) > 1:
        raise malformed(path, "hold one description of a dataset", ", ".join(found), "name one of them")
    if found:
        return _open_described(found[0])
    if not is_folder or not _images_by_split(path, _some_images):
        return None
    images = _images_by_split(path, images_below)
    return _list_splits(path, os.path.abspath(path), images, YoloDescription())


def _open_described(path: str) -> dict[str, AnnotatedFiles]:
    description = read_description(path)
    images = {split: _images_of(description, entries) for split, entries in description.splits.items()}
    if images.get("test") != []:
        return _list_splits(path, description.root, images, description)
    del images["test"]
    warning = f"{path}: its split test has no images, and is left out"
    return _list_splits(path, description.root, images, description, [warning])


def _describes_splits(path: str) -> bool:
    text = read_part(path)
    is_data_yaml = os.path.basename(path).lower() in ("data.yaml", "data.yml")  # must have names
    return bool(_YAML_SPLITS.search(text) and (is_data_yaml or _YAML_NAMES.search(text)))


def _images_by_split(path: str, images_of: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Return the images of each split of a folder without data.yaml; none if it is not a YOLO dataset."""
    root = os.path.abspath(path)
    entries = list_entries(root)
    top = os.path.join(root, "images") if "images" in entries.folders else root
    folders = split_names(list_entries(top).folders)
    if not folders and (top != root or any(map(is_image, entries.files))):
        folders = [""]
    elif not folders and _DARKNET in entries.folders:
        folders = [_DARKNET]
    images: dict[str, list[str]] = {}
    has_boxes = False
    for name in folders:
        folder = os.path.join(top, name).rstrip(os.sep)
        below = os.path.join(folder, "images")
        names = sorted(images_of(below if os.path.isdir(below) else folder))
        labels, place = _label_paths(names[:_SCANNED])
        found = [label for label in labels if os.path.isfile(label)]
        is_likely = place != "beside" or 2 * len(found) >= len(labels)
        has_boxes |= is_likely and first_with_boxes("", found) is not None
        if names:
            images[name if name != _DARKNET else ""] = names
    return by_split(path, images) if has_boxes else {}


def _images_of(description: YoloDescription, entries: Sequence[str]) -> list[str]:
    """Return the images of a split: those in folders, and those that .txt files list."""
    images: list[str] = []
    for path in entries:
        if os.path.isdir(path):
            images += images_below(path)
        elif path.lower().endswith(".txt") and os.path.isfile(path):
            folder = os.path.dirname(path)
            lines = filter(is_image, map(str.strip, read_text(path).split("\n")))
            images += [os.path.normpath(os.path.join(folder, line)) for line in lines]
        else:
            must = "have splits that are folders of images, or .txt files that list them"
            raise malformed(description.file, must, path, "correct `path` or the split")
    return sorted(images)


def _list_splits(
    path: str,
    root: str,
    images: Mapping[str, Sequence[str]],
    description: YoloDescription,
    warnings: Iterable[str] = (),
) -> dict[str, AnnotatedFiles]:
    labels: dict[str, FileList] = {}
    places: dict[str, str] = {}
    for split, names in images.items():
        paths, places[split] = _label_paths(names)
        labels[split] = _listed(root, paths)
    if not description.file:
        folders = {os.path.dirname(files.path(at)) for files in labels.values() for at in range(len(files))}
        found = read_class_names([root, os.path.join(root, "labels"), *sorted(folders)])
        description = replace(description, classes=found)
    reader, classes = _reader_of(labels.values(), description)
    masks = {split: _mask_paths(names) for split, names in images.items()}
    has_masks = any(map(any, masks.values()))
    unlabelled = [split for split, files in labels.items() if not (files.sizes_bytes != NOT_FOUND).any()]
    if len(unlabelled) == len(labels) and not has_masks:
        expected = next((files.path(0) for files in labels.values() if len(files)), path)
        raise malformed(path, f"have label files, such as {expected}", "none", "check the folders")
    warnings = [*warnings, *(f"{path}: the split {split} has no label files" for split in unlabelled)]
    has_empty = any(0 <= size < _LEAST_ROW for files in labels.values() for size in files.sizes_bytes)
    in_use = {name for files in labels.values() for name in files.names}
    lists = itertools.chain.from_iterable(description.splits.values())
    in_use.update(path.removeprefix(os.path.join(root, "")) for path in lists)
    sources: dict[str, AnnotatedFiles] = {}
    for split, names in images.items():
        values: dict[str, Values] = {}
        if has_empty:
            values[_HAS_FILE.name] = labels[split].sizes_bytes != NOT_FOUND
        if has_masks:
            values["mask"] = _listed(root, masks[split])
        sources[split] = AnnotatedFiles(
            kind="yolo",
            name=path,
            classes=classes,
            fields=(*reader.fields(), *[_HAS_FILE] * has_empty, *[Field.mask()] * has_masks),
            warnings=tuple(warnings) if not sources else (),
            left_out=_labels_without_image(labels[split], in_use),
            details={"labels": places[split], "yaml": description.further},
            is_upright=True,
            files=_listed(root, names),
            values=values,
            texts=labels[split],
            reader=reader,
        )
    return sources


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


def _label_paths(images: Sequence[str]) -> tuple[list[str], str]:
    """Return the path of each image's label file, and where the first one is, as `unpack` needs it.

    A folder's labels are in a folder `parallel` to `images`, in a folder `labels` `inside` it, or `beside`
    the images: in the first of these places that holds the label file of one of its images.
    """
    by_folder: dict[str, list[str]] = {}
    for image in images:
        by_folder.setdefault(os.path.dirname(image), []).append(image)
    places: dict[str, tuple[str, str]] = {}
    for folder, inside in by_folder.items():
        candidates = {"inside": os.path.join(folder, "labels"), "beside": folder}
        if parallel := _beside(folder, "labels"):
            candidates = {"parallel": parallel, **candidates}
        expected = {f"{stem_of(image)}.txt" for image in inside}
        default = ("parallel", parallel) if parallel else ("beside", folder)
        used = (each for each in candidates.items() if expected & {*list_entries(each[1]).files})
        places[folder] = next(used, default)
    paths = [os.path.join(places[os.path.dirname(image)][1], f"{stem_of(image)}.txt") for image in images]
    return paths, next(iter(places.values()), ("parallel", ""))[0]


def _mask_paths(images: Sequence[str]) -> list[str]:
    """Return each image's mask in a folder `masks` that is parallel to `images`, or "" without one."""

    @functools.cache
    def masks_beside(folder: str) -> dict[str, str]:
        masks = list_entries(_beside(folder, "masks") or os.devnull)
        return {stem_of(name): masks.join(name) for name in masks.files if is_image(name)}

    return [masks_beside(os.path.dirname(image)).get(stem_of(image), "") for image in images]


def _beside(folder: str, name: str) -> str:
    """Return the folder with the last `images` in its path replaced by `name`; "" if it has none."""
    before, images, after = (folder + os.sep).rpartition(f"{os.sep}images{os.sep}")
    return os.path.join(before, name, after).rstrip(os.sep) if images else ""


def _labels_without_image(labels: FileList, in_use: Container[str]) -> tuple[LeftOut, ...]:
    """Return the text files beside a split's labels that are not in use, as labels or lists of any split."""
    left_out = LeftOutFiles()
    for folder in sorted({os.path.dirname(name) for name in labels.names}):
        for name in list_entries(os.path.join(labels.folder, folder)).files:
            path = os.path.join(folder, name)
            if name.lower().endswith(".txt") and name not in CLASSES_FILES and path not in in_use:
                left_out.add(path, NO_IMAGE_OF_NAME)
    return left_out.finish()


def _some_images(folder: str) -> list[str]:
    """Return the first images found below a folder: enough to recognise a dataset."""
    found = (os.path.join(folder, name) for name in names_below(folder) if is_image(name))
    return list(itertools.islice(found, _SAMPLED))


def _listed(root: str, paths: Sequence[str]) -> FileList:
    """List files by absolute paths; those below the root become relative to it."""
    prefix = os.path.join(root, "")
    return list_files(root, (path.removeprefix(prefix) for path in paths))
