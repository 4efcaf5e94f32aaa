"""Traversal of folders in the order of torchvision's ImageFolder: links followed, names sorted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from fastload.errors import SourceError
from fastload.images.formats import HEAD_BYTES, format_of, unreadable_reason
from fastload.shards.manifest import LeftOut
from fastload.sources.files import OPEN_FILES_STEP, OUT_OF_DESCRIPTORS, READ_FLAGS
from fastload.sources.left_out import HIDDEN, NO_IMAGE, SYSTEM, LeftOutFiles, clutter_reason
from fastload.sources.malformed import malformed

T = TypeVar("T")

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The suffixes of image files, in any case: torchvision's IMG_EXTENSIONS."""

SPLITS = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
"""The split that each lower-case name stands for, in the order in which splits are packed."""

# AppleDouble (RFC 1740): macOS stores a file's metadata beside it, in a file with "._" before its name.
_APPLE_DOUBLE = b"\x00\x05\x16\x07"

_MOST_FOLDERS = 200
_READ_BYTES = 1 << 16

_Names = tuple[list[str], list[str]]

_listed: ContextVar[dict[str, _Names] | None] = ContextVar("_listed", default=None)


@contextlib.contextmanager
def listing_once() -> Iterator[None]:
    """List each folder at most once in the block, however many layouts inspect it."""
    token = _listed.set({})
    try:
        yield
    finally:
        _listed.reset(token)


class Walk:
    """Search for images below a folder (an absolute path).

    With `by_content`, a file without an image suffix is an image if its first bytes say so, and all other
    files are recorded as left out. Otherwise only suffixes count, as in ImageFolder, and no file is recorded.
    """

    def __init__(self, root: str, *, by_content: bool) -> None:
        self.root = root
        self.by_content = by_content
        self._left_out = LeftOutFiles()

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The files left out so far."""
        return self._left_out.finish()

    def leave_out(self, key: str, reason: str, *, is_clutter: bool = False) -> None:
        """Record a file as left out, if files are selected by content."""
        if self.by_content:
            self._left_out.add(key, reason, is_clutter=is_clutter)

    def scan(self, folder: str = "") -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the images directly in a folder, each sorted."""
        path = os.path.join(self.root, folder)
        try:
            folders, files = _entries(path)
            return folders, [name for name in files if self._is_selected(path, folder, name)]
        except OSError as error:
            raise _unlistable(path, error) from error

    def images_below(self, top: str) -> Iterator[str]:
        """Yield the images under a folder, relative to the root, in the order of `sorted(os.walk(...))`."""
        found: dict[str, list[str]] = {}
        pending: list[tuple[str, tuple[tuple[int, int], ...]]] = [(top, (_identity(self.root),))]
        while pending:
            folder, above = pending.pop()
            path = os.path.join(self.root, folder)
            identity = _identity(path)
            if identity in above:
                must = "not be a link to a folder above it"
                raise malformed(path, must, f"one to {os.path.realpath(path)}", "remove the link")
            folders, found[folder] = self.scan(folder)
            pending += [(f"{folder}/{name}", (*above, identity)) for name in folders]
        for folder in sorted(found):
            for name in found[folder]:
                yield f"{folder}/{name}"

    def _is_selected(self, path: str, folder: str, name: str) -> bool:
        has_image_suffix = is_image(name)
        if not self.by_content:
            return has_image_suffix
        key = f"{folder}/{name}" if folder else name
        if has_image_suffix:
            is_metadata = name.startswith("._") and _is_apple_double(os.path.join(path, name))
            if is_metadata:
                self.leave_out(key, SYSTEM, is_clutter=True)
            return not is_metadata
        # Files below hidden folders are not opened: the .git of a clone holds its images a second time.
        is_hidden = folder.startswith(".") or "/." in folder
        reason = HIDDEN if is_hidden else _reason_to_leave_out(os.path.join(path, name), name)
        if reason is None:
            return True
        clutter = HIDDEN if reason is HIDDEN else clutter_reason(name) if reason is NO_IMAGE else None
        self.leave_out(key, clutter or reason, is_clutter=clutter is not None)
        return False


