"""Writing of other programs' LMDB databases, in the layouts that the sources read."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import lmdb

from fastload.shards.record import Record
from fastload.sources.stored_records import ImageFiles, StoredRecords, drafted, safe_path

_META = "meta_info.txt"
# Room for the tree, and a page of slack for each large value.
_BYTES_PER_RECORD, _LEAST_BYTES = 1 << 14, 1 << 24

KeyValue = tuple[bytes, bytes]


def write_lmdb(records: StoredRecords, root: Path) -> list[Path]:
    """Write the databases of a dataset under their names below root."""
    layout = str(records.manifest.made["source_kind"]).partition("-")[2]
    written, lines = [], list[str]()
    # A PNG file is larger than the pixels that it encodes by a thousandth at most.
    size = 2 * records.manifest.size_bytes + len(records) * _BYTES_PER_RECORD + _LEAST_BYTES
    for name, of_file in records.by_file():
        path = safe_path(root, name)
        with drafted(path) as draft:
            opened = lmdb.open(str(draft), map_size=size, subdir=False, lock=False, sync=False)
            with opened, opened.begin(write=True) as transaction:
                for key, value in _entries(layout, of_file, lines):
                    transaction.put(key, value)
        written.append(path)
    if layout == "basicsr":
        meta = root / _META
        with drafted(meta) as draft:
            draft.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
        written.append(meta)
    return written


def _entries(
    layout: str, records: Iterator[tuple[Record, ImageFiles]], lines: list[str]
) -> Iterator[KeyValue]:
    """Yield the entries of a database; numbered keys are renumbered, as some records may be left out."""
    keys: list[bytes] = []
    for record, files in records:
        key, data = os.fsencode(record.key), files["image"][0]
        number = len(keys)
        keys.append(key)
        if layout == "crnn":
            yield b"image-%09d" % (number + 1), data
            yield b"label-%09d" % (number + 1), record["text"].encode("utf-8", "surrogateescape")
        elif layout == "stylegan2":
            sizes = {key.partition(b"-")[0]: data}
            sizes |= {name[6:].encode(): file for name, (file, _) in files.items() if name != "image"}
            yield from ((b"%s-%05d" % (size, number), file) for size, file in sizes.items())
        elif layout == "pickled":
            yield key, pickle.dumps((data, record["label"]))
        else:
            if layout == "basicsr":
                lines.append(record["line"])
            yield key, data
    if layout == "crnn":
        yield b"num-samples", b"%d" % len(keys)
    elif layout == "stylegan2":
        yield b"length", b"%d" % len(keys)
    elif layout == "pickled":
        yield b"__keys__", pickle.dumps(keys)
        yield b"__len__", pickle.dumps(len(keys))
