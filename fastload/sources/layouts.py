"""Layouts of folders that hold more than class labels: boxes, masks, captions would be lost in packing.

Each is recognised by names that nothing else has, or by what files say, never by the names of class
folders alone: classes may well be called `images`, `labels` and `masks`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastload.errors import SourceError
from fastload.sources.annotations import (
    annotation_files,
    annotations_of,
    has_masks,
    is_describing,
    masks_beside,
    pictures_below,
    pictures_in,
    tells_boxes,
)
from fastload.sources.foreign import FROM_PYTHON

IMAGE_FOLDERS = ("images", "image", "imgs", "img")
"""Names of folders that hold images, and are no class, where other signs say so too."""

# COCO's and VOC's years: these folders hold images of all classes.
_YEAR_SPLIT = re.compile(r"(train|val|test|unlabeled|trainval)[_-]?20[0-9]{2}", re.IGNORECASE)
_PASSED_THROUGH = re.compile(r"train(ing)?|val(id(ation)?)?|test(ing)?|VOC(devkit|20[0-9]{2})", re.IGNORECASE)
_DEEPEST = 3
# More folders than this beside each other are classes.
_MOST_FOLDERS = 16
_LOOKED_AT_BYTES = 1 << 16

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_YAML_SPLITS = re.compile(rb"^train\s*:", re.MULTILINE)
_YAML_NAMES = re.compile(rb"^(names|nc)\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder as a rule sees it.

    Attributes:
        path: Where it is.
        folders: The names of its folders that are not hidden, sorted.
        files: The names of its files, sorted.
    """

    path: str
    folders: tuple[str, ...]
    files: tuple[str, ...]

    def join(self, *names: str) -> str:
        """The path of something in it."""
        return os.path.join(self.path, *names)


def refuse_other_layouts(path: str) -> None:
    """Refuse a folder whose layout says that it holds more than images and class labels.

    Raises:
        SourceError: It is one of these layouts; says which, by what sign, and what can be done.
    """
    for place in _places(path, _DEEPEST):
        for rule in _RULES:
            found = rule(place)
            if found is not None:
                raise SourceError(f"{path}: must be a folder of images, by classes or not, got {found}")


def _places(path: str, deepest: int) -> Iterator[Place]:
    """The folder, and those in it that stand for all of it or for a split."""
    place = _look(path)
    yield place
    if deepest:
        for folder in place.folders:
            if len(place.folders) == 1 or _PASSED_THROUGH.fullmatch(folder):
                yield from _places(place.join(folder), deepest - 1)


def _look(path: str) -> Place:
    folders, files = [], []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    is_folder = entry.is_dir()
                except OSError:
                    continue
                if not is_folder:
                    files.append(entry.name)
                elif not entry.name.startswith("."):
                    folders.append(entry.name)
    except OSError:
        pass  # the listing says so
    return Place(path, tuple(sorted(folders)), tuple(sorted(files)))


def _voc(place: Place) -> str | None:
    others = {"Annotations", "SegmentationClass", "SegmentationObject", "ImageSets"} & {*place.folders}
    if "JPEGImages" not in place.folders or not others:
        return None
    return _refusal("a Pascal VOC dataset", place, ["JPEGImages", *sorted(others)], "boxes and masks")


def _cityscapes(place: Place) -> str | None:
    others = {"gtFine", "gtCoarse"} & {*place.folders}
    if "leftImg8bit" not in place.folders or not others:
        return None
    return _refusal("a segmentation dataset as Cityscapes", place, ["leftImg8bit", *sorted(others)], "masks")


def _yolo_description(place: Place) -> str | None:
    for name in place.files:
        if name.lower().endswith((".yaml", ".yml")):
            text = _start(place.join(name))
            if _YAML_SPLITS.search(text) and _YAML_NAMES.search(text):
                return _refusal("a detection dataset of YOLO", place, [name], "boxes")
    return None


