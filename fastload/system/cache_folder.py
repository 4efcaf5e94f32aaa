"""Registry of caches, in memory and on disks: who uses each, its size, its last use, and its removal.

A cache NAME, which ends with twelve hexadecimal digits, has in the folder of its medium

    NAME.lock          locked exclusively by the process that makes it, shared by those that use it; its time
                       is that of the last use; for a cache in memory, it lists the processes that hold it
    NAME.json          its description: dataset, samples, how many of them are stored
    NAME.fl            the complete cache on a disk; while it is filled, `.NAME.fl.partial`

No other file in the folder is read, changed or removed. Neither the folder nor a file in it is used if anyone
but this user could have written it. The locks are those of flock(2): the kernel releases them when their
process ends, and forked children do not inherit them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fastload.errors import OptionError
from fastload.system.own_files import (
    CacheLock,
    holders,
    make_own,
    read_own,
    require_own,
    require_own_tree,
    user_id,
)

_LOCK_FILE = re.compile(r"(.+-[0-9a-f]{12})\.lock")

# The share of a file system that stays free: file systems become slow when they are nearly full, and logs,
# checkpoints and other programs need space too.
_FREE_SHARE = 0.1

CacheState = Literal["complete", "filling", "unfinished", "damaged", "in memory"]


@dataclass(frozen=True, slots=True)
class CacheDescription:
    """The content of a cache's NAME.json; a part that is missing there has its default."""

    dataset: str = "?"  # the folder or URL of what it holds
    samples: int = 0  # that it holds, or is to hold
    total: int = 0  # samples of the dataset; more than `samples` if not all fit
    done: int = 0  # samples stored so far
    bytes: int = 0  # the size that it will have
    encode: str = ""  # the encoding of its images
    stopped: str = ""  # why its filling was given up, or why it is no longer used; "" if neither


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry(CacheDescription):
    """One cache of a folder."""

    name: str  # which `remove` takes
    size_bytes: int  # of its files, or the memory that it takes
    used_s: float  # the time of its last use, in seconds since the epoch
    state: CacheState  # `unfinished`: filling was interrupted or given up; `damaged`: it cannot be locked
    users: tuple[int, ...] = ()  # the processes that hold it in memory

    @property
    def reserved_bytes(self) -> int:
        """The size that it will have, if it is being filled; else that of its files."""
        return max(self.size_bytes, self.bytes) if self.state == "filling" else self.size_bytes


