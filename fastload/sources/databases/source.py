"""LMDB databases of other programs as sources: CRNN (and CLOVA), BasicSR (and MMEngine), LSUN.

CRNN numbers its images and texts from 1; BasicSR names its images in a file beside the database; LSUN has a
database of images alone for each class and split, as any other program may write.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.schema import Field
from fastload.sources.containers import ContainerSource, files_by_split
from fastload.sources.files import NO_LABEL, Values, list_files, read_text
from fastload.sources.listing import Listing
from fastload.sources.malformed import FROM_PYTHON, explaining, malformed
from fastload.sources.names import NameTable
from fastload.sources.protocol import Claim, LeftOutReason, Reading, SourceRecord

if TYPE_CHECKING:
    import lmdb


CRNN, BASICSR, LSUN = "lmdb-crnn", "lmdb-basicsr", "lmdb-lsun"  # the kinds of sources
_FIELDS = {CRNN: (Field("text", "text"),), BASICSR: (), LSUN: (Field.label(),)}

_COUNT, _LINES = "num-samples", "meta_info.txt"  # CRNN's entry, and BasicSR's file
_LSUN_NAME = re.compile(r"(.+)_(train|val|test)_lmdb")
_LINE = re.compile(r"(.*)\.\w+ \([0-9]+, ?[0-9]+, ?[0-9]+\)( [0-9]+)?")
_DATA, _LOCK = "data.mdb", "lock.mdb"
_LOCKED: LeftOutReason = "a lock of LMDB", True
_UNLABELLED = {"": NO_LABEL}
_MOST_DIGITS = 12
_SAMPLED = 8
_REWRITE = "write the database again"


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder that is an LMDB database, or the folder of LSUN's databases, by class and split."""
    if _DATA in listing.top.others:
        return Claim("lmdb", "an LMDB database", _DATA, lambda: _database(listing))
    names = [
        name for name in listing.top.visible if name.endswith("_lmdb") and listing.has_file(f"{name}/{_DATA}")
    ]
    matches = {name: match[1] for name in names if (match := _LSUN_NAME.fullmatch(name))}
    if not matches:
        return None
    return Claim("lmdb", "LSUN's databases", next(iter(matches)), lambda: _lsun(listing, matches))


def open_file(path: str) -> Mapping[str, DatabaseSource] | None:
    """List the records of an LMDB database in a single file."""
    return {"": list_lmdb(path, _UNLABELLED)} if path.lower().endswith((".lmdb", ".mdb")) else None


def _database(listing: Listing) -> Reading:
    source = list_lmdb(listing.name, _UNLABELLED)
    return Reading({"": source}, [_LINES] if source.kind == BASICSR else [], {_LOCK: _LOCKED})


def _lsun(listing: Listing, class_of: Mapping[str, str]) -> Reading:
    classes = sorted({*class_of.values()})
    labels = {name: classes.index(class_name) for name, class_name in class_of.items()}
    sources = {
        split: list_lmdb(listing.name, {name: labels[name] for name in names}, classes)
        for split, names in files_by_split(listing.name, class_of).items()
    }
    return Reading(sources, (), {f"{name}/{_LOCK}": _LOCKED for name in class_of})


@dataclass(eq=False, kw_only=True)
class DatabaseSource(ContainerSource):
    """A `Source` of the records of a program's databases; `keys` are those of the images.

    A database is opened for each record, which takes 0.1 ms.
    """

    keys: NameTable

    def key(self, index: int) -> str:
        return self.keys[index]

    def read_from(self, path: str, index: int) -> SourceRecord:
        key, values = self.keys[index], dict[str, object]()
        path = os.path.dirname(path) if self.details["is_folder"] else path
        with _reading(path) as transaction:
            image = bytes(_entry(transaction, path, key))
            if self.kind == CRNN:
                text = bytes(_entry(transaction, path, key.replace("image", "label")))
                values["text"] = text.decode("utf-8", "surrogateescape")
        return SourceRecord(key, image, values)


