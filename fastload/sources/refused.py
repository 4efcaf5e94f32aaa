"""Refused sources: folders with boxes, masks or captions, which packing would lose, and unsupported files.

A layout is recognised by names that only it uses or by the content of files, never by folder names that
classes may have too, such as `images`, `labels` and `masks`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut
from fastload.sources.annotations import FoundAnnotations, find_annotations
from fastload.sources.layouts import annotated_kind
from fastload.sources.left_out import NO_IMAGE, count_suffixes
from fastload.sources.malformed import FROM_PYTHON
from fastload.sources.walking import IMAGE_SUFFIXES, FolderEntries, list_entries, read_part
from fastload.system.units import format_count

_PACKED = "'fastload pack' takes such a file, or a folder of them alone: pack it, and name its DEST.fl"

# Suffixes, the description of such files, and the workaround.
_FILE_KINDS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    ((".arrow", ".parquet"), "a Hugging Face dataset (.arrow, .parquet)", _PACKED),
    ((".tfrecord", ".tfrecords"), "TFRecord files of TensorFlow", FROM_PYTHON),
    ((".mdb", ".lmdb"), "an LMDB database of another program", _PACKED),
    ((".h5", ".hdf5", ".he5"), "HDF5 files of another program", _PACKED),
    ((".beton",), "a dataset of FFCV (.beton)", "pack its source instead"),
    ((".rec",), "a RecordIO file of MXNet (.rec)", "unpack it into class folders first"),
    ((".npy", ".npz", ".mat"), "arrays (.npy, .npz, .mat)", FROM_PYTHON),
    ((".pkl", ".pickle", ".pt", ".pth"), "pickled objects, which fastload never loads", FROM_PYTHON),
    ((".mp4", ".avi", ".mkv", ".mov", ".webm"), "videos", "write their frames as image files first"),
    ((".tar", ".tgz", ".tbz2", ".txz"), "tar files, such as the shards of a WebDataset", _PACKED),
    ((".zip", ".gz", ".bz2", ".xz", ".7z", ".rar", ".zst"), "packed archives", "unpack them first"),
    (
        (".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".xml"),
        "descriptions without their images",
        "name the folder of the images; if the description holds labels, write a table (path, label); "
        f"or {FROM_PYTHON}",
    ),
)

IMAGE_FOLDERS = ("images", "image", "imgs", "img")
"""Names of folders that hold images of all classes, if other signs confirm it."""

# Folders named after a split and a year, as in COCO and VOC, hold images of all classes.
_YEAR_SPLIT = re.compile(r"(train|val|test|unlabeled|trainval)[_-]?20[0-9]{2}", re.IGNORECASE)
_NESTED = re.compile(r"train(ing)?|val(id(ation)?)?|test(ing)?|VOC(devkit|20[0-9]{2})", re.IGNORECASE)
_DEEPEST = 3

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")

# Layouts that are not read: the kind, the folder of the images, folders beside it, and their content.
_FOLDERS = (
    ("a Pascal VOC dataset", "JPEGImages", ("ImageSets",), "splits"),
    ("a segmentation dataset like Cityscapes", "leftImg8bit", ("gtFine", "gtCoarse"), "masks"),
)


def refuse_other_layouts(path: str) -> None:
    """Raise SourceError, naming the layout and a workaround, if a folder holds more than class labels."""
    for folder in _folders_to_check(path, _DEEPEST):
        found = _packed_layout(folder) or _hugging_face_metadata(folder) or _unread_layout(folder)
        if found is not None:
            raise SourceError(f"{path}: must be a folder of images, by classes or not, got {found}")


def _folders_to_check(path: str, deepest: int) -> Iterator[FolderEntries]:
    """Yield a folder, and the folders in it that hold all of its images or a split of them."""
    folder = list_entries(path)
    yield folder
    if deepest:
        for name in folder.folders:
            if len(folder.folders) == 1 or _NESTED.fullmatch(name):
                yield from _folders_to_check(folder.join(name), deepest - 1)


def _packed_layout(folder: FolderEntries) -> str | None:
    kind = annotated_kind(folder.path)
    if kind is None:
        return None
    lost = "whose boxes and masks would be lost"
    return f"{kind} ({folder.path}), {lost}: 'fastload pack {folder.path} DEST' keeps them"


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


def _unread_layout(folder: FolderEntries) -> str | None:
    found = _known_folders(folder) or find_annotations(folder)
    if found is None:
        return None
    kind, signs, lost = found
    return (
        f"{kind} ({', '.join(map(folder.join, signs[:3]))}), whose {lost} would be lost: fastload does "
        "not read this layout. Pack a folder of its images alone, class-labelled crops, or a table (path, "
        f"label); or, {FROM_PYTHON}"
    )


def _known_folders(folder: FolderEntries) -> FoundAnnotations | None:
    for kind, images, beside, lost in _FOLDERS:
        others = sorted({*beside} & {*folder.folders})
        if images in folder.folders and others:
            return kind, [images, *others], lost
    years = [name for name in folder.folders if _YEAR_SPLIT.fullmatch(name)]
    others = [name for name in folder.folders if name not in years and "annotation" not in name.lower()]
    if years and not others and not any(list_entries(folder.join(name)).folders for name in years):
        return "splits of a dataset like COCO", years, "boxes and masks"
    return None


def explain_file(path: str) -> str:
    """Return the description of a file that cannot be a source, and the workaround.

    >>> explain_file("digits.beton")
    'a dataset of FFCV (.beton): pack its source instead'
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix in IMAGE_SUFFIXES:
        return "a single image: name its folder"
    for suffixes, description, workaround in _FILE_KINDS:
        if suffix in suffixes:
            return f"{description}: {workaround}"
    return f"another kind of file: name the folder of the images, or {FROM_PYTHON}"


def explain_no_images(path: str, left_out: Sequence[LeftOut]) -> str:
    """Return the error message for a folder without images: its other files, and a workaround."""
    wanted = f"{path}: must hold images, or class folders of images, "
    files = [entry for entry in left_out if not entry.is_clutter]
    counts = count_suffixes(files)
    for suffixes, description, workaround in _FILE_KINDS:
        count = sum(counts[suffix] for suffix in suffixes)
        if count:
            return f"{wanted}got none, but {description} ({format_count(count, 'file')}): {workaround}"
    unread = [entry for entry in files if entry.reason != NO_IMAGE]
    if unread:
        found = f"{unread[0].reason} ({format_count(sum(entry.files for entry in unread), 'file')})"
        return f"{wanted}got none that can be read, but {found}: convert them first"
    found = f"got none among {format_count(sum(entry.files for entry in left_out), 'file')}"
    return f"{wanted}{found}: check the path; or {FROM_PYTHON}"
