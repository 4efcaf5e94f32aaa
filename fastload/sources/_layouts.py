"""Layouts of folders that hold more than class labels: packing would lose their boxes, masks or captions.

Each is recognised by names that only it uses or by the content of files, never by the names of class folders
alone: classes may well be called `images`, `labels` and `masks`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from fastload.errors import SourceError
from fastload.sources._annotations import find_annotations, read_part
from fastload.sources._foreign import FROM_PYTHON
from fastload.sources._walking import FolderEntries, list_entries

IMAGE_FOLDERS = ("images", "image", "imgs", "img")
"""Names of folders that hold images of all classes, if other signs confirm it."""

# COCO's and VOC's years: these folders hold images of all classes.
_YEAR_SPLIT = re.compile(r"(train|val|test|unlabeled|trainval)[_-]?20[0-9]{2}", re.IGNORECASE)
_NESTED = re.compile(r"train(ing)?|val(id(ation)?)?|test(ing)?|VOC(devkit|20[0-9]{2})", re.IGNORECASE)
_DEEPEST = 3

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_YAML_SPLITS = re.compile(rb"^train\s*:", re.MULTILINE)
_YAML_NAMES = re.compile(rb"^(names|nc)\s*:", re.MULTILINE)


def refuse_other_layouts(path: str) -> None:
    """Raise SourceError, naming the layout and a workaround, if a folder holds more than class labels."""
    for folder in _folders_to_check(path, _DEEPEST):
        for recognize in _LAYOUTS:
            found = recognize(folder)
            if found is not None:
                raise SourceError(f"{path}: must be a folder of images, by classes or not, got {found}")


def _folders_to_check(path: str, deepest: int) -> Iterator[FolderEntries]:
    """Yield the folder, and those in it that contain all of it or a split."""
    folder = list_entries(path)
    yield folder
    if deepest:
        for name in folder.folders:
            if len(folder.folders) == 1 or _NESTED.fullmatch(name):
                yield from _folders_to_check(folder.join(name), deepest - 1)


def _voc(folder: FolderEntries) -> str | None:
    others = {"Annotations", "SegmentationClass", "SegmentationObject", "ImageSets"} & {*folder.folders}
    if "JPEGImages" not in folder.folders or not others:
        return None
    return _refusal("a Pascal VOC dataset", folder, ["JPEGImages", *sorted(others)], "boxes and masks")


def _cityscapes(folder: FolderEntries) -> str | None:
    others = {"gtFine", "gtCoarse"} & {*folder.folders}
    if "leftImg8bit" not in folder.folders or not others:
        return None
    signs = ["leftImg8bit", *sorted(others)]
    return _refusal("a segmentation dataset like Cityscapes", folder, signs, "masks")


def _yolo_yaml(folder: FolderEntries) -> str | None:
    for name in folder.files:
        if name.lower().endswith((".yaml", ".yml")):
            text = read_part(folder.join(name))
            if _YAML_SPLITS.search(text) and _YAML_NAMES.search(text):
                return _refusal("a detection dataset of YOLO", folder, [name], "boxes")
    return None


def _coco(folder: FolderEntries) -> str | None:
    for name in ("", *(name for name in folder.folders if "annotation" in name.lower())):
        files = list_entries(folder.join(name)).files if name else folder.files
        for file in files:
            if file.lower().endswith(".json") and _is_coco(folder.join(name, file)):
                return _refusal("a COCO dataset", folder, [os.path.join(name, file)], "boxes and masks")
    years = [name for name in folder.folders if _YEAR_SPLIT.fullmatch(name)]
    others = [name for name in folder.folders if name not in years and "annotation" not in name.lower()]
    if years and not others and not any(list_entries(folder.join(name)).folders for name in years):
        return _refusal("splits of a dataset like COCO", folder, years, "boxes and masks")
    return None


def _hugging_face_metadata(folder: FolderEntries) -> str | None:
    for name in _METADATA:
        if name not in folder.files:
            continue
        path = folder.join(name)
        if not name.endswith(".parquet") and b"file_name" not in read_part(path).split(b"\n")[0]:
            continue
        table = "the table" if name.endswith(".csv") else "a table of it, with the column file_name,"
        csv = os.path.splitext(path)[0] + ".csv"
        return (
            f"a Hugging Face image folder ({path}), and the labels or texts in that file would be lost: "
            f"pack {table} instead ('fastload pack {csv} DEST'); or move the file elsewhere if the names of "
            "the folders are all you need"
        )
    return None


def _annotated(folder: FolderEntries) -> str | None:
    found = find_annotations(folder)
    return None if found is None else _refusal(found.kind, folder, found.signs, found.content)


_LAYOUTS: tuple[Callable[[FolderEntries], str | None], ...] = (
    _voc,
    _cityscapes,
    _yolo_yaml,
    _hugging_face_metadata,
    _coco,
    _annotated,
)


def _refusal(kind: str, folder: FolderEntries, signs: list[str], lost: str) -> str:
    shown = ", ".join(folder.join(sign) for sign in signs[:3])
    return (
        f"{kind} ({shown}), whose {lost} would be lost: fastload does not read this layout yet. "
        f"Pack a folder of its images alone, class-labelled crops, or a table (path, label); or, "
        f"{FROM_PYTHON}"
    )


def _is_coco(path: str) -> bool:
    """Return whether a JSON file has images and annotations, by its start, middle and end."""
    # COCO's own files are too large to be read whole.
    text = b"".join(read_part(path, share) for share in (0.0, 0.5, 1.0))
    return b'"image_id"' in text and (b'"images"' in text or b'"annotations"' in text)
