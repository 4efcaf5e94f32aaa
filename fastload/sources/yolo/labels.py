"""The places of YOLO's label files and masks: parallel to `images`, in a folder `labels` inside, or beside.

As for Ultralytics, the label file of images/train/a.jpg is labels/train/a.txt. Other programs write
images/train/labels/a.txt or images/train/a.txt. The labels of a folder are in the first of these places that
holds one of them. Labels that lie in a later place alone are used, too; if two places hold different ones for
an image, nothing says which are right.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fastload.sources.files import read_text
from fastload.sources.listing import read_part, stem_of
from fastload.sources.malformed import malformed
from fastload.sources.pairing import by_stem, one_of_each
from fastload.sources.sniffing import holds_boxes
from fastload.sources.yolo.reach import Reach


@dataclass(frozen=True, slots=True)
class LabelFiles:
    """The path of each image's label file, which may be missing."""

    paths: tuple[str, ...]
    copies: tuple[str, ...]  # files in a second place that are equal to those in the first one


def find_labels(reach: Reach, images: Sequence[str]) -> LabelFiles:
    """Find the label files of images; raise SourceError if two places hold different ones for one image."""
    chosen: dict[str, str] = {}
    copies: list[str] = []
    for folder, by_name in _by_folder(images).items():
        _, labels, later = _places_of(reach, folder, by_name)
        paths = {name: os.path.join(labels, name) for name in by_name}
        known = {*reach.folder(labels).others}
        for other in later:
            for name in _labels_in(reach, other, by_name):
                second = os.path.join(other, name)
                if name not in known:
                    paths[name] = second
                    known.add(name)
                elif read_text(paths[name]) == read_text(second):
                    copies.append(second)
                else:
                    must = "be the only label file of its image"
                    raise malformed(paths[name], must, f"other labels in {second}", "remove the wrong file")
        chosen.update((image, paths[name]) for name, group in by_name.items() for image in group)
    return LabelFiles(tuple(chosen[image] for image in images), tuple(copies))


def likely_labels(reach: Reach, images: Sequence[str]) -> list[str]:
    """Return the label files of some images; none if they lie beside less than half of the images."""
    found = []
    places = set()
    for folder, by_name in _by_folder(images).items():
        place, labels, _ = _places_of(reach, folder, by_name)
        names = {*reach.folder(labels).others}
        places.add(place)
        found += [os.path.join(labels, name) for name in by_name if name in names]
    return [] if places == {"beside"} and 2 * len(found) < len(images) else found


def find_masks(reach: Reach, images: Sequence[str]) -> list[str]:
    """Return each image's mask in a folder `masks` that is parallel to `images`, or "" without one."""

    @functools.cache
    def masks_beside(folder: str) -> dict[str, str]:
        masks = parallel_to(folder, "masks")
        names = reach.folder(masks).images if masks else []
        files = by_stem((os.path.join(masks, name) for name in names), masks)
        return one_of_each(files, "mask")

    return [masks_beside(os.path.dirname(image)).get(stem_of(image), "") for image in images]


def parallel_to(folder: str, name: str) -> str:
    """Return the folder with the last `images` in its path replaced by `name`; "" if it has none."""
    before, images, after = (folder + os.sep).rpartition(f"{os.sep}images{os.sep}")
    return f"{before}{os.sep}{name}{os.sep}{after}".rstrip(os.sep) if images else ""


def _by_folder(images: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return the images of each folder by the names of their label files."""
    by_folder: dict[str, dict[str, list[str]]] = {}
    for image in images:
        folder, name = os.path.split(image)
        by_name = by_folder.setdefault(folder, {})
        by_name.setdefault(f"{os.path.splitext(name)[0]}.txt", []).append(image)
    return by_folder


def _places_of(reach: Reach, folder: str, names: Collection[str]) -> tuple[str, str, list[str]]:
    """Return the place and the folder of the labels of a folder's images, and the folders of later places."""
    parallel = parallel_to(folder, "labels")
    places = {"parallel": parallel} if parallel else {}
    places |= {"inside": os.path.join(folder, "labels"), "beside": folder}
    default = "parallel" if parallel else "beside"
    holding = (
        place for place, path in places.items() if any(name in names for name in reach.folder(path).others)
    )
    used = next(holding, default)
    order = [*places]
    return used, places[used], [places[place] for place in order[order.index(used) + 1 :]]


def _labels_in(reach: Reach, folder: str, names: Collection[str]) -> list[str]:
    """Return those of the names that hold boxes in a folder: files of other texts may lie there, too."""
    found = [name for name in reach.folder(folder).others if name in names]
    return [name for name in found if holds_boxes(name, read_part(os.path.join(folder, name)))]
