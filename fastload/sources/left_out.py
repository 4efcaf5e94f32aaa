"""Files that are no records: reasons, a list of bounded length, a summary, and what to do about a kind."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fastload.shards.manifest import LeftOut
from fastload.sources.listing import IMAGE_SUFFIXES
from fastload.sources.malformed import FROM_PYTHON, pack_command
from fastload.system.units import format_count

NO_IMAGE = "not an image"
HIDDEN = "hidden"
SYSTEM = "system file"
ABOUT = "about the dataset"

# A manifest is read whenever its dataset is opened; a thousand names take 0.1 MB of it.
MOST_LISTED = 1000
_MOST_SUFFIXES = 100

_SYSTEM_NAMES = {".ds_store", "thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "icon\r"}
_ABOUT = re.compile(
    r"(readme([_-]\w+|\.(roboflow|dataset))?|licen[cs]e([_-](mit|apache|bsd|gpl|lgpl|mpl|cc)[\w.-]*)?|copying|copyright|notice|citation|authors|changelog|contributing)"
    r"(\.(md|markdown|txt|rst|html|pdf|cff|bib))?",
    re.IGNORECASE,
)
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9_]{0,9}|\.[0-9]?[A-Za-z]{1,3}")

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


def clutter_reason(path: str) -> str | None:
    """Return the reason why a file or folder of this path is clutter, or None if it is not."""
    name = os.path.basename(path)
    if name.lower() in _SYSTEM_NAMES or name.startswith("._"):
        return SYSTEM
    if "/." in f"/{path}":
        return HIDDEN
    return ABOUT if _ABOUT.fullmatch(name) else None


class LeftOutFiles:
    """List of left-out files; too many with one reason are counted by suffix instead, as `**/*.txt`."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bool], tuple[list[str], Counter[str]]] = {}

    def add(self, key: str, reason: str, *, is_clutter: bool = False) -> None:
        """Add a file by its path relative to the source; `is_clutter` if no user would want it packed.

        The names of system files, hidden ones and those about the dataset are reasons that come first.
        """
        if clutter := clutter_reason(key):
            reason, is_clutter = clutter, True
        names, suffixes = self._found.setdefault((reason, is_clutter), ([], Counter()))
        suffix = _suffix_of(key)
        suffixes[suffix if suffix in suffixes or len(suffixes) < _MOST_SUFFIXES else ""] += 1
        if len(names) <= MOST_LISTED:
            names.append(key)

    def finish(self) -> tuple[LeftOut, ...]:
        """Return all files added so far, sorted by reason and name."""
        listed: list[LeftOut] = []
        for (reason, is_clutter), (names, suffixes) in self._found.items():
            if len(names) <= MOST_LISTED:
                listed += [LeftOut(name, reason, 1, is_clutter) for name in sorted(names)]
            else:
                counts = sorted(suffixes.items())
                listed += [LeftOut(f"**/*{suffix}", reason, count, is_clutter) for suffix, count in counts]
        return tuple(sorted(listed, key=lambda entry: (entry.is_clutter, entry.reason)))


def count_suffixes(left_out: Iterable[LeftOut]) -> Counter[str]:
    """Return the number of left-out files of each suffix."""
    suffixes: Counter[str] = Counter()
    for entry in left_out:
        suffixes[_suffix_of(entry.key)] += entry.files
    return suffixes


def describe_left_out(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """Yield a line for each reason: the number of files, and their suffixes."""
    by_reason: dict[str, list[LeftOut]] = {}
    for entry in left_out:
        by_reason.setdefault(entry.reason, []).append(entry)
    for reason, entries in by_reason.items():
        files = sum(entry.files for entry in entries)
        suffixes = sorted(count_suffixes(entries).items(), key=lambda item: (-item[1], item[0]))
        shown = [f"{count:,} {suffix or 'without a suffix'}" for suffix, count in suffixes[:5]]
        if len(suffixes) > len(shown):
            shown.append(f"{sum(count for _, count in suffixes[5:]):,} of other kinds")
        yield f"left out, {reason}: {format_count(files, 'file')} ({', '.join(shown)})"


def _suffix_of(name: str) -> str:
    suffix = os.path.splitext(name)[1]
    return suffix.lower() if _SUFFIX.fullmatch(suffix) else ""


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
