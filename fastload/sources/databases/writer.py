"""Writing of other programs' databases, by the table of their keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import lmdb

from fastload.shards.record import Record
from fastload.sources.databases.source import DATABASES, DatabaseLayout
from fastload.sources.stored_records import ImageFiles, StoredRecords, drafted, safe_path

# Room for the tree, and a page of slack for each large value.
_BYTES_PER_RECORD, _LEAST_BYTES = 1 << 14, 1 << 24


def write_databases(records: StoredRecords, root: Path) -> list[Path]:
    """Write the databases of a dataset under their names below root."""
    program = DATABASES[records.manifest.made["source_kind"]]
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
    count = 0
    for number, (record, files) in enumerate(records, program.first):
        image = files["image"][0]
        if program.keys == "counted":
            count += 1
            sizes = {record.key.partition("-")[0]: image}
            sizes |= {
                name.removeprefix("image_"): file for name, (file, _) in files.items() if name != "image"
            }
            for size, file in sizes.items():
                yield program.image.format(size=size, number=number).encode(), file
            if program.value:
                text = record[program.field.name].encode("utf-8", "surrogateescape")
                yield program.value.format(number=number).encode(), text
        else:
            if program.keys == "lines":
                lines.append(record[program.field.name])
            yield os.fsencode(record.key), image
    if program.keys == "counted":
        yield program.sign.encode(), b"%d" % count