def list_lmdb(path: str, labels: Mapping[str, int], classes: Sequence[str] = ()) -> DatabaseSource:
    """List the records of LMDB databases, which are given with their labels, by their names in a folder.

    `""` is the database at the path itself. SourceError is raised if no program that is known has its keys.
    """
    root, tables, warnings, kind = os.path.abspath(path), list[NameTable](), tuple[str, ...](), LSUN
    for name in labels:
        place = os.path.join(root, name) if name else root
        with _reading(place) as transaction:
            kind, keys = (LSUN, _every_key(place, transaction)) if name else _keys_of(place, transaction)
            tables.append(NameTable(keys))
            known = 1 + 2 * len(tables[-1]) if kind == CRNN else len(tables[-1])
            unknown = transaction.stat()["entries"] - known
        if unknown > 0:
            warnings = (f"{path} has {unknown:,} entries of no record, which are left out",)
    every = NameTable(itertools.chain(*tables))
    if not len(every):
        raise malformed(path, "hold at least one image", "none", "check the database")
    shard_of = np.repeat(np.arange(len(tables)), [*map(len, tables)])
    values: dict[str, Values] = {}
    if kind == LSUN:
        values["label"] = np.array([*labels.values()], np.int64)[shard_of]
    is_folder = os.path.isdir(root)
    files = [os.path.join(name, _DATA) if is_folder else os.path.basename(root) for name in labels]
    return DatabaseSource(
        kind=kind,
        name=path,
        classes=tuple(classes),
        fields=_FIELDS[kind],
        warnings=warnings,
        files=list_files(root if is_folder else os.path.dirname(root), files),
        values=values,
        shard_of=shard_of,
        details={"is_folder": is_folder},
        keys=every,
    )


def _keys_of(path: str, transaction: lmdb.Transaction) -> tuple[str, Iterable[str]]:
    """Return the kind of a database, and the keys of its images."""
    lines = os.path.join(path, _LINES)
    if os.path.isfile(lines):
        return BASICSR, _existing(transaction, path, _keys_in_lines(lines))
    if transaction.get(_COUNT.encode()) is None:
        return LSUN, _every_key(path, transaction)
    count = bytes(_entry(transaction, path, _COUNT))
    if not count.isdigit() or len(count) > _MOST_DIGITS or int(count) > transaction.stat()["entries"]:
        raise malformed(f"{path}, key {_COUNT!r}", "be the number of images", count[:40])
    numbers = range(1, 1 + int(count))
    return CRNN, _existing(transaction, path, (f"image-{number:09d}" for number in numbers))


def _keys_in_lines(path: str) -> Iterator[str]:
    """Yield the keys in lines `name.png (height,width,channels) level`: the names without suffixes."""
    for line in read_text(path).splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise malformed(path, "have lines like 'name.png (120,125,3) 1'", repr(line), _REWRITE)
        yield match[1]


def _every_key(path: str, transaction: lmdb.Transaction) -> Iterable[str]:
    keys = NameTable(os.fsdecode(bytes(key)) for key in transaction.cursor().iternext(values=False))
    for at in range(min(_SAMPLED, len(keys))):
        if format_of(bytes(_entry(transaction, path, keys[at])[:HEAD_BYTES])) is None:
            must = "be an image file, or the database one of CRNN, BasicSR or LSUN"
            raise malformed(f"{path}, key {keys[at]!r}", must, "other bytes", FROM_PYTHON)
    return keys


def _existing(transaction: lmdb.Transaction, path: str, keys: Iterable[str]) -> Iterator[str]:
    """Yield keys that must exist, up to the first that does not: a header may state any number of them."""
    for key in keys:
        _entry(transaction, path, key)
        yield key


@contextlib.contextmanager
def _reading(path: str) -> Iterator[lmdb.Transaction]:
    """Yield a transaction of a database that is open only in this block: LMDB forbids opening one twice."""
    import lmdb

    is_folder = os.path.isdir(path)
    options = {"subdir": is_folder, "readonly": True, "lock": False, "create": False, "readahead": False}
    must, step = "be an LMDB database", "copy or write it again"
    with explaining((lmdb.Error,), path, must, step), lmdb.open(path, **options) as opened:
        extent = (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
        size = os.stat(os.path.join(path, _DATA) if is_folder else path).st_size
        if extent > size:  # accessing a missing page would kill the process
            step = "it was cut off: copy it again"
            raise malformed(path, f"have its {extent:,} bytes", f"{size:,}", step)
        with opened.begin(buffers=True) as transaction:
            yield transaction


def _entry(transaction: lmdb.Transaction, path: str, key: str) -> memoryview:
    """Return the value of a key as a buffer; raise SourceError if there is none."""
    value: memoryview | None = transaction.get(os.fsencode(key))
    if value is None:
        raise malformed(f"{path}, key {key!r}", "exist", "no such key", _REWRITE)
    return value
