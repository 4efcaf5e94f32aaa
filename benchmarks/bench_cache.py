"""What does a record cost from a warm cache, compared with the page cache and the disk?

Method. A folder of generated photos of 120 KB is read in random order by one process, without decoding. The
sides take turns:

- *page cache*: `FileList.read`, as in a FolderDataset without a cache; all files are in the page cache.
- *fastload, ram* and *tmpfs*: the same files by `CachedFiles.read`, from a store that holds them all, with
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

from fastload.datasets.cache.files import FIXED_BYTES, CachedFiles
from fastload.datasets.cache.layout import Layout
from fastload.datasets.cache.opening import Opening, store_folder
from fastload.sources.files import FileList
from fastload.sources.opening import open_class_folders

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
    source = open_class_folders(str(photos))[""]
    files, count, size = source.files, len(source), source.size_bytes()
    stores = {kind: _filled(files, kind, count, size) for kind in ("ram", "tmpfs")}
    order = np.random.default_rng(0).permutation(count)
    sides: list[Side] = [
        partial(_read, "page cache", files.read, order),
        *(partial(_read, f"fastload, {kind}", samples.read, order) for kind, samples in stores.items()),
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


def _filled(files: FileList, kind: str, count: int, size: int) -> CachedFiles:
    """Return a store that holds all files, each checked."""
    layout = Layout(count, FIXED_BYTES, size)
    key = f"{os.getpid():032x}" if kind == "ram" else f"{os.getpid():x}".rjust(32, "f")
    opening = Opening("ram" if kind == "ram" else "tmpfs", "encoded", store_folder(), key, layout)
    samples = CachedFiles(files, opening)
    for _ in range(2):
        for number in range(count):
            samples.read(number)
    assert samples.store.ready == count, samples.store.why_closed
    return samples


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


def _one_at_a_time(samples: CachedFiles) -> Callable[[np.ndarray], None]:
    store = samples.store

    def work(order: np.ndarray) -> None:
        for number in order.tolist():
            if store.has(number):
                store.data(number)

    return work


def _at_once(samples: CachedFiles) -> Callable[[np.ndarray], None]:
    store = samples.store

    def work(order: np.ndarray) -> None:
        for first in range(0, len(order), _BATCH):
            positions = order[first : first + _BATCH]
            assert store.found(positions).all()

    return work


if __name__ == "__main__":
    main()
