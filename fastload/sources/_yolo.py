"""YOLO datasets: a data.yaml, or a folder with images and label files.

The splits of a data.yaml are folders of images, lists of such folders, or .txt files that list images; the
label file of images/train/a.jpg is labels/train/a.txt, as for Ultralytics, else it is in a folder `labels`
beside the image, or beside the image itself. An image without one has no objects. Images are sorted by path.
Coordinates are those of the upright image, because Ultralytics turns images by their EXIF orientation.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field
from fastload.sources._annotated import HAS_FILE, AnnotatedFiles
from fastload.sources._annotations import first_with_boxes, names_below, read_part
from fastload.sources._malformed import malformed
from fastload.sources._walking import SPLITS, images_below, in_order, is_image, list_entries, stem_of
from fastload.sources._yolo_rows import YoloReader, guess_task, scan_rows
from fastload.sources._yolo_yaml import (
    CLASSES_FILES,
    YoloDescription,
    read_class_names,
    read_description,
)
from fastload.sources.files import NOT_FOUND, FileList, list_files
from fastload.sources.protocol import evenly_spaced

NO_IMAGE_OF_NAME = "labels without an image of their name"

_YAML_SUFFIXES = (".yaml", ".yml")
_YAML_SPLITS = re.compile(rb"^(train|val|validation|test)\s*:", re.MULTILINE)
_YAML_NAMES = re.compile(rb"^(names|nc)\s*:", re.MULTILINE)
_SCANNED = 5000
_SAMPLED = 256
_LEAST_ROW = 9  # bytes of a file with an object: `0 0 0 0 0`


def recognise(path: str) -> bool:
    """Return True for a data.yaml, a folder with one, and a folder of images and labels."""
    if not os.path.isdir(path):
        return path.lower().endswith(_YAML_SUFFIXES) and _describes_splits(path)
    return bool(_descriptions_in(path)) or bool(_folder_splits(path, _some_images))


def open_yolo(path: str) -> dict[str, AnnotatedFiles]:
    """List a YOLO dataset by split."""
    if os.path.isdir(path):
        found = _descriptions_in(path)
        if len(found) > 1:
            step = "name one of them"
            raise malformed(path, "hold one description of a dataset", ", ".join(found), step)
        if not found:
            return _list_splits(
                path, os.path.abspath(path), _folder_splits(path, images_below), YoloDescription()
            )
        path = os.path.join(path, found[0])
    description = read_description(path)
    images = {split: _images_of(description, entries) for split, entries in description.splits.items()}
    warnings = [f"{path}: its split test has no images, and is left out"] if images.get("test") == [] else []
    if warnings:
        del images["test"]
    return _list_splits(path, description.root, images, description, warnings)


def _descriptions_in(folder: str) -> list[str]:
    names = [name for name in list_entries(folder).files if name.lower().endswith(_YAML_SUFFIXES)]
    return [name for name in names if _describes_splits(os.path.join(folder, name))]


def _describes_splits(path: str) -> bool:
    text = read_part(path)
    is_data_yaml = os.path.basename(path).lower() in ("data.yaml", "data.yml")  # refused without names
    return bool(_YAML_SPLITS.search(text) and (is_data_yaml or _YAML_NAMES.search(text)))


def _folder_splits(path: str, images_of: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Return the images of each split of a folder without a description; nothing if it is no YOLO dataset."""
    root = os.path.abspath(path)
    entries = list_entries(root)
    top = os.path.join(root, "images") if "images" in entries.folders else root
    inner = [name for name in list_entries(top).folders if name.lower() in SPLITS]
    folders = {SPLITS[name.lower()]: os.path.join(top, name) for name in inner} or {"": top}
    if folders == {"": root} and not any(map(is_image, entries.files)):
        boxes = [name for name in entries.folders if name == "obj_train_data"]  # Darknet's
        folders = {"": os.path.join(root, boxes[0])} if boxes else {}
    images = {}
    for split, folder in folders.items():
        below = os.path.join(folder, "images")
        names = sorted(images_of(below if os.path.isdir(below) else folder))
        if not names:
            continue
        labels = _label_paths(names[:_SCANNED])
        found = [each for each in labels if os.path.isfile(each)]
        are_beside = all(
            os.path.dirname(a) == os.path.dirname(b) for a, b in zip(names, labels, strict=False)
        )
        if are_beside and 2 * len(found) < len(labels):
            continue
        if first_with_boxes("", found):
            images[split] = names
    return in_order(images)


