"""What was asked for: `cache=None`, a kind by its name, or a `Cache` that says more."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import get_args

from fastload.datasets.cache.choose import CacheChoice, Form, Kind
from fastload.errors import OptionError

_KINDS = ("auto", *get_args(Kind))


@dataclass(frozen=True, slots=True)
class Cache:
    """Where the bytes of a dataset should live.

    Args:
        kind: `auto` measures, and decides; `ram` is memory that the node's processes share; `tmpfs` files
            in a folder that lies in memory; `page` has the kernel's page cache read the dataset once;
            `device` is the memory of the device that the model is on.
        folder: Where stores lie (`tmpfs`), or are made known to other processes (`ram`), in a subfolder that
            fastload makes; None: /dev/shm.
        form: `encoded`, as stored, or `decoded`, as pixels; None: whichever pays.

    Raises:
        OptionError: One of them has another value.

    Example:
        >>> fastload.FolderDataset("photos/", cache=fastload.Cache("tmpfs", folder="/mnt/ram"))  # doctest:
        +SKIP
    """

    kind: str
    folder: str | os.PathLike[str] | None = None
    form: Form | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise OptionError(
                f"cache must be None, {', '.join(_KINDS)}, or a fastload.Cache, got {self.kind!r}"
            )
        if self.form not in (None, *get_args(Form)):
            raise OptionError(f"a cache's form must be encoded, decoded or None, got {self.form!r}")
        if self.folder is not None and self.kind == "device":
            raise OptionError("a cache on the device has no folder: leave it out")


def cache_of(asked: str | Cache | CacheChoice) -> Cache:
    """What was asked for as a `Cache`.

    Raises:
        OptionError: It is no kind of cache.
    """
    if isinstance(asked, Cache):
        return asked
    if isinstance(asked, CacheChoice):
        if asked.kind is None:
            raise OptionError("a choice of no cache opens none: pass None")
        return Cache(asked.kind, form=asked.form)
    if not isinstance(asked, str):
        raise OptionError(f"cache must be None, {', '.join(_KINDS)}, or a fastload.Cache, got {asked!r}")
    return Cache(asked)
