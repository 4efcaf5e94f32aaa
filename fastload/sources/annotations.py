"""Recognition of annotation files, one for each image: boxes and masks, beside the images or in a folder."""

from __future__ import annotations

import codecs
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fastload.sources.protocol import evenly_spaced
from fastload.sources.walking import (
    IMAGE_SUFFIXES,
    FolderEntries,
    is_image,
    list_entries,
    names_below,
    read_part,
    stem_of,
)

_SUFFIXES = (".txt", ".xml", ".json", ".npy", ".npz", ".mat")
_BOX_SUFFIXES = (".txt", ".xml", ".json")
_MASK_SUFFIXES = (*IMAGE_SUFFIXES, ".gif")

_SAMPLED = 32
_MOST_NAMES = 50_000

_COMPARED_PAIRS = 3

_MOST_BESIDE = 16  # more sibling folders are classes
_ANNOTATION_FOLDER = re.compile(
    r"(.*[_ -])?(masks?|labels?|labelTxt|ann(ot)?(ation)?s?|seg(mentation)?s?|gt|ground[_ -]?truths?"
    r"|trimaps|manual|captions|b?box(es)?)([_ -].*)?|(train|val|test)annot",
    re.IGNORECASE,
)
# The stem of a mask: the image's stem and `_mask`, `-seg`, `_mask_1` or similar.
MASK_STEM = re.compile(
    r"(.+?)[_ .-](masks?|seg(mentation)?|labels?|gt|matte|trimap)([_ .-]?[0-9]+)?", re.IGNORECASE
)
_ENDING = re.compile(r"[_ .-]*[^_ .-]*$")
# A row of a YOLO file: a class, then a box of four numbers or a polygon of six or more, relative to the
# image.
_YOLO_ROW = re.compile(rb"[0-9]+(\.0*)?(\s+-?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?){4,}\s*")

SEGMENTATION = "a segmentation dataset"

# Colours are counted in steps of 16 levels, at this many pixels in each direction. The number of the most
# frequent colours that cover this share of the pixels is 2 to 40 in a mask, 100 to 500 in a photo, and about
# 14 in a grey photo.
_SAMPLED_SIDE = 64
_MAIN_SHARE = 0.95

# The kind of dataset, the paths in a folder that are signs of it, and the content that would be lost.
FoundAnnotations = tuple[str, list[str], str]


def find_annotations(folder: FolderEntries) -> FoundAnnotations | None:
    """Return the boxes, masks or other annotations of the images in a folder, or None."""
    if len(folder.folders) > _MOST_BESIDE:
        return None
    if boxes := boxes_beside(folder):
        return "a detection dataset", [boxes], "boxes"
    return _annotation_folders(folder) or _masks_beside(folder)


def boxes_beside(folder: FolderEntries, suffixes: tuple[str, ...] = _BOX_SUFFIXES) -> str | None:
    """Return the first file with boxes if at least half of a folder's images have a file beside them."""
    stems = {stem_of(name) for name in folder.files if is_image(name)}
    paired = [name for name in folder.files if name.lower().endswith(suffixes) and stem_of(name) in stems]
    return first_with_boxes(folder.path, paired) if 2 * len(paired) >= len(stems) else None


def _annotation_folders(folder: FolderEntries) -> FoundAnnotations | None:
    """Return the annotations or masks in a folder beside the images, or beside a folder of images."""
    candidates: dict[str, tuple[list[str], list[str]]] = {}
    for name in folder.folders:
        sample = list(itertools.islice(names_below(folder.join(name)), 4 * _SAMPLED))
        has_images = any(map(is_image, sample))
        files = [] if has_images else [each for each in sample if each.lower().endswith(_SUFFIXES)]
        if files or _ANNOTATION_FOLDER.fullmatch(name):
            candidates[name] = files, [each for each in sample if each.lower().endswith(_MASK_SUFFIXES)]
    if not candidates:
        return None
    images = {"": _images_by_stem(folder.path, folder.files)}
    images |= {
        name: _images_by_stem(folder.join(name), names_below(folder.join(name))) for name in folder.folders
    }
    for (name, (files, masks)), (place, by_stem) in itertools.product(candidates.items(), images.items()):
        if not by_stem or place == name:
            continue
        if not files:
            sampled = [folder.join(name, each) for each in masks[:_SAMPLED]]
            pairs = _pair_masks(by_stem, sampled)
            if 2 * len(pairs) >= len(sampled) and _are_masks(pairs, of_any_size=True):
                return SEGMENTATION, [place, name], "masks"
            continue
        boxes = first_with_boxes(folder.join(name), files)
        is_typical = _ANNOTATION_FOLDER.fullmatch(name) is not None
        are_paired = 2 * sum(stem_of(each) in by_stem for each in files) >= len(files)
        if boxes and (are_paired or is_typical):
            kind = "a detection dataset of YOLO" if boxes.endswith(".txt") else "a detection dataset"
            return kind, [place, name], "boxes"
        # Beside loose images, only boxes are certain enough; other folders are recorded as left out.
        if not boxes and are_paired and is_typical and place:
            return "a dataset with annotations for each image", [place, name], "annotations"
    return None


