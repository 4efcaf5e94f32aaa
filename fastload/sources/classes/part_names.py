"""Names of folders that are parts, views or splits of one dataset rather than classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

from fastload.sources.splits import SPLIT_WORD, SPLITS

_IMAGES = frozenset(
    [
        "image",
        "images",
        "img",
        "imgs",
        "jpegimages",
        "photos",
        "pictures",
        "jpg",
        "jpgs",
        "jpeg",
        "jpegs",
        "png",
        "pngs",
        "tif",
        "tiff",
        "frames",
        "leftimg8bit",
    ]
)
_ANNOTATIONS = frozenset(
    [
        "masks",
        "labels",
        "labeltxt",
        "annot",
        "annots",
        "anns",
        "annotation",
        "annotations",
        "segmentation",
        "segmentations",
        "gt",
        "gts",
        "gtfine",
        "gtcoarse",
        "groundtruth",
        "groundtruths",
        "trimaps",
        "bbox",
        "bboxes",
        "calib",
    ]
)
# Words that are a part only before a number, as KITTI's `label_2`.
_NUMBERED = frozenset({"label", "mask"})

# Words for the images of one scene, and for results of an image. A class may have such a name too: only
# folders that all have one are pairs.
_VIEWS = frozenset(
    [
        "rgb",
        "thermal",
        "ir",
        "nir",
        "infrared",
        "visible",
        "left",
        "right",
        "input",
        "inputs",
        "output",
        "outputs",
        "noisy",
        "clean",
        "blur",
        "blurred",
        "sharp",
        "hazy",
        "clear",
        "rainy",
        "norain",
        "hr",
        "lr",
        "high",
        "low",
        "before",
        "after",
        "top",
        "ortho",
        "raw",
        "stills",
        "original",
        "source",
        "target",
        "targets",
    ]
)
_RESULTS = frozenset(
    [
        "mask",
        "label",
        "labeled",
        "annotated",
        "seg",
        "segm",
        "segim",
        "depth",
        "disp",
        "disparity",
        "normals",
        "flow",
        "edges",
        "matte",
        "alpha",
        "map",
        "semantic",
        "instance",
    ]
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_NUMBER = re.compile(r"[_ -]?[0-9]+$")


def named_parts(names: Sequence[str]) -> list[str]:
    """Return the names that are those of parts of a dataset, images before annotations.

    >>> named_parts(["label_2", "image_2"]), named_parts(["food_labels", "bag_labels"])
    (['image_2', 'label_2'], [])
    """
    found = {name: part for name in names if (part := _part_of(name))}
    are_alike = len({word for _, word in found.values()}) == 1
    prefixes = {prefix for prefix, _ in found.values()}
    if are_alike and 1 < len(found) == len(names) == len(prefixes - {""}):
        return []  # classes that end in one word
    return sorted(found, key=lambda name: found[name][1] not in _IMAGES)


def is_part(name: str) -> bool:
    """Return True if a folder's name is that of a part of a dataset, such as `masks` or `gt_image_2`."""
    return _part_of(name) is not None


def is_image_part(name: str) -> bool:
    """Return True if a folder's name is that of the images of a dataset."""
    part = _part_of(name)
    return part is not None and part[1] in _IMAGES


def _part_of(name: str) -> tuple[str, str] | None:
    """Return the words before the one that names a part, and that one; None if there is none."""
    base = _NUMBER.sub("", name).lower()
    prefix, _, last = base.rpartition("_") if "_" in base else base.rpartition("-")
    whole = re.sub("[_ -]", "", base)
    for before, word in ((prefix, last), ("", whole)):
        is_known = word in _IMAGES or word in _ANNOTATIONS or (word in _NUMBERED and base != name.lower())
        if is_known and " " not in before:
            return before, word
    if re.fullmatch("[a-z]{3,}annot", whole):  # trainannot
        return whole[: -len("annot")], "annot"
    return None


def are_views(names: Sequence[str]) -> bool:
    """Return True if folders are named after views of one scene, or after images and results.

    >>> are_views(["hazy", "clear"]), are_views(["mask", "no_mask"]), are_views(["A", "B", "label"])
    (True, False, True)
    """
    words = [{*map(str.lower, _WORD.findall(name))} for name in names]
    has_result = any(found & (_RESULTS | _ANNOTATIONS) for found in words)
    letters = {"a", "b"} if has_result else {"x", "y"} if {*map(str.lower, names)} == {"x", "y"} else set()
    known = _VIEWS | _RESULTS | _ANNOTATIONS | _IMAGES | letters
    told = [found & known for found in words]
    return all(told) and all(first != second for first, second in combinations(told, 2))


def named_splits(names: Sequence[str]) -> list[str]:
    """Return the names that are those of splits under other words: of which the split's word alone differs.

    >>> named_splits(["WIDER_train", "WIDER_val", "readme"]), named_splits(["crash test", "fire test"])
    (['WIDER_train', 'WIDER_val'], [])
    """
    found = {name: match for name in names if (match := SPLIT_WORD.search(name))}
    split_of = {name: SPLITS.get(match[0].rstrip("AB").lower(), "") for name, match in found.items()}
    if len(found) == len(names) > 1 and len({*split_of.values()}) > 1:
        return list(found)
    rest = {name: name[: match.start()] + name[match.end() :] for name, match in found.items()}
    pairs = [
        (first, second)
        for first, second in combinations(found, 2)
        if rest[first] == rest[second] and split_of[first] != split_of[second]
    ]
    return sorted({name for pair in pairs for name in pair})


def is_split_alone(name: str) -> bool:
    """Return True if a folder's name begins or ends with the word of a split, as `val2017`."""
    match = SPLIT_WORD.search(name)
    return match is not None and (
        match.start() == 0 or name[match.end() :].isdigit() or match.end() == len(name)
    )
