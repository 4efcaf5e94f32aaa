"""Signs that folders of images may mean something other than classes.

Class folders are what remains when no layout claims the files. They are refused where a second reading is
possible, because nothing in the files would show a wrong choice: `--layout classes` decides.

A sign is a name or the first lines of a small file; no image is decoded.
"""

from __future__ import annotations

import bisect
import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fastload.sources.classes.source import split_folders
from fastload.sources.listing import Folder, Listing, read_part, stem_of
from fastload.sources.malformed import in_quotes
from fastload.sources.masks.pairing import has_masks_beside
from fastload.sources.protocol import evenly_spaced
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import SPLIT_WORD, SPLITS

# Names of folders with the parts of one dataset: its images, and one annotation or mask of each.
PART_NAMES = re.compile(
    r"(.*[_ -])?(images?|imgs?|jpegimages|photos|pictures|masks|labels|labeltxt|ann(ot)?s?|annotations?"
    r"|segmentations?|leftimg8bit|gt(s|fine|coarse)?|ground[_ -]?truths?|trimaps|b?box(es)?)|[a-z]+annot",
    re.IGNORECASE,
)
# Names of folders with two views of one scene, or an image and its result.
_VIEW_NAMES = re.compile(
    r"(rgb|depth|thermal|ir|nir|infrared|visible|disparity|normals?|flow|edges?|sketch(es)?|left|right"
    r"|inputs?|outputs?|targets?|source|noisy|clean|blur|sharp|hazy|clear|hr|lr|before|after|mask|label|matte"
    r"|alpha|semantics?|instances?|seg)([_ -]?[0-9]+)?",
    re.IGNORECASE,
)

_MOST_FOLDERS = 16  # more folders beside each other are classes
_MOST_ROWS = 50
_SAMPLED = 16
_LEAST_SHARED = 3

_TEXTS = (".txt", ".xml", ".json")
_ARRAYS = (".npy", ".npz", ".mat")

_TABLE_STEP = "a table with a column for each image of a record keeps them together"
_BOXES_STEP = "write a table (path, xmin, ymin, xmax, ymax, label), or take a layout that fastload reads"


class Doubt(NamedTuple):
    """A second reading of a folder, continuing "or", and the step that reads it so."""

    reading: str
    step: str


def doubts(listing: Listing) -> Iterator[Doubt]:
    """Yield the readings of a folder other than class folders."""
    splits = [listing[name] for name in split_folders(listing.name, listing.top.visible).values()]
    yield from _tables(listing, [listing.top, *splits])
    tops = [_Top(listing, top, _bearing(listing, top)) for top in splits or [listing.top]]
    if splits:
        yield from _split_without_classes(tops)
    for sign in _SIGNS:
        for top in tops:
            yield from sign(top)
    if splits:
        beside = [listing[name] for name in listing.top.visible if listing[name] not in splits]
        named = [folder.path for folder in beside if PART_NAMES.fullmatch(folder.path)]
        rows = [path for path in named if _has_rows_of_yolo(listing.below(path), listing)]
        if rows:
            yield _yolo_elsewhere(listing.shown(rows[0]))
        elif named:
            yield Doubt(f"annotations of the splits in {in_quotes(named)}", _TABLE_STEP)


class _Top(NamedTuple):
    """A folder of class folders, and the names of those that hold images, directly or below."""

    listing: Listing
    folder: Folder
    bearing: list[str]

    def inner(self, name: str) -> Folder:
        return self.listing[self.folder.join(name)]

    def shown(self, name: str) -> str:
        return self.listing.shown(self.folder.join(name))


def _tables(listing: Listing, folders: Iterable[Folder]) -> Iterator[Doubt]:
    """Yield a doubt for a table, beside the images, whose cells name at least half of its rows' images."""
    for folder in folders:
        found = folder.others_with(".csv", ".tsv", ".jsonl")
        for name in sorted(found, key=lambda each: "submission" in each.lower()):
            path = folder.join(name)
            if _names_images(listing, folder, _rows(name, listing.head(path))):
                shown = listing.shown(path)
                step = f"'fastload pack {shown} DEST' packs it"
                if name.lower().endswith(".jsonl"):
                    step = "pack a table of it instead (.csv, with the column file_name)"
                yield Doubt(f"the table {shown}, which names the images", step)
        for name in folder.others_with(".parquet"):
            # The names of columns are in the clear at the end of the file.
            if name.lower() == "metadata.parquet" or b"file_name" in read_part(
                listing.absolute(folder.join(name)), 1
            ):
                shown = listing.shown(folder.join(name))
                step = "pack a table of it instead (.csv, with the column file_name)"
                yield Doubt(f"the table {shown}, whose labels would be lost", step)


