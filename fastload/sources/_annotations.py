"""Recognition of files that annotate images one by one: boxes and masks, beside the images or in a folder."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fastload.sources._walking import IMAGE_SUFFIXES

ANNOTATION_SUFFIXES = (".txt", ".xml", ".json", ".npy", ".npz", ".mat")

_SAMPLED = 32
_MOST_NAMES = 50_000
_MOST_FOLDERS = 200
_COMPARED_PAIRS = 3

_ANNOTATION_FOLDER = re.compile(
    r"(.*[_ -])?(masks?|labels?|labelTxt|ann(ot)?(ation)?s?|seg(mentation)?s?|gt|ground[_ -]?truths?"
    r"|trimaps|manual|captions|b?box(es)?)([_ -].*)?|(train|val|test)annot",
    re.IGNORECASE,
)
# The stem of a mask beside its image: the image's stem and `_mask`, `-seg`, `_mask_1` or similar.
_MASK_STEM = re.compile(
    r"(.+?)[_ .-](masks?|seg(mentation)?|labels?|gt|matte|trimap)([_ .-]?[0-9]+)?", re.IGNORECASE
)
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


def box_file_beside(folder: str, files: Iterable[str]) -> str | None:
    """Return the first of these files that holds boxes for the image of the same stem, or None."""
    names = list(files)
    annotations = [name for name in names if name.lower().endswith((".txt", ".xml", ".json"))]
    if not annotations:
        return None
    stems = {_stem(name) for name in names if _is_image(name)}
    paired = [name for name in annotations if _stem(name) in stems]
    if 2 * len(paired) < len(stems):
        return None
    return next((name for name in paired[:_SAMPLED] if holds_boxes(os.path.join(folder, name))), None)


def is_annotation_folder(name: str) -> bool:
    """Return whether folders of masks or annotations are commonly called by this name."""
    return _ANNOTATION_FOLDER.fullmatch(name) is not None


def annotation_files(folder: str) -> list[str]:
    """Return a sample of the annotations in a folder, relative to it; none if the folder holds images too."""
    names = list(itertools.islice(_names_below(folder), _SAMPLED * 4))
    if any(map(_is_image, names)):
        return []
    return [name for name in names if name.lower().endswith(ANNOTATION_SUFFIXES)]


def images_by_stem(folder: str, names: Iterable[str] | None = None) -> dict[str, str]:
    """Return the paths of images by stem: of these files, or of all files below the folder."""
    candidates = itertools.islice(_names_below(folder) if names is None else names, _MOST_NAMES)
    return {_stem(name): os.path.join(folder, name) for name in candidates if _is_image(name)}


def annotated_kind(images: Mapping[str, str], folder: str, annotations: Sequence[str]) -> str | None:
    """Return the kind of dataset that images, by stem, form with the annotations in a folder, or None."""
    paths = [os.path.join(folder, name) for name in annotations[:_SAMPLED]]
    boxes = next((path for path in paths if holds_boxes(path)), None)
    are_paired = 2 * sum(_stem(name) in images for name in annotations) >= len(annotations)
    has_typical_name = is_annotation_folder(os.path.basename(folder))
    if boxes is None:
        return "a dataset with annotations for each image" if has_typical_name and are_paired else None
    if not has_typical_name and not are_paired:
        return None
    return "a detection dataset of YOLO" if boxes.endswith(".txt") else "a detection dataset"


def holds_boxes(path: str) -> bool:
    """Return whether a file holds boxes in the form of YOLO (.txt), Pascal VOC (.xml) or LabelMe (.json)."""
    try:
        with open(path, "rb") as file:
            start = file.read(4096)
    except OSError:
        return False
    if path.lower().endswith(".txt"):
        rows = [row for row in start.splitlines() if row.strip()][:3]
        return bool(rows) and all(_YOLO_ROW.fullmatch(row) for row in rows)
    if path.lower().endswith(".xml"):
        return b"<annotation" in start
    return path.lower().endswith(".json") and b'"shapes"' in start


def has_masks(images: Mapping[str, str], folder: str) -> bool:
    """Return whether a folder holds masks of images, by its name, the names of its files and their pixels."""
    if not is_annotation_folder(os.path.basename(folder)):
        return False
    names = itertools.islice(_names_below(folder), 4 * _SAMPLED)
    masks = [name for name in names if _is_image(name, ".gif")][:_SAMPLED]
    pairs = []
    for name in masks:
        stem = _image_stem(_stem(name), images)
        if stem is not None:
            pairs.append((images[stem], os.path.join(folder, name)))
    return bool(pairs) and 2 * len(pairs) >= len(masks) and _are_masks(pairs)


def mask_beside(folder: str, files: Iterable[str]) -> str | None:
    """Return the name of a mask if half of the images among these files have one, else None."""
    by_stem: dict[str, list[str]] = {}
    for name in itertools.islice(files, _MOST_NAMES):
        if _is_image(name, ".gif"):
            by_stem.setdefault(_stem(name), []).append(name)
    pairs = []
    for stem, names in by_stem.items():
        mask_stem = _MASK_STEM.fullmatch(stem)
        if len(names) == 2:  # photo.jpg and photo.png
            pairs.append((min(names, key=_is_png), max(names, key=_is_png)))
        elif mask_stem and mask_stem[1] in by_stem:
            pairs.append((by_stem[mask_stem[1]][0], names[0]))
    masked = {image for image, _ in pairs}
    others = sum(map(len, by_stem.values())) - len(pairs)
    if not pairs or 2 * len(masked) < others:
        return None
    paths = [(os.path.join(folder, image), os.path.join(folder, mask)) for image, mask in pairs]
    return pairs[0][1] if _are_masks(paths) else None


def _is_png(name: str) -> bool:
    return name.lower().endswith(".png")


def _image_stem(stem: str, images: Mapping[str, str]) -> str | None:
    """Return the stem of the image that a mask belongs to: the mask's own, or that without endings."""
    while stem not in images:
        shorter = re.sub(r"[_ .-]?[^_ .-]+$", "", stem)
        if not shorter or shorter == stem:
            return None
        stem = shorter
    return stem


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


def _is_image(name: str, *more_suffixes: str) -> bool:
    return name.lower().endswith((*IMAGE_SUFFIXES, *more_suffixes))


def _stem(name: str) -> str:
    return os.path.splitext(os.path.basename(name))[0]
