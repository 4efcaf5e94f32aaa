"""Recognition of files that annotate images one by one: boxes and masks, beside the images or in a folder."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.sources._walking import IMAGE_SUFFIXES, FolderEntries, list_entries

_SUFFIXES = (".txt", ".xml", ".json", ".npy", ".npz", ".mat")
_BOX_SUFFIXES = (".txt", ".xml", ".json")
_MASK_SUFFIXES = (*IMAGE_SUFFIXES, ".gif")

_SAMPLED = 32
_MOST_NAMES = 50_000
_MOST_FOLDERS = 200
_COMPARED_PAIRS = 3
_READ_BYTES = 1 << 16

_MOST_BESIDE = 16  # more folders beside each other are classes
_ANNOTATION_FOLDER = re.compile(
    r"(.*[_ -])?(masks?|labels?|labelTxt|ann(ot)?(ation)?s?|seg(mentation)?s?|gt|ground[_ -]?truths?"
    r"|trimaps|manual|captions|b?box(es)?)([_ -].*)?|(train|val|test)annot",
    re.IGNORECASE,
)
# The stem of a mask: the image's stem and `_mask`, `-seg`, `_mask_1` or similar.
_MASK_STEM = re.compile(
    r"(.+?)[_ .-](masks?|seg(mentation)?|labels?|gt|matte|trimap)([_ .-]?[0-9]+)?", re.IGNORECASE
)
_ENDING = re.compile(r"[_ .-]*[^_ .-]*$")
# A row of a YOLO file: a class, then a box of four numbers or a polygon of six or more, relative to the
# image.
_YOLO_ROW = re.compile(rb"[0-9]+(\s+-?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?){4,}\s*")

# Colours are counted in steps of 16 levels, at this many pixels in each direction. The most frequent ones
# that cover this share of the pixels number 2 to 40 in a mask, 100 to 500 in a photo, about 14 in a grey
# photo.
_SAMPLED_SIDE = 64
_MAIN_SHARE = 0.95
_MOST_LABELS = 64
_MOST_BYTES = 100_000_000


class Annotations(NamedTuple):
    """Annotations of images: the kind of dataset, the paths in a folder that show it, and the content."""

    kind: str
    signs: list[str]
    content: str


def find_annotations(folder: FolderEntries) -> Annotations | None:
    """Return the boxes, masks or other annotations of the images in a folder, or None."""
    if len(folder.folders) > _MOST_BESIDE:
        return None
    return _boxes_beside(folder) or _annotation_folders(folder) or _masks_beside(folder)


def _boxes_beside(folder: FolderEntries) -> Annotations | None:
    """Return the boxes in files that share their stems with at least half of the images in a folder."""
    stems = {_stem(name) for name in folder.files if _is_image(name)}
    paired = [name for name in folder.files if name.lower().endswith(_BOX_SUFFIXES) and _stem(name) in stems]
    if 2 * len(paired) < len(stems):
        return None
    boxes = next((name for name in paired[:_SAMPLED] if _holds_boxes(folder.join(name))), None)
    return Annotations("a detection dataset", [boxes], "boxes") if boxes is not None else None


def _annotation_folders(folder: FolderEntries) -> Annotations | None:
    """Return the annotations or masks in a folder beside the images, or beside a folder of images."""
    samples = {
        name: list(itertools.islice(_names_below(folder.join(name)), 4 * _SAMPLED)) for name in folder.folders
    }
    annotations = {
        name: []
        if any(map(_is_image, names))
        else [each for each in names if each.lower().endswith(_SUFFIXES)]
        for name, names in samples.items()
    }
    annotations = {name: files for name, files in annotations.items() if files or _has_typical_name(name)}
    if not annotations:
        return None
    images = {"": _images_by_stem(folder.path, folder.files)}
    images |= {
        name: _images_by_stem(folder.join(name), _names_below(folder.join(name))) for name in folder.folders
    }
    for (name, files), (image_folder, by_stem) in itertools.product(annotations.items(), images.items()):
        if not by_stem or image_folder == name:
            continue
        if not files:
            masks = [
                folder.join(name, each) for each in samples[name] if each.lower().endswith(_MASK_SUFFIXES)
            ]
            masks = masks[:_SAMPLED]
            pairs = _pair_masks(by_stem, masks)
            if pairs and 2 * len(pairs) >= len(masks) and _are_masks(pairs):
                return Annotations("a segmentation dataset", [image_folder, name], "masks")
            continue
        boxes = next((each for each in files[:_SAMPLED] if _holds_boxes(folder.join(name, each))), None)
        are_paired = 2 * sum(_stem(each) in by_stem for each in files) >= len(files)
        if boxes is not None and (are_paired or _has_typical_name(name)):
            kind = "a detection dataset of YOLO" if boxes.endswith(".txt") else "a detection dataset"
            return Annotations(kind, [image_folder, name], "boxes")
        # A folder beside loose images is left out, and its files are listed: only boxes are certain.
        if boxes is None and are_paired and _has_typical_name(name) and image_folder:
            kind = "a dataset with annotations for each image"
            return Annotations(kind, [image_folder, name], "annotations")
    return None


def _masks_beside(folder: FolderEntries) -> Annotations | None:
    """Return the masks beside at least half of the images in the folder or in one of its folders."""
    for name in ("", *folder.folders):
        path = folder.join(name)
        files = list_entries(path).files if name else folder.files
        masks = [
            os.path.join(path, each) for each in files[:_MOST_NAMES] if each.lower().endswith(_MASK_SUFFIXES)
        ]
        # Of photo.jpg and photo.png, the latter is the mask.
        images = {_stem(each): each for each in sorted(masks, key=_is_png, reverse=True)}
        pairs = _pair_masks(images, masks)
        is_masked = 2 * len({image for image, _ in pairs}) >= len(masks) - len(pairs)
        if pairs and is_masked and _are_masks(pairs):
            return Annotations("a segmentation dataset", [os.path.relpath(pairs[0][1], folder.path)], "masks")
    return None


def read_part(path: str, share: float = 0.0) -> bytes:
    """Return 64 KB of a file, from its start (0) to its end (1); nothing if it cannot be read."""
    try:
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            file.seek(int(share * max(0, os.path.getsize(path) - _READ_BYTES)))
            return file.read(_READ_BYTES)
    except OSError:
        return b""


def _has_typical_name(name: str) -> bool:
    """Return whether folders of masks or annotations are commonly called by this name."""
    return _ANNOTATION_FOLDER.fullmatch(name) is not None


def _images_by_stem(folder: str, names: Iterable[str]) -> dict[str, str]:
    """Return the paths of the images among files in a folder, by stem."""
    some = itertools.islice(names, _MOST_NAMES)
    return {_stem(name): os.path.join(folder, name) for name in some if _is_image(name)}


def _holds_boxes(path: str) -> bool:
    """Return whether a file holds boxes in the form of YOLO (.txt), Pascal VOC (.xml) or LabelMe (.json)."""
    suffix = os.path.splitext(path)[1].lower()
    start = read_part(path) if suffix in _BOX_SUFFIXES else b""
    if suffix == ".txt":
        rows = [row for row in start.splitlines() if row.strip()][:3]
        return bool(rows) and all(_YOLO_ROW.fullmatch(row) for row in rows)
    return (b"<annotation" if suffix == ".xml" else b'"shapes"') in start


def _pair_masks(images: Mapping[str, str], masks: Iterable[str]) -> list[tuple[str, str]]:
    """Return the images with their masks, which have the same stem or that stem and an ending."""
    pairs = []
    for mask in masks:
        stem = _stem(mask)
        match = _MASK_STEM.fullmatch(stem)
        if match and match[1] in images:
            stem = match[1]
        while stem and stem not in images:
            stem = _ENDING.sub("", stem)
        if images.get(stem, mask) != mask:
            pairs.append((images[stem], mask))
    return pairs


def _are_masks(pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether the second file of each of a few sampled pairs is a mask of the first."""
    sampled = pairs[:: max(1, len(pairs) // _COMPARED_PAIRS)][:_COMPARED_PAIRS]
    return all(_is_mask_of(image, mask) for image, mask in sampled)


def _is_mask_of(image: str, mask: str) -> bool:
    """Return whether a mask has few colours, as masks have, and its image many, or is grey beside colour."""
    pixels, labels = _read_pixels(image), _read_pixels(mask)
    if pixels is None or labels is None or pixels.shape[:2] != labels.shape[:2]:
        return False
    if 3 * _count_main_colours(labels) <= _count_main_colours(pixels):
        return True
    return labels.ndim == 2 < pixels.ndim and len(np.unique(labels)) <= _MOST_LABELS


def _count_main_colours(pixels: npt.NDArray[np.uint8]) -> int:
    height, width = pixels.shape[:2]
    sparse = pixels[:: max(1, height // _SAMPLED_SIDE), :: max(1, width // _SAMPLED_SIDE)]
    colours = sparse.reshape(-1, pixels.shape[2] if pixels.ndim == 3 else 1)[:, :3] // 16
    counts = np.sort(np.unique(colours, axis=0, return_counts=True)[1])[::-1]
    return int(np.searchsorted(np.cumsum(counts), _MAIN_SHARE * counts.sum())) + 1


def _read_pixels(path: str) -> npt.NDArray[np.uint8] | None:
    """Return the pixels of a file, grey or colour as stored; None if they cannot be read as 8 bits."""
    from fastload.images.opencv import cv2  # only here: the loader lists folders too, and runs without OpenCV

    try:
        if os.path.getsize(path) > _MOST_BYTES:
            return None
        with open(path, "rb") as file:
            pixels = cv2.imdecode(np.frombuffer(file.read(), np.uint8), cv2.IMREAD_UNCHANGED)
    except (OSError, cv2.error):
        return None
    return None if pixels is None or pixels.dtype != np.uint8 else np.asarray(pixels)


def _names_below(folder: str) -> Iterator[str]:
    """Yield the files below a folder, relative to it; of a great many folders, only the first."""
    pending, seen = [""], 0
    while pending and seen < _MOST_FOLDERS:
        below = pending.pop()
        seen += 1
        try:
            with os.scandir(os.path.join(folder, below)) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(os.path.join(below, entry.name))
                    elif not entry.name.startswith("."):
                        yield os.path.join(below, entry.name)
        except OSError:
            continue


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def _is_png(name: str) -> bool:
    return name.lower().endswith(".png")


def _stem(name: str) -> str:
    return os.path.splitext(os.path.basename(name))[0]
