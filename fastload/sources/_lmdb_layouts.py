"""LMDB databases of other programs as sources, recognised by their keys.

    crnn        num-samples, image-000000001, label-000000001, …: text recognition (CRNN, CLOVA)
    pickled     __len__, __keys__, and pickles of (image, label): Efficient-PyTorch, Image2LMDB
    stylegan2   length, 256-00000, 256-00001, …: one or more sizes of each image (stylegan2-pytorch)
    basicsr     the names' stems, with meta_info.txt beside: super-resolution (BasicSR, MMEngine)
    lsun        any keys, of images alone; a folder of them, `NAME_train_lmdb`, is one dataset of classes

Pickles are read for plain values alone; records that pyarrow serialized are refused.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastload.errors import SourceError
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.schema import Field
from fastload.sources._containers import ContainerSource, by_split
from fastload.sources._malformed import malformed
from fastload.sources._plain_pickle import read_plain
from fastload.sources._walking import list_entries
from fastload.sources.files import NO_LABEL, NameTable, list_files
from fastload.sources.protocol import SourceRecord

_DATA = "data.mdb"
_META = "meta_info.txt"
_LSUN = re.compile(r"(.+)_(train|val|test)_lmdb")
_MOST_DIGITS = 12
_INT64 = range(-(2**63), 2**63)
# The entries of each layout beside those of the records.
_OTHERS = {"crnn": 1, "stylegan2": 1, "pickled": 2}
_SAMPLED = 8


def is_lmdb(path: str) -> bool:
    """Return True for an LMDB database, a folder or a file, and for a folder of LSUN's databases."""
    if not os.path.isdir(path):
        return path.lower().endswith((".lmdb", ".mdb"))
    folder = list_entries(path)
    return _DATA in folder.files or bool(_lsun_folders(path))


def open_lmdb(path: str) -> dict[str, LmdbSource]:
    """List the records of a database, or of LSUN's databases by split; raise SourceError for unknown keys."""
    root = os.path.abspath(path)
    folders = [] if os.path.isfile(os.path.join(root, _DATA)) else _lsun_folders(root)
    if not folders:
        return {"": _list_one(path, root)}
    classes = tuple(sorted({str(_LSUN.fullmatch(name)[1]) for name in folders}))  # type: ignore[index]
    return {split: _list_lsun(path, root, names, classes) for split, names in by_split(folders).items()}


def _lsun_folders(path: str) -> list[str]:
    names = list_entries(path).folders if os.path.isdir(path) else ()
    return [
        name for name in names if _LSUN.fullmatch(name) and os.path.isfile(os.path.join(path, name, _DATA))
    ]


