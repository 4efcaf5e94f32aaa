"""A folder that may hold class folders, and a second reading of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fastload.sources.left_out import clutter_reason
from fastload.sources.listing import Folder, Listing
from fastload.sources.malformed import pack_command

MOST_FOLDERS = 16
"""More folders beside each other are classes."""

SAMPLED = 16

TABLE_STEP = "write a table (.csv) with a row for each record and a column for each of its images"


class Doubt(NamedTuple):
    """A second reading of a folder, continuing "or", and the step that reads it so."""

    reading: str
    step: str


class Top(NamedTuple):
    """A folder of class folders, and the names of those that hold images, directly or below."""

    listing: Listing
    folder: Folder
    bearing: list[str]

    @classmethod
    def of(cls, listing: Listing, folder: Folder) -> Top:
        """Look for the folders with images in a folder."""
        names = [name for name in folder.folders if name[0] != "."]
        bearing = [name for name in names if any(each.images for each in listing.below(folder.join(name)))]
        return cls(listing, folder, bearing)

    def has_one_folder(self) -> bool:
        """Return True if all images lie in one folder, which shows no classes."""
        below = self.listing.below(self.folder.path) if len(self.bearing) == 1 else ()
        return sum(bool(each.images) for each in below) == 1

    def inner(self, name: str) -> Folder:
        """Return a folder in this one."""
        return self.listing[self.folder.join(name)]

    def shown(self, name: str) -> str:
        """Return an entry's path, for messages."""
        return self.listing.shown(self.folder.join(name))

    def unwrapped(self, name: str) -> str:
        """Return the path of a folder in this one, or of the only folder in it, if that holds all others."""
        path = self.folder.join(name)
        while len(inner := (folder := self.listing[path]).visible) == 1:
            is_wrapper = self.listing[folder.join(inner[0])].visible or path.endswith(inner[0])
            if folder.images or not is_wrapper or not all(map(clutter_reason, folder.others)):
                break
            path = folder.join(inner[0])
        return path

    def command(self, name: str) -> str:
        """Return the command that packs a folder in this one."""
        return pack_command(self.listing.shown(self.unwrapped(name)))

    def beside(self) -> Iterator[tuple[str, list[Folder]]]:
        """Yield the visible folders without images, and those below each, beside images or class folders."""
        if self.bearing or self.folder.images:
            bearing = {*self.bearing}
            for name in self.folder.visible:
                if name not in bearing:
                    yield name, self.listing.below(self.folder.join(name))
