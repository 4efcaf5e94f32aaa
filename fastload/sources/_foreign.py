"""Files of other programs that may hold images, each with a workaround until they can be read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from fastload.shards.manifest import LeftOut
from fastload.sources._walking import IMAGE_SUFFIXES
from fastload.sources.left_out import NO_IMAGE, count_suffixes

FROM_PYTHON = (
    "in Python, fastload.pack takes a map-style dataset that reads them: fastload.pack(dataset, 'DEST.fl')"
)


class _FileKind(NamedTuple):
    suffixes: tuple[str, ...]
    description: str
    workaround: str = FROM_PYTHON


_FILE_KINDS = (
    _FileKind(
        (".arrow",),
        "a Hugging Face dataset as save_to_disk writes it (.arrow)",
        "in Python, fastload.pack(datasets.load_from_disk(FOLDER), 'DEST.fl') takes it, a split at a time",
    ),
    _FileKind(
        (".parquet",),
        "Parquet files, as Hugging Face datasets have them",
        "in Python, fastload.pack(datasets.load_dataset(FOLDER, split='train'), 'DEST.fl') takes them",
    ),
    _FileKind(
        (".tfrecord", ".tfrecords"),
        "TFRecord files of TensorFlow",
        f"write them as files in class folders; or {FROM_PYTHON}",
    ),
    _FileKind((".mdb", ".lmdb"), "an LMDB database of another program"),
    _FileKind((".h5", ".hdf5", ".he5"), "HDF5 files of another program"),
    _FileKind((".beton",), "a dataset of FFCV (.beton)", "pack its source instead"),
    _FileKind((".rec",), "a RecordIO file of MXNet (.rec)", "unpack it into class folders first"),
    _FileKind((".npy", ".npz", ".mat"), "arrays (.npy, .npz, .mat)"),
    _FileKind((".pkl", ".pickle", ".pt", ".pth"), "pickled objects, which fastload never loads"),
    _FileKind((".mp4", ".avi", ".mkv", ".mov", ".webm"), "videos", "write their frames as image files first"),
    _FileKind(
        (".tar",),
        "tar files, such as the shards of a WebDataset",
        "unpack them first: into class folders, or beside a table of paths and labels",
    ),
    _FileKind(
        (".zip", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst"), "packed archives", "unpack them first"
    ),
    _FileKind(
        (".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".xml"),
        "descriptions without their images",
        "name the folder of the images; if the description holds labels, write a table (path, label); "
        f"or {FROM_PYTHON}",
    ),
)


def explain_file(path: str) -> str:
    """Return the description of a file that cannot be a source, and the workaround.

    >>> explain_file("digits.beton")
    'a dataset of FFCV (.beton): pack its source instead'
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix in IMAGE_SUFFIXES:
        return "a single image: name its folder"
    for kind in _FILE_KINDS:
        if suffix in kind.suffixes:
            return f"{kind.description}: {kind.workaround}"
    return f"another kind of file: name the folder of the images, or {FROM_PYTHON}"


def explain_no_images(path: str, left_out: Sequence[LeftOut]) -> str:
    """Return the error message for a folder without images: its other files, and a workaround."""
    wanted = f"{path}: must hold images, or class folders of images, "
    files = [entry for entry in left_out if not entry.is_clutter]
    suffixes = count_suffixes(files)
    for kind in _FILE_KINDS:
        count = sum(suffixes[suffix] for suffix in kind.suffixes)
        if count:
            return f"{wanted}got none, but {kind.description} ({_counted(count)}): {kind.workaround}"
    unread = [entry for entry in files if entry.reason != NO_IMAGE]
    if unread:
        found = f"{unread[0].reason} ({_counted(sum(entry.files for entry in unread))})"
        return f"{wanted}got none that can be read, but {found}: convert them first"
    found = f"got none among {_counted(sum(entry.files for entry in left_out))}"
    return f"{wanted}{found}: check the path; or {FROM_PYTHON}"


def _counted(files: int) -> str:
    return f"{files:,} {'file' if files == 1 else 'files'}"
