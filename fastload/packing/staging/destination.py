"""Checks of a destination: only a packed dataset is ever replaced, and never the source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastload.errors import DestinationError
from fastload.packing.staging.places import split_folders
from fastload.shards.manifest import MANIFEST_NAME, is_own_name, is_packed, packed_splits
from fastload.shards.remote import RemoteFolder, is_url


def check_apart(source: Any, dest: str | os.PathLike[str]) -> None:
    """Raise DestinationError if the source or the destination contains the other.

    Packing would read its own output, or replace the source.
    """
    if not isinstance(source, str | os.PathLike) or is_url(dest):
        return
    destination = os.path.abspath(os.path.expanduser(dest))
    origin, target = os.path.realpath(os.path.expanduser(source)), os.path.realpath(destination)
    if target == origin or (os.path.isdir(origin) and target.startswith(origin + os.sep)):
        raise DestinationError(
            f"{destination}: is inside the source {os.fspath(source)}: choose a destination outside of it"
        )
    if origin.startswith(target + os.sep):
        raise DestinationError(
            f"{destination}: holds the source {os.fspath(source)}: choose another destination"
        )


def check_replaceable(destination: Path, overwrite: bool) -> None:
    """Raise DestinationError if the destination exists and may not be replaced."""
    if not os.path.lexists(destination):
        return
    if not overwrite:
        raise exists_already(destination)
    if destination.is_symlink() or not (is_packed(destination) or packed_splits(destination)):
        raise DestinationError(
            f"{destination}: is not a packed dataset, so --overwrite does not replace it: "
            "choose another destination, or remove it yourself"
        )
    for path in sorted(destination.rglob("*")):
        is_file = path.is_symlink() or not path.is_dir()
        is_own = is_own_name(path.name) if is_file else is_packed(path)
        if not is_own:
            raise DestinationError(
                f"{destination}: also holds {str(path.relative_to(destination))!r}, which packing did not "
                "make and does not delete: move it away first"
            )


def check_remote_replaceable(destination: RemoteFolder, overwrite: bool, own: str) -> bool:
    """Raise DestinationError if a URL holds files that may not be replaced; those in the folder `own` may.

    Returns:
        True if packing was interrupted while it wrote the manifests: `own` is still there. Only the same
        job may then continue.
    """
    splits = split_folders(destination)
    names = {folder.url: folder.names() for folder in (destination, *splits)}
    is_published = not overwrite and any(MANIFEST_NAME in each for each in names.values())
    if is_published and own not in names[destination.url]:
        raise exists_already(destination)
    allowed = {own, *(split.url.rpartition("/")[2] for split in splits)}
    for url, each in names.items():
        for name in each:
            if name not in allowed and not is_own_name(name):
                raise DestinationError(
                    f"{destination}: also holds {url}/{name}, which packing did not make and does not "
                    "delete: choose another destination, or move it away first"
                )
    return is_published


def exists_already(destination: Path | RemoteFolder) -> DestinationError:
    """Return the error for a destination that holds a dataset."""
    return DestinationError(
        f"{destination}: exists already: choose another destination, or --overwrite to replace it"
    )