@contextlib.contextmanager
def _reading(path: str) -> Iterator[Any]:
    """Yield a transaction of a database, opened for this block alone: LMDB forbids opening one twice."""
    import lmdb

    try:
        is_folder = os.path.isdir(path)
        with lmdb.open(
            path, subdir=is_folder, readonly=True, lock=False, create=False, readahead=False
        ) as opened:
            extent = (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
            size = os.stat(os.path.join(path, _DATA) if is_folder else path).st_size
            if extent > size:  # accessing a missing page would kill the process
                raise SourceError(
                    f"{path}: must have its {extent:,} bytes, got {size:,}: it was cut off: copy it again"
                )
            with opened.begin(buffers=True) as transaction:
                yield transaction
    except lmdb.Error as error:
        raise malformed(path, "be an LMDB database", error, "copy or write it again") from error


@dataclass(slots=True)
class _Records:
    """The records found in a database.

    `keys` are those of the images; `further` are those of other fields' values, and `values` other fields'
    values themselves.
    """

    layout: str
    keys: NameTable = field(default_factory=NameTable)
    fields: tuple[Field, ...] = ()
    further: dict[str, NameTable] = field(default_factory=dict)
    values: dict[str, NameTable] = field(default_factory=dict)


def _list_one(path: str, root: str) -> LmdbSource:
    with _reading(root) as transaction:
        meta = os.path.join(root, _META)
        if os.path.isfile(meta):
            found = _basicsr(meta)
        elif transaction.get(b"num-samples") is not None:
            found = _crnn(root, _count(root, transaction, b"num-samples"))
        elif transaction.get(b"length") is not None:
            found = _stylegan2(root, transaction, _count(root, transaction, b"length"))
        elif transaction.get(b"__len__") is not None:
            found = _pickled(root, transaction)
        else:
            found = _lsun(root, transaction)
        known = len(found.keys) * (1 + len(found.further)) + _OTHERS.get(found.layout, 0)
        unknown = transaction.stat()["entries"] - known
        for name in found.keys:
            if transaction.get(os.fsencode(name)) is None:
                raise malformed(f"{root}, key {name!r}", "exist", "no such key", "write the database again")
    labels = np.full(len(found.keys), NO_LABEL, np.int64) if not found.fields else None
    source = _source(path, root, [""], found, labels, np.zeros(len(found.keys), np.int64))
    if unknown > 0:
        source.warnings = (f"{path} has {unknown:,} entries of no record, which are left out",)
    return source


def _list_lsun(path: str, root: str, names: Sequence[str], classes: tuple[str, ...]) -> LmdbSource:
    records = _Records("lsun")
    labels: list[int] = []
    numbers: list[int] = []
    for number, name in enumerate(names):
        with _reading(os.path.join(root, name)) as transaction:
            found = _lsun(os.path.join(root, name), transaction)
        for key in found.keys:
            records.keys.append(key)
        labels += [classes.index(name[: name.rindex("_", 0, name.rindex("_"))])] * len(found.keys)
        numbers += [number] * len(found.keys)
    return _source(path, root, names, records, np.array(labels), np.array(numbers), classes)


def _source(
    path: str,
    root: str,
    names: Sequence[str],
    found: _Records,
    labels: Any,
    numbers: Any,
    classes: tuple[str, ...] = (),
) -> LmdbSource:
    if not len(found.keys):
        raise SourceError(f"{path}: must hold at least one image, got none: check the database")
    is_folder = os.path.isdir(os.path.join(root, names[0]) if names[0] else root)
    files = [os.path.join(name, _DATA) if is_folder else os.path.basename(root) for name in names]
    fields = found.fields if labels is None else (Field.label(),)
    return LmdbSource(
        kind=f"lmdb-{found.layout}",
        name=path,
        classes=classes,
        fields=(*fields, Field("shard", "scalar", "int64", internal=True)),
        files=list_files(root if is_folder else os.path.dirname(root), files),
        records=found,
        labels=labels,
        numbers=numbers,
        details={"files": files, "is_folder": is_folder},
    )


def _count(path: str, transaction: Any, key: bytes) -> int:
    text = bytes(transaction.get(key))
    if not text.isdigit() or len(text) > _MOST_DIGITS or int(text) > transaction.stat()["entries"]:
        raise malformed(f"{path}, key {key.decode()!r}", "be the number of images", text[:40])
    return int(text)


def _is_int64(value: object) -> bool:
    return type(value) is int and value in _INT64


def _crnn(path: str, count: int) -> _Records:
    numbers = range(1, count + 1)
    return _Records(
        "crnn",
        NameTable(f"image-{number:09d}" for number in numbers),
        (Field("text", "text"),),
        {"text": NameTable(f"label-{number:09d}" for number in numbers)},
    )


def _stylegan2(path: str, transaction: Any, count: int) -> _Records:
    sizes = []
    cursor = transaction.cursor()
    while cursor.key() or cursor.first():
        size, dash, number = bytes(cursor.key()).partition(b"-")
        if dash and size.isdigit() and number.isdigit():
            sizes.append(int(size))
        if not cursor.set_range(size + b"."):  # the character after the dash
            break
    if not sizes:
        raise SourceError(f"{path}: must have keys such as '256-00000' beside 'length', got none of them")
    image, *others = sorted(sizes, reverse=True)
    keys = {size: NameTable(f"{size}-{number:05d}" for number in range(count)) for size in sizes}
    fields = tuple(Field(f"image_{size}", "image", encoding="keep") for size in others)
    return _Records("stylegan2", keys[image], fields, {f"image_{size}": keys[size] for size in others})


def _pickled(path: str, transaction: Any) -> _Records:
    stored = transaction.get(b"__keys__")
    if stored is None:
        raise SourceError(f"{path}: must have the key '__keys__' beside '__len__': write the database again")
    keys = read_plain(bytes(stored), f"{path}, key '__keys__'")
    length = read_plain(bytes(transaction.get(b"__len__")), f"{path}, key '__len__'")
    if (
        not isinstance(keys, (list, tuple))
        or not all(isinstance(key, bytes) for key in keys)
        or len(keys) != length
    ):
        raise malformed(path, f"list its {length!r} keys in '__keys__'", "another list", "write it again")
    return _Records("pickled", NameTable(map(os.fsdecode, keys)), (Field.label(),))


def _basicsr(meta: str) -> _Records:
    """List by meta_info.txt, whose lines are `name.png (height,width,channels) level`; keys are stems."""
    found = _Records("basicsr", fields=(Field("line", "text", internal=True),), values={"line": NameTable()})
    with open(meta, encoding="utf-8", errors="surrogateescape") as file:
        for line in file.read().splitlines():
            name = line.split(" ")[0]
            if not re.fullmatch(r".*\.\w+ \([0-9]+, ?[0-9]+, ?[0-9]+\)( [0-9]+)?", line):
                raise SourceError(f"{meta}: must have lines like 'name.png (120,125,3) 1', got {line!r}")
            found.keys.append(os.path.splitext(name)[0])
            found.values["line"].append(line)
    return found


def _lsun(path: str, transaction: Any) -> _Records:
    keys = NameTable(os.fsdecode(bytes(key)) for key in transaction.cursor().iternext(values=False))
    for at in range(min(_SAMPLED, len(keys))):
        head = bytes(transaction.get(os.fsencode(keys[at]))[:HEAD_BYTES])
        if format_of(head) is None:
            raise SourceError(
                f"{path}, key {keys[at]!r}: must be an image file, or the database one of CRNN, "
                "Efficient-PyTorch, stylegan2-pytorch, BasicSR or LSUN, got other bytes: from Python, "
                "fastload.pack takes a map-style dataset that reads them: fastload.pack(dataset, 'DEST.fl')"
            )
    return _Records("lsun", keys)


@dataclass(eq=False, kw_only=True)
class LmdbSource(ContainerSource):
    """A `Source` of the records of LMDB databases; `numbers` gives the database of each."""

    records: _Records
    labels: Any
    numbers: Any

    def __len__(self) -> int:
        return len(self.records.keys)

    def key(self, index: int) -> str:
        """Return the image's key in the database."""
        return self.records.keys[index]

    def read(self, index: int) -> SourceRecord:
        """Read one record; the database is opened for it alone, in 0.1 ms."""
        number, found = int(self.numbers[index]), self.records
        file = self.unchanged(number)
        path = os.path.dirname(file) if self.details["is_folder"] else file
        values: dict[str, object] = {
            "shard": number,
            **{name: each[index] for name, each in found.values.items()},
        }
        with _reading(path) as transaction:
            image = self._get(transaction, path, found.keys[index])
            for name, keys in found.further.items():
                data = self._get(transaction, path, keys[index])
                values[name] = data.decode("utf-8", "surrogateescape") if name == "text" else data
        if self.labels is not None:
            values["label"] = int(self.labels[index])
        if found.layout == "pickled":
            image, values["label"] = self._unpickled(image, f"{path}, key {found.keys[index]!r}")
        return SourceRecord(self.key(index), image, values)

    @staticmethod
    def _get(transaction: Any, path: str, key: str) -> bytes:
        value = transaction.get(os.fsencode(key))
        if value is None:
            raise SourceError(f"{path}, key {key!r}: must exist, got no such key: write the database again")
        return bytes(value)

    @staticmethod
    def _unpickled(data: bytes, where: str) -> tuple[bytes, int]:
        value = read_plain(data, where)
        is_pair = isinstance(value, (tuple, list)) and len(value) == 2
        if not is_pair or not isinstance(value[0], bytes) or not _is_int64(value[1]):
            got = [type(each).__name__ for each in value] if is_pair else type(value).__name__
            raise SourceError(f"{where}: must be (bytes of an image, integer label), got {got}: leave it out")
        return value[0], value[1]