def _masks_beside(folder: FolderEntries) -> FoundAnnotations | None:
    """Return the masks beside at least half of the images in the folder or in one of its folders."""
    for name in ("", *folder.folders):
        path = folder.join(name)
        files = list_entries(path).files if name else folder.files
        masks = [
            os.path.join(path, each) for each in files[:_MOST_NAMES] if each.lower().endswith(_MASK_SUFFIXES)
        ]
        # Of photo.jpg and photo.png, the latter is the mask.
        images = {
            stem_of(each): each for each in sorted(masks, key=lambda each: not each.lower().endswith(".png"))
        }
        pairs = _pair_masks(images, masks)
        is_masked = 2 * len({image for image, _ in pairs}) >= len(masks) - len(pairs)
        if is_masked and _are_masks(pairs):
            return SEGMENTATION, [os.path.relpath(pairs[0][1], folder.path)], "masks"
    return None


def _images_by_stem(folder: str, names: Iterable[str]) -> dict[str, str]:
    some = itertools.islice(names, _MOST_NAMES)
    return {stem_of(name): os.path.join(folder, name) for name in some if is_image(name)}


def first_with_boxes(folder: str, names: Sequence[str]) -> str | None:
    """Return the first of some files that holds boxes of YOLO, Pascal VOC or LabelMe."""
    return next((name for name in names[:_SAMPLED] if _holds_boxes(os.path.join(folder, name))), None)


def _holds_boxes(path: str) -> bool:
    suffix = os.path.splitext(path)[1].lower()
    start = read_part(path) if suffix in _BOX_SUFFIXES else b""
    if suffix == ".txt":
        rows = [row for row in start.removeprefix(codecs.BOM_UTF8).splitlines() if row.strip()][:3]
        return bool(rows) and all(_YOLO_ROW.fullmatch(row) for row in rows)
    return (b"<annotation" if suffix == ".xml" else b'"shapes"') in start


def _pair_masks(images: Mapping[str, str], masks: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of an image and its mask, whose stem is the image's, with or without an ending."""
    pairs = []
    for mask in masks:
        stem = stem_of(mask)
        match = MASK_STEM.fullmatch(stem)
        if match and match[1] in images:
            stem = match[1]
        while stem and stem not in images:
            stem = _ENDING.sub("", stem)
        if images.get(stem, mask) != mask:
            pairs.append((images[stem], mask))
    return pairs


def _are_masks(pairs: Sequence[tuple[str, str]], *, of_any_size: bool = False) -> bool:
    """Return True if the second file of each of a few sampled pairs is a mask of the first."""
    sampled = evenly_spaced(len(pairs), _COMPARED_PAIRS)
    return bool(pairs) and all(_is_mask_of(*pairs[at], of_any_size) for at in sampled)


def _is_mask_of(image: str, mask: str, of_any_size: bool) -> bool:
    """Return True if a mask has far fewer colours than its image and, unless `of_any_size`, its size."""
    pixels, labels = _read_pixels(image), _read_pixels(mask)
    if pixels is None or labels is None or not (of_any_size or pixels.shape[:2] == labels.shape[:2]):
        return False
    return 3 * _count_main_colours(labels) <= _count_main_colours(pixels)


def _count_main_colours(pixels: npt.NDArray[np.uint8 | np.uint16]) -> int:
    height, width = pixels.shape[:2]
    sparse = pixels[:: max(1, height // _SAMPLED_SIDE), :: max(1, width // _SAMPLED_SIDE)]
    colours = sparse.reshape(-1, pixels.shape[2] if pixels.ndim == 3 else 1)[:, :3] // 16
    counts = np.sort(np.unique(colours, axis=0, return_counts=True)[1])[::-1]
    return int(np.searchsorted(np.cumsum(counts), _MAIN_SHARE * counts.sum())) + 1


def _read_pixels(path: str) -> npt.NDArray[np.uint8 | np.uint16] | None:
    """Return the pixels of a file, grey or colour as stored; None if they cannot be read as integers."""
    from fastload.images.opencv import cv2  # not above: the loader lists folders without OpenCV

    try:
        with open(path, "rb") as file:
            pixels = cv2.imdecode(np.frombuffer(file.read(), np.uint8), cv2.IMREAD_UNCHANGED)
    except (OSError, cv2.error):
        return None
    return None if pixels is None or pixels.dtype.kind != "u" else np.asarray(pixels)
