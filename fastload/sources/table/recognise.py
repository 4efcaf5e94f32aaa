"""Recognition of the labels beside images: tables that name the images, and files that are not read.

Their first lines decide; no image is opened.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import os
import re
import shlex
from collections.abc import Iterator, Sequence

from fastload.errors import FastloadError
from fastload.sources.listing import Folder, Listing, is_image, read_part, stem_of
from fastload.sources.malformed import in_quotes, pack_command
from fastload.sources.protocol import Doubt
from fastload.sources.splits import splits_in
from fastload.sources.table.cells import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    WRITE_TABLE,
    delimiter_of,
    read_table,
)
from fastload.sources.table.images import IMAGE_HEADERS, ImageSearch, plain_path
from fastload.sources.table.source import list_table

_MOST_ROWS = 50
_MOST_FILES = 32  # that are opened in a folder: there may be one for each image
_MOST_FOLDERS = 16
_LEAST_DIGITS = 4

_CAPTION_NUMBER = re.compile("#[0-9]+$")  # a.jpg#0, the first caption of an image
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?")
_JSON_TEXT = re.compile(r'"([^"\\]{1,255})"')
_NOT_READ = (".csv", ".tsv", ".mat", ".xlsx", ".xls", ".npy", ".npz", ".pkl", *TEXT_SUFFIXES, ".json")
_OF_LABELS = re.compile(r"label|annot|ground_?truth|target|attr(?!ibution)|identity", re.IGNORECASE)
_HEADERS_OF_LABELS = re.compile(r"label|class|categor|target|diagnos|breed|species", re.IGNORECASE)
_HEADERS_OF_NUMBERS = {*IMAGE_HEADERS} - {"id"}  # which may be that of a class


def tables_beside(listing: Listing, folders: Sequence[Folder]) -> Iterator[Doubt]:
    """Yield the doubts about tables that name images in or below some folders."""
    found = [each for folder in folders for each in _tables(listing, folder, folder.path)]
    for folder in (listing[name] for name in listing.top.visible[:_MOST_FOLDERS]):
        if folder not in folders:
            place = folder.path if folder.images or folder.folders else ""
            tables = _tables(listing, folder, place)
            found += [each for each in tables if not (place and _is_of_one_class(listing, each[-1]))]
    if found:
        yield _doubt_of(listing, [path for *_, path in sorted(found)])
    for folder in folders:
        for name in folder.others_with(".parquet"):
            path = folder.join(name)
            # The names of columns are in the clear at the end of the file.
            if name == "metadata.parquet" or b"file_name" in read_part(listing.absolute(path), 1):
                yield Doubt(f"the table {listing.shown(path)}, whose labels would be lost", WRITE_TABLE)


def labels_not_read(listing: Listing, folders: Sequence[Folder], *, are_flat: bool) -> Iterator[Doubt]:
    """Yield the doubts about files that are named after labels, beside images without classes.

    Images that are in no folder may have them in any table.
    """
    for folder in (*folders, *_beside(listing)):
        names = folder.others_with(*_NOT_READ)
        stems = {stem_of(name) for name in folder.images} if names else set()
        for name in names:
            is_table = name.lower().endswith((".csv", ".tsv", ".mat")) and "submission" not in name.lower()
            if ((is_table and are_flat) or _OF_LABELS.search(name)) and stem_of(name) not in stems:
                where = listing.shown(folder.join(name))
                yield Doubt(f"images with labels in {where}, which is not read", WRITE_TABLE)


def _beside(listing: Listing) -> list[Folder]:
    """Return the folders of files alone beside images or folders of images."""
    folders = [listing[name] for name in listing.top.visible[:_MOST_FOLDERS]]
    return [folder for folder in folders if not folder.images and not folder.folders]


def _doubt_of(listing: Listing, paths: Sequence[str]) -> Doubt:
    """Return the reading of some tables, and the step that packs the first one."""
    shown = [*map(listing.shown, paths)]
    listed = shown[0] if len(shown) == 1 else in_quotes(paths)
    inner = paths[0].partition("/")[0]
    is_beside = "/" in paths[0] and not listing.images_below(inner)
    if not _is_table(shown[0], is_beside):
        return Doubt(f"labels in {listed}, with the names of images", WRITE_TABLE)
    place = _folder_above(listing, paths[0]) or (listing.name if is_beside else None)
    if place is None:
        step = _step_of(shown[0], "it" if len(shown) == 1 else "the first")
    else:
        moved = os.path.join(place, os.path.basename(paths[0]))
        move = f"mv {shlex.quote(shown[0])} {shlex.quote(moved)}"
        step = f"move it to {place} ({move}), and pack it there"
    table = "the table {}, which names" if len(shown) == 1 else "the tables {}, which name"
    return Doubt(f"{table.format(listed)} the images", step)


def _step_of(path: str, what: str) -> str:
    """Return the command that packs a table, or what must be done first."""
    try:
        source = list_table(path)
    except FastloadError as error:
        return f"{what} can be packed after a change ({error})"
    has_labels = source.classes or any(field.name in ("label", "boxes") for field in source.fields)
    without = "" if has_labels else ", its columns as fields and not as classes"
    return f"{pack_command(path)} packs {what}{without}"


def _folder_above(listing: Listing, path: str) -> str | None:
    """Return the folder above that of a table in which paths begin with the name of that folder."""
    folder = os.path.dirname(path)
    base = os.path.basename(listing.absolute(folder))
    head = _decoded(listing.head(path))
    begins = re.search(rf"""(^|[\n,;\t|"])(\./)?{re.escape(base)}/""", head)
    is_above = begins and base not in listing[folder].folders
    return os.path.normpath(f"{listing.shown(folder)}/..") if is_above else None


def _is_table(path: str, is_beside: bool) -> bool:
    """Return True for a file that can be read as a table, though its columns may need a kind or a header."""
    if path.lower().endswith((".csv", ".tsv", ".tab")):
        return True
    with contextlib.suppress(FastloadError):
        search = ImageSearch(path)
        columns = read_table(path, search, {}).columns
        return is_beside or search.find(columns) is not None
    return False


def _tables(listing: Listing, folder: Folder, path: str) -> Iterator[tuple[int, bool, bool, float, str]]:
    """Yield the tables in a folder that name images below a path.

    Each is its path, after its order: that of the labels of the most images is first.
    """
    names = folder.others_with(*TABLE_SUFFIXES)
    if not names:
        return
    images = [name for each in listing.below(path) for name in each.images]
    stems = {*map(stem_of, images)}
    image_stems = {*map(stem_of, folder.images)}
    for name in [name for name in names if stem_of(name) not in image_stems][:_MOST_FILES]:
        head = _decoded(listing.head(folder.join(name)))
        if _names_images(name, head, stems, len(images)):
            size = os.path.getsize(listing.absolute(folder.join(name)))
            rows = size * (head.count("\n") + 1) / max(1, len(head))
            has_labels = _OF_LABELS.search(name) or _HEADERS_OF_LABELS.search(head.partition("\n")[0])
            place = folder.join(name)
            use = 2 if "submission" in name.lower() else int(bool(splits_in(place) - {"train"}))
            yield use, not has_labels, "train" not in place.lower(), -rows, place


def _decoded(head: bytes) -> str:
    encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return head.decode(encoding, "replace")


def _is_of_one_class(listing: Listing, path: str) -> bool:
    """Return True if a column of labels holds one alone in a table's first rows, as its folder says."""
    header, *rows = _rows(path, _decoded(listing.head(path))) or [[]]
    return not path.lower().endswith(JSON_SUFFIXES) and any(
        _HEADERS_OF_LABELS.search(name) and len({*labels}) == 1
        for name, *labels in zip(header, *rows, strict=False)
    )


def _names_images(name: str, head: str, stems: set[str], images: int) -> bool:
    """Return True if the texts of JSON, or at least half of the cells in a column, are names of images."""
    if name.lower().endswith(JSON_SUFFIXES):
        texts = {*_JSON_TEXT.findall(head)}
        named = {text for text in texts if is_image(text)}
        return bool(named) and 2 * len({*map(stem_of, named)} & stems) >= len(named)
    header, *rows = _rows(name, head) or [[]]
    is_text = name.lower().endswith(TEXT_SUFFIXES)
    for at, column in enumerate(zip(*rows, strict=False)):
        if is_text and max(map(len, rows)) < 2 + (at > 0):
            continue  # a list of images, or of their numbers and names
        names = {plain_path(_CAPTION_NUMBER.sub("", cell.strip())) for cell in column} - {""}
        # Numbers name images in a first column, if they are long, as many or all of the names, or below a
        # header of images.
        if all(map(_NUMBER.fullmatch, names)):
            is_long = max(map(len, names), default=0) >= _LEAST_DIGITS
            are_many = is_long or 2 * len(names) > min(images, _MOST_ROWS) or names == stems
            is_named = re.sub("[^a-z0-9]", "", header[at].lower()) in _HEADERS_OF_NUMBERS
            if not (is_named or (at == 0 and are_many)) or not all(map(str.isdigit, names)):
                continue
        if 2 * len({*map(stem_of, names)} & stems) >= len(names):
            return True
    return False


def _rows(name: str, head: str) -> list[list[str]]:
    """Return the first rows of a table; none if it is malformed."""
    lines = head.splitlines()[: _MOST_ROWS + 1]
    if name.lower().endswith(TEXT_SUFFIXES):
        return [re.split(r"[\s,;]+", line.strip()) for line in lines if line.strip()]
    delimiter = delimiter_of(lines[0] if lines else "")
    with contextlib.suppress(csv.Error):
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))
    return []