def is_image(name: str) -> bool:
    """Return True if a file is named like an image."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def in_order(splits: Mapping[str, T]) -> dict[str, T]:
    """Return splits in the order in which they are packed: train, val, test, then all others."""
    return {split: splits[split] for split in dict.fromkeys((*SPLITS.values(), *splits)) if split in splits}


def split_names(names: Iterable[str]) -> list[str]:
    """Return the names that stand for a split."""
    return [name for name in names if name.lower() in SPLITS]


def by_split(where: str, named: Mapping[str, T]) -> dict[str, T]:
    """Return values by split instead of by name, in the order of packing; other names stay as they are.

    SourceError is raised if two names, such as `val` and `valid`, stand for one split.
    """
    found: dict[str, tuple[str, T]] = {}
    for name, value in named.items():
        other, _ = found.setdefault(SPLITS.get(name.lower(), name), (name, value))
        if other != name:
            got = f"{other!r} and {name!r}"
            raise malformed(where, "have one name for each split", got, "rename or remove the wrong one")
    return in_order({split: value for split, (_, value) in found.items()})


def unannotated(path: str, names: Iterable[str], found: Mapping[str, object]) -> tuple[str, ...]:
    """Return a warning for each folder of a split in which no annotations were found."""
    return tuple(
        f"{path}: {name!r} has no annotations, and is left out" for name in names if name not in found
    )


def images_below(folder: str) -> list[str]:
    """Return the paths of the images under a folder (an absolute path), sorted."""
    walk = Walk(os.path.dirname(folder), by_content=False)
    return [os.path.join(walk.root, name) for name in walk.images_below(os.path.basename(folder))]


def names_below(folder: str) -> Iterator[str]:
    """Yield the files below a folder, relative to it; if there are very many folders, list only the first."""
    pending = [folder]
    for _ in range(_MOST_FOLDERS):
        if not pending:
            return
        entries = list_entries(pending.pop())
        below = entries.path[len(folder) :].lstrip(os.sep)
        yield from (os.path.join(below, name) for name in entries.files if not name.startswith("."))
        pending += [entries.join(name) for name in reversed(entries.folders)]


def stem_of(path: str) -> str:
    """Return a file's name without its suffix.

    >>> stem_of("images/train/a.jpg")
    'a'
    """
    return os.path.splitext(os.path.basename(path))[0]


def read_part(path: str, share: float = 0.0) -> bytes:
    """Return 64 KB at a relative position in a file, 0 for start, 1 for end; b"" if it cannot be read."""
    with contextlib.suppress(OSError):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                file.seek(int(share * max(0, os.path.getsize(path) - _READ_BYTES)))
                return file.read(_READ_BYTES)
    return b""


class FolderEntries(NamedTuple):
    """The visible folders and all files directly in a folder, each sorted."""

    path: str
    folders: list[str]
    files: list[str]

    def join(self, *names: str) -> str:
        """Join path components to the path of the folder."""
        return os.path.join(self.path, *names)


def list_entries(path: str) -> FolderEntries:
    """Return the entries of a folder; none if it cannot be listed."""
    with contextlib.suppress(OSError):  # the listing raises the proper error
        folders, files = _entries(path)
        return FolderEntries(path, [name for name in folders if not name.startswith(".")], files)
    return FolderEntries(path, [], [])


def _entries(path: str) -> _Names:
    """Return the names of the folders and of the files directly in a folder, each sorted."""
    listed, key = _listed.get(), os.path.join(path, "")
    if listed is not None and key in listed:
        return listed[key]
    with os.scandir(path) as entries:
        is_folder = {entry.name: _is_folder(entry) for entry in entries}
    names = sorted(is_folder)
    found = [name for name in names if is_folder[name]], [name for name in names if not is_folder[name]]
    if listed is not None:
        listed[key] = found
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself; reading it as a file raises the proper error
        return False


def _reason_to_leave_out(path: str, name: str) -> str | None:
    try:
        head = _head(path)
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            raise
        return f"cannot be read: {error.strerror}"
    image_format = format_of(head, os.path.splitext(name)[1])
    return NO_IMAGE if image_format is None else unreadable_reason(image_format, head)


def _is_apple_double(path: str) -> bool:
    with contextlib.suppress(OSError):
        return _head(path).startswith(_APPLE_DOUBLE)
    return False


def _head(path: str) -> bytes:
    handle = os.open(path, READ_FLAGS)
    try:
        return os.read(handle, HEAD_BYTES)
    except BlockingIOError:  # a pipe
        return b""
    finally:
        os.close(handle)


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unlistable(path, error) from error
    return status.st_dev, status.st_ino


def _unlistable(path: str, error: OSError) -> SourceError:
    is_limit = error.errno in OUT_OF_DESCRIPTORS
    step = OPEN_FILES_STEP if is_limit else "make it readable, or move it elsewhere"
    if isinstance(error, FileNotFoundError):
        step = "check its spelling"
    return malformed(path, "be a folder that can be listed", f"{error.strerror}", step)
