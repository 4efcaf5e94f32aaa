"""Pascal VOC datasets: JPEGImages with Annotations, masks and splits; or XML files beside the images.

Splits are those of ImageSets/Main, or of ImageSets/Segmentation if there are only masks; without lists, all
images are packed. The classes are numbered in the order of their names, as in VOC itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.annotations import boxes_beside
from fastload.sources.files import FileList, Values, list_files, read_text
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.malformed import malformed
from fastload.sources.voc.rows import VocReader, class_names
from fastload.sources.walking import (
    by_split,
    is_image,
    list_entries,
    split_names,
    stem_of,
    unannotated,
)

_IMAGES, _BOXES, _SETS = "JPEGImages", "Annotations", "ImageSets"
_MASKS = {"SegmentationClass": Field.mask()} | {
    "SegmentationObject": Field("instances", "image", encoding="keep", internal=True)
}
_NESTED = ("VOCdevkit", "VOC")

IN_NO_SPLIT = "an image in no split"
SECOND_OF_NAME = "another image has its name and its annotations"
NO_IMAGE_OF_XML = "annotations without an image of their name"

AnnotationPaths = Mapping[str, str]
"""The annotation file of each image, by paths relative to the dataset's folder; "" for none."""


def open_voc(path: str) -> dict[str, AnnotatedFiles] | None:
    """List a folder with JPEGImages and annotations, or with XML files beside the images, by split."""
    if not os.path.isdir(path):
        return None
    if (root := _voc_folder(path)) is not None:
        return _open_devkit(path, root)
    entries = list_entries(os.path.abspath(path))
    folders = [] if any(map(is_image, entries.files)) else split_names(entries.folders)
    found = {
        folder: {name: f"{os.path.splitext(name)[0]}.xml" for name in _images_in(entries.path, folder)}
        for folder in folders or [""]
        if boxes_beside(list_entries(entries.join(folder)), (".xml",))
    }
    if not found:
        return None
    sources = _list_splits(path, entries.path, by_split(path, found), is_beside=True)
    next(iter(sources.values())).warnings = unannotated(path, folders, found)
    return sources


def _open_devkit(path: str, root: str) -> dict[str, AnnotatedFiles]:
    left_out = LeftOutFiles()
    images: dict[str, str] = {}
    for name in _images_in(root, _IMAGES):
        if images.setdefault(stem_of(name), name) != name:
            left_out.add(name, SECOND_OF_NAME)
    for name in list_entries(os.path.join(root, _BOXES)).files:
        if name.lower().endswith(".xml") and stem_of(name) not in images:
            left_out.add(os.path.join(_BOXES, name), NO_IMAGE_OF_XML)
    stems = _stems_of_splits(root) or {"": list(images)}
    listed = {stem: None for found in stems.values() for stem in found}
    if unknown := [stem for stem in listed if stem not in images]:
        step = "add the image, or remove it from the list"
        raise malformed(os.path.join(root, _SETS), f"list images of {_IMAGES}", repr(unknown[0]), step)
    for stem, name in images.items():
        if stem not in listed:
            left_out.add(name, IN_NO_SPLIT, is_clutter=True)
    has_boxes = os.path.isdir(os.path.join(root, _BOXES))
    splits = {
        split: {images[stem]: os.path.join(_BOXES, f"{stem}.xml") if has_boxes else "" for stem in found}
        for split, found in stems.items()
    }
    return _list_splits(path, root, splits, left_out.finish(), has_boxes=has_boxes)


def _list_splits(
    path: str,
    root: str,
    splits: Mapping[str, AnnotationPaths],
    left_out: Sequence[LeftOut] = (),
    *,
    has_boxes: bool = True,
    is_beside: bool = False,
) -> dict[str, AnnotatedFiles]:
    texts = {split: list_files(root, found.values()) for split, found in splits.items()}
    classes = sorted({name for files in texts.values() for name in _class_names(files)})
    reader = VocReader({name: label for label, name in enumerate(classes)}) if has_boxes else None
    masks = {name: field for name, field in _MASKS.items() if os.path.isdir(os.path.join(root, name))}
    sources: dict[str, AnnotatedFiles] = {}
    for split, images in splits.items():
        values: dict[str, Values] = {
            field.name: list_files(root, [os.path.join(name, f"{stem_of(image)}.png") for image in images])
            for name, field in masks.items()
        }
        sources[split] = AnnotatedFiles(
            kind="voc",
            name=path,
            classes=tuple(classes),
            fields=(*(reader.fields() if reader else ()), *masks.values()),
            left_out=() if sources else tuple(left_out),
            details={"split": split, "is_beside": is_beside},
            files=list_files(root, images),
            values=values,
            texts=texts[split],
            reader=reader,
            needs_masks=reader is None,
        )
    return sources


def _class_names(files: FileList) -> set[str]:
    names: set[str] = set()
    for index in range(len(files)):
        if files.sizes_bytes[index] > 0:
            with contextlib.suppress(SourceError):  # reading the record reports it
                names |= class_names(files.read(index))
    return names


def _voc_folder(path: str) -> str | None:
    """Return the folder that holds JPEGImages: this one, or one below it, as in VOCdevkit/VOC2012."""
    folder = os.path.abspath(path)
    for _ in range(3):
        entries = list_entries(folder)
        if _IMAGES in entries.folders:
            return folder if {_BOXES, *_MASKS} & {*entries.folders} else None
        inner = [name for name in entries.folders if name.startswith(_NESTED)]
        if len(inner) != 1:
            return None
        folder = entries.join(inner[0])
    return None


def _stems_of_splits(root: str) -> dict[str, list[str]]:
    """Return the stems of each split's images from ImageSets; `trainval` alone is the split train."""
    kind = "Main" if os.path.isdir(os.path.join(root, _BOXES)) else "Segmentation"
    lists = list_entries(os.path.join(root, _SETS, kind))
    names = {split: f"{split}.txt" for split in ("train", "val", "test") if f"{split}.txt" in lists.files}
    if not names and "trainval.txt" in lists.files:
        names = {"train": "trainval.txt"}
    lines = {split: read_text(lists.join(name)).split("\n") for split, name in names.items()}
    stems = {split: [line.split()[0] for line in found if line.strip()] for split, found in lines.items()}
    return {split: listed for split, listed in stems.items() if listed}


def _images_in(root: str, folder: str) -> list[str]:
    entries = list_entries(os.path.join(root, folder))
    return [os.path.join(folder, name) for name in entries.files if is_image(name)]
