"""Recognition of COCO datasets by the members of their JSON files.

The files are looked for in the folder, in each folder in it, and in the annotation folders of splits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice

from fastload.sources.account import attach
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.coco.places import split_of
from fastload.sources.coco.source import OBJECTS, open_coco, read_coco
from fastload.sources.listing import Folder, Listing, read_part
from fastload.sources.protocol import Claim

# More files than these are annotations of one image each.
_MOST_FILES = 64


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder with COCO's JSON files."""
    names = islice(_json_files(listing), _MOST_FILES)
    files = [name for name in names if _is_coco(listing.absolute(name))]
    if not files:
        return None
    return Claim("coco", "a COCO dataset", f"its json {files[0]}", partial(read_coco, listing, files))


def open_file(path: str) -> dict[str, AnnotatedFiles] | None:
    """List the images of a COCO JSON file; return None for another file."""
    if not path.lower().endswith(".json") or not _is_coco(path):
        return None
    sources = open_coco(path)
    attach(next(iter(sources.values())), [os.path.abspath(path)])
    return sources


def _is_coco(path: str) -> bool:
    """Return True if the start, middle and end of a JSON file contain COCO's member names."""
    # COCO's own files are too large to read in full.
    text = b"".join(read_part(path, share) for share in (0.0, 0.5, 1.0))
    has_parts = b'"images"' in text or b'"annotations"' in text
    return has_parts and (b'"image_id"' in text or b'"categories"' in text)


def _json_files(listing: Listing) -> Iterator[str]:
    for folder in _folders(listing):
        if folder.others:
            found = folder.others_with(".json")
            yield from map(folder.join, sorted(found, key=lambda name: not name.startswith(OBJECTS)))


def _folders(listing: Listing) -> Iterator[Folder]:
    """Yield the folders that may hold the files, most likely ones first."""
    yield listing.top
    names = listing.top.visible
    named = [name for name in names if _is_for_annotations(name)]
    yield from map(listing.__getitem__, named)
    for name in names:
        if name not in named:
            folder = listing[name]
            yield folder
            if folder.folders and split_of(name):
                yield from (
                    listing[folder.join(each)] for each in folder.visible if _is_for_annotations(each)
                )


def _is_for_annotations(name: str) -> bool:
    return "annotation" in name.lower()