def _rows(name: str, head: bytes) -> list[list[str]]:
    """Return the first rows of a table, without its header; none if it is malformed."""
    text = head.decode("utf-8", "replace")
    lines = text.splitlines()[: _MOST_ROWS + 1]
    delimiter = max((",", ";", "\t"), key=text[:1000].count)
    try:
        if name.lower().endswith(".jsonl"):
            return [
                [value for value in json.loads(line).values() if isinstance(value, str)] for line in lines
            ]
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))[1:]
    except (csv.Error, ValueError, AttributeError, RecursionError):
        return []


def _names_images(listing: Listing, folder: Folder, rows: list[list[str]]) -> bool:
    """Return True if at least half of the cells of a column are the names of images, without suffixes."""
    columns = [
        {stem_of(cell.strip()) for cell in column if cell.strip()} for column in zip(*rows, strict=False)
    ]
    # Numbers name images in a first column; elsewhere, they count something.
    named = [cells for at, cells in enumerate(columns) if cells and not (at and all(map(str.isdigit, cells)))]
    if not named:
        return False
    stems = {stem_of(name) for each in listing.below(folder.path) for name in each.images}
    return any(2 * len(cells & stems) >= len(cells) for cells in named)


def _split_without_classes(splits: Sequence[_Top]) -> Iterator[Doubt]:
    """Yield a doubt if one split has class folders and another has images without any."""
    classed = [top.folder.path for top in splits if top.bearing and not top.folder.images]
    flat = [top.folder.path for top in splits if top.folder.images and not top.bearing]
    if classed and flat:
        where = f"in {in_quotes(flat)} (class folders are in {in_quotes(classed)})"
        place = splits[0].listing.shown(classed[0])
        step = f"'fastload pack {place} DEST' packs {classed[0]!r} alone; or sort them into class folders"
        yield Doubt(f"images whose labels are elsewhere, {where}", step)


