"""Signs that folders of images may mean something other than classes.

Class folders are what remains when no layout claims the files. They are refused where a second reading is
possible, because nothing in the files would show a wrong choice: `--layout classes` decides.

A sign is a name or the first lines of a small file; no image is decoded.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fastload.sources.classes.part_names import (
    are_views,
    is_image_part,
    is_part,
    is_split_alone,
    named_parts,
    named_splits,
)
from fastload.sources.classes.source import split_folders
from fastload.sources.listing import Folder, Listing, stem_of
from fastload.sources.malformed import in_quotes, pack_command
from fastload.sources.masks.pairing import has_masks_beside
from fastload.sources.protocol import evenly_spaced
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import SPLITS
from fastload.sources.table.recognise import labels_not_read, tables_beside

_MOST_FOLDERS = 16  # more folders beside each other are classes
_MOST_ROWS = 50
_SAMPLED = 16
_LEAST_SHARED = 3

_TEXTS = (".txt", ".xml", ".json")
_OTHERS = (".csv", ".tsv", ".npy", ".npz", ".mat")

_TABLE_STEP = "a table with a column for each image of a record keeps them together"
_BOXES_STEP = "write a table (path, xmin, ymin, xmax, ymax, label), or take a layout that fastload reads"


class Doubt(NamedTuple):
    """A second reading of a folder, continuing "or", and the step that reads it so."""

    reading: str
    step: str


def doubts(listing: Listing) -> Iterator[Doubt]:
    """Yield the readings of a folder other than class folders."""
    splits = [listing[name] for name in split_folders(listing.name, listing.top.visible).values()]
    tops = [_Top(listing, top, _bearing(listing, top)) for top in splits or [listing.top]]
    yield from itertools.starmap(Doubt, tables_beside(listing, [listing.top, *splits]))
    if splits:
        yield from _split_without_classes(tops)
        yield from _split_of_one_folder(tops)
    for top in tops:
        yield from _boxes(top)
    are_flat = all(top.folder.images and not top.bearing for top in tops)
    if are_flat or all(_is_one_folder(listing, top) for top in tops):
        found = labels_not_read(listing, [listing.top, *splits], are_flat=are_flat)
        yield from itertools.starmap(Doubt, found)
    for sign in _SIGNS:
        for top in tops:
            yield from sign(top)
    if splits:
        beside = [listing[name] for name in listing.top.visible if listing[name] not in splits]
        named = [folder.path for folder in beside if is_part(folder.path)]
        rows = [path for path in named if _has_rows_of_yolo(listing.below(path), listing)]
        if rows:
            yield _yolo_elsewhere(listing.shown(rows[0]))
        elif named:
            yield Doubt(f"annotations of the splits in {in_quotes(named)}", _TABLE_STEP)


def _is_one_folder(listing: Listing, top: _Top) -> bool:
    """Return True if all images lie in one folder, which shows no classes."""
    below = listing.below(top.folder.path) if len(top.bearing) == 1 else ()
    return sum(bool(each.images) for each in below) == 1


class _Top(NamedTuple):
    """A folder of class folders, and the names of those that hold images, directly or below."""

    listing: Listing
    folder: Folder
    bearing: list[str]

    def inner(self, name: str) -> Folder:
        return self.listing[self.folder.join(name)]

    def shown(self, name: str) -> str:
        return self.listing.shown(self.folder.join(name))

    def command(self, name: str) -> str:
        return pack_command(self.shown(name))


def _split_without_classes(splits: Sequence[_Top]) -> Iterator[Doubt]:
    """Yield a doubt if one split has class folders and another has images without any."""
    classed = [top.folder.path for top in splits if top.bearing and not top.folder.images]
    flat = [top.folder.path for top in splits if top.folder.images and not top.bearing]
    if classed and flat:
        where = f"in {in_quotes(flat)} (class folders are in {in_quotes(classed)})"
        place = splits[0].listing.shown(classed[0])
        step = f"{pack_command(place)} packs {classed[0]!r} alone; or sort them into class folders"
        yield Doubt(f"images whose labels are elsewhere, {where}", step)


def _split_of_one_folder(splits: Sequence[_Top]) -> Iterator[Doubt]:
    """Yield a doubt for a split with a single folder, which is no class of the other splits."""
    for top in splits:
        others = [other for other in splits if other is not top and other.bearing]
        if len(top.bearing) == 1 and others and not any(top.bearing[0] in other.bearing for other in others):
            other = others[0].folder.path
            step = f"{pack_command(top.listing.shown(other))} packs {other!r} alone"
            yield Doubt(f"images whose labels are elsewhere, in {top.shown(top.bearing[0])}", step)


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
            step = f"{pack_command(place)} keeps those of one folder; {_TABLE_STEP}"
            yield Doubt(f"images with masks beside them in {place}", step)
            return


def _unread_annotations(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for a folder of texts or arrays that is named after annotations."""
    if top.folder.images or len(top.folder.visible) > _MOST_FOLDERS:
        return
    for name, below in _beside(top):
        if is_part(name) and any(each.others_with(*_TEXTS, *_OTHERS) for each in below):
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
    if named := named_parts(bearing):
        images = next(
            (name for name in (*named, *bearing) if is_image_part(name) or not is_part(name)), named[0]
        )
        step = f"{top.command(images)} packs its images alone; {_TABLE_STEP}"
        yield Doubt(f"parts of one dataset, by the names {in_quotes(named)}", step)
    elif named := named_splits(bearing):
        step = f"rename them train, val and test, or pack each ({top.command(named[0])})"
        yield Doubt(f"splits, by the names {in_quotes(named)}", step)
    elif len(bearing) == 1 and top.inner(bearing[0]).images and is_split_alone(bearing[0]):
        step = f"{top.command(bearing[0])} packs them without classes"
        yield Doubt(f"the images of one split, by the name {bearing[0]!r}", step)


