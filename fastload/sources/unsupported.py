"""Explanations for files and folders that are no source: the kind of their files, and a workaround."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fastload.shards.manifest import LeftOut
from fastload.sources.left_out import NO_IMAGE, count_suffixes
from fastload.sources.listing import IMAGE_SUFFIXES
from fastload.sources.malformed import FROM_PYTHON, pack_command
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
    ((".xlsx", ".xls", ".ods"), "a spreadsheet", "save it as 'CSV UTF-8'"),
    ((".zip", ".gz", ".bz2", ".xz", ".7z", ".rar", ".zst"), "packed archives", "unpack them first"),
    (
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
            first = next(entry.key for entry in files if entry.key.lower().endswith(suffixes))
            if workaround is _PACKED and (inner := os.path.dirname(first)):
                workaround = f"{pack_command(os.path.join(path, inner))} packs those of one folder"
            return f"{wanted}got none, but {description} ({format_count(count, 'file')}): {workaround}"
    tables = [entry.key for entry in files if entry.key.lower().endswith((".csv", ".tsv"))]
    if tables:
        command = pack_command(os.path.join(path, tables[0]))
        return f"{wanted}got none, but a table, {tables[0]}: {command} packs its rows"
    unread = [entry for entry in files if entry.reason != NO_IMAGE]
    if unread:
        found = f"{unread[0].reason} ({format_count(sum(entry.files for entry in unread), 'file')})"
        return f"{wanted}got none that can be read, but {found}: convert them first"
    found = f"got none among {format_count(sum(entry.files for entry in left_out), 'file')}"
    return f"{wanted}{found}: check the path; or {FROM_PYTHON}"
