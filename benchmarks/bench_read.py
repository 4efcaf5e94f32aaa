"""How many records a second come out of a packed dataset in random order, undecoded?

Method. Records of about 3 KB, small JPEGs with a label each, packed as HDF5 and as LMDB. One process opens
the dataset, reads all records in random order (first pass), and again in another order (second pass).
Reading gives what a consumer needs: the image's bytes copied into a bytes object, the label as an int. All
files are in the page cache: this is the cost of reading, not of a disk. The sides take turns; each opens
its files every time, so a first pass includes the mapping of pages.

- *mmap slices*: one file with all images end to end, sliced out of a mapping; offsets and labels in lists.
  No index, no checks: nothing in Python is faster.
- *lmdb get*, *h5py slice*: the same records in a plain LMDB file (one get, the label in front of the image)
  and in a plain HDF5 file (one slice of a dataset; offsets and labels in lists), by those libraries alone,
  unchecked.
- *PackedDataset.read*: fastload's, with `verify` never, once (the default) and always. `once` checks the
  CRC-32C of every record in the first pass and of none in the second.

Reading it. `relative time` is the median as a multiple of the mapping's: below 1 is faster. To see how much
it matters, compare the time of a record with that of decoding it: about 50 µs for such an image, a
millisecond for a photo.
"""

from __future__ import annotations

import argparse
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import h5py
import lmdb
import numpy as np
from _harness import (
    Key,
    Reading,
    Report,
    Side,
    Table,
    options_of,
    progress,
    publish,
    take_turns,
    timed,
    work_folder,
)
from _photos import make_jpeg

from fastload import PackedDataset, pack

FIRST, SECOND = "First pass", "Second pass"
_PIXELS = (56, 56)
_DISTINCT = 500
_LABEL_BYTES = 8

ReadAll = Callable[[Sequence[int]], None]
Opening = Callable[[], AbstractContextManager[ReadAll]]


class Records:
    """Small images and labels as a dataset to pack; beyond a few hundred, images repeat."""

    def __init__(self, count: int) -> None:
        self._images = [make_jpeg(number, _PIXELS) for number in range(min(count, _DISTINCT))]
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return self._images[index % len(self._images)], index % 1000

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        return map(self.__getitem__, range(self._count))

    def offsets(self) -> list[int]:
        """Return the offsets of the images stored end to end, and the end of the last one."""
        return [0, *np.cumsum([len(image) for image, _ in self]).tolist()]

    def labels(self) -> list[int]:
        """Return all labels."""
        return [label for _, label in self]


def main() -> None:
    options = options_of(__doc__, records={"type": int, "metavar": "N", "help": "how many (100 000)"})
    options.records = options.records or (200 if options.smoke else 100_000)
    with work_folder(options) as folder:
        publish(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> Report:
    """Write the records in every form and read them in turns."""
    records = Records(options.records)
    size = records.offsets()[-1] // len(records)
    progress(f"writing {len(records)} records of {size} bytes")
    openings: dict[str, Opening] = {
        "mmap slices": mapping_of(records, folder / "records.bin"),
        "lmdb get": lmdb_of(records, folder / "records.lmdb"),
        "h5py slice": h5py_of(records, folder / "records.h5"),
    }
    for container in ("hdf5", "lmdb"):
        path = folder / f"{container}.fl"
        pack(records, path, format=container, encode="keep")
        for verify in ("never", "once", "always"):
            name = f"PackedDataset.read, {container}, verify {verify}"
            openings[name] = partial(_packed, path, verify)
    rng = np.random.default_rng(0)
    orders = {title: rng.permutation(len(records)).tolist() for title in (FIRST, SECOND)}
    sides: list[Side] = [partial(_passes, name, way, orders) for name, way in openings.items()]
    return Report(
        name="read",
        question=str(__doc__).partition("\n")[0],
        setting={
            "bytes a record": size,
            "runs": options.runs,
            "processes": 1,
            "page cache": "warm",
        },
        tables=[Table(title, "records", len(records)) for title in orders],
        readings=take_turns(sides, options.runs),
        missing=[],
        versions={},
    )


def _passes(name: str, opening: Opening, orders: dict[str, list[int]]) -> dict[Key, Reading]:
    """Read everything in each of the orders."""
    with opening() as read_all:
        return {Key(title, name): Reading(timed(partial(read_all, order))) for title, order in orders.items()}


def mapping_of(records: Records, path: Path) -> Opening:
    """Write all images end to end."""
    offsets, labels = records.offsets(), records.labels()
    path.write_bytes(b"".join(image for image, _ in records))

    @contextmanager
    def opening() -> Iterator[ReadAll]:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:

            def read_all(order: Sequence[int]) -> None:
                for index in order:
                    _image, _label = mapping[offsets[index] : offsets[index + 1]], labels[index]

            yield read_all

    return opening


def lmdb_of(records: Records, path: Path) -> Opening:
    """Write a plain LMDB file."""
    map_size = 2 * records.offsets()[-1] + (64 << 20)
    with (
        lmdb.open(str(path), map_size=map_size, subdir=False, sync=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for index, (image, label) in enumerate(records):
            value = label.to_bytes(_LABEL_BYTES, "little") + image
            transaction.put(b"%08d" % index, value, append=True)

    @contextmanager
    def opening() -> Iterator[ReadAll]:
        with (
            lmdb.open(str(path), subdir=False, readonly=True, lock=False, readahead=False) as environment,
            environment.begin(buffers=True) as transaction,
        ):

            def read_all(order: Sequence[int]) -> None:
                for index in order:
                    value = transaction.get(b"%08d" % index)
                    _image = bytes(value[_LABEL_BYTES:])
                    _label = int.from_bytes(value[:_LABEL_BYTES], "little")

            yield read_all

    return opening


def h5py_of(records: Records, path: Path) -> Opening:
    """Write a plain HDF5 file."""
    offsets, labels = records.offsets(), records.labels()
    with h5py.File(path, "w") as file:
        file["images"] = np.frombuffer(b"".join(image for image, _ in records), np.uint8)

    @contextmanager
    def opening() -> Iterator[ReadAll]:
        with h5py.File(path, "r") as file:
            images = file["images"]

            def read_all(order: Sequence[int]) -> None:
                for index in order:
                    _image = images[offsets[index] : offsets[index + 1]].tobytes()
                    _label = labels[index]

            yield read_all

    return opening


@contextmanager
def _packed(path: Path, verify: str) -> Iterator[ReadAll]:
    """Open a packed dataset."""
    dataset = PackedDataset(path, verify=verify)

    def read_all(order: Sequence[int]) -> None:
        for index in order:
            record = dataset.read(index)
            _image, _label = record["image"], record["label"]

    yield read_all


if __name__ == "__main__":
    main()
