"""Signs that folders of images may mean something other than classes.

Class folders are what remains when no layout claims the files. They are refused where a second reading is
possible, because nothing in the files would show a wrong choice: `--layout classes` decides.

A sign is a name or the first lines of a small file; no image is decoded. The step of a doubt names the folder
that can be packed, and what comes of it: `_leads_to` reads it as packing would.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from fastload.sources.classes.source import split_folders
from fastload.sources.classes.top import (
    MOST_FOLDERS,
    SAMPLED,
    TABLE_STEP,
    Top,
    unread_annotations,
    unread_folders,
)
from fastload.sources.left_out import clutter_reason
from fastload.sources.listing import Folder, Listing, stem_of
from fastload.sources.malformed import in_quotes, pack_command
from fastload.sources.masks.pairing import PairedFolders, has_masks_beside, paired
from fastload.sources.protocol import Doubt, evenly_spaced
from fastload.sources.splits import SPLITS, split_names, split_words
from fastload.sources.table.recognise import labels_not_read, tables_beside
from fastload.sources.words import (
    MASK_WORDS,
    are_sequences,
    are_views,
    begun_with,
    has_stem,
    is_image_part,
    is_part,
    is_result,
    is_split_alone,
    masked_names,
    named_parts,
    named_splits,
    shared_ends,
    told_apart,
    versions_of,
    words_of,
)

_MOST_ROWS = 50
_MOST_VIEWS = 64
_LEAST_SHARED = 3
_DEEPER = "folders of them"
_LABEL_STEP = "write a table (.csv) with the columns path and label"

Claims = Callable[[Listing], Iterable[str]]
"""The titles of the layouts that claim a folder."""


def doubts(listing: Listing, claims: Claims = lambda _: ()) -> Iterator[Doubt]:
    """Yield the readings of a folder other than class folders; `claims` are those of the layouts."""
    splits = [listing[name] for name in split_folders(listing.name, listing.top.visible).values()]
    root = Top.of(listing, listing.top)
    tops = [Top.of(listing, folder) for folder in splits] or [root]
    for top in (*tops, *([root] if splits else [])):
        yield from unread_annotations(top)
    yield from tables_beside(listing, [listing.top, *splits])
    if splits:
        yield from _split_without_classes(tops, claims)
    for top in tops:
        yield from _versions(top)
    for top in tops:
        yield from _parts_of_a_dataset(top, claims)
        yield from _nested(top, claims)
        yield from _same_stems(top)
        yield from _splits_in_lists(top)
    if named := [name for name in root.folder.visible if splits and is_part(name)]:
        yield Doubt(f"annotations of the splits in {in_quotes(named)}", TABLE_STEP)
    for top in tops:
        if are_sequences([top.bearing[at] for at in evenly_spaced(len(top.bearing), SAMPLED)]):
            yield Doubt(f"frames of videos or scenes, by the names {in_quotes(top.bearing)}", _LABEL_STEP)
    are_flat = all(top.folder.images and not top.bearing for top in tops)
    if are_flat or all(top.has_one_folder() for top in tops):
        yield from labels_not_read(listing, [listing.top, *splits], are_flat=are_flat)


def _leads_to(listing: Listing, path: str, claims: Claims) -> Doubt:
    """Return the first doubt about a folder of a listing, or the outcome of packing it as a step."""
    inside = listing.view(path)
    command = pack_command(inside.name)
    for title in claims(inside):
        return Doubt("", f"{command} packs {title}")
    for doubt in doubts(inside, claims):
        return doubt
    if splits := split_folders(inside.name, inside.top.visible):
        return Doubt("", f"{command} packs its splits, {in_quotes([*splits.values()])}")
    if bearing := Top.of(inside, inside.top).bearing:
        return Doubt("", f"{command} makes classes of the folders in it, {in_quotes(bearing)}")
    return Doubt("", f"{command} packs its images alone")


def _split_without_classes(splits: Sequence[Top], claims: Claims) -> Iterator[Doubt]:
    """Yield a doubt if one split has class folders, and another images alone or in a folder of no class."""
    for top in splits:
        others = [other for other in splits if other is not top and other.bearing]
        fullest = max(others, key=lambda other: len(other.bearing), default=top)
        is_flat = others and top.folder.images and not top.bearing
        if is_flat or (len(top.bearing) == 1 and top.bearing[0] not in fullest.bearing):
            place = fullest.folder.path
            where = f"{top.folder.path!r} (class folders are in {place!r})"
            reading = (
                f"images whose labels are elsewhere, in {where if is_flat else top.shown(top.bearing[0])}"
            )
            yield Doubt(reading, _leads_to(top.listing, place, claims).step)


def _versions(top: Top) -> Iterator[Doubt]:
    """Yield a doubt for folders with several images of each thing: with a mask or depth beside it."""
    folders = [top.inner(top.bearing[at]) for at in evenly_spaced(len(top.bearing), SAMPLED)]
    folders = [
        each if each.images or len(each.visible) != 1 else top.listing[each.join(each.visible[0])]
        for each in folders
    ]
    for folder in folders:
        if has_masks_beside(folder):
            place = top.listing.shown(folder.path)
            step = TABLE_STEP
            if all(paired(top.listing, PairedFolders(folder.path, folder.path)).mask_of.values()):
                step = f"{pack_command(place)} keeps those of one folder; to keep them all, {TABLE_STEP}"
            yield Doubt(f"images with masks beside them in {place}", step)
    for folder in folders or [top.folder]:
        words = versions_of(folder.images)
        # Other words may stand for classes at the start of a name, and in class folders for anything.
        are_parts = any(word and not word[0].isalnum() for word in words) or are_views(words)
        if any(map(is_result, words)) or (are_parts and len(top.bearing) < 2):
            place = top.listing.shown(folder.path)
            reading = f"several images of each thing in {place}, whose names differ in {in_quotes(words)}"
            yield Doubt(reading, TABLE_STEP)
    if names := _names_of_each(folders):
        yield Doubt(f"scenes, each with {in_quotes(names)} in a folder", TABLE_STEP)


def _names_of_each(folders: Sequence[Folder]) -> list[str]:
    """Return the names that most folders have in common, if they are no numbers alone: they tell views."""
    some = [folder for folder in folders if 2 <= len(folder.images) <= _MOST_VIEWS]
    named = ((*folder.images, *filter(is_result, folder.others)) for folder in some)
    counts = Counter(frozenset(told_apart(map(stem_of, names))) for names in named)
    shared, n = max(counts.items(), key=lambda item: item[1], default=(frozenset(), 0))
    forms = {re.sub("[0-9]+", "0", name) for name in shared}
    results = sum(map(is_result, forms))
    are_told = 0 < results < len(forms) or (len(forms) > 1 and are_views([*forms]))
    are_odd = n > 2 and len(shared) > 2 and not _are_numbered(shared)
    return sorted(shared) if n > 1 and 2 * n >= len(folders) and (are_told or are_odd) else []


def _parts_of_a_dataset(top: Top, claims: Claims) -> Iterator[Doubt]:
    """Yield a doubt for folders that are named after parts or splits of a dataset, not after classes."""
    bearing = top.bearing if len(top.bearing) <= MOST_FOLDERS else []
    if named := named_parts([*bearing, *(unread_folders(top) if bearing else ())]):
        choices = [name for name in (*named, *bearing) if is_image_part(name) or not is_part(name)]
        order = {name: (not is_image_part(name), "train" not in name.lower()) for name in choices}
        images = min(choices, key=order.__getitem__, default=named[0])
        inside = _leads_to(top.listing, top.unwrapped(images), claims)
        lost = _without(top, images)
        step = f"{inside.step}{lost}; to keep all, {_keeping_step(top)}" if lost else inside.step
        yield Doubt(f"parts of one dataset, by the names {in_quotes(named)}", step)
    elif named := named_splits(bearing):
        first = min(named, key=lambda name: "train" not in name.lower())
        step = f"rename them train, val and test, or pack each ({top.command(first)}){_without(top, *named)}"
        yield Doubt(f"splits, by the names {in_quotes(named)}", step)
    elif len(bearing) == 1 and top.inner(bearing[0]).images and is_split_alone(bearing[0]):
        step = f"{top.command(bearing[0])} packs them without classes"
        yield Doubt(f"the images of one split, by the name {bearing[0]!r}", step)


def _splits_in_lists(top: Top) -> Iterator[Doubt]:
    """Yield a doubt for lists of images that are named after splits."""
    lists = [
        folder.join(name)
        for folder in (top.folder, *(below[0] for _, below in top.beside()))
        for name in folder.others_with(".txt", ".lst", ".json")
        if split_words(name)
    ]
    if named := [path for path in lists[:MOST_FOLDERS] if _lists_images(top, path)]:
        step = f"{_LABEL_STEP} for each of them"
        yield Doubt(f"splits, by the lists {in_quotes(named)} of images", step)


def _lists_images(top: Top, path: str) -> bool:
    """Return True if most of the first lines or texts of a file are images, with or without their suffix."""
    head = top.listing.head(path).decode("utf-8", "replace")
    texts = re.findall(r'"([^"\\]+/[^"\\]+)"', head) if path.endswith(".json") else head.split("\n")
    some = [text for text in map(str.strip, texts) if text and not text.isdigit()][:SAMPLED]
    places = [os.path.split(top.folder.join(text)) for text in some]
    found = [
        top.listing.has_file(f"{folder}/{name}") or has_stem(top.listing[folder].images, name)
        for folder, name in places
    ]
    return 2 * sum(found) > len(some)


def _without(top: Top, *packed: str) -> str:
    """Return the end of a step that packs some folders alone: the other names, except for clutter."""
    lost = [name for name in top.folder.visible if name not in packed]
    lost += [name for name in top.folder.others if not clutter_reason(name)] + top.folder.images
    if top.folder.path:  # a split
        lost += [name for name in top.listing.top.visible if name != top.folder.path]
    return f", without {in_quotes(lost)}" if lost else ""


def _keeping_step(top: Top) -> str:
    """Return the step that keeps the images of all folders: a table, or names by which masks are known."""
    first, *others = sorted(top.bearing, key=lambda name: not MASK_WORDS.isdisjoint(words_of(name)))
    if len(others) == 1 and not MASK_WORDS.isdisjoint(words_of(others[0])):
        pairs = paired(top.listing, PairedFolders(top.inner(first).path, top.inner(others[0]).path))
        if pairs.are_half and pairs.conflict is None:
            return f"rename them 'images' and 'masks' if {others[0]!r} holds masks, or {TABLE_STEP}"
    return TABLE_STEP


def _nested(top: Top, claims: Claims) -> Iterator[Doubt]:
    """Yield a doubt for folders whose images lie in folders below them: these may be the classes."""
    deep = [name for name in top.bearing if not top.inner(name).images]
    if not deep:
        return
    inner = {name: Top.of(top.listing, top.inner(name)).bearing for name in deep}
    first = deep[0]
    names = {tuple(found) for found in inner.values()}
    if 1 < len(deep) == len(top.bearing) and len(names) == 1 and len(inner[first]) == 1:
        [name] = inner[first]
        insides = [top.inner(each) for each in deep]
        if name.lower() not in SPLITS and all(
            inside.visible == [name] and top.listing[inside.join(name)].images for inside in insides
        ):
            return  # train/CLASS/images/x.jpg: one folder of one name in each class
    inside = _leads_to(top.listing, top.unwrapped(first), claims)
    others = [name for name in top.bearing if name != first]
    is_deeper = inside.reading.startswith(_DEEPER)
    below = f" ({inside.reading})" if inside.reading and not (others and is_deeper) else ""
    step = f"{_LABEL_STEP}, if these are the classes" if others and is_deeper else inside.step
    if others and inside.reading:
        step += f"; or pack each ({top.command(first)})"
    else:
        step += _without(top, first) + (f"; to keep all, {_LABEL_STEP}" if len(names) > 1 else "")
    yield Doubt(f"{_DEEPER}: {first!r} holds {in_quotes(inner[first])}{below}", step)


def _same_stems(top: Top) -> Iterator[Doubt]:
    """Yield a doubt for two folders of images with the same names: pairs of one dataset."""
    if not 2 <= len(top.bearing) <= MOST_FOLDERS:
        return
    masked = masked_names(top.bearing)
    are_all_views, are_counted = are_views(top.bearing), False
    is_of_result = are_all_views and 0 < sum(map(is_result, top.bearing)) < len(top.bearing)
    for first, other in [*masked, *((top.bearing[0], other) for other in top.bearing[1:])]:
        are_named = are_all_views or (first, other) in masked
        smaller, larger = sorted((first, other), key=lambda name: len(top.inner(name).images))
        few, many = top.inner(smaller).images, top.inner(larger).images
        stems, others_stems = _some_stems(few), _some_stems(many)
        # Only between views, the first word is no part of what is compared: cat-1 and dog-1 are no pair.
        (start, ending), (other_start, other_ending) = shared_ends(stems), shared_ends(others_stems)
        if not are_named:
            start = other_start = ""
        of_other = {stem: other_start + stem.removeprefix(start).removesuffix(ending) for stem in stems}
        shared = [stem for stem in stems if has_stem(many, of_other[stem] + other_ending)]
        if are_named:
            # One clear image may have many hazy ones, with further words: 1.png and 1_0.8.png, 1x2.png.
            begun = [
                stem for stem in stems if any(begun_with(many, of_other[stem] + mark) for mark in "_ .-x")
            ]
            shared = max(shared, begun, key=len)
        if not shared and len(few) == len(many) > 1 and (are_named or _are_numbered(stems)):
            both = zip(stems, others_stems, strict=True)
            shared = [stem for stem, its in both if _without_own(stem, smaller) == _without_own(its, larger)]
        are_shared = len(shared) >= 2 and 2 * len(shared) >= len(stems)
        are_distinct = len(shared) >= _LEAST_SHARED and not _are_numbered(shared)
        if len(shared) == len(stems) >= _LEAST_SHARED and len(few) == len(many) and not are_counted:
            splits = split_names(top.listing.top.visible) if top.folder.path else ()
            places = [f"{split}/{smaller}" for split in splits] or [smaller]
            are_counted = _are_counted([name for each in places for name in top.listing[each].images])
            are_distinct = are_distinct or not are_counted
        if (are_shared and (are_named or are_distinct)) or (is_of_result and 1 < len(few) == len(many)):
            reading = f"pairs of images in {first!r} and {other!r}, such as {stems[0]!r}"
            yield Doubt(reading, _keeping_step(top))
            return


def _some_stems(names: Sequence[str]) -> list[str]:
    return [stem_of(names[at]) for at in evenly_spaced(len(names), _MOST_ROWS)]


def _without_own(stem: str, folder: str) -> list[str]:
    """Return the words of a stem that are not in its folder's name: x and 1 for PS-RGB/x_RGB_1.tif."""
    words, folder_words = (re.split("[_ .-]", name.lower()) for name in (stem, folder))
    return [word for word in words if word not in folder_words]


def _are_numbered(stems: Iterable[str]) -> bool:
    """Return True if names differ in numbers alone."""
    forms = Counter(re.sub("[0-9]+", "0", stem) for stem in stems)
    return min(forms.values()) > 1


def _are_counted(names: Sequence[str]) -> bool:
    """Return True if names may count from 0 or 1 without a gap, as in many class folders.

    The first number in which they differ is then no larger than their count; some of many names are asked.
    """
    common = os.path.commonprefix([min(names), max(names)]).rstrip("0123456789")  # noqa: RUF071
    some = (names[at] for at in evenly_spaced(len(names), _MOST_ROWS))
    numbers = [int(match[0]) for name in some if (match := re.search("[0-9]+", name[len(common) :]))]
    return max(numbers, default=0) < len(names) + min([1, *numbers])
