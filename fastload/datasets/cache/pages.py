"""Having the kernel's page cache read a dataset once, in order, in the background."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastload.datasets.cache.opening import Opening, open_store
from fastload.datasets.cache.store import Store

_BLOCK_BYTES = 1 << 20


class Pages:
    """Files that the page cache is to hold.

    Nothing is kept by fastload: the store, which is empty, tells other processes that this is being done.

    Args:
        paths: Of the files.
        opening: The store.

    Attributes:
        store: The store.
    """

    def __init__(self, paths: list[str], opening: Opening) -> None:
        self._paths = paths
        self.opening = opening
        self.store: Store = open_store(opening)

    def __getstate__(self) -> dict[str, Any]:
        return {"_paths": self._paths, "opening": self.opening}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.store = open_store(self.opening, is_guest=True)

    def steps(self) -> Iterator[None]:
        """Reads all files, a block after the other."""
        block = bytearray(_BLOCK_BYTES)
        for path in self._paths:
            try:
                with open(path, "rb", buffering=0) as file:
                    while file.readinto(block):
                        yield
            except OSError:
                continue  # whoever asks for it is told