def _user_cache_folder() -> str:
    """Return the folder in which this user's programs keep caches: XDG_CACHE_HOME or the system's default.

    platformdirs would be a dependency for this folder alone.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # the XDG specification ignores relative paths
        return named
    defaults = {"darwin": "~/Library/Caches", "win32": "~/AppData/Local"}
    return os.path.expanduser(defaults.get(sys.platform, "~/.cache"))


def cache_name(dataset: str, digest: str) -> str:
    """Return the name of the cache of a folder or URL, with the digest of all that distinguishes it."""
    title = "".join(each if each.isalnum() else "_" for each in os.path.basename(dataset.rstrip("/")))
    return f"{title or 'files'}-{digest[:12]}"


class CacheFolder:
    """The caches in `parent`/fastload, or in the user's cache folder; the folder need not exist yet.

    A cache in memory ends with its last user; the folder of such caches is removed with the last of them.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        place = _user_cache_folder() if parent is None else os.path.expanduser(os.fspath(parent))
        self.path = Path(os.path.abspath(place)) / "fastload"

    @classmethod
    def of_memory(cls, parent: str | os.PathLike[str] = "/dev/shm") -> CacheFolder:
        """Return the folder of this user's caches in memory, in a folder that all users may share."""
        folder = cls(parent)
        folder.path = folder.path.with_name(f"fastload-{user_id()}")
        return folder

    def make(self) -> None:
        """Make the folder, for this user alone; raise OptionError if it cannot be used."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                self.path.mkdir(mode=0o700, exist_ok=True)
                # Another process may remove it with its last cache.
                with contextlib.suppress(FileNotFoundError):
                    require_own(self.path, is_folder=True)
                    break
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(13, "it is not writable")
        except OSError as error:
            raise self._unusable("that can be written to", error) from error

    def check(self) -> None:
        """Raise OptionError if there is such a folder, but another user may have written to it."""
        try:
            require_own(self.path, is_folder=True)
        except PermissionError as error:
            raise self._unusable("that only you can write to", error) from error
        except OSError:
            return  # there is none

    def dataset(self, name: str) -> Path:
        """Return the path of a cache's packed dataset, which exists once it is complete."""
        return self.path / f"{name}.fl"

    def lock_file(self, name: str) -> Path:
        """Return the path of a cache's lock."""
        return self.path / f"{name}.lock"

    def lock(
        self, name: str, *, shared: bool = False, is_new: bool = True, waits: bool = False
    ) -> CacheLock | None:
        """Lock a cache; unless it `waits`, return None if another process or call holds its lock.

        Unless `is_new`, raises FileNotFoundError for a cache that does not exist.
        """
        require_own(self.path, is_folder=True)
        return CacheLock.on(self.lock_file(name), shared=shared, is_new=is_new, waits=waits)

    def is_locked(self, name: str) -> bool:
        """Return True if a process makes or uses a cache."""
        try:
            lock = self.lock(name, is_new=False)
        except FileNotFoundError:
            return False
        if lock is not None:
            lock.release()
        return lock is None

    def share(self, name: str) -> CacheLock | None:
        """Lock a complete cache, to read it; return None if there is none, or if it is made or removed now.

        Raises PermissionError unless only this user can have made it.
        """
        if not self.dataset(name).is_dir() or (lock := self.lock(name, shared=True)) is None:
            return None
        try:
            require_own_tree(self.dataset(name))
        except OSError as error:
            lock.release()
            if isinstance(error, FileNotFoundError):  # removed a moment ago
                return None
            raise
        with contextlib.suppress(OSError):
            os.utime(self.lock_file(name))
        return lock

    def describe(self, name: str, **parts: str | int) -> None:
        """Change parts of a cache's description, in one step."""
        require_own(self.path, is_folder=True)
        draft = self.path / f"{name}.json.draft"
        with open(make_own(draft), "w", encoding="utf-8") as file:
            json.dump({**asdict(self.description(name)), **parts}, file)
        os.replace(draft, self.path / f"{name}.json")

    def description(self, name: str) -> CacheDescription:
        """Return a cache's description; the default one if there is none of this user's."""
        found: object = None
        with contextlib.suppress(ValueError, RecursionError):
            try:
                require_own(self.path, is_folder=True)
                found = json.loads(read_own(self.path / f"{name}.json"))
            except OSError:
                return CacheDescription()
        if isinstance(found, dict) and all(_is_valid(*part) for part in found.items()):
            return CacheDescription(**found)
        command = f"'fastload cache clear {name} --folder {self.path.parent}'"
        return CacheDescription(stopped=f"{name}.json is damaged: {command} removes the cache")

    def entry(self, name: str) -> CacheEntry:
        """Return the state of a cache."""
        found, lock, users = self.description(name), self.lock_file(name), []
        stopped, size_bytes = found.stopped, self.size_bytes(name)
        try:
            require_own(lock)
            users = list(holders(lock))
            state: CacheState = "complete"
            if users:
                # Memory is allocated as samples are stored.
                state, size_bytes = "in memory", users[0][2].st_blocks * 512
            elif not self.dataset(name).is_dir():
                state = "filling" if self.is_locked(name) else "unfinished"
        except PermissionError as error:
            state, stopped = "damaged", f"remove {lock} yourself: {error.strerror}"
        return CacheEntry(
            **{**asdict(found), "stopped": stopped},
            name=name,
            size_bytes=size_bytes,
            used_s=os.lstat(lock).st_mtime,
            state=state,
            users=tuple(process for process, *_ in users),
        )

    def size_bytes(self, name: str) -> int:
        """Return the size of a cache's files."""
        size_bytes = 0
        for place, _, names in itertools.chain.from_iterable(map(os.walk, self._folders(name))):
            for each in names:
                with contextlib.suppress(FileNotFoundError):
                    size_bytes += os.lstat(os.path.join(place, each)).st_size
        return size_bytes

    def entries(self) -> list[CacheEntry]:
        """Return all caches, the last used first; raise OptionError if another user may have made them."""
        self.check()
        found = []
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found.append(self.entry(name))
        return sorted(found, key=lambda entry: -entry.used_s)

    def _names(self) -> list[str]:
        matches = map(_LOCK_FILE.fullmatch, os.listdir(self.path) if self.path.is_dir() else [])
        return [match[1] for match in matches if match]

    def sweep(self) -> None:
        """Remove what unused caches in memory have left, and their folder if it is then empty."""
        with contextlib.suppress(OSError):
            require_own(self.path, is_folder=True)
            for name in self._names():
                self.remove(name)
            self.path.rmdir()

    def remove(self, name: str) -> bool:
        """Remove a cache; return False if a process fills or reads it, or if its lock is no file of ours."""
        try:
            lock = self.lock(name, is_new=False)
        except FileNotFoundError:
            return True
        except PermissionError:  # `entry` tells the user
            return False
        if lock is None:
            return False
        try:
            self.discard(name)
        finally:
            lock.release()
        if (
            sys.platform == "win32"
        ):  # which does not remove an open file, nor one that another process has opened since
            with contextlib.suppress(OSError):
                self.lock_file(name).unlink()
        return True

    def discard(self, name: str) -> None:
        """Remove a cache whose lock the caller holds exclusively."""
        dataset, partial, temporary = self._folders(name)
        for folder in (partial, temporary):
            if folder.is_dir():
                shutil.rmtree(folder)
        if dataset.is_dir():
            dataset.rename(temporary)  # a half-removed cache never has the name of a complete one
            shutil.rmtree(temporary)
        for suffix in ("json.draft", "json", *(() if sys.platform == "win32" else ("lock",))):
            (self.path / f"{name}.{suffix}").unlink(missing_ok=True)

    def room_for(self, name: str, most_bytes: int | None) -> int:
        """Return how large a cache may become, within the limit and the free space of the disk."""
        own = reserved = to_come = 0
        for each in self.entries():
            if each.name == name:
                own = each.size_bytes
            else:
                reserved += each.reserved_bytes
                to_come += each.reserved_bytes - each.size_bytes
        usage = shutil.disk_usage(self.path)
        room = own + usage.free - int(usage.total * _FREE_SHARE) - to_come
        return room if most_bytes is None else min(room, most_bytes - reserved)

    def make_room(self, name: str, needed_bytes: int, most_bytes: int | None) -> int:
        """Remove caches that are not in use, the least recently used first, until another one fits.

        Returns:
            How large it may become: smaller than needed if all of that was not enough.
        """
        room = self.room_for(name, most_bytes)
        for each in reversed(self.entries() if room < needed_bytes else []):
            if room < needed_bytes and each.name != name and self.remove(each.name):
                room = self.room_for(name, most_bytes)
        return room

    def draft(self, name: str) -> Path:
        """Make the empty folder that becomes a cache when renamed; the caller holds the cache's lock."""
        self.drop_unfinished(name)
        folder = self._folders(name)[1]
        folder.mkdir(mode=0o700)
        return folder

    def drop_unfinished(self, name: str) -> None:
        """Remove the files of an incomplete cache; the caller holds its lock."""
        for folder in self._folders(name)[1:]:
            shutil.rmtree(folder, ignore_errors=True)

    def _unusable(self, kind: str, error: OSError) -> OptionError:
        return OptionError(
            f"{self.path}: must be a folder {kind} ({error.strerror}): name another place with "
            "fastload.Cache(..., folder=...) or, for a disk, XDG_CACHE_HOME"
        )

    def _folders(self, name: str) -> list[Path]:
        """Return the folders that a cache may have: complete, incomplete, temporary."""
        names = (f"{name}.fl", f".{name}.fl.partial", f".{name}.fl.temporary")
        return [self.path / each for each in names]


def _is_valid(part: str, value: object) -> bool:
    default = getattr(CacheDescription(), part, None)
    return type(value) is type(default) and (not isinstance(value, int) or value >= 0)
