"""The images in the folders of a table's images that none of its rows names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from fastload.errors import FastloadError
from fastload.shards.manifest import LeftOut
from fastload.sources.files import FileList
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.listing import Listing
from fastload.sources.table.cells import TABLE_SUFFIXES, read_table
from fastload.sources.table.images import ImageSearch, plain_path

UNNAMED = "an image that no row of the table names"


def images_beside(search: ImageSearch, lists: Iterable[FileList]) -> tuple[LeftOut, ...]:
    """Return the images beside those of a table that no row names.

    Those that another table in its folder names, such as test.csv, need no attention.
    """
    named = set(map(plain_path, {name for files in lists for name in files.names}))
    inside = {name.rpartition("/")[0] for name in named if name[:1] != "/" and name[:3] != "../"}
    listing = Listing.of(search.folder, sorted({"", *inside}))
    unnamed = [
        path
        for place in sorted(inside)
        for path in map(listing[place].join, listing[place].images)
        if path not in named
    ]
    elsewhere = dict(_named_elsewhere(search, listing)) if unnamed else {}
    left_out = LeftOutFiles()
    for path in unnamed:
        table = elsewhere.get(path)
        reason = UNNAMED if table is None else f"an image of {table}"
        left_out.add(path, reason, is_clutter=table is not None)
    return left_out.finish()


def _named_elsewhere(search: ImageSearch, listing: Listing) -> Iterator[tuple[str, str]]:
    """Yield the images that the other tables of the folder name, each with the table's name."""
    for name in listing.top.others_with(*TABLE_SUFFIXES):
        path = os.path.join(search.folder, name)
        if path == os.path.abspath(search.table):
            continue
        other = search.of_table(path)
        try:
            _, columns = read_table(other, {})
            image = other.find(columns)
        except FastloadError:  # it is not the table that is packed
            continue
        if image is not None:
            yield from ((plain_path(file), name) for file in image.to_files().names)
