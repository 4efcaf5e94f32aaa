"""The places of YOLO's label files and masks: parallel to `images`, in a folder `labels` inside, or beside.

As for Ultralytics, the label file of images/train/a.jpg is labels/train/a.txt. Other programs write
images/train/labels/a.txt or images/train/a.txt. The labels of a folder are in the first of these places that
holds one of them. Labels that lie in a later place alone are used, too; if two places hold different ones for
an image, nothing says which are right.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from fastload.sources.files import read_text
from fastload.sources.listing import Listing, stem_of
from fastload.sources.malformed import malformed
from fastload.sources.sniffing import holds_boxes
from fastload.sources.words import by_stem, one_of_each


def find_labels(listing: Listing, images: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the path of each image's label file, which may be missing, and the copies of these files.

    SourceError is raised if two places hold different ones for one image.
    """
    chosen: dict[str, str] = {}
    copies: list[str] = []
    for folder, by_name in _by_folder(images).items():
        first, *others = _places_of(folder, by_name, listing)
        later = [listing[place] for place in others if listing[place].others_with(".txt")]
        for name, group in by_name.items():
            path = listing[first].join(name)
            for other in (place.join(name) for place in later):
                if not listing.has_file(other) or not holds_boxes(other, listing.head(other)):
                    continue  # texts of other things may lie there, too
                if not listing.has_file(path):
                    path = other
                elif read_text(listing.absolute(path)) == read_text(listing.absolute(other)):
                    copies.append(other)
                else:
                    must, got = "be the only label file of its image", f"other labels in {other}"
                    raise malformed(listing.shown(path), must, got, "remove the wrong file")
            chosen |= dict.fromkeys(group, path)
    return [chosen[image] for image in images], copies


def likely_labels(listing: Listing, images: Sequence[str]) -> list[str]:
    """Return the label files of some images; none if they lie beside less than half of the images."""
    found = []
    are_beside = True
    for folder, by_name in _by_folder(images).items():
        labels, *_ = _places_of(folder, by_name, listing)
        names = {*listing[labels].others}
        are_beside = are_beside and labels == folder
        found += [listing[labels].join(name) for name in by_name if name in names]
    return [] if are_beside and 2 * len(found) < len(images) else found


def find_masks(listing: Listing, images: Sequence[str]) -> list[str]:
    """Return each image's mask in a folder `masks` that is parallel to `images`, or "" without one."""
    found: dict[str, dict[str, str]] = {}
    for folder in {*map(os.path.dirname, images)}:
        masks = listing[parallel_to(folder, "masks") or "\0"]
        by_name = by_stem(map(masks.join, masks.images), masks.path)
        found[folder] = one_of_each(by_name, "mask of its image", listing.shown)
    return [found[os.path.dirname(image)].get(stem_of(image), "") for image in images]


def label_folders(folder: str) -> list[str]:
    """Return the folders in which the labels of a folder's images may lie."""
    parallel = parallel_to(folder, "labels")
    inside = f"{folder}/labels" if folder else "labels"
    return [*([parallel] if parallel else []), inside, folder]


def parallel_to(folder: str, name: str) -> str:
    """Return the folder with the last `images` in its path replaced by `name`; "" if it has none."""
    before, images, after = f"/{folder}/".rpartition("/images/")
    return f"{before}/{name}/{after}".strip("/") if images else ""


def _by_folder(images: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return the images of each folder by the names of their label files."""
    by_folder: dict[str, dict[str, list[str]]] = {}
    for image in images:
        folder, name = os.path.split(image)
        by_name = by_folder.setdefault(folder, {})
        by_name.setdefault(f"{os.path.splitext(name)[0]}.txt", []).append(image)
    return by_folder


def _places_of(folder: str, names: Collection[str], listing: Listing) -> list[str]:
    """Return the folder of the labels of a folder's images, and the later places."""
    places = label_folders(folder)
    default = 0 if len(places) == 3 else -1  # parallel to `images`, or else beside
    holding = (at for at, path in enumerate(places) if any(name in names for name in listing[path].others))
    return places[next(holding, default) :]
