"""Files that describe images, one an image: boxes beside them, or in a folder beside theirs, and masks."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fastload.sources.walking import IMAGE_SUFFIXES

ANNOTATION_SUFFIXES = (".txt", ".xml", ".json", ".npy", ".npz", ".mat")

_SAMPLED = 32
_MOST_NAMES = 50_000
_MOST_FOLDERS = 200
_COMPARED = 3

_DESCRIBING_FOLDER = re.compile(
    r"(.*[_ -])?(masks?|labels?|labelTxt|ann(ot)?(ation)?s?|seg(mentation)?s?|gt|ground[_ -]?truths?"
    r"|trimaps|manual|captions|b?box(es)?)([_ -].*)?|(train|val|test)annot",
    re.IGNORECASE,
)
# The stem of a mask that lies beside its image: the image's own and `_mask`, `-seg`, `_mask_1` or the like.
_MASK_STEM = re.compile(
    r"(.+?)[_ .-](masks?|seg(mentation)?|labels?|gt|matte|trimap)([_ .-]?[0-9]+)?", re.IGNORECASE
)
# A row of YOLO's: a class and a box of four, or a polygon of six numbers and more, all within the image.
_YOLO_ROW = re.compile(rb"[0-9]+(\s+-?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?){4,}\s*")

# Pixels of an image that are looked at, each way; the colours that cover this share of them are its main
# ones: 2 to 40 of a mask, 100 to 500 of a photo, about 14 of a grey one, each in steps of 16 levels.
_LOOKED_AT_SIDE = 64
_MAIN_SHARE = 0.95
_MOST_LABELS = 64
_MOST_BYTES = 100_000_000


def tells_boxes(folder: str, files: Iterable[str]) -> str | None:
    """Return the name of a file that holds boxes of an image of its name in the same folder, or None.

    Args:
        folder: Where the files lie.
        files: Their names.
    """
    names = list(files)
    described = [name for name in names if name.lower().endswith((".txt", ".xml", ".json"))]
    if not described:
        return None
    stems = {_stem(name) for name in names if _is_image(name)}
    paired = [name for name in described if _stem(name) in stems]
    if 2 * len(paired) < len(stems):
        return None
    return next((name for name in paired[:_SAMPLED] if holds_boxes(os.path.join(folder, name))), None)


def is_describing(name: str) -> bool:
    """Whether a folder's name is one that masks and annotations go by."""
    return _DESCRIBING_FOLDER.fullmatch(name) is not None


def annotation_files(folder: str) -> list[str]:
    """Return some of the files of a folder that holds nothing but annotations, relative to it; else none."""
    names = list(itertools.islice(_names_below(folder), _SAMPLED * 4))
    if any(map(_is_image, names)):
        return []
    return [name for name in names if name.lower().endswith(ANNOTATION_SUFFIXES)]


def pictures_below(folder: str) -> dict[str, str]:
    """Return the paths of the images in a folder and below it, by names without suffixes."""
    return pictures_in(folder, _names_below(folder))


def pictures_in(folder: str, names: Iterable[str]) -> dict[str, str]:
    """Return the paths of those files that are images by their names, by these without suffixes."""
    images = (name for name in itertools.islice(names, _MOST_NAMES) if _is_image(name))
    return {_stem(name): os.path.join(folder, name) for name in images}


def annotations_of(pictures: Mapping[str, str], folder: str, described: Sequence[str]) -> str | None:
    """Return what images and a folder beside them are, if it holds a file for each of them.

    Args:
        pictures: The images, by their names without suffixes.
        folder: The folder.
        described: Its `annotation_files`, one at least.
    """
    paths = [os.path.join(folder, name) for name in described[:_SAMPLED]]
    boxes = next((path for path in paths if holds_boxes(path)), None)
    matching = sum(_stem(name) in pictures for name in described)
    is_named_so = is_describing(os.path.basename(folder))
    if boxes is None:
        is_described = is_named_so and 2 * matching >= len(described)
        return "a dataset with annotations for each image" if is_described else None
    if not is_named_so and 2 * matching < len(described):
        return None
    return "a detection dataset of YOLO" if boxes.endswith(".txt") else "a detection dataset"


def holds_boxes(path: str) -> bool:
    """Whether a file holds boxes as YOLO (.txt), Pascal VOC (.xml) or LabelMe (.json) write them."""
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