def _images_of(description: YoloDescription, entries: Sequence[str]) -> list[str]:
    """Return the images of a split: those in folders, and those that .txt files list."""
    images: list[str] = []
    for path in entries:
        if os.path.isdir(path):
            images += images_below(path)
        elif path.lower().endswith(".txt") and os.path.isfile(path):
            with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
                lines = [line.strip() for line in file if line.strip()]
            folder = os.path.dirname(path)
            images += [os.path.normpath(os.path.join(folder, line)) for line in lines if is_image(line)]
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
    labels = {
        split: list_files(root, _relative(root, _label_paths(names))) for split, names in images.items()
    }
    if not description.file:
        places = {
            os.path.dirname(os.path.join(root, name)) for files in labels.values() for name in files.names
        }
        found = read_class_names([root, os.path.join(root, "labels"), *sorted(places)])
        description = replace(description, classes=found)
    reader, classes = _reader_of(labels.values(), description)
    masks = {split: _masks_of(root, names) for split, names in images.items()}
    has_masks = any(each is not None for each in masks.values())
    unlabelled = [split for split, files in labels.items() if not (files.sizes_bytes != NOT_FOUND).any()]
    if len(unlabelled) == len(labels) and not has_masks:
        expected = next((files.path(0) for files in labels.values() if len(files)), path)
        raise malformed(path, f"have label files, such as {expected}", "none", "check the folders")
    warnings = [*warnings, *(f"{path}: the split {split} has no label files" for split in unlabelled)]
    has_empty = any(0 <= size < _LEAST_ROW for files in labels.values() for size in files.sizes_bytes)
    fields = (
        *reader.fields(),
        *([HAS_FILE] if has_empty else ()),
        *([Field.mask()] if has_masks else ()),
    )
    sources: dict[str, AnnotatedFiles] = {}
    for split, names in images.items():
        mask = masks[split]
        sources[split] = AnnotatedFiles(
            kind="yolo",
            name=path,
            classes=classes,
            fields=fields,
            warnings=tuple(warnings) if not sources else (),
            left_out=tuple(_labels_without_image(labels[split])),
            details={"labels": _label_style(names, labels[split]), "yaml": description.further},
            is_upright=True,
            files=list_files(root, _relative(root, names)),
            texts=labels[split],
            reader=reader,
            further={"mask": mask or list_files(root, [""] * len(names))} if has_masks else {},
        )
    return sources


def _reader_of(
    labels: Iterable[FileList], description: YoloDescription
) -> tuple[YoloReader, tuple[str, ...]]:
    """Return the reader for all splits, and the names of the classes: without a description, numbers."""
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


def _label_paths(images: Sequence[str]) -> list[str]:
    """Return the path of each image's label file, by the first place that has a label of its folder."""
    by_folder: dict[str, list[str]] = {}
    for image in images:
        by_folder.setdefault(os.path.dirname(image), []).append(image)
    place = {folder: _label_folder(folder, inside) for folder, inside in by_folder.items()}
    return [os.path.join(place[os.path.dirname(image)], stem_of(image) + ".txt") for image in images]


def _label_folder(folder: str, images: Sequence[str]) -> str:
    candidates = [_beside(folder, "labels"), os.path.join(folder, "labels"), folder]
    for candidate in dict.fromkeys(each for each in candidates if each):
        names = {*list_entries(candidate).files}
        if any(f"{stem_of(image)}.txt" in names for image in images):
            return candidate
    return candidates[0] or folder


def _label_style(images: Sequence[str], labels: FileList) -> str:
    """Return the place of the label files: `parallel` to images, in a folder `labels`, or `beside` images."""
    for image, label in zip(images, labels.names, strict=True):
        folder, of_label = os.path.dirname(image), os.path.dirname(os.path.join(labels.folder, label))
        if folder == of_label:
            return "beside"
        return "inside" if of_label == os.path.join(folder, "labels") else "parallel"
    return "parallel"


def _masks_of(root: str, images: Sequence[str]) -> FileList | None:
    """Return the masks in a folder `masks` that is parallel to `images`; None if there are none."""
    names: dict[str, dict[str, str]] = {}
    paths = []
    for image in images:
        folder = _beside(os.path.dirname(image), "masks")
        if folder and folder not in names:
            files = list_entries(folder).files
            names[folder] = {stem_of(name): name for name in files if is_image(name)}
        name = names[folder].get(stem_of(image)) if folder else None
        paths.append(os.path.join(folder, name) if name else "")
    if not any(paths):
        return None
    return list_files(root, _relative(root, paths))


def _beside(folder: str, name: str) -> str:
    """Return the folder with its last part `images` replaced; "" if it has none."""
    before, images, after = (folder + os.sep).rpartition(f"{os.sep}images{os.sep}")
    return os.path.join(before, name, after).rstrip(os.sep) if images else ""


def _labels_without_image(labels: FileList) -> Iterator[LeftOut]:
    """Yield the label files beside those of the images."""
    folders = {os.path.dirname(name) for name in labels.names}
    expected = {*labels.names}
    for folder in sorted(folders):
        for name in list_entries(os.path.join(labels.folder, folder)).files:
            path = os.path.join(folder, name)
            if name.lower().endswith(".txt") and name not in CLASSES_FILES and path not in expected:
                yield LeftOut(path, NO_IMAGE_OF_NAME)


def _some_images(folder: str) -> list[str]:
    """Return the first images below a folder that the system lists: enough to recognise a dataset."""
    found = (os.path.join(folder, name) for name in names_below(folder) if is_image(name))
    return list(itertools.islice(found, _SAMPLED))


def _relative(root: str, paths: Sequence[str]) -> list[str]:
    prefix = os.path.join(root, "")
    return [path.removeprefix(prefix) for path in paths]
