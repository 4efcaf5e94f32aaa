"""Recognition of WebDataset's tar shards: a folder of them, a .tar file, or a pattern of several."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from fastload.sources.containers import data_files_by_split, expand_braces, files_by_split, find_data_files
from fastload.sources.listing import Listing
from fastload.sources.malformed import malformed
from fastload.sources.protocol import Claim, Reading
from fastload.sources.webdataset.source import TarSource, list_shards
from fastload.sources.webdataset.tar import TAR_SUFFIXES


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder of tar files, or folders of them that are named after splits."""
    found = find_data_files(listing, TAR_SUFFIXES)
    if found is None:
        return None

    def read() -> Reading:
        sources = list_shards(listing.name, listing.root, data_files_by_split(listing.name, found))
        for source in sources.values():
            if len(source.files) > 1 and not source.classes and not source.details["members"]:
                source.doubt = _one_for_each_class(listing, source.files.names[0])
        return Reading(sources)

    return Claim("webdataset", "a WebDataset", f"tar files such as {next(iter(found.values()))[0]}", read)


def _one_for_each_class(listing: Listing, shard: str) -> str:
    """Return the message about tar files of images alone, such as ImageNet's, one for each class."""
    tars = shlex.quote(os.path.dirname(listing.shown(shard))) + "/*.tar"
    unpack = f'for tar in {tars}; do mkdir "${{tar%.tar}}" && tar -xf "$tar" -C "${{tar%.tar}}"; done'
    return str(
        malformed(
            listing.name,
            "hold labels beside its images, or one tar file",
            f"several of images alone, such as {shard}, each of which may be a class",
            f"unpack them ({unpack}) and pack the folder; or pack them without labels with "
            "--layout webdataset (in Python, layout='webdataset')",
        )
    )


def open_file(path: str) -> Mapping[str, TarSource] | None:
    """List the samples of a .tar file, or of a pattern such as `shard-{000..003}.tar`, by split."""
    if not path.lower().endswith(TAR_SUFFIXES):
        return None
    root, pattern = os.path.split(os.path.abspath(path))
    # An existing file with braces in its name is not a pattern.
    names = [pattern] if os.path.isfile(path) else expand_braces(pattern)
    missing = [name for name in names if not os.path.isfile(os.path.join(root, name))]
    if missing:
        raise malformed(os.path.join(root, missing[0]), "exist", "no such file", f"check {path!r}")
    return list_shards(path, root, files_by_split(path, names))
