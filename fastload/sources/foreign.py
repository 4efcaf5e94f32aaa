"""Files in which other programs keep images, each with what to do until they are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from fastload.shards.manifest import LeftOut
from fastload.sources.left_out import NO_IMAGE, kinds_of
from fastload.sources.walking import IMAGE_SUFFIXES

FROM_PYTHON = (
    "in Python, fastload.pack takes a map-style dataset that reads them: fastload.pack(dataset, 'DEST.fl')"
)


@dataclass(frozen=True, slots=True)
class _Foreign:
    """Files of some suffixes.

    Attributes:
        suffixes: What their names end in.
        what: What they are called.
        remedy: What can be done today.
    """

    suffixes: tuple[str, ...]
    what: str
    remedy: str


_FOREIGN = (
    _Foreign(
        (".arrow",),
        "a Hugging Face dataset as save_to_disk writes it (.arrow)",
        "in Python, fastload.pack(datasets.load_from_disk(FOLDER), 'DEST.fl') takes it, a split at a time",
    ),
    _Foreign(
        (".parquet",),
        "Parquet files, as Hugging Face datasets have them",
        "in Python, fastload.pack(datasets.load_dataset(FOLDER, split='train'), 'DEST.fl') takes them",
    ),
    _Foreign(
        (".tfrecord", ".tfrecords"),
        "TFRecord files of TensorFlow",
        f"write them as files in class folders; or {FROM_PYTHON}",
    ),
    _Foreign((".mdb", ".lmdb"), "an LMDB database of another program", f"{FROM_PYTHON}"),
    _Foreign((".h5", ".hdf5", ".he5"), "HDF5 files of another program", f"{FROM_PYTHON}"),
    _Foreign((".beton",), "a dataset of FFCV (.beton)", "pack what it was made from"),
    _Foreign((".rec",), "a RecordIO file of MXNet (.rec)", "unpack it into class folders first"),
    _Foreign((".npy", ".npz", ".mat"), "arrays (.npy, .npz, .mat)", f"{FROM_PYTHON}"),
    _Foreign(
        (".pkl", ".pickle", ".pt", ".pth"), "pickled objects, which fastload never loads", f"{FROM_PYTHON}"
    ),
    _Foreign((".mp4", ".avi", ".mkv", ".mov", ".webm"), "videos", "write their frames as image files first"),
    _Foreign(
        (".tar",),
        "tar files, such as the shards of a WebDataset",
        "unpack them first: into class folders, or beside a table of paths and labels",
    ),
    _Foreign(
        (".zip", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst"), "packed archives", "unpack them first"
    ),
    _Foreign(
        (".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".xml"),
        "descriptions without their images",
        "name the folder of the images; where labels stand in the description, write a table (path, label); "
        f"or {FROM_PYTHON}",
    ),
)


def explain_file(path: str) -> str:
    """Return what a file is that is no source, and what to do with it.

    >>> explain_file("digits.beton")
    'a dataset of FFCV (.beton): pack what it was made from'
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix in IMAGE_SUFFIXES:
        return "a single image: name its folder"
    kind = _kind(suffix)
    return (
        f"{kind.what}: {kind.remedy}"
        if kind
        else f"another kind of file: name the folder of the images, or {FROM_PYTHON}"
    )


def explain_no_images(path: str, left_out: Sequence[LeftOut]) -> str:
    """Return a sentence that says what a folder without images holds instead, and what to do.

    Args:
        path: The folder.
        left_out: The files that it holds.
    """
    wanted = f"{path}: must hold images, or class folders of images, "
    files = [entry for entry in left_out if not entry.is_clutter]
    for kind in _FOREIGN:
        count = sum(number for suffix, number in kinds_of(files).items() if suffix in kind.suffixes)
        if count:
            return f"{wanted}got none, but {kind.what} ({_counted(count)}): {kind.remedy}"
    unread = [entry for entry in files if entry.reason != NO_IMAGE]
    if unread:
        found = f"{unread[0].reason} ({_counted(sum(entry.files for entry in unread))})"
        return f"{wanted}got none that can be read, but {found}: convert them first"
    found = f"got none among {_counted(sum(entry.files for entry in left_out))}"
    return f"{wanted}{found}: check the path; or {FROM_PYTHON}"


def _kind(suffix: str) -> _Foreign | None:
    return next((kind for kind in _FOREIGN if suffix in kind.suffixes), None)


def _counted(files: int) -> str:
    return f"{files:,} {'file' if files == 1 else 'files'}"
