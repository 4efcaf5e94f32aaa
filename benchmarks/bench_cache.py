"""What does a record cost from a warm cache, compared with the page cache and the disk?

Method. A folder of generated photos of 120 KB is read in random order by one process, without decoding. The
sides take turns:

- *page cache*: `FileList.read`, as in a FolderDataset without a cache; all files are in the page cache.
- *fastload, ram* and *tmpfs*: the same files, copied out of a store that holds them all, with
  checksums that have been checked before.
- *disk*: `FileList.read` again, after the files' pages were dropped (posix_fadvise). Caches of the host or
  the device count as the disk.

The second table is a hit without copying its bytes: finding one record at a time, or a batch of 256 at once,
as packed datasets do.

How to read it. `relative time` is the median, as a multiple of the page cache's: below 1 is faster. A cache
pays off if the disk's time is many times the others, and more than that of decoding a sample.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from _harness import (
    Key,
    Reading,
    Report,
    Side,
    Table,
    drop_from_page_cache,
    options_of,
    progress,
    publish,
    take_turns,
    timed,
    work_folder,
)
from _photos import make_jpeg

from fastload import Cache, FolderDataset
from fastload.datasets.cache.choosing import open_cache
from fastload.datasets.cache.options import no_cache
from fastload.datasets.cache.stored import StoreCache
from fastload.sources.files import FileList

READ, FOUND = "Read in random order", "Lookup in the cache"
_SIZE = (400, 500)
_DISTINCT = 50
_BATCH = 256


def main() -> None:
    options = options_of(__doc__, records={"type": int, "metavar": "N", "help": "how many files (4 000)"})
    options.records = options.records or (40 if options.smoke else 4_000)
    with work_folder(options) as folder:
        publish(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> Report:
    """Write the files, store them in both kinds of store, and read them in turns."""
    progress(f"writing {options.records} photos")
    photos = folder / "photos"
    photos.mkdir()
    images = [make_jpeg(number, _SIZE) for number in range(min(_DISTINCT, options.records))]
    for number in range(options.records):
        (photos / f"{number:06d}.jpg").write_bytes(images[number % len(images)])
    os.sync()
    dataset = FolderDataset(photos)
    files, count, size = dataset.source.files, len(dataset), dataset.source.size_bytes()
    stores = {kind: _filled(dataset, kind) for kind in ("ram", "tmpfs")}
    order = np.random.default_rng(0).permutation(count)
    sides: list[Side] = [
        partial(_read, "page cache", files.read, order),
        *(partial(_read, f"fastload, {kind}", _bytes_of(cache), order) for kind, cache in stores.items()),
        partial(_read_cold, files, order),
        partial(_found, "fastload, one at a time", _one_at_a_time(stores["ram"]), order),
        partial(_found, f"fastload, {_BATCH} at once", _at_once(stores["ram"]), order),
    ]
    for number in range(count):
        files.read(number)
    return Report(
        name="cache",
        question=str(__doc__).partition("\n")[0],
        setting={
            "bytes a record": size // count,
            "page cache": "warm, except for the row disk",
            "runs": options.runs,
            "processes": 1,
        },
        tables=[Table(READ, "records", count), Table(FOUND, "records", count)],
        readings=take_turns(sides, options.runs),
        missing=[],
        versions={},
    )


def _filled(dataset: FolderDataset, kind: str) -> StoreCache:
    """Return a cache that holds all files, each checked."""
    originals = dataset._originals()
    cache, _ = open_cache(Cache(kind), originals, lambda: no_cache("measured"))
    assert isinstance(cache, StoreCache), cache
    everything = np.arange(len(dataset))
    for _ in range(2):
        cache.images(everything, dataset._stored_images, None)
    assert cache.report().ready == 1, cache.report()
    return cache


def _bytes_of(cache: StoreCache) -> Callable[[int], bytes]:
    """Return a function that looks a file up in a cache and copies it out."""
    store = cache.store
    return lambda number: store.data(number).tobytes() if store.has(number) else b""


def _read(row: str, read: Callable[[int], object], order: np.ndarray) -> dict[Key, Reading]:
    def work() -> None:
        for number in order.tolist():
            read(number)

    return {Key(READ, row): Reading(timed(work))}


def _read_cold(files: FileList, order: np.ndarray) -> dict[Key, Reading]:
    """Drop the pages first, and read them back."""
    for number in range(len(files)):
        drop_from_page_cache(files.path(number))
    return _read("disk", files.read, order)


def _found(row: str, work: Callable[[np.ndarray], None], order: np.ndarray) -> dict[Key, Reading]:
    return {Key(FOUND, row): Reading(timed(partial(work, order)))}


def _one_at_a_time(samples: StoreCache) -> Callable[[np.ndarray], None]:
    store = samples.store

    def work(order: np.ndarray) -> None:
        for number in order.tolist():
            if store.has(number):
                store.data(number)

    return work


def _at_once(samples: StoreCache) -> Callable[[np.ndarray], None]:
    store = samples.store

    def work(order: np.ndarray) -> None:
        for first in range(0, len(order), _BATCH):
            positions = order[first : first + _BATCH]
            assert store.found(positions).all()

    return work


if __name__ == "__main__":
    main()
