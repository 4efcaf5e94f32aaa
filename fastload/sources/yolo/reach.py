"""The folders that a YOLO dataset names, by absolute paths: those of its listing, and others."""

from __future__ import annotations

import os

from fastload.sources.listing import Folder, Listing, list_folder


class Reach:
    """Access to folders inside and outside of a listing; each one outside is listed once."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self._real_root = os.path.realpath(listing.root)
        self._others: dict[str, Folder] = {}

    def inside(self, path: str) -> str | None:
        """Return an absolute path relative to the listing's root; None if it lies elsewhere."""
        return _relative(path, self.listing.root)

    def known(self, path: str) -> str:
        """Return a path below the listing's root if it leads there, by links or another name of the root."""
        if self.inside(path) is not None:
            return path
        inside = _relative(os.path.realpath(path), self._real_root)
        return path if inside is None else self.listing.absolute(inside)

    def folder(self, path: str) -> Folder:
        """Return the entries of a folder."""
        inside = self.inside(path)
        if inside is not None:
            return self.listing[inside]
        if path not in self._others:
            self._others[path] = list_folder(path)
        return self._others[path]

    def images_below(self, path: str) -> list[str]:
        """Return the absolute paths of the images below a folder."""
        inside = self.inside(path)
        listing = Listing.walk(path) if inside is None else self.listing
        return [os.path.join(listing.root, each) for each in listing.images_below(inside or "")]


def _relative(path: str, root: str) -> str | None:
    prefix = os.path.join(root, "")
    if path == root:
        return ""
    return path[len(prefix) :] if path.startswith(prefix) else None