def has_masks(pictures: Mapping[str, str], folder: str) -> bool:
    """Whether a folder holds masks of the images beside it: by its name, the files' names, and their pixels.

    Args:
        pictures: The images, by their names without suffixes.
        folder: The folder.
    """
    if not is_describing(os.path.basename(folder)):
        return False
    names = itertools.islice(_names_below(folder), 4 * _SAMPLED)
    masks = [name for name in names if _is_image(name, ".gif")][:_SAMPLED]
    stems = [_masked(_stem(name), pictures) for name in masks]
    pairs = [
        (pictures[stem], os.path.join(folder, name))
        for stem, name in zip(stems, masks, strict=True)
        if stem is not None
    ]
    if not pairs or 2 * len(pairs) < len(masks):
        return False
    return all(_is_mask_of(*pair) for pair in pairs[:: max(1, len(pairs) // _COMPARED)][:_COMPARED])


def masks_beside(folder: str, files: Iterable[str]) -> str | None:
    """Return the name of a mask of an image in the same folder, if half of its images have one; else None.

    Args:
        folder: Where the files lie.
        files: Their names.
    """
    by_stem: dict[str, list[str]] = {}
    for name in itertools.islice(files, _MOST_NAMES):
        if _is_image(name, ".gif"):
            by_stem.setdefault(_stem(name), []).append(name)
    pairs = []
    for stem, names in by_stem.items():
        named = _MASK_STEM.fullmatch(stem)
        if len(names) == 2:  # photo.jpg and photo.png
            pairs.append((min(names, key=_is_png), max(names, key=_is_png)))
        elif named and named[1] in by_stem:
            pairs.append((by_stem[named[1]][0], names[0]))
    masked = {image for image, _ in pairs}
    others = sum(map(len, by_stem.values())) - len(pairs)
    if not pairs or 2 * len(masked) < others:
        return None
    compared = pairs[:: max(1, len(pairs) // _COMPARED)][:_COMPARED]
    are_masks = all(_is_mask_of(*(os.path.join(folder, name) for name in pair)) for pair in compared)
    return pairs[0][1] if are_masks else None


def _is_png(name: str) -> bool:
    return name.lower().endswith(".png")


def _masked(stem: str, images: Mapping[str, str]) -> str | None:
    """The stem of the image that a mask belongs to: its own, or its own without an ending such as `_mask`."""
    while stem not in images:
        shorter = re.sub(r"[_ .-]?[^_ .-]+$", "", stem)
        if not shorter or shorter == stem:
            return None
        stem = shorter
    return stem


def _is_mask_of(image: str, mask: str) -> bool:
    """Whether a picture has few colours, as masks have, and the image of its name has many, or any at all."""
    pixels, labels = _pixels(image), _pixels(mask)
    if pixels is None or labels is None or pixels.shape[:2] != labels.shape[:2]:
        return False
    if 3 * _main_colours(labels) <= _main_colours(pixels):
        return True
    return labels.ndim == 2 < pixels.ndim and len(np.unique(labels)) <= _MOST_LABELS


def _main_colours(pixels: npt.NDArray[np.uint8]) -> int:
    height, width = pixels.shape[:2]
    sparse = pixels[:: max(1, height // _LOOKED_AT_SIDE), :: max(1, width // _LOOKED_AT_SIDE)]
    colours = sparse.reshape(-1, pixels.shape[2] if pixels.ndim == 3 else 1)[:, :3] // 16
    counts = np.sort(np.unique(colours, axis=0, return_counts=True)[1])[::-1]
    return int(np.searchsorted(np.cumsum(counts), _MAIN_SHARE * counts.sum())) + 1


def _pixels(path: str) -> npt.NDArray[np.uint8] | None:
    """The pixels of a file as it has them, grey or colour; None where it cannot be read as 8 bits."""
    from fastload.images.opencv import cv2  # only here: the loader, which lists folders too, runs without it

    try:
        if os.path.getsize(path) > _MOST_BYTES:
            return None
        with open(path, "rb") as file:
            pixels = cv2.imdecode(np.frombuffer(file.read(), np.uint8), cv2.IMREAD_UNCHANGED)
    except (OSError, cv2.error):
        return None
    return None if pixels is None or pixels.dtype != np.uint8 else np.asarray(pixels)


def _names_below(folder: str) -> Iterator[str]:
    """The files in a folder and in those below it, relative to it; of a great many folders, some."""
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


def _is_image(name: str, *more: str) -> bool:
    return name.lower().endswith((*IMAGE_SUFFIXES, *more))


def _stem(name: str) -> str:
    return os.path.splitext(os.path.basename(name))[0]
