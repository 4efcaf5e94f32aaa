"""Pascal VOC datasets: JPEGImages with Annotations, masks and splits; or xml files beside the images.

Splits are those of ImageSets/Main, or ImageSets/Segmentation if there are only masks; without one, all images
are packed. The classes are numbered in the order of their names, as VOC's own are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field
from fastload.sources._annotated import AnnotatedFiles
from fastload.sources._annotations import read_part
from fastload.sources._malformed import malformed
from fastload.sources._voc_rows import VocReader, class_names
from fastload.sources._walking import SPLITS, in_order, is_image, list_entries, stem_of
from fastload.sources.files import FileList, list_files
from fastload.sources.left_out import LeftOutFiles

_IMAGES, _BOXES, _SETS = "JPEGImages", "Annotations", "ImageSets"
_MASKS = {"mask": "SegmentationClass", "instances": "SegmentationObject"}
_FIELDS = {"mask": Field.mask(), "instances": Field("instances", "image", encoding="keep", internal=True)}
_NESTED = ("VOCdevkit", "VOC")
_SAMPLED = 32

IN_NO_SPLIT = "an image in no split"
SECOND_OF_NAME = "another image has its name and its annotations"
NO_IMAGE_OF_XML = "annotations without an image of their name"


def recognise(path: str) -> bool:
    """Return True for a folder with JPEGImages and annotations, or with an xml beside each image."""
    return os.path.isdir(path) and (_voc_folder(path) is not None or bool(_folders_beside(path)))


def open_voc(path: str) -> dict[str, AnnotatedFiles]:
    """List a Pascal VOC dataset by split."""
    root = _voc_folder(path)
    if root is None:
        root = os.path.abspath(path)
        beside = {split: _images_in(root, folder) for split, folder in _folders_beside(path).items()}
        return _list_splits(
            path,
            root,
            beside,
            {name: os.path.splitext(name)[0] + ".xml" for names in beside.values() for name in names},
        )
    left_out = LeftOutFiles()
    images: dict[str, str] = {}
    for name in _images_in(root, _IMAGES):
        if images.setdefault(stem_of(name), name) != name:
            left_out.add(name, SECOND_OF_NAME)
    stems = _stems_of_splits(root)
    for name in list_entries(os.path.join(root, _BOXES)).files:
        if name.lower().endswith(".xml") and stem_of(name) not in images:
            left_out.add(os.path.join(_BOXES, name), NO_IMAGE_OF_XML)
    if not stems:
        splits = {"": list(images.values())}
        return _list_splits(path, root, splits, _annotation_files(root, images), left_out.finish())
    unknown = [stem for found in stems.values() for stem in found if stem not in images]
    if unknown:
        step = "add the image, or remove it from the list"
        raise malformed(os.path.join(root, _SETS), f"list images of {_IMAGES}", repr(unknown[0]), step)
    splits = {split: [images[stem] for stem in found] for split, found in stems.items()}
    listed = {stem for found in stems.values() for stem in found}
    for stem, name in images.items():
        if stem not in listed:
            left_out.add(name, IN_NO_SPLIT, is_clutter=True)
    return _list_splits(path, root, splits, _annotation_files(root, images), left_out.finish())


def _list_splits(
    path: str,
    root: str,
    splits: Mapping[str, Sequence[str]],
    annotations: Mapping[str, str],
    left_out: Sequence[LeftOut] = (),
) -> dict[str, AnnotatedFiles]:
    """List the images of each split, relative to the root, with their annotation files, if there are any."""
    texts: dict[str, FileList] = {}
    names: set[str] = set()
    for split, images in splits.items():
        if annotations:
            texts[split] = files = list_files(root, [annotations[image] for image in images])
            for index in range(len(files)):
                with contextlib.suppress(SourceError):  # reading the record reports it
                    names |= class_names(files.read(index)) if files.sizes_bytes[index] > 0 else set()
    classes = tuple(sorted(names))
    reader = VocReader({name: label for label, name in enumerate(classes)}) if annotations else None
    masks = [name for name, folder in _MASKS.items() if os.path.isdir(os.path.join(root, folder))]
    sources: dict[str, AnnotatedFiles] = {}
    for split, images in splits.items():
        further = {
            name: list_files(root, [os.path.join(_MASKS[name], stem_of(image) + ".png") for image in images])
            for name in masks
        }
        sources[split] = AnnotatedFiles(
            kind="voc",
            name=path,
            classes=classes,
            fields=(*(reader.fields() if reader else ()), *(_FIELDS[name] for name in masks)),
            left_out=() if sources else tuple(left_out),
            details={"split": split, "is_beside": not os.path.isdir(os.path.join(root, _IMAGES))},
            files=list_files(root, images),
            texts=texts.get(split),
            reader=reader,
            further=further,
            needs_all=reader is None,
        )
    return sources


def _voc_folder(path: str) -> str | None:
    """Return the folder that holds JPEGImages: this one, or one below as in VOCdevkit/VOC2012."""
    folder = os.path.abspath(path)
    for _ in range(3):
        entries = list_entries(folder)
        if _IMAGES in entries.folders:
            return folder if {_BOXES, *_MASKS.values()} & {*entries.folders} else None
        inner = [name for name in entries.folders if name.startswith(_NESTED)]
        if len(inner) != 1:
            return None
        folder = entries.join(inner[0])
    return None


def _folders_beside(path: str) -> dict[str, str]:
    """Return the folder of each split that has xml files beside most of its images, relative to the path."""
    entries = list_entries(os.path.abspath(path))
    inner = {SPLITS[name.lower()]: name for name in entries.folders if name.lower() in SPLITS}
    folders = inner if inner and not any(map(is_image, entries.files)) else {"": ""}
    return in_order({split: name for split, name in folders.items() if _has_xml(entries.join(name))})


def _has_xml(folder: str) -> bool:
    files = list_entries(folder).files
    images = {stem_of(name) for name in files if is_image(name)}
    paired = [name for name in files if name.lower().endswith(".xml") and stem_of(name) in images]
    if not paired or 2 * len(paired) < len(images):
        return False
    return any(b"<annotation" in read_part(os.path.join(folder, name)) for name in paired[:_SAMPLED])


def _stems_of_splits(root: str) -> dict[str, list[str]]:
    """Return the images of each split by ImageSets; a single `trainval` is the split train."""
    kind = "Main" if os.path.isdir(os.path.join(root, _BOXES)) else "Segmentation"
    folder = os.path.join(root, _SETS, kind)
    files = {*list_entries(folder).files}
    stems = {
        split: _lines(os.path.join(folder, f"{split}.txt"))
        for split in ("train", "val", "test")
        if f"{split}.txt" in files
    }
    if not stems and "trainval.txt" in files:
        stems["train"] = _lines(os.path.join(folder, "trainval.txt"))
    return {split: listed for split, listed in stems.items() if listed}


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        return [cells[0] for line in file if (cells := line.split())]


def _annotation_files(root: str, images: Mapping[str, str]) -> dict[str, str]:
    if not os.path.isdir(os.path.join(root, _BOXES)):
        return {}
    return {name: os.path.join(_BOXES, f"{stem}.xml") for stem, name in images.items()}


def _images_in(root: str, folder: str) -> list[str]:
    return [
        os.path.join(folder, name)
        for name in list_entries(os.path.join(root, folder)).files
        if is_image(name)
    ]
