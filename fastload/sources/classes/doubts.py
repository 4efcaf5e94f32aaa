"""Signs that folders of images may mean something other than classes.

Class folders are what remains when no layout claims the files. They are refused where a second reading is
possible, because nothing in the files would show a wrong choice: `--layout classes` decides.

A sign is a name or the first lines of a small file; no image is decoded.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fastload.sources.classes.source import split_folders
from fastload.sources.listing import Folder, Listing, stem_of
from fastload.sources.malformed import quoted
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import SPLIT_WORD, SPLITS

# Names of folders with the parts of one dataset: its images, and one annotation or mask of each.
PART_NAMES = re.compile(
    r"(.*[_ -])?(images?|imgs?|jpegimages|photos|pictures|masks|labels|labeltxt|ann(ot)?s?|annotations?"
    r"|segmentations?|gts?|ground[_ -]?truths?|trimaps|b?box(es)?)|[a-z]+annot",
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


class Doubt(NamedTuple):
    """A second reading of a folder, continuing "or", and the step that reads it so."""

    reading: str
    step: str


def doubts(listing: Listing) -> Iterator[Doubt]:
    """Yield the readings of a folder other than class folders."""
    splits = [listing[name] for name in split_folders(listing.name, listing.top.visible).values()]
    yield from _tables(listing, [listing.top, *splits])
    yield from _split_without_classes(listing, splits)
    for top in splits or [listing.top]:
        folders = [listing[top.join(name)] for name in top.visible]
        for sign in _SIGNS:
            yield from sign(listing, top, folders)
    if splits:
        beside = [listing[name] for name in listing.top.visible if listing[name] not in splits]
        named = [folder for folder in beside if PART_NAMES.fullmatch(folder.path)]
        rows = next((folder for folder in named if _has_rows_of_yolo(listing, folder.path)), None)
        if rows:
            yield _yolo_elsewhere(listing.shown(rows.path))
        elif named:
            yield Doubt(
                f"annotations of the splits in {quoted([each.path for each in named])}", _table_step()
            )


def _tables(listing: Listing, folders: Iterable[Folder]) -> Iterator[Doubt]:
    """Yield a doubt for a table, beside the images, whose cells name at least half of its rows' images."""
    for folder in folders:
        found = folder.others_with(".csv", ".tsv")
        for name in sorted(found, key=lambda each: "submission" in each.lower()):
            path = folder.join(name)
            if _names_images(listing, folder, listing.head(path)):
                shown = listing.shown(path)
                yield Doubt(f"the table {shown}, which names the images", f"'fastload pack {shown} DEST'")


def _names_images(listing: Listing, folder: Folder, head: bytes) -> bool:
    text = head.decode("utf-8", "replace")
    lines = text.splitlines()[: _MOST_ROWS + 1]
    delimiter = max((",", ";", "\t"), key=text[:1000].count)
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))[1:]
    except csv.Error:
        return False
    cells = [
        {stem_of(cell.strip()) for cell in column if cell.strip()} for column in zip(*rows, strict=False)
    ]
    if not any(cells):
        return False
    stems = {stem_of(name) for each in listing.below(folder.path) for name in each.images}
    return any(2 * len(column & stems) >= max(len(column), 1) and column & stems for column in cells)


def _split_without_classes(listing: Listing, splits: Sequence[Folder]) -> Iterator[Doubt]:
    """Yield a doubt if one split has class folders and another has images without any."""
    sorted_ones = [split.path for split in splits if not split.images and _bearing(listing, split)]
    flat = [split.path for split in splits if split.images and not _bearing(listing, split)]
    if sorted_ones and flat:
        where = f"in {quoted(flat)} (class folders are in {quoted(sorted_ones)})"
        reading = f"images whose labels are elsewhere, {where}"
        yield Doubt(reading, f"sort them into class folders, or pack {sorted_ones[0]!r} alone")


def _annotated_images(listing: Listing, top: Folder, folders: Sequence[Folder]) -> Iterator[Doubt]:
    """Yield a doubt for boxes in files beside the images, or in a folder beside them."""
    if len(folders) > _MOST_FOLDERS:
        return
    for folder in (top, *folders):
        stems = {stem_of(name) for name in folder.images}
        paired = [name for name in folder.others_with(".txt", ".xml", ".json") if stem_of(name) in stems]
        if stems and 2 * len(paired) >= len(stems) and _some_boxes(listing, map(folder.join, paired)):
            yield Doubt(
                f"images with boxes beside them, such as {listing.shown(folder.join(paired[0]))}", _lost()
            )
    if not (top.images or any(folder.images for folder in folders)):
        return
    for folder in folders:
        below = listing.below(folder.path)
        if any(each.images for each in below):
            continue
        found = [each.join(name) for each in below for name in each.others_with(".txt", ".xml", ".json")]
        arrays = [each.join(name) for each in below for name in each.others_with(".npy", ".npz", ".mat")]
        is_named = PART_NAMES.fullmatch(os.path.basename(folder.path)) is not None
        if not top.images and _has_rows_of_yolo(listing, folder.path):
            yield _yolo_elsewhere(listing.shown(folder.path))
        elif _some_boxes(listing, found) or (is_named and (found or arrays) and not top.images):
            shown = listing.shown(folder.path)
            yield Doubt(f"images with annotations in {shown}, which fastload cannot read there", _lost())