def _boxes(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for boxes in files beside the images, or in a folder beside them."""
    listing, visible = top.listing, top.folder.visible
    if len(visible) > _MOST_FOLDERS:
        return
    for folder in (top.folder, *map(top.inner, visible)):
        found = folder.others_with(*_TEXTS)
        stems = {stem_of(name) for name in folder.images} if found else set()
        paired = [name for name in found if stem_of(name) in stems]
        if paired and 2 * len(paired) >= len(stems) and _some_boxes(listing, map(folder.join, paired)):
            shown = listing.shown(folder.join(paired[0]))
            yield Doubt(f"images with boxes beside them, such as {shown}", _BOXES_STEP)
    for name, below in _beside(top):
        if not top.folder.images and _has_rows_of_yolo(below, listing):
            yield _yolo_elsewhere(top.shown(name))
        elif _some_boxes(listing, (each.join(file) for each in below for file in each.others_with(*_TEXTS))):
            yield Doubt(f"images with boxes in {top.shown(name)}, in no layout that is read", _BOXES_STEP)


def _masks_beside(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for masks beside the images of class folders: a second kind of labels."""
    for at in evenly_spaced(len(top.bearing), _SAMPLED):
        if has_masks_beside(top.inner(top.bearing[at])):
            place = top.shown(top.bearing[at])
            step = f"'fastload pack {place} DEST' keeps those of one folder; {_TABLE_STEP}"
            yield Doubt(f"images with masks beside them in {place}", step)
            return


def _unread_annotations(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for a folder of texts or arrays that is named after annotations."""
    if top.folder.images or len(top.folder.visible) > _MOST_FOLDERS:
        return
    for name, below in _beside(top):
        if PART_NAMES.fullmatch(name) and any(each.others_with(*_TEXTS, *_ARRAYS) for each in below):
            yield Doubt(f"images with annotations in {top.shown(name)}, which are not read", _BOXES_STEP)


def _beside(top: _Top) -> Iterator[tuple[str, list[Folder]]]:
    """Yield the visible folders without images, beside images or folders of images."""
    if top.bearing or top.folder.images:
        for name in top.folder.visible:
            if name not in top.bearing:
                yield name, top.listing.below(top.folder.join(name))


def _parts_of_a_dataset(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for folders that are named after parts or splits of a dataset, not after classes."""
    bearing = top.bearing if len(top.bearing) <= _MOST_FOLDERS else []
    named = [name for name in bearing if PART_NAMES.fullmatch(name)]
    if named:
        step = f"'fastload pack {top.shown(named[0])} DEST' packs that folder; {_TABLE_STEP}"
        yield Doubt(f"parts of one dataset, by the names {in_quotes(named)}", step)
    elif len(bearing) > 1 and all(map(SPLIT_WORD.search, bearing)) and not {*bearing} & {*SPLITS}:
        step = f"rename them train, val and test, or pack each ('fastload pack {top.shown(bearing[0])} DEST')"
        yield Doubt(f"splits, by the names {in_quotes(bearing)}", step)


def _nested(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for folders whose images lie in folders below them: these may be the classes."""
    deep = [name for name in top.bearing if not top.inner(name).images]
    if not deep:
        return
    inner = {name: _bearing(top.listing, top.inner(name)) for name in deep}
    names = {tuple(found) for found in inner.values()}
    if 1 < len(deep) == len(top.bearing) and len(names) == 1 and len(inner[deep[0]]) == 1:
        [name] = inner[deep[0]]
        if name.lower() not in SPLITS and all(
            top.listing[f"{top.inner(each).path}/{name}"].images for each in deep
        ):
            return  # train/CLASS/images/x.jpg: one folder of one name in each class
    reading = f"folders of them: {deep[0]!r} holds {in_quotes(inner[deep[0]])}"
    yield Doubt(reading, f"'fastload pack {top.shown(deep[0])} DEST' makes classes of the folders in it")


def _same_stems(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for two folders of images with the same names: pairs of one dataset."""
    if not 2 <= len(top.bearing) <= _MOST_FOLDERS:
        return
    first, *others = top.bearing
    for other in others:
        few, many = sorted((top.inner(first).images, top.inner(other).images), key=len)
        stems, others_stems = _some_stems(few), _some_stems(many)
        ending, other_ending = _common_ending(stems), _common_ending(others_stems)
        shared = [stem for stem in stems if _has_stem(many, stem.removesuffix(ending) + other_ending)]
        if len(shared) < 2 or 2 * len(shared) < len(stems):
            continue
        are_views = any(map(_VIEW_NAMES.fullmatch, (first, other))) and not _differ_by_a_word(first, other)
        if are_views or (len(shared) >= _LEAST_SHARED and not _are_counted(shared)):
            reading = f"pairs of images: {first!r} and {other!r} hold the same names, such as {shared[0]!r}"
            yield Doubt(reading, _TABLE_STEP)
            return


def _some_stems(names: Sequence[str]) -> list[str]:
    return [stem_of(names[at]) for at in evenly_spaced(len(names), _MOST_ROWS)]


def _common_ending(stems: Sequence[str]) -> str:
    """Return the ending that all of some stems have, such as `_L`; "" if they have none or are one."""
    endings = {next(iter(re.findall(r"[_ .-][^_ .-]+$", stem)), "") for stem in stems}
    return endings.pop() if len(endings) == 1 and len(stems) > 1 else ""


def _has_stem(names: Sequence[str], stem: str) -> bool:
    """Return True if one of some sorted names is the stem and a suffix."""
    at = bisect.bisect_left(names, f"{stem}.")
    return at < len(names) and names[at].startswith(f"{stem}.")


def _differ_by_a_word(first: str, other: str) -> bool:
    """Return True for names such as `mask` and `no_mask`, which are classes."""
    return first.lower() in other.lower() or other.lower() in first.lower()


def _are_counted(stems: Iterable[str]) -> bool:
    """Return True if names differ in numbers alone: class folders are often numbered each from 1."""
    return len({re.sub("[0-9]+", "", stem) for stem in stems}) == 1


_SIGNS: tuple[Callable[[_Top], Iterator[Doubt]], ...] = (
    _boxes,
    _masks_beside,
    _parts_of_a_dataset,
    _nested,
    _same_stems,
    _unread_annotations,
)


def _bearing(listing: Listing, top: Folder) -> list[str]:
    """Return the visible folders in a folder that hold images, directly or below."""
    found = []
    for name in top.folders:
        path = top.join(name)
        if name[0] != "." and any(each.images for each in listing.below(path)):
            found.append(name)
    return found


def _some_boxes(listing: Listing, paths: Iterable[str]) -> bool:
    return any(holds_boxes(path, listing.head(path)) for path in itertools.islice(paths, _SAMPLED))


def _has_rows_of_yolo(folders: Sequence[Folder], listing: Listing) -> bool:
    return _some_boxes(listing, (each.join(name) for each in folders for name in each.others_with(".txt")))


def _yolo_elsewhere(place: str) -> Doubt:
    step = (
        "move the images to 'images' and the labels to 'labels' beside it, each with its splits inside, first"
    )
    return Doubt(f"a detection dataset of YOLO with its labels in {place}", step)
