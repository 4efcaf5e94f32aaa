"""Folders walked as torchvision's ImageFolder walks them: links followed, names sorted."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fastload.errors import SourceError
from fastload.images.formats import HEAD_BYTES, format_of, unreadable_reason
from fastload.shards.manifest import LeftOut, Skipped
from fastload.sources.files import OUT_OF_DESCRIPTORS, READ_FLAGS
from fastload.sources.left_out import HIDDEN, NO_IMAGE, SYSTEM, LeftOutFiles, clutter_reason

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What an image file's name ends in, in any case: torchvision's IMG_EXTENSIONS."""

# RFC 1740: what macOS keeps of a file beside it, under its name behind "._".
_APPLE_DOUBLE = b"\x00\x05\x16\x07"


class Walk:
    """Finds the images below a folder, and keeps account of everything else.

    Args:
        root: An absolute path.
        by_content: Whether files whose names do not end in `IMAGE_SUFFIXES` are images where their
            first bytes say so, and what is left out is listed; otherwise they are passed over, as
            by ImageFolder.
        skips_unlistable: Whether to go on without folders that cannot be listed, and links that lead
            back into their own path.

    Attributes:
        root: As given.
        by_content: As given.
        unlisted: The folders that were passed over, with the reasons.
    """

    def __init__(self, root: str, *, by_content: bool, skips_unlistable: bool) -> None:
        self.root = root
        self.unlisted: list[Skipped] = []
        self.by_content = by_content
        self._skips_unlistable = skips_unlistable
        self._left_out = LeftOutFiles()

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The files so far that are not taken."""
        return self._left_out.finish()

    def leave_out(self, key: str, reason: str, *, is_clutter: bool = False) -> None:
        """List a file as not taken, where an account is kept."""
        if self.by_content:
            self._left_out.add(key, reason, is_clutter=is_clutter)

    def scan(self, folder: str = "") -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the images that lie directly in a folder, each sorted.

        Args:
            folder: Its path relative to the root; empty for the root itself.

        Raises:
            SourceError: It cannot be listed.
        """
        path = os.path.join(self.root, folder)
        folders, images = [], []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if is_folder(entry):
                        folders.append(entry.name)
                    elif self._is_taken(path, folder, entry.name):
                        images.append(entry.name)
        except OSError as error:
            raise _unlistable(path, error) from error
        return sorted(folders), sorted(images)

    def images_below(self, top: str) -> Iterator[str]:
        """Yield the images under a folder, relative to the root, in the order of `sorted(os.walk(...))`."""
        found: dict[str, list[str]] = {}
        pending: list[tuple[str, tuple[tuple[int, int], ...]]] = [(top, (_identity(self.root),))]
        while pending:
            folder, above = pending.pop()
            try:
                identity = self._new_identity(folder, above)
                folders, found[folder] = self.scan(folder)
            except SourceError as error:
                is_ours_to_mend = getattr(error.__cause__, "errno", None) in OUT_OF_DESCRIPTORS
                if is_ours_to_mend or not self._skips_unlistable:
                    raise
                self.unlisted.append(Skipped(f"{folder}/", str(error)))
                continue
            pending += [(f"{folder}/{name}", (*above, identity)) for name in folders]
        for folder in sorted(found):
            for name in found[folder]:
                yield f"{folder}/{name}"

    def _new_identity(self, folder: str, above: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        path = os.path.join(self.root, folder)
        identity = _identity(path)
        if identity in above:
            raise SourceError(
                f"{path}: must not be a link to a folder that it lies in, got one to "
                f"{os.path.realpath(path)}: remove the link"
            )
        return identity

    def _is_taken(self, path: str, folder: str, name: str) -> bool:
        """Whether a file is an image; lists it where it is not."""
        is_named_so = name.lower().endswith(IMAGE_SUFFIXES)
        if not self.by_content:
            return is_named_so
        key = f"{folder}/{name}" if folder else name
        if is_named_so:
            is_apples = name.startswith("._") and _is_apple_double(os.path.join(path, name))
            if is_apples:
                self.leave_out(key, SYSTEM, is_clutter=True)
            return not is_apples
        # Below hidden folders nothing is opened: a clone's .git holds its images once more, among thousands.
        reason = HIDDEN if is_hidden(folder) else _reason(os.path.join(path, name), name)
        if reason is None:
            return True
        clutter = HIDDEN if reason is HIDDEN else clutter_reason(name) if reason is NO_IMAGE else None
        self.leave_out(key, clutter or reason, is_clutter=clutter is not None)
        return False


def is_hidden(path: str) -> bool:
    """Whether a relative path leads through a hidden folder."""
    return path.startswith(".") or "/." in path


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or leads to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself is no folder; reading it will say what it is
        return False


def _reason(path: str, name: str) -> str | None:
    """Why a file is no image that can be packed, by its first bytes; None where it is one."""
    try:
        head = _head(path)
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            raise
        return f"cannot be read: {error.strerror}"
    image_format = format_of(head, os.path.splitext(name)[1])
    return NO_IMAGE if image_format is None else unreadable_reason(image_format, head)


def _is_apple_double(path: str) -> bool:
    try:
        return _head(path).startswith(_APPLE_DOUBLE)
    except OSError:
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
    """What two paths share exactly when they lead to the same folder."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unlistable(path, error) from error
    return status.st_dev, status.st_ino


def _unlistable(path: str, error: OSError) -> SourceError:
    if error.errno in OUT_OF_DESCRIPTORS:
        return SourceError(
            f"{path}: must be a folder that can be listed, got: {error.strerror}: "
            "allow this process more open files (ulimit -n)"
        )
    return SourceError(
        f"{path}: must be a folder that can be listed, got: {error.strerror}: "
        "make it readable, or move it elsewhere"
    )
