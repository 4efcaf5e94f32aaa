"""Pascal VOC's folders, and the lists of the images of each split in ImageSets.

The lists of boxes are in ImageSets/Main, those of masks in ImageSets/Segmentation; some datasets have them
directly in ImageSets. A line is the name of an image, which may contain spaces, with or without its suffix.
Lists of one class, such as cat_train.txt, have a number behind each name, and are not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fastload.sources.files import read_text
from fastload.sources.listing import Listing, stem_of
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.protocol import LeftOutReason
from fastload.sources.splits import SPLITS, by_split
from fastload.sources.words import FilesByStem

IMAGES, BOXES, SETS = "JPEGImages", "Annotations", "ImageSets"
MASKS, OBJECT_MASKS = "SegmentationClass", "SegmentationObject"

_BOTH = ("trainval", "train_val")
_OF_CLASS = re.compile(r".+_(train|val|trainval|test)", re.IGNORECASE)
_ROW_OF_CLASS = re.compile(r".*\S\s+(-1|0|1)")
_NUMBERS = re.compile(r"(\s+-?[0-9]+)+$")

_OTHER_LIST: LeftOutReason = ("a list of images named neither train, val, trainval nor test", False)

_Lines = Mapping[str, Sequence[str]]  # of each list


@dataclass(frozen=True, slots=True)
class Lists:
    """The images of each split; `splits` is empty if no list names any."""

    folder: str = ""  # of the lists that decide
    splits: Mapping[str, list[str]] = field(default_factory=dict)
    read: Sequence[str] = ()
    reasons: Mapping[str, LeftOutReason] = field(default_factory=dict)  # of the other lists
    elsewhere: frozenset[str] = frozenset()  # the names in lists of other tasks
    note: str = ""  # on the split train, if it was made of other lists


def read_lists(listing: Listing, images: FilesByStem, *, has_boxes: bool) -> Lists:
    """Read the lists that decide the splits: those of boxes, if there are boxes.

    SourceError is raised if they name images that do not exist, or contradict each other.
    """
    lists = (folder.join(name) for folder in listing.below(SETS) for name in folder.others_with(".txt"))
    lines = {path: _lines_of(listing, path) for path in lists}
    tasks = ("Main", "Segmentation") if has_boxes else ("Segmentation", "Main")
    folders = [*(f"{SETS}/{task}" for task in tasks), SETS]
    named = [path for path in lines if os.path.dirname(path) in folders and _is_split(path)]
    holding = {os.path.dirname(path) for path in named if lines[path]}
    if named and not holding:
        raise malformed(listing.shown(SETS), "have lists that name images", "only empty ones")
    by_line = _by_line(images)
    if not holding and (whole := _whole(lines, folders, by_line)):
        return _decided(listing, lines, by_line, [whole])
    chosen = next((folder for folder in folders if folder in holding), None)
    return _decided(listing, lines, by_line, [path for path in named if os.path.dirname(path) == chosen])


def read_lists_beside(listing: Listing, images: FilesByStem) -> Lists:
    """Read the lists beside the folders of images, if each of their lines names an image."""
    lines = {name: _lines_of(listing, name) for name in listing.top.others_with(".txt") if _is_split(name)}
    by_line = _by_line(images)
    is_known = by_line.keys() >= {line for names in lines.values() for line in names}
    return _decided(listing, lines, by_line, [*lines]) if is_known and any(lines.values()) else Lists()


def _decided(
    listing: Listing, lines: _Lines, by_line: Mapping[str, set[str]], deciding: Sequence[str]
) -> Lists:
    """Return the splits by the lists that decide, of which there may be none."""
    chosen = os.path.dirname(deciding[0]) if deciding else None
    found = {path: _images_of(lines[path], by_line, listing.shown(path)) for path in deciding}
    note = _add_train(found)
    if deciding and not any(map(_is_split, deciding)):
        splits = {"": deciding[0]}
    else:
        splits = _by_split(listing.shown(chosen or ""), found)
    elsewhere = (line for path, names in lines.items() if os.path.dirname(path) != chosen for line in names)
    return Lists(
        chosen or "",
        {split: found[path] for split, path in splits.items()},
        deciding,
        _reasons(lines, chosen),
        # The names of images in the lists of other tasks, where numbers may follow them.
        frozenset(name for line in elsewhere for name in (line, _NUMBERS.sub("", line))),
        note,
    )


def _lines_of(listing: Listing, path: str) -> list[str]:
    return [line for line in map(str.strip, read_text(listing.absolute(path)).split("\n")) if line]


def _is_split(path: str) -> bool:
    return stem_of(path).lower() in (*SPLITS, *_BOTH)


def _by_line(images: FilesByStem) -> dict[str, set[str]]:
    """Return the images that each line of a list may name: by their stems, or by their names."""
    found = {stem: {*paths} for stem, paths in images.items()}
    for stem, paths in images.items():
        for path in paths:
            found.setdefault(stem + os.path.splitext(path)[1], set()).add(path)
    return found


def _images_of(lines: Iterable[str], by_line: Mapping[str, set[str]], where: str) -> list[str]:
    """Return the images that the lines name, without repetitions."""
    found: dict[str, None] = {}
    for line in lines:
        named = by_line.get(line, set())
        if not named:
            step = "add the image, or remove it from the list"
            raise malformed(where, f"list images of {IMAGES}", repr(line), step)
        if len(named) > 1:
            got = f"{line!r}, which may be {in_quotes(sorted(named))}"
            step = "give the suffix in the list, or remove one of the images"
            raise malformed(where, "name one image in each line", got, step)
        found |= dict.fromkeys(named)
    return [*found]


def _add_train(found: dict[str, list[str]]) -> str:
    """Add a missing list train of the images in trainval that are not in val; return the note on it."""
    named = {stem_of(path).lower(): path for path, listed in found.items() if listed}
    both = next(filter(None, map(named.get, _BOTH)), None)
    splits = {SPLITS[name]: path for name, path in named.items() if name in SPLITS}
    if both is None or "val" not in splits or "train" in splits:
        return ""
    val = {*found[splits["val"]]}
    rest = [image for image in found[both] if image not in val]
    if not rest or not val <= {*found[both]}:
        return ""
    found[f"{os.path.dirname(both)}/train.txt"] = rest
    names = " without the images of ".join(map(os.path.basename, (both, splits["val"])))
    return f"its split train is {names}, as it has no list train.txt"


def _by_split(where: str, found: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the list of each split; trainval is the split train unless it is the union of train and val."""
    named = {stem_of(path): path for path, listed in found.items() if listed}
    both = [path for name, path in named.items() if name.lower() in _BOTH]
    splits = by_split(where, {name: path for name, path in named.items() if path not in both})
    parts = [split for split in ("train", "val") if split in splits]
    for path in both:
        if not parts:
            splits = by_split(where, {"train": path, **splits})
            parts = ["train"]
        others = {image for split in parts for image in found[splits[split]]}
        if alone := sorted(others ^ {*found[path]}):
            names = " and ".join(os.path.basename(splits[split]) for split in parts)
            must = f"list in {os.path.basename(path)} the images of {names} together"
            got = f"{in_quotes(alone)} in one of them alone"
            raise malformed(where, must, got, "correct or remove a list")
    return splits


def _whole(lines: _Lines, folders: Sequence[str], by_line: Mapping[str, set[str]]) -> str | None:
    """Return a list under another name, such as default.txt, that names every image and nothing else."""
    all_images = set().union(*by_line.values())
    for path, names in lines.items():
        is_known = os.path.dirname(path) in folders and by_line.keys() >= {*names}
        if is_known and all_images == set().union(*map(by_line.__getitem__, names)):
            return path
    return None


def _reasons(lines: _Lines, chosen: str | None) -> dict[str, LeftOutReason]:
    """Return the reasons for leaving out lists: those of one class, of other tasks, and under other names."""
    has_splits = chosen is not None
    reasons: dict[str, LeftOutReason] = {}
    for path, names in lines.items():
        folder = os.path.dirname(path)
        if _OF_CLASS.fullmatch(stem_of(path)) and all(map(_ROW_OF_CLASS.fullmatch, names)):
            reasons[path] = "a list of the images of one class", has_splits
        elif folder == chosen or (chosen is None and folder.endswith((SETS, "Main"))):
            reasons[path] = _OTHER_LIST
        else:
            reasons[path] = "a list of a task that does not decide the splits", has_splits
    return reasons
