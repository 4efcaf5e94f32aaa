"""Writing of other programs' databases, by the table of their keys."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastload.images.decode import decode
from fastload.shards.record import Record
from fastload.sources.databases.source import DATABASES, DatabaseLayout
from fastload.sources.writing import ImageFiles, StoredRecords, drafted, safe_path

# Room for the tree, and a page of slack for each large value.
_BYTES_PER_RECORD, _LEAST_BYTES = 1 << 14, 1 << 24


def write_databases(records: StoredRecords, root: Path) -> list[Path]:
    """Write the databases of a dataset under their names below root."""
    import lmdb

    program = DATABASES[str(records.manifest.made["source_kind"])]
    if program.keys == "rows":
        return [_write_arrays(program, records, root)]
    written, lines = [], list[str]()
    # A PNG file is larger than the pixels that it encodes by a thousandth at most.
    size = 2 * records.manifest.size_bytes + len(records) * _BYTES_PER_RECORD + _LEAST_BYTES
    for name, of_file in records.by_file():
        path = safe_path(root, name)
        with drafted(path) as draft:
            opened = lmdb.open(str(draft), map_size=size, subdir=False, lock=False, sync=False)
            with opened, opened.begin(write=True) as transaction:
                for key, value in _entries(program, of_file, lines):
                    transaction.put(key, value)
        written.append(path)
    if program.keys == "lines":
        meta = root / program.sign
        with drafted(meta) as draft:
            draft.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
        written.append(meta)
    return written


def _entries(
    program: DatabaseLayout, records: Iterator[tuple[Record, ImageFiles]], lines: list[str]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a database; numbered keys are renumbered, as some records may be left out."""
    keys: list[bytes] = []
    for number, (record, files) in enumerate(records, program.first):
        key, image = os.fsencode(record.key), files["image"][0]
        keys.append(key)
        if program.keys == "counted":
            sizes = {record.key.partition("-")[0]: image}
            sizes |= {
                name.removeprefix("image_"): file for name, (file, _) in files.items() if name != "image"
            }
            for size, file in sizes.items():
                yield program.image.format(size=size, number=number).encode(), file
            if program.value:
                text = record[program.field.name].encode("utf-8", "surrogateescape")
                yield program.value.format(number=number).encode(), text
        elif program.keys == "listed":
            yield key, pickle.dumps((image, record["label"]))
        else:
            if program.keys == "lines":
                lines.append(record[program.field.name])
            yield key, image
    if program.keys == "counted":
        yield program.sign.encode(), b"%d" % len(keys)
    elif program.keys == "listed":
        yield program.list.encode(), pickle.dumps(keys)
        yield program.sign.encode(), pickle.dumps(len(keys))


def _write_arrays(program: DatabaseLayout, records: StoredRecords, root: Path) -> Path:
    import h5py

    details = records.details
    path = safe_path(root, details["files"].each()[0].text())
    chunks = details["chunks"].value and tuple(side.count() for side in details["chunks"].each())
    labels: list[int] = []
    images: Any = None
    with drafted(path) as draft, h5py.File(draft, "x") as file:
        for record, files in records:
            pixels = decode(files["image"][0]).transpose(2, 0, 1)
            if images is None:
                shape = len(records), *pixels.shape
                images = file.create_dataset(program.sign, shape, np.uint8, chunks=chunks)
            images[len(labels)] = pixels
            labels.append(record["label"])
        if labels and len(labels) < len(records):  # some are damaged
            intact = images[: len(labels)]
            del file[program.sign]
            file.create_dataset(program.sign, data=intact)
        file.create_dataset(program.value, data=np.array(labels, details["labels"].text()))
    return path