def _coco(place: Place) -> str | None:
    for folder in ("", *(name for name in place.folders if "annotation" in name.lower())):
        names = place.files if not folder else _look(place.join(folder)).files
        for name in names:
            if name.lower().endswith(".json") and _is_coco(place.join(folder, name)):
                return _refusal("a dataset of COCO", place, [os.path.join(folder, name)], "boxes and masks")
    years = [name for name in place.folders if _YEAR_SPLIT.fullmatch(name)]
    others = [name for name in place.folders if name not in years and "annotation" not in name.lower()]
    if years and not others and all(not _look(place.join(name)).folders for name in years):
        return _refusal("splits of a dataset such as COCO", place, years, "boxes and masks")
    return None


def _metadata(place: Place) -> str | None:
    for name in _METADATA:
        if name not in place.files:
            continue
        if not name.endswith(".parquet") and b"file_name" not in _start(place.join(name)).split(b"\n")[0]:
            continue
        table = "the table" if name.endswith(".csv") else "a table of it, with the column file_name,"
        csv = os.path.splitext(place.join(name))[0] + ".csv"
        return (
            f"a Hugging Face image folder ({place.join(name)}), whose labels or texts stand in that file "
            f"and would be lost: pack {table} instead ('fastload pack {csv} DEST'); or move the file "
            "elsewhere if the folders' names are all that is wanted"
        )
    return None


def _annotated(place: Place) -> str | None:
    if len(place.folders) > _MOST_FOLDERS:
        return None
    found = tells_boxes(place.path, place.files)
    if found is not None:
        return _refusal("a detection dataset", place, [found], "boxes")
    folders = {folder: annotation_files(place.join(folder)) for folder in place.folders}
    folders = {folder: files for folder, files in folders.items() if files or is_describing(folder)}
    if not folders:
        return None
    pictures = [("", pictures_in(place.path, place.files))]
    pictures += [(folder, pictures_below(place.join(folder))) for folder in place.folders]
    for folder, described in folders.items():
        for images, by_name in pictures:
            if not by_name or images == folder:
                continue
            if described:
                found = annotations_of(by_name, place.join(folder), described)
                is_detection = found is not None and "detection" in found
                # A folder beside loose images is left out, with its files listed: only boxes are sure signs.
                if found is not None and (is_detection or images):
                    lost = "boxes" if is_detection else "annotations"
                    return _refusal(found, place, [images, folder], lost)
            elif has_masks(by_name, place.join(folder)):
                return _refusal("a segmentation dataset", place, [images, folder], "masks")
    return None


def _masked(place: Place) -> str | None:
    if len(place.folders) > _MOST_FOLDERS:
        return None
    for folder in ("", *place.folders):
        files = _look(place.join(folder)).files if folder else place.files
        found = masks_beside(place.join(folder), files)
        if found is not None:
            return _refusal("a segmentation dataset", place, [os.path.join(folder, found)], "masks")
    return None


_RULES: tuple[Callable[[Place], str | None], ...] = (
    _voc,
    _cityscapes,
    _yolo_description,
    _metadata,
    _coco,
    _annotated,
    _masked,
)


def _refusal(what: str, place: Place, signs: list[str], lost: str) -> str:
    shown = ", ".join(place.join(sign) for sign in signs[:3])
    return (
        f"{what} ({shown}), whose {lost} would be lost: fastload does not read this layout yet. "
        f"Pack a folder of its images alone, class-labelled crops, or a table (path, label); or, "
        f"{FROM_PYTHON}"
    )


def _is_coco(path: str) -> bool:
    """Whether a JSON file has images and annotations: by three stretches of it, for COCO's own are large."""
    text = _start(path) + _read(path, 0.5) + _read(path, 1.0)
    return b'"image_id"' in text and (b'"images"' in text or b'"annotations"' in text)


def _start(path: str) -> bytes:
    return _read(path, 0.0)


def _read(path: str, share: float) -> bytes:
    """A stretch of a file, so far from its beginning to its end; nothing of one that cannot be read."""
    try:
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            file.seek(int(share * max(0, os.path.getsize(path) - _LOOKED_AT_BYTES)))
            return file.read(_LOOKED_AT_BYTES)
    except OSError:
        return b""
