"""The `cache` argument of datasets and loaders, and the report of the cache that is used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from fastload.errors import OptionError
from fastload.system.units import parse_size

CacheKind = Literal["ram", "tmpfs", "disk", "device"]
Form = Literal["encoded", "decoded"]

_KINDS = ("auto", *get_args(CacheKind))


@dataclass(frozen=True, slots=True)
class Cache:
    """Place and form in which the samples of a dataset are cached.

    Args:
        kind: `auto` measures and decides; `ram` is memory shared by all processes of the node; `tmpfs` is a
            file in a folder in memory; `disk` is a packed copy on a disk, for files; `device` is the memory
            of the model's device.
        folder: The folder for `tmpfs` and `disk`; for `ram`, where other processes find the cache. fastload
            makes a subfolder in it. None: /dev/shm, and for `disk` the user's cache folder.
        form: `encoded`, as stored, or `decoded`, as pixels; None: see the page "Caching".
        size: For `disk`: the most that all caches in its folder may take, in bytes or text such as `200GB`.
            None: the free space of the disk, less a tenth of the disk.

    Raises:
        OptionError: An argument has an invalid value.

    Example:
        >>> cache = fastload.Cache("tmpfs", folder="/mnt/ram")  # doctest: +SKIP
        >>> dataset = fastload.FolderDataset("photos/", cache=cache)  # doctest: +SKIP
    """

    kind: str
    folder: str | os.PathLike[str] | None = None
    form: Form | None = None
    size: int | str | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise OptionError(
                f"cache must be None, {', '.join(_KINDS)}, or a fastload.Cache, got {self.kind!r}"
            )
        if self.form not in (None, *get_args(Form)):
            raise OptionError(f"a cache's form must be encoded, decoded or None, got {self.form!r}")
        if self.folder is not None and self.kind == "device":
            raise OptionError("a cache on the device has no folder: leave it out")
        if self.size is not None:
            parse_size(self.size)
            if self.kind != "disk":
                raise OptionError(f"size is for a cache on a disk, got it for {self.kind}: leave it out")

    @property
    def most_bytes(self) -> int | None:
        """The `size` in bytes; None if there is no limit."""
        return None if self.size is None else parse_size(self.size)


def cache_of(option: str | Cache) -> Cache:
    """Return a cache option as a `Cache`; raise OptionError if it is invalid."""
    return option if isinstance(option, Cache) else Cache(option)


@dataclass(frozen=True, slots=True)
class CacheReport:
    """Choice of a dataset's cache, and its state.

    Attributes:
        kind: `ram`, `tmpfs`, `disk` or `device`; None: no cache.
        form: `encoded` or `decoded`.
        share: The share of the samples for which there is room: the hit ratio of later epochs.
        reason: The reason for the choice.
        predicted_gain: The predicted rate as a multiple of the rate without the cache; 1 if unknown.
        ready: The share of the samples stored so far.
        used_bytes: The memory, or the room on the disk, that these take.
        stopped: The reason why no more samples are stored; "" while there is room.
        hits: Samples that this process and the workers forked from it have read from the cache.
        misses: Samples that they have read from the disk.
    """

    kind: CacheKind | None
    form: Form | None
    share: float
    reason: str
    predicted_gain: float = 1.0
    ready: float = 0.0
    used_bytes: int = 0
    stopped: str = ""
    hits: int = 0
    misses: int = 0

    @property
    def state(self) -> str:
        """`complete`, `filling, 42%`, or `stopped at 42%` and the reason."""
        if self.stopped:
            return f"stopped at {self.ready:.0%}: {self.stopped}"
        return "complete" if self.ready >= self.share else f"filling, {self.ready:.0%}"


def no_cache(reason: str) -> CacheReport:
    """Return the report of no cache."""
    return CacheReport(None, None, 0.0, f"no cache: {reason}")