def _nested(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for folders whose images lie in folders below them: these may be the classes."""
    deep = [name for name in top.bearing if not top.inner(name).images]
    if not deep:
        return
    inner = {name: _bearing(top.listing, top.inner(name)) for name in deep}
    names = {tuple(found) for found in inner.values()}
    if 1 < len(deep) == len(top.bearing) and len(names) == 1 and len(inner[deep[0]]) == 1:
        [name] = inner[deep[0]]
        insides = [top.inner(each) for each in deep]
        if name.lower() not in SPLITS and all(
            inside.visible == [name] and top.listing[inside.join(name)].images for inside in insides
        ):
            return  # train/CLASS/images/x.jpg: one folder of one name in each class
    reading = f"folders of them: {deep[0]!r} holds {in_quotes(inner[deep[0]])}"
    yield Doubt(reading, f"{top.command(deep[0])} makes classes of the folders in it")


def _same_stems(top: _Top) -> Iterator[Doubt]:
    """Yield a doubt for two folders of images with the same names: pairs of one dataset."""
    if not 2 <= len(top.bearing) <= _MOST_FOLDERS:
        return
    are_named = are_views(top.bearing)
    first, *others = top.bearing
    for other in others:
        few, many = sorted((top.inner(first).images, top.inner(other).images), key=len)
        stems, others_stems = _some_stems(few), _some_stems(many)
        ending, other_ending = _common_ending(stems), _common_ending(others_stems)
        shared = [stem for stem in stems if _has_stem(many, stem.removesuffix(ending) + other_ending)]
        are_shared = len(shared) >= 2 and 2 * len(shared) >= len(stems)
        are_distinct = len(shared) >= _LEAST_SHARED and not _are_counted(shared)
        if (are_shared and (are_named or are_distinct)) or (are_named and 1 < len(few) == len(many)):
            yield Doubt(f"pairs of images in {first!r} and {other!r}, such as {stems[0]!r}", _TABLE_STEP)
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


def _are_counted(stems: Iterable[str]) -> bool:
    """Return True if names differ in numbers alone: class folders are often numbered each from 1."""
    return len({re.sub("[0-9]+", "", stem) for stem in stems}) == 1


_SIGNS: tuple[Callable[[_Top], Iterator[Doubt]], ...] = (
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
