"""Recognition of COCO datasets by the members of their JSON files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from fastload.sources.coco.content import is_coco
from fastload.sources.coco.source import OBJECTS, read_coco, read_one
from fastload.sources.listing import Listing
from fastload.sources.protocol import Claim

_TITLE = "a COCO dataset"

# More files than these are annotations of one image each.
_MOST_FILES = 64


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder with COCO's JSON files."""
    names = islice(_json_files(listing), _MOST_FILES)
    files = [name for name in names if is_coco(listing.absolute(name))]
    if not files:
        return None
    return Claim("coco", _TITLE, f"its json {files[0]}", partial(read_coco, listing, files))


def recognise_file(path: str) -> Claim | None:
    """Claim a COCO JSON file."""
    if not path.lower().endswith(".json") or not is_coco(path):
        return None
    return Claim("coco", _TITLE, f"images and annotations in {path}", partial(read_one, path))


def _json_files(listing: Listing) -> Iterator[str]:
    """Yield the JSON files that are not hidden, the likeliest first: in upper folders, of annotations."""
    bearing = [
        folder for folder in listing.folders.values() if folder.others and "/." not in f"/{folder.path}"
    ]
    for folder in sorted(bearing, key=lambda each: (_depth_of(each.path), each.path)):
        found = folder.others_with(".json")
        yield from map(folder.join, sorted(found, key=lambda name: not name.startswith(OBJECTS)))


def _depth_of(path: str) -> int:
    is_for_annotations = "annotation" in path.lower()
    return len(path.split("/")) - 2 * is_for_annotations if path else 0
