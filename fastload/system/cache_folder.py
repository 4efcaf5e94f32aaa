"""Folder of caches on a disk: each has a state, a lock and a time of last use; one limit is for all of them.

A cache NAME, which ends with twelve hexadecimal digits, has in this folder

    NAME.fl            the complete cache; while it is filled, `.NAME.fl.partial`
    NAME.json          its description: dataset, samples, how many of them are stored
    NAME.lock          locked exclusively by the process that fills it, shared by those that read it; its time
                       is that of the last use

Nothing else in the folder is read, changed or removed, and nothing at all unless the folder, and what is read
in it, can only have been written by this user. The locks are those of flock(2), which the kernel drops with
their process; forked children do not inherit them.
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
from fastload.system.own_files import CacheLock, make_own, read_own, require_own, require_own_tree

_LOCK_FILE = re.compile(r"(.+-[0-9a-f]{12})\.lock")

# The share of a file system that stays free: file systems become slow when they are nearly full, and logs,
# checkpoints and other programs need space too.
_FREE_SHARE = 0.1

CacheState = Literal["complete", "filling", "unfinished", "damaged"]


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
    size_bytes: int  # of its files
    used_s: float  # the time of its last use, in seconds since the epoch
    state: CacheState  # `unfinished`: filling was interrupted or given up; `damaged`: it cannot be locked

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
    return os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")


class CacheFolder:
    """The caches in `parent`/fastload, or in the user's cache folder; the folder need not exist yet."""

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        place = _user_cache_folder() if parent is None else os.path.expanduser(os.fspath(parent))
        self.path = Path(os.path.abspath(place)) / "fastload"

    def make(self) -> None:
        """Make the folder, for this user alone; raise OptionError if it cannot be used."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
            require_own(self.path, is_folder=True)
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

    def require_own(self, name: str) -> None:
        """Raise PermissionError unless only this user can have made the packed dataset of a cache."""
        require_own(self.path, is_folder=True)
        require_own_tree(self.dataset(name))

    def dataset(self, name: str) -> Path:
        """Return the path of a cache's packed dataset, which exists once it is complete."""
        return self.path / f"{name}.fl"

    def lock(self, name: str, *, shared: bool = False, is_new: bool = True) -> CacheLock | None:
        """Lock a cache without waiting; return None if another process or call holds its lock.

        Unless `is_new`, raises FileNotFoundError for a cache that does not exist.
        """
        require_own(self.path, is_folder=True)
        return CacheLock.on(self.path / f"{name}.lock", shared=shared, is_new=is_new)

    def note_use(self, name: str) -> None:
        """Set the time of a cache's last use to now."""
        with contextlib.suppress(OSError):
            os.utime(self.path / f"{name}.lock")

    def describe(self, name: str, **parts: str | int) -> None:
        """Change parts of a cache's description, in one step."""
        require_own(self.path, is_folder=True)
        draft = self.path / f"{name}.json.draft"
        with open(make_own(draft), "w", encoding="utf-8") as file:
            json.dump({**asdict(self.description(name)), **parts}, file)
        os.replace(draft, self.path / f"{name}.json")

    def description(self, name: str) -> CacheDescription:
        """Return a cache's description, as far as it is valid; the default one if that is not this user's."""
        return self._described(name)[0]

    def _described(self, name: str) -> tuple[CacheDescription, bool]:
        """Return a cache's description, and True if some of it is not valid."""
        try:
            require_own(self.path, is_folder=True)
            found: object = json.loads(read_own(self.path / f"{name}.json"))
        except OSError:
            return CacheDescription(), False
        except (ValueError, RecursionError):
            return CacheDescription(), True
        parts = found if isinstance(found, dict) else {}
        valid = {part: value for part, value in parts.items() if _is_valid(part, value)}
        return CacheDescription(**valid), valid != found

    def entry(self, name: str) -> CacheEntry:
        """Return the state of a cache."""
        found, is_damaged = self._described(name)
        lock = self.path / f"{name}.lock"
        command = f"'fastload cache clear {name} --folder {self.path.parent}'"
        stopped = f"{name}.json is damaged: {command} removes the cache" if is_damaged else found.stopped
        try:
            require_own(lock)
            state: CacheState = "complete"
            if not self.dataset(name).is_dir():
                partial = self.lock(name, is_new=False)
                state = "filling" if partial is None else "unfinished"
                if partial is not None:
                    partial.release()
        except PermissionError as error:
            state, stopped = "damaged", f"remove {lock} yourself: {error.strerror}"
        return CacheEntry(
            **{**asdict(found), "stopped": stopped},
            name=name,
            size_bytes=self.size_bytes(name),
            used_s=os.lstat(lock).st_mtime,
            state=state,
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
        for match in map(_LOCK_FILE.fullmatch, os.listdir(self.path) if self.path.is_dir() else []):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found += [self.entry(match[1])] if match else []
        return sorted(found, key=lambda entry: -entry.used_s)

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
        for suffix in ("json.draft", "json", "lock"):
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
            'fastload.Cache("disk", folder=...) or XDG_CACHE_HOME'
        )

    def _folders(self, name: str) -> list[Path]:
        """Return the folders that a cache may have: complete, incomplete, temporary."""
        names = (f"{name}.fl", f".{name}.fl.partial", f".{name}.fl.temporary")
        return [self.path / each for each in names]


def _is_valid(part: str, value: object) -> bool:
    default = getattr(CacheDescription(), part, None)
    return type(value) is type(default) and (not isinstance(value, int) or value >= 0)
