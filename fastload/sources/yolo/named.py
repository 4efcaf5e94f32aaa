"""The folders and images that a description names, in a listing of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fastload.sources.files import read_text
from fastload.sources.listing import Listing, is_image
from fastload.sources.malformed import malformed
from fastload.sources.splits import SPLITS
from fastload.sources.yolo.description import YoloDescription
from fastload.sources.yolo.labels import parallel_to

_MOST_ABOVE = 3  # folders above a list, to which its lines may be relative


def find_named(description: YoloDescription, inner: Listing | None) -> tuple[Listing, dict[str, list[str]]]:
    """Return a listing of the folders that a description names, and the images of each split in it.

    The listing is `inner` if all of them lie in it. SourceError is raised for a split that does not exist.
    """
    _require_entries(description)
    listed = {path: _images_in(path) for path in lists_of(description)}
    folders = {os.path.dirname(image) for images in listed.values() for image in images}
    folders |= {*_entries(description)} - {*listed}
    if inner is None or any(inner.place_of(folder) is None for folder in folders):
        datasets = {each for folder in folders for each in _dataset_of(folder, description.root)}
        is_root = all(f"{each}/".startswith(os.path.join(description.root, "")) for each in datasets)
        root = description.root if is_root else os.path.commonpath(datasets)
        files = (os.path.abspath(path) for path in (description.file, description.names_file) if path)
        inner = Listing.covering(root, datasets, [*files, *listed])
    places = {folder: inner.place_of(folder) or "" for folder in folders}

    def images_of(entry: str) -> Iterator[str]:
        if entry in places:
            yield from inner.images_below(places[entry])
        for folder, base in map(os.path.split, listed.get(entry, ())):
            yield inner[places[folder]].join(base)

    return inner, {
        split: sorted({image for entry in entries for image in images_of(entry)})
        for split, entries in description.splits.items()
    }


def lists_of(description: YoloDescription) -> list[str]:
    """Return the .txt files that list the images of splits."""
    return [path for path in _entries(description) if not os.path.isdir(path)]


def _entries(description: YoloDescription) -> list[str]:
    return [entry for entries in description.splits.values() for entry in entries]


def _require_entries(description: YoloDescription) -> None:
    for path in _entries(description):
        if not (os.path.isdir(path) or (path.lower().endswith(".txt") and os.path.isfile(path))):
            must = "have splits that are folders of images, or .txt files that list them"
            raise malformed(description.file, must, path, "correct `path` or the split")


def _images_in(entry: str) -> list[str]:
    """Return the absolute paths of the images that a .txt file lists."""
    lines = [*map(str.strip, read_text(entry).split("\n"))]
    for number, line in enumerate(lines, 1):
        if line and not is_image(line):
            must = "be the path of an image, such as images/a.jpg"
            raise malformed(f"{entry}, line {number}", must, repr(line))
    lines = [os.path.normpath(line.replace("\\", "/")) for line in lines if line]
    folder, skipped = _base_of(os.path.dirname(entry), lines[0]) if lines else ("", 0)
    if skipped:
        lines = ["/".join(line.split("/")[skipped:]) for line in lines]
    return [os.path.normpath(os.path.join(folder, line)) for line in lines]


def _base_of(folder: str, line: str) -> tuple[str, int]:
    """Return the folder to which the lines of a list are relative, and their parts that are not there.

    Darknet is run in a folder above that of the list, and lists may come from another machine. The last
    folder of a line is there, because images of two splits may have one name.
    """
    above = [folder]
    while len(above) <= _MOST_ABOVE and os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    parts = line.split("/")
    for skipped in range(max(1, len(parts) - 1)):
        for base in above:
            if os.path.isfile(os.path.join(base, *parts[skipped:]) if skipped else os.path.join(base, line)):
                return base, skipped
    return folder, 0


def _dataset_of(folder: str, root: str) -> list[str]:
    """Return the folder above `images`, or above a split of the described folder; or those of the files."""
    before, images, _ = f"{folder}/".rpartition("/images/")
    dataset = before if images else folder
    is_split = os.path.basename(dataset).lower() in SPLITS
    if is_split and f"{os.path.dirname(dataset)}/".startswith(os.path.join(root, "")):
        dataset = os.path.dirname(dataset)
    if dataset.strip("/"):
        return [dataset]
    beside = [f"/{parallel_to(folder, name)}" for name in ("labels", "masks") if images]
    return [folder, *filter(os.path.isdir, beside)]
