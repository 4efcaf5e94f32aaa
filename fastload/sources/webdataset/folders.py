"""Class folders inside tar files of images alone."""

from __future__ import annotations

from collections.abc import Iterable

from fastload.sources.classes.doubts import doubts
from fastload.sources.classes.source import split_folders
from fastload.sources.files import safe_key
from fastload.sources.listing import Folder, Listing
from fastload.sources.malformed import in_quotes, malformed

UNPACK = "unpack the tar files (tar -xf), and pack the folder"


def class_folders(path: str, names: Iterable[str]) -> list[str] | None:
    """Return the class folder of each image; None if there are not several folders.

    SourceError is raised where the folders could be something other than classes.
    """
    keys = [safe_key(name) for name in names]
    listing, depth = _listing_of(path, keys), 0
    while len(listing.top.folders) == 1 and not listing.top.images:
        listing, depth = listing.view(listing.top.folders[0]), depth + 1
    folders = listing.top.folders
    if not folders:
        return None
    must = "hold images in class folders, or in none"
    if listing.top.images:
        got = f"{listing.top.images[0]!r} beside the folders {in_quotes(folders)}"
        raise malformed(listing.name, must, got, UNPACK)
    splits = split_folders(listing.name, folders)
    if splits:
        raise malformed(listing.name, must, f"folders of splits, {in_quotes([*splits.values()])}", UNPACK)
    for doubt in doubts(listing):
        raise malformed(listing.name, must, f"two readings: classes, or {doubt.reading}", UNPACK)
    return [key.split("/")[depth] for key in keys]


def _listing_of(path: str, keys: Iterable[str]) -> Listing:
    """Return the listing that the folder would have if the images were unpacked."""
    folders = {"": Folder("")}
    for key in keys:
        place, _, name = key.rpartition("/")
        if place not in folders:
            parts = place.split("/")
            for end in range(1, len(parts) + 1):
                above, inner = "/".join(parts[: end - 1]), "/".join(parts[:end])
                if inner not in folders:
                    folders[inner] = Folder(inner)
                    folders[above].folders.append(parts[end - 1])
        folders[place].images.append(name)
    for folder in folders.values():
        folder.folders.sort()
        folder.images.sort()
    return Listing(path, path, folders)