def _parts_of_a_dataset(listing: Listing, top: Folder, folders: Sequence[Folder]) -> Iterator[Doubt]:
    """Yield a doubt for folders that are named after parts or splits of a dataset, not after classes."""
    bearing = _bearing(listing, top)
    named = [name for name in bearing if PART_NAMES.fullmatch(name)]
    if named:
        places = [listing.shown(top.join(name)) for name in named]
        reading = f"parts of one dataset, by the names {quoted(named)}"
        yield Doubt(reading, f"'fastload pack {places[0]} DEST' packs that folder; {_table_step()}")
    elif bearing and all(map(SPLIT_WORD.search, bearing)) and not {*bearing} & {*SPLITS} and len(bearing) > 1:
        step = "rename them train, val and test, or pack each of them"
        yield Doubt(f"splits, by the names {quoted(bearing)}", step)


def _nested(listing: Listing, top: Folder, folders: Sequence[Folder]) -> Iterator[Doubt]:
    """Yield a doubt for folders whose images lie in folders below them: these may be the classes."""
    bearing = _bearing(listing, top)
    inner = {name: _bearing(listing, listing[top.join(name)]) for name in bearing}
    deep = [name for name in bearing if not listing[top.join(name)].images]
    common = {tuple(names) for names in inner.values()}
    if not deep or (len(bearing) > 1 and len(common) == 1 and len(inner[bearing[0]]) == 1):
        return  # train/CLASS/images/x.jpg: one folder of one name in each class
    place = listing.shown(top.join(deep[0]))
    reading = f"folders of them: {deep[0]!r} holds {quoted(inner[deep[0]])}"
    yield Doubt(reading, f"'fastload pack {place} DEST' makes classes of the folders in it")


def _same_stems(listing: Listing, top: Folder, folders: Sequence[Folder]) -> Iterator[Doubt]:
    """Yield a doubt for two folders of images with the same names: pairs of one dataset."""
    bearing = _bearing(listing, top)
    if not 2 <= len(bearing) <= _MOST_FOLDERS:
        return
    stems = {name: {stem_of(each) for each in listing[top.join(name)].images} for name in bearing}
    first, *others = bearing
    for other in others:
        shared = stems[first] & stems[other]
        if len(shared) < 2 or 2 * len(shared) < min(len(stems[first]), len(stems[other])):
            continue
        are_views = any(map(_VIEW_NAMES.fullmatch, (first, other))) and not _differ_by_a_word(first, other)
        if are_views or (len(shared) >= _LEAST_SHARED and not _are_counted(shared)):
            reading = f"pairs of images: {first!r} and {other!r} hold {len(shared):,} of the same names"
            yield Doubt(reading, _table_step())
            return


def _differ_by_a_word(first: str, other: str) -> bool:
    """Return True for names such as `mask` and `no_mask`, which are classes."""
    return first.lower() in other.lower() or other.lower() in first.lower()


def _are_counted(stems: Iterable[str]) -> bool:
    """Return True if names differ in numbers alone: class folders are often numbered each from 1."""
    return len({re.sub("[0-9]+", "", stem) for stem in stems}) == 1


_Sign = Callable[[Listing, Folder, Sequence[Folder]], Iterator[Doubt]]
_SIGNS: tuple[_Sign, ...] = (_annotated_images, _parts_of_a_dataset, _nested, _same_stems)


def _bearing(listing: Listing, top: Folder) -> list[str]:
    """Return the visible folders in a folder that hold images, directly or below."""
    return [
        name
        for name in top.visible
        if listing[top.join(name)].images or any(each.images for each in listing.below(top.join(name)))
    ]


def _some_boxes(listing: Listing, paths: Iterable[str]) -> bool:
    return any(holds_boxes(path, listing.head(path)) for path, _ in zip(paths, range(_SAMPLED), strict=False))


def _has_rows_of_yolo(listing: Listing, path: str) -> bool:
    below = listing.below(path)
    return _some_boxes(listing, (each.join(name) for each in below for name in each.others_with(".txt")))


def _yolo_elsewhere(place: str) -> Doubt:
    step = (
        "move the images to 'images' and the labels to 'labels' beside it, each with its splits inside, first"
    )
    return Doubt(f"a detection dataset of YOLO with its labels in {place}", step)


def _table_step() -> str:
    return "a table with a column for each image of a record keeps them together"


def _lost() -> str:
    return "write a table (path, xmin, ymin, xmax, ymax, label), or take a layout that fastload reads"
