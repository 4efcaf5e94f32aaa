"""Copies of remote shards in the cache folder of this machine, shared by all processes of a user.

Each shard is a cache of its own in a `CacheFolder`: a process that fetches it locks it exclusively, and those
that read it share the lock. So a shard is fetched by one process while others wait for it, is not removed as
long as it is read, and a killed process leaves an unfinished draft, which the next one replaces.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import os
import tempfile
import time
import warnings
from pathlib import Path

from google_crc32c import extend

from fastload.errors import AccessError, OptionError, RemoteError
from fastload.shards.container import ShardEntry
from fastload.shards.remote import RemoteFolder, changed
from fastload.system.cache_folder import CacheFolder
from fastload.system.own_files import CacheLock, make_own, require_own, user_id

# Increased when other copies can be read than before.
_VERSION = 2

# Short against the time of a request.
POLL_S = 0.01

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


Copy = tuple[Path, CacheLock]
"""A complete copy of a shard, and the shared lock that keeps it from being removed."""


class Copies:
    """The copies of one remote dataset's shards, below `parent` or in the user's cache folder.

    `most_bytes` bounds all caches in that folder; None: the free space of the disk but a tenth of its size.
    """

    def __init__(
        self,
        remote: RemoteFolder,
        parent: str | os.PathLike[str] | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self._remote = remote
        self.most_bytes = most_bytes
        self._folder = _usable_folder(parent)
        self._title = "".join(each if each.isalnum() else "_" for each in remote.url.rpartition("/")[2])

    @property
    def parent(self) -> Path:
        """The folder that `fastload cache --folder` takes."""
        return self._folder.path.parent

    def stoppable(self) -> Copies:
        """Return the same copies with requests of their own, which `stop` ends."""
        copies = copy.copy(self)
        copies._remote = self._remote.stoppable()
        return copies

    def stop(self) -> None:
        """End all calls of `get`, with RemoteError."""
        self._remote.stop()

    def is_complete(self, entry: ShardEntry) -> bool:
        """Return True if a copy of a shard is complete."""
        return self._path(entry).exists()

    def is_being_fetched(self, entry: ShardEntry) -> bool:
        """Return True if a process is fetching a shard."""
        return self._folder.is_locked(self._name(entry))

    def no_room(self, entry: ShardEntry) -> RemoteError:
        """Return the error for a shard that can only be read from a copy."""
        bound = "" if self.most_bytes is None else f" (all copies may take {self.most_bytes:,})"
        return RemoteError(
            f"{self._remote / entry.file}: there is no room for its {entry.size_bytes:,} bytes in "
            f"{self._folder.path}{bound}: free some, or name another folder or size with "
            'cache=fastload.Cache("disk", folder=..., size=...); without a copy, only shards in HDF5 '
            "can be read, and only from a server that answers requests for ranges"
        )

    def get(self, entry: ShardEntry, *, waits: bool = True) -> Copy | None:
        """Return the copy of a shard, fetched first if necessary; release its lock after use.

        Returns:
            None if there is no room for it or, unless `waits` is set, if another process is fetching it.

        Raises:
            RemoteError: It cannot be fetched.
            DamageError: The remote shard is not the one that the manifest lists.
        """
        name, path = self._name(entry), self._path(entry)
        seen, since_s = -1, time.monotonic()
        while True:
            if (found := self._shared(name, path, entry)) is not None:
                return found
            try:
                lock = self._folder.lock(name)
            except OSError as error:
                if error.errno in _FULL:
                    return None
                raise
            if lock is not None:
                try:
                    if not path.exists() and not self._fetch(name, path, entry):
                        return None
                finally:
                    lock.release()
                continue
            if not waits:
                return None
            done = self._folder.size_bytes(name)
            if done != seen:
                seen, since_s = done, time.monotonic()
            elif time.monotonic() - since_s > self._remote.timeout_s:
                return None  # the process that fetches it is stopped
            self._remote.pause(POLL_S)

    def remove(self, entry: ShardEntry) -> None:
        """Remove the copy of a shard, which is damaged."""
        self._folder.remove(self._name(entry))

    def _name(self, entry: ShardEntry) -> str:
        parts = f"{_VERSION} {entry.identity} {entry.crc32c} {entry.size_bytes}"
        stem = entry.file.partition(".")[0]
        return f"{self._title}-{stem}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"

    def _path(self, entry: ShardEntry) -> Path:
        return self._folder.dataset(self._name(entry)) / entry.file

    def _shared(self, name: str, path: Path, entry: ShardEntry) -> Copy | None:
        """Return the copy if it is complete."""
        try:
            lock = self._folder.share(name)
        except PermissionError as error:
            raise AccessError(
                f"{error.filename}: must be a copy that only you can have made ({error.strerror}): remove "
                'it, or name another folder with cache=fastload.Cache("disk", folder=...)'
            ) from error
        if lock is None:
            return None
        if path.exists() and path.stat().st_size == entry.size_bytes:
            return path, lock
        lock.release()
        self._folder.remove(name)
        return None

    def _fetch(self, name: str, path: Path, entry: ShardEntry) -> bool:
        """Fetch a shard whose lock is held; return False if there is no room for it."""
        folder, size_bytes = self._folder, entry.size_bytes
        try:
            # Reserved first, so that processes that fetch at the same time do not both take the last room.
            counts = {"samples": entry.records, "total": entry.records}
            folder.describe(name, dataset=str(self._remote), **counts, bytes=size_bytes, stopped="")
            has_room = self.most_bytes is None or size_bytes <= self.most_bytes
            if not has_room or folder.make_room(name, size_bytes, self.most_bytes) < size_bytes:
                folder.discard(name)
                return False
            draft = folder.draft(name)
            self._download(draft / entry.file, entry)
            os.replace(draft, path.parent)
            return True
        except OSError as error:
            folder.discard(name)
            if error.errno in _FULL:
                return False
            raise

    def _download(self, path: Path, entry: ShardEntry) -> None:
        """Write a shard to a file; raise DamageError if its checksum is wrong twice."""
        for _ in range(2):
            crc = 0
            with open(make_own(path), "wb", buffering=0) as file:
                for part in self._remote.parts(entry):
                    crc = extend(crc, part)
                    file.write(part)
            if format(crc, "08x") == entry.crc32c:
                return
        self._remote.require_unchanged(entry)
        raise changed(self._remote, entry, f"checksum {crc:08x}")


def _usable_folder(parent: str | os.PathLike[str] | None) -> CacheFolder:
    """Return the cache folder or, if it cannot be used, this user's own in the folder for temporary files."""
    folder = CacheFolder(parent)
    try:
        folder.make()
        return folder
    except OptionError as error:
        own = os.path.join(tempfile.gettempdir(), f"fastload-{user_id()}")
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(own, 0o700)
            require_own(own, is_folder=True)  # its owner could exchange the files in it
        except OSError:
            raise error from None
        fallback = CacheFolder(own)
        fallback.make()
        warnings.warn(
            f"remote shards are cached in {fallback.path}, because the cache folder cannot be used: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return fallback
